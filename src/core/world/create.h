/* A communicator in the making: what a split, a dup and a subset share. Its parent's lock is held in every call. */
#ifndef WORLD_CREATE_H
#define WORLD_CREATE_H

#include "comm/state.h"

struct creation {
    const struct comm_env *env;
    struct comm_communicator **out;
    struct comm_state *child;      /* made; nobody's but ours until it is handed over */
    uint32_t references;           /* who may still look at this: the call that issues the stages, and each stage until it ended */
    uint32_t connected, abandoned; /* abandoned: a stage could not be issued, so nothing comes of it */
    int64_t color;
    int32_t key, size;
    uint64_t number, identity; /* both part of the child's id: the first stage's number, and what tells children of one number apart */
    struct comm_options options;
    char name[32];
    char forced[256];
    uint32_t dup;
    int32_t ready;              /* what the last stage sends: a result */
    enum comm_result result;    /* of it all */
    struct team_ticket mine[2]; /* what the first two send */
    struct team_ticket *all[2]; /* `size` each, by rank in the parent */
    int32_t *all_ready, *members;
    struct team_offer *offers; /* of the members, in their order */
    bool connecting;           /* the wire is connected, its native not yet */
};

struct creation *creation_make(struct comm_state *b, struct comm_communicator **out); /* NULL: no memory; one reference */
void creation_drop(struct creation *n);
/* Makes this rank's part of the child of members[0 .. count) and writes its offer, or why it could not, into mine[1]. */
void creation_offer(struct comm_state *parent, struct creation *n, int32_t count);
/* With everybody's offer in all[1]: connects. PENDING: asked again. Otherwise `ready` says how it went. */
enum comm_result creation_connect(struct creation *n);
enum comm_result creation_agreed(const struct creation *n); /* of all_ready: OK, or what one of them could not */
void creation_hand_over(struct creation *n);                /* *out becomes the child, if this rank has part in it */
/* The parent failed before this rank had the child, but others may have it: they learn why it is of no use. */
void creation_fail(const struct comm_state *parent, struct creation *n);

#endif
