/* The mock machine, which both mock libraries use. One lock protects all of it. */
#ifndef MOCK_INSIDE_H
#define MOCK_INSIDE_H

#include "cuda/calls.h"
#include "mock.h"

#include <pthread.h>

/* A call of the driver. Calls that need a context fail without one, and after a fault of its device. */
#define CUDA_BEGIN                                                                                                                         \
    if (mock_begin(__func__))                                                                                                              \
    return CUDA_UNKNOWN
#define CUDA_END(result)                                                                                                                   \
    do {                                                                                                                                   \
        unsigned told = (unsigned)(result);                                                                                                \
        mock_end();                                                                                                                        \
        return told;                                                                                                                       \
    } while (0)
#define CUDA_BEGIN_INSIDE                                                                                                                  \
    CUDA_BEGIN;                                                                                                                            \
    if (mock_device() < 0)                                                                                                                 \
        CUDA_END(CUDA_INVALID_CONTEXT);                                                                                                    \
    if (mock.fault[mock_device()])                                                                                                         \
    CUDA_END(CUDA_LAUNCH_FAILED)
/* Declares the exported symbols, from the list that the module loads. */
#define CUDA_EXPORT(field, symbol, result, parameters) MOCK_API result mock_##field parameters __asm__(symbol);

enum { MOCK_CAPTURE_UNSUPPORTED = 900, MOCK_CAPTURE_ISOLATION = 905 };
enum { MOCK_DEVICES = 8, MOCK_STREAM_QUEUES = 32, MOCK_QUEUES = MOCK_STREAM_QUEUES + 16, MOCK_THINGS = 8192, MOCK_NAMES = 128 };
enum mock_kind { OP_COPY, OP_FILL, OP_KERNEL, OP_RECORD, OP_WAIT, OP_WRITE, OP_STAND, OP_FOREIGN, OP_AGAIN };

/* One record of an event. Streams wait for this record, even if the event is recorded again later. */
struct mock_mark {
    int references;
    bool done;
};
struct mock_op {
    enum mock_kind kind;
    struct mock_op *next;
    struct CUstream_st *stream;
    void *to;
    const void *from;
    size_t bytes, pitch, width; /* of a fill: elements and their layout */
    uint64_t value;
    struct mock_mark *mark;
    void (*fn)(void *arg);
    void *arg;
    /* of an NCCL operation: whether it can run; run one step, and return true when it is over */
    bool (*ready)(struct mock_op *op);
    bool (*go)(struct mock_op *op);
    /* in a graph, of an NCCL operation: puts it on the stream; forgets it */
    void (*again)(void *arg, struct CUstream_st *stream);
    void (*drop)(void *arg);
};
struct CUctx_st {
    int device, retained;
};
struct CUstream_st {
    int device, queue;
    bool capturing, held, stands; /* stands: waits for words have been put on it */
    bool spared;                  /* mock_spare_orders */
    struct CUgraph_st *graph;     /* takes what is put on the stream, while it is being captured */
    uint64_t pending;
    struct mock_op *running; /* a kernel that is out of the hardware queue: what is behind it on this stream waits */
};
struct CUevent_st {
    int device;
    struct mock_mark *mark;
};
enum mock_thing {
    THING_STREAM = 1,
    THING_EVENT,
    THING_DEVICE_MEMORY,
    THING_HOST_MEMORY,
    THING_REGISTERED,
    THING_COMM,
    THING_GRAPH,
    THING_EXEC,
    THING_ENLISTED,
    THING_WINDOW,
    THING_MODULE,
    THING_SHARED, /* memory that several devices may map */
    THING_RANGE,  /* reserved addresses */
    THING_MAPPED  /* such memory, at such addresses; its device is the one that may access it, or -1 */
};
struct mock_machine {
    pthread_mutex_t lock;
    pthread_cond_t changed, put; /* put: an operation was, for the runner, which no other call wakes */
    struct mock_options options;
    uint64_t random, calls, fail_at, waits, drop_at, orders, drop_order_at, made;
    bool sticky, broken;
    const char *failed;
    uint64_t armed, failed_at; /* the calls since mock_fail; the one that failed */
    struct {
        const char *name;
        uint32_t calls;
    } named[MOCK_NAMES]; /* the calls of each name since mock_fail */
    struct CUctx_st context[MOCK_DEVICES];
    struct mock_op *first[MOCK_DEVICES][MOCK_QUEUES], *last[MOCK_DEVICES][MOCK_QUEUES];
    uint64_t pending;
    uint32_t rank[MOCK_DEVICES][MOCK_QUEUES]; /* priorities of the queues, if `ranked` */
    bool ranked;
    struct {
        enum mock_thing kind;
        void *at;
        size_t bytes;
        int device;
        bool managed, by_nccl; /* by_nccl: of ncclMemAlloc */
    } thing[MOCK_THINGS];
    int things;                 /* behind the last that is there, or was */
    int resident[MOCK_DEVICES]; /* NCCL operations that run on the device */
    bool fault[MOCK_DEVICES], in_order;
    const char *misused;
    uint64_t generation; /* counts resets */
    bool initialised, running, stop, at_once;
    int async_error, streams[MOCK_DEVICES]; /* streams: made so far */
    struct mock_launches launched;
    pthread_t runner;
};
MOCK_API extern struct mock_machine mock;

/* Takes the lock and counts the call. Returns true, without the lock, if the call must fail. */
MOCK_API bool mock_begin(const char *name);
MOCK_API void mock_end(void);
MOCK_API bool mock_is_exempt(void); /* this thread's calls */
MOCK_API uint64_t mock_draw(uint64_t below);
void mock_choose_by(uint64_t seed);
MOCK_API int mock_device(void); /* the device of this thread's context, or -1 */
/* mock_graph.c: appends an operation to the graph of a stream that is being captured. */
struct mock_op *mock_record(struct CUstream_st *stream, enum mock_kind kind);
MOCK_API struct mock_op *mock_push(struct CUstream_st *stream, enum mock_kind kind);
MOCK_API void mock_add(enum mock_thing kind, void *at, size_t bytes, int device);
MOCK_API bool mock_remove(enum mock_thing kind, void *at);
/* Returns the stream of a handle, which may be the number of a default stream. NULL: there is no such stream. */
MOCK_API struct CUstream_st *mock_stream(struct CUstream_st *handle);
MOCK_API bool mock_stream_on(struct CUstream_st *handle, int device);
MOCK_API bool mock_is_capturing(const struct CUstream_st *stream);
MOCK_API int mock_owner(const void *at); /* the device that owns the memory, or -1 */
bool mock_usable(struct CUstream_st *stream);
/* True, and a misuse with this text, if the stream is being captured. */
bool mock_breaks_capture(struct CUstream_st *stream, const char *what);
void mock_fill(const struct mock_op *op);          /* runs it */
bool mock_fills(const struct CUstream_st *stream); /* is a fill by bytes on it? */
int mock_hardware(int device);                     /* the number that is the same in all processes */
bool mock_may_access(int device, int hardware);    /* whether a device can access memory of that one */
bool mock_maps(const void *at, int device);        /* is it mapped, and may the device access it? */
bool mock_is_read(const void *at, size_t bytes);   /* by a kernel that is on a stream: a mailbox or slots */
/* mock_memory.c: where the machine has the bytes of this address, which may be a device's. The other: the same for all words of a kernel's
 * arguments that are such addresses. */
MOCK_API void *mock_reach(const void *at);
void mock_reach_all(void *arguments, size_t bytes);
/* Returns the kind of object that contains `at`, or 0. */
MOCK_API enum mock_thing mock_find(const void *at);

#endif
