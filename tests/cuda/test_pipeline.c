/*
 * Backend cuda: a long allreduce of device buffers, which goes through a pipeline (cuda/pipeline/pipeline.h). Its results must have the
 * bits of the same call on host buffers, also where ranks share a device, and however it ends.
 */
#define _GNU_SOURCE
#include "oneshot.h"

#include "../conform/oracle.h"
#include "clean.h"
#include "cuda/pipeline/pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* LEAST: where the kernel does shorter ones. ALONE: where staging does. ROOM_LONG: for one that is longer, at an odd address. */
enum { LEAST = 256 << 10, ALONE = 1 << 20, ROOM_LONG = 2 << 20, LEAST_F32 = LEAST / 4, ALONE_F32 = ALONE / 4 };

/* ------------------------------------------------------------------------------------------------------------ results */
/* Types and operators on 1 to 8 ranks; lengths around the ends of blocks; addresses that no kernel can read in whole pieces. */
RIG_TEST(every_pair_has_the_hosts_bits)
{
    unsigned thin = rig_thin(11, 31, 97), pair = 0;

    room = ROOM_LONG;
    for (int32_t n = 1; n <= RANKS; n++) {
        open_all(n, &(struct mock_options){.seed = (uint64_t)n, .queues = n % 2 ? 32 : 2, .no_memops = n % 4 == 3});
        for (int type = 0; type < 64; type++) {
            for (comm_op op = COMM_SUM; op <= COMM_LXOR; op++) {
                if (!fold_has((enum comm_type)type, op) || ++pair % thin)
                    continue;
                size_t element = fold_bytes((uint32_t)type), least = LEAST / element;
                size_t lengths[] = {least, least + 1, least + 255, least + 256 / element * (size_t)n, least + 12345};
                struct sum s = {.type = (enum comm_type)type,
                                .op = op,
                                .n = lengths[pair % 5],
                                .shift = pair % 2 ? element : 0,
                                .in_place = pair % 3 == 0};
                sum_and_compare(&s, pair, false);
            }
        }
        sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_AVG, .n = LEAST_F32 + 3}, 7, false);
        close_all();
    }
}

static void read_all(int32_t r, const char *at, size_t bytes)
{
    for (size_t from = 0; from < bytes; from += BENCH_READ_BYTES)
        bench_read(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)(sides[r].got + from), (const uint32_t *)(const void *)(at + from),
                   (bytes - from < BENCH_READ_BYTES ? bytes - from : BENCH_READ_BYTES) / 4);
}

static uint32_t word_of(const char *at, size_t index)
{
    return ((const uint32_t *)(const void *)at)[index];
}

/* n words a rank. */
static void gather(size_t n, bool in_place, uint64_t seed)
{
    struct comm_request q[RANKS];

    rig_note("allgather of %zu words, %d ranks%s", n, ranks, in_place ? ", in place" : "");
    for (int32_t r = 0; r < ranks; r++) {
        struct side *side = &sides[r];
        oracle_fill(side->host_in, n, COMM_U32, COMM_SUM, seed, r);
        bench_copy(&side->bench, side->stream, in_place ? side->out + (size_t)r * n * 4 : side->in, side->host_in, n * 4);
        MUST(comm_queue_wait_stream(device.world[r], side->stream));
        MUST(comm_allgather(device.world[r], in_place ? COMM_IN_PLACE : side->in, side->out, n, COMM_U32, &q[r]));
    }
    rig_wait_all(q, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        check_way(q[r], false);
        read_all(r, sides[r].out, n * 4 * (size_t)ranks);
        for (int32_t k = 0; k < ranks; k++)
            CHECK(memcmp(sides[r].got + (size_t)k * n * 4, sides[k].host_in, n * 4) == 0);
    }
}

static void scatter(size_t n, bool in_place, uint64_t seed)
{
    struct comm_request q[RANKS];

    rig_note("reduce_scatter of %zu words, %d ranks%s", n, ranks, in_place ? ", in place" : "");
    for (int32_t r = 0; r < ranks; r++) {
        struct side *side = &sides[r];
        oracle_fill(side->host_in, n * (size_t)ranks, COMM_U32, COMM_SUM, seed, r);
        bench_copy(&side->bench, side->stream, side->in, side->host_in, n * (size_t)ranks * 4);
        MUST(comm_queue_wait_stream(device.world[r], side->stream));
        MUST(comm_reduce_scatter(device.world[r], in_place ? COMM_IN_PLACE : side->in, in_place ? side->in : side->out, n, COMM_U32,
                                 COMM_SUM, &q[r]));
    }
    rig_wait_all(q, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        check_way(q[r], false);
        read_all(r, in_place ? sides[r].in + (size_t)r * n * 4 : sides[r].out, n * 4);
        for (size_t i = 0; i < n; i++) {
            uint32_t want = 0;
            for (int32_t k = 0; k < ranks; k++)
                want += word_of(sides[k].host_in, (size_t)r * n + i);
            EQUAL(word_of(sides[r].got, i), want);
        }
    }
}

/* From the shortest to several chunks. */
RIG_TEST(allgather_and_reduce_scatter)
{
    for (int32_t n = 1; n <= 5; n++) {
        room = 2 * (size_t)PIPELINE_CHUNK_BYTES + 4096;
        open_all(n, &(struct mock_options){.seed = (uint64_t)n, .queues = n % 2 ? 32 : 2, .no_memops = n == 3});
        for (uint64_t turn = 0; turn < 4; turn++) {
            size_t least = (LEAST_F32 + (size_t)n - 1) / (size_t)n, most = 2 * (size_t)PIPELINE_CHUNK_BYTES / 4 / (size_t)n;
            gather(turn < 2 ? least : most, turn % 2, turn);
            scatter(turn < 2 ? least + 1 : most - 3, turn % 2, turn);
        }
        close_all();
    }
    room = ROOM_LONG;
}

/* Parts of it are longer than a chunk, and it has more chunks than the pages have slots. */
RIG_TEST(more_chunks_than_slots)
{
    size_t n = (16 * (size_t)PIPELINE_CHUNK_BYTES + (1 << 20)) / 8 + 5;

    room = 8 * n + 64;
    open_all(2, &(struct mock_options){.seed = 4, .queues = 4});
    sum_and_compare(&(struct sum){.type = COMM_F64, .op = COMM_SUM, .n = n, .in_place = true}, 1, false);
    close_all();
    room = ROOM_LONG;
}

/* What is shorter is staged, or done in one kernel; so is what the kernel lacks. */
RIG_TEST(which_calls_it_does)
{
    room = ROOM_LONG;
    open_all(3, &(struct mock_options){.seed = 5, .queues = 4});
    sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = LEAST_F32 - 1}, 1, true);
    sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = LEAST_F32}, 2, false);
    sum_and_compare(&(struct sum){.type = COMM_F8E4M3, .op = COMM_SUM, .n = LEAST}, 3, true);
    sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = 100}, 4, false);
    close_all();
}

RIG_TEST(ranks_that_share_a_device)
{
    room = ROOM_LONG;
    for (uint64_t seed = 1; seed <= rig_thin(20, 8, 2); seed++) {
        open_sharing(3, 2, &(struct mock_options){.seed = seed, .queues = 1 + (int)(seed % 4)});
        sum_and_compare(&(struct sum){.type = COMM_BF16, .op = COMM_SUM, .n = ALONE / 2 + 7}, seed, false);
        sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = ALONE_F32 - 1}, seed, true);
        close_all();
    }
}

/* The kernel reads the pieces of 9 to 16 ranks in two batches. Of more ranks, and where there are no whole pieces, it reads elements. */
RIG_TEST(more_ranks_than_a_batch)
{
    static const enum comm_type types[] = {COMM_F16, COMM_F32, COMM_I8, COMM_F64, COMM_BF16};
    static const comm_op ops[] = {COMM_AVG, COMM_SUM, COMM_MIN, COMM_PROD, COMM_SUM};

    room = ROOM_LONG;
    for (int32_t n = RANKS + 1; n <= RANKS_MOST; n += (int32_t)rig_thin(1, 2, 4)) {
        open_sharing(n, RANKS, &(struct mock_options){.seed = (uint64_t)n, .queues = 4});
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            size_t element = fold_bytes((uint32_t)types[k]);
            struct sum s = {.type = types[k],
                            .op = ops[k],
                            .n = ALONE / element + k * 5,
                            .shift = k == 4 ? element : 0,
                            .in_place = (n + (int32_t)k) % 2};
            sum_and_compare(&s, (uint64_t)n, false);
        }
        close_all();
    }
}

/* More than the pages have slots, each with values of its own. */
enum { CALLS_AT_ONCE = 24 };

static void put_many(uint32_t seed, struct comm_request *q)
{
    for (int32_t r = 0; r < ranks; r++) {
        for (uint32_t i = 0; i < CALLS_AT_ONCE; i++)
            bench_fill(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)(sides[r].in + i * LEAST), seed + (uint32_t)(r + 1) * (i + 1),
                       LEAST_F32);
        MUST(comm_queue_wait_stream(device.world[r], sides[r].stream));
    }
    for (uint32_t i = 0; i < CALLS_AT_ONCE; i++)
        for (int32_t r = 0; r < ranks; r++)
            MUST(comm_allreduce(device.world[r], sides[r].in + i * LEAST, sides[r].out + i * LEAST, LEAST_F32, COMM_U32, COMM_SUM, &q[r]));
}

static bool holds_only(int32_t r, const char *at, uint32_t value)
{
    bool good = true;

    bench_read(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)sides[r].got, (const uint32_t *)(const void *)at, LEAST_F32);
    for (size_t i = 0; i < LEAST_F32; i++)
        good &= word_of(sides[r].got, i) == value;
    return good;
}

RIG_TEST(many_at_once)
{
    struct comm_request q[RANKS];

    room = CALLS_AT_ONCE * LEAST;
    open_all(3, &(struct mock_options){.seed = 1, .queues = 32});
    for (uint32_t seed = 1; seed <= selected(2000, 40, 4); seed++) {
        rig_note("seed %u", seed);
        mock_seed(seed);
        put_many(seed, q);
        rig_wait_all(q, 3);
        for (int32_t r = 0; r < ranks; r++)
            for (uint32_t i = 0; i < CALLS_AT_ONCE; i++)
                CHECK(holds_only(r, sides[r].out + i * LEAST, 3 * seed + 6 * (i + 1)));
    }
    close_all();
    room = ROOM_LONG;
}

/* Long and short ones at the same time, on two communicators, which the ranks give in different orders. */
RIG_TEST(two_communicators_in_different_orders)
{
    enum { AT_ONCE = 6 };
    static const size_t lengths[] = {LEAST_F32, 50, LEAST_F32 + 99};
    struct comm_communicator *dup[RANKS];
    static struct comm_request q[2][AT_ONCE][RANKS];

    room = 2 * AT_ONCE * (LEAST + 4096);
    for (uint64_t seed = 1; seed <= rig_thin(20, 8, 2); seed++) {
        open_all(3, &(struct mock_options){.seed = seed, .queues = 1 + (int)(seed % 4)});
        rig_dup(device.world, 3, dup);
        for (int32_t r = 0; r < ranks; r++)
            fill(r, (uint32_t)(r + 1), room / 4);
        for (int32_t r = 0; r < ranks; r++) {
            for (int turn = 0; turn < 2 * AT_ONCE; turn++) {
                int which = (turn / AT_ONCE + r) % 2, i = turn % AT_ONCE;
                size_t at = (size_t)(2 * i + which) * (LEAST + 4096);
                MUST(comm_allreduce(which ? dup[r] : device.world[r], sides[r].in + at, sides[r].out + at, lengths[i % 3], COMM_U32,
                                    COMM_SUM, &q[which][i][r]));
            }
        }
        for (int which = 0; which < 2; which++)
            for (int i = 0; i < AT_ONCE; i++)
                rig_wait_all(q[which][i], 3);
        for (int32_t r = 0; r < ranks; r++) {
            for (int i = 0; i < 2 * AT_ONCE; i++) {
                const char *last = sides[r].out + (size_t)i * (LEAST + 4096) + 4 * (lengths[i / 2 % 3] - 1);
                EQUAL(first_word(r, last), 6);
            }
            MUST(comm_close(dup[r], COMM_DEFAULT_TIMEOUT));
        }
        close_all();
    }
    room = ROOM_LONG;
}

/* Communicators come and go; each of them uses pages that others had before. */
RIG_TEST(pages_are_used_again)
{
    room = ROOM_LONG;
    open_all(3, &(struct mock_options){.seed = 9, .queues = 8});
    sum_on_dups(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = LEAST_F32}, 6);
    close_all();
}

/* Pages are for some communicators, and the others stage; those that share a device need nothing of it, so there may be many. */
RIG_TEST(many_communicators)
{
    enum { MANY = 60, WITH_PAGES = 8 };
    static struct comm_communicator *made[MANY][RANKS];
    struct sum s = {.type = COMM_F32, .op = COMM_SUM, .n = ALONE_F32};
    struct comm_request q[RANKS];

    room = ROOM_LONG;
    open_sharing(3, 1, &(struct mock_options){.seed = 3, .queues = 8});
    for (int i = 0; i < MANY; i++)
        rig_dup(device.world, 3, made[i]);
    put_inputs(&s, 1);
    for (int i = 0; i < MANY; i += MANY - 1) {
        issue(&s, made[i], q);
        rig_wait_all(q, 3);
        check_way(q[0], i >= WITH_PAGES);
    }
    for (int i = 0; i < MANY; i++)
        for (int32_t r = 0; r < 3; r++)
            MUST(comm_close(made[i][r], COMM_DEFAULT_TIMEOUT));
    close_all();
}

/* A buffer of another rank's device has a stage, which the pipeline reads and writes. */
RIG_TEST(memory_of_another_device)
{
    const struct sum s = {.type = COMM_F32, .op = COMM_SUM, .n = LEAST_F32 + 1000};
    struct comm_request q[RANKS], h[RANKS];

    room = ROOM_LONG;
    open_all(3, &(struct mock_options){.seed = 2, .queues = 3});
    put_inputs(&s, 4);
    for (int32_t r = 0; r < ranks; r++) { /* ranks 0 and 1 change places */
        struct side *side = &sides[r == 2 ? 2 : 1 - r];
        MUST(comm_queue_wait_stream(device.world[r], side->stream));
        MUST(comm_allreduce(device.world[r], side->in, side->out, s.n, s.type, s.op, &q[r]));
        MUST(comm_allreduce(host.world[r], sides[r].host_in, sides[r].host_out, s.n, s.type, s.op, &h[r]));
    }
    rig_wait_all(q, 3);
    rig_wait_all(h, 3);
    EQUAL(describe(q[0]).flags, COMM_INFO_STAGED);
    CHECK(strcmp(describe(q[0]).algorithm, "cuda") == 0);
    check_way(q[2], false);
    compare(&s);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ failures */
RIG_TEST(a_rank_that_never_calls)
{
    struct comm_request q[RANKS];

    room = ROOM_LONG;
    open_failing(3, RIG_S);
    call_on(0, LEAST_F32, &q[0]);
    call_on(1, LEAST_F32, &q[1]);
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    IS(comm_wait(q[1], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    close_failed();
}

/* Calls wait for the first one, on the same buffers or on others of their own. Its deadline ends all of them: deadlines do not add up. So
 * it is on each way that device buffers go. */
RIG_TEST(one_deadline_for_all_that_wait)
{
    enum { CALLS = 8, FEW = 1000 };
    static const char *const ways[] = {"cuda", "local", "nccl"};
    struct comm_request q[CALLS];

    room = 2 * ROOM_LONG;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        size_t n = way == 0 ? LEAST_F32 : FEW;
        rig_note("%s", ways[way]);
        mock_reset(&(struct mock_options){.seed = 3, .queues = 32});
        mock_run(true);
        rig_open(&device, 2, COMM_CONFIG(.backend = ways[way], .operation_timeout_ns = RIG_S));
        open_sides(2, NULL);
        for (size_t i = 0; i < CALLS; i++) {
            size_t at = i / 2 * n * 4;
            MUST(comm_allreduce(device.world[0], sides[0].in + at, sides[0].out + at, n, COMM_F32, COMM_SUM, &q[i]));
        }
        IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_TIMEOUT);
        for (int i = 1; i < CALLS; i++)
            IS(comm_test(q[i]), COMM_ERR_TIMEOUT);
        close_failed();
    }
    room = ROOM_LONG;
}

/* Also after calls that were equal, and where one rank has an operator of the same length and type. */
RIG_TEST(calls_that_differ)
{
    struct comm_request q[RANKS];

    room = ROOM_LONG;
    for (int turn = 0; turn < 4; turn++) {
        open_failing(2, 20 * RIG_S);
        for (int32_t r = 0; r < ranks; r++)
            for (int i = 0; i < turn; i++)
                call_on(r, LEAST_F32, &q[r]);
        call_on(0, LEAST_F32, &q[0]);
        if (turn % 2)
            MUST(comm_allreduce(device.world[1], sides[1].in, sides[1].out, LEAST_F32, COMM_F32, COMM_MAX, &q[1]));
        else
            call_on(1, LEAST_F32 + 1, &q[1]);
        is_mismatch(q, turn % 2 ? "op=max" : "n=65537");
        close_failed();
    }
}

RIG_TEST(an_abort_ends_it)
{
    struct comm_request q[RANKS];

    room = ROOM_LONG;
    for (int turn = 0; turn < 4; turn++) {
        open_failing(3, 20 * RIG_S);
        for (int32_t r = 0; r < 2; r++)
            for (int i = 0; i < 3; i++)
                MUST(comm_allreduce(device.world[r], sides[r].in + i * LEAST, sides[r].out + i * LEAST, LEAST_F32, COMM_F32, COMM_SUM,
                                    &q[r]));
        rig_progress_for(device.world[0], turn * 2 * RIG_MS);
        MUST(comm_abort(device.world[1], 7));
        IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_ABORTED);
        IS(comm_wait(q[1], RIG_PATIENCE), COMM_ERR_ABORTED);
        close_failed();
    }
}

RIG_TEST(a_device_that_fails)
{
    struct comm_request q[RANKS];

    room = ROOM_LONG;
    open_failing(2, 20 * RIG_S);
    mock_fault(1, true);
    call_on(0, LEAST_F32, &q[0]);
    enum comm_result r = comm_allreduce(device.world[1], sides[1].in, sides[1].out, LEAST_F32, COMM_F32, COMM_SUM, &q[1]);
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_BACKEND);
    if (r == COMM_OK)
        IS(comm_wait(q[1], RIG_PATIENCE), COMM_ERR_BACKEND);
    mock_fault(1, false);
    close_failed();
}

static void step_until(_Atomic int *count, int most)
{
    while (*count < most) {
        rig_progress_for(device.world[0], RIG_MS / 4);
        mock_step();
    }
}

/* Rank 0's buffers are on rank 1's device, so they have a stage. The device stands while it is to be copied, until the close gives up; what
 * is copied later must still be there. */
RIG_TEST(a_stage_that_the_device_still_reads)
{
    struct comm_request q;
    _Atomic int copies = 0, unpinned = 0;

    room = ROOM_LONG;
    open_failing(2, RIG_S);
    fill(0, 1, LEAST_F32);
    fill(1, 1, LEAST_F32);
    mock_run(false);
    mock_at("cuMemcpyAsync", count_one, &copies);
    MUST(comm_allreduce(device.world[0], sides[1].in, sides[1].out, LEAST_F32, COMM_F32, COMM_SUM, &q));
    step_until(&copies, 2); /* into the stage, and from there to the pages */
    mock_at("cuMemHostUnregister", count_one, &unpinned);
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    (void)!comm_close(device.world[0], 300 * RIG_MS);
    (void)!comm_close(device.world[1], 300 * RIG_MS);
    EQUAL(unpinned, 0);
    mock_at(NULL, NULL, NULL);
    mock_drain();
    _exit(0); /* what was left behind stays, so nothing is checked to be free */
}

RIG_TEST(a_fault_at_every_call)
{
    uint64_t n = 1, step = rig_thin(1, 2, 5);

    room = ROOM_LONG;
    while (sums_with_a_fault(n, LEAST_F32))
        n += step;
    CHECK(n > 10);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_has_the_hosts_bits),
        cmocka_unit_test(allgather_and_reduce_scatter),
        cmocka_unit_test(more_chunks_than_slots),
        cmocka_unit_test(which_calls_it_does),
        cmocka_unit_test(ranks_that_share_a_device),
        cmocka_unit_test(more_ranks_than_a_batch),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(two_communicators_in_different_orders),
        cmocka_unit_test(pages_are_used_again),
        cmocka_unit_test(many_communicators),
        cmocka_unit_test(memory_of_another_device),
        cmocka_unit_test(a_rank_that_never_calls),
        cmocka_unit_test(one_deadline_for_all_that_wait),
        cmocka_unit_test(calls_that_differ),
        cmocka_unit_test(an_abort_ends_it),
        cmocka_unit_test(a_device_that_fails),
        cmocka_unit_test(a_stage_that_the_device_still_reads),
        cmocka_unit_test(a_fault_at_every_call),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_pipeline", tests, NULL, NULL);
}
