/*
 * Updates of memory that others update at the same time. If the width and address of an element allow it, each update
 * is one atomic exchange. Otherwise it is plain loads and stores under the caller's lock.
 */
#include "data/data.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { ELEMENT_MAX = 16 };

bool data_update_is_atomic(const void *at, size_t element)
{
    bool width = element == 1 || element == 2 || element == 4 || element == 8;

    return width && ((uintptr_t)at & (element - 1)) == 0;
}

/* A compare-and-exchange of one word of this width. *old: the expected value, then the previous one. True: exchanged. */
#define EXCHANGE(bits)                                                                                                                     \
    static bool exchange##bits(void *at, void *old, const void *wanted)                                                                    \
    {                                                                                                                                      \
        uint##bits##_t was, will;                                                                                                          \
        memcpy(&was, old, sizeof was);                                                                                                     \
        memcpy(&will, wanted, sizeof will);                                                                                                \
        bool done =                                                                                                                        \
            atomic_compare_exchange_strong_explicit((_Atomic uint##bits##_t *)at, &was, will, memory_order_acq_rel, memory_order_acquire); \
        memcpy(old, &was, sizeof was);                                                                                                     \
        return done;                                                                                                                       \
    }
EXCHANGE(8)
EXCHANGE(16)
EXCHANGE(32)
EXCHANGE(64)

static void load(const void *at, void *old, size_t element)
{
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    uint64_t both;

    switch (element) {
    case 1:
        byte = atomic_load_explicit((_Atomic uint8_t *)(uintptr_t)at, memory_order_acquire);
        memcpy(old, &byte, sizeof byte);
        break;
    case 2:
        half = atomic_load_explicit((_Atomic uint16_t *)(uintptr_t)at, memory_order_acquire);
        memcpy(old, &half, sizeof half);
        break;
    case 4:
        word = atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)at, memory_order_acquire);
        memcpy(old, &word, sizeof word);
        break;
    default:
        both = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)at, memory_order_acquire);
        memcpy(old, &both, sizeof both);
    }
}

static bool exchange(void *at, void *old, const void *wanted, size_t element)
{
    switch (element) {
    case 1:
        return exchange8(at, old, wanted);
    case 2:
        return exchange16(at, old, wanted);
    case 4:
        return exchange32(at, old, wanted);
    default:
        return exchange64(at, old, wanted);
    }
}

static void combine(const struct data_update *u, const void *old, const void *from, void *to)
{
    const void *both[2] = {old, from};

    if (u->op == COMM_REPLACE)
        memcpy(to, from, u->element);
    else
        u->reduce(&(struct data_reduce){.from = both, .ways = 2, .divisor = 1, .to = to, .elements = 1, .final = true});
}

void data_update(const struct data_update *u)
{
    _Alignas(16) char old[ELEMENT_MAX], from[ELEMENT_MAX], to[ELEMENT_MAX];

    for (size_t i = 0; i < u->n; i++) {
        char *at = (char *)u->at + i * u->element;
        if (u->op != COMM_NOOP)
            memcpy(from, (const char *)u->from + i * u->element, u->element);
        if (u->locked) {
            memcpy(old, at, u->element);
            if (u->op != COMM_NOOP) {
                combine(u, old, from, to);
                memcpy(at, to, u->element);
            }
        } else {
            load(at, old, u->element);
            while (u->op != COMM_NOOP) {
                combine(u, old, from, to);
                if (exchange(at, old, to, u->element))
                    break;
            }
        }
        if (u->old)
            memcpy((char *)u->old + i * u->element, old, u->element);
    }
}

void data_compare_swap(void *at, const void *expected, const void *desired, void *old, size_t element, bool locked)
{
    char was[ELEMENT_MAX];

    memcpy(was, expected, element);
    if (!locked) {
        (void)exchange(at, was, desired, element);
    } else {
        memcpy(was, at, element);
        if (!memcmp(was, expected, element))
            memcpy(at, desired, element);
    }
    memcpy(old, was, element);
}
