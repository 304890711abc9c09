/*
 * Device buffers on a host backend whose collectives a library does: it gets the stages, in the order of the calls. The library is a fake
 * (engine/native_fake.h), and the device is a mock. All ranks are in this process.
 */
#include "conform/rig.h"
#include "engine/native_fake.h"
#include "wire/native.h"

#include "mock_everywhere.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, N = 1000 };
static struct rig rig;
static float *in[RANKS], *out[RANKS]; /* in device memory */

static void open_world(size_t n)
{
    for (int r = 0; r < RANKS; r++) {
        in[r] = mock_take(n * sizeof(float));
        out[r] = mock_take(RANKS * n * sizeof(float));
        for (size_t i = 0; i < n; i++)
            ((float *)mock_peek(in[r]))[i] = (float)(i % 1000 + 1000 * (size_t)r);
    }
    rig_open(&rig, RANKS, NULL);
}

static void close_world(void)
{
    rig_close(&rig);
    for (int r = 0; r < RANKS; r++) {
        mock_give(in[r]);
        mock_give(out[r]);
    }
}

static void served_by(struct comm_request q, bool library)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    EQUAL(strcmp(info.algorithm, "fake") == 0, library);
    EQUAL(info.flags, COMM_INFO_STAGED);
}

/* An operation that fetches nothing is ready at once, and must not overtake one that is still fetched. Rank 0 fetches nothing for every
 * second sum, whose input there is the host's. */
RIG_TEST(the_library_gets_calls_in_their_order)
{
    enum { ROUNDS = 8 };
    static float host[RANKS][N];
    struct comm_request q[2 * ROUNDS * RANKS];
    size_t count = 0;

    mock_late(6);
    open_world(N);
    for (int i = 0; i < ROUNDS; i++) {
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(rig.world[r], in[r], out[r], 10, COMM_F32, COMM_SUM, &q[count++]));
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(rig.world[r], r ? in[r] + 20 : host[r], out[r] + 20, 10, COMM_F32, COMM_SUM, &q[count++]));
    }
    rig_wait_all(q, count);
    served_by(q[0], true);
    EQUAL(fake.order, 0);
    EQUAL(fake.mixed, 0);
    close_world();
}

/* The stage of a part has dense blocks, as the library expects them. */
RIG_TEST(the_library_gathers_in_parts)
{
    size_t n = (3 << 20) / RANKS / sizeof(float) + 100;
    struct comm_request before[RANKS], q[RANKS];

    mock_late(4);
    open_world(n);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_barrier(rig.world[r], &before[r]));
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allgather(rig.world[r], in[r], out[r], n, COMM_F32, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        EQUAL(q[r].ticket - before[r].ticket, 3);
        served_by(q[r], true);
        for (size_t from = 0; from < RANKS; from++)
            CHECK(memcmp((float *)mock_peek(out[r]) + from * n, mock_peek(in[from]), n * sizeof(float)) == 0);
    }
    EQUAL(fake.order, 0);
    close_world();
}

enum { UNEVEN = (2 << 20) / sizeof(float) };
static const size_t counts[RANKS] = {UNEVEN / 4, UNEVEN, UNEVEN / 2 + 11}, displs[RANKS] = {UNEVEN + UNEVEN / 2 + 11, UNEVEN / 2 + 11, 0},
                    all = UNEVEN / 4 + UNEVEN + UNEVEN / 2 + 11;

RIG_TEST(the_library_gathers_uneven_blocks_in_parts)
{
    struct comm_request before[RANKS], q[RANKS];

    mock_late(4);
    open_world(UNEVEN);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_barrier(rig.world[r], &before[r]));
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allgather_v(rig.world[r], in[r], out[r], counts, displs, COMM_F32, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        EQUAL(q[r].ticket - before[r].ticket, 3);
        served_by(q[r], true);
        for (size_t from = 0; from < RANKS; from++)
            CHECK(memcmp((float *)mock_peek(out[r]) + displs[from], mock_peek(in[from]), counts[from] * sizeof(float)) == 0);
    }
    EQUAL(fake.order, 0);
    close_world();
}

/* The order of a library's operands may depend on the length. Without the library the operation goes in parts. */
RIG_TEST(the_library_reduces_uneven_blocks_whole)
{
    struct comm_request before[RANKS], q[RANKS];
    size_t at = 0;

    open_world(UNEVEN);
    for (fake.scatters = true;; fake.scatters = false) {
        for (int r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < all; i++)
                ((float *)mock_peek(out[r]))[i] = (float)(i % 1000);
            MUST(comm_barrier(rig.world[r], &before[r]));
        }
        for (int r = 0; r < RANKS; r++)
            MUST(comm_reduce_scatter_v(rig.world[r], out[r], in[r], counts, COMM_F32, COMM_SUM, &q[r]));
        rig_wait_all(q, RANKS);
        at = 0;
        for (int r = 0; r < RANKS; at += counts[r++]) {
            EQUAL(q[r].ticket - before[r].ticket, fake.scatters ? 1 : 3);
            served_by(q[r], fake.scatters);
            for (size_t i = 0; i < counts[r]; i++)
                CHECK(((float *)mock_peek(in[r]))[i] == RANKS * (float)((at + i) % 1000));
        }
        if (!fake.scatters)
            break;
    }
    close_world();
}

static void plan_of(struct comm_plan *plan[RANKS], float *const *from)
{
    struct comm_communicator *recorder;

    for (int r = 0; r < RANKS; r++) {
        MUST(comm_plan_begin(rig.world[r], &recorder));
        MUST(comm_allreduce(recorder, from[r], out[r], N, COMM_F32, COMM_SUM, NULL));
        MUST(comm_plan_end(recorder, &plan[r]));
    }
}

/* A library keeps nothing of a call of a plan whose buffers are a device's: their stages may differ at each start. So either all ranks have
 * such buffers, or none. */
RIG_TEST(plans_that_a_library_keeps)
{
    static float host[2][N];
    struct comm_plan *plan[RANKS], *mixed[RANKS];
    struct comm_request q[RANKS];

    fake.flags = NATIVE_STANDS;
    open_world(N);
    plan_of(plan, in);
    for (int i = 0; i < 3; i++) {
        for (int r = 0; r < RANKS; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        rig_wait_all(q, RANKS);
        served_by(q[0], true);
        for (size_t k = 0; k < N; k++)
            CHECK(((float *)mock_peek(out[2]))[k] == (float)(RANKS * (k % 1000) + 3000));
    }
    EQUAL(fake.noted, 0);
    float *device = out[1], *from[RANKS] = {in[0], host[0], in[2]};
    out[1] = host[1]; /* rank 1 has no device buffer */
    plan_of(mixed, from);
    fake.stalls = true;
    for (int r = 0; r < RANKS; r++) {
        enum comm_result said = comm_plan_start(mixed[r], &q[r]);
        CHECK(said == COMM_OK || said == COMM_ERR_MISMATCH);
    }
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    for (int r = 0; r < RANKS; r++) {
        comm_plan_free(plan[r]);
        comm_plan_free(mixed[r]);
    }
    out[1] = device;
    close_world();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_gets_calls_in_their_order),
        cmocka_unit_test(the_library_gathers_in_parts),
        cmocka_unit_test(the_library_gathers_uneven_blocks_in_parts),
        cmocka_unit_test(the_library_reduces_uneven_blocks_whole),
        cmocka_unit_test(plans_that_a_library_keeps),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_staged_library", tests, NULL, NULL);
}
