/* The checks. Work that must come first is made slow, so that a missing dependency shows. */
#define _GNU_SOURCE
#include "suite.h"
#include "now.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void suite_open(struct suite *s, size_t slow_words)
{
    struct comm_communicator *world;
    char text[512] = "";

    *s = (struct suite){.slow_words = slow_words};
    if (comm_open_local(
            COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .error_text = text, .error_text_bytes = sizeof text), 1, NULL,
            &world) != COMM_OK) {
        fprintf(stderr, "comm_open_local: %s\n", text);
        exit(1);
    }
    s->world = world;
    bench_open(&s->bench, 0);
    s->compute = bench_stream(&s->bench);
    s->consume = bench_stream(&s->bench);
    s->in = bench_memory(&s->bench, SUITE_WORDS);
    s->out = bench_memory(&s->bench, SUITE_WORDS);
    s->kept = bench_memory(&s->bench, SUITE_WORDS);
    s->slow = bench_memory(&s->bench, slow_words);
}

void suite_close(struct suite *s)
{
    OK(comm_close(s->world, COMM_DEFAULT_TIMEOUT));
    bench_free(&s->bench, s->in);
    bench_free(&s->bench, s->out);
    bench_free(&s->bench, s->kept);
    bench_free(&s->bench, s->slow);
    bench_drop_stream(&s->bench, s->compute);
    bench_drop_stream(&s->bench, s->consume);
    bench_close(&s->bench);
}

void suite_delay(struct suite *s, struct CUstream_st *stream)
{
    for (uint32_t i = 0; i < 20; i++)
        bench_fill(&s->bench, stream, s->slow, i, s->slow_words);
}

void suite_expect(struct suite *s, struct CUstream_st *stream, const uint32_t *memory, uint32_t value)
{
    static uint32_t got[SUITE_WORDS];

    bench_read(&s->bench, stream, got, memory, SUITE_WORDS);
    for (int i = 0; i < SUITE_WORDS; i++)
        HOLDS(got[i] == value);
}

/* ------------------------------------------------------------------------------------------------------------ checks */
static void sums(struct suite *s)
{
    struct comm_request q;

    for (uint32_t round = 1; round <= 20; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_queue_wait_stream(s->world, s->compute));
        OK(comm_allreduce(s->world, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->out, round);
        OK(comm_allreduce(s->world, COMM_IN_PLACE, s->out, SUITE_WORDS, COMM_F32, COMM_AVG, &q));
        OK(comm_broadcast(s->world, s->out, SUITE_WORDS, COMM_U32, 0, &q));
        OK(comm_barrier(s->world, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->out, round);
    }
}

static void events_join_streams(struct suite *s)
{
    struct comm_event *ready, *reduced;

    OK(comm_event_create(s->world, &ready));
    OK(comm_event_create(s->world, &reduced));
    for (uint32_t round = 1; round <= 50; round++) {
        OK(comm_event_record(reduced, s->world));
        OK(comm_stream_wait_event(s->compute, reduced));
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_event_record_stream(ready, s->compute));
        OK(comm_queue_wait_event(s->world, ready));
        OK(comm_queue_wait_stream(s->world, s->consume));
        OK(comm_allreduce(s->world, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, NULL));
        OK(comm_event_record(reduced, s->world));
        OK(comm_stream_wait_event(s->consume, reduced));
        bench_copy(&s->bench, s->consume, s->kept, s->out, SUITE_WORDS * sizeof(uint32_t));
        if (round % 5 == 0)
            suite_expect(s, s->consume, s->kept, round);
    }
    OK(comm_sync(s->world, COMM_FOREVER));
    comm_event_free(ready);
    comm_event_free(reduced);
}

static void requests_join_streams(struct suite *s)
{
    struct comm_request q[8];

    for (uint32_t round = 1; round <= 10; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_queue_wait_stream(s->world, s->compute));
        for (int i = 0; i < 8; i++)
            OK(comm_allreduce(s->world, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, &q[i]));
        OK(comm_stream_wait_request(s->consume, q[2])); /* an older operation: a stream of the library waits for it */
        OK(comm_stream_wait_request(s->consume, q[7]));
        bench_copy(&s->bench, s->consume, s->kept, s->out, SUITE_WORDS * sizeof(uint32_t));
        suite_expect(s, s->consume, s->kept, round);
        OK(comm_wait_all(q, 8, SUITE_PATIENCE_NS));
    }
}

static void in_the_callers_stream(struct suite *s)
{
    struct comm_communicator *c;
    struct comm_request q;

    OK(NOW(comm_dup, s->world, &(struct comm_options){.size = sizeof(struct comm_options), .stream = s->compute}, &c));
    for (uint32_t round = 1; round <= 20; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_allreduce(c, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, &q));
        bench_copy(&s->bench, s->compute, s->kept, s->out, SUITE_WORDS * sizeof(uint32_t));
        suite_expect(s, s->compute, s->kept, round);
        OK(comm_wait(q, SUITE_PATIENCE_NS));
    }
    OK(comm_close(c, COMM_DEFAULT_TIMEOUT));
}

static void streams_wait_for_the_host(struct suite *s)
{
    struct comm_event *gate, *done;

    OK(comm_event_create(s->world, &gate));
    OK(comm_event_create(s->world, &done));
    bench_fill(&s->bench, s->compute, s->in, 0, SUITE_WORDS);
    suite_expect(s, s->compute, s->in, 0);
    for (uint32_t round = 1; round <= 20; round++) {
        OK(comm_event_reset(gate));
        OK(comm_stream_wait_event(s->compute, gate));
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_event_record_stream(done, s->compute));
        HOLDS(comm_event_sync(done, 2000000) == COMM_PENDING);
        suite_expect(s, s->consume, s->in, round - 1); /* another stream runs while the first one is blocked */
        OK(comm_event_set(gate));
        OK(comm_event_sync(done, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->in, round);
    }
    OK(comm_event_reset(gate));
    OK(comm_queue_wait_event(s->world, gate));
    OK(comm_allreduce(s->world, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, NULL));
    HOLDS(comm_stream_sync(s->world, 2000000) == COMM_PENDING);
    OK(comm_event_set(gate));
    OK(comm_stream_sync(s->world, SUITE_PATIENCE_NS));
    comm_event_free(gate);
    comm_event_free(done);
}

/* NCCL as the module uses it: a nonblocking communicator, and its blocking child. */
struct own {
    struct nccl_calls nccl;
    struct ncclComm *root, *comm;
};

static void open_own(struct suite *s, struct own *own)
{
    struct nccl_id id;
    struct nccl_config patient = {.size = sizeof patient,
                                  .magic = NCCL_MAGIC,
                                  .version = NCCL_OLDEST,
                                  .cga_cluster_size = NCCL_UNSET,
                                  .min_ctas = NCCL_UNSET,
                                  .max_ctas = NCCL_UNSET,
                                  .split_share = NCCL_UNSET,
                                  .end_of_2_18 = NCCL_UNSET};
    struct nccl_config direct = patient;
    unsigned state = NCCL_IN_PROGRESS;
    char why[256];
    int version;

    direct.blocking = 1;
    *own = (struct own){.root = NULL};
    OK(cuda_load_nccl(&cuda_source_system, &own->nccl, &version, why, sizeof why));
    HOLDS(s->bench.calls->cuCtxPushCurrent(s->bench.context) == CUDA_OK);
    HOLDS(own->nccl.ncclGetUniqueId(&id) == NCCL_OK);
    unsigned r = own->nccl.ncclCommInitRankConfig(&own->root, 1, id, 0, &patient);
    HOLDS(r == NCCL_OK || r == NCCL_IN_PROGRESS);
    while (state == NCCL_IN_PROGRESS)
        HOLDS(own->nccl.ncclCommGetAsyncError(own->root, &state) == NCCL_OK);
    HOLDS(state == NCCL_OK);
    r = own->nccl.ncclCommSplit(own->root, 0, 0, &own->comm, &direct);
    HOLDS(r == NCCL_OK || r == NCCL_IN_PROGRESS);
    for (state = NCCL_IN_PROGRESS; state == NCCL_IN_PROGRESS;)
        HOLDS(own->nccl.ncclCommGetAsyncError(own->root, &state) == NCCL_OK);
    HOLDS(state == NCCL_OK && own->comm);
}

static void close_own(struct suite *s, struct own *own)
{
    struct CUctx_st *mine;

    HOLDS(own->nccl.ncclCommDestroy(own->comm) == NCCL_OK);
    HOLDS(own->nccl.ncclCommDestroy(own->root) == NCCL_OK);
    HOLDS(s->bench.calls->cuCtxPopCurrent(&mine) == CUDA_OK);
}

/* With one rank, only a send to itself runs a kernel of NCCL. */
static void sends_to_itself(struct suite *s)
{
    struct own own;

    open_own(s, &own);
    for (uint32_t round = 1; round <= 20; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        HOLDS(own.nccl.ncclGroupStart() == NCCL_OK);
        HOLDS(own.nccl.ncclSend(s->in, SUITE_WORDS, NCCL_U32, 0, own.comm, s->compute) == NCCL_OK);
        HOLDS(own.nccl.ncclRecv(s->out, SUITE_WORDS, NCCL_U32, 0, own.comm, s->compute) == NCCL_OK);
        HOLDS(own.nccl.ncclGroupEnd() == NCCL_OK);
        suite_expect(s, s->compute, s->out,
                     round); /* the child is blocking, so work put on the stream after the call runs after the kernel */
    }
    close_own(s, &own);
}

static void moves(struct suite *s)
{
    struct comm_communicator *group;
    struct comm_request q;

    for (uint32_t round = 1; round <= 10; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_queue_wait_stream(s->world, s->compute));
        OK(comm_alltoall(s->world, s->in, s->out, SUITE_WORDS, COMM_U32, &q));
        OK(comm_scan(s->world, COMM_IN_PLACE, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->out, round);
        OK(comm_group_begin(s->world, &group));
        OK(comm_send(group, s->out, SUITE_WORDS, COMM_U32, 0, 0, NULL));
        OK(comm_recv(group, s->kept, SUITE_WORDS, COMM_U32, 0, 0, NULL, NULL));
        OK(comm_group_end(group, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->kept, round);
    }
}

static void keep(void *inout, const void *in, size_t elements, void *arg)
{
    (void)in, (void)elements;
    ++*(uint32_t *)inout; /* not called with one rank: nothing is combined */
    (void)arg;
}

/* What NCCL cannot reduce: by the module's kernel on the device, and by the host's kernel (an operator of the program's own). */
static void folds(struct suite *s)
{
    const struct comm_op_options options = {.size = sizeof options, .name = "keep", .element_bytes = 4};
    struct comm_request q;
    comm_op own;

    OK(comm_op_create(s->world, keep, NULL, &options, &own));
    for (uint32_t round = 1; round <= 10; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_queue_wait_stream(s->world, s->compute));
        OK(comm_allreduce(s->world, s->in, s->out, SUITE_WORDS, COMM_F32, COMM_MIN, NULL));
        OK(comm_allreduce(s->world, s->out, s->kept, SUITE_WORDS * 4, COMM_BYTE, own, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->kept, round);
    }
    comm_op_free(s->world, own);
}

void suite_refuses_to_close(struct comm_communicator *c)
{
    struct comm_error error = {.size = sizeof error};
    double start = suite_now_us();

    HOLDS(comm_close(c, SUITE_PATIENCE_NS) == COMM_ERR_STATE);
    HOLDS(suite_now_us() - start < SUITE_PATIENCE_NS / 2000.0);
    OK(comm_error_detail(c, &error));
    HOLDS(strstr(error.text, "comm_close: 1 CUDA graphs"));
}

/* A message to itself, since with one rank a sum in place runs nothing. While the graph lives, the communicator cannot be closed, and
 * works. */
static void graphs(struct suite *s)
{
    struct comm_communicator *c, *group;
    struct bench_graph graph = {0};
    struct comm_request q;

    OK(NOW(comm_dup, s->world, &(struct comm_options){.size = sizeof(struct comm_options), .stream = s->compute}, &c));
    bench_capture(&s->bench, s->compute);
    OK(comm_group_begin(c, &group));
    OK(comm_send(group, s->in, SUITE_WORDS, COMM_U32, 0, 0, NULL));
    OK(comm_recv(group, s->out, SUITE_WORDS, COMM_U32, 0, 0, NULL, NULL));
    OK(comm_group_end(group, &q));
    OK(comm_allreduce(c, s->out, s->kept, SUITE_WORDS, COMM_U32, COMM_SUM, NULL));
    OK(comm_wait(q, SUITE_PATIENCE_NS));
    bench_end_capture(&s->bench, s->compute, &graph);
    for (uint32_t round = 1; round <= 1000; round++) {
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        bench_launch(&s->bench, &graph, s->compute);
        if (round % 100)
            continue;
        suite_expect(s, s->compute, s->kept, round);
        OK(comm_allreduce(c, COMM_IN_PLACE, s->kept, SUITE_WORDS, COMM_U32, COMM_SUM, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        if (round == 500)
            suite_refuses_to_close(c);
    }
    bench_drop_graph(&s->bench, &graph);
    OK(comm_close(c, COMM_DEFAULT_TIMEOUT));
}

const struct suite_check suite_checks[] = {
    {"sums, averages, broadcasts, barriers", sums},
    {"events join streams and queues", events_join_streams},
    {"requests join streams", requests_join_streams},
    {"dup into the caller's stream", in_the_callers_stream},
    {"streams wait for the host", streams_wait_for_the_host},
    {"NCCL: grouped send and receive to itself", sends_to_itself},
    {"alltoall, scan, messages to itself", moves},
    {"reductions that NCCL lacks, by a kernel and by the host", folds},
    {"a CUDA graph, launched 1,000 times; no close while it lives", graphs},
    {"backend cuda: an allreduce in one kernel", suite_one_kernel},
    {"backend cuda: longer ones in the caller's stream", suite_kernels_in_a_stream},
    {"backend cuda: a CUDA graph of them", suite_kernels_in_a_graph},
};
const int suite_check_count = sizeof suite_checks / sizeof *suite_checks;

/* ------------------------------------------------------------------------------------------------------------ figures */
enum { MANY = 1000 };

static double call_cost(struct suite *s)
{
    struct comm_request q;
    double start = suite_now_us();

    for (int i = 0; i < MANY; i++)
        OK(comm_allreduce(s->world, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, &q));
    double cost = (suite_now_us() - start) / MANY;
    OK(comm_wait(q, SUITE_PATIENCE_NS));
    return cost;
}

/* One question about a buffer, as cuda/buffers.c asks. */
static void ask(const struct cuda_calls *cuda, const void *at)
{
    unsigned attributes[] = {CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_ORDINAL, CUDA_POINTER_MANAGED, CUDA_POINTER_RANGE_START,
                             CUDA_POINTER_RANGE_SIZE};
    uint64_t told[5];
    void *data[] = {&told[0], &told[1], &told[2], &told[3], &told[4]};

    HOLDS(cuda->cuPointerGetAttributes(5, attributes, data, (uintptr_t)at) == CUDA_OK);
}

/* The time of only the CUDA and NCCL calls that one call of this library makes. tests/cuda/costs.c counts that they are the same. */
static double bare_cost(struct suite *s)
{
    const struct cuda_calls *cuda = s->bench.calls;
    struct own own;
    struct CUctx_st *mine;
    cuda_address word = (uintptr_t)s->bench.pinned;

    open_own(s, &own);
    double start = suite_now_us();
    for (uint64_t i = 0; i < MANY; i++) {
        unsigned mode = CUDA_CAPTURE_RELAXED;
        ask(cuda, s->in);
        ask(cuda, s->out);
        HOLDS(cuda->cuCtxPushCurrent(s->bench.context) == CUDA_OK);
        HOLDS(cuda->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_OK);
        HOLDS(own.nccl.ncclAllReduce(s->in, s->out, SUITE_WORDS, NCCL_U32, NCCL_SUM, own.comm, s->compute) == NCCL_OK);
        HOLDS(cuda->cuStreamWriteValue64(s->compute, word, i, 0) == CUDA_OK);
        HOLDS(cuda->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_OK);
        HOLDS(cuda->cuCtxPopCurrent(&mine) == CUDA_OK);
    }
    double cost = (suite_now_us() - start) / MANY;
    while (cuda->cuStreamQuery(s->compute) == CUDA_NOT_READY)
        bench_turn();
    close_own(s, &own);
    return cost;
}

static double edge_cost(struct suite *s)
{
    double start = suite_now_us();

    for (int i = 0; i < MANY / 10; i++)
        OK(comm_queue_wait_stream(s->world, s->compute));
    double cost = (suite_now_us() - start) / (MANY / 10);
    OK(comm_sync(s->world, COMM_FOREVER));
    return cost;
}

double suite_round_trips(struct suite *s, struct comm_communicator *world, size_t words)
{
    struct comm_request q;
    double start = suite_now_us();

    for (int i = 0; i < MANY / 10; i++) {
        OK(comm_allreduce(world, s->in, s->out, words, COMM_U32, COMM_SUM, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
    }
    return (suite_now_us() - start) / (MANY / 10);
}

static double round_trip(struct suite *s)
{
    return suite_round_trips(s, s->world, SUITE_WORDS);
}

static double release(struct suite *s)
{
    struct comm_event *gate, *done;
    double sum = 0;

    OK(comm_event_create(s->world, &gate));
    OK(comm_event_create(s->world, &done));
    for (int i = 0; i < 20; i++) {
        OK(comm_event_reset(gate));
        OK(comm_stream_wait_event(s->compute, gate));
        OK(comm_event_record_stream(done, s->compute));
        HOLDS(comm_event_sync(done, 1000000) == COMM_PENDING);
        double start = suite_now_us();
        OK(comm_event_set(gate));
        while (comm_event_query(done) == COMM_PENDING)
            ;
        sum += suite_now_us() - start;
    }
    comm_event_free(gate);
    comm_event_free(done);
    return sum / 20;
}

static double test_cost(struct suite *s)
{
    struct comm_request q;

    OK(comm_allreduce(s->world, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, &q));
    OK(comm_wait(q, SUITE_PATIENCE_NS));
    double start = suite_now_us();
    for (int i = 0; i < 100 * MANY; i++)
        OK(comm_test(q));
    return (suite_now_us() - start) / (100 * MANY) * 1000;
}

const struct suite_figure suite_figures[] = {
    {"comm_allreduce, 16 KiB, one rank: the call", "us", call_cost},
    {"the calls of CUDA and NCCL in it alone", "us", bare_cost},
    {"comm_queue_wait_stream: the call", "us", edge_cost},
    {"comm_allreduce and comm_wait, 16 KiB, one rank", "us", round_trip},
    {"comm_allreduce and comm_wait, 10 KiB, one rank, backend cuda", "us", suite_one_kernel_round_trip},
    {"comm_event_set to the stream's word, through a parked stream", "us", release},
    {"comm_test of a complete request", "ns", test_cost},
};
const int suite_figure_count = sizeof suite_figures / sizeof *suite_figures;
