/*
 * The oracle's operators: what each of them makes of two elements in their accumulators, for numbers and for types of two parts (complex
 * numbers, values with an index). Private to oracle.c.
 */
#ifndef CONFORM_ORACLE_OPERATOR_H
#define CONFORM_ORACLE_OPERATOR_H

#include "conform/oracle_number.h"

/* A value in its accumulator. A complex number, or a value with an index, has a second part. */
struct value {
    union number is, also;
};

ORACLE_INLINE bool is_complex(enum comm_type type)
{
    return type == COMM_C64 || type == COMM_C128;
}

ORACLE_INLINE bool is_indexed(enum comm_type type)
{
    return type >= COMM_F32_INDEX && type <= COMM_I64_INDEX;
}

/* The type of an element's first part; for most types, the type itself. */
ORACLE_INLINE enum comm_type part_type(enum comm_type type)
{
    switch ((int)type) {
    case COMM_C64:
    case COMM_F32_INDEX:
        return COMM_F32;
    case COMM_C128:
    case COMM_F64_INDEX:
        return COMM_F64;
    case COMM_I32_INDEX:
        return COMM_I32;
    case COMM_I64_INDEX:
        return COMM_I64;
    default:
        return type;
    }
}

ORACLE_INLINE enum comm_type also_type(enum comm_type type)
{
    return is_complex(type) ? part_type(type) : oracle_type_bytes(type) == 8 ? COMM_I32 : COMM_I64;
}

/* A switch over the types: `run(TYPE)` is compiled for each of them. */
#define ORACLE_CASE(type, run)                                                                                                             \
case type:                                                                                                                                 \
    run(type);                                                                                                                             \
    break;
#define ORACLE_WITH_TYPE(type, run)                                                                                                        \
    switch ((int)(type)) {                                                                                                                 \
        ORACLE_CASE(COMM_F32, run)                                                                                                         \
        ORACLE_CASE(COMM_F64, run)                                                                                                         \
        ORACLE_CASE(COMM_F16, run)                                                                                                         \
        ORACLE_CASE(COMM_BF16, run)                                                                                                        \
        ORACLE_CASE(COMM_F8E4M3, run)                                                                                                      \
        ORACLE_CASE(COMM_F8E5M2, run)                                                                                                      \
        ORACLE_CASE(COMM_I8, run)                                                                                                          \
        ORACLE_CASE(COMM_I16, run)                                                                                                         \
        ORACLE_CASE(COMM_I32, run)                                                                                                         \
        ORACLE_CASE(COMM_I64, run)                                                                                                         \
        ORACLE_CASE(COMM_C64, run)                                                                                                         \
        ORACLE_CASE(COMM_C128, run)                                                                                                        \
    default: /* the unsigned types, and rare ones */                                                                                       \
        run(type);                                                                                                                         \
    }

/* ------------------------------------------------------------------------------------------------------------ numbers */
ORACLE_INLINE double pick_float(double a, double b, bool low)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == b)
        return (signbit(a) != 0) == low ? a : b; /* of two zeros the negative one is less */
    return (a < b) == low ? a : b;
}

ORACLE_INLINE union number combine_float(union number a, union number b, bool wide, comm_op op)
{
    union number v = {.integer = 0};
    if (op == COMM_MIN || op == COMM_MAX) {
        double picked = wide ? pick_float(a.wide, b.wide, op == COMM_MIN) : pick_float((double)a.single, (double)b.single, op == COMM_MIN);
        if (wide)
            v.wide = picked;
        else
            v.single = (float)picked;
    } else if (wide) {
        v.wide = op == COMM_PROD ? a.wide * b.wide : a.wide + b.wide;
    } else {
        v.single = op == COMM_PROD ? a.single * b.single : a.single + b.single;
    }
    return v;
}

ORACLE_INLINE union number combine_integer(union number a, union number b, enum comm_type type, comm_op op)
{
    bool less = is_signed(type) ? (int64_t)a.integer < (int64_t)b.integer : a.integer < b.integer;
    union number v = {.integer = 0};
    switch (op) {
    case COMM_SUM:
        v.integer = a.integer + b.integer;
        break;
    case COMM_PROD:
        v.integer = a.integer * b.integer;
        break;
    case COMM_MIN:
        v.integer = less ? a.integer : b.integer;
        break;
    case COMM_MAX:
        v.integer = less ? b.integer : a.integer;
        break;
    case COMM_BAND:
        v.integer = a.integer & b.integer;
        break;
    case COMM_BOR:
        v.integer = a.integer | b.integer;
        break;
    case COMM_BXOR:
        v.integer = a.integer ^ b.integer;
        break;
    case COMM_LAND:
        v.integer = a.integer && b.integer;
        break;
    case COMM_LOR:
        v.integer = a.integer || b.integer;
        break;
    default:
        v.integer = !a.integer != !b.integer;
        break;
    }
    v.integer = wrap(v.integer, type);
    return v;
}

ORACLE_INLINE union number combine_number(union number a, union number b, enum comm_type type, comm_op op)
{
    return oracle_is_float(type) ? combine_float(a, b, type == COMM_F64, op) : combine_integer(a, b, type, op);
}

/* ------------------------------------------------------------------------------------------------------------ two parts */
ORACLE_INLINE struct value element_load(const void *at, size_t i, enum comm_type type)
{
    const unsigned char *from = (const unsigned char *)at + i * oracle_type_bytes(type);
    struct value v = {.is = number_load(from, 0, part_type(type))};
    if (is_complex(type) || is_indexed(type))
        v.also = number_load(from + oracle_type_bytes(type) / 2, 0, also_type(type));
    return v;
}

ORACLE_INLINE void element_store(void *at, size_t i, enum comm_type type, struct value v)
{
    unsigned char *to = (unsigned char *)at + i * oracle_type_bytes(type);
    number_store(to, 0, part_type(type), v.is);
    if (is_complex(type) || is_indexed(type))
        number_store(to + oracle_type_bytes(type) / 2, 0, also_type(type), v.also);
}

ORACLE_INLINE union number minus(union number a, bool wide)
{
    if (wide)
        a.wide = -a.wide;
    else
        a.single = -a.single;
    return a;
}

ORACLE_INLINE struct value complex_product(struct value a, struct value b, enum comm_type part)
{
    bool wide = part == COMM_F64;
    struct value v;
    v.is = combine_float(combine_float(a.is, b.is, wide, COMM_PROD), minus(combine_float(a.also, b.also, wide, COMM_PROD), wide), wide,
                         COMM_SUM);
    v.also = combine_float(combine_float(a.is, b.also, wide, COMM_PROD), combine_float(a.also, b.is, wide, COMM_PROD), wide, COMM_SUM);
    return v;
}

/* -1, 0 or 1: NaN comes first, then the least or the greatest. */
ORACLE_INLINE int order_of(union number a, union number b, enum comm_type part, bool low)
{
    if (!oracle_is_float(part)) {
        int64_t x = (int64_t)a.integer, y = (int64_t)b.integer;
        return x == y ? 0 : (x < y) == low ? -1 : 1;
    }
    double x = part == COMM_F64 ? a.wide : (double)a.single, y = part == COMM_F64 ? b.wide : (double)b.single;
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y) ? 0 : isnan(x) ? -1 : 1;
    if (x == y && (x != 0 || !signbit(x) == !signbit(y)))
        return 0;
    bool less = x == y ? signbit(x) != 0 : x < y;
    return less == low ? -1 : 1;
}

ORACLE_INLINE struct value combine(struct value a, struct value b, enum comm_type type, comm_op op)
{
    enum comm_type part = part_type(type);
    struct value v = a;
    if (is_indexed(type)) {
        int order = order_of(a.is, b.is, part, op == COMM_MINLOC);
        return order < 0 || (order == 0 && (int64_t)a.also.integer <= (int64_t)b.also.integer) ? a : b;
    }
    if (is_complex(type) && op == COMM_PROD)
        return complex_product(a, b, part);
    v.is = combine_number(a.is, b.is, part, op);
    if (is_complex(type))
        v.also = combine_number(a.also, b.also, part, op);
    return v;
}

#endif
