/* The same scenarios on every built wire, in threads and, if the wire has a boot, in processes. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/scenarios.h"

#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    scenario_fn *fn;
} scenarios[] = {
    {"once", scenario_once},       {"ahead", scenario_ahead},       {"each", scenario_each},
    {"streams", scenario_streams}, {"messages", scenario_messages}, {"notes", scenario_notes},
    {"board", scenario_board},     {"mismatch", scenario_mismatch}, {"reuse", scenario_reuse},
};

static void run_all(const struct wire_backend *b, int32_t ranks, const struct wire_limits *limits, int32_t variant, bool processes)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        int status[RANKS_MAX] = {0};
        print_message("  %s, %d %s, %s\n", b->name, ranks, processes ? "processes" : "threads", scenarios[i].name);
        if (processes)
            world_processes(b->name, ranks, limits, variant, scenarios[i].fn, status);
        else
            world_threads(b->name, ranks, limits, variant, scenarios[i].fn);
        for (int32_t r = 0; r < ranks; r++)
            assert_int_equal(status[r], 0);
    }
}

/* An earlier row has the same wire and boot. */
static bool is_known(uint32_t backend)
{
    for (uint32_t i = 0; i < backend; i++)
        if (wire_backends[i].wire == wire_backends[backend].wire && wire_backends[i].boot == wire_backends[backend].boot)
            return true;
    return false;
}

static void on_each(int32_t ranks, const struct wire_limits *limits, int32_t variant, bool processes)
{
    uint32_t tried = 0;
    for (uint32_t i = 0; i < wire_backend_count; i++) {
        const struct wire_backend *b = &wire_backends[i];
        assert_true(!b->wire == (b->missing != NULL));
        if (!b->wire || b->far_wire /* tests/mpi has it */ || (processes && !b->boot) || is_known(i))
            continue;
        run_all(b, ranks, limits, variant, processes);
        tried++;
    }
    assert_true(tried > 0);
}

static void threads_two(void **state)
{
    (void)state;
    on_each(2, NULL, 0, false);
}
/* Lines are not written to by their readers, so places are used in another order. */
static void threads_only_read(void **state)
{
    (void)state;
    on_each(2, &(struct wire_limits){.only_reads = 1}, 0, false);
}
static void threads_three(void **state)
{
    (void)state;
    on_each(3, NULL, 150, false);
}
/* One place, one credit, small chunks: the simulator's limits. */
static void threads_minimal(void **state)
{
    (void)state;
    on_each(3, &(struct wire_limits){.window = 4, .once_edges = 3, .minimal = 1, .chunk = 1024}, 100, false);
}
/* Room for many more operations on the first edge. */
static void threads_ahead(void **state)
{
    (void)state;
    on_each(3, &(struct wire_limits){.window = 4, .ahead = 1}, 150, false);
}
static void processes_two(void **state)
{
    (void)state;
    on_each(2, NULL, 0, true);
}
static void processes_four(void **state)
{
    (void)state;
    on_each(4, &(struct wire_limits){.window = 8}, 60, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_two),     cmocka_unit_test(threads_only_read), cmocka_unit_test(threads_three),
        cmocka_unit_test(threads_minimal), cmocka_unit_test(threads_ahead),     cmocka_unit_test(processes_two),
        cmocka_unit_test(processes_four),

    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
