/* Seven values per rank and operator, and their encodings. Little-endian, like the machines that the library supports. */
#include "tools/perf_data.h"

#include <string.h>

enum { PERF_PERIOD = 7 };

static const struct perf_type types[] = {
    {"f32", 4, COMM_F32, PERF_FLOAT},    {"f64", 8, COMM_F64, PERF_FLOAT},    {"bf16", 2, COMM_BF16, PERF_BRAIN16},
    {"f16", 2, COMM_F16, PERF_HALF16},   {"i8", 1, COMM_I8, PERF_SIGNED},     {"i16", 2, COMM_I16, PERF_SIGNED},
    {"i32", 4, COMM_I32, PERF_SIGNED},   {"i64", 8, COMM_I64, PERF_SIGNED},   {"u8", 1, COMM_U8, PERF_UNSIGNED},
    {"u16", 2, COMM_U16, PERF_UNSIGNED}, {"u32", 4, COMM_U32, PERF_UNSIGNED}, {"u64", 8, COMM_U64, PERF_UNSIGNED},
};
static const struct {
    const char *name;
    comm_op op;
} ops[] = {
    {"sum", COMM_SUM}, {"prod", COMM_PROD}, {"min", COMM_MIN}, {"max", COMM_MAX},
    {"avg", COMM_AVG}, {"band", COMM_BAND}, {"bor", COMM_BOR}, {"bxor", COMM_BXOR},
};

const struct perf_type *perf_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (!strcmp(types[i].name, name))
            return &types[i];
    }
    return NULL;
}

const char *perf_type_names(void)
{
    return "f32 f64 bf16 f16 i8 i16 i32 i64 u8 u16 u32 u64";
}

comm_op perf_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (!strcmp(ops[i].name, name))
            return ops[i].op;
    }
    return 0;
}

const char *perf_op_names(void)
{
    return "sum prod min max avg band bor bxor";
}

bool perf_op_fits(comm_op op, const struct perf_type *type)
{
    bool integer = type->kind == PERF_SIGNED || type->kind == PERF_UNSIGNED;
    if (op == COMM_AVG)
        return !integer;
    return integer || (op != COMM_BAND && op != COMM_BOR && op != COMM_BXOR);
}

/* Products remain powers of two, which every floating type represents exactly within the range of its exponent. */
static int64_t value_of(comm_op op, int32_t rank, size_t i)
{
    size_t turn = (i + (size_t)rank) % PERF_PERIOD;
    return op == COMM_PROD ? 1 + (turn == 0) : (int64_t)turn;
}

static int64_t combine(comm_op op, int64_t a, int64_t b)
{
    switch (op) {
    case COMM_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case COMM_MIN:
        return a < b ? a : b;
    case COMM_MAX:
        return a > b ? a : b;
    case COMM_BAND:
        return a & b;
    case COMM_BOR:
        return a | b;
    case COMM_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* Rounds to nearest, ties to even, as 16-bit floats do. The value must be 0 or normal in the target. */
static uint16_t shortened(float value, unsigned drop, uint32_t rebias, uint32_t infinite)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (bits == 0)
        return 0;
    bits -= rebias << 23;
    bits += (UINT32_C(1) << (drop - 1)) - 1 + ((bits >> drop) & 1);
    bits >>= drop;
    return (uint16_t)(bits > infinite ? infinite : bits);
}

static void store(const struct perf_type *type, double value, int64_t whole, unsigned char *to)
{
    float single = (float)value;
    uint16_t brain = shortened(single, 16, 0, 0x7f80), half = shortened(single, 13, 127 - 15, 0x7c00);
    if (type->kind == PERF_BRAIN16)
        memcpy(to, &brain, 2);
    else if (type->kind == PERF_HALF16)
        memcpy(to, &half, 2);
    else if (type->kind == PERF_FLOAT && type->bytes == 4)
        memcpy(to, &single, 4);
    else if (type->kind == PERF_FLOAT)
        memcpy(to, &value, 8);
    else
        for (size_t i = 0; i < type->bytes; i++)
            to[i] = (unsigned char)((uint64_t)whole >> (8 * i));
}

/* Element i as one rank contributes it, or as the reduction over `ranks` ranks returns it. */
static void store_given(const struct perf_type *type, comm_op op, int32_t rank, size_t i, unsigned char *to)
{
    int64_t value = value_of(op, rank, i);
    store(type, (double)value, value, to);
}

static void store_reduced(const struct perf_type *type, comm_op op, int32_t ranks, size_t i, unsigned char *to)
{
    int64_t whole = value_of(op, 0, i);
    double value = (double)whole;
    for (int32_t r = 1; r < ranks; r++) {
        int64_t next = value_of(op, r, i);
        whole = combine(op, whole, next);
        value = op == COMM_PROD ? value * (double)next : (double)whole;
    }
    store(type, op == COMM_AVG ? value / ranks : value, whole, to);
}

void perf_fill(const struct perf_type *type, comm_op op, int32_t rank, void *to, size_t n)
{
    unsigned char *bytes = to;
    for (size_t i = 0; i < n && i < PERF_PERIOD; i++)
        store_given(type, op, rank, i, bytes + i * type->bytes);
    size_t period = PERF_PERIOD * type->bytes;
    for (size_t at = period; at < n * type->bytes; at++)
        bytes[at] = bytes[at - period];
}

/* Values repeat with the period, so seven of them are computed and the rest is compared with these. */
static bool equal_periods(const struct perf_type *type, const unsigned char *expected, size_t first, const void *at, size_t n, size_t *bad)
{
    const unsigned char *bytes = at;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(bytes + i * type->bytes, expected + (first + i) % PERF_PERIOD * type->bytes, type->bytes)) {
            *bad = i;
            return false;
        }
    }
    return true;
}

bool perf_check_given(const struct perf_type *type, comm_op op, int32_t rank, size_t first, const void *at, size_t n, size_t *bad)
{
    unsigned char expected[PERF_PERIOD * 8];
    for (size_t i = 0; i < PERF_PERIOD; i++)
        store_given(type, op, rank, i, expected + i * type->bytes);
    return equal_periods(type, expected, first, at, n, bad);
}

bool perf_check_reduced(const struct perf_type *type, comm_op op, int32_t ranks, size_t first, const void *at, size_t n, size_t *bad)
{
    unsigned char expected[PERF_PERIOD * 8];
    for (size_t i = 0; i < PERF_PERIOD; i++)
        store_reduced(type, op, ranks, i, expected + i * type->bytes);
    return equal_periods(type, expected, first, at, n, bad);
}
