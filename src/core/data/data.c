/* Names and sizes of element types and operators, and which pairs of them are valid. A new type needs one row here and
 * its kernels. */
#include "data/data.h"

#include <string.h>

struct type_row {
    enum comm_type type;
    uint8_t bytes, partial_bytes;
    const char *name;
};
static const struct type_row type_rows[] = {
    {COMM_BYTE, 1, 1, "byte"},
    {COMM_BOOL, 1, 1, "bool"},
    {COMM_I8, 1, 1, "i8"},
    {COMM_I16, 2, 2, "i16"},
    {COMM_I32, 4, 4, "i32"},
    {COMM_I64, 8, 8, "i64"},
    {COMM_U8, 1, 1, "u8"},
    {COMM_U16, 2, 2, "u16"},
    {COMM_U32, 4, 4, "u32"},
    {COMM_U64, 8, 8, "u64"},
    {COMM_F8E4M3, 1, 4, "f8e4m3"},
    {COMM_F8E5M2, 1, 4, "f8e5m2"},
    {COMM_F16, 2, 4, "f16"},
    {COMM_BF16, 2, 4, "bf16"},
    {COMM_F32, 4, 4, "f32"},
    {COMM_F64, 8, 8, "f64"},
    {COMM_C64, 8, 8, "c64"},
    {COMM_C128, 16, 16, "c128"},
    {COMM_F32_INDEX, 8, 8, "f32_index"},
    {COMM_F64_INDEX, 16, 16, "f64_index"},
    {COMM_I32_INDEX, 8, 8, "i32_index"},
    {COMM_I64_INDEX, 16, 16, "i64_index"},
};
enum { TYPE_ROWS = sizeof(type_rows) / sizeof(type_rows[0]), TYPE_END = COMM_I64_INDEX + 1 };

/* 1 + the type's row; 0: no such type. A table, because every call looks up sizes. */
static const uint8_t row_of[TYPE_END] = {
    [COMM_BYTE] = 1,       [COMM_BOOL] = 2,       [COMM_I8] = 3,         [COMM_I16] = 4,        [COMM_I32] = 5,     [COMM_I64] = 6,
    [COMM_U8] = 7,         [COMM_U16] = 8,        [COMM_U32] = 9,        [COMM_U64] = 10,       [COMM_F8E4M3] = 11, [COMM_F8E5M2] = 12,
    [COMM_F16] = 13,       [COMM_BF16] = 14,      [COMM_F32] = 15,       [COMM_F64] = 16,       [COMM_C64] = 17,    [COMM_C128] = 18,
    [COMM_F32_INDEX] = 19, [COMM_F64_INDEX] = 20, [COMM_I32_INDEX] = 21, [COMM_I64_INDEX] = 22,
};

static const struct type_row *type_find(enum comm_type type)
{
    return (unsigned)type < TYPE_END && row_of[type] ? &type_rows[row_of[type] - 1] : NULL;
}

size_t data_type_bytes(enum comm_type type)
{
    const struct type_row *row = type_find(type);
    return row ? row->bytes : 0;
}

size_t data_partial_bytes(enum comm_type type)
{
    const struct type_row *row = type_find(type);
    return row ? row->partial_bytes : 0;
}

const char *data_type_name(enum comm_type type)
{
    const struct type_row *row = type_find(type);
    return row ? row->name : "?";
}

enum comm_type data_type_parse(const char *name)
{
    for (size_t i = 0; name && i < TYPE_ROWS; i++) {
        if (strcmp(type_rows[i].name, name) == 0)
            return type_rows[i].type;
    }
    return (enum comm_type)0;
}

static const char *const op_names[] = {
    [COMM_SUM] = "sum",   [COMM_PROD] = "prod",     [COMM_MIN] = "min",       [COMM_MAX] = "max",         [COMM_AVG] = "avg",
    [COMM_BAND] = "band", [COMM_BOR] = "bor",       [COMM_BXOR] = "bxor",     [COMM_LAND] = "land",       [COMM_LOR] = "lor",
    [COMM_LXOR] = "lxor", [COMM_MINLOC] = "minloc", [COMM_MAXLOC] = "maxloc", [COMM_REPLACE] = "replace", [COMM_NOOP] = "noop",
};
enum { OP_END = sizeof(op_names) / sizeof(op_names[0]) };

const char *data_op_name(comm_op op)
{
    return op < OP_END && op_names[op] ? op_names[op] : "?";
}

comm_op data_op_parse(const char *name)
{
    for (comm_op op = COMM_SUM; name && op < OP_END; op++) {
        if (strcmp(op_names[op], name) == 0)
            return op;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ valid pairs */
static bool is_floating(enum comm_type type)
{
    return type >= COMM_F8E4M3 && type <= COMM_F64;
}
static bool is_integer(enum comm_type type)
{
    return (type >= COMM_I8 && type <= COMM_I64) || (type >= COMM_U8 && type <= COMM_U64);
}
static bool is_complex(enum comm_type type)
{
    return type == COMM_C64 || type == COMM_C128;
}
static bool is_indexed(enum comm_type type)
{
    return type >= COMM_F32_INDEX && type <= COMM_I64_INDEX;
}
static bool is_bitwise(comm_op op)
{
    return op >= COMM_BAND && op <= COMM_BXOR;
}
static bool is_logical(comm_op op)
{
    return op >= COMM_LAND && op <= COMM_LXOR;
}

static const char *why_no_operator(enum comm_type type, comm_op op)
{
    bool located = op == COMM_MINLOC || op == COMM_MAXLOC;
    if (op == COMM_REPLACE || op == COMM_NOOP)
        return "replace and noop are operators of windows, not of reductions";
    if (located && !is_indexed(type))
        return "minloc and maxloc need pairs of value and index, such as f32_index";
    return !located && is_indexed(type) ? "pairs of value and index support only minloc and maxloc" : NULL;
}

/* NULL: the pair has kernels. */
static const char *why_not(enum comm_type type, comm_op op)
{
    const char *why = why_no_operator(type, op);
    if (why)
        return why;
    if (type == COMM_BYTE && !is_bitwise(op))
        return "bytes support only band, bor and bxor; use a type such as u8 for other operators";
    if (type == COMM_BOOL && !is_logical(op))
        return "bool supports only land, lor and lxor; use a type such as u8 for other operators";
    if ((is_floating(type) || is_complex(type)) && (is_bitwise(op) || is_logical(op)))
        return "bit and logical operators are for integers; floating types support sum, prod, min, max and avg";
    if (is_complex(type) && (op == COMM_MIN || op == COMM_MAX))
        return "complex numbers have no order: they support only sum, prod and avg";
    if (is_integer(type) && op == COMM_AVG)
        return "an average of integers would have to be rounded; use sum and divide the result";
    return NULL;
}

enum comm_result data_check(enum comm_type type, comm_op op, const char **why)
{
    const char *text = NULL;
    enum comm_result result = COMM_OK;
    if (!type_find(type)) {
        text = "no element type has this number";
        result = COMM_ERR_ARGUMENT;
    } else if (op >= OP_END || !op_names[op]) {
        text = "no operator has this number";
        result = COMM_ERR_ARGUMENT;
    } else {
        text = why_not(type, op);
        result = text ? COMM_ERR_UNSUPPORTED : COMM_OK;
    }
    if (why)
        *why = text ? text : "";
    return result;
}
