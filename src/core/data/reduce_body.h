/*
 * reduce_body: the wide loops of all kernels, compiled once per instruction set. The including file defines
 * DATA_VECTOR_BYTES and DATA_ISA, the suffix of its names. The ends of a loop are handled by the tails, which are the
 * same for all instruction sets.
 *
 * Invariant: an element's bits depend on its inputs alone, never on the loop, lane or tail that computed it.
 */
#ifndef DATA_REDUCE_BODY_H
#define DATA_REDUCE_BODY_H

#include "base/check.h"
#include "data/half.h"
#include "data/kernel.h"
#include "data/vector.h"

enum data_inputs { DATA_RAW, DATA_PARTIAL, DATA_MIXED }; /* MIXED: test the mask at each leaf */
enum { DATA_LINE_BYTES = 64, DATA_GROUP = 8, DATA_AT_ONCE = 4 };

#define DATA_JOIN_(a, b) a##_##b
#define DATA_JOIN(a, b) DATA_JOIN_(a, b)
#define DATA_KERNEL_NAME(name) DATA_JOIN(reduce_##name, DATA_ISA)

DATA_INLINE size_t accumulator_bytes(enum comm_type type)
{
    switch (type) {
    case COMM_U8:
    case COMM_I8:
        return 1;
    case COMM_U16:
    case COMM_I16:
        return 2;
    case COMM_F64:
    case COMM_U64:
    case COMM_I64:
        return 8;
    default:
        return 4;
    }
}

DATA_INLINE size_t lanes_of(enum comm_type type)
{
    return DATA_VECTOR_BYTES / accumulator_bytes(type);
}
DATA_INLINE size_t result_bytes(enum comm_type type, bool final)
{
    return data_type_is_half(type) && final ? 2 : accumulator_bytes(type);
}

/* What a loop needs to know of its inputs, in registers. */
struct leaves {
    const void *const *from;
    uint64_t partial;
    size_t at; /* index of the element */
};

DATA_INLINE vector leaf(const struct leaves *leaves, uint32_t i, enum comm_type type, enum data_inputs inputs)
{
    const char *from = leaves->from[i];
    if (data_type_is_half(type) && (inputs == DATA_RAW || (inputs == DATA_MIXED && !(leaves->partial >> i & 1))))
        return half_decode(half_load(from + leaves->at * 2), type);
    return vector_load(from + leaves->at * accumulator_bytes(type));
}

/* One node of one kernel's tree. Constant at every call, so it is inlined and unused branches disappear. */
typedef vector combine_fn(vector left, vector right);

/* T of inputs first .. first + ways - 1. ways is at most a group; first is a multiple of a group. */
DATA_INLINE vector tree_of_group(const struct leaves *leaves, uint32_t first, uint32_t ways, enum comm_type type, combine_fn *combine,
                                 enum data_inputs inputs)
{
#define DATA_LEAF(i) leaf(leaves, first + (i), type, inputs)
    vector left = DATA_LEAF(0), right, last;
    if (ways == 1)
        return left;
    left = combine(left, DATA_LEAF(1));
    if (ways == 2)
        return left;
    right = DATA_LEAF(2);
    if (ways > 3)
        right = combine(right, DATA_LEAF(3));
    left = combine(left, right);
    if (ways <= 4)
        return left;
    right = DATA_LEAF(4);
    if (ways > 5)
        right = combine(right, DATA_LEAF(5));
    if (ways > 6) {
        last = DATA_LEAF(6);
        if (ways > 7)
            last = combine(last, DATA_LEAF(7));
        right = combine(right, last);
    }
    return combine(left, right);
#undef DATA_LEAF
}

/* T of any number of inputs. A full group is a complete subtree, so the binary counter counts groups. The last group,
 * full or not, is combined with all that wait. */
DATA_INLINE vector tree_of_many(const struct leaves *leaves, uint32_t ways, enum comm_type type, combine_fn *combine,
                                enum data_inputs inputs)
{
    vector waiting[DATA_WAYS_MAX / DATA_GROUP], value;
    uint32_t depth = 0, group = 0, left = ways;
    for (;; group++, left -= DATA_GROUP) {
        value = tree_of_group(leaves, group * DATA_GROUP, left < DATA_GROUP ? left : DATA_GROUP, type, combine, inputs);
        if (left <= DATA_GROUP)
            break;
        for (uint32_t bits = group; bits & 1; bits >>= 1)
            value = combine(waiting[--depth], value);
        waiting[depth++] = value;
    }
    while (depth)
        value = combine(waiting[--depth], value);
    return value;
}

DATA_INLINE void put(char *to, size_t at, vector value, enum comm_type type, bool final, bool stream)
{
    if (data_type_is_half(type) && final) {
        const half_vector half = half_encode(value, type);
        if (stream)
            half_stream(to + at * 2, half);
        else
            half_store(to + at * 2, half);
        return;
    }
    if (stream)
        vector_stream(to + at * accumulator_bytes(type), value);
    else
        vector_store(to + at * accumulator_bytes(type), value);
}

DATA_INLINE vector pair_at(struct leaves leaves, size_t at, uint32_t divisor, enum comm_type type, comm_op op, combine_fn *combine,
                           enum data_inputs inputs)
{
    leaves.at = at;
    const vector value = tree_of_group(&leaves, 0, 2, type, combine, inputs);
    return op == COMM_AVG ? vector_divide(value, divisor, type) : value;
}

/* Two inputs, four vectors at a time: flags and counters, which were two thirds of the instructions, are checked once
 * for all four. This matters if two ranks are threads of one core and share its decoders. */
DATA_INLINE size_t sweep_pairs(const struct data_reduce *reduce, struct leaves leaves, bool stream, enum comm_type type, comm_op op,
                               combine_fn *combine, enum data_inputs inputs)
{
    char *const to = reduce->to, *const also = reduce->also;
    const size_t lanes = lanes_of(type), step = DATA_AT_ONCE * lanes, elements = reduce->elements;
    const uint32_t divisor = reduce->divisor;
    const bool final = reduce->final;
    size_t at = leaves.at;

    for (; at + step <= elements; at += step) {
        const vector a = pair_at(leaves, at, divisor, type, op, combine, inputs);
        const vector b = pair_at(leaves, at + lanes, divisor, type, op, combine, inputs);
        const vector c = pair_at(leaves, at + 2 * lanes, divisor, type, op, combine, inputs);
        const vector d = pair_at(leaves, at + 3 * lanes, divisor, type, op, combine, inputs);
        put(to, at, a, type, final, stream);
        put(to, at + lanes, b, type, final, stream);
        put(to, at + 2 * lanes, c, type, final, stream);
        put(to, at + 3 * lanes, d, type, final, stream);
        if (!also)
            continue;
        put(also, at, a, type, final, false);
        put(also, at + lanes, b, type, final, false);
        put(also, at + 2 * lanes, c, type, final, false);
        put(also, at + 3 * lanes, d, type, final, false);
    }
    return at;
}

/* Reduces whole vectors from `at`; returns the element where it stopped. ways 0: as many as reduce->ways. */
DATA_INLINE size_t sweep(const struct data_reduce *reduce, size_t at, uint32_t ways, bool stream, enum comm_type type, comm_op op,
                         combine_fn *combine, enum data_inputs inputs)
{
    const void *near[DATA_GROUP];
    struct leaves leaves = {.from = reduce->from, .partial = reduce->partial, .at = at};
    char *const to = reduce->to, *const also = reduce->also;
    const size_t lanes = lanes_of(type), elements = reduce->elements;
    const uint32_t many = reduce->ways, divisor = reduce->divisor;
    const bool final = reduce->final;
    if (ways) { /* copied, or each store would make the compiler reload the pointers */
        for (uint32_t i = 0; i < ways; i++)
            near[i] = reduce->from[i];
        leaves.from = near;
    }
    if (ways == 2)
        leaves.at = sweep_pairs(reduce, leaves, stream, type, op, combine, inputs);
    for (; leaves.at + lanes <= elements; leaves.at += lanes) {
        vector value = ways ? tree_of_group(&leaves, 0, ways, type, combine, inputs) : tree_of_many(&leaves, many, type, combine, inputs);
        if (op == COMM_AVG)
            value = vector_divide(value, divisor, type);
        put(to, leaves.at, value, type, final, stream);
        if (also)
            put(also, leaves.at, value, type, final, false);
    }
    return leaves.at;
}

DATA_INLINE size_t sweep_by_ways(const struct data_reduce *reduce, size_t at, bool stream, enum comm_type type, comm_op op,
                                 combine_fn *combine, enum data_inputs inputs, bool hot)
{
    if (!hot)
        return sweep(reduce, at, 0, stream, type, op, combine, inputs);
    switch (reduce->ways) {
    case 2:
        return sweep(reduce, at, 2, stream, type, op, combine, inputs);
    case 3:
        return sweep(reduce, at, 3, stream, type, op, combine, inputs);
    case 4:
        return sweep(reduce, at, 4, stream, type, op, combine, inputs);
    case 8:
        return sweep(reduce, at, 8, stream, type, op, combine, inputs);
    default:
        return sweep(reduce, at, 0, stream, type, op, combine, inputs);
    }
}

DATA_INLINE size_t sweep_by_inputs(const struct data_reduce *reduce, size_t at, bool stream, enum comm_type type, comm_op op,
                                   combine_fn *combine, bool hot)
{
    const uint64_t all = UINT64_MAX >> (DATA_WAYS_MAX - reduce->ways);
    if (!data_type_is_half(type))
        return sweep_by_ways(reduce, at, stream, type, op, combine, DATA_PARTIAL, hot);
    if (!(reduce->partial & all))
        return sweep_by_ways(reduce, at, stream, type, op, combine, DATA_RAW, hot);
    if ((reduce->partial & all) == all)
        return sweep(reduce, at, 0, stream, type, op, combine, DATA_PARTIAL);
    return sweep(reduce, at, 0, stream, type, op, combine, DATA_MIXED);
}

typedef void data_tail_fn(const struct data_reduce *reduce, size_t first, size_t count);

/* For at least one vector of elements. With streaming: plain stores up to the first line boundary of `to`, then only
 * whole vectors of aligned memory. */
DATA_INLINE void reduce_pair(const struct data_reduce *reduce, enum comm_type type, comm_op op, combine_fn *combine, bool hot,
                             data_tail_fn *tail)
{
    const size_t elements = reduce->elements, bytes = result_bytes(type, reduce->final);
    const size_t before = -(uintptr_t)reduce->to % DATA_LINE_BYTES;
    const bool stream = reduce->nontemporal && before % bytes == 0 && before / bytes + lanes_of(type) <= elements;
    size_t at = 0;
    BASE_DEBUG_ASSERT(reduce->ways >= 1 && reduce->ways <= DATA_WAYS_MAX);
    if (stream && before) {
        at = before / bytes;
        tail(reduce, 0, at);
    }
    at = sweep_by_inputs(reduce, at, stream, type, op, combine, hot);
    if (stream)
        vector_fence();
    if (at < elements)
        tail(reduce, at, elements - at);
}

#define DATA_KERNEL_DECLARE(name, type, op, hot) static void DATA_KERNEL_NAME(name)(const struct data_reduce *reduce);
DATA_KERNELS(DATA_KERNEL_DECLARE)

/* A step that is not final does not divide: AVG is then SUM. Few elements go to the tail at once, because the wide
 * loops would save registers, which costs as much as the work. */
#define DATA_KERNEL_DEFINE(name, type, op, hot)                                                                                            \
    DATA_INLINE vector combine_of_##name(vector left, vector right)                                                                        \
    {                                                                                                                                      \
        return vector_combine(left, right, type, op);                                                                                      \
    }                                                                                                                                      \
    static __attribute__((noinline)) void DATA_KERNEL_NAME(wide_##name)(const struct data_reduce *reduce)                                  \
    {                                                                                                                                      \
        reduce_pair(reduce, type, op, combine_of_##name, hot, data_tail_##name);                                                           \
    }                                                                                                                                      \
    static void DATA_KERNEL_NAME(name)(const struct data_reduce *reduce)                                                                   \
    {                                                                                                                                      \
        if (data_type_is_float(type) && BASE_UNLIKELY(!reduce->is_plain && !data_float_is_default()))                                      \
            data_reduce_pinned(reduce, DATA_KERNEL_NAME(name));                                                                            \
        else if ((op) == COMM_AVG && !reduce->final)                                                                                       \
            DATA_SUM_OF(type)(reduce);                                                                                                     \
        else if (reduce->elements < lanes_of(type))                                                                                        \
            data_tail_##name(reduce, 0, reduce->elements);                                                                                 \
        else                                                                                                                               \
            DATA_KERNEL_NAME(wide_##name)(reduce);                                                                                         \
    }
#define DATA_SUM_OF(type)                                                                                                                  \
    ((type) == COMM_F32   ? DATA_KERNEL_NAME(f32_sum)                                                                                      \
     : (type) == COMM_F64 ? DATA_KERNEL_NAME(f64_sum)                                                                                      \
     : (type) == COMM_F16 ? DATA_KERNEL_NAME(f16_sum)                                                                                      \
                          : DATA_KERNEL_NAME(bf16_sum))
DATA_KERNELS(DATA_KERNEL_DEFINE)

data_reduce_fn *const DATA_JOIN(data_reducers, DATA_ISA)[DATA_KERNEL_COUNT] = {
#define DATA_KERNEL_ROW(name, type, op, hot) [DATA_KERNEL_##name] = DATA_KERNEL_NAME(name),
    DATA_KERNELS(DATA_KERNEL_ROW)
#undef DATA_KERNEL_ROW
};

#endif
