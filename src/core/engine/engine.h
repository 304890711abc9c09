/*
 * engine: the one conductor. It alone sees every stage of a call: queued (timeline), turned into a program (algo), run (program) over a
 * wire, matched (message), retired (timeline). One engine per rank; communicators of one engine are moved by whoever waits on any of them.
 *
 * Calls here take the public objects, check that they are alive, and do the work; the api room checks arguments before.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <commstream/bucket.h>
#include <commstream/event.h>
#include <commstream/inspect.h>
#include <commstream/message.h>
#include <commstream/open.h>
#include <commstream/plan.h>
#include <commstream/window.h>

#include "base/check.h"
#include "data/data.h"
#include "program/program.h"
#include "timeline/timeline.h"

/* ------------------------------------------------------------------------------------------------------------ calls on the queue */
enum { ENGINE_CALL_PLAN = 1 /* started by a plan: plans match plans */, ENGINE_CALL_GROUP = 2 /* a member of a group */ };
/* A collective as its caller gave it, buffers resolved (in-place forms name real addresses). counts and displs are copied by the call. */
struct engine_call {
    uint32_t collective; /* enum comm_collective */
    enum comm_type type;
    comm_op op;
    int32_t root;
    uint32_t flags; /* ENGINE_CALL_*: part of the fingerprint */
    uint32_t site;  /* with check=calls: from where in the program */
    const void *in;
    void *out;
    size_t n;                      /* elements of a block; v forms: of the longest */
    const size_t *counts, *displs; /* NULL but for v forms, which give both */
    struct timeline_hull read, write;
    const size_t *in_counts, *in_displs; /* where `in` is laid out unlike `out`; only beside counts */
};
/* Every call here that takes req may be given NULL. On an error *req becomes that refusal. */
enum comm_result engine_issue_from(struct comm_communicator *c, const struct engine_call *call, struct comm_request *req, const void *site);
/* From a public call: its own return address is the caller's place. */
static inline __attribute__((always_inline)) enum comm_result engine_issue(struct comm_communicator *c, const struct engine_call *call,
                                                                           struct comm_request *req)
{
    return engine_issue_from(c, call, req, __builtin_return_address(0));
}
/* The call that went before once more, with buffers as they are given to the public call: then what was sound is sound, and it goes the
 * shortest way there is. False: nothing happened. what, where: of call_what and call_where. */
bool engine_repeat(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                   struct comm_request *req);
/* The same of a v form, with the vectors as they are given: displs may be NULL, and who uses none of them may have any. n: AS_COUNTED where
 * the call has none of its own. */
#define ENGINE_AS_COUNTED SIZE_MAX
struct engine_vectors {
    const size_t *counts, *displs, *in_counts, *in_displs;
};
bool engine_repeat_v(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                     const struct engine_vectors *v, struct comm_request *req);
static inline uint64_t call_what(enum comm_type type, comm_op op)
{
    return (uint64_t)op << 32 | (uint32_t)type;
}
static inline uint64_t call_where(uint32_t collective, uint32_t flags, int32_t root)
{
    return (uint64_t)(flags << 8 | collective) << 32 | (uint32_t)root;
}
/* A collective refused at the call: it uses up its number, and the members are told. The text is the detail. */
enum comm_result engine_refuse(struct comm_communicator *c, uint32_t collective, enum comm_result reason, struct comm_request *req,
                               const char *format, ...) __attribute__((format(printf, 5, 6)));
/* A refusal that takes no number (local calls, FULL, STATE): only the detail is kept. */
/* COMM_OK where at is memory that this communicator can move; for calls that are no collectives. Asked only where engine_has_devices. */
enum comm_result engine_need_host(struct comm_communicator *c, const char *call, const char *argument, const void *at,
                                  struct comm_request *req);
static inline bool engine_has_devices(const struct comm_communicator *c)
{
    return c->env->devices && atomic_load_explicit(c->env->devices, memory_order_relaxed);
}
enum comm_result engine_decline(struct comm_communicator *c, enum comm_result reason, struct comm_request *req, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
enum comm_result engine_broadcast_bytes(struct comm_communicator *c, void *buf, size_t *bytes, int32_t root, struct comm_request *req,
                                        const void *site);
enum comm_result engine_queue_wait(struct comm_communicator *c, const struct timeline_point *point, struct comm_request *req);
enum comm_result engine_message(struct comm_communicator *c, bool is_send, void *buf, size_t bytes, int32_t peer, uint32_t tag,
                                struct comm_status *status, struct comm_request *req);
enum comm_result engine_cancel(struct comm_request request);
enum comm_result engine_probe(struct comm_communicator *c, int32_t peer, uint32_t tag, int64_t timeout_ns, struct comm_status *status);

/* OK, or ARGUMENT, FORKED; a closed one is found under its lock. */
static inline enum comm_result engine_alive(const struct comm_communicator *c)
{
    if (BASE_UNLIKELY(!c))
        return COMM_ERR_ARGUMENT;
    return BASE_LIKELY(atomic_load_explicit(c->alive, memory_order_relaxed)) ? COMM_OK : COMM_ERR_FORKED;
}
int32_t engine_rank(const struct comm_communicator *c); /* -1: closed */
int32_t engine_size(const struct comm_communicator *c);
int32_t engine_node(const struct comm_communicator *c); /* 0 or more, equal for ranks of one host */
/* Which piece of hardware this rank's device is, as device.h's where; otherwise what is missing, in text. */
enum comm_result engine_hardware(struct comm_communicator *c, uint64_t *hardware, char *text, size_t bytes);
int32_t engine_numa(const struct comm_communicator *c); /* the NUMA node that the calling thread may run on; -1: several */

/* ------------------------------------------------------------------------------------------------------------ waiting and progress */
enum comm_result engine_test(struct comm_request request);
enum comm_result engine_wait(struct comm_request request, int64_t timeout_ns);
enum comm_result engine_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns);
enum comm_result engine_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t most, size_t *indices,
                                  enum comm_result *results, size_t *done);
struct comm_request engine_last(struct comm_communicator *c);
enum comm_result engine_sync(struct comm_communicator *c);
enum comm_result engine_sync_all(struct comm_communicator *c);
enum comm_result engine_progress(struct comm_communicator *c);
enum comm_result engine_arm(struct comm_communicator *c);
enum comm_result engine_fd(struct comm_communicator *c, int *fd);
enum comm_result engine_notify(struct comm_request request, comm_notify_fn *fn, void *arg);

/* ------------------------------------------------------------------------------------------------------------ communicators */
enum comm_result engine_id_create(const struct comm_config *config, struct comm_id *id, const char **why); /* why: of an error */
enum comm_result engine_open(const struct comm_config *config, struct comm_communicator **world);
enum comm_result engine_open_local(const struct comm_config *config, int32_t ranks, const char *const *devices,
                                   struct comm_communicator **worlds);
enum comm_result engine_split(struct comm_communicator *c, int64_t color, int32_t key, struct comm_communicator **out,
                              struct comm_request *req);
enum comm_result engine_subset(struct comm_communicator *c, const int32_t *ranks, int32_t count, uint32_t tag,
                               struct comm_communicator **out, struct comm_request *req);
enum comm_result engine_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                            struct comm_request *req);
enum comm_result engine_close(struct comm_communicator *c, int64_t timeout_ns);
enum comm_result engine_abort(struct comm_communicator *c, int32_t code);
enum comm_result engine_revoke(struct comm_communicator *c);
enum comm_result engine_agree(struct comm_communicator *c, uint64_t *flags);
enum comm_result engine_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req);
int32_t engine_translate(const struct comm_communicator *c, int32_t rank, const struct comm_communicator *other);

/* ------------------------------------------------------------------------------------------------------------ operators */
#define OPERATOR_USER UINT32_C(0x80000000) /* in a comm_op: of the caller's own */
enum comm_result engine_op_create(struct comm_communicator *c, comm_op_fn *fn, void *arg, const struct comm_op_options *options,
                                  comm_op *op);
void engine_op_free(struct comm_communicator *c, comm_op op);
size_t engine_op_bytes(struct comm_communicator *c, comm_op op); /* of its element; 0: no such operator */

/* ------------------------------------------------------------------------------------------------------------ memory */
enum comm_result engine_memory_take(struct comm_communicator *c, size_t bytes, void **at);
/* STATE: this very memory is registered already. */
enum comm_result engine_memory_register(struct comm_communicator *c, void *at, size_t bytes);
/* own: of engine_memory_take, otherwise registered. STATE: no such memory. */
enum comm_result engine_memory_give(struct comm_communicator *c, void *at, bool own);

/* ------------------------------------------------------------------------------------------------------------ windows */
/* A call on a window: the engine's own, since memory that all reach needs no wire to move it. */
enum one_sided_kind { ONE_NONE = 0, ONE_PUT, ONE_GET, ONE_UPDATE, ONE_SWAP, ONE_SIGNAL, ONE_WAIT, ONE_FLUSH };
struct one_sided {
    struct comm_window *window;
    uint8_t kind; /* ONE_NONE: a message */
    int32_t peer; /* FLUSH: or COMM_ANY_PEER; WAIT: this rank */
    const void *from, *expected;
    void *to;
    size_t n, done, offset, element; /* n, done: elements; PUT, GET: bytes */
    enum comm_type type;
    comm_op op;
    uint32_t slot;   /* SIGNAL, WAIT */
    uint64_t amount; /* SIGNAL: to add; WAIT: at least */
    bool apart;      /* the part is no memory here: its owner does it */
    uint32_t behind; /* apart: the next call of this rank to that part that was not all asked for */
    uint32_t waits;  /* apart: the next call that waits for room to ask this peer for the rest of it */
    size_t asked;    /* apart: elements */
};
enum comm_result engine_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                      struct comm_window **w, struct comm_request *req);
enum comm_result engine_window_fence(struct comm_window *w, struct comm_request *req);
enum comm_result engine_window_free(struct comm_window *w);
/* What never changes: its communicator (NULL: closed), its number of ranks, a rank's part. */
struct comm_communicator *engine_window_comm(const struct comm_window *w);
int32_t engine_window_size(const struct comm_window *w);
int32_t engine_window_rank(const struct comm_window *w);
/* NULL where it has no bytes, and where it is apart: no memory here, so that only its owner reaches it. */
void *engine_window_part(const struct comm_window *w, int32_t peer, size_t *bytes, uint32_t *signals);
bool engine_window_apart(const struct comm_window *w, int32_t peer);
/* Arguments are sound. */
enum comm_result engine_one_sided(struct comm_window *w, const struct one_sided *one, struct comm_request *req);

/* ------------------------------------------------------------------------------------------------------------ recorders */
enum comm_result engine_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder);
enum comm_result engine_plan_end(struct comm_communicator *recorder, struct comm_plan **plan);
enum comm_result engine_plan_start(struct comm_plan *plan, struct comm_request *req);
void engine_plan_free(struct comm_plan *plan);

enum comm_result engine_group_begin(struct comm_communicator *c, struct comm_communicator **recorder);
enum comm_result engine_group_end(struct comm_communicator *recorder, struct comm_request *req);

/* ------------------------------------------------------------------------------------------------------------ events */
enum comm_result engine_event_create(struct comm_communicator *c, struct comm_event **event);
void engine_event_destroy(struct comm_event *event);
enum comm_result engine_event_record(struct comm_event *event, struct comm_communicator *c);
enum comm_result engine_event_reset(struct comm_event *event);
enum comm_result engine_event_set(struct comm_event *event);
enum comm_result engine_event_query(struct comm_event *event);
enum comm_result engine_event_sync(struct comm_event *event, int64_t timeout_ns);
enum comm_result engine_queue_wait_event(struct comm_communicator *c, struct comm_event *event);
enum comm_result engine_queue_wait_request(struct comm_communicator *c, struct comm_request request);

/* ------------------------------------------------------------------------------------------------------------ streams of a device */
enum comm_result engine_event_record_stream(struct comm_event *event, struct CUstream_st *stream);
enum comm_result engine_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream);
enum comm_result engine_stream_wait_event(struct CUstream_st *stream, struct comm_event *event);
enum comm_result engine_stream_wait_request(struct CUstream_st *stream, struct comm_request request);
enum comm_result engine_stream_of(struct comm_communicator *c, struct CUstream_st **stream);
enum comm_result engine_stream_sync(struct comm_communicator *c, int64_t timeout_ns);

/* ------------------------------------------------------------------------------------------------------------ telling */
enum comm_result engine_error_detail(struct comm_communicator *c, struct comm_error *error);
enum comm_result engine_describe_backend(size_t index, struct comm_backend_info *info);
enum comm_result engine_describe(struct comm_communicator *c, struct comm_info *info);
enum comm_result engine_describe_peer(struct comm_communicator *c, int32_t peer, struct comm_peer_info *info);
enum comm_result engine_describe_request(struct comm_request request, struct comm_request_info *info);
enum comm_result engine_statistics(struct comm_communicator *c, struct comm_stats *stats);
enum comm_result engine_trace_dump(struct comm_communicator *c, const char *path);
enum comm_result engine_explain(struct comm_communicator *c, const struct comm_call *call, char *text, size_t bytes);
enum comm_result engine_describe_machine(struct comm_communicator *c, char *text, size_t bytes);
enum comm_result engine_describe_algorithm(size_t index, struct comm_algorithm_info *info);
enum comm_result engine_predict(struct comm_communicator *c, const struct comm_call *call, const char *algorithm, const char *machine,
                                double *ns);

#endif
