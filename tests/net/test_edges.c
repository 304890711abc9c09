/*
 * In a build with AddressSanitizer, a write past a stage, a block, or a piece of mapped or lent memory is detected, even though its
 * neighbour is in the same mapping. The test asks the sanitizer, byte by byte, what may be accessed. Other builds do not protect the ends:
 * exit 77.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/edge.h"
#include "net/pair.h"
#include "wire/table.h"

#include <commstream/memory.h>
#include <commstream/open.h>

#include <stdio.h>

#ifndef EDGE_CHECKED
int main(void)
{
    printf("skipped: this build is not under AddressSanitizer, so memory has no edges\n");
    return 77;
}
#else
static void expect_bound(const void *at, size_t bytes)
{
    const char *from = at;

    assert_null(__asan_region_is_poisoned((void *)(uintptr_t)from, bytes));
    assert_int_equal(__asan_address_is_poisoned(from + bytes), 1);
    assert_int_equal(__asan_address_is_poisoned(from + bytes + 7), 1);
}

static void stages(void **state)
{
    static struct pair pair;

    (void)state;
    pair_open(&pair, 8, NULL);
    for (int32_t rank = 0; rank < PAIR_RANKS; rank++)
        for (int32_t peer = 0; peer < PAIR_RANKS; peer++)
            for (uint32_t k = 0; k < TCP_LANES; k++) {
                const struct tcp_lane *lane = &pair.wire->port[rank].link[peer].lane[k];
                expect_bound(lane->stage, lane->stage_bytes);
            }
    pair_close(&pair);
}

static void blocks(void **state)
{
    static const size_t sizes[] = {1, 63, 240, 255, 300, 5000, TCP_AHEAD_BYTES - 1, TCP_CHUNK, FRAME_PAYLOAD_MAX};
    static struct pair pair;

    (void)state;
    pair_open(&pair, 8, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tcp_block *block = tcp_block_take(pair.wire, sizes[i]);
        assert_non_null(block);
        expect_bound(block->data, sizes[i]);
        tcp_block_give(pair.wire, block);
        expect_bound(block->data, 0);
        assert_ptr_equal(tcp_block_take(pair.wire, sizes[i] > 1 ? sizes[i] - 1 : 1), block); /* another length of the same block */
        expect_bound(block->data, sizes[i] > 1 ? sizes[i] - 1 : 1);
        tcp_block_give(pair.wire, block);
    }
    pair_close(&pair);
}

static void mapped_memory(void **state)
{
    static const size_t sizes[] = {100, 4096, 300000, 1 << 20};
    const struct comm_env *env = wire_default_env();

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *at = env->take(env, sizes[i], 64);
        assert_non_null(at);
        expect_bound(at, sizes[i]);
        env->give(env, at, sizes[i]);
    }
}

static void lent_memory(void **state)
{
    static const size_t sizes[] = {1000, 4096, 1 << 20};
    struct comm_communicator *ranks[2];

    (void)state;
    assert_int_equal(comm_open_local(COMM_CONFIG(.backend = "local"), 2, NULL, ranks), COMM_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *at = NULL;
        assert_int_equal(comm_mem_alloc(ranks[0], sizes[i], &at), COMM_OK);
        expect_bound(at, sizes[i]);
        comm_mem_free(ranks[0], at);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(comm_close(ranks[i], 10000000000), COMM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages),
        cmocka_unit_test(blocks),
        cmocka_unit_test(mapped_memory),
        cmocka_unit_test(lent_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
