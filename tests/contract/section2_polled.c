/* Ranks that only call comm_test: none of them ever prepares to sleep, so what a peer waits for must leave without that. */
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { RANKS = 3, MOST = 14 * 65536, STEP = 65536, LONG = 4 << 20, SHORT = 100000 };
static char in[2][MOST], out[2][2 * MOST];
static char block[RANKS][LONG], all[RANKS][LONG + (RANKS - 1) * SHORT];

static void end_polled(struct comm_request *q, int32_t ranks, size_t bytes, const char *call)
{
    int64_t end = rig_now() + 10 * RIG_S;
    bool pending = true;

    while (pending) {
        pending = false;
        for (int32_t r = 0; r < ranks; r++)
            pending |= comm_test(q[r]) == COMM_PENDING;
        if (pending && rig_now() > end)
            rig_die(__FILE__, __LINE__, "%s of %zu bytes does not end by tests alone", call, bytes);
    }
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_test(q[r]));
}

/* One rank gives much and the other next to nothing. */
RIG_TEST(contract_2_6_tests_alone_end_an_operation)
{
    struct rig rig;
    struct comm_request q[2];
    rig_open(&rig, 2, NULL);
    for (int32_t r = 0; r < 2; r++)
        for (size_t i = 0; i < MOST; i++)
            in[r][i] = (char)(i / 4093 + i + (size_t)r);
    for (size_t bytes = STEP; bytes <= MOST; bytes += STEP) {
        const size_t counts[2] = {bytes, 1};
        for (int32_t r = 0; r < 2; r++)
            MUST(comm_allgather_v(rig.world[r], in[r], out[r], counts, NULL, COMM_BYTE, &q[r]));
        end_polled(q, 2, bytes, "allgather_v");
        for (int32_t r = 0; r < 2; r++)
            CHECK(memcmp(out[r], in[0], bytes) == 0 && out[r][bytes] == in[1][0]);
        for (int32_t r = 0; r < 2; r++)
            MUST(comm_broadcast(rig.world[r], r ? out[r] : in[r], bytes, COMM_BYTE, 0, &q[r]));
        end_polled(q, 2, bytes, "broadcast");
        MUST(comm_send(rig.world[0], in[0], bytes, COMM_BYTE, 1, 0, &q[0]));
        MUST(comm_recv(rig.world[1], out[1], bytes, COMM_BYTE, 0, 0, NULL, &q[1]));
        end_polled(q, 2, bytes, "message");
    }
    rig_close(&rig);
}

/* The block of one rank has many more chunks than those of the others, which are empty there and may overtake their first one. */
RIG_TEST(contract_2_6_chunks_that_overtake_each_other)
{
    const size_t counts[RANKS] = {LONG, SHORT, SHORT};
    struct rig rig;
    struct comm_request q[RANKS];
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++)
        memset(block[r], r + 1, counts[r]);
    for (int turn = 0; turn < 3; turn++) {
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_allgather_v(rig.world[r], block[r], all[r], counts, NULL, COMM_BYTE, &q[r]));
        end_polled(q, RANKS, LONG, "allgather_v");
        for (int32_t r = 0; r < RANKS; r++)
            CHECK(all[r][0] == 1 && all[r][LONG] == 2 && all[r][LONG + 2 * SHORT - 1] == 3);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_2_6_tests_alone_end_an_operation),
        cmocka_unit_test(contract_2_6_chunks_that_overtake_each_other),
    };
    return cmocka_run_group_tests_name("contract_2_polled", tests, NULL, NULL);
}
