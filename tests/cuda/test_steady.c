/*
 * The steady state of calls on device buffers: once each operation has run, the library allocates nothing and makes no object of CUDA's, on
 * every way that they go. Both are counted, the first by an allocator in the C library's place, the second by the mock driver. Of a capture
 * CUDA itself wants one object, by which the graph holds the communicator.
 */
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "conform/counted.h"
#include "now.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* LONG: more than two parts of a staged sum, and longer than what one kernel does. Words. */
enum { RANKS = 2, SHORT = 2500, LONG = 1 << 20 };
/* Operations enough to fill the history of descriptions. */
enum { HISTORY = 2200, ROUNDS = 40, TURNS = 12 };

struct side {
    struct bench bench;
    struct CUstream_st *stream;
    struct comm_communicator *comm;
    uint32_t *in, *out;
    comm_op op;
};
static struct side sides[RANKS];
static struct rig rig;
static bool in_stream;

static void keep_larger(void *inout, const void *in, size_t elements, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < elements; i++)
        if (((const uint32_t *)in)[i] > ((uint32_t *)inout)[i])
            ((uint32_t *)inout)[i] = ((const uint32_t *)in)[i];
}

static void open_all(const char *backend, bool given, const struct mock_options *options)
{
    struct comm_config config = {
        .size = sizeof config, .backend = backend, .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 20 * RIG_S};
    const struct comm_op_options own = {.size = sizeof own, .name = "larger", .element_bytes = 4};
    struct comm_request dup[RANKS];

    mock_reset(options);
    mock_run(true);
    in_stream = given;
    bool is_staged = strcmp(backend, "local") == 0;
    rig_open(&rig, RANKS, &config);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_open(&s->bench, is_staged ? 0 : r); /* an engine that stages has one device */
        s->stream = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, LONG);
        s->out = bench_memory(&s->bench, LONG);
        MUST(comm_dup(rig.world[r], &(struct comm_options){.size = sizeof(struct comm_options), .stream = given ? s->stream : NULL},
                      &s->comm, &dup[r]));
    }
    rig_wait_all(dup, RANKS);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_op_create(sides[r].comm, keep_larger, NULL, &own, &sides[r].op));
}

static void close_all(void)
{
    for (int r = 0; r < RANKS; r++) {
        comm_op_free(sides[r].comm, sides[r].op);
        MUST(comm_close(sides[r].comm, COMM_DEFAULT_TIMEOUT));
    }
    rig_close(&rig);
    for (int r = 0; r < RANKS; r++) {
        bench_free(&sides[r].bench, sides[r].in);
        bench_free(&sides[r].bench, sides[r].out);
        bench_drop_stream(&sides[r].bench, sides[r].stream);
        bench_close(&sides[r].bench);
    }
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ rounds */
typedef enum comm_result call_fn(struct side *s, int rank, struct comm_request *q);

/* The call on all ranks, between work of the program's on a stream. */
static void on_all(call_fn *call)
{
    struct comm_request q[RANKS];

    for (int r = 0; r < RANKS; r++) {
        if (!in_stream)
            MUST(comm_queue_wait_stream(sides[r].comm, sides[r].stream));
        MUST(call(&sides[r], r, &q[r]));
        if (!in_stream)
            MUST(comm_stream_wait_request(sides[r].stream, q[r]));
    }
    rig_wait_all(q, RANKS);
}

static enum comm_result barrier(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_barrier(s->comm, q);
}

static enum comm_result sum(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out, SHORT, COMM_U32, COMM_SUM, q);
}

static enum comm_result long_sum(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out, LONG, COMM_U32, COMM_SUM, q);
}

static enum comm_result middle_sum(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out, LONG / 8, COMM_U32, COMM_SUM, q);
}

static enum comm_result scattered(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_reduce_scatter(s->comm, s->in, s->out, LONG / 16, COMM_U32, COMM_SUM, q);
}

static enum comm_result gathered(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_allgather(s->comm, s->in, s->out, LONG / 16, COMM_U32, q);
}

static enum comm_result broadcast(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_broadcast(s->comm, s->in, SHORT, COMM_U32, 1, q);
}

static enum comm_result scan_in_place(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_scan(s->comm, COMM_IN_PLACE, s->out, SHORT, COMM_U32, COMM_SUM, q);
}

static enum comm_result alltoall_in_place(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_alltoall(s->comm, COMM_IN_PLACE, s->out, SHORT, COMM_U32, q);
}

static enum comm_result allgather_v(struct side *s, int rank, struct comm_request *q)
{
    static const size_t counts[RANKS] = {SHORT, 7}, displs[RANKS] = {9, 0};

    (void)rank;
    return comm_allgather_v(s->comm, s->in, s->out, counts, displs, COMM_U32, q);
}

static enum comm_result bits(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out, SHORT, COMM_U32, COMM_BXOR, q);
}

static enum comm_result long_bits(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out, LONG / 4, COMM_U32, COMM_BXOR, q);
}

static enum comm_result own_operator(struct side *s, int rank, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out, SHORT * 4, COMM_BYTE, s->op, q);
}

static enum comm_result message(struct side *s, int rank, struct comm_request *q)
{
    return rank ? comm_recv(s->comm, s->out, SHORT, COMM_U32, 0, 0, NULL, q) : comm_send(s->comm, s->in, SHORT, COMM_U32, 1, 0, q);
}

/* ------------------------------------------------------------------------------------------------------------ counted */
static void fill_history(void)
{
    struct comm_request q[RANKS];

    for (int i = 0; i < HISTORY && counted_can(); i++) {
        for (int r = 0; r < RANKS; r++)
            MUST(comm_barrier(sides[r].comm, &q[r]));
        rig_wait_all(q, RANKS);
    }
}

/* Scratch memory, events and rings are for as much at once as there ever was, which is a matter of chance at first. So the state is steady
 * if, within a bounded time, so many rounds in a row make nothing. What is made now and then, or by each call, never comes to rest. */
static void comes_to_rest(void (*round)(call_fn *const *calls), call_fn *const *calls)
{
    int rounds = (int)rig_thin(ROUNDS, ROUNDS / 2, 4);
    uint64_t asked, made;

    for (int turn = 0; turn < TURNS; turn++) {
        asked = counted_calls();
        made = mock_made();
        for (int i = 0; i < rounds; i++)
            round(calls);
        asked = counted_calls() - asked;
        made = mock_made() - made;
        if (!asked && !made)
            return;
    }
    counted_tell();
    rig_die(__FILE__, __LINE__, "%d rounds still ask %llu times for memory, and make %llu objects", rounds, (unsigned long long)asked,
            (unsigned long long)made);
}

static void one_round(call_fn *const *calls)
{
    for (size_t k = 0; calls[k]; k++)
        on_all(calls[k]);
}

static void is_steady(const char *backend, bool given, const struct mock_options *options, call_fn *const *calls)
{
    rig_note("%s%s%s", backend, given ? ", in a stream of the program's" : "", options->no_memops ? ", streams write no words" : "");
    open_all(backend, given, options);
    fill_history();
    comes_to_rest(one_round, calls);
    close_all();
}

RIG_TEST(staged)
{
    static call_fn *const calls[] = {sum, broadcast, scan_in_place, alltoall_in_place, allgather_v, bits, own_operator, message, NULL};
    static call_fn *const longs[] = {long_sum, sum, NULL};

    is_steady("local", false, &(struct mock_options){.seed = 1, .queues = 32}, calls);
    is_steady("local", false, &(struct mock_options){.seed = 2, .queues = 32}, longs);
}

RIG_TEST(over_nccl)
{
    static call_fn *const calls[] = {barrier,     sum,  broadcast,    gathered, scattered, scan_in_place, alltoall_in_place,
                                     allgather_v, bits, own_operator, message,  long_bits, NULL};

    is_steady("nccl", false, &(struct mock_options){.seed = 1, .queues = 32}, calls);
    is_steady("nccl", true, &(struct mock_options){.seed = 2, .queues = 32}, calls);
    is_steady("nccl", true, &(struct mock_options){.seed = 3, .queues = 32, .no_kernels = 1}, calls);
    is_steady("nccl", true, &(struct mock_options){.seed = 4, .queues = 32, .no_memops = 1}, calls);
}

#if HAS_KERNELS
RIG_TEST(by_kernels)
{
    static call_fn *const calls[] = {barrier, sum, bits, NULL};
    static call_fn *const given[] = {barrier, sum, middle_sum, scattered, gathered, broadcast, NULL};

    is_steady("cuda", false, &(struct mock_options){.seed = 1, .queues = 32}, calls);
    is_steady("cuda", true, &(struct mock_options){.seed = 2, .queues = 32}, given);
}

RIG_TEST(by_the_pipeline)
{
    static call_fn *const calls[] = {middle_sum, scattered, gathered, NULL};

    is_steady("cuda", false, &(struct mock_options){.seed = 1, .queues = 32}, calls);
    is_steady("cuda", false, &(struct mock_options){.seed = 2, .queues = 32}, (call_fn *const[]){long_sum, sum, NULL});
}
#endif

/* ------------------------------------------------------------------------------------------------------------ captures */
static void count_one(void *count)
{
    ++*(int *)count;
}

/* A graph of several calls on each rank, two launches of it, and calls in between. */
static void capture(call_fn *const *calls)
{
    struct bench_graph graph[RANKS] = {{0}};
    struct comm_request q;

    for (int r = 0; r < RANKS; r++) {
        bench_capture(&sides[r].bench, sides[r].stream);
        for (size_t k = 0; calls[k]; k++)
            MUST(calls[k](&sides[r], r, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        bench_end_capture(&sides[r].bench, sides[r].stream, &graph[r]);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int r = 0; r < RANKS; r++)
            bench_launch(&sides[r].bench, &graph[r], sides[r].stream);
        on_all(sum);
    }
    for (int r = 0; r < RANKS; r++)
        bench_drop_graph(&sides[r].bench, &graph[r]);
}

static void captures(const char *backend, call_fn *const *calls)
{
    enum { FEW = 3 };
    int held = 0;

    rig_note("captures on %s", backend);
    open_all(backend, true, &(struct mock_options){.seed = 1, .queues = 32});
    fill_history();
    comes_to_rest(capture, calls);
    mock_at("cuUserObjectCreate", count_one, &held);
    for (int i = 0; i < FEW; i++)
        capture(calls);
    mock_at(NULL, NULL, NULL);
    EQUAL(held, FEW * RANKS); /* one for each capture, however many calls it has */
    close_all();
}

RIG_TEST(captured)
{
    static call_fn *const by_nccl[] = {sum, scan_in_place, alltoall_in_place, message, broadcast, NULL};

    captures("nccl", by_nccl);
#if HAS_KERNELS
    static call_fn *const by_kernels[] = {sum, middle_sum, gathered, broadcast, NULL};
    captures("cuda", by_kernels);
#endif
}

/* Places on streams, one after the other: few events serve them all. */
RIG_TEST(events_are_used_again)
{
    enum { PLACES = 500, EVENTS = 80 };
    int made = 0;

    open_all("nccl", false, &(struct mock_options){.seed = 1, .queues = 32});
    mock_at("cuEventCreate", count_one, &made);
    for (int i = 0; i < PLACES; i++) {
        MUST(comm_queue_wait_stream(sides[0].comm, sides[0].stream));
        MUST(comm_sync(sides[0].comm, COMM_FOREVER));
    }
    mock_at(NULL, NULL, NULL);
    if (made > EVENTS)
        rig_die(__FILE__, __LINE__, "%d events for %d places", made, PLACES);
    close_all();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staged),
        cmocka_unit_test(over_nccl),
#if HAS_KERNELS
        cmocka_unit_test(by_kernels),
        cmocka_unit_test(by_the_pipeline),
#endif
        cmocka_unit_test(captured),
        cmocka_unit_test(events_are_used_again),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_steady", tests, NULL, NULL);
}
