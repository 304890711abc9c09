/*
 * What stands in a communicator's queue: collectives and waits in one line, messages and markers in another; the place that a running one
 * has, and what is kept of it for descriptions and traces.
 */
#ifndef COMM_ENTRY_H
#define COMM_ENTRY_H

#include "comm/call.h"
#include "program/program.h"

struct comm_state;
struct stage;
struct call_template;
struct pack;
struct user_op;

/* ENDED: its work is done, and what is returned is its result; then RETIRED, just before its request says so. Either may be DROPPED
 * instead, and nothing comes after that: the communicator failed. */
enum entry_phase { ENTRY_ENDED, ENTRY_RETIRED, ENTRY_DROPPED };
typedef enum comm_result entry_ended_fn(struct comm_state *state, enum entry_phase phase, void *arg);

/* What describe_request and traces tell of an operation. One cache line, so that keeping it is one copy. */
struct record {
    uint64_t ticket, bytes;
    int64_t queued_ns, started_ns, completed_ns;
    const char *algorithm;
    uint32_t sequence;
    uint16_t collective;
    uint16_t waited; /* 1 + the rank whose part came last of what was not there when it was looked for; 0: nobody's */
    int32_t result;
    uint32_t flags; /* COMM_INFO_* */
};
_Static_assert(sizeof(struct record) == 64, "one cache line");

/* Who does it: a program of ours, the communicator's native, or (a queue wait) the native's stream. */
enum entry_by { ENTRY_BY_PROGRAM = 0, ENTRY_BY_NATIVE, ENTRY_BY_STREAM };

struct entry {
    struct timeline_entry head;
    struct run_call call;
    struct comm_program *program; /* a reference */
    size_t *vectors;              /* copied counts and displs, of the state's pool; NULL: none */
    entry_ended_fn *ended;        /* a creating call's next stage */
    void *ended_arg;
    struct timeline_point point;    /* of a fence */
    struct user_op *user;           /* of the caller's own: a reference */
    struct pack *pack;              /* a group's small members as one: a reference */
    struct stage *stage;            /* of buffers of a device, once it has started */
    struct comm_window *window;     /* a fence of it */
    struct call_template *template; /* the small exchange's */
    uint32_t seq;
    uint8_t unshown, unread;     /* the small exchange's: spans not shown yet, and such that the wire has not read yet */
    bool spill;                  /* what comes does not fit: it is taken into memory of ours and thrown away */
    uint32_t fingerprint, chain; /* of this call alone; of this and all before it */
    int32_t root;
    uint64_t sum;         /* with check=buffers: of the input, when it started */
    uint8_t by;           /* enum entry_by */
    uint8_t flags;        /* ENGINE_CALL_* */
    uint8_t on_device;    /* CALL_*_ON_DEVICE */
    bool joining;         /* `ended` said PENDING: it is asked again in each pass */
    bool parked;          /* ENTRY_BY_STREAM: its point has not been reached */
    struct record record; /* as it will be kept; ticket, result and completed_ns at the end */
};

/* Scratch memory that no operation has now: its first bytes. */
struct spare {
    struct spare *next;
    size_t bytes;
};

/* One window place: a run and the memory it needs, which only grows. Scratch memory is the place's while its operation runs. */
struct place {
    struct run run;
    struct wire_view *views;
    uint32_t views_room;
    size_t scratch_room;
};

#endif
