/*
 * The device's reductions, compiled for the CPU, against the host's kernels: every type and operator that they have, 1 to 64 inputs and
 * more than a kernel of the host takes, and values of all classes. The bits must be equal. Only a NaN that an addition or a product made
 * may have another payload.
 */
#include "cuda/combine_kernel.h"

#include "../data/oracle.h"
#include "cuda/nccl/fold_tree.h"
#include "data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { ELEMENTS = 67, STRIDE = 80, WIDE = 8, WAYS_MOST = 1025 }; /* STRIDE: whole pieces of every type */
static _Alignas(64) char inputs[WAYS_MOST * STRIDE * WIDE], room[1 << 19], want[ELEMENTS * WIDE], got[ELEMENTS * WIDE];
static _Alignas(64) char copied[ELEMENTS * WIDE];

static bool is_nan(const char *at, enum comm_type type)
{
    double d;
    float f;
    uint16_t h;

    memcpy(&d, at, type == COMM_F64 ? sizeof d : 0);
    memcpy(&f, at, type == COMM_F32 ? sizeof f : 0);
    memcpy(&h, at, type == COMM_F16 || type == COMM_BF16 ? sizeof h : 0);
    return type == COMM_F64    ? d != d
           : type == COMM_F32  ? f != f
           : type == COMM_F16  ? (h & 0x7fff) > 0x7c00
           : type == COMM_BF16 ? (h & 0x7fff) > 0x7f80
                               : false;
}

/* The threads run in another order than the elements, as on a device. */
static void fold(const struct fold_args *args)
{
    enum { THREADS = 32 };

    for (size_t i = 0; i < THREADS; i++)
        fold_thread(args, i * 13 % THREADS, THREADS);
}

/* The block of all ranks on one rank's device, which lies in pieces, and with a copy for the peers. */
static void combine(const struct fold_args *args)
{
    enum { THREADS = 3 };
    struct combine_args a = {.to = got,
                             .copy = copied,
                             .elements = args->elements,
                             .type = args->type,
                             .op = args->op,
                             .ranks = args->ways,
                             .in_pieces = args->ways <= COMBINE_RANKS};

    for (uint32_t r = 0; r < args->ways; r++)
        a.from[r] = inputs + r * args->stride;
    for (size_t i = 0; i < THREADS; i++)
        combine_thread(&a, i * 2 % THREADS, THREADS, args->ways > ONESHOT_BATCH);
    assert_memory_equal(copied, got, args->elements * data_type_bytes((enum comm_type)args->type));
}

static void compare(void (*kernel)(const struct fold_args *args), enum comm_type type, comm_op op, uint32_t ways, uint64_t *seed)
{
    size_t bytes = data_type_bytes(type), stride = STRIDE * bytes;
    bool makes_nans = op == COMM_SUM || op == COMM_PROD || op == COMM_AVG;

    for (uint32_t r = 0; r < ways; r++)
        oracle_fill(type, false, inputs + r * stride, ELEMENTS, seed);
    assert_true(fold_tree_room(ways) <= sizeof room);
    fold_tree(&(struct fold_tree){.kernel = data_reducer(type, op, DATA_SCALAR),
                                  .in = inputs,
                                  .out = want,
                                  .room = room,
                                  .stride = stride,
                                  .elements = ELEMENTS,
                                  .element_bytes = bytes,
                                  .partial_bytes = data_partial_bytes(type),
                                  .grain = 1,
                                  .ways = ways,
                                  .divisor = ways});
    memset(got, 0, sizeof got);
    kernel(&(struct fold_args){
        .in = inputs, .out = got, .stride = stride, .elements = ELEMENTS, .ways = ways, .divisor = ways, .type = (uint32_t)type, .op = op});
    for (size_t i = 0; i < ELEMENTS; i++) {
        if (memcmp(want + i * bytes, got + i * bytes, bytes) == 0 ||
            (makes_nans && is_nan(want + i * bytes, type) && is_nan(got + i * bytes, type)))
            continue;
        fail_msg("%s of %s, %u inputs, element %zu has other bits", data_op_name(op), data_type_name(type), ways, i);
    }
}

static void compare_all(void (*kernel)(const struct fold_args *args))
{
    static const uint32_t many[] = {65, 66, 96, 127, 128, 129, 511, WAYS_MOST};
    uint64_t seed = 1, pairs = 0;

    for (int type = 0; type < 64; type++) {
        for (comm_op op = COMM_SUM; op <= COMM_LXOR; op++) {
            if (!fold_has((enum comm_type)type, op))
                continue;
            assert_int_equal(data_check((enum comm_type)type, op, NULL), COMM_OK);
            pairs++;
            for (uint32_t ways = 1; ways <= DATA_WAYS_MAX; ways++)
                compare(kernel, (enum comm_type)type, op, ways, &seed);
            for (size_t i = 0; kernel == fold && i < sizeof many / sizeof *many; i++)
                compare(kernel, (enum comm_type)type, op, many[i], &seed);
        }
    }
    assert_int_equal(pairs, 8 * 10 + 4 * 5 + 3); /* integers, floats, bytes */
}

static void every_pair_has_the_hosts_bits(void **state)
{
    (void)state;
    compare_all(fold);
}

/* 1 to 16 ranks in pieces, in one batch and in two, with elements behind the last piece; more ranks one element at a time. */
static void every_pair_in_pieces_has_the_hosts_bits(void **state)
{
    (void)state;
    compare_all(combine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_has_the_hosts_bits),
        cmocka_unit_test(every_pair_in_pieces_has_the_hosts_bits),
    };
    return cmocka_run_group_tests_name("cuda_kernels", tests, NULL, NULL);
}
