/* What the two played libraries share: the machine under them. Everything is touched under one lock. */
#ifndef PLAYED_INSIDE_H
#define PLAYED_INSIDE_H

#include "cuda/calls.h"
#include "played.h"

#include <pthread.h>

enum { PLAYED_DEVICES = 8, PLAYED_QUEUES = 32, PLAYED_THINGS = 8192 };
enum played_kind { OP_COPY, OP_FILL, OP_KERNEL, OP_RECORD, OP_WAIT, OP_WRITE, OP_STAND, OP_FOREIGN };

/* What an event was recorded as: streams wait for this, whatever is recorded later. */
struct played_mark {
    int references;
    bool done;
};
struct played_op {
    enum played_kind kind;
    struct played_op *next;
    struct CUstream_st *stream;
    void *to;
    const void *from;
    size_t bytes;
    uint64_t value;
    struct played_mark *mark;
    void (*fn)(void *arg);
    void *arg;
    /* of NCCL: can it go on; one step of it, true when it is over */
    bool (*ready)(struct played_op *op);
    bool (*go)(struct played_op *op);
};
struct CUctx_st {
    int device, retained;
};
struct CUstream_st {
    int device, queue;
    bool capturing;
    uint64_t pending;
};
struct CUevent_st {
    int device;
    struct played_mark *mark;
};
enum played_thing { THING_STREAM = 1, THING_EVENT, THING_DEVICE_MEMORY, THING_HOST_MEMORY, THING_REGISTERED, THING_COMM };
struct played_machine {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct played_options options;
    uint64_t random, calls, fail_at, waits, drop_at;
    bool sticky, broken;
    const char *failed;
    struct CUctx_st context[PLAYED_DEVICES];
    struct played_op *first[PLAYED_DEVICES][PLAYED_QUEUES], *last[PLAYED_DEVICES][PLAYED_QUEUES];
    uint64_t pending;
    uint32_t rank[PLAYED_DEVICES][PLAYED_QUEUES]; /* who goes first, where ranks decide */
    bool ranked;
    struct {
        enum played_thing kind;
        void *at;
        size_t bytes;
        int device;
    } thing[PLAYED_THINGS];
    bool initialised, running, stop;
    int async_error, streams;
    pthread_t runner;
};
PLAYED_API extern struct played_machine played;

/* Takes the lock, counts the call; true: it is to fail (the lock is released). */
PLAYED_API bool played_begin(const char *name);
PLAYED_API void played_end(void);
PLAYED_API uint64_t played_draw(uint64_t below);
PLAYED_API int played_device(void); /* of this thread's context; -1: none */
PLAYED_API struct played_op *played_push(struct CUstream_st *stream, enum played_kind kind);
PLAYED_API void played_add(enum played_thing kind, void *at, size_t bytes, int device);
PLAYED_API bool played_remove(enum played_thing kind, void *at);
/* Where `at` lies among what there is; 0: nowhere. */
PLAYED_API enum played_thing played_find(const void *at);

#endif
