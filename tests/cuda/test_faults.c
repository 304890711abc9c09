/* Each call of CUDA or NCCL fails once while a program uses every feature. The program gets an error, nothing hangs, nothing leaks, and
 * every result that is reported as OK is right. */
#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, WORDS = 8 };
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out;
};
static struct side sides[RANKS];

static void make_sides(void)
{
    bench_inside = mock_exempt;
    for (int r = 0; r < RANKS; r++) {
        bench_open(&sides[r].bench, r);
        sides[r].stream = bench_stream(&sides[r].bench);
        sides[r].in = bench_memory(&sides[r].bench, WORDS);
        sides[r].out = bench_memory(&sides[r].bench, WORDS);
    }
}

static void drop_sides(void)
{
    for (int r = 0; r < RANKS; r++) {
        bench_free(&sides[r].bench, sides[r].in);
        bench_free(&sides[r].bench, sides[r].out);
        bench_drop_stream(&sides[r].bench, sides[r].stream);
        bench_close(&sides[r].bench);
    }
}

static enum comm_result sum_halves(struct comm_communicator *c, const struct side *s, struct comm_request *q)
{
    enum { HALF = WORDS / 2 };
    struct comm_communicator *group;
    enum comm_result r = comm_group_begin(c, &group);

    *q = COMM_REQUEST_NONE;
    if (r != COMM_OK)
        return r;
    bool well = comm_allreduce(group, s->in, s->out, HALF, COMM_U32, COMM_SUM, NULL) == COMM_OK;
    well &= comm_allreduce(group, s->in + HALF, s->out + HALF, HALF, COMM_U32, COMM_SUM, NULL) == COMM_OK;
    r = comm_group_end(group, q);
    return well ? r : COMM_ERR_MEMORY;
}

/* A sum on every rank's device, as one call or as a group of two, ordered by the stream before and after. Returns true if all calls
 * succeeded. */
static bool sum_up(struct comm_communicator *const *c, const struct comm_event *const *events, bool as_group)
{
    struct comm_request q[RANKS];
    bool well = true;

    for (int r = 0; r < RANKS; r++) {
        struct comm_event *event = (struct comm_event *)(uintptr_t)events[r];
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, (uint32_t)r + 1, WORDS);
        well &= comm_queue_wait_stream(c[r], sides[r].stream) == COMM_OK;
        if (as_group)
            well &= sum_halves(c[r], &sides[r], &q[r]) == COMM_OK;
        else
            well &= comm_allreduce(c[r], sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]) == COMM_OK;
        well &= comm_event_record(event, c[r]) == COMM_OK;
        well &= comm_stream_wait_event(sides[r].stream, event) == COMM_OK;
    }
    for (int r = 0; r < RANKS; r++)
        well &= comm_wait(q[r], 5 * RIG_S) == COMM_OK;
    for (int r = 0; r < RANKS && well; r++) {
        uint32_t got[WORDS];
        bench_read(&sides[r].bench, sides[r].stream, got, sides[r].out, WORDS);
        for (int i = 0; i < WORDS; i++)
            EQUAL(got[i], 3);
    }
    return well;
}

/* Collectives composed of several NCCL calls, which use spare memory, and messages in a group. */
static bool move_about(struct comm_communicator *const *c)
{
    struct comm_request q[RANKS], groups[RANKS];
    bool well = true;

    for (int r = 0; r < RANKS; r++) {
        struct comm_communicator *group = NULL;
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, (uint32_t)r + 1, WORDS);
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].out, 0, WORDS);
        well &= comm_queue_wait_stream(c[r], sides[r].stream) == COMM_OK;
        well &= comm_alltoall(c[r], COMM_IN_PLACE, sides[r].in, WORDS / 2, COMM_U32, &q[r]) == COMM_OK;
        well &= comm_scan(c[r], COMM_IN_PLACE, sides[r].in, WORDS, COMM_U32, COMM_SUM, &q[r]) == COMM_OK;
        if (comm_group_begin(c[r], &group) != COMM_OK)
            return false;
        well &= comm_send(group, sides[r].in, WORDS, COMM_U32, 1 - r, 0, NULL) == COMM_OK;
        well &= comm_recv(group, sides[r].out, WORDS, COMM_U32, 1 - r, 0, NULL, NULL) == COMM_OK;
        well &= comm_group_end(group, &groups[r]) == COMM_OK;
    }
    for (int r = 0; r < RANKS; r++)
        well &= comm_wait(groups[r], 5 * RIG_S) == COMM_OK;
    for (int r = 0; r < RANKS && well; r++) { /* after the alltoall both ranks have 1 in the first half and 2 in the second */
        uint32_t got[WORDS];
        bench_read(&sides[r].bench, sides[r].stream, got, sides[r].out, WORDS);
        for (uint32_t i = 0; i < WORDS; i++)
            EQUAL(got[i], (i < WORDS / 2 ? 1 : 2) * (r ? 1 : 2));
    }
    return well;
}

/* Returns true if nothing failed. */
static bool use_world(struct comm_communicator **world)
{
    struct comm_communicator *dup[RANKS] = {NULL, NULL};
    struct comm_event *event[RANKS], *gate;
    struct comm_request q[RANKS];
    bool well;

    for (int r = 0; r < RANKS; r++)
        MUST(comm_event_create(world[r], &event[r]));
    MUST(comm_event_create(world[0], &gate));
    MUST(comm_event_reset(gate));
    enum comm_result parked = comm_queue_wait_event(world[0], gate);
    well = parked == COMM_OK || parked == COMM_ERR_UNSUPPORTED; /* without memory operations there are no parks */
    (void)!comm_stream_wait_event(sides[1].stream, gate);
    MUST(comm_event_set(gate));
    well &= sum_up(world, (const struct comm_event *const *)event, false);
    well &= move_about(world);
    for (int r = 0; r < RANKS; r++)
        well &= comm_dup(world[r], &(struct comm_options){.size = sizeof(struct comm_options), .stream = sides[r].stream}, &dup[r],
                         &q[r]) == COMM_OK;
    for (int r = 0; r < RANKS; r++)
        well &= comm_wait(q[r], 5 * RIG_S) == COMM_OK;
    if (dup[0] && dup[1])
        well &= sum_up(dup, (const struct comm_event *const *)event, true);
    comm_event_free(gate);
    for (int r = 0; r < RANKS; r++) {
        comm_event_free(event[r]);
        if (dup[r])
            (void)!comm_close(dup[r], 3 * RIG_S);
    }
    return well;
}

/* If a call that frees an object fails, that object leaks. */
static bool loses(const char *call)
{
    static const char *const ends[] = {"Destroy", "Free", "Release", "Abort", "PushCurrent", "Unregister", "Unload"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strstr(call, ends[i]))
            return true;
    return false;
}

static void hush(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

/* Call n fails, or the next one that is not spared; stores its number there. Returns false if no call failed and all results were right. */
static bool run_with(uint64_t *number, bool sticky, bool memops)
{
    uint64_t n = *number;
    struct comm_communicator *world[RANKS];
    int64_t start = rig_now();

    mock_reset(
        &(struct mock_options){.seed = n, .queues = 4, .no_memops = !memops, .first = selected(0, 8, 1), .every = selected(0, 6, 24)});
    make_sides();
    int before = mock_live();
    mock_fail(n, sticky);
    enum comm_result r = comm_open_local(COMM_CONFIG(.backend = "nccl", .open_timeout_ns = 300 * RIG_MS,
                                                     .operation_timeout_ns = 300 * RIG_MS, .progress = COMM_PROGRESS_CALLER, .log = hush),
                                         RANKS, NULL, world);
    bool well = r == COMM_OK && use_world(world);
    if (r == COMM_OK) {
        for (int i = 0; i < RANKS; i++)
            (void)!comm_close(world[i], 3 * RIG_S);
    }
    const char *failed = mock_failed();
    *number = failed ? mock_failed_at() : n;
    mock_fail(0, false);
    int64_t took = rig_now() - start;
    while (!mock_idle() && rig_now() - start < 10 * RIG_S)
        rig_nap(RIG_MS);
    rig_note("call %llu (%s) fails%s", (unsigned long long)n, failed ? failed : "none", sticky ? " and all after" : "");
    if (!mock_idle()) /* an operation is still on a stream */
        mock_list_live();
    fflush(stdout);
    CHECK(mock_idle());
    CHECK(took < 9 * RIG_S);
    if (!sticky && (!failed || !loses(failed)) && mock_live() > before) {
        mock_list_live();
        fflush(stdout);
        rig_die(__FILE__, __LINE__, "%d things are left", mock_live() - before);
    }
    drop_sides();
    return failed != NULL || !well; /* a slow machine may miss a deadline without a fault */
}

static void every_call(bool sticky, bool memops)
{
    uint64_t n = 1, tried = 0;

    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    for (; run_with(&n, sticky, memops); n++) {
        tried++;
        CHECK(n < 5000); /* a run makes some hundred calls; a larger n makes none fail */
    }
    mock_run(false);
    printf("%llu faults, one at a time, in %llu calls\n", (unsigned long long)tried, (unsigned long long)n);
    CHECK(tried > 40 && n > 200);
}

RIG_TEST(a_fault_at_every_call)
{
    every_call(false, true);
}

RIG_TEST(a_fault_at_every_call_without_memory_operations)
{
    every_call(false, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(a_fault_at_every_call_without_memory_operations),
    };
    return cmocka_run_group_tests_name("cuda_faults", tests, NULL, NULL);
}
