/*
 * Collectives that a library does in place of our programs (NCCL, MPI): how `comm` calls the room that drives it. A communicator that has
 * one has this table; what the library itself offers is wire/native.h.
 */
#ifndef COMM_LIBRARY_H
#define COMM_LIBRARY_H

#include "comm/entry.h"

struct native_message;
struct stage;
struct collective_library {
    /* OK: the library does it. UNSUPPORTED: a program does. Anything else refuses the call; the text is in last_refused. */
    enum comm_result (*takes)(struct comm_state *b, const struct engine_call *call);
    bool (*issue)(struct comm_state *b, const struct engine_call *call, struct comm_request *req); /* the short way; false: not taken */
    bool (*wait_short)(struct comm_state *b, uint64_t ticket);                                     /* looks for a moment; true: it ended */
    bool (*may_not_start)(const struct comm_state *b, uint64_t ticket);
    void (*start)(struct comm_state *b, uint64_t ticket, struct entry *e);
    enum comm_result (*wait)(struct comm_state *b, struct entry *e, const struct timeline_point *point); /* a queue wait, by its stream */
    enum comm_result (*messages)(struct comm_state *b, struct entry *e, const struct native_message *messages, uint32_t count);
    bool (*is_device_memory)(struct comm_state *b, const void *memory);
    enum comm_result (*joined)(struct comm_state *b);  /* PENDING: its other members have not met yet */
    bool (*step)(struct comm_state *b);                /* a pass, before the queue; true: something moved */
    void (*tend)(struct comm_state *b);                /* at a tick, and before a thread sleeps: does what the library owes to peers */
    void (*active)(struct comm_state *b, bool active); /* it has, or no longer has, something that a pass could move */
};

/* Operations on buffers of a device (staged/): what becomes of an entry that has one. */
struct staged_calls {
    enum comm_result (*prepare)(struct comm_state *b, const struct engine_call *call, struct entry *e); /* as collective_library's takes */
    bool (*may_not_start)(const struct comm_state *b, const struct entry *e); /* enough run, which do not wait for it */
    void (*start)(struct comm_state *b, uint64_t ticket, struct entry *e);    /* its turn has come */
    bool (*stored)(struct comm_state *b, uint64_t ticket, struct entry *e);   /* it has run. False: its output is on the way, and
                                                                                 state_end_work is called when it is there */
    bool (*step)(struct comm_state *b);                                       /* true: something moved */
    void (*forget)(struct comm_state *b, struct entry *e);                    /* it is over, or dropped */
    uint32_t (*held)(const struct stage *stage);                              /* COMM_INFO_BUFFERS_HELD while a copy is under way, else 0 */
};

/* What is called on a recorder is kept in a plan (plan/), not done. */
struct message_call;
struct call_recorder {
    enum comm_result (*call)(struct comm_state *recorder, const struct engine_call *call);
    enum comm_result (*message)(struct comm_state *recorder, const struct message_call *message);
    enum comm_result (*wait)(struct comm_state *recorder, struct comm_event *event, const struct timeline_point *point);
    void (*refused)(struct comm_state *recorder, enum comm_result reason); /* a call on it was */
};

#endif
