/* A call as the program made it, and what every call may need: the check that its communicator exists, and the ways to refuse a call. */
#ifndef COMM_CALL_H
#define COMM_CALL_H

#include <commstream/event.h>
#include <commstream/inspect.h>

#include "base/check.h"
#include "common/operator.h"
#include "data/data.h"
#include "program/program.h"
#include "progress/engine.h"

enum { CALL_IN_ON_DEVICE = 1, CALL_OUT_ON_DEVICE = 2, CALL_ON_DEVICE = 3 }; /* buffers that the CPU cannot access: it is staged */
enum { CALL_IN_WHOLE = 4, CALL_OUT_WHOLE = 8 };                             /* the device has told that it has all of their bytes */
enum { CALL_IN_BY_CPU = 16, CALL_OUT_BY_CPU = 32 };                         /* staged, but the CPU can access them */
enum {
    ENGINE_CALL_PLAN = 1,     /* started by a plan: plans match plans */
    ENGINE_CALL_GROUP = 2,    /* a member of a group */
    ENGINE_CALL_RECORDED = 4, /* NATIVE_RECORDED */
    ENGINE_CALL_FOLDED = 8,   /* NATIVE_FOLDED */
    ENGINE_CALL_DEVICE = 16,  /* NATIVE_ON_DEVICE */
    ENGINE_CALL_TOGETHER = 32 /* NATIVE_TOGETHER */
};
/* A collective as the program called it, with buffers resolved: in-place calls have real addresses. The call copies counts and displs. */
struct engine_call {
    uint32_t collective; /* enum comm_collective */
    enum comm_type type;
    comm_op op;
    int32_t root;
    uint32_t flags;    /* ENGINE_CALL_*; part of the fingerprint */
    uint32_t site;     /* with check=calls: identifies the caller in the program */
    uint8_t on_device; /* CALL_*_ON_DEVICE */
    uint8_t nth;       /* of a call that is issued in parts: how many parts are before this one */
    const void *in;
    void *out;
    size_t n;                      /* elements of a block; for calls with counts, of the longest block */
    size_t pitch;                  /* of a part: bytes from one block to the next in the caller's buffers; 0: the blocks are dense */
    const size_t *counts, *displs; /* NULL except for calls with counts, which set both */
    struct timeline_range read, write;
    const size_t *in_counts, *in_displs; /* if the layouts of `in` and `out` differ; only together with counts */
    const size_t *places;                /* of a part of a call with counts, whose displs are dense: displacements in the caller's buffer */
};

static inline uint64_t call_what(enum comm_type type, comm_op op)
{
    return (uint64_t)op << 32 | (uint32_t)type;
}
static inline uint64_t call_where(uint32_t collective, uint32_t flags, int32_t root)
{
    return (uint64_t)(flags << 8 | collective) << 32 | (uint32_t)root;
}

/* What two calls must have in common to be alike, in a few words that are fast to compare. */
struct call_shape {
    uint64_t what;  /* type and operator */
    uint64_t where; /* collective, flags and root */
    size_t n;
    uint32_t fingerprint;
    bool known, fits; /* fits: it can take the short path */
};
static inline bool call_is(const struct call_shape *f, const struct engine_call *call)
{
    return f->known && f->n == call->n && f->what == call_what(call->type, call->op) &&
           f->where == call_where(call->collective, call->flags, call->root);
}
static inline struct call_shape call_shape_of(const struct engine_call *call, uint32_t fingerprint)
{
    return (struct call_shape){.what = call_what(call->type, call->op),
                               .where = call_where(call->collective, call->flags, call->root),
                               .n = call->n,
                               .fingerprint = fingerprint,
                               .known = true};
}

/* Stores a refusal in the request, and returns the result. */
static inline enum comm_result call_refused(struct comm_request *req, enum comm_result result)
{
    if (req && result != COMM_OK)
        *req = timeline_refusal(result);
    return result;
}
#define CALL_FOREIGN "memory of the host: that is a device's, which the CPU cannot touch"
/* Refuses a collective at the call. This uses up its sequence number, and the other members are told. The text is the detail of the
 * error. */
enum comm_result engine_refuse(struct comm_communicator *c, uint32_t collective, enum comm_result reason, struct comm_request *req,
                               const char *format, ...) __attribute__((format(printf, 5, 6)));
/* COMM_OK if the CPU can access the memory at `at`; for what it reads and writes itself. Called only if engine_has_devices. */
enum comm_result engine_need_host(struct comm_communicator *c, const char *call, const char *argument, const void *at,
                                  struct comm_request *req);
static inline bool engine_has_devices(const struct comm_communicator *c)
{
    return c->env->devices && atomic_load_explicit(c->env->devices, memory_order_relaxed);
}
/* A refusal that uses up no number (local calls, FULL, STATE): the detail is kept, and a plan that is recorded is refused at its end. */
enum comm_result engine_decline(struct comm_communicator *c, enum comm_result reason, struct comm_request *req, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
