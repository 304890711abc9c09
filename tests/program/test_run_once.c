/* The interpreter over a wire that answers at once: what a step costs, and how a run ends where the wire has no memory. */
#define _GNU_SOURCE
#include "program/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "program/build.h"
#include "program/row.h"
#include "program/test_env.h"

#include <time.h>

static enum wire_result done_expose(struct wire_channel *channel, const struct wire_expose *expose)
{
    (void)channel;
    return expose->npeers ? WIRE_DONE : WIRE_AGAIN;
}

static enum wire_result done_view(struct wire_channel *channel, const struct wire_look *look)
{
    static const double one[16] = {1};
    (void)channel;
    *look->view = (struct wire_view){.at = one, .bytes = look->bytes};
    return WIRE_DONE;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

enum { LOOPS = 20000, PAIRS = 8 };

static struct comm_program *build_steps(const struct program_spec *spec)
{
    struct build *b = build_begin(&test_env, "steps", spec);
    uint16_t self = build_peer(b, spec->rank);
    build_lane(b);
    build_loop(b, LOOPS);
    for (int j = 0; j < PAIRS; j++) {
        BUILD_STEP(b, .code = STEP_VIEW, .peer = self, .npeers = 1, .dst = ref_views(0, 1), .src = ref_block(BUF_IN, 0));
        BUILD_STEP(b, .code = STEP_RELEASE, .src = ref_views(0, 1), .bump = 1);
    }
    build_loop_end(b);
    build_lane_end(b);
    return build_end(b);
}

static enum wire_result expose_without_memory(struct wire_channel *channel, const struct wire_expose *expose)
{
    (void)channel;
    (void)expose;
    return WIRE_FAILED;
}

/* Trying again would not help, so the operation ends instead of waiting for its deadline. */
void no_memory_for_places_ends_the_run(void **state)
{
    static const struct wire_class class = {.name = "poor", .expose = expose_without_memory, .view = done_view};
    struct wire_channel channel = {.class = &class, .caps = {.once_max = 64}};
    double in = 2, out = 0;
    struct wire_view view[4];
    struct run run = {
        .channel = &channel, .call = {.in = &in, .out = &out, .n = 1, .type = COMM_F64, .op = COMM_SUM}, .view = view, .size = 2, .seq = 1};
    struct program_spec spec = {.collective = COLLECTIVE_ALLREDUCE, .rank = 0, .size = 2};
    struct comm_program *small = row_named(COLLECTIVE_ALLREDUCE, "read_all")->build(&test_env, &spec);
    (void)state;
    run.isa = data_isa_best();
    run_start(&run, small);
    assert_int_equal(run_step(&run), RUN_FAILED);
    assert_true(out == 0);
    program_free(&test_env, small);
}

void a_step_costs_little(void **state)
{
    static const struct wire_class class = {.name = "done", .expose = done_expose, .view = done_view};
    struct wire_channel channel = {.class = &class, .caps = {.once_max = 64}};
    double in = 2, out = 0, from, step_ns = 1e9, small_ns = 1e9, start_ns = 1e9;
    struct wire_view view[4];
    struct run run = {
        .channel = &channel, .call = {.in = &in, .out = &out, .n = 1, .type = COMM_F64, .op = COMM_SUM}, .view = view, .size = 2, .seq = 1};
    struct program_spec spec = {.collective = COLLECTIVE_ALLREDUCE, .rank = 0, .size = 2};
    (void)state;
    run.isa = data_isa_best();
    struct comm_program *steps = build_steps(&spec), *small = row_named(COLLECTIVE_ALLREDUCE, "read_all")->build(&test_env, &spec);
    assert_non_null(steps);
    assert_int_equal(small->steps, 4);
    for (int again = 0; again < 9; again++) {
        run_start(&run, steps);
        from = now_ns();
        assert_int_equal(run_step(&run), RUN_ENDED);
        step_ns = least(step_ns, (now_ns() - from) / (LOOPS * (2.0 * PAIRS + 1)));
        assert_int_equal(run.counter[1], LOOPS * PAIRS);
        from = now_ns();
        for (int j = 0; j < LOOPS; j++) {
            run_start(&run, small);
            assert_true(run_step(&run) == RUN_ENDED);
        }
        small_ns = least(small_ns, (now_ns() - from) / LOOPS);
        assert_true(out == 3);
        from = now_ns();
        for (int j = 0; j < LOOPS; j++)
            run_start(&run, small);
        start_ns = least(start_ns, (now_ns() - from) / LOOPS);
    }
    print_message("a synchronous step %.1f ns; an allreduce of 8 bytes, 2 ranks, the wire for nothing %.1f ns, of that its start %.1f ns\n",
                  step_ns, small_ns, start_ns);
    program_free(&test_env, steps);
    program_free(&test_env, small);
}
