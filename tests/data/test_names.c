/* Names, sizes, which pairs exist, and that every accepted pair has a kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/data.h"

#include <string.h>

static void names_are_read_back(void **state)
{
    (void)state;
    uint32_t types = 0, ops = 0;
    for (unsigned type = 0; type < 64; type++) {
        const char *name = data_type_name((enum comm_type)type);
        if (data_type_bytes((enum comm_type)type) == 0) {
            assert_string_equal(name, "?");
            continue;
        }
        types++;
        assert_int_equal(data_type_parse(name), type);
        assert_true(data_partial_bytes((enum comm_type)type) >= data_type_bytes((enum comm_type)type));
    }
    for (comm_op op = 0; op < 64; op++) {
        if (strcmp(data_op_name(op), "?") == 0)
            continue;
        ops++;
        assert_int_equal(data_op_parse(data_op_name(op)), op);
    }
    assert_int_equal(types, 22);
    assert_int_equal(ops, 15);
    assert_int_equal(data_type_parse("f31"), 0);
    assert_int_equal(data_type_parse(""), 0);
    assert_int_equal(data_type_parse(NULL), 0);
    assert_int_equal(data_op_parse("SUM"), 0);
    assert_int_equal(data_op_parse(NULL), 0);
    assert_string_equal(data_type_name((enum comm_type) - 1), "?");
    assert_string_equal(data_op_name(UINT32_MAX), "?");
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        enum comm_type type;
        size_t bytes, partial;
    } rows[] = {{COMM_BYTE, 1, 1},        {COMM_BOOL, 1, 1},      {COMM_I8, 1, 1},           {COMM_U16, 2, 2},
                {COMM_I32, 4, 4},         {COMM_U64, 8, 8},       {COMM_F8E4M3, 1, 4},       {COMM_F8E5M2, 1, 4},
                {COMM_F16, 2, 4},         {COMM_BF16, 2, 4},      {COMM_F32, 4, 4},          {COMM_F64, 8, 8},
                {COMM_C64, 8, 8},         {COMM_C128, 16, 16},    {COMM_F32_INDEX, 8, 8},    {COMM_I64_INDEX, 16, 16},
                {COMM_F64_INDEX, 16, 16}, {COMM_I32_INDEX, 8, 8}, {(enum comm_type)0, 0, 0}, {(enum comm_type)30, 0, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(data_type_bytes(rows[i].type), rows[i].bytes);
        assert_int_equal(data_partial_bytes(rows[i].type), rows[i].partial);
    }
}

/* What the room promises, written as a rule instead of a table. */
static enum comm_result expected(enum comm_type type, comm_op op)
{
    const bool integer = (type >= COMM_I8 && type <= COMM_I64) || (type >= COMM_U8 && type <= COMM_U64);
    const bool floating = type >= COMM_F8E4M3 && type <= COMM_F64, complex = type == COMM_C64 || type == COMM_C128;
    if (data_type_bytes(type) == 0 || op == 0 || op > COMM_NOOP)
        return COMM_ERR_ARGUMENT;
    if (floating && op <= COMM_AVG)
        return COMM_OK;
    if (integer && op != COMM_AVG && op <= COMM_LXOR)
        return COMM_OK;
    if (complex && (op == COMM_SUM || op == COMM_PROD || op == COMM_AVG))
        return COMM_OK;
    if (type >= COMM_F32_INDEX && type <= COMM_I64_INDEX && (op == COMM_MINLOC || op == COMM_MAXLOC))
        return COMM_OK;
    if (type == COMM_BOOL && op >= COMM_LAND && op <= COMM_LXOR)
        return COMM_OK;
    return type == COMM_BYTE && op >= COMM_BAND && op <= COMM_BXOR ? COMM_OK : COMM_ERR_UNSUPPORTED;
}

static void every_pair_is_answered(void **state)
{
    (void)state;
    for (unsigned type = 0; type < 70; type++) {
        for (comm_op op = 0; op < 40; op++) {
            const char *why = NULL;
            const enum comm_result result = data_check((enum comm_type)type, op, &why);
            assert_int_equal(result, expected((enum comm_type)type, op));
            assert_int_equal(result, data_check((enum comm_type)type, op, NULL));
            assert_non_null(why);
            assert_int_equal(result == COMM_OK, strlen(why) == 0);
            for (enum data_isa isa = DATA_SCALAR; isa <= data_isa_best(); isa++)
                assert_int_equal(result == COMM_OK, data_reducer((enum comm_type)type, op, isa) != NULL);
        }
    }
    assert_null(data_reducer((enum comm_type) - 1, COMM_SUM, DATA_SCALAR));
    assert_null(data_reducer(COMM_F32, UINT32_MAX, DATA_SCALAR));
}

static void instruction_sets_have_names(void **state)
{
    (void)state;
    assert_string_equal(data_isa_name(DATA_SCALAR), "scalar");
    assert_string_equal(data_isa_name(DATA_AVX2), "avx2");
    assert_string_equal(data_isa_name(DATA_AVX512), "avx512");
    assert_string_equal(data_isa_name((enum data_isa)7), "?");
    print_message("best instruction set here: %s\n", data_isa_name(data_isa_best()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_read_back), cmocka_unit_test(sizes),
                                       cmocka_unit_test(every_pair_is_answered), cmocka_unit_test(instruction_sets_have_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
