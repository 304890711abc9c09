/* The program's side of a device. A failed call ends the test, because these calls are not under test. */
#define _GNU_SOURCE
#include "bench.h"

#include "cuda/load.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void (*bench_step)(void);
void (*bench_inside)(bool on);
static struct cuda_calls table;
static bool loaded;
static int devices;

#define DO(call) must((call), #call)
static void must(unsigned result, const char *what)
{
    if (result == CUDA_OK)
        return;
    printf("bench: %s gave %u\n", what, result);
    abort();
}

bool bench_load(char *why, size_t why_bytes)
{
    loaded = loaded || cuda_load_driver(&cuda_source_system, &table, &devices, why, why_bytes) == COMM_OK;
    return loaded;
}

static void load(void)
{
    char why[256] = "";

    if (!bench_load(why, sizeof why)) {
        printf("bench: %s\n", why);
        abort();
    }
}

int bench_devices(void)
{
    load();
    return devices;
}

void bench_turn(void)
{
    if (bench_step)
        bench_step();
    else
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void inside(bool on)
{
    if (bench_inside)
        bench_inside(on);
}

void bench_enter(struct bench *b)
{
    inside(true);
    DO(b->calls->cuCtxPushCurrent(b->context));
}

void bench_leave(struct bench *b)
{
    struct CUctx_st *mine;

    DO(b->calls->cuCtxPopCurrent(&mine));
    inside(false);
}

void bench_open(struct bench *b, int device)
{
    load();
    inside(true);
    *b = (struct bench){.device = device, .calls = &table};
    DO(b->calls->cuDevicePrimaryCtxRetain(&b->context, device));
    bench_enter(b);
    DO(b->calls->cuMemHostAlloc(&b->pinned, BENCH_READ_BYTES, CUDA_HOST_PORTABLE));
    DO(b->calls->cuEventCreate(&b->read, CUDA_EVENT_DISABLE_TIMING));
    bench_leave(b);
}

void bench_close(struct bench *b)
{
    bench_enter(b);
    DO(b->calls->cuEventDestroy(b->read));
    DO(b->calls->cuMemFreeHost(b->pinned));
    DO(b->calls->cuDevicePrimaryCtxRelease(b->device));
    bench_leave(b);
}

struct CUstream_st *bench_stream(struct bench *b)
{
    struct CUstream_st *stream = NULL;

    bench_enter(b);
    DO(b->calls->cuStreamCreateWithPriority(&stream, CUDA_STREAM_NON_BLOCKING, 0));
    bench_leave(b);
    return stream;
}

void bench_drop_stream(struct bench *b, struct CUstream_st *stream)
{
    bench_enter(b);
    DO(b->calls->cuStreamDestroy(stream));
    bench_leave(b);
}

uint32_t *bench_memory(struct bench *b, size_t words)
{
    cuda_address memory = 0;

    bench_enter(b);
    DO(b->calls->cuMemAlloc(&memory, words * sizeof(uint32_t)));
    bench_leave(b);
    return (uint32_t *)(uintptr_t)memory;
}

void bench_free(struct bench *b, uint32_t *memory)
{
    bench_enter(b);
    DO(b->calls->cuMemFree((uintptr_t)memory));
    bench_leave(b);
}

void *bench_pinned(struct bench *b, size_t bytes)
{
    void *memory = NULL;

    bench_enter(b);
    DO(b->calls->cuMemHostAlloc(&memory, bytes, CUDA_HOST_PORTABLE));
    bench_leave(b);
    return memory;
}

void bench_free_pinned(struct bench *b, void *memory)
{
    bench_enter(b);
    DO(b->calls->cuMemFreeHost(memory));
    bench_leave(b);
}

void bench_fill(struct bench *b, struct CUstream_st *stream, uint32_t *to, uint32_t value, size_t words)
{
    bench_enter(b);
    DO(b->calls->cuMemsetD32Async((uintptr_t)to, value, words, stream));
    bench_leave(b);
}

void bench_copy(struct bench *b, struct CUstream_st *stream, void *to, const void *from, size_t bytes)
{
    bench_enter(b);
    DO(b->calls->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream));
    bench_leave(b);
}

void bench_wait(struct bench *b, struct CUstream_st *stream)
{
    unsigned state;

    bench_enter(b);
    while ((state = b->calls->cuStreamQuery(stream)) == CUDA_NOT_READY) {
        if (bench_step)
            bench_step();
        sched_yield(); /* figures are too fine for the naps of bench_turn */
    }
    DO(state);
    bench_leave(b);
}

void bench_read(struct bench *b, struct CUstream_st *stream, uint32_t *to, const uint32_t *from, size_t words)
{
    if (words * sizeof *to > BENCH_READ_BYTES)
        abort();
    bench_enter(b);
    DO(b->calls->cuMemcpyAsync((uintptr_t)b->pinned, (uintptr_t)from, words * sizeof *to, stream));
    DO(b->calls->cuEventRecord(b->read, stream));
    while (b->calls->cuEventQuery(b->read) == CUDA_NOT_READY)
        bench_turn();
    memcpy(to, b->pinned, words * sizeof *to);
    bench_leave(b);
}

/* ------------------------------------------------------------------------------------------------------------ graphs */
/* The library does not need these calls of the driver, so they are not in its table. */
static struct {
    unsigned (*begin)(struct CUstream_st *stream, unsigned mode);
    unsigned (*end)(struct CUstream_st *stream, struct CUgraph_st **graph);
    unsigned (*instantiate)(struct CUgraphExec_st **exec, struct CUgraph_st *graph, unsigned long long flags);
    unsigned (*launch)(struct CUgraphExec_st *exec, struct CUstream_st *stream);
    unsigned (*drop_exec)(struct CUgraphExec_st *exec);
    unsigned (*drop)(struct CUgraph_st *graph);
} graphs;

static void find(void *library, const char *name, void *call)
{
    void *found = dlsym(library, name);

    if (!found) {
        printf("bench: the driver has no %s\n", name);
        abort();
    }
    memcpy(call, &found, sizeof found);
}

static void load_graphs(void)
{
    void *library = graphs.begin ? NULL : dlopen("libcuda.so.1", RTLD_NOW);

    if (!library)
        return;
    find(library, "cuStreamEndCapture", &graphs.end);
    find(library, "cuGraphInstantiateWithFlags", &graphs.instantiate);
    find(library, "cuGraphLaunch", &graphs.launch);
    find(library, "cuGraphExecDestroy", &graphs.drop_exec);
    find(library, "cuGraphDestroy", &graphs.drop);
    find(library, "cuStreamBeginCapture_v2", &graphs.begin);
}

void bench_capture(struct bench *b, struct CUstream_st *stream)
{
    load_graphs();
    bench_enter(b);
    DO(graphs.begin(stream, 0));
    bench_leave(b);
}

void bench_end_capture(struct bench *b, struct CUstream_st *stream, struct bench_graph *graph)
{
    bench_enter(b);
    DO(graphs.end(stream, &graph->graph));
    DO(graphs.instantiate(&graph->exec, graph->graph, 0));
    bench_leave(b);
}

void bench_launch(struct bench *b, const struct bench_graph *graph, struct CUstream_st *stream)
{
    bench_enter(b);
    DO(graphs.launch(graph->exec, stream));
    bench_leave(b);
}

void bench_drop_graph(struct bench *b, struct bench_graph *graph)
{
    if (!graph->graph)
        return;
    bench_enter(b);
    DO(graphs.drop_exec(graph->exec));
    DO(graphs.drop(graph->graph));
    bench_leave(b);
    *graph = (struct bench_graph){0};
}
