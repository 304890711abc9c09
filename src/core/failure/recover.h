/*
 * What members of a communicator still agree on when it has failed: comm_agree and comm_shrink (docs/guide/recovery.md). All of it goes by
 * one long note per member, which its rank alone writes, which replaces the one before, and which says everything that the others need: so
 * nothing is ever sent again, and a note that was overtaken is not missed. The communicator's lock is held in every call.
 */
#ifndef FAILURE_RECOVER_H
#define FAILURE_RECOVER_H

#include "comm/state.h"
#include "comm/recovery_note.h"
#include "failure/failure.h"

/* The child in the making. */
struct shrinking {
    struct comm_communicator **out;
    struct comm_state *child;
    bool connected;
    uint64_t base[RECOVERY_SET_WORDS]; /* who is left out */
    int32_t count;
    int32_t *members;          /* `count`, as ranks of the parent; in one piece with: */
    struct team_offer *offers; /* theirs */
};

struct recovery {
    enum recovery_stage stage; /* IDLE: no call is under way */
    uint32_t words, told;
    size_t note_bytes;
    bool changed;          /* this rank's note, since it was told */
    enum comm_result over; /* with what this rank left; OK: it has not */
    uint32_t op;           /* the call's request */
    int64_t since_ns;
    uint32_t late_step;
    uint64_t *flags; /* agree: the caller's */
    struct shrinking shrinking;
    struct comm_error error; /* of the last call */
    unsigned char notes[];   /* by rank, note_bytes each; this rank's own too */
};

/* recover.c */
void recovery_finish(struct comm_state *b, enum comm_result result);
void recovery_enter(struct comm_state *b, enum recovery_stage kind, uint64_t flags);

/* shrink.c */
void shrink_begin_child(struct comm_state *b);
bool shrink_take_offers(struct comm_state *b); /* true: it went on */
void shrink_conclude(struct comm_state *b);    /* the agreement on whether everybody is ready has been decided */
void shrink_drop(struct comm_state *b);
void shrink_abandon(struct comm_state *b); /* others may have the child: they learn that this rank has not */

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
/* True: it was not there yet. */
static inline bool recovery_add(uint64_t *set, int32_t rank)
{
    bool is_new = !recovery_has(set, rank);

    set[rank / 64] |= UINT64_C(1) << rank % 64;
    return is_new;
}

#endif
