/*
 * CUDA graphs of the mock driver. A stream that is being captured appends what is put on it to a graph. A launch puts all of it on a stream
 * again, in the same order. A graph and what was instantiated from it share their operations and user objects, which are freed with the
 * last of them. There are no branches: one stream is captured at a time.
 */
#define _GNU_SOURCE
#include "mock_inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OBJECTS = 8, INVALIDATED = 2 };
struct CUuserObject_st {
    unsigned references;
    void *arg;
    void (*destroy)(void *arg);
};
struct CUgraph_st {
    uint64_t id;
    int references;
    struct mock_op *first, *last;
    struct CUuserObject_st *object[OBJECTS];
    int objects;
};
struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

CUDA_CALLS(CUDA_EXPORT)
CUDA_NEWER_CALLS(CUDA_EXPORT)
/* These are called by tests alone. */
#define TEST_CALLS(X)                                                                                                                      \
    X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", unsigned, (struct CUstream_st * stream, unsigned mode))                             \
    X(cuStreamEndCapture, "cuStreamEndCapture", unsigned, (struct CUstream_st * stream, struct CUgraph_st * *graph))                       \
    X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", unsigned,                                                                         \
      (struct CUgraphExec_st * *exec, struct CUgraph_st * graph, unsigned long long flags))                                                \
    X(cuGraphLaunch, "cuGraphLaunch", unsigned, (struct CUgraphExec_st * exec, struct CUstream_st * stream))                               \
    X(cuGraphExecDestroy, "cuGraphExecDestroy", unsigned, (struct CUgraphExec_st * exec))                                                  \
    X(cuGraphDestroy, "cuGraphDestroy", unsigned, (struct CUgraph_st * graph))
TEST_CALLS(CUDA_EXPORT)

/* ------------------------------------------------------------------------------------------------------------ user objects */
/* CUDA calls it on a thread of its own, after the call that destroyed the graph has returned. */
static void *end(void *arg)
{
    struct CUuserObject_st *object = arg;

    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    object->destroy(object->arg);
    free(object);
    return NULL;
}

static void release(struct CUuserObject_st *object, unsigned count)
{
    pthread_t thread;

    object->references -= count;
    if (object->references)
        return;
    if (pthread_create(&thread, NULL, end, object) || pthread_detach(thread))
        abort();
}

unsigned mock_cuUserObjectCreate(struct CUuserObject_st **object, void *arg, void (*destroy)(void *arg), unsigned count, unsigned flags)
{
    CUDA_BEGIN;
    if (flags != CUDA_OBJECT_NO_SYNC || !count)
        CUDA_END(CUDA_INVALID_VALUE);
    *object = malloc(sizeof **object);
    **object = (struct CUuserObject_st){count, arg, destroy};
    CUDA_END(CUDA_OK);
}

unsigned mock_cuUserObjectRelease(struct CUuserObject_st *object, unsigned count)
{
    CUDA_BEGIN;
    release(object, count);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuGraphRetainUserObject(struct CUgraph_st *graph, struct CUuserObject_st *object, unsigned count, unsigned flags)
{
    CUDA_BEGIN;
    if (count != 1 || flags != CUDA_GRAPH_MOVES_OBJECT || graph->objects == OBJECTS)
        CUDA_END(CUDA_INVALID_VALUE);
    graph->object[graph->objects++] = object;
    CUDA_END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ capture */
bool mock_is_capturing(const struct CUstream_st *stream)
{
    return stream->capturing || stream->graph;
}

struct mock_op *mock_record(struct CUstream_st *stream, enum mock_kind kind)
{
    struct CUgraph_st *graph = stream->graph;
    struct mock_op *op = calloc(1, sizeof *op);

    op->kind = kind;
    *(graph->last ? &graph->last->next : &graph->first) = op;
    graph->last = op;
    return op;
}

static struct CUstream_st *stream_of(struct CUstream_st *stream)
{
    return mock_device() >= 0 ? mock_stream(stream) : NULL;
}

unsigned mock_cuStreamBeginCapture(struct CUstream_st *stream, unsigned mode)
{
    static uint64_t ids;

    CUDA_BEGIN;
    (void)mode;
    if (!stream_of(stream) || stream_of(stream)->graph)
        CUDA_END(CUDA_INVALID_VALUE);
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    graph->id = ++ids;
    graph->references = 1;
    stream_of(stream)->graph = graph;
    mock_add(THING_GRAPH, graph, 0, mock_device());
    CUDA_END(CUDA_OK);
}

unsigned mock_cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph)
{
    CUDA_BEGIN;
    if (!stream_of(stream) || !stream_of(stream)->graph)
        CUDA_END(CUDA_INVALID_VALUE);
    *graph = stream_of(stream)->graph;
    stream_of(stream)->graph = NULL;
    CUDA_END(CUDA_OK);
}

/* mock_capture() marks a stream without a graph: such a capture has been invalidated. */
unsigned mock_cuStreamGetCaptureInfo_v3(struct CUstream_st *stream, unsigned *status, uint64_t *id, struct CUgraph_st **graph,
                                        struct CUgraphNode_st *const **before, const struct CUgraphEdgeData_st **edges, size_t *count)
{
    CUDA_BEGIN;
    (void)before, (void)edges, (void)count;
    const struct CUstream_st *s = stream_of(stream);
    if (!s)
        CUDA_END(CUDA_INVALID_HANDLE);
    *status = s->graph ? CUDA_CAPTURE_ACTIVE : s->capturing ? INVALIDATED : CUDA_CAPTURE_NONE;
    if (s->graph) {
        *id = s->graph->id;
        *graph = s->graph;
    }
    CUDA_END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ graphs */
static void drop(struct CUgraph_st *graph)
{
    if (--graph->references)
        return;
    for (struct mock_op *op = graph->first, *next; op; op = next) {
        next = op->next;
        if (op->drop)
            op->drop(op->arg);
        free(op);
    }
    for (int i = 0; i < graph->objects; i++)
        release(graph->object[i], 1);
    free(graph);
}

unsigned mock_cuGraphInstantiate(struct CUgraphExec_st **exec, struct CUgraph_st *graph, unsigned long long flags)
{
    CUDA_BEGIN;
    (void)flags;
    if (mock_find(graph) != THING_GRAPH)
        CUDA_END(CUDA_INVALID_VALUE);
    *exec = malloc(sizeof **exec);
    (*exec)->graph = graph;
    graph->references++;
    mock_add(THING_EXEC, *exec, 0, mock_device());
    CUDA_END(CUDA_OK);
}

static void put(const struct mock_op *op, struct CUstream_st *stream)
{
    if (op->again) {
        op->again(op->arg, stream);
        return;
    }
    struct mock_op *copy = mock_push(stream, op->kind), *next = copy->next;
    *copy = *op;
    copy->stream = stream;
    copy->next = next;
}

unsigned mock_cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    CUDA_BEGIN;
    if (!stream_of(stream) || mock_find(exec) != THING_EXEC)
        CUDA_END(CUDA_INVALID_VALUE);
    for (const struct mock_op *op = exec->graph->first; op; op = op->next)
        put(op, stream_of(stream));
    CUDA_END(CUDA_OK);
}

unsigned mock_cuGraphExecDestroy(struct CUgraphExec_st *exec)
{
    CUDA_BEGIN;
    if (!mock_remove(THING_EXEC, exec))
        CUDA_END(CUDA_INVALID_VALUE);
    drop(exec->graph);
    free(exec);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuGraphDestroy(struct CUgraph_st *graph)
{
    CUDA_BEGIN;
    if (!mock_remove(THING_GRAPH, graph))
        CUDA_END(CUDA_INVALID_VALUE);
    drop(graph);
    CUDA_END(CUDA_OK);
}
