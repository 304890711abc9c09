/* The expected result of a reduction, computed one element at a time along the tree T, and the data for it. */
#define _GNU_SOURCE
#include "conform/oracle_operator.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const enum comm_type oracle_types[ORACLE_TYPES] = {COMM_F32,       COMM_F64,       COMM_F16,      COMM_BF16, COMM_I8,   COMM_I16,
                                                   COMM_I32,       COMM_I64,       COMM_U8,       COMM_U16,  COMM_U32,  COMM_U64,
                                                   COMM_F8E4M3,    COMM_F8E5M2,    COMM_BOOL,     COMM_C64,  COMM_C128, COMM_F32_INDEX,
                                                   COMM_F64_INDEX, COMM_I32_INDEX, COMM_I64_INDEX};
const comm_op oracle_ops[ORACLE_OPS] = {COMM_SUM,  COMM_PROD, COMM_MIN, COMM_MAX,  COMM_AVG,    COMM_BAND,  COMM_BOR,
                                        COMM_BXOR, COMM_LAND, COMM_LOR, COMM_LXOR, COMM_MINLOC, COMM_MAXLOC};

const char *oracle_type_name(enum comm_type type)
{
    static const char *const names[ORACLE_TYPES] = {"f32",  "f64", "f16",  "bf16",      "i8",        "i16",       "i32",
                                                    "i64",  "u8",  "u16",  "u32",       "u64",       "f8e4m3",    "f8e5m2",
                                                    "bool", "c64", "c128", "f32_index", "f64_index", "i32_index", "i64_index"};
    for (size_t i = 0; i < ORACLE_TYPES; i++) {
        if (oracle_types[i] == type)
            return names[i];
    }
    return "byte";
}

const char *oracle_op_name(comm_op op)
{
    static const char *const names[] = {"none", "sum",  "prod", "min",  "max",    "avg",    "band",    "bor",
                                        "bxor", "land", "lor",  "lxor", "minloc", "maxloc", "replace", "noop"};
    return op < sizeof names / sizeof *names ? names[op] : "?";
}

size_t oracle_type_bytes(enum comm_type type)
{
    switch ((int)type) {
    case COMM_I16:
    case COMM_U16:
    case COMM_F16:
    case COMM_BF16:
        return 2;
    case COMM_I32:
    case COMM_U32:
    case COMM_F32:
        return 4;
    case COMM_I64:
    case COMM_U64:
    case COMM_F64:
    case COMM_C64:
    case COMM_F32_INDEX:
    case COMM_I32_INDEX:
        return 8;
    case COMM_C128:
    case COMM_F64_INDEX:
    case COMM_I64_INDEX:
        return 16;
    default:
        return 1;
    }
}

bool oracle_is_float(enum comm_type type)
{
    return type >= COMM_F8E4M3 && type <= COMM_F64;
}

bool oracle_pair(enum comm_type type, comm_op op)
{
    if (is_indexed(type))
        return op == COMM_MINLOC || op == COMM_MAXLOC;
    if (is_complex(type))
        return op == COMM_SUM || op == COMM_PROD || op == COMM_AVG;
    if (type == COMM_BOOL)
        return op >= COMM_LAND && op <= COMM_LXOR;
    if (op >= COMM_SUM && op <= COMM_MAX)
        return true;
    if (op == COMM_AVG)
        return oracle_is_float(type);
    return op >= COMM_BAND && op <= COMM_LXOR && !oracle_is_float(type);
}

uint64_t oracle_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ------------------------------------------------------------------------------------------------------------ the tree */
struct tree {
    const void *const *in;
    int32_t ranks;
    enum comm_type type;
    comm_op op;
    int32_t block, all; /* T over blocks of this many ranks of `all`; `ranks` is the number of blocks */
};

int32_t oracle_block = 1;

enum { TOGETHER = 32 }; /* elements: each rank's are loaded, and each two blocks combined, for so many at a time */

static void load_some(const void *at, size_t i, size_t n, enum comm_type type, struct value *to)
{
#define LOAD(known)                                                                                                                        \
    for (size_t e = 0; e < n; e++)                                                                                                         \
    to[e] = element_load(at, i + e, known)
    ORACLE_WITH_TYPE(type, LOAD)
}

static void combine_some(struct value *to, const struct value *high, size_t n, enum comm_type type, comm_op op)
{
#define COMBINE(known)                                                                                                                     \
    for (size_t e = 0; e < n; e++)                                                                                                         \
    to[e] = combine(to[e], high[e], known, op)
    ORACLE_WITH_TYPE(type, COMBINE)
}

static void store_some(void *at, size_t i, size_t n, enum comm_type type, const struct value *from)
{
#define STORE(known)                                                                                                                       \
    for (size_t e = 0; e < n; e++)                                                                                                         \
    element_store(at, i + e, known, from[e])
    ORACLE_WITH_TYPE(type, STORE)
}

static void tree_block(const struct tree *tree, size_t i, size_t n, int32_t first, int32_t level, struct value *to);

static int32_t levels_of(int32_t ranks)
{
    int32_t levels = 0;
    while (1 << levels < ranks)
        levels++;
    return levels;
}

/* A rank's elements from `i` on, or the results of a block of ranks. */
static void tree_leaf(const struct tree *tree, size_t i, size_t n, int32_t leaf, struct value *to)
{
    int32_t first = leaf * tree->block, count = tree->all - first < tree->block ? tree->all - first : tree->block;
    struct tree within = {tree->in + first, count, tree->type, tree->op, 1, count};
    if (tree->block > 1)
        tree_block(&within, i, n, 0, levels_of(count), to);
    else
        load_some(tree->in[leaf], i, n, tree->type, to);
}

/* The block of 2^level ranks from `first`, cut off at the end of the team: its lower half, and what exists of the
 * upper. */
static void tree_block(const struct tree *tree, size_t i, size_t n, int32_t first, int32_t level, struct value *to)
{
    if (level == 0) {
        tree_leaf(tree, i, n, first, to);
        return;
    }
    struct value high[TOGETHER];
    int32_t middle = first + (1 << (level - 1));
    tree_block(tree, i, n, first, level - 1, to);
    if (middle >= tree->ranks)
        return;
    tree_block(tree, i, n, middle, level - 1, high);
    combine_some(to, high, n, tree->type, tree->op);
}

static void divide(union number *number, int32_t by, bool wide)
{
    if (wide)
        number->wide /= (double)by;
    else
        number->single /= (float)by;
}

void oracle_reduce(const void *const *in, int32_t ranks, size_t n, enum comm_type type, comm_op op, void *out)
{
    struct tree tree = {in, (ranks + oracle_block - 1) / oracle_block, type, op, oracle_block, ranks};
    int32_t levels = levels_of(tree.ranks);
    struct value v[TOGETHER];
    for (size_t i = 0; i < n; i += TOGETHER) {
        size_t count = n - i < TOGETHER ? n - i : TOGETHER;
        tree_block(&tree, i, count, 0, levels, v);
        for (size_t e = 0; op == COMM_AVG && e < count; e++) {
            divide(&v[e].is, ranks, part_type(type) == COMM_F64);
            divide(&v[e].also, ranks, part_type(type) == COMM_F64);
        }
        store_some(out, i, count, type, v);
    }
}

/* ------------------------------------------------------------------------------------------------------------ data */
ORACLE_INLINE void store_double(void *at, size_t i, enum comm_type type, double x)
{
    union number v = {.integer = 0};
    if (type == COMM_F64)
        v.wide = x;
    else
        v.single = (float)x;
    number_store(at, i, type, v);
}

/* Summands of very different sizes lose different bits in every order; factors stay near one so that products do not
 * all overflow. */
ORACLE_INLINE double plain_float(enum comm_type type, comm_op op, uint64_t *state)
{
    uint64_t bits = oracle_random(state);
    double mantissa = 1.0 + (double)(bits >> 12) * 0x1p-52, sign = bits & 1 ? -1.0 : 1.0;
    int spread = op == COMM_PROD ? 1 : type == COMM_F16 ? 9 : type == COMM_F8E4M3 || type == COMM_F8E5M2 ? 6 : 20;
    int exponent = (int)(bits >> 1 & 1023) % (2 * spread + 1) - spread;
    return sign * mantissa * power_of_two(exponent);
}

/* Whole elements are special, so that zeros meet zeros and NaN meets numbers. */
static double special_float(enum comm_type type, comm_op op, uint64_t kind, int32_t rank, uint64_t *state)
{
    uint64_t bits = oracle_random(state);
    double least = type == COMM_F64      ? 0x1p-1074
                   : type == COMM_F32    ? 0x1p-149
                   : type == COMM_F16    ? 0x1p-24
                   : type == COMM_F8E4M3 ? 0x1p-9
                   : type == COMM_F8E5M2 ? 0x1p-16
                                         : 0x1p-133;
    double most = type == COMM_F64      ? 0x1.fp1023
                  : type == COMM_F16    ? 65504
                  : type == COMM_F8E4M3 ? 448
                  : type == COMM_F8E5M2 ? 57344
                                        : 0x1.fep127;
    switch (kind % 6) {
    case 0:
        return bits & 1 ? -0.0 : 0.0;
    case 1:
        return (bits & 1 ? -1.0 : 1.0) * least * (double)(1 + (bits >> 1 & 63));
    case 2:
        return (kind >> 8) % 5 == (uint64_t)rank % 5 ? (bits & 2 ? (double)INFINITY : -(double)INFINITY) : plain_float(type, op, state);
    case 3:
        return (kind >> 8) % 5 == (uint64_t)rank % 5 ? (double)NAN : plain_float(type, op, state);
    case 4:
        return (bits & 1 ? -1.0 : 1.0) * most;
    default:
        return -0.0;
    }
}

/* Large numbers that cancel and leave small ones: the rest shows the order even if the accumulator is much wider than
 * the type. */
ORACLE_INLINE double cancelling_float(enum comm_type type, uint64_t kind, uint64_t *state)
{
    uint64_t bits = oracle_random(state);
    int reach = type == COMM_F16 ? 14 : type == COMM_F64 ? 40 : type == COMM_F8E4M3 || type == COMM_F8E5M2 ? 7 : 20;
    if (bits % 3 == 0)
        return (1.0 + (double)(bits >> 12) * 0x1p-52) * power_of_two(-reach);
    return (bits & 8 ? -1.0 : 1.0) * (1.0 + (double)(kind >> 32 & 7) * 0.125) * power_of_two(reach);
}

static void fill_numbers(void *at, size_t n, enum comm_type type, comm_op op, uint64_t seed, int32_t rank);

/* There are few values, so that some are equal and the index decides; the index is the rank's, or sometimes in another
 * order. */
static void fill_indexed(void *at, size_t n, enum comm_type type, uint64_t seed, int32_t rank)
{
    enum comm_type part = part_type(type), index = also_type(type);
    size_t half = oracle_type_bytes(part);
    for (size_t i = 0; i < n; i++) {
        unsigned char *to = (unsigned char *)at + i * 2 * half;
        uint64_t own = seed ^ (i * 0x9e3779b9 + (uint64_t)rank * UINT64_C(0xd1342543de82ef95) + 7), bits = oracle_random(&own);
        union number number = {.integer = bits % 3 == 0 ? UINT64_MAX : bits % 3};
        fill_numbers(to, 1, part, COMM_MIN, seed + i, bits % 2 ? rank : 0);
        if (bits % 5 == 0 && !oracle_is_float(part))
            number_store(to, 0, part, number);
        else if (bits % 5 == 0)
            store_double(to, 0, part, bits % 3 == 0 ? -0.0 : bits % 3 == 1 ? 0.0 : (double)NAN);
        number.integer = bits % 7 == 0 ? (uint64_t)-rank : bits % 7 == 1 ? 3 : (uint64_t)rank;
        number_store(to + half, 0, index, number);
    }
}

void oracle_fill(void *at, size_t n, enum comm_type type, comm_op op, uint64_t seed, int32_t rank)
{
    if (is_indexed(type))
        fill_indexed(at, n, type, seed, rank);
    else
        fill_numbers(at, n * (is_complex(type) ? 2 : 1), part_type(type), op, seed, rank);
}

ORACLE_INLINE void fill_number(void *at, size_t i, enum comm_type type, comm_op op, uint64_t seed, int32_t rank)
{
    uint64_t shared = seed + i * 0x51ed2701, kind = oracle_random(&shared);
    uint64_t own = seed ^ (i * 0x9e3779b9 + (uint64_t)rank * UINT64_C(0xd1342543de82ef95) + 1);
    if (oracle_is_float(type)) {
        bool sums = op == COMM_SUM || op == COMM_AVG;
        store_double(at, i, type,
                     kind % 16 == 3          ? special_float(type, op, kind >> 8, rank, &own)
                     : kind % 4 == 1 && sums ? cancelling_float(type, kind, &own)
                                             : plain_float(type, op, &own));
        return;
    }
    union number v = {.integer = oracle_random(&own)};
    if (op == COMM_LAND || op == COMM_LOR || op == COMM_LXOR)
        v.integer = v.integer >> 8 & (kind % 3 == 0 ? 1 : v.integer & 3);
    else if (op == COMM_PROD)
        v.integer |= 1;
    number_store(at, i, type, v);
}

static void fill_numbers(void *at, size_t n, enum comm_type type, comm_op op, uint64_t seed, int32_t rank)
{
#define FILL(known)                                                                                                                        \
    for (size_t i = 0; i < n; i++)                                                                                                         \
    fill_number(at, i, known, op, seed, rank)
    ORACLE_WITH_TYPE(type, FILL)
}

/* ------------------------------------------------------------------------------------------------------------ exact data */
/* What a type has: bits of a mantissa, with the first one, and powers of two above 1 that a product may have. */
struct width {
    int mantissa, powers;
};

static struct width width_of(enum comm_type type)
{
    switch ((int)type) {
    case COMM_F8E4M3:
        return (struct width){4, 7};
    case COMM_F8E5M2:
        return (struct width){3, 14};
    case COMM_F16:
        return (struct width){11, 14};
    case COMM_BF16:
        return (struct width){8, 60};
    case COMM_F32:
        return (struct width){24, 60};
    default:
        return (struct width){40, 60};
    }
}

bool oracle_has_exact(enum comm_type type, comm_op op, int32_t ranks)
{
    bool sums = op == COMM_SUM || op == COMM_PROD || (op == COMM_AVG && (ranks & (ranks - 1)) == 0);

    return oracle_is_float(type) && sums;
}

/* The magnitudes of all ranks together fit the mantissa: where there are more ranks than it has room for, the others give 0. */
static double exact_summand(struct width w, uint64_t bits, int32_t turn, int32_t ranks)
{
    int64_t most = (int64_t)1 << w.mantissa, each = most / ranks ? most / ranks : 1;

    return turn < most ? (double)((int64_t)(bits % (uint64_t)(2 * each + 1)) - each) : 0.0;
}

/* The first rank in turn has a mantissa of its own, and those after it a power of two, as far as the type's exponents go. */
static double exact_factor(struct width w, uint64_t bits, int32_t turn)
{
    double sign = bits & 1 ? -1.0 : 1.0;
    uint64_t half = UINT64_C(1) << (w.mantissa - 1);

    if (turn == 0)
        return sign * (double)(half + (bits >> 1) % half) / (double)half;
    return turn < w.powers && bits & 2 ? sign * 2 : sign;
}

void oracle_fill_exact(void *at, size_t n, enum comm_type type, comm_op op, uint64_t seed, int32_t rank, int32_t ranks)
{
    struct width w = width_of(type);

    for (size_t i = 0; i < n; i++) {
        uint64_t own = seed ^ (i * 0x9e3779b9 + (uint64_t)rank * UINT64_C(0xd1342543de82ef95) + 1), bits = oracle_random(&own);
        int32_t turn = (int32_t)((i + (uint64_t)rank) % (uint64_t)ranks);
        store_double(at, i, type, op == COMM_PROD ? exact_factor(w, bits, turn) : exact_summand(w, bits, turn, ranks));
    }
}

/* ------------------------------------------------------------------------------------------------------------ comparing */
static bool number_is_nan(const unsigned char *at, enum comm_type type)
{
    if (!oracle_is_float(type))
        return false;
    union number v = number_load(at, 0, type);
    return type == COMM_F64 ? isnan(v.wide) : isnan(v.single);
}

/* Equal, part by part, where all NaNs are equal. */
static bool same_element(const unsigned char *a, const unsigned char *b, enum comm_type type)
{
    size_t bytes = oracle_type_bytes(type), parts = is_complex(type) || is_indexed(type) ? 2 : 1, part = bytes / parts;
    for (size_t i = 0; i < parts; i++) {
        enum comm_type of = i ? also_type(type) : part_type(type);
        bool nan = number_is_nan(a + i * part, of) && number_is_nan(b + i * part, of);
        if (!nan && memcmp(a + i * part, b + i * part, part) != 0)
            return false;
    }
    return true;
}

size_t oracle_differ(const void *got, const void *want, size_t n, enum comm_type type)
{
    size_t bytes = oracle_type_bytes(type);
    if (n == 0 || memcmp(got, want, n * bytes) == 0)
        return n;
    for (size_t i = 0; i < n; i++) {
        if (!same_element((const unsigned char *)got + i * bytes, (const unsigned char *)want + i * bytes, type))
            return i;
    }
    return n;
}

bool oracle_has_nan(const void *at, size_t n, enum comm_type type)
{
    size_t parts = is_complex(type) || is_indexed(type) ? 2 : 1, bytes = oracle_type_bytes(type) / parts;
    bool has = false;
    for (size_t i = 0; i < n * parts && !has; i++)
        has = number_is_nan((const unsigned char *)at + i * bytes, i % parts ? also_type(type) : part_type(type));
    return has;
}

uint64_t oracle_hash(const void *at, size_t n, enum comm_type type, uint64_t seed)
{
    uint64_t hash = seed ^ UINT64_C(0xcbf29ce484222325);
    size_t parts = is_complex(type) || is_indexed(type) ? 2 : 1, bytes = oracle_type_bytes(type) / parts;
    for (size_t i = 0; i < n * parts; i++) {
        const unsigned char *from = (const unsigned char *)at + i * bytes;
        uint64_t word = 0;
        memcpy(&word, from, bytes);
        if (number_is_nan(from, i % parts ? also_type(type) : part_type(type)))
            word = 0x7fc0;
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash;
}

static int number_text(union number v, enum comm_type type, char *text, size_t room)
{
    if (type == COMM_F64)
        return snprintf(text, room, "%a", v.wide);
    if (oracle_is_float(type))
        return snprintf(text, room, "%a", (double)v.single);
    return snprintf(text, room, "0x%" PRIx64, v.integer);
}

const char *oracle_text(const void *at, size_t i, enum comm_type type, char text[64])
{
    struct value v = element_load(at, i, type);
    int used = number_text(v.is, part_type(type), text, 32);
    if (is_complex(type) || is_indexed(type)) {
        text[used] = ' ';
        number_text(v.also, also_type(type), text + used + 1, 31);
    }
    return text;
}
