/*
 * User-defined operators: evaluated along T in pairs, a block of elements at a time. The right-hand operand of a pair
 * is copied before the user's function overwrites it with the result. The left-hand operand is only read.
 */
#include "data/data.h"

#include "base/check.h"

#include <string.h>

enum { USER_BLOCK_BYTES = 1024, USER_LEVELS = 8 /* enough for 64 inputs and the value being computed */ };

/* A value that waits to be combined: an input, or a result in a place. */
struct value {
    const char *at;
    int place; /* -1: an input */
};

/* Places for results; `free` has a bit for each unused one. */
struct places {
    _Alignas(64) char room[USER_LEVELS][DATA_USER_BYTES_MAX];
    uint32_t free;
};

static struct value combine(const struct data_user *user, struct places *places, struct value left, struct value right, size_t bytes)
{
    if (right.place < 0) {
        BASE_DEBUG_ASSERT(places->free);
        int place = __builtin_ctz(places->free);
        memcpy(places->room[place], right.at, bytes);
        places->free &= ~(1u << place);
        right = (struct value){places->room[place], place};
    }
    user->fn(places->room[right.place], left.at, bytes / user->element_bytes, user->arg);
    if (left.place >= 0)
        places->free |= 1u << left.place;
    return right;
}

static struct value tree(const struct data_reduce *reduce, struct places *places, size_t at, size_t bytes)
{
    const struct data_user *user = reduce->context;
    struct value waiting[USER_LEVELS];
    uint32_t depth = 0;

    places->free = (1u << USER_LEVELS) - 1;
    for (uint32_t i = 0; i < reduce->ways; i++) {
        struct value value = {(const char *)reduce->from[i] + at, -1};
        for (uint32_t bits = i; bits & 1; bits >>= 1)
            value = combine(user, places, waiting[--depth], value, bytes);
        waiting[depth++] = value;
    }
    for (; depth > 1; depth--)
        waiting[depth - 2] = combine(user, places, waiting[depth - 2], waiting[depth - 1], bytes);
    return waiting[0];
}

void data_reduce_user(const struct data_reduce *reduce)
{
    const struct data_user *user = reduce->context;
    size_t element = user->element_bytes, block = element < USER_BLOCK_BYTES ? USER_BLOCK_BYTES / element * element : element;
    struct places places;

    BASE_ASSERT(reduce->elements % element == 0 && element <= DATA_USER_BYTES_MAX);
    for (size_t at = 0; at < reduce->elements; at += block) {
        size_t bytes = reduce->elements - at < block ? reduce->elements - at : block;
        struct value value = tree(reduce, &places, at, bytes);
        if (value.at != (char *)reduce->to + at)
            memcpy((char *)reduce->to + at, value.at, bytes);
        if (reduce->also)
            memcpy((char *)reduce->also + at, value.at, bytes);
    }
}
