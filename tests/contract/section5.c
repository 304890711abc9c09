/* Resources: whatever differs between ranks (conflicts, gates, lateness), no operation waits for a place that a younger
 * one holds. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 70000 }; /* many chunks, more than all places */

static float *floats(size_t n, float value)
{
    float *at = malloc(n * sizeof *at);
    CHECK(at != NULL);
    for (size_t i = 0; i < n; i++)
        at[i] = value;
    return at;
}

/* Rank 0 must finish A before B, which reads A's result; rank 1 has no such conflict and runs both at once. */
static void conflicts_differ(const char *options)
{
    struct rig rig;
    struct comm_request last[2];
    float *in[2], *y[2], *other = floats(LONG, 4), *out[2];
    rig_open_options(&rig, 2, options);
    for (int32_t r = 0; r < 2; r++) {
        in[r] = floats(LONG, (float)r + 1);
        y[r] = floats(LONG, 0);
        out[r] = floats(LONG, 0);
    }
    for (int round = 0; round < 5; round++) {
        for (int32_t r = 1; r >= 0; r--) {
            for (int k = 0; k < 6; k++) {
                MUST(comm_allreduce(rig.world[r], in[r], y[r], LONG, COMM_F32, COMM_SUM, NULL));
                MUST(comm_allreduce(rig.world[r], r == 0 ? y[0] : other, out[r], LONG, COMM_F32, COMM_SUM, &last[r]));
            }
        }
        rig_wait_all(last, 2);
        CHECK(y[0][LONG - 1] == 3 && y[1][0] == 3 && out[0][LONG / 2] == 7 && out[1][LONG - 1] == 7);
    }
    rig_close(&rig);
    for (int32_t r = 0; r < 2; r++) {
        free(in[r]);
        free(y[r]);
        free(out[r]);
    }
    free(other);
}

RIG_TEST(contract_5_1_conflicts_that_differ_by_rank)
{
    conflicts_differ(NULL);
}
RIG_TEST(contract_5_1_conflicts_that_differ_by_rank_minimal)
{
    conflicts_differ("minimal=1");
}

/* On rank 0 the first communicator waits for a point of the second; on rank 1 neither waits. */
static void gates_differ(const char *options)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request last[4], behind;
    float *in = floats(LONG, 1), *out[4];
    rig_open_options(&rig, 2, options);
    rig_dup(rig.world, 2, second);
    for (int i = 0; i < 4; i++)
        out[i] = floats(LONG, 0);
    for (int k = 0; k < 4; k++) {
        MUST(comm_allreduce(rig.world[1], in, out[0], LONG, COMM_F32, COMM_SUM, &last[0]));
        MUST(comm_allreduce(second[1], in, out[1], LONG, COMM_F32, COMM_SUM, &last[1]));
        rig_progress_for(rig.world[1], 2 * RIG_MS);
        MUST(comm_allreduce(second[0], in, out[2], LONG, COMM_F32, COMM_SUM, &behind));
        MUST(comm_queue_wait_request(rig.world[0], behind));
        MUST(comm_allreduce(rig.world[0], in, out[3], LONG, COMM_F32, COMM_SUM, &last[2]));
        last[3] = behind;
        rig_wait_all(last, 4);
        for (int i = 0; i < 4; i++)
            CHECK(out[i][0] == 2 && out[i][LONG - 1] == 2);
    }
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_close(second[r], RIG_PATIENCE));
    rig_close(&rig);
    free(in);
    for (int i = 0; i < 4; i++)
        free(out[i]);
}

RIG_TEST(contract_5_1_gates_that_differ_by_rank)
{
    gates_differ(NULL);
}
RIG_TEST(contract_5_1_gates_that_differ_by_rank_minimal)
{
    gates_differ("minimal=1");
}

/* A root far ahead of a reader that sleeps: no unread data is overwritten. */
static void root_runs_ahead(const char *options, size_t n)
{
    enum { MANY = 300 };
    struct rig rig;
    static int64_t sent[MANY][600], got[MANY][600];
    struct comm_request last[3];
    rig_open_options(&rig, 3, options);
    for (int i = 0; i < MANY; i++) {
        for (size_t k = 0; k < n; k++)
            sent[i][k] = i * 1000 + (int64_t)k;
        MUST(comm_broadcast(rig.world[0], sent[i], n, COMM_I64, 0, &last[0]));
        static int64_t unread[600];
        MUST(comm_broadcast(rig.world[2], unread, n, COMM_I64, 0, &last[2]));
        rig_progress_for(rig.world[0], 0);
    }
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    for (int i = 0; i < MANY; i++)
        MUST(comm_broadcast(rig.world[1], got[i], n, COMM_I64, 0, &last[1]));
    rig_wait_all(last, 3);
    for (int i = 0; i < MANY; i++)
        CHECK(memcmp(got[i], sent[i], n * sizeof(int64_t)) == 0);
    rig_close(&rig);
}

RIG_TEST(contract_5_2_a_root_that_runs_ahead)
{
    setenv("COMM_WINDOW", "4", 1);
    root_runs_ahead(NULL, 3);
    root_runs_ahead(NULL, 600);
    root_runs_ahead("minimal=1", 3);
    root_runs_ahead("minimal=1", 600);
}

/* Large transfers of one communicator for which a peer has no buffer yet do not delay another communicator's. */
RIG_TEST(contract_5_1_bulk_of_another_communicator)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request stuck[20], one[2];
    float *in = floats(LONG, 1), *out = floats(LONG, 0), *got[2] = {floats(LONG, 0), floats(LONG, 0)};
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    for (int i = 0; i < 20; i++)
        MUST(comm_send(second[0], in, LONG, COMM_F32, 1, 0, &stuck[i]));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(rig.world[r], in, got[r], LONG, COMM_F32, COMM_SUM, &one[r]));
    rig_wait_all(one, 2);
    CHECK(got[0][LONG - 1] == 2 && got[1][0] == 2);
    for (int i = 0; i < 20; i++)
        MUST(comm_recv(second[1], out, LONG, COMM_F32, 0, 0, NULL, NULL));
    rig_wait_all(stuck, 20);
    for (int32_t r = 0; r < 2; r++) {
        MUST(comm_sync(second[r], COMM_FOREVER));
        MUST(comm_close(second[r], RIG_PATIENCE));
    }
    CHECK(out[LONG - 1] == 1);
    rig_close(&rig);
    free(in);
    free(out);
    free(got[0]);
    free(got[1]);
}

RIG_TEST(contract_5_3_every_limit_at_its_minimum)
{
    conflicts_differ("window=4,minimal=1");
    gates_differ("window=4,minimal=1");
}

/* Facts that may differ between ranks: address, alignment, in place or not, where gathered blocks lie. */
RIG_TEST(contract_5_4_local_facts_choose_nothing)
{
    static const size_t sizes[] = {1, 90, 3000, 70000};
    struct rig rig;
    rig_open(&rig, 2, NULL);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s], counts[2] = {n, n}, there[2] = {0, n}, here[2] = {n + 5, 2};
        struct comm_request request[4];
        float *in = floats(n, 2), *out = floats(n + 1, 1), *own = floats(n + 3, 1),
              *gathered[2] = {floats(2 * n + 9, 0), floats(2 * n + 9, 0)};
        MUST(comm_allreduce(rig.world[0], COMM_IN_PLACE, own + 3, n, COMM_F32, COMM_SUM, &request[0]));
        MUST(comm_allreduce(rig.world[1], in, out + 1, n, COMM_F32, COMM_SUM, &request[1]));
        MUST(comm_allgather_v(rig.world[0], own + 3, gathered[0], counts, here, COMM_F32, &request[2]));
        MUST(comm_allgather_v(rig.world[1], in, gathered[1], counts, n % 2 ? there : NULL, COMM_F32, &request[3]));
        rig_wait_all(request, 4);
        CHECK(own[3] == 3 && own[n + 2] == 3 && out[1] == 3 && out[n] == 3);
        CHECK(gathered[0][n + 5] == 3 && gathered[0][2] == 2 && gathered[1][0] == 3 && gathered[1][2 * n - 1] == 2);
        CHECK(gathered[0][1] == 0 && gathered[0][2 * n + 5] == 0 && gathered[0][n + 4] == 0);
        free(in);
        free(out);
        free(own);
        free(gathered[0]);
        free(gathered[1]);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_5_1_conflicts_that_differ_by_rank), cmocka_unit_test(contract_5_1_conflicts_that_differ_by_rank_minimal),
        cmocka_unit_test(contract_5_1_gates_that_differ_by_rank),     cmocka_unit_test(contract_5_1_gates_that_differ_by_rank_minimal),
        cmocka_unit_test(contract_5_1_bulk_of_another_communicator),  cmocka_unit_test(contract_5_2_a_root_that_runs_ahead),
        cmocka_unit_test(contract_5_3_every_limit_at_its_minimum),    cmocka_unit_test(contract_5_4_local_facts_choose_nothing),
    };
    return cmocka_run_group_tests_name("contract_5", tests, NULL, NULL);
}
