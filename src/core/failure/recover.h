/*
 * What members of a failed communicator can still agree on: comm_agree and comm_shrink (docs/guide/recovery.md). Each member sends one long
 * note to all others. Only its own rank writes it, each note replaces the one before, and it contains everything that the others need. So
 * nothing is ever resent, and it does not matter if a newer note overtakes an older one. The communicator's lock is held in every call.
 */
#ifndef FAILURE_RECOVER_H
#define FAILURE_RECOVER_H

#include "comm/state.h"
#include "heard/recovery_note.h"
#include "failure/failure.h"

/* The new communicator while shrink creates it. */
struct shrinking {
    struct comm_communicator **out;
    struct comm_state *child;
    bool connected;
    /* A duplicate of the child, which the native has connected: the child is made without it. */
    struct comm_communicator *copy;
    struct comm_request copying;
    uint64_t base[RECOVERY_SET_WORDS]; /* the members that are left out */
    int32_t count;
    int32_t *members;          /* `count` ranks of the parent; in the same allocation as `offers` */
    struct team_offer *offers; /* the offers of the members */
};

/* The state of agree and shrink on one communicator. */
struct recovery {
    enum recovery_stage stage; /* IDLE: no call is in progress */
    /* words: 64-bit words of a set. reported: number in the key of the last note. */
    uint32_t words, reported;
    size_t note_bytes;
    bool changed;          /* this rank's note has changed since it was sent */
    enum comm_result over; /* the result with which this rank left the recovery; OK: it has not left */
    uint32_t op;           /* the request of the call */
    int64_t since_ns;
    uint32_t late_step;
    uint64_t *flags; /* agree: the caller's word */
    struct shrinking shrinking;
    struct comm_error error; /* of the last call */
    unsigned char notes[];   /* note_bytes for each rank, including this rank's own note */
};

/* recover.c */
void recovery_finish(struct comm_state *b, enum comm_result result);
void recovery_enter(struct comm_state *b, enum recovery_stage kind, uint64_t flags);

/* shrink.c */
void shrink_begin_child(struct comm_state *b);
bool shrink_take_offers(struct comm_state *b); /* true: it made progress */
bool shrink_take_copy(struct comm_state *b);
void shrink_conclude(struct comm_state *b); /* the agreement on whether every rank has its child, or its copy, has been decided */
void shrink_drop(struct comm_state *b);
void shrink_abandon(struct comm_state *b); /* other ranks may have the child: tells them that this rank does not */

static inline struct recovery_note *recovery_note(struct recovery *v, int32_t rank)
{
    return (struct recovery_note *)(void *)(v->notes + (size_t)rank * v->note_bytes);
}
static inline uint64_t *recovery_set(struct recovery *v, int32_t rank, enum recovery_set which)
{
    return recovery_note(v, rank)->set + (size_t)which * v->words;
}
static inline bool recovery_has(const uint64_t *set, int32_t rank)
{
    return set[rank / 64] >> rank % 64 & 1;
}
/* True: the rank was not in the set. */
static inline bool recovery_add(uint64_t *set, int32_t rank)
{
    bool is_new = !recovery_has(set, rank);

    set[rank / 64] |= UINT64_C(1) << rank % 64;
    return is_new;
}

#endif
