/* A communicator that is being created: the state that split, dup and subset share. The parent's lock is held in every call. */
#ifndef WORLD_CREATE_H
#define WORLD_CREATE_H

#include "comm/state.h"

struct creation {
    const struct comm_env *env;
    struct comm_communicator **out;
    struct comm_state *child;      /* created; only this struct refers to it until it is handed over */
    uint32_t references;           /* the call that issues the stages, and each stage that has not ended */
    uint32_t connected, abandoned; /* abandoned: a stage could not be issued, so no child is created */
    int64_t color;
    int32_t key, size;
    uint64_t number, identity; /* both go into the child's id: the first stage's number, and what distinguishes children of one number */
    struct comm_options options;
    char name[32];
    char forced[256];
    uint32_t dup;
    int32_t ready;              /* the result that the last stage sends */
    enum comm_result result;    /* the result of the whole creation */
    struct team_ticket mine[2]; /* what the first two stages send */
    struct team_ticket *all[2]; /* `size` entries each, by rank in the parent */
    int32_t *all_ready, *members;
    struct team_offer *offers; /* of the members, in order */
    bool connecting;           /* the wire is connected, the native not yet */
};

struct creation *creation_make(struct comm_state *b, struct comm_communicator **out); /* one reference; NULL: no memory */
void creation_drop(struct creation *n);
/* Calls the child PARENT/OWN, with as much of a long parent's name as there is room for. */
void creation_name(struct creation *n, const char *parent, const char *own);
/* Creates this rank's part of the child with members[0 .. count). Writes its offer, or the error, into mine[1]. */
void creation_offer(struct comm_state *parent, struct creation *n, int32_t count);
/* Connects the child, when all[1] has the offers of all. PENDING: call again. Otherwise `ready` has the result. */
enum comm_result creation_connect(struct creation *n);
/* From all_ready: OK, or the first error. With OK the child is without its library if some member lacks only that. */
enum comm_result creation_agreed(struct creation *n);
void creation_hand_over(struct creation *n); /* sets *out to the child, if this rank is a member */
/* The parent failed before this rank got the child, but other ranks may have it: fails the child for them. */
void creation_fail(const struct comm_state *parent, struct creation *n);

#endif
