/*
 * Collectives that a library does instead of programs (NCCL, MPI). A communicator with such a library has this table, through which `comm`
 * calls the room that drives it. wire/native.h has the library's own interface.
 */
#ifndef COMM_COLLECTIVE_LIBRARY_H
#define COMM_COLLECTIVE_LIBRARY_H

#include "comm/entry.h"

struct native_message;
struct stage;
struct collective_library {
    /* OK: the library does the call. UNSUPPORTED: a program does it. Any other result refuses the call; the text is in last_refused. */
    enum comm_result (*takes)(struct comm_state *b, const struct engine_call *call);
    /* what a request of this call would say that it ran on device buffers, and how, if that is not the library's name; otherwise NULL */
    const char *(*algorithm)(struct comm_state *b, const struct engine_call *call, const char **how);
    bool (*issue)(struct comm_state *b, const struct engine_call *call, struct comm_request *req); /* the short path; false: not taken */
    /* issues the last call of the short path with other buffers, as engine_repeat; counts NULL: it has none */
    bool (*repeat)(struct comm_state *b, const void *in, void *out, size_t n, uint64_t what, uint64_t where, const size_t *counts,
                   const size_t *displs, struct comm_request *req);
    /* issues a call of a plan that the library keeps between its starts (native/standing.h); UNSUPPORTED: it does not, nothing happened */
    enum comm_result (*issue_standing)(struct comm_state *b, const struct engine_call *call, struct standing **standing, uint32_t plan,
                                       struct comm_request *req);
    void (*stand_back)(struct comm_state *b, struct standing *standing); /* the plan is freed */
    bool (*wait_short)(struct comm_state *b, uint64_t ticket);           /* polls briefly; true: the entry ended */
    bool (*may_not_start)(const struct comm_state *b, uint64_t ticket);
    void (*start)(struct comm_state *b, uint64_t ticket, struct entry *e);
    /* a queue wait, which the library's stream does */
    enum comm_result (*wait)(struct comm_state *b, struct entry *e, const struct timeline_point *point);
    enum comm_result (*messages)(struct comm_state *b, struct entry *e, const struct native_message *messages, uint32_t count);
    void (*group)(struct comm_state *b, bool open); /* the calls of a group are issued between open and not open */
    bool (*is_device_memory)(struct comm_state *b, const void *memory);
    enum comm_result (*joined)(struct comm_state *b);  /* PENDING: it has not connected to the other members yet */
    void (*drop)(struct comm_state *b);                /* all members do without the library, since one could not connect; takes the lock */
    bool (*step)(struct comm_state *b);                /* in each pass, before the queue; true: something moved */
    void (*tend)(struct comm_state *b);                /* at a tick, and before a thread sleeps: does what the library owes to peers */
    void (*active)(struct comm_state *b, bool active); /* whether there is work that a pass could move */
    /* from when on the deadline of a started entry counts; INT64_MAX: not yet. Asked in the order of the queue */
    int64_t (*since)(struct comm_state *b, uint64_t ticket, const struct entry *e);
};

/* Operations on device buffers (staged/): the steps of an entry that has one. */
struct staged_calls {
    /* once it is known what does the call; the same results as `takes` of collective_library */
    enum comm_result (*prepare)(struct comm_state *b, const struct engine_call *call, struct entry *e);
    /* true: enough operations run already; none of them waits for this one */
    bool (*may_not_start)(const struct comm_state *b, const struct entry *e);
    void (*start)(struct comm_state *b, uint64_t ticket, struct entry *e); /* its turn has come */
    /* The operation has run. False: its output is being copied, and state_end_work is called again afterwards. */
    bool (*stored)(struct comm_state *b, uint64_t ticket, struct entry *e);
    bool (*step)(struct comm_state *b);                    /* true: something moved */
    void (*forget)(struct comm_state *b, struct entry *e); /* it has retired, or was dropped */
    uint32_t (*held)(const struct stage *stage);           /* COMM_INFO_BUFFERS_HELD while a copy is in progress, otherwise 0 */
};

/* A recorder stores its calls in a plan (plan/) and does not execute them. */
struct message_call;
struct call_recorder {
    enum comm_result (*call)(struct comm_state *recorder, const struct engine_call *call);
    enum comm_result (*message)(struct comm_state *recorder, const struct message_call *message);
    enum comm_result (*wait)(struct comm_state *recorder, struct comm_event *event, const struct timeline_point *point);
    void (*refused)(struct comm_state *recorder, enum comm_result reason); /* a call on it was refused */
};

#endif
