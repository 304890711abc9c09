/*
 * The data of plans and groups: a list of recorded steps. A plan keeps its list and starts it many times. A group starts its list once, or
 * adds it to a plan if it was begun on the recorder of that plan. Private to this room.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "message/message.h"
#include "comm/state.h"

enum plan_step_kind { STEP_CALL, STEP_P2P, STEP_WAIT };
struct plan_step {
    enum plan_step_kind kind;
    bool late;        /* issued after all that the stream does; known from the first start on */
    uint32_t vectors; /* of a call with counts: index of its block in `vectors` */
    struct engine_call call;
    struct message_call message;
    struct comm_event *event;    /* NULL: none */
    struct timeline_point point; /* of a wait: the point of a request, or, during a start, the one that the event held when that began */
    struct pack *pack;           /* of a call that combines several: a reference */
    struct standing *standing;   /* of a call that the library keeps between starts: a reference */
};

struct comm_plan {
    struct engine *engine;
    struct comm_communicator *target;
    uint64_t target_life; /* the target's `life` when recording began; another value means that the handle was reused */
    struct plan_step *step;
    size_t *vectors; /* blocks of STATE_VECTORS * size values */
    uint32_t count, room, vector_count, vector_room, size, messages;
    uint32_t waits;           /* queue waits */
    uint32_t doubles;         /* calls that are two entries and may end alone with an error */
    uint32_t number;          /* for a library that keeps its calls between starts; 0: none does */
    bool group;               /* made by comm_group_begin */
    bool conflicts;           /* of a group: two calls use the same memory */
    bool in_turn, has_stream; /* from the first start on a stream: `late` is known; a stream does some steps */
    struct call_shape alone;  /* known: the plan is one call without counts, which may be a small exchange */
    enum comm_result refused; /* the result of the first call that was not recorded; its end returns it */
    _Atomic uint32_t references;
};

/* Makes a recorder for calls on c. c must not be the recorder of a group. */
enum comm_result plan_begin(struct comm_communicator *c, bool group, struct comm_communicator **recorder);
/* Ends the recording. NULL: it is not a recorder of that kind, and *r says so. */
struct comm_plan *plan_take(struct comm_communicator *recorder, bool group, enum comm_result *r);
enum comm_result plan_add(struct comm_plan *plan, const struct plan_step *step); /* on COMM_OK it takes over the step's pack */
enum comm_result plan_add_call(struct comm_plan *plan, const struct engine_call *call, uint32_t flags);
enum comm_result plan_keep(struct comm_plan *plan, enum comm_result r); /* returns r, the result of a call that is recorded */
/* The recorded call, with its vectors. */
struct engine_call plan_call(const struct comm_plan *plan, uint32_t i);
/* Locks the communicator that the plan was recorded for. NULL: it was closed, and *r says so. */
struct comm_state *plan_lock_target(const struct comm_plan *plan, enum comm_result *r);
/* Starts all steps. If there is no room for all of them, starts none (FULL). */
enum comm_result plan_start(struct comm_state *b, struct comm_plan *plan, struct comm_request *req);
void plan_drop(struct comm_plan *plan);

/* group.c: the memory that a step uses */
struct plan_ranges {
    struct timeline_range read, write;
};
struct plan_ranges plan_ranges_of(const struct comm_state *b, const struct plan_step *step);
static inline bool plan_meet(const struct plan_ranges *a, const struct plan_ranges *b)
{
    return timeline_meet(&a->write, &b->read) || timeline_meet(&a->write, &b->write) || timeline_meet(&a->read, &b->write);
}

/* stream.c: steps of a plan whose communicator has a stream, and messages of device memory that are staged beside it */
/* Must a call that the stream does come after such a message of the same plan? Locks the communicator. */
bool plan_overtakes(const struct comm_plan *plan);
/* What a stream does starts inside the call, so no program of the same plan may be before it: a program waits for its peers. The order
 * between the two does not matter, since programs use the host's memory and the stream the device's, and it is the same on all ranks.
 * False: a program that was queued earlier holds the stream back, and nothing happened. */
bool plan_put_in_turn(struct comm_state *b, struct comm_plan *plan);
/* Before anything starts: FULL, or ARGUMENT if such messages cannot be ordered with the stream now. *behind: an entry behind what the
 * stream has now, if there are such messages. */
enum comm_result plan_meet_stream(struct comm_state *b, const struct comm_plan *plan, uint64_t *behind);
/* Such messages that are posted from now on follow all that the stream does; those of a group follow `behind`. Until b->p2p.follows is 0.
 */
enum comm_result plan_follow_stream(struct comm_state *b, const struct comm_plan *plan, uint64_t behind);

/* waits.c. Between keep and leave the queue waits of the plan have their points, and room on the stream. FULL, UNSUPPORTED: nothing is
 * kept. */
enum comm_result plan_keep_waits(struct comm_state *b, struct comm_plan *plan);
void plan_leave_waits(struct comm_state *b, struct comm_plan *plan);

/* broadcast_bytes.c: call->in points to the caller's length, call->out to its buffer */
enum comm_result bytes_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req);

#endif
