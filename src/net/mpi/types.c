/* Maps types and operators to MPI's, and finds the pairs for which MPI follows this library's rules. It does not rely on documentation.
 * When a world opens, MPI computes with a few values that reveal differences. A pair whose result differs gets an operator of this
 * library's (operators.c), which is tested in the same way. This finds minima of floats that lose a NaN, short integers that Open MPI adds
 * with saturation on CPUs with AVX, and unsigned integers that MPICH 4.0 compares as signed. */
#include "net/mpi/mpi_module.h"

#include <math.h>
#include <string.h>

enum { VALUES = 8, PAIRS = VALUES * VALUES, BULK = 2 * PAIRS, WIDEST = 16 };

MPI_Datatype mpi_type_number(enum comm_type type)
{
    switch ((int)type) {
    case COMM_I8:
        return MPI_INT8_T;
    case COMM_I16:
        return MPI_INT16_T;
    case COMM_I32:
        return MPI_INT32_T;
    case COMM_I64:
        return MPI_INT64_T;
    case COMM_U8:
    case COMM_BYTE:
    case COMM_BOOL:
        return MPI_UINT8_T;
    case COMM_U16:
        return MPI_UINT16_T;
    case COMM_U32:
        return MPI_UINT32_T;
    case COMM_U64:
        return MPI_UINT64_T;
    case COMM_F32:
        return MPI_FLOAT;
    case COMM_F64:
        return MPI_DOUBLE;
    case COMM_C64:
        return MPI_C_FLOAT_COMPLEX;
    case COMM_C128:
        return MPI_C_DOUBLE_COMPLEX;
    case COMM_F32_INDEX:
        return MPI_FLOAT_INT;
    case COMM_I32_INDEX:
        return MPI_2INT;
    default:
        return MPI_DATATYPE_NULL; /* half precision is not in MPI, and MPI's pairs of wider values have an int as index */
    }
}

MPI_Op mpi_operator(comm_op op)
{
    switch (op) {
    case COMM_SUM:
        return MPI_SUM;
    case COMM_PROD:
        return MPI_PROD;
    case COMM_MIN:
        return MPI_MIN;
    case COMM_MAX:
        return MPI_MAX;
    case COMM_BAND:
        return MPI_BAND;
    case COMM_BOR:
        return MPI_BOR;
    case COMM_BXOR:
        return MPI_BXOR;
    case COMM_LAND:
        return MPI_LAND;
    case COMM_LOR:
        return MPI_LOR;
    case COMM_LXOR:
        return MPI_LXOR;
    case COMM_MINLOC:
        return MPI_MINLOC;
    case COMM_MAXLOC:
        return MPI_MAXLOC;
    default:
        return MPI_OP_NULL;
    }
}

/* For data that is only moved, only the width matters. */
MPI_Datatype mpi_type_moved(size_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        return MPI_BYTE;
    case 2:
        return MPI_INT16_T;
    case 4:
        return MPI_INT32_T;
    case 8:
        return MPI_INT64_T;
    case 16:
        return MPI_C_DOUBLE_COMPLEX;
    default:
        return MPI_DATATYPE_NULL;
    }
}

/* ------------------------------------------------------------------------------------------------------------ which pairs there are */
#define OPS2(a, b) (1u << (a) | 1u << (b))
#define ARITHMETIC (OPS2(COMM_SUM, COMM_PROD) | OPS2(COMM_MIN, COMM_MAX))
#define BITS (OPS2(COMM_BAND, COMM_BOR) | 1u << COMM_BXOR)
#define TRUTH (OPS2(COMM_LAND, COMM_LOR) | 1u << COMM_LXOR)

static const struct kind {
    enum comm_type type;
    uint32_t bytes;
    uint32_t ops; /* operators that both MPI and this library have for the type */
} kinds[] = {
    {COMM_I8, 1, ARITHMETIC | BITS | TRUTH},
    {COMM_I16, 2, ARITHMETIC | BITS | TRUTH},
    {COMM_I32, 4, ARITHMETIC | BITS | TRUTH},
    {COMM_I64, 8, ARITHMETIC | BITS | TRUTH},
    {COMM_U8, 1, ARITHMETIC | BITS | TRUTH},
    {COMM_U16, 2, ARITHMETIC | BITS | TRUTH},
    {COMM_U32, 4, ARITHMETIC | BITS | TRUTH},
    {COMM_U64, 8, ARITHMETIC | BITS | TRUTH},
    {COMM_BYTE, 1, BITS},
    {COMM_BOOL, 1, TRUTH},
    {COMM_F32, 4, ARITHMETIC},
    {COMM_F64, 8, ARITHMETIC},
    {COMM_C64, 8, OPS2(COMM_SUM, COMM_PROD)},
    {COMM_C128, 16, OPS2(COMM_SUM, COMM_PROD)},
    {COMM_F32_INDEX, 8, OPS2(COMM_MINLOC, COMM_MAXLOC)},
    {COMM_I32_INDEX, 8, OPS2(COMM_MINLOC, COMM_MAXLOC)},
};

static bool is_float(enum comm_type type)
{
    return type == COMM_F32 || type == COMM_F64;
}

static bool is_complex(enum comm_type type)
{
    return type == COMM_C64 || type == COMM_C128;
}

/* ------------------------------------------------------------------------------------------------------------ telling values */
static double real_value(size_t i)
{
    static const double values[VALUES] = {1.0, -0.0, 0.0, 3.0, 0, 0, 0, 0x1p-149};

    return i == 4 ? NAN : i == 5 ? INFINITY : i == 6 ? -INFINITY : values[i];
}

static void put_real(void *at, bool wide, double value)
{
    float single = (float)value;
    memcpy(at, wide ? (void *)&value : (void *)&single, wide ? 8 : 4);
}

static double get_real(const void *at, bool wide)
{
    double value = 0;
    float single = 0;
    memcpy(wide ? (void *)&value : (void *)&single, at, wide ? 8 : 4);
    return wide ? value : (double)single;
}

static void put_value(const struct kind *k, size_t i, unsigned char *at)
{
    static const int32_t values[VALUES] = {3, 3, -1, 5, 3, INT32_MIN, INT32_MAX, -1}, indices[VALUES] = {4, 2, 7, 1, 9, 0, 3, 5};
    static const uint64_t numbers[VALUES] = {0, 1, 2, 0x5555555555555555, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX, 100};

    if (is_float(k->type)) {
        put_real(at, k->bytes == 8, real_value(i));
    } else if (is_complex(k->type)) {
        put_real(at, k->bytes == 16, real_value(i));
        put_real(at + k->bytes / 2, k->bytes == 16, real_value((i * 3 + 1) % VALUES));
    } else if (k->type == COMM_F32_INDEX || k->type == COMM_I32_INDEX) {
        k->type == COMM_I32_INDEX ? (void)memcpy(at, &values[i], 4) : put_real(at, false, real_value(i));
        memcpy(at + 4, &indices[i], 4);
    } else { /* use the upper bytes, so that the greatest value is the greatest at each width */
        uint64_t number = i == 4 || i == 5 ? numbers[i] >> (64 - 8 * k->bytes) : numbers[i];
        memcpy(at, &number, k->bytes);
    }
}

/* ------------------------------------------------------------------------------------------------------------ by our rules */
static uint64_t integer_at(const struct kind *k, const unsigned char *at)
{
    uint64_t number = 0, sign = UINT64_C(1) << (8 * k->bytes - 1);

    memcpy(&number, at, k->bytes); /* correct because the library requires a little-endian machine */
    return k->type >= COMM_I8 && k->type <= COMM_I64 ? (number ^ sign) - sign : number;
}

static uint64_t combine_integers(const struct kind *k, comm_op op, uint64_t a, uint64_t b)
{
    bool less = k->type >= COMM_I8 && k->type <= COMM_I64 ? (int64_t)a < (int64_t)b : a < b;

    switch (op) {
    case COMM_SUM:
        return a + b;
    case COMM_PROD:
        return a * b;
    case COMM_MIN:
        return less ? a : b;
    case COMM_MAX:
        return less ? b : a;
    case COMM_BAND:
        return a & b;
    case COMM_BOR:
        return a | b;
    case COMM_BXOR:
        return a ^ b;
    case COMM_LAND:
        return a && b;
    case COMM_LOR:
        return a || b;
    default:
        return !a != !b;
    }
}

static double round_to(double value, bool wide)
{
    return wide ? value : (double)(float)value;
}

/* A NaN comes first, and -0 is less than +0. */
static bool comes_first(double a, double b, bool low)
{
    if (isnan(a) || isnan(b))
        return isnan(a);
    bool less = a == b ? signbit(a) && !signbit(b) : a < b, greater = a == b ? signbit(b) && !signbit(a) : a > b;
    return low ? less : greater;
}

static double combine_reals(comm_op op, double a, double b, bool wide)
{
    if (op == COMM_MIN || op == COMM_MAX)
        return comes_first(a, b, op == COMM_MIN) ? a : b;
    return round_to(op == COMM_SUM ? a + b : a * b, wide);
}

static void combine_complex(const struct kind *k, comm_op op, const unsigned char *a, const unsigned char *b, unsigned char *want)
{
    bool wide = k->bytes == 16;
    size_t half = k->bytes / 2;
    double p = get_real(a, wide), q = get_real(a + half, wide), r = get_real(b, wide), s = get_real(b + half, wide);

    if (op == COMM_SUM) {
        put_real(want, wide, p + r);
        put_real(want + half, wide, q + s);
    } else {
        put_real(want, wide, round_to(p * r, wide) - round_to(q * s, wide));
        put_real(want + half, wide, round_to(p * s, wide) + round_to(q * r, wide));
    }
}

static void combine_indexed(const struct kind *k, comm_op op, const unsigned char *a, const unsigned char *b, unsigned char *want)
{
    bool real = k->type == COMM_F32_INDEX, low = op == COMM_MINLOC;
    int32_t x, y, i, j;

    memcpy(&x, a, 4), memcpy(&y, b, 4), memcpy(&i, a + 4, 4), memcpy(&j, b + 4, 4);
    double p = real ? get_real(a, false) : x, q = real ? get_real(b, false) : y;
    bool first = comes_first(p, q, low), second = comes_first(q, p, low) && !(isnan(p) && isnan(q));
    bool tie = (!first && !second) || (isnan(p) && isnan(q));
    memcpy(want, (tie ? i <= j : first) ? a : b, k->bytes);
}

static void combine(const struct kind *k, comm_op op, const unsigned char *a, const unsigned char *b, unsigned char *want)
{
    bool wide = k->bytes == 8;

    if (is_float(k->type)) {
        put_real(want, wide, combine_reals(op, get_real(a, wide), get_real(b, wide), wide));
    } else if (is_complex(k->type)) {
        combine_complex(k, op, a, b, want);
    } else if (k->type == COMM_F32_INDEX || k->type == COMM_I32_INDEX) {
        combine_indexed(k, op, a, b, want);
    } else {
        uint64_t result = combine_integers(k, op, integer_at(k, a), integer_at(k, b));
        memcpy(want, &result, k->bytes);
    }
}

/* ------------------------------------------------------------------------------------------------------------ comparing */
static bool is_nan_at(const struct kind *k, const unsigned char *at)
{
    bool real = is_float(k->type) || is_complex(k->type) || k->type == COMM_F32_INDEX;
    size_t part = k->type == COMM_F32_INDEX ? 4 : is_complex(k->type) ? k->bytes / 2 : k->bytes;

    return real && isnan(get_real(at, part == 8));
}

/* All NaNs compare as equal. */
static bool is_alike(const struct kind *k, const unsigned char *got, const unsigned char *want)
{
    size_t part = is_complex(k->type) ? k->bytes / 2 : k->type == COMM_F32_INDEX ? 4 : k->bytes;

    for (size_t at = 0; at < k->bytes; at += part) {
        bool value = at == 0 || k->type != COMM_F32_INDEX;
        if (memcmp(got + at, want + at, part) != 0 && !(value && is_nan_at(k, got + at) && is_nan_at(k, want + at)))
            return false;
    }
    return true;
}

static bool calculates_alike(const struct kind *k, comm_op op, MPI_Op by, size_t first, size_t count)
{
    static const size_t pairs = PAIRS;
    unsigned char in[BULK * WIDEST], out[BULK * WIDEST], want[BULK * WIDEST];

    for (size_t i = 0; i < count; i++) {
        size_t pair = (first + i) % pairs, at = i * k->bytes;
        put_value(k, pair / VALUES, in + at);
        put_value(k, pair % VALUES, out + at);
        combine(k, op, in + at, out + at, want + at);
    }
    if (MPI_Reduce_local(in, out, (int)count, mpi_type_number(k->type), by) != MPI_SUCCESS)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_alike(k, out + i * k->bytes, want + i * k->bytes))
            return false;
    return true;
}

/* Tests many elements in one call and each element in its own call, because MPI may use different code for long and short vectors. */
static bool follows(const struct kind *k, comm_op op, MPI_Op by)
{
    bool alike = by != MPI_OP_NULL && calculates_alike(k, op, by, 0, BULK);

    for (size_t pair = 0; alike && pair < PAIRS; pair++)
        alike = calculates_alike(k, op, by, pair, 1);
    return alike;
}

void mpi_rules_here(uint32_t rules[MPI_TYPES], bool own, const uint32_t *except)
{
    memset(rules, 0, MPI_TYPES * sizeof *rules);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        for (comm_op op = COMM_SUM; op <= COMM_MAXLOC; op++)
            if (k->ops >> op & 1 && !(except && except[k->type] >> op & 1) &&
                follows(k, op, own ? mpi_own_operator(k->type, op) : mpi_operator(op)))
                rules[k->type] |= 1u << op;
    }
}
