/*
 * The functions that the compiler's instrumentation for ThreadSanitizer calls, instead of the detector's own run-time.
 * Outside of a run (in the set-up and the final checks) an operation is simply executed.
 */
#define _GNU_SOURCE
#include "model/hooks.h"

#include <string.h>

extern const char __executable_start;

static uintptr_t site_of(const void *caller)
{
    return (uintptr_t)caller - (uintptr_t)&__executable_start;
}
#define SITE site_of(__builtin_return_address(0))

/* ------------------------------------------------------------------------------------------------------------ atomics */
static struct op op_of(enum model_kind kind, const volatile void *at, uint32_t bytes, int order, uintptr_t site)
{
    return (struct op){.kind = kind,
                       .address = (uintptr_t)at,
                       .bytes = bytes,
                       .order = order,
                       .order_failed = order,
                       .sc = order == __ATOMIC_SEQ_CST,
                       .site = site};
}

#define CHANGE(bits, name, which, direct)                                                                                                  \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t value, int order);                             \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t value, int order)                              \
    {                                                                                                                                      \
        uint32_t thread;                                                                                                                   \
        if (!explore_running(&thread))                                                                                                     \
            return direct(at, value, __ATOMIC_SEQ_CST);                                                                                    \
        struct op op = op_of(MODEL_CHANGE, at, sizeof *at, order, SITE);                                                                   \
        op.change = which;                                                                                                                 \
        op.operand = value;                                                                                                                \
        return (uint##bits##_t)explore_atomic(&op);                                                                                        \
    }

#define COMPARE(bits, name)                                                                                                                \
    int __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t *expected, uint##bits##_t value, int order, int failed);  \
    int __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t *expected, uint##bits##_t value, int order, int failed)   \
    {                                                                                                                                      \
        uint32_t thread;                                                                                                                   \
        if (!explore_running(&thread))                                                                                                     \
            return __atomic_compare_exchange_n(at, expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                \
        struct op op = op_of(MODEL_CHANGE, at, sizeof *at, order, SITE);                                                                   \
        op.change = CHANGE_COMPARE;                                                                                                        \
        op.order_failed = failed;                                                                                                          \
        op.operand = value;                                                                                                                \
        op.expected = *expected;                                                                                                           \
        uint64_t old = explore_atomic(&op);                                                                                                \
        if (!op.succeeded)                                                                                                                 \
            *expected = (uint##bits##_t)old;                                                                                               \
        return op.succeeded;                                                                                                               \
    }

/* clang's form: returns the previous value. */
#define COMPARE_VALUE(bits)                                                                                                                \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t *at, uint##bits##_t expected, uint##bits##_t value,  \
                                                              int order, int failed);                                                      \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t *at, uint##bits##_t expected, uint##bits##_t value,  \
                                                              int order, int failed)                                                       \
    {                                                                                                                                      \
        uint32_t thread;                                                                                                                   \
        if (!explore_running(&thread)) {                                                                                                   \
            __atomic_compare_exchange_n(at, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                      \
            return expected;                                                                                                               \
        }                                                                                                                                  \
        struct op op = op_of(MODEL_CHANGE, at, sizeof *at, order, SITE);                                                                   \
        op.change = CHANGE_COMPARE;                                                                                                        \
        op.order_failed = failed;                                                                                                          \
        op.operand = value;                                                                                                                \
        op.expected = expected;                                                                                                            \
        return (uint##bits##_t)explore_atomic(&op);                                                                                        \
    }

#define WORD(bits)                                                                                                                         \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order);                                               \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order)                                                \
    {                                                                                                                                      \
        uint32_t thread;                                                                                                                   \
        struct op op = op_of(MODEL_LOAD, at, sizeof *at, order, SITE);                                                                     \
        return explore_running(&thread) ? (uint##bits##_t)explore_atomic(&op) : *at;                                                       \
    }                                                                                                                                      \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order);                                        \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order)                                         \
    {                                                                                                                                      \
        uint32_t thread;                                                                                                                   \
        struct op op = op_of(MODEL_STORE, at, sizeof *at, order, SITE);                                                                    \
        op.operand = value;                                                                                                                \
        if (explore_running(&thread))                                                                                                      \
            explore_atomic(&op);                                                                                                           \
        else                                                                                                                               \
            *at = value;                                                                                                                   \
    }                                                                                                                                      \
    CHANGE(bits, exchange, CHANGE_SET, __atomic_exchange_n)                                                                                \
    CHANGE(bits, fetch_add, CHANGE_ADD, __atomic_fetch_add)                                                                                \
    CHANGE(bits, fetch_sub, CHANGE_SUB, __atomic_fetch_sub)                                                                                \
    CHANGE(bits, fetch_and, CHANGE_AND, __atomic_fetch_and)                                                                                \
    CHANGE(bits, fetch_or, CHANGE_OR, __atomic_fetch_or)                                                                                   \
    CHANGE(bits, fetch_xor, CHANGE_XOR, __atomic_fetch_xor)                                                                                \
    COMPARE(bits, compare_exchange_strong)                                                                                                 \
    COMPARE(bits, compare_exchange_weak)                                                                                                   \
    COMPARE_VALUE(bits)
WORD(8)
WORD(16)
WORD(32)
WORD(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    uint32_t thread;
    struct op op = op_of(MODEL_FENCE, NULL, 0, order, SITE);
    if (explore_running(&thread))
        explore_fence(&op);
}

void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    uint32_t thread;
    struct op op = op_of(MODEL_SIGNAL_FENCE, NULL, 0, order, SITE);
    if (explore_running(&thread))
        explore_fence(&op);
}

/* ------------------------------------------------------------------------------------------------------------ plain accesses */
static void plain(const volatile void *at, size_t bytes, bool write)
{
    uint32_t thread;
    if (explore_running(&thread))
        explore_plain((uintptr_t)at, bytes, write);
}

#define PLAIN(name, bytes, write)                                                                                                          \
    void __tsan_##name(void *at);                                                                                                          \
    void __tsan_##name(void *at)                                                                                                           \
    {                                                                                                                                      \
        plain(at, bytes, write);                                                                                                           \
    }
#define BOTH(bytes)                                                                                                                        \
    PLAIN(read##bytes, bytes, false)                                                                                                       \
    PLAIN(write##bytes, bytes, true)                                                                                                       \
    PLAIN(unaligned_read##bytes, bytes, false)                                                                                             \
    PLAIN(unaligned_write##bytes, bytes, true)                                                                                             \
    PLAIN(read##bytes##_pc, bytes, false)                                                                                                  \
    PLAIN(write##bytes##_pc, bytes, true)
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)

#define RANGE(name, write)                                                                                                                 \
    void __tsan_##name(void *at, size_t bytes);                                                                                            \
    void __tsan_##name(void *at, size_t bytes)                                                                                             \
    {                                                                                                                                      \
        plain(at, bytes, write);                                                                                                           \
    }
RANGE(read_range, false)
RANGE(write_range, true)

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller)
{
    (void)caller;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}

/* replace.h makes the instrumented sources call these. */
void *model_memcpy(void *to, const void *from, size_t bytes);
void *model_memcpy(void *to, const void *from, size_t bytes)
{
    plain(from, bytes, false);
    plain(to, bytes, true);
    return memcpy(to, from, bytes);
}
void *model_memset(void *to, int value, size_t bytes);
void *model_memset(void *to, int value, size_t bytes)
{
    plain(to, bytes, true);
    return memset(to, value, bytes);
}

/* A thread that dirties what it has read writes there: a race with the owner if nothing orders them. */
void model_dirty(void *at, size_t bytes);
void model_dirty(void *at, size_t bytes)
{
    plain(at, bytes, true);
    memset(at, 0, bytes);
}
void model_take(void *to, void *from, size_t bytes, bool nontemporal);
void model_take(void *to, void *from, size_t bytes, bool nontemporal)
{
    (void)nontemporal;
    model_memcpy(to, from, bytes);
    model_dirty(from, bytes);
}

/* Copies of whole structs; newer compilers call this. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    return model_memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes)
{
    return model_memset(to, value, bytes);
}
