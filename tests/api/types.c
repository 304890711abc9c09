/* comm_type_size: what the C type has, and what the calls move. */
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <complex.h>
#include <string.h>

struct i32_index {
    int32_t value, index;
};
struct i64_index {
    int64_t value, index;
};

static const struct {
    enum comm_type type;
    size_t bytes;
} types[] = {
    {COMM_BYTE, 1},
    {COMM_BOOL, 1},
    {COMM_I8, sizeof(int8_t)},
    {COMM_I16, sizeof(int16_t)},
    {COMM_I32, sizeof(int32_t)},
    {COMM_I64, sizeof(int64_t)},
    {COMM_U8, sizeof(uint8_t)},
    {COMM_U16, sizeof(uint16_t)},
    {COMM_U32, sizeof(uint32_t)},
    {COMM_U64, sizeof(uint64_t)},
    {COMM_F8E4M3, 1},
    {COMM_F8E5M2, 1},
    {COMM_F16, 2},
    {COMM_BF16, 2},
    {COMM_F32, sizeof(float)},
    {COMM_F64, sizeof(double)},
    {COMM_C64, sizeof(float complex)},
    {COMM_C128, sizeof(double complex)},
    {COMM_F32_INDEX, sizeof(struct comm_f32_index)},
    {COMM_F64_INDEX, sizeof(struct comm_f64_index)},
    {COMM_I32_INDEX, sizeof(struct i32_index)},
    {COMM_I64_INDEX, sizeof(struct i64_index)},
};
enum { TYPES = sizeof types / sizeof *types };

RIG_TEST(type_size_of_every_number)
{
    size_t known = 0;
    for (int number = -3; number < 4096; number++)
        known += comm_type_size((enum comm_type)number) != 0;
    EQUAL(known, TYPES);
    for (size_t i = 0; i < TYPES; i++)
        EQUAL(comm_type_size(types[i].type), types[i].bytes);
    EQUAL(comm_type_size(COMM_TYPE_INT), 0);
    EQUAL(comm_type_size((enum comm_type)INT32_MIN), 0);
}

RIG_TEST(type_size_is_what_a_call_moves)
{
    enum { N = 3, ROOM = 64, FILL = 0x5a };
    unsigned char from[ROOM], to[ROOM];
    struct rig rig;
    rig_open(&rig, 1, NULL);
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i + 1);
    for (size_t i = 0; i < TYPES; i++) {
        size_t bytes = N * comm_type_size(types[i].type);
        memset(to, FILL, sizeof to);
        MUST(NOW(comm_allgather, rig.world[0], from, to, N, types[i].type));
        CHECK(memcmp(from, to, bytes) == 0);
        for (size_t k = bytes; k < ROOM; k++)
            EQUAL(to[k], FILL);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(type_size_of_every_number),
        cmocka_unit_test(type_size_is_what_a_call_moves),
    };
    return cmocka_run_group_tests_name("api_types", tests, NULL, NULL);
}
