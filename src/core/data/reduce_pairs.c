/*
 * Elements of two numbers: complex numbers, and values with an index. Sums and averages of complex numbers are those of
 * twice as many reals. The product, and minloc and maxloc, are computed here element by element along T.
 *
 * For values: NaN wins, -0 is less than +0, and among equal values, NaNs included, the lower index is taken.
 */
#include "data/kernel.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ complex sums */
static void reduce_reals(const struct data_reduce *reduce, data_reduce_fn *kernel)
{
    struct data_reduce twice = *reduce;

    twice.elements *= 2;
    kernel(&twice);
}

#define COMPLEX_DEFINE(isa, op)                                                                                                            \
    static void reduce_c64_##op##_##isa(const struct data_reduce *reduce)                                                                  \
    {                                                                                                                                      \
        reduce_reals(reduce, data_reducers_##isa[DATA_KERNEL_f32_##op]);                                                                   \
    }                                                                                                                                      \
    static void reduce_c128_##op##_##isa(const struct data_reduce *reduce)                                                                 \
    {                                                                                                                                      \
        reduce_reals(reduce, data_reducers_##isa[DATA_KERNEL_f64_##op]);                                                                   \
    }
#define COMPLEX_TABLE(isa)                                                                                                                 \
    COMPLEX_DEFINE(isa, sum)                                                                                                               \
    COMPLEX_DEFINE(isa, avg)                                                                                                               \
    static data_reduce_fn *const complex_##isa[2][2] = {{reduce_c64_sum_##isa, reduce_c64_avg_##isa},                                      \
                                                        {reduce_c128_sum_##isa, reduce_c128_avg_##isa}};

COMPLEX_TABLE(scalar)
#if DATA_WIDE
COMPLEX_TABLE(avx2)
COMPLEX_TABLE(avx512)
#endif

static data_reduce_fn *complex_sum(bool wide, bool average, enum data_isa isa)
{
#if DATA_WIDE
    if (isa == DATA_AVX512)
        return complex_avx512[wide][average];
    if (isa == DATA_AVX2)
        return complex_avx2[wide][average];
#endif
    (void)isa;
    return complex_scalar[wide][average];
}

/* ------------------------------------------------------------------------------------------------------------ one element at a time */
enum { PAIR_LEVELS = 7 }; /* enough for 64 inputs */

struct c64 {
    float re, im;
};
struct c128 {
    double re, im;
};
struct i32_index {
    int32_t value, index;
};
struct i64_index {
    int64_t value, index;
};
typedef struct comm_f32_index f32_index;
typedef struct comm_f64_index f64_index;

#define PAIR_PRODUCT(name, type)                                                                                                           \
    DATA_INLINE type name(type a, type b)                                                                                                  \
    {                                                                                                                                      \
        return (type){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};                                                               \
    }                                                                                                                                      \
    _Static_assert(sizeof(type) >= 8, "two numbers")
PAIR_PRODUCT(c64_prod, struct c64);
PAIR_PRODUCT(c128_prod, struct c128);

/* `before`: the value of a comes before that of b, with the sign of zeros taken into account. */
#define PAIR_FLOAT(name, type, before)                                                                                                     \
    DATA_INLINE type name(type a, type b)                                                                                                  \
    {                                                                                                                                      \
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;                                                                       \
        bool zeros = a.value == 0 && b.value == 0, a_minus = __builtin_signbit(a.value), b_minus = __builtin_signbit(b.value);             \
        if (a_nan != b_nan)                                                                                                                \
            return a_nan ? a : b;                                                                                                          \
        if (!a_nan && (before(a.value, b.value) || (zeros && before((int)b_minus, (int)a_minus))))                                         \
            return a;                                                                                                                      \
        if (!a_nan && (before(b.value, a.value) || (zeros && before((int)a_minus, (int)b_minus))))                                         \
            return b;                                                                                                                      \
        return b.index < a.index ? b : a;                                                                                                  \
    }                                                                                                                                      \
    _Static_assert(sizeof(type) >= 8, "two numbers")
#define PAIR_INTEGER(name, type, before)                                                                                                   \
    DATA_INLINE type name(type a, type b)                                                                                                  \
    {                                                                                                                                      \
        if (a.value != b.value)                                                                                                            \
            return before(a.value, b.value) ? a : b;                                                                                       \
        return b.index < a.index ? b : a;                                                                                                  \
    }                                                                                                                                      \
    _Static_assert(sizeof(type) >= 8, "two numbers")
#define PAIR_LESS(a, b) ((a) < (b))
#define PAIR_MORE(a, b) ((a) > (b))
PAIR_FLOAT(f32_minloc, f32_index, PAIR_LESS);
PAIR_FLOAT(f32_maxloc, f32_index, PAIR_MORE);
PAIR_FLOAT(f64_minloc, f64_index, PAIR_LESS);
PAIR_FLOAT(f64_maxloc, f64_index, PAIR_MORE);
PAIR_INTEGER(i32_minloc, struct i32_index, PAIR_LESS);
PAIR_INTEGER(i32_maxloc, struct i32_index, PAIR_MORE);
PAIR_INTEGER(i64_minloc, struct i64_index, PAIR_LESS);
PAIR_INTEGER(i64_maxloc, struct i64_index, PAIR_MORE);

#define PAIR_REDUCER(name, type)                                                                                                           \
    DATA_INLINE type name##_at(const void *from, size_t at)                                                                                \
    {                                                                                                                                      \
        type value;                                                                                                                        \
        memcpy(&value, (const char *)from + at * sizeof value, sizeof value);                                                              \
        return value;                                                                                                                      \
    }                                                                                                                                      \
    static void reduce_##name(const struct data_reduce *reduce)                                                                            \
    {                                                                                                                                      \
        if (!reduce->is_plain && !data_float_is_default()) {                                                                               \
            data_reduce_pinned(reduce, reduce_##name);                                                                                     \
            return;                                                                                                                        \
        }                                                                                                                                  \
        for (size_t at = 0; at < reduce->elements; at++) {                                                                                 \
            type waiting[PAIR_LEVELS], value = name##_at(reduce->from[0], at);                                                             \
            uint32_t depth = 0;                                                                                                            \
            for (uint32_t i = 1; i < reduce->ways; i++) {                                                                                  \
                waiting[depth++] = value;                                                                                                  \
                value = name##_at(reduce->from[i], at);                                                                                    \
                for (uint32_t bits = i; bits & 1; bits >>= 1)                                                                              \
                    value = name(waiting[--depth], value);                                                                                 \
            }                                                                                                                              \
            while (depth)                                                                                                                  \
                value = name(waiting[--depth], value);                                                                                     \
            memcpy((char *)reduce->to + at * sizeof value, &value, sizeof value);                                                          \
            if (reduce->also)                                                                                                              \
                memcpy((char *)reduce->also + at * sizeof value, &value, sizeof value);                                                    \
        }                                                                                                                                  \
    }                                                                                                                                      \
    _Static_assert(sizeof(type) >= 8, "two numbers")
PAIR_REDUCER(c64_prod, struct c64);
PAIR_REDUCER(c128_prod, struct c128);
PAIR_REDUCER(f32_minloc, f32_index);
PAIR_REDUCER(f32_maxloc, f32_index);
PAIR_REDUCER(f64_minloc, f64_index);
PAIR_REDUCER(f64_maxloc, f64_index);
PAIR_REDUCER(i32_minloc, struct i32_index);
PAIR_REDUCER(i32_maxloc, struct i32_index);
PAIR_REDUCER(i64_minloc, struct i64_index);
PAIR_REDUCER(i64_maxloc, struct i64_index);

data_reduce_fn *data_reducer_pairs(enum comm_type type, comm_op op, enum data_isa isa)
{
    static data_reduce_fn *const located[][2] = {{reduce_f32_minloc, reduce_f32_maxloc},
                                                 {reduce_f64_minloc, reduce_f64_maxloc},
                                                 {reduce_i32_minloc, reduce_i32_maxloc},
                                                 {reduce_i64_minloc, reduce_i64_maxloc}};

    if ((op == COMM_MINLOC || op == COMM_MAXLOC) && type >= COMM_F32_INDEX && type <= COMM_I64_INDEX)
        return located[type - COMM_F32_INDEX][op == COMM_MAXLOC];
    if (type != COMM_C64 && type != COMM_C128)
        return NULL;
    if (op == COMM_PROD)
        return type == COMM_C64 ? reduce_c64_prod : reduce_c128_prod;
    return op == COMM_SUM || op == COMM_AVG ? complex_sum(type == COMM_C128, op == COMM_AVG, isa) : NULL;
}
