/*
 * Every built collective x types x operators x counts x roots x in place or not, on 1 to 17 ranks in this process,
 * compared bit for bit with the oracle. Driven by one thread, then by one thread per rank, with limits at their
 * minimum, and through every algorithm by name (rows.c).
 */
#define _GNU_SOURCE
#include "conform/rows.h"
#include "conform/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ tests */
RIG_TEST(collectives_one_thread)
{
    sweep_all(&(struct sweep_plan){.thin = 5, .kind = -1});
}
/* More ranks than a group of views. */
RIG_TEST(collectives_seventeen_ranks)
{
    size_t total = sweep_ranks(17, &(struct sweep_plan){.thin = 97, .kind = -1});
    total += sweep_ranks(17, &(struct sweep_plan){.thin = 397, .kind = -1, .large = true});
    fprintf(stderr, "    %zu calls compared\n", total);
}
/* Sizes between those of the tests above. */
RIG_TEST(collectives_ten_to_sixteen_ranks)
{
    size_t total = 0;
    for (int32_t ranks = 10; ranks <= 16; ranks++) {
        total += sweep_ranks(ranks, &(struct sweep_plan){.thin = 397, .kind = -1});
        total += sweep_ranks(ranks, &(struct sweep_plan){.thin = 1601, .kind = -1, .large = true});
    }
    fprintf(stderr, "    %zu calls compared\n", total);
}
/* The largest number of ranks for which small exchanges take the fast path, so that a scan's totals cover blocks of
 * every length. */
RIG_TEST(collectives_sixteen_ranks)
{
    size_t total = 0;
    for (int32_t threads = 0; threads < 2; threads++) {
        total +=
            sweep_ranks(16, &(struct sweep_plan){.thin = 29, .kind = JOB_SCAN, .threads = threads, .options = "algorithm=scan:blocks"});
        total +=
            sweep_ranks(16, &(struct sweep_plan){.thin = 29, .kind = JOB_EXSCAN, .threads = threads, .options = "algorithm=exscan:blocks"});
    }
    fprintf(stderr, "    %zu calls compared\n", total);
}
RIG_TEST(collectives_thread_each)
{
    sweep_all(&(struct sweep_plan){.thin = 61, .kind = -1, .threads = true});
}
RIG_TEST(collectives_large)
{
    sweep_all(&(struct sweep_plan){.thin = 127, .kind = -1, .large = true});
}
RIG_TEST(collectives_large_thread_each)
{
    sweep_all(&(struct sweep_plan){.thin = 499, .kind = -1, .large = true, .threads = true});
}
RIG_TEST(collectives_minimal)
{
    sweep_all(&(struct sweep_plan){.thin = 61, .kind = -1, .options = "minimal=1"});
}
RIG_TEST(collectives_minimal_large)
{
    sweep_all(&(struct sweep_plan){.thin = 499, .kind = -1, .large = true, .options = "minimal=1"});
}

RIG_TEST(collectives_window_4)
{
    const char *native = getenv("FAKE_NATIVE");
    if (native && strstr(native, "stream"))
        rig_skip("a stream takes no call behind programs that wait for a place of the window");
    setenv("COMM_WINDOW", "4", 1);
    struct rig rig;
    struct comm_info info = {.size = sizeof info};
    rig_open(&rig, 2, NULL);
    MUST(comm_describe(rig.world[0], &info));
    EQUAL(info.window, 4);
    rig_close(&rig);
    sweep_all(&(struct sweep_plan){.thin = 67, .kind = -1});
    sweep_all(&(struct sweep_plan){.thin = 211, .kind = -1, .options = "minimal=1"});
}

/* Longer than the size from which results are stored past the cache. */
RIG_TEST(collectives_huge)
{
    struct job job;
    for (int32_t ranks = 2; ranks <= (rig_quick() ? 2 : 5); ranks++) {
        struct rig rig;
        rig_open(&rig, ranks, NULL);
        for (int kind = JOB_BROADCAST; kind < JOB_KINDS; kind++) {
            struct job_shape shape = {.kind = (enum job_kind)kind, .type = kind == JOB_REDUCE ? COMM_BF16 : COMM_F32, .op = COMM_SUM};
            shape.n = (kind >= JOB_ALLGATHER ? 200011 : 800011);
            shape.in_place = kind == JOB_ALLTOALL || kind == JOB_ALLTOALL_V || kind == JOB_SCAN;
            shape.seed = (uint64_t)kind;
            shape.root = ranks - 1;
            job_prepare(&job, &shape, ranks);
            for (int32_t r = 0; r < ranks; r++)
                MUST(job_issue(&job, r, rig.world[r]));
            rig_wait_all(job.request, (size_t)ranks);
            for (int32_t r = 0; r < ranks; r++)
                job_verify(&job, r);
            job_free(&job);
        }
        rig_close(&rig);
    }
}

/* T over blocks, by every collective that supports it; the others refuse it, on all ranks alike. */
RIG_TEST(collectives_order_block)
{
    static const int32_t blocks[] = {3, 5, 6, 7, 12};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        char options[64];
        snprintf(options, sizeof options, "algorithm=,order_block=%d", blocks[i]);
        oracle_block = blocks[i];
        for (int32_t ranks = 2; ranks <= 17; ranks += (int32_t)selected(3, 3, 5)) {
            sweep_ranks(ranks, &(struct sweep_plan){.thin = 401, .kind = -1, .options = options});
            sweep_ranks(ranks, &(struct sweep_plan){.thin = 1999, .kind = -1, .large = true, .options = options});
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ refusals */
static void refuse_pair(struct rig *rig, enum job_kind kind, enum comm_type type, comm_op op)
{
    uint64_t in[RIG_RANKS_MAX * 4] = {0}, out[RIG_RANKS_MAX * 4] = {0};
    for (int32_t r = 0; r < rig->ranks; r++) {
        struct comm_request request = COMM_REQUEST_NONE;
        struct comm_communicator *c = rig->world[r];
        size_t counts[RIG_RANKS_MAX] = {2, 2, 2};
        enum comm_result result = kind == JOB_REDUCE             ? comm_reduce(c, in, out, 2, type, op, 0, &request)
                                  : kind == JOB_ALLREDUCE        ? comm_allreduce(c, in, out, 2, type, op, &request)
                                  : kind == JOB_SCAN             ? comm_scan(c, in, out, 2, type, op, &request)
                                  : kind == JOB_EXSCAN           ? comm_exscan(c, in, out, 2, type, op, &request)
                                  : kind == JOB_REDUCE_SCATTER_V ? comm_reduce_scatter_v(c, in, out, counts, type, op, &request)
                                                                 : comm_reduce_scatter(c, in, out, 2, type, op, &request);
        if (result != COMM_ERR_UNSUPPORTED && result != COMM_ERR_ARGUMENT)
            rig_die(__FILE__, __LINE__, "%s of %s %s: %s, expected a refusal", job_kind_names[kind], oracle_type_name(type),
                    oracle_op_name(op), comm_result_name(result));
        IS(comm_test(request), result);
        IS(comm_wait(request, RIG_S), result);
    }
}

/* All ranks refuse a meaningless pair alike, and the communicator continues with its ranks in step. Of few: one operator in five, others
 * for the next type. */
RIG_TEST(collectives_refused_pairs)
{
    const comm_op step = selected(1, 1, 5);
    struct rig rig;
    rig_open(&rig, 3, NULL);
    for (int kind = 0; kind < JOB_KINDS; kind++) {
        if (!job_kind_reduces((enum job_kind)kind))
            continue;
        for (int t = 0; t < ORACLE_TYPES; t++) {
            for (comm_op op = (comm_op)t % step; op <= 99; op += step) {
                if (!oracle_pair(oracle_types[t], op))
                    refuse_pair(&rig, (enum job_kind)kind, oracle_types[t], op);
            }
            rig_proves_alive(rig.world, rig.ranks);
        }
        refuse_pair(&rig, (enum job_kind)kind, (enum comm_type)77, COMM_SUM);
        refuse_pair(&rig, (enum job_kind)kind, (enum comm_type)0, COMM_SUM);
        rig_proves_alive(rig.world, rig.ranks);
    }
    rig_close(&rig);
}

/* collectives [PATTERN]: runs only tests whose names match it. */
int main(int count, char **words)
{
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_one_thread),
        cmocka_unit_test(collectives_seventeen_ranks),
        cmocka_unit_test(collectives_ten_to_sixteen_ranks),
        cmocka_unit_test(collectives_sixteen_ranks),
        cmocka_unit_test(collectives_thread_each),
        cmocka_unit_test(collectives_large),
        cmocka_unit_test(collectives_large_thread_each),
        cmocka_unit_test(collectives_minimal),
        cmocka_unit_test(collectives_minimal_large),
        cmocka_unit_test(collectives_window_4),
        cmocka_unit_test(collectives_huge),
        cmocka_unit_test(collectives_order_block),
        cmocka_unit_test(collectives_forced_algorithms),
        cmocka_unit_test(collectives_forced_algorithms_minimal),
        cmocka_unit_test(collectives_refused_pairs),
    };
    return cmocka_run_group_tests_name("conform_collectives", tests, NULL, NULL);
}
