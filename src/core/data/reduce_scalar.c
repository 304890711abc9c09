/*
 * The kernels in 16-byte vectors, which every CPU has or the compiler splits. Also the tails of all kernels: they
 * process a few elements in vectors that are only partly filled. Lanes without an element hold zero and are never
 * stored.
 */
#define DATA_VECTOR_BYTES 16
#define DATA_ISA scalar
#include "data/reduce_body.h"

enum { TREE_LEVELS = 7 }; /* enough for 64 inputs */

/* bytes: 16, 8, 4, 2 or 1. */
DATA_INLINE vector load_part(const char *from, size_t bytes)
{
    uint64_t eight;
    uint32_t four;
    uint16_t two;
    switch (bytes) {
    case 16:
        return vector_load(from);
    case 8:
        memcpy(&eight, from, 8);
        return (vector)(vector_u64){eight};
    case 4:
        memcpy(&four, from, 4);
        return (vector)(vector_u32){four};
    case 2:
        memcpy(&two, from, 2);
        return (vector)(vector_u16){two};
    default:
        return (vector)(vector_u8){*(const uint8_t *)from};
    }
}

DATA_INLINE void store_part(char *to, vector value, size_t bytes)
{
    const uint64_t eight = value[0];
    const uint32_t four = ((vector_u32)value)[0];
    const uint16_t two = ((vector_u16)value)[0];
    switch (bytes) {
    case 16:
        vector_store(to, value);
        return;
    case 8:
        memcpy(to, &eight, 8);
        return;
    case 4:
        memcpy(to, &four, 4);
        return;
    case 2:
        memcpy(to, &two, 2);
        return;
    default:
        *(uint8_t *)to = ((vector_u8)value)[0];
    }
}

DATA_INLINE half_vector half_of(vector value)
{
    const uint64_t bits = value[0];
    half_vector half;
    memcpy(&half, &bits, sizeof(half));
    return half;
}

DATA_INLINE vector leaf_part(const struct data_reduce *reduce, uint32_t i, size_t at, size_t count, enum comm_type type)
{
    const char *from = reduce->from[i];
    if (data_type_is_half(type) && !(reduce->partial >> i & 1))
        return half_decode(half_of(load_part(from + at * 2, count * 2)), type);
    return load_part(from + at * accumulator_bytes(type), count * accumulator_bytes(type));
}

DATA_INLINE vector tree_part(const struct data_reduce *reduce, size_t at, size_t count, enum comm_type type, combine_fn *combine)
{
    vector waiting[TREE_LEVELS], value = leaf_part(reduce, 0, at, count, type);
    uint32_t depth = 0;
    if (reduce->ways == 2)
        return combine(value, leaf_part(reduce, 1, at, count, type));
    for (uint32_t i = 1; i < reduce->ways; i++) {
        waiting[depth++] = value;
        value = leaf_part(reduce, i, at, count, type);
        for (uint32_t bits = i; bits & 1; bits >>= 1)
            value = combine(waiting[--depth], value);
    }
    while (depth)
        value = combine(waiting[--depth], value);
    return value;
}

DATA_INLINE void put_part(char *to, size_t at, vector value, size_t count, enum comm_type type, bool final)
{
    if (data_type_is_half(type) && final) {
        const half_vector half = half_encode(value, type);
        uint64_t bits;
        memcpy(&bits, &half, sizeof(bits));
        store_part(to + at * 2, (vector)(vector_u64){bits}, count * 2);
        return;
    }
    store_part(to + at * accumulator_bytes(type), value, count * accumulator_bytes(type));
}

DATA_INLINE void part_of_pair(const struct data_reduce *reduce, size_t at, size_t count, enum comm_type type, comm_op op,
                              combine_fn *combine)
{
    vector value = tree_part(reduce, at, count, type, combine);
    if (op == COMM_AVG)
        value = vector_divide(value, reduce->divisor, type);
    put_part(reduce->to, at, value, count, type, reduce->final);
    if (reduce->also)
        put_part(reduce->also, at, value, count, type, reduce->final);
}

/* Whole vectors, then halves of one. Each length is a constant where it is expanded, because small operations spend
 * their time here. */
DATA_INLINE void tail_of_pair(const struct data_reduce *reduce, size_t first, size_t count, enum comm_type type, comm_op op,
                              combine_fn *combine)
{
    const size_t lanes = lanes_of(type);
    for (; count >= lanes; first += lanes, count -= lanes)
        part_of_pair(reduce, first, lanes, type, op, combine);
#define DATA_PART(size)                                                                                                                    \
    if (lanes > (size) && (count & (size))) {                                                                                              \
        part_of_pair(reduce, first, size, type, op, combine);                                                                              \
        first += (size);                                                                                                                   \
    }
    DATA_PART(8)
    DATA_PART(4)
    DATA_PART(2)
    DATA_PART(1)
#undef DATA_PART
}

#define DATA_TAIL_DEFINE(name, type, op, hot)                                                                                              \
    void data_tail_##name(const struct data_reduce *reduce, size_t first, size_t count)                                                    \
    {                                                                                                                                      \
        tail_of_pair(reduce, first, count, type, op, combine_of_##name);                                                                   \
    }
DATA_KERNELS(DATA_TAIL_DEFINE)
