/*
 * How a communicator fails: the one cause that all its members adopt, what they tell each other in notes, and who works it out: fail.c from
 * calls that differ and from peers, watch.c from silence and death, deadlock.c from queue waits that wait for each other.
 */
#ifndef COMM_CAUSE_H
#define COMM_CAUSE_H

#include "comm/entry.h"
#include "program/program.h"
#include "wire/wire.h"

struct comm_state;
struct engine;

enum {
    NOTE_FAILED = 0, /* sorts of notes */
    NOTE_REFUSED = 1,
    NOTE_CLOSED = 2,
    NOTE_FENCE = 3,
    NOTE_RECOVERY = WIRE_NOTE_LONG,
    DEADLOCK_WAITS = 64, /* open queue waits that are looked at together */
    FENCE_HALVES = 4,    /* of a group that waits for messages of more ranks some are not told */
    FENCE_RECEIVE = COLLECTIVE_END,
    FENCE_SEND,
};

/* The one cause, as it travels in a note. */
struct cause {
    uint64_t number;    /* collective sequence number; 0: none */
    int32_t rank, peer; /* who failed, who found out; -1 unknown; ranks of the communicator */
    int32_t result, system_errno;
    uint32_t collective; /* of rank's call; 0: none */
    int32_t code;        /* of comm_abort; the reason of a refusal; the last number of a rank that closed; ms of silence, 0: it
                            ended, less: of its host too */
    uint32_t point;      /* DEPENDENCY: the first cause's result; CLOSED, 1: what it sent was lost; BACKEND, 1: a device copy was refused */
    uint32_t reserved;
};
_Static_assert(sizeof(struct cause) <= WIRE_NOTE_BYTES, "a cause is a note");

/* An open queue wait, as its rank tells it (deadlock.c). */
struct fence_note {
    uint64_t of;        /* the identity of its communicator */
    uint64_t waits_for; /* and of the one whose request it waits for; 0: not certain yet */
    uint32_t started;   /* the last collective of its own communicator that stands before it */
    uint32_t round;     /* for how many looks it has been so; 0: not, or no more */
    uint32_t head;      /* the collective at the head there; 0: a queue wait */
    uint8_t collective; /* of the head; or FENCE_RECEIVE, FENCE_SEND: it waits for messages, none of which may be missing, ... */
    uint8_t halves;     /* ... of which so many have their other halves at other ranks, ... */
    uint8_t behind;     /* ... and 1: one stands behind a queue wait of its own communicator */
    uint8_t quiet;      /* 1: none of its rank's messages in `of` is on its way: peers get nothing more of it before this wait ends */
    union {
        int32_t root; /* of the collective */
        uint16_t half[FENCE_HALVES];
    };
    int32_t rank;   /* who tells it, in its communicator */
    uint32_t which; /* of the wait and of how far the other one was: another number for another wait */
};
_Static_assert(sizeof(struct fence_note) <= WIRE_NOTE_BYTES, "it is a note");
/* One of a communicator that the teller's world knows and this rank perhaps not. */
struct far_wait {
    struct fence_note note;
    int64_t heard_ns;
    int32_t peer;
};
struct fence_watch {
    uint64_t ticket, done; /* at the last look: the wait, and how far the other communicator was */
    struct fence_note mine, *theirs;
    struct far_wait *far; /* [DEADLOCK_WAITS] of a world's communicator */
    uint32_t next_far, turn;
};

/* The newest call that a rank refused, and which of the 32 before it: what its note carries, and what is kept of every member's, since the
 * calls that it publishes may be written over long before another rank comes to them. */
struct refusals {
    uint64_t last;
    uint32_t before; /* bit i: call last - 1 - i */
    int32_t reason;  /* of the last */
};

/* A published call, read whole. */
struct made_call {
    uint64_t n;
    uint32_t fingerprint, chain, op;
    int32_t root, refused;
    uint8_t collective, type, flags;
};

/* fail.c */
bool state_check_peers(struct comm_state *b, const struct entry *e); /* false: it proposed a failure */
bool state_read_call(const struct comm_state *b, int32_t rank, uint32_t seq,
                     struct made_call *call); /* false: not made, not seen, or long ago */
void state_propose(struct comm_state *b, const struct cause *cause);
void state_lacks_memory(struct comm_state *b, const struct entry *e); /* that this rank needs for its call: proposes so */
void state_attend(struct comm_state *b);                              /* adopts what the board says, if it is known here */
void state_note(struct comm_state *b, const struct wire_event *event);
void state_mismatch(struct comm_state *b, uint32_t seq, int32_t peer);
void state_hear_refusal(struct comm_state *b, int32_t peer, const struct cause *note);
bool state_lengths_agree(struct comm_state *b, uint32_t seq); /* of the edges of a ragged call of the library's; false: proposed */
void state_compare(struct comm_state *b);                     /* the members' published calls with ours, as far as all have made them */
void state_send_note(struct comm_state *b, uint32_t sort, const void *bytes, size_t count);
uint16_t state_waits_for(const struct comm_state *b, const struct entry *e); /* of an unfinished one; as record.waited */
void state_tell_close(struct comm_state *b);
void state_tell_refusal(struct comm_state *b, uint64_t number, enum comm_result reason);
bool state_knows_refused(const struct comm_state *b, int32_t rank, uint64_t number); /* heard so, and in the order of its calls */

void state_mark_abort(struct comm_state *b, const struct cause *cause); /* the world: its monitor fails the other communicators */
void state_end_recovery(struct comm_state *b);                          /* agree and shrink of a failed communicator end too */

/* heard.c: NULL, or what is wrong with it, said behind "rank N sent" */
const char *heard_note_fault(const struct comm_state *b, const struct wire_event *event);
const char *heard_message_fault(const struct wire_event *event);
/* It sent what it could not have sent: the communicator fails with CORRUPT. */
void state_peer_is_wrong(struct comm_state *b, int32_t peer, const char *what);
bool heard_is_error(int32_t result);
bool heard_is_result(int32_t result); /* or OK */

/* deadline.c */
void state_check(struct comm_state *b, int64_t now);

/* down.c */
void state_down(struct comm_state *b, int32_t rank, const struct wire_event *event); /* its wire said that this member is gone */
void state_lost(struct comm_state *b, const struct wire_event *event);
/* It has closed, and no message of it is still to come. */
bool state_has_left(const struct comm_state *b, int32_t rank);
void state_hear_down(struct comm_state *b); /* of members that went while it was made */

#endif
