/* Valid programs, how they cut an operation, and the names of collectives. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "program/build.h"
#include "program/row.h"
#include "program/test_env.h"

static void forms_that_make_no_sense_are_refused(void **state)
{
    struct program_spec spec = {.collective = COLLECTIVE_ALLREDUCE, .rank = 0, .size = 2};
    struct build *b;
    (void)state;
    b = build_begin(&test_env, "no lane", &spec);
    assert_null(build_end(b));
    b = build_begin(&test_env, "open lane", &spec);
    build_lane(b);
    assert_null(build_end(b));
    b = build_begin(&test_env, "open loop", &spec);
    b->program.chunk_unit = UNIT_BLOCK;
    build_lane(b);
    build_loop_chunks(b);
    build_lane_end(b);
    assert_null(build_end(b));
    b = build_begin(&test_env, "rank 2 of 2", &spec);
    build_peer(b, 2);
    build_lane(b);
    build_lane_end(b);
    assert_null(build_end(b));
    b = build_begin(&test_env, "to itself", &spec);
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    BUILD_STEP(b, .code = STEP_EXPOSE, .peer = build_peer(b, 0), .npeers = 1, .src = ref_block(BUF_IN, 0));
    build_lane_end(b);
    assert_null(build_end(b));
    b = build_begin(&test_env, "two private lines", &spec);
    build_edge(b, 0, WIRE_ONCE);
    build_edge(b, 1, WIRE_ONCE);
    assert_null(build_end(b));
    b = build_begin(&test_env, "no such scratch", &spec);
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_scratch(0, ref_block(BUF_IN, 0)), .src = ref_block(BUF_IN, 0));
    build_lane_end(b);
    assert_null(build_end(b));
    b = build_begin(&test_env, "too many views", &spec);
    build_lane(b);
    BUILD_STEP(b, .code = STEP_VIEW, .peer = build_peer(b, 0), .npeers = 1, .dst = ref_views(PROGRAM_VIEWS_MAX, 1),
               .src = ref_block(BUF_IN, 0));
    build_lane_end(b);
    assert_null(build_end(b));
    assert_int_equal(test_env_taken, 0);
}

/* Elements of a slice and of a chunk, and the number of chunks, of an allreduce by slices. */
static void cut(int32_t size, size_t n, enum comm_type type, size_t cap, size_t slice, size_t chunk, uint32_t chunks)
{
    struct wire_channel channel = {.caps = {.once_max = 64, .chunk_all = cap, .chunk_private = 2 * cap}};
    struct run run = {.channel = &channel, .call = {NULL, NULL, n, type, COMM_SUM, NULL, NULL}, .size = size};
    struct program_spec spec = {.collective = COLLECTIVE_ALLREDUCE, .size = size};
    struct comm_program *program = row_named(COLLECTIVE_ALLREDUCE, "slices")->build(&test_env, &spec);
    assert_non_null(program);
    run_start(&run, program);
    assert_int_equal(run.slice, slice);
    assert_int_equal(run.chunk, chunk);
    assert_int_equal(run.chunks, chunks);
    assert_int_equal(run_scratch_bytes(program, &run.call, &channel, 2), program->scratch * chunk * data_partial_bytes(type));
    program_free(&test_env, program);
}

/* On this rank. */
static bool bypasses(const char *name, const struct program_spec *spec, size_t bytes, bool oversubscribed, bool keeps_long)
{
    struct wire_channel channel = {.caps = {.once_max = 64, .chunk_all = 65536, .chunk_private = 65536, .keeps_long = keeps_long}};
    struct run run = {.channel = &channel,
                      .call = {NULL, NULL, bytes, COMM_U8, COMM_SUM, NULL, NULL},
                      .size = spec->size,
                      .oversubscribed = oversubscribed};
    struct comm_program *program = row_named(spec->collective, name)->build(&test_env, spec);
    assert_non_null(program);
    run_start(&run, program);
    program_free(&test_env, program);
    return run.nontemporal;
}

/* With this many ranks, which share CPUs or not. */
static bool goes_past_the_cache(uint32_t collective, const char *name, int32_t size, size_t bytes, bool oversubscribed)
{
    return bypasses(name, &(struct program_spec){.collective = collective, .size = size}, bytes, oversubscribed, false);
}

static void long_results_go_past_the_cache(void **state)
{
    enum { MI = 1 << 20 };
    (void)state;
    assert_true(goes_past_the_cache(COLLECTIVE_SCAN, "pipeline", 2, MI, false));
    assert_false(goes_past_the_cache(COLLECTIVE_SCAN, "pipeline", 2, MI - 1, false));
    assert_true(goes_past_the_cache(COLLECTIVE_SCAN, "pipeline", 16, MI / 4, true)); /* 4 MiB of all ranks together */
    assert_false(goes_past_the_cache(COLLECTIVE_SCAN, "pipeline", 16, MI / 4 - 1, true));
    assert_true(goes_past_the_cache(COLLECTIVE_SCAN, "pipeline", 2, MI / 2, true));
    assert_false(goes_past_the_cache(COLLECTIVE_SCAN, "pipeline", 2, MI / 2 - 1, true));
    assert_true(goes_past_the_cache(COLLECTIVE_ALLGATHER, "pipeline", 16, MI / 16, true)); /* its result is all blocks */
    assert_false(goes_past_the_cache(COLLECTIVE_ALLGATHER, "pipeline", 16, MI / 16 - 1, true));
}

/* A large cache keeps longer results, and whatever a rank only copies from its peers. */
static void a_large_cache_keeps_long_results(void **state)
{
    enum { MI = 1 << 20 };
    static const struct program_spec sum = {.collective = COLLECTIVE_ALLREDUCE, .size = 2},
                                     all = {.collective = COLLECTIVE_ALLGATHER, .size = 2};
    static const struct program_spec leaf = {.collective = COLLECTIVE_BROADCAST, .rank = 1, .size = 2};
    static const struct program_spec last = {.collective = COLLECTIVE_SCAN, .rank = 1, .size = 2}; /* it reduces what it receives */
    (void)state;
    assert_true(bypasses("slices", &sum, 2 * MI, false, true));
    assert_false(bypasses("slices", &sum, 2 * MI - 64, false, true) || !bypasses("slices", &sum, 2 * MI - 64, false, false));
    assert_true(bypasses("pipeline", &all, MI, false, true)); /* with its own block */
    assert_false(bypasses("pipeline", &all, MI - 1, false, true) || !bypasses("pipeline", &all, MI - 1, false, false));
    assert_false(bypasses("pipeline", &leaf, 64 * MI, false, true) || !bypasses("pipeline", &leaf, MI, false, false));
    assert_true(bypasses("pipeline", &last, 2 * MI, false, true));
}

static void chunks_are_cut_by_rule(void **state)
{
    (void)state;
    cut(4, 1 << 20, COMM_F32, 65536, 262144, 16384, 16); /* limited by the wire's places */
    cut(3, 60000, COMM_F32, 65536, 20000, 5008, 4);      /* a quarter, in whole lines */
    cut(2, 40000, COMM_F32, 65536, 20480, 10240, 2);     /* with two ranks a half, in whole pages */
    cut(2, 80001, COMM_BF16, 65536, 40960, 20480, 2);
    cut(2, 32768, COMM_F32, 65536, 16384, 16384, 1); /* but not cut if it fits in a place */
    cut(2, 33000, COMM_F32, 65536, 17408, 9216, 2);
    cut(2, 30000, COMM_F32, 65536, 15008, 15008, 1); /* not in whole pages if it is short */
    cut(2, 100, COMM_F32, 65536, 64, 1024, 1);       /* not below the minimum */
    cut(2, 100, COMM_F32, 128, 64, 32, 2);           /* except on a wire with less */
    cut(2, 100, COMM_F64, 20, 56, 2, 28);            /* less than a line */
    cut(3, 0, COMM_BF16, 65536, 0, 2048, 1);         /* no elements are one empty chunk */
    cut(17, 1700, COMM_BF16, 65536, 128, 2048, 1);   /* with scratch for partial results */
}

static void names_go_both_ways(void **state)
{
    (void)state;
    for (uint32_t c = 1; c < COLLECTIVE_END; c++)
        assert_int_equal(collective_parse(collective_name(c)), c);
    assert_string_equal(collective_name(0), "?");
    assert_int_equal(collective_parse("allreduce2"), 0);
    assert_int_equal(collective_parse(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_that_make_no_sense_are_refused),
        cmocka_unit_test(chunks_are_cut_by_rule),
        cmocka_unit_test(long_results_go_past_the_cache),
        cmocka_unit_test(a_large_cache_keeps_long_results),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
