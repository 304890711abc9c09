/*
 * The random programs of the simulator on real threads: ranks of comm_open_local, one thread each, with the machine's
 * clock and scheduler, so that a race detector sees what the simulator cannot. A failure prints the seed;
 * COMM_TEST_SEED runs that seed alone.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "sim/oracle_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static struct comm_communicator *worlds[RANDOM_RANKS];

static enum comm_result real_open(struct random_run *run, int32_t rank, struct comm_communicator **world)
{
    (void)run;
    *world = worlds[rank];
    return COMM_OK;
}

static void real_fail(const char *text)
{
    rig_die("random program", 0, "%s", text);
}

static bool nobody(int32_t rank)
{
    (void)rank;
    return false;
}

static void doing(const char *operation, uint64_t number)
{
    (void)operation;
    (void)number;
}

static const struct random_stage stage = {real_open, rig_now, rig_nap, NULL, real_fail, nobody, nobody, doing};

static void rank_main(void *arg, int32_t rank)
{
    random_rank(arg, rank);
}

static void run_program(uint64_t seed, enum random_sort sort)
{
    static struct random_program program;
    static struct random_run run;
    static struct oracle_verdict verdict;
    struct rig rig;
    char options[96];
    random_make(&program, seed, sort);
    program.timeout_ms = 20000;
    rig_note("seed %llu, %d ranks", (unsigned long long)seed, program.ranks);
    CHECK(random_run_make(&run, &program, &stage));
    snprintf(options, sizeof options, "log=off,window=%d,queue=%d,minimal=%d", program.minimal ? 4 : program.window, program.queue,
             program.minimal);
    rig_open(&rig, program.ranks,
             COMM_CONFIG(.progress = (enum comm_progress_mode)program.progress, .notify = (enum comm_notify_mode)program.notify,
                         .operation_timeout_ns = 20 * RIG_S, .options = options));
    memcpy(worlds, rig.world, sizeof worlds);
    rig_threads(program.ranks, rank_main, &run);
    random_run_end(&run);
    verdict.failed = false;
    oracle_check(&run, &verdict);
    invariant_check(&run, &verdict);
    if (verdict.failed) {
        random_print(stderr, &program);
        real_fail(verdict.text);
    }
    random_run_free(&run);
}

static void run_many(uint64_t count, enum random_sort sort)
{
    const char *one = getenv("COMM_TEST_SEED");
    if (one) {
        run_program(strtoull(one, NULL, 10), sort);
        return;
    }
    uint64_t most = (count + 9) / selected(1, 3, 10);
    for (uint64_t seed = 1; seed <= most; seed++)
        run_program(seed, sort);
}

RIG_TEST(programs_on_threads)
{
    run_many(300, RANDOM_SORT_CORRECT);
}
RIG_TEST(programs_used_wrongly_on_threads)
{
    run_many(5, RANDOM_SORT_WRONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_on_threads),
        cmocka_unit_test(programs_used_wrongly_on_threads),
    };
    return cmocka_run_group_tests_name("sim_programs_on_threads", tests, NULL, NULL);
}
