/* The cost model: correct where it can be computed by hand, plausible for every algorithm and team, small, and the same
 * however often it runs. Also the parser's messages for wrong machine files. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "select/select.h"
#include "program/build.h"
#include "selection.h"
#include "model/cost.h"
#include "program/test_env.h"

#include <stdio.h>

static const struct wire_caps caps = {.inline_max = 48, .window = 64, .once_max = 65536, .chunk_all = 65536, .chunk_private = 65536};

static const struct algo_row *row_of(uint32_t collective, const char *name)
{
    for (uint32_t i = 0; i < algo_count; i++)
        if (algo_table[i].collective == collective && !strcmp(algo_table[i].name, name))
            return &algo_table[i];
    fail_msg("no %s", name);
    return NULL;
}

static struct cost_case case_of(const struct algo_row *row, int32_t size, size_t bytes)
{
    return (struct cost_case){.machine = &cost_machine_default,
                              .caps = &caps,
                              .build = row->build,
                              .collective = row->collective,
                              .size = size,
                              .n = row->collective == COLLECTIVE_BARRIER ? 0 : bytes / 4,
                              .raw = 4,
                              .partial = 4,
                              .calls = 1};
}

static struct cost_result run(const struct cost_case *what)
{
    struct cost_result result = {0};
    enum comm_result made = cost_run(&test_env, what, &result);
    if (made != COMM_OK)
        fail_msg("%s, %d ranks, %zu elements, %d a host, %u calls: %d", collective_name(what->collective), what->size, what->n,
                 what->host_ranks, what->calls, (int)made);
    assert_int_equal(test_env_taken, 0);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ by hand */
static const struct cost_machine plain = {.cpus = 64,
                                          .call = 100000,
                                          .step = 1000,
                                          .reduce_call = 5000,
                                          .shm_expose = 2000,
                                          .shm_view = 3000,
                                          .shm_latency = 10000,
                                          .shm_place = 7000,
                                          .net_latency = 1000000,
                                          .net_overhead = 20000,
                                          .net_gap = 4000,
                                          .net_byte = 1000,
                                          .copy = {1000, 1000, 1000, 1000},
                                          .land = {2000, 2000, 2000, 2000},
                                          .reduce = {3000, 3000, 3000, 3000},
                                          .fold = 500};

static void two_ranks_by_hand(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_ALLREDUCE, "doubling"), 2, 8);
    (void)state;
    what.machine = &plain;
    /* call 100, expose 2, seen at 112; step 1, step 1; view 3, reduce 5 and 8 bytes at 3.5, step 1, end 1 */
    assert_int_equal(run(&what).ps, 112000 + 3000 + 5000 + 28 + 2000);
    /* 800 bytes: the place costs 7, the copy 0.8; the reduction 2.8 */
    what.n = 200;
    assert_int_equal(run(&what).ps, 112000 + 7000 + 800 + 3000 + 5000 + 2800 + 2000);
    /* each rank on a host of its own: 20 to send, then 1000 and 1 ns per byte; 20 to receive */
    what.host_ranks = 1;
    assert_int_equal(run(&what).ps, 102000 + 7000 + 800 + 20000 + 1000000 + 800 + 20000 + 5000 + 2800 + 2000);
}

static void a_pipeline_by_hand(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_BROADCAST, "pipeline"), 2, 2 * 49152);
    struct cost_machine m = plain;
    (void)state;
    m.step = m.shm_expose = m.shm_place = m.shm_view = m.call = 0;
    what.machine = &m;
    /* Two chunks of 48 KiB: the reader copies each in twice the time that the root needs, so the reader determines the
     * time. */
    assert_int_equal(run(&what).ps, 49152 + 10000 + 2 * 2 * 49152);
    /* Eight of 64 KiB: the root fills four places, then waits until the first is released, and so on. */
    what.n = 8 * 65536 / 4;
    assert_int_equal(run(&what).ps, 65536 + 10000 + 8 * 2 * 65536);
}

static void ranks_take_turns_by_hand(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_BROADCAST, "direct"), 3, 8);
    struct cost_machine m = plain;
    (void)state;
    m.cpus = 1;
    m.turn = 50000;
    m.step = m.land[0] = 0;
    what.machine = &m;
    m.crowd = 9000;
    /* The first waits while one of the two others polls; then three turns of one call each. The root exposes in the
     * first, and the two others find it when their turns come. */
    assert_int_equal(run(&what).ps, 50000 + 3 * 159000 + 2000 + 2 * 3000);
}

static void cards_are_shared_by_hand(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_REDUCE, "read_all"), 5, 4000);
    struct cost_machine m = plain;
    (void)state;
    m.call = m.step = m.shm_expose = m.shm_place = m.net_overhead = m.net_gap = m.reduce_call = m.fold = 0;
    m.copy[0] = m.reduce[0] = 0;
    what.machine = &m;
    what.host_ranks = 1;
    /* Four senders, one card at the root: one latency, then one message after the other. */
    assert_int_equal(run(&what).ps, 1000000 + 4 * 4000);
}

/* A card that receives bytes in no time delays nothing: a message that arrived a latency ago and is requested now does
 * not wait behind a later one. */
static void slices_take_two_latencies_by_hand(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_ALLREDUCE, "slices"), 2, 3 * 65536);
    struct cost_machine m = {.cpus = 1, .net_latency = 1000000};
    (void)state;
    what.machine = &m;
    what.host_ranks = 1;
    assert_int_equal(run(&what).ps, 2 * 1000000);
}

/* ------------------------------------------------------------------------------------------------------------ all algorithms */
/* Usually long blocks of small teams and short ones of large teams; of few, neither long blocks nor large teams. */
static bool leave_out(int32_t size, size_t bytes)
{
    bool large = size > 17, full = bytes > 100000;
    return !selection_all() && (selection_few() ? large || full : large && full);
}

static bool fits(const struct algo_row *row, int32_t size, size_t bytes)
{
    return size >= row->ranks_min && size <= row->ranks_max && (!row->once_bytes || bytes <= caps.once_max) && !leave_out(size, bytes);
}

static void every_algorithm_has_a_price(void **state)
{
    static const size_t lengths[] = {0, 8, 4000, 60000, 1 << 20};
    static const int32_t sizes[] = {1, 2, 3, 4, 7, 8, 16, 17, 33, 64, 67};
    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (size_t b = 0; b < sizeof lengths / sizeof *lengths; b++) {
                if (!fits(&algo_table[i], sizes[s], lengths[b]))
                    continue;
                struct cost_case what = case_of(&algo_table[i], sizes[s], lengths[b]);
                struct cost_machine wide = cost_machine_default;
                wide.cpus = 128;
                what.machine = &wide;
                struct cost_result one = run(&what), again = run(&what);
                assert_true(one.ps > 0 && one.ps == again.ps && one.events == again.events && one.steps == again.steps);
                what.calls = 8;
                struct cost_result eight = run(&what);
                assert_true(eight.ps >= one.ps && eight.each <= eight.ps);
                what.host_ranks = 8;
                assert_true(run(&what).ps >= one.ps);
            }
        }
    }
}

/* With more bytes, a slower machine, or more ranks than CPUs the time must not be shorter. */
static void prices_only_rise(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        for (int32_t size = 2; size <= 8; size += 3) {
            uint64_t last = 0, last_quick = 0, quick;
            struct cost_machine wide = cost_machine_default;
            wide.cpus = 8; /* slower ranks that share CPUs may happen to run in a better order */
            for (size_t bytes = 8; bytes <= 4 << 20 && fits(&algo_table[i], size, bytes); bytes *= 4) {
                struct cost_case what = case_of(&algo_table[i], size, bytes);
                what.calls = 32; /* a single call may happen to get a good order of turns */
                uint64_t ps = run(&what).ps;
                what.calls = 1;
                assert_int_equal(cost_estimate_all(&test_env, &what, &quick), COMM_OK);
                if (ps + ps / 3 < last || quick < last_quick) /* the order of turns may be a lucky one */
                    fail_msg("%s/%s, %d ranks: %zu bytes take %llu and %llu ps, a quarter of them %llu and %llu",
                             collective_name(algo_table[i].collective), algo_table[i].name, size, bytes, (unsigned long long)ps,
                             (unsigned long long)quick, (unsigned long long)last, (unsigned long long)last_quick);
                last = ps;
                last_quick = quick;
                what.machine = &wide;
                ps = run(&what).ps;
                for (uint32_t f = 1; f < cost_figure_count; f++) {
                    struct cost_machine slower = wide;
                    uint64_t *figure = (uint64_t *)(void *)((char *)&slower + cost_figures[f].offset);
                    *figure += *figure / 2;
                    what.machine = &slower;
                    uint64_t other = run(&what).ps;
                    if (other + ps / 8 < ps) /* a change in the order of events may improve the time a little */
                        fail_msg("%s/%s, %d ranks, %zu bytes: %llu ps with more of %s, %llu without",
                                 collective_name(algo_table[i].collective), algo_table[i].name, size, bytes, (unsigned long long)other,
                                 cost_figures[f].key, (unsigned long long)ps);
                }
            }
        }
    }
}

/* Calls in a row of the other collectives overlap: a rank that only sends continues at once. So the quick form, which
 * prices one call, predicts more than a call in a row takes. */
static bool ends_together(uint32_t collective)
{
    return collective == COLLECTIVE_BARRIER || collective == COLLECTIVE_ALLREDUCE || collective == COLLECTIVE_ALLGATHER ||
           collective == COLLECTIVE_ALLGATHER_V || collective == COLLECTIVE_REDUCE_SCATTER;
}

/* Rows over hosts are priced where selection considers them: on two hosts, with ranks in blocks. */
enum { TEAM_MOST = 24 };
static void place_on_two(struct cost_case *what, const struct algo_row *row, struct program_hosts *hosts, int32_t of[TEAM_MOST])
{
    if (!(row->flags & ALGO_OVER_HOSTS))
        return;
    for (int32_t r = 0; r < what->size; r++)
        of[r] = r / (what->size / 2);
    *hosts = (struct program_hosts){of, 2, what->size / 2, true, true};
    what->hosts = hosts;
    what->host_ranks = hosts->longest;
}

static void the_quick_form_is_near_the_exact_one(void **state)
{
    static const size_t lengths[] = {8, 512, 4096, 65536, 1 << 20, 8 << 20};
    static const int32_t sizes[] = {2, 4, 8, 24};
    double sum = 0, cells = 0, most = 1;
    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (size_t b = 0; b < sizeof lengths / sizeof *lengths; b++) {
                struct cost_machine wide = cost_machine_default;
                struct cost_case what = case_of(&algo_table[i], sizes[s], lengths[b]);
                struct program_hosts hosts;
                int32_t of[TEAM_MOST];
                uint64_t quick;
                if (!fits(&algo_table[i], sizes[s], lengths[b]))
                    continue;
                place_on_two(&what, &algo_table[i], &hosts, of);
                wide.cpus = 64;
                what.machine = &wide;
                what.calls = algo_table[i].once_bytes ? 26 : 8;
                double exact = (double)run(&what).each;
                assert_int_equal(cost_estimate_all(&test_env, &what, &quick), COMM_OK);
                double ratio = (double)quick > exact ? (double)quick / exact : exact / (double)quick;
                if (ratio > 2.2)
                    print_message("%s/%s %d ranks %zu bytes: exact %.0f ns, quick %.0f\n", collective_name(algo_table[i].collective),
                                  algo_table[i].name, sizes[s], lengths[b], exact / 1000, (double)quick / 1000);
                if (ends_together(algo_table[i].collective))
                    most = ratio > most ? ratio : most;
                sum += ratio;
                cells++;
            }
        }
    }
    print_message("quick against exact: %.0f cells, mean ratio %.3f, most %.2f\n", cells, sum / cells, most);
    assert_true(sum / cells < 1.3);
    assert_true(most < 3);
}

/* ------------------------------------------------------------------------------------------------------------ large teams */
static void a_large_team_is_small(void **state)
{
    const struct algo_row *row = row_of(COLLECTIVE_ALLREDUCE, "doubling");
    struct cost_case what = case_of(row, 131072, 8);
    struct program_spec spec = {.collective = COLLECTIVE_ALLREDUCE, .rank = 131071, .size = 131072};
    (void)state;
    struct comm_program *p = row->build(&test_env, &spec);
    assert_non_null(p);
    assert_null(p->peer);
    assert_non_null(p->peer_wide);
    assert_int_equal(program_peer(p, p->peers - 2u), 65535); /* the two ranks of the last level, in rank order */
    assert_int_equal(program_peer(p, p->peers - 1u), 131071);
    program_free(&test_env, p);
    struct cost_result result = run(&what);
    print_message("131072 ranks: %llu bytes of program and %llu of table a rank\n", (unsigned long long)result.program_bytes / 131072,
                  (unsigned long long)result.table_bytes / 131072);
    assert_true(result.program_bytes + result.table_bytes <= UINT64_C(4096) * 131072);
    assert_true(result.events >= UINT64_C(2) * 17 * 131072);
}

static void too_many_places_are_refused(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_REDUCE_SCATTER, "direct"), 256, 65536);
    struct cost_result result;
    (void)state;
    assert_int_equal(cost_run(&test_env, &what, &result), COMM_OK);
    what.size = 256;
    what.build = row_of(COLLECTIVE_ALLGATHER, "pipeline")->build;
    what.collective = COLLECTIVE_ALLGATHER;
    assert_int_equal(cost_run(&test_env, &what, &result), COMM_OK);
    assert_int_equal(test_env_taken, 0);
}

static struct comm_program *nobody_shows(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "nobody_shows", spec);
    if (!b)
        return NULL;
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    uint16_t peer = build_peer(b, (spec->rank + 1) % spec->size);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_LAND, .peer = peer, .npeers = 1, .dst = ref_block(BUF_OUT, 0),
               .src = ref_block(BUF_OUT, 0));
    build_lane_end(b);
    return build_end(b);
}

static void what_never_ends_is_told(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_ALLREDUCE, "doubling"), 3, 8);
    struct cost_result result;
    (void)state;
    what.build = nobody_shows;
    assert_int_equal(cost_run(&test_env, &what, &result), COMM_ERR_CORRUPT);
    assert_int_equal(test_env_taken, 0);
}

static void no_memory_is_told(void **state)
{
    struct cost_case what = case_of(row_of(COLLECTIVE_ALLREDUCE, "slices"), 5, 1 << 20);
    struct cost_result result;
    uint64_t ps;
    enum comm_result last = COMM_ERR_MEMORY;
    (void)state;
    for (long takes = 0; last != COMM_OK; takes++) {
        test_env_left = takes;
        last = cost_run(&test_env, &what, &result);
        test_env_left = -1;
        assert_true(last == COMM_OK || last == COMM_ERR_MEMORY);
        assert_int_equal(test_env_taken, 0);
        assert_true(takes < 200);
    }
    for (long takes = 0; takes < 4; takes++) {
        test_env_left = takes;
        assert_int_equal(cost_estimate_all(&test_env, &what, &ps), COMM_ERR_MEMORY);
        test_env_left = -1;
        assert_int_equal(test_env_taken, 0);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the machine file */
static char file[COST_MACHINE_BYTES_MAX], why[256];

static void a_file_comes_back_as_it_went(void **state)
{
    struct cost_machine machine = cost_machine_default, read = {0};
    size_t bytes = cost_machine_print(&machine, file, sizeof file);
    (void)state;
    assert_true(bytes < sizeof file);
    assert_true(cost_machine_parse(file, bytes, &read, why, sizeof why));
    assert_memory_equal(&read, &machine, sizeof machine);
    machine.call = 123456; /* 123.456 ns */
    machine.fold = 7;
    bytes = cost_machine_print(&machine, file, sizeof file);
    assert_non_null(strstr(file, "call 123.456 ns"));
    assert_non_null(strstr(file, "fold 0.007 ps/B"));
    assert_true(cost_machine_parse(file, bytes, &read, why, sizeof why));
    assert_memory_equal(&read, &machine, sizeof machine);
}

/* The error text if line `line` of a good file is replaced. */
static void spoiled(uint32_t line, const char *with, const char *expected)
{
    struct cost_machine machine = {.cpus = 77};
    char good[COST_MACHINE_BYTES_MAX];
    size_t at = 0;
    cost_machine_print(&cost_machine_default, good, sizeof good);
    const char *from = good;
    for (uint32_t n = 1; *from; n++) {
        size_t length = strcspn(from, "\n");
        at += (size_t)snprintf(file + at, sizeof file - at, "%.*s\n", n == line ? (int)strlen(with) : (int)length, n == line ? with : from);
        from += length + 1;
    }
    assert_false(cost_machine_parse(file, at, &machine, why, sizeof why));
    if (!strstr(why, expected))
        fail_msg("\"%s\" lacks \"%s\"", why, expected);
    assert_int_equal(machine.cpus, 77);
}

static void a_wrong_file_is_told_by_its_line(void **state)
{
    struct cost_machine machine;
    char expected[64];
    (void)state;
    spoiled(1, "figures 1", "line 1: figures: expected the first line to be commstream-machine 2");
    spoiled(1, "commstream-machine 1", "line 1: 1: expected version 2");
    spoiled(3, "cal 5 ns", "line 3: cal: expected a figure that this library knows");
    spoiled(3, "call five ns", "line 3: five: expected a number from 0");
    spoiled(3, "call 5.1234 ns", "line 3: 5.1234: expected a number from 0");
    spoiled(3, "call 5. ns", "line 3: 5.: expected a number");
    spoiled(3, "call -5 ns", "line 3: -5: expected a number");
    spoiled(3, "call 99999999999999999999 ns", "line 3: 99999999999999999999: expected a number from 0 to 1000000000");
    spoiled(3, "call 5 us", "line 3: call: expected a number, and then its unit: ns");
    spoiled(3, "call 5", "line 3: call: expected a number, and then its unit: ns");
    spoiled(3, "call 5 ns more", "line 3: call: expected a number, and then its unit: ns");
    spoiled(2, "cpus 0 cpus", "line 2: 0: expected a whole number from 1");
    spoiled(2, "cpus 1.5 cpus", "line 2: 1.5: expected a whole number from 1");
    spoiled(3, "a.name.that.is.longer.than.any.word.may.be 5 ns",
            "line 3: a.name.that.is.longer.than.any.: expected a figure that this library knows");
    spoiled(3, "express 5 ns", "line 4: express: expected each figure once");
    snprintf(expected, sizeof expected, "line %u: end of the file: expected also call", cost_figure_count + 1);
    spoiled(3, "# call 5 ns", expected);
    assert_false(cost_machine_parse("", 0, &machine, why, sizeof why));
    assert_non_null(strstr(why, "line 0: end of the file: expected also commstream-machine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_by_hand),
        cmocka_unit_test(a_pipeline_by_hand),
        cmocka_unit_test(ranks_take_turns_by_hand),
        cmocka_unit_test(cards_are_shared_by_hand),
        cmocka_unit_test(slices_take_two_latencies_by_hand),
        cmocka_unit_test(every_algorithm_has_a_price),
        cmocka_unit_test(prices_only_rise),
        cmocka_unit_test(the_quick_form_is_near_the_exact_one),
        cmocka_unit_test(a_large_team_is_small),
        cmocka_unit_test(too_many_places_are_refused),
        cmocka_unit_test(what_never_ends_is_told),
        cmocka_unit_test(no_memory_is_told),
        cmocka_unit_test(a_file_comes_back_as_it_went),
        cmocka_unit_test(a_wrong_file_is_told_by_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
