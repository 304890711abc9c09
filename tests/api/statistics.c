/* comm_statistics: the bytes that one can count on one's fingers. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

enum { RANKS = 3, SLICE = 16 * 1000, LONG = RANKS * SLICE };

static struct comm_stats stats_of(struct comm_communicator *c)
{
    struct comm_stats stats = {.size = sizeof stats};
    MUST(comm_statistics(c, &stats));
    return stats;
}

static void check_all(struct rig *rig, uint64_t out, uint64_t in)
{
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_stats stats = stats_of(rig->world[r]);
        EQUAL(stats.bytes_out, out);
        EQUAL(stats.bytes_in, in);
    }
}

static void sum(struct rig *rig, size_t n)
{
    static float in[RANKS][LONG], out[RANKS][LONG];
    struct comm_request request[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig->world[r], in[r], out[r], n, COMM_F32, COMM_SUM, &request[r]));
    MUST(comm_wait_all(request, RANKS, RIG_PATIENCE));
}

RIG_TEST(work_counts_bytes)
{
    static char mine[RANKS][1000], all[RANKS][RANKS * 1000];
    struct comm_request request[RANKS];
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    check_all(&rig, 0, 0);
    for (int i = 0; i < 10; i++)
        sum(&rig, 2); /* shown to all */
    check_all(&rig, 80, 160);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_barrier(rig.world[r], &request[r]));
    MUST(comm_wait_all(request, RANKS, RIG_PATIENCE));
    check_all(&rig, 80, 160);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allgather(rig.world[r], mine[r], all[r], 1000, COMM_BYTE, &request[r]));
    MUST(comm_wait_all(request, RANKS, RIG_PATIENCE));
    check_all(&rig, 1080, 2160);
    sum(&rig, LONG); /* in slices: two thirds to their owners, then the third that one owns to all */
    check_all(&rig, 1080 + 4 * LONG, 2160 + 4 * 4 * SLICE);
    EQUAL(stats_of(rig.world[0]).operations, 13);
    rig_close(&rig);
}

RIG_TEST(messages_count_bytes)
{
    static char out[100000], in[100000];
    const size_t sizes[] = {0, 10, 4000, 100000};
    struct comm_request send, receive;
    uint64_t moved = 0;
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        MUST(comm_send(rig.world[0], out, sizes[i], COMM_BYTE, 2, 0, &send));
        MUST(comm_recv(rig.world[2], in, sizeof in, COMM_BYTE, i % 2 ? 0 : COMM_ANY_PEER, 0, NULL, &receive));
        MUST(comm_wait(receive, RIG_PATIENCE));
        MUST(comm_wait(send, RIG_PATIENCE));
        moved += sizes[i];
        EQUAL(stats_of(rig.world[0]).bytes_out, moved);
        EQUAL(stats_of(rig.world[2]).bytes_in, moved);
    }
    MUST(comm_send(rig.world[0], out, 20, COMM_BYTE, 2, 0, &send)); /* does not fit: nothing is received */
    MUST(comm_recv(rig.world[2], in, 10, COMM_BYTE, 0, 0, NULL, &receive));
    IS(comm_wait(receive, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    MUST(comm_wait(send, RIG_PATIENCE));
    MUST(comm_send(rig.world[2], out, 20, COMM_BYTE, 2, 0, &send)); /* to itself: nothing travels */
    MUST(comm_recv(rig.world[2], in, 20, COMM_BYTE, 2, 0, NULL, &receive));
    MUST(comm_wait(receive, RIG_PATIENCE));
    MUST(comm_wait(send, RIG_PATIENCE));
    struct comm_stats there = stats_of(rig.world[2]);
    EQUAL(there.bytes_in, moved);
    EQUAL(there.bytes_out, 0);
    EQUAL(there.messages, 7);
    EQUAL(stats_of(rig.world[1]).bytes_in, 0);
    rig_close(&rig);
}

RIG_TEST(windows_count_bytes)
{
    struct comm_window *w[RANKS];
    struct comm_request request[RANKS];
    struct rig rig;
    int64_t some[100] = {0};
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_window_create(rig.world[r], 800, NULL, &w[r], &request[r]));
    MUST(comm_wait_all(request, RANKS, RIG_PATIENCE));
    struct comm_stats before = stats_of(rig.world[0]);
    MUST(comm_put(w[0], some, 100, COMM_I64, 1, 0, NULL));
    MUST(comm_put(w[0], some, 100, COMM_I64, 0, 0, NULL)); /* to itself: nothing travels */
    MUST(comm_get(w[0], some, 50, COMM_I64, 2, 0, NULL));
    MUST(comm_fetch_op(w[0], some, some + 50, 1, COMM_I64, COMM_SUM, 2, 0, NULL));
    struct comm_stats after = stats_of(rig.world[0]);
    EQUAL(after.messages - before.messages, 4);
    EQUAL(after.bytes_out - before.bytes_out, 808);
    EQUAL(after.bytes_in - before.bytes_in, 408);
    rig_close(&rig);
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_window_free(w[r]), COMM_ERR_CLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(work_counts_bytes), cmocka_unit_test(messages_count_bytes),
                                       cmocka_unit_test(windows_count_bytes)};

    return cmocka_run_group_tests_name("api_statistics", tests, NULL, NULL);
}
