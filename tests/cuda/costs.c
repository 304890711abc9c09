/*
 * What calls on device buffers cost the calling thread, on the mock driver, whose operations run inside the calls: a staged allreduce
 * beside one of host buffers, and one over NCCL beside NCCL alone. Of each the calls of CUDA and NCCL that it makes are also timed alone,
 * and counted, so that the two do not drift apart. Rounds of all of them are interleaved, and medians are printed: of the times, and of the
 * differences in each round. docs/performance/gpu.md says how to run it.
 */
#include "gpu/suite.h"
#include "mock.h"

#include "selection.h"

#include <commstream/cuda.h>

#include <stdio.h>
#include <stdlib.h>

/* WORDS: 8 bytes. RANKS of the worlds that stage: all in this thread, and a figure is for one rank's call. */
enum { WORDS = 2, RANKS = 2, ROUNDS = 101 };
enum kind { HOST, STAGED, STAGED_BARE, OVER_NCCL, NCCL_BARE, NCCL_ALONE, KINDS };
static const char *const names[KINDS] = {
    "comm_allreduce and comm_wait, 8 bytes, host buffers",
    "the same, device buffers, staged",
    "the calls of CUDA in that alone",
    "comm_allreduce over nccl, 8 bytes",
    "the calls of CUDA and NCCL in that alone",
    "ncclAllReduce alone",
};
static struct bed {
    struct bench bench;
    struct CUstream_st *stream;
    struct comm_communicator *host[RANKS], *nccl;
    struct nccl_calls calls;
    struct ncclComm *comm;
    uint32_t *in[RANKS], *out[RANKS], here[RANKS][2 * WORDS];
    void *pinned;
} bed;
static int repeats;

/* ------------------------------------------------------------------------------------------------------------ NCCL, of our own */
static void open_comm(void)
{
    struct nccl_config config = {.size = sizeof config,
                                 .magic = NCCL_MAGIC,
                                 .version = NCCL_OLDEST,
                                 .blocking = 1,
                                 .cga_cluster_size = NCCL_UNSET,
                                 .min_ctas = NCCL_UNSET,
                                 .max_ctas = NCCL_UNSET,
                                 .split_share = NCCL_UNSET};
    struct nccl_id id;
    unsigned state = NCCL_IN_PROGRESS;
    char why[256];
    int version;

    HOLDS(cuda_load_nccl(&cuda_source_system, &bed.calls, &version, why, sizeof why) == COMM_OK);
    HOLDS(bed.calls.ncclGetUniqueId(&id) == NCCL_OK);
    unsigned result = bed.calls.ncclCommInitRankConfig(&bed.comm, 1, id, 0, &config);
    HOLDS(result == NCCL_OK || result == NCCL_IN_PROGRESS);
    while (state == NCCL_IN_PROGRESS)
        HOLDS(bed.calls.ncclCommGetAsyncError(bed.comm, &state) == NCCL_OK);
    HOLDS(state == NCCL_OK);
}

/* ------------------------------------------------------------------------------------------------------------ what is timed */
static void sum(bool on_device)
{
    struct comm_request q[RANKS];

    for (int r = 0; r < RANKS; r++)
        OK(on_device ? comm_allreduce(bed.host[r], bed.in[r], bed.out[r], WORDS, COMM_F32, COMM_SUM, &q[r])
                     : comm_allreduce(bed.host[r], bed.here[r], bed.here[r] + WORDS, WORDS, COMM_F32, COMM_SUM, &q[r]));
    for (int r = 0; r < RANKS; r++)
        OK(comm_wait(q[r], SUITE_PATIENCE_NS));
}

static void enter(void)
{
    unsigned mode = CUDA_CAPTURE_RELAXED;

    HOLDS(bed.bench.calls->cuCtxPushCurrent(bed.bench.context) == CUDA_OK);
    HOLDS(bed.bench.calls->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_OK);
}

static void leave(void)
{
    struct CUctx_st *mine;
    unsigned mode = 0;

    HOLDS(bed.bench.calls->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_OK);
    HOLDS(bed.bench.calls->cuCtxPopCurrent(&mine) == CUDA_OK);
}

/* One question about an address, as cuda/buffers.c asks. */
static void ask(const void *at)
{
    unsigned attributes[] = {CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_ORDINAL, CUDA_POINTER_MANAGED, CUDA_POINTER_RANGE_START,
                             CUDA_POINTER_RANGE_SIZE};
    uint64_t told[5];
    void *data[] = {&told[0], &told[1], &told[2], &told[3], &told[4]};

    HOLDS(bed.bench.calls->cuPointerGetAttributes(5, attributes, data, (uintptr_t)at) == CUDA_OK);
}

static void count_word(uint64_t value)
{
    HOLDS(bed.bench.calls->cuStreamWriteValue64(bed.stream, (uintptr_t)bed.pinned + 64, value, 0) == CUDA_OK);
}

static void staged_bare(int rank, uint64_t value)
{
    struct cuda_rows rows = {.from_type = CUDA_MEMORY_HOST,
                             .from_host = bed.pinned,
                             .from_pitch = 4,
                             .to_type = CUDA_MEMORY_DEVICE,
                             .to = (uintptr_t)bed.out[rank],
                             .to_pitch = 4,
                             .width = 4,
                             .height = 2};

    ask(bed.in[rank]);
    ask(bed.out[rank]);
    enter();
    HOLDS(bed.bench.calls->cuMemcpyAsync((uintptr_t)bed.pinned, (uintptr_t)bed.in[rank], 8, bed.stream) == CUDA_OK);
    count_word(value);
    leave();
    enter();
    HOLDS(bed.bench.calls->cuMemcpy2DAsync(&rows, bed.stream) == CUDA_OK);
    count_word(value);
    leave();
}

static void nccl_alone(void)
{
    HOLDS(bed.calls.ncclAllReduce(bed.in[0], bed.out[0], WORDS, NCCL_F32, NCCL_SUM, bed.comm, bed.stream) == NCCL_OK);
}

static void nccl_bare(uint64_t value)
{
    ask(bed.in[0]);
    ask(bed.out[0]);
    enter();
    nccl_alone();
    count_word(value);
    leave();
}

static void once(enum kind kind, uint64_t value, struct comm_request *last)
{
    switch (kind) {
    case HOST:
    case STAGED:
        sum(kind == STAGED);
        break;
    case STAGED_BARE:
        for (int r = 0; r < RANKS; r++)
            staged_bare(r, value);
        break;
    case OVER_NCCL:
        OK(comm_allreduce(bed.nccl, bed.in[0], bed.out[0], WORDS, COMM_F32, COMM_SUM, last));
        break;
    case NCCL_BARE:
        nccl_bare(value);
        break;
    default:
        nccl_alone();
    }
}

static int ranks_of(enum kind kind)
{
    return kind <= STAGED_BARE ? RANKS : 1;
}

/* Nanoseconds for each call of a rank. */
static double measure(enum kind kind)
{
    struct comm_request last = COMM_REQUEST_NONE;
    double start = suite_now_us();

    for (int i = 0; i < repeats; i++)
        once(kind, (uint64_t)i, &last);
    double cost = (suite_now_us() - start) / repeats / ranks_of(kind) * 1000;
    if (kind == OVER_NCCL)
        OK(comm_wait(last, SUITE_PATIENCE_NS));
    return cost;
}

static unsigned calls_of(enum kind kind)
{
    struct comm_request last = COMM_REQUEST_NONE;
    uint64_t before = mock_calls();

    once(kind, 1, &last);
    unsigned calls = (unsigned)(mock_calls() - before) / (unsigned)ranks_of(kind);
    if (kind == OVER_NCCL)
        OK(comm_wait(last, SUITE_PATIENCE_NS));
    return calls;
}

/* ------------------------------------------------------------------------------------------------------------ the program */
static void open_bed(void)
{
    mock_reset(&(struct mock_options){.seed = 1, .queues = 32});
    mock_run(true);
    OK(comm_open_local(COMM_CONFIG(.backend = "local", .progress = COMM_PROGRESS_CALLER), RANKS, NULL, bed.host));
    OK(comm_open_local(COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER), 1, NULL, &bed.nccl));
    bench_open(&bed.bench, 0);
    bed.stream = bench_stream(&bed.bench);
    for (int r = 0; r < RANKS; r++) {
        bed.in[r] = bench_memory(&bed.bench, WORDS);
        bed.out[r] = bench_memory(&bed.bench, WORDS);
        bench_fill(&bed.bench, bed.stream, bed.in[r], 0, WORDS);
    }
    bench_wait(&bed.bench, bed.stream);
    sum(true);
    bed.pinned = bench_pinned(&bed.bench, 4096); /* after the library's: the mock driver looks for memory in the order in which it came */
    bench_enter(&bed.bench);                     /* as in a program that uses the device: its context is the thread's */
    open_comm();
    mock_run(false);
    mock_at_once(true);
}

static void close_bed(void)
{
    mock_at_once(false);
    mock_run(true);
    HOLDS(bed.calls.ncclCommDestroy(bed.comm) == NCCL_OK);
    bench_leave(&bed.bench);
    OK(comm_close(bed.nccl, COMM_DEFAULT_TIMEOUT));
    for (int r = 0; r < RANKS; r++)
        OK(comm_close(bed.host[r], COMM_DEFAULT_TIMEOUT));
    for (int r = 0; r < RANKS; r++) {
        bench_free(&bed.bench, bed.in[r]);
        bench_free(&bed.bench, bed.out[r]);
    }
    bench_free_pinned(&bed.bench, bed.pinned);
    bench_drop_stream(&bed.bench, bed.stream);
    bench_close(&bed.bench);
    mock_run(false);
    HOLDS(!mock_misused() && !mock_live());
}

static double difference(double (*times)[ROUNDS], int rounds, enum kind of, enum kind less, enum kind least)
{
    double each[ROUNDS];

    for (int i = 0; i < rounds; i++)
        each[i] = times[of][i] - times[less][i] - (least == of ? 0 : times[least][i]);
    return suite_median(each, rounds);
}

int main(void)
{
    static double times[KINDS][ROUNDS];
    int rounds = (int)selected(ROUNDS, 5, 3);

    repeats = (int)selected(2000, 100, 20);
    open_bed();
    for (int i = 0; i < 10; i++)
        for (enum kind k = HOST; k < KINDS; k++)
            measure(k);
    for (int i = 0; i < rounds; i++)
        for (enum kind k = HOST; k < KINDS; k++)
            times[k][i] = measure(k);
    unsigned staged = calls_of(STAGED), staged_bare_calls = calls_of(STAGED_BARE), over = calls_of(OVER_NCCL), bare = calls_of(NCCL_BARE);
    printf("medians of %d rounds of %d calls, mock driver; the goal for each difference is 300 ns\n", rounds, repeats);
    printf("  %-66s%9.0f ns\n", "a staged call above the host's, without CUDA's calls",
           difference(times, rounds, STAGED, HOST, STAGED_BARE));
    printf("  %-66s%9.0f ns\n", "a call over nccl above the calls of CUDA and NCCL in it",
           difference(times, rounds, OVER_NCCL, NCCL_BARE, OVER_NCCL));
    printf("  %-66s%9.0f ns\n", "a call over nccl above ncclAllReduce alone", difference(times, rounds, OVER_NCCL, NCCL_ALONE, OVER_NCCL));
    for (enum kind k = HOST; k < KINDS; k++)
        printf("  %-66s%9.0f ns\n", names[k], suite_median(times[k], rounds));
    printf("calls of CUDA and NCCL: %u in a staged call, %u over nccl\n", staged, over);
    if (staged != staged_bare_calls || over != bare)
        printf("timed alone: %u and %u; expected the same\n", staged_bare_calls, bare);
    close_bed();
    return staged != staged_bare_calls || over != bare;
}
