/* The verifier proves every algorithm for every team size, and must itself catch programs that are wrong in one step. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "program/verify.h"
#include "selection.h"
#include "algo/algorithms.h"
#include "select/select.h"
#include "program/test_env.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS_MOST = 67 };

static bool has_root(uint32_t collective)
{
    return collective == COLLECTIVE_BROADCAST || collective == COLLECTIVE_REDUCE || collective == COLLECTIVE_GATHER ||
           collective == COLLECTIVE_BROADCAST_BYTES || collective == COLLECTIVE_GATHER_V || collective == COLLECTIVE_SCATTER ||
           collective == COLLECTIVE_SCATTER_V;
}

static void prove(const struct algo_row *row, int32_t size, int32_t root, size_t elements)
{
    char text[512] = "";
    enum comm_result result = program_check(&test_env, row->build, row->collective, size, root, elements, text, sizeof text);
    if (result != COMM_OK)
        fail_msg("%s/%s: %d %s", collective_name(row->collective), row->name, (int)result, text);
}

/* Usually a team of more than 20 (of few: 8) is proved with one number of elements and one root, and with others by the next row, and for
 * the next size. */
static bool leave_out_case(const struct algo_row *row, int32_t size, size_t e, int r)
{
    int32_t turn = (int32_t)(row - algo_table) + size;
    bool no_elements = row->collective == COLLECTIVE_BARRIER, no_root = !has_root(row->collective);
    return !selection_all() && size > (selection_few() ? 8 : 20) &&
           ((!no_elements && (int32_t)e != turn % 3) || (!no_root && r != turn / 3 % 3));
}

static void prove_row(const struct algo_row *row, int32_t size)
{
    const size_t elements[] = {0, 1, 3 * (size_t)size + 1};
    const int32_t roots[] = {0, size / 2, size - 1};
    for (size_t e = 0; e < (row->collective == COLLECTIVE_BARRIER ? 1 : 3); e++) {
        for (int r = 0; r < (has_root(row->collective) ? 3 : 1); r++) {
            if (!leave_out_case(row, size, e, r) && (r == 0 || roots[r] != roots[r - 1]))
                prove(row, size, roots[r], elements[e]);
        }
    }
}

/* Usually all teams of up to 20, those near the limits of groups and of their powers, and a third of the others, which changes with the
 * row. Of few: up to 8, and two larger ones. */
static bool leave_out(int32_t size, uint32_t row)
{
    if (selection_few())
        return size > 8 && size != 16 && size != 17;
    return !selection_all() && size > 20 && size % 32 > 1 && ((uint32_t)size + row) % 3 != 0;
}

static void every_row_is_right_for_every_team(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_row *row = &algo_table[i];
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        /* Rows over hosts are tested with teams of every size on several hosts, below; on one host they are used only
         * by name. */
        int32_t most = row->flags & ALGO_OVER_HOSTS ? 17 : RANKS_MOST;
        for (int32_t size = row->ranks_min; size <= most && size <= row->ranks_max; size++)
            if (!leave_out(size, i))
                prove_row(row, size);
        clock_gettime(CLOCK_MONOTONIC, &to);
        print_message("%s/%s: %.2f s\n", collective_name(row->collective), row->name,
                      (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9);
        assert_int_equal(test_env_taken, 0);
    }
}

/* Rows over hosts, with placements of all kinds. Cases that a row cannot serve are left out, because selection never
 * chooses it for them. */
enum placement { BLOCKS, UNEVEN, IN_TURNS, ANYHOW, PLACEMENTS };

static int32_t host_at(enum placement how, int32_t rank, int32_t hosts, int32_t size)
{
    uint32_t mixed = (uint32_t)rank * 2654435761u + (uint32_t)size;
    switch (how) {
    case BLOCKS:
        return rank / ((size + hosts - 1) / hosts);
    case UNEVEN: /* one rank alone, then more and more */
        for (int32_t h = 0, until = 1; h < hosts - 1; h++, until += h + 1)
            if (rank < until)
                return h;
        return hosts - 1;
    case IN_TURNS:
        return rank % hosts;
    default:
        return (int32_t)((mixed >> 16) % (uint32_t)hosts);
    }
}

/* Numbers hosts in the order of their lowest ranks. */
static struct program_hosts place_ranks(enum placement how, int32_t count, int32_t size, int32_t *of)
{
    struct program_hosts hosts = {.of = of};
    int32_t name[RANKS_MOST], ranks[RANKS_MOST] = {0};

    for (int32_t r = 0; r < size; r++) {
        int32_t at = host_at(how, r, count, size), h = 0;
        while (h < hosts.count && name[h] != at)
            h++;
        if (h == hosts.count)
            name[hosts.count++] = at;
        of[r] = h;
        ranks[h]++;
        hosts.longest = ranks[h] > hosts.longest ? ranks[h] : hosts.longest;
    }
    algo_hosts_survey(&hosts, size, 0);
    return hosts;
}

static bool prove_hosts(const struct algo_row *row, enum placement how, int32_t count, int32_t size)
{
    int32_t of[RANKS_MOST];
    struct program_hosts hosts = place_ranks(how, count, size, of);
    struct algo_query query = {.collective = row->collective, .size = size, .hosts = &hosts, .once_max = 1 << 20};
    char text[512] = "";

    if (hosts.count < 2 || !algo_serves(row, &query))
        return false;
    for (int32_t root = size / 2; root < size; root += has_root(row->collective) && size < 10 ? 1 : size) {
        enum comm_result result =
            program_check_hosts(&test_env, row->build, row->collective, size, root, 3 * (size_t)size + 1, &hosts, text, sizeof text);
        if (result != COMM_OK)
            fail_msg("%s/%s, %d hosts, placement %d: %s", collective_name(row->collective), row->name, count, (int)how, text);
    }
    return true;
}

static void hosts_of_every_sort_are_right(void **state)
{
    static const int32_t counts[] = {2, 3, 7, 40};
    int32_t proved[PLACEMENTS] = {0};
    (void)state;
    for (uint32_t i = 0; i < algo_count; i++)
        for (int32_t size = 2; (algo_table[i].flags & ALGO_OVER_HOSTS) && size <= RANKS_MOST; size += size < 18 ? 1 : 7)
            for (size_t c = 0; !leave_out(size, i) && c < sizeof counts / sizeof *counts && counts[c] <= size; c++)
                for (enum placement how = BLOCKS; how < PLACEMENTS && (size < 18 || size % 4 == (int32_t)c); how++)
                    proved[how] += prove_hosts(&algo_table[i], how, counts[c], size);
    for (uint32_t i = 0; i < algo_count; i++) /* more things arrive than there are counters */
        if (algo_table[i].flags & ALGO_OVER_HOSTS)
            assert_true(prove_hosts(&algo_table[i], BLOCKS, 20, 20));
    for (enum placement how = BLOCKS; how < PLACEMENTS; how++) {
        print_message("placement %d: %d proofs\n", (int)how, proved[how]);
        assert_true(proved[how] > 100);
    }
    assert_int_equal(test_env_taken, 0);
}

static void groups_of_groups_are_right(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        if (algo_table[i].ranks_max == 256 && algo_table[i].collective != COLLECTIVE_REDUCE_SCATTER) {
            prove(&algo_table[i], 129, 128, 40);
            prove(&algo_table[i], 256, 7, 5);
        }
    }
}

/* Slices of up to three chunks, for which the verifier's wire has enough views, and of an alltoall_v all kinds of lengths that two ranks
 * may have (verify.c). */
static void swaps_of_all_lengths_are_right(void **state)
{
    int proved = 0;

    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        for (size_t n = 2; algo_table[i].ranks_max == 2 && n <= 48; n++, proved++)
            prove(&algo_table[i], 2, 0, n);
    }
    assert_true(proved > 100);
    assert_int_equal(test_env_taken, 0);
}

/* ------------------------------------------------------------------------------------------------------------ planted faults */
enum fault {
    FAULT_NONE,
    FAULT_SWAP,
    FAULT_NO_RELEASE,
    FAULT_NO_VIEW,
    FAULT_PEER,
    FAULT_NO_EXPOSE,
    FAULT_NO_WAIT,
    FAULT_KIND,
    FAULT_ITEM,
    FAULT_EDGE
};
static struct {
    program_build_fn *build;
    enum fault fault;
    int32_t rank;
} planted;

/* The first step with this code. A step that is turned into a LOOP does nothing. */
static struct comm_step *first_step(struct comm_program *program, uint8_t code)
{
    struct comm_step *step = (struct comm_step *)(uintptr_t)program->step;
    for (uint16_t i = 0; i < program->steps; i++) {
        if (step[i].code == code)
            return &step[i];
    }
    fail_msg("%s has no step to spoil", program->algorithm);
    return NULL;
}

static void spoil(struct comm_program *program)
{
    uint16_t *peer = (uint16_t *)(uintptr_t)program->peer;
    struct comm_step *view = planted.fault == FAULT_NO_EXPOSE ? NULL : first_step(program, STEP_VIEW);
    uint16_t first;
    switch (planted.fault) {
    case FAULT_SWAP: /* swaps the operands */
        first = peer[view->peer];
        peer[view->peer] = peer[view->peer + 1];
        peer[view->peer + 1] = first;
        break;
    case FAULT_NO_RELEASE:
        first_step(program, STEP_RELEASE)->code = STEP_LOOP;
        break;
    case FAULT_NO_VIEW:
        view->code = STEP_LOOP;
        break;
    case FAULT_PEER:
        peer[first_step(program, STEP_EXPOSE)->peer] = 3;
        break;
    case FAULT_NO_EXPOSE:
        first_step(program, STEP_EXPOSE)->code = STEP_LOOP;
        break;
    case FAULT_NO_WAIT:
        first_step(program, STEP_REDUCE)->wait = 0;
        break;
    case FAULT_KIND:
        view->src.unit ^= UNIT_PARTIAL;
        break;
    case FAULT_ITEM:
        first_step(program, STEP_REDUCE)->dst.first += 1;
        break;
    case FAULT_EDGE: /* puts a level on another level's edge */
        for (struct comm_step *step = first_step(program, STEP_EXPOSE); step->code != STEP_END; step++)
            step->edge = 0;
        break;
    case FAULT_NONE:
        break;
    }
}

static struct comm_program *build_planted(const struct comm_env *env, const struct program_spec *spec)
{
    struct comm_program *program = planted.build(env, spec);
    if (program && spec->rank == planted.rank)
        spoil(program);
    return program;
}

static const struct algo_row *row_of(uint32_t collective, const char *name)
{
    for (uint32_t i = 0; i < algo_count; i++) {
        if (algo_table[i].collective == collective && !strcmp(algo_table[i].name, name))
            return &algo_table[i];
    }
    fail_msg("no %s", name);
    return NULL;
}

static void plant(uint32_t collective, const char *name, int32_t size, enum fault fault, enum comm_result wanted)
{
    char text[512] = "";
    planted.build = row_of(collective, name)->build;
    planted.fault = fault;
    planted.rank = 1;
    enum comm_result result = program_check(&test_env, build_planted, collective, size, 0, 10 * (size_t)size, text, sizeof text);
    print_message("fault %d in %s: %s\n", (int)fault, name, text);
    assert_int_equal(result, wanted);
    assert_int_equal(strlen(text) > 0, wanted != COMM_OK);
    assert_int_equal(test_env_taken, 0);
}

static void planted_faults_are_caught(void **state)
{
    (void)state;
    plant(COLLECTIVE_ALLREDUCE, "slices", 4, FAULT_NONE, COMM_OK);
    plant(COLLECTIVE_ALLREDUCE, "read_all", 4, FAULT_SWAP, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "slices", 4, FAULT_SWAP, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "slices", 4, FAULT_NO_RELEASE, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "slices", 18, FAULT_NO_RELEASE, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "slices", 4, FAULT_NO_VIEW, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "slices", 4, FAULT_PEER, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "slices", 4, FAULT_NO_EXPOSE, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "slices", 4, FAULT_ITEM, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "doubling", 5, FAULT_NO_VIEW, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "doubling", 5, FAULT_PEER, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "doubling", 5, FAULT_EDGE, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "doubling", 5, FAULT_KIND, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLREDUCE, "read_all", 3, FAULT_NO_WAIT, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_REDUCE, "slices", 4, FAULT_NO_WAIT, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_REDUCE, "read_all", 4, FAULT_NO_EXPOSE, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_ALLGATHER, "pipeline", 4, FAULT_NO_VIEW, COMM_ERR_CORRUPT);
    plant(COLLECTIVE_BARRIER, "doubling", 5, FAULT_NO_VIEW, COMM_ERR_CORRUPT);
}

static void no_memory_is_told(void **state)
{
    (void)state;
    const struct algo_row *row = row_of(COLLECTIVE_ALLREDUCE, "slices");
    char text[256];
    for (long takes = 0; takes < 40; takes++) {
        test_env_left = takes;
        enum comm_result result = program_check(&test_env, row->build, row->collective, 3, 0, 10, text, sizeof text);
        test_env_left = -1;
        assert_int_not_equal(result, COMM_OK);
        assert_int_equal(test_env_taken, 0);
    }
}

int main(void)
{
    /* The verifier allocates and frees megabytes for each proof. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_right_for_every_team), cmocka_unit_test(groups_of_groups_are_right),
        cmocka_unit_test(swaps_of_all_lengths_are_right),    cmocka_unit_test(hosts_of_every_sort_are_right),
        cmocka_unit_test(planted_faults_are_caught),         cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
