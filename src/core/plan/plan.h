/*
 * What plans and groups are made of: a list of recorded steps. A plan keeps its list and starts it again and again; a group starts it once,
 * or adds it to the plan on whose recorder it was made. Private to this room.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "message/message.h"
#include "comm/state.h"

enum plan_step_kind { STEP_CALL, STEP_P2P, STEP_WAIT };
struct plan_step {
    enum plan_step_kind kind;
    uint32_t vectors; /* of a v form: which block of them */
    struct engine_call call;
    struct message_call message;
    struct comm_event *event;    /* its point is copied at each start; NULL: the point below */
    struct timeline_point point; /* of a request: never a gate's, so it holds nothing */
    struct pack *pack;           /* of a call that stands for several: a reference */
};

struct comm_plan {
    struct engine *engine;
    struct comm_communicator *target;
    uint64_t target_life; /* the target's `first` when recording began: a reused handle is another communicator */
    struct plan_step *step;
    size_t *vectors; /* blocks of BODY_VECTORS * size */
    uint32_t count, room, vector_count, vector_room, size, messages;
    uint32_t doubles;         /* calls that are two entries and may end alone with an error */
    bool group;               /* of comm_group_begin */
    struct call_shape alone;  /* known: one call and nothing else, with no counts, which may be a small exchange */
    enum comm_result refused; /* a group's: the first call that was refused */
    _Atomic uint32_t references;
};

/* A recorder for calls on c, which is no recorder of a group. */
enum comm_result plan_begin(struct comm_communicator *c, bool group, struct comm_communicator **recorder);
/* Ends the recording; NULL: it is none of that kind, *r says so. */
struct comm_plan *plan_take(struct comm_communicator *recorder, bool group, enum comm_result *r);
enum comm_result plan_add(struct comm_plan *plan, const struct plan_step *step); /* takes over the step's pack, if it is COMM_OK */
enum comm_result plan_add_call(struct comm_plan *plan, const struct engine_call *call, uint32_t flags);
/* The call with its vectors. */
struct engine_call plan_call(const struct comm_plan *plan, uint32_t i);
/* All of it or nothing, as far as room goes. */
enum comm_result plan_start(struct comm_state *b, struct comm_plan *plan, struct comm_request *req);
void plan_drop(struct comm_plan *plan);

/* bytes.c: call->in is where the caller keeps the length, call->out its buffer */
enum comm_result bytes_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req);

#endif
