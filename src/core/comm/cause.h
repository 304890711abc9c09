/*
 * How a communicator fails: the one cause that all its members adopt, the notes that they send each other, and the files that find causes.
 * comm/differ.c compares calls, comm/down.c handles peers that closed or died, comm/deadline.c and failure/watch.c detect silence and
 * delay, and failure/deadlock.c finds queue waits that wait for each other.
 */
#ifndef COMM_CAUSE_H
#define COMM_CAUSE_H

#include "comm/entry.h"
#include "program/program.h"
#include "wire/wire.h"

struct comm_state;
struct engine;

enum {
    NOTE_FAILED = 0, /* kinds of notes */
    NOTE_REFUSED = 1,
    NOTE_CLOSED = 2,
    NOTE_QUEUE_WAIT = 3,
    NOTE_RECOVERY = WIRE_NOTE_LONG,
    DEADLOCK_WAITS = 64, /* open queue waits that are examined together */
    WAIT_HALVES = 4,     /* if a group waits for messages of more ranks, the rest are not reported */
    WAIT_RECEIVE = COLLECTIVE_END,
    WAIT_SEND,
};

/* A cause, in the form in which notes carry it. */
struct cause {
    uint64_t number;    /* collective sequence number; 0: none */
    int32_t rank, peer; /* the rank that failed and the rank that detected it; ranks of the communicator; -1: unknown */
    int32_t result, system_errno;
    uint32_t collective; /* of the call of `rank`; 0: none */
    /* comm_abort: its code. Refusal: its reason. Rank that closed: its last sequence number. Silence: its milliseconds; 0: the process
     * ended; negative: its host is unreachable too. */
    int32_t code;
    uint32_t point; /* DEPENDENCY: result of the first cause; CLOSED, 1: its data were lost; BACKEND, 1: a device copy was refused */
    uint32_t reserved;
};
_Static_assert(sizeof(struct cause) <= WIRE_NOTE_BYTES, "a cause is a note");

/* An open queue wait, as its rank reports it (failure/deadlock.c). */
struct wait_note {
    uint64_t of;        /* id of its communicator */
    uint64_t waits_for; /* id of the communicator whose request it waits for; 0: not certain yet */
    uint32_t started;   /* the last collective of its own communicator before it */
    uint32_t round;     /* for how many looks it has not changed; 0: it is not open any more */
    uint32_t head;      /* the collective at the head of the other queue; 0: a queue wait */
    uint8_t collective; /* of the head; or WAIT_RECEIVE, WAIT_SEND: it waits for messages and needs all of them */
    uint8_t halves;     /* how many of those need their other half from another rank */
    uint8_t behind;     /* 1: one of those is blocked by a queue wait of its own communicator */
    uint8_t quiet;      /* 1: none of its rank's messages in `of` is in flight, so peers get nothing more from it before this wait ends */
    union {
        int32_t root; /* of the collective */
        uint16_t half[WAIT_HALVES];
    };
    int32_t rank;   /* the rank that reports it, in its communicator */
    uint32_t which; /* differs from wait to wait: made of the wait and of the progress of the other communicator */
};
_Static_assert(sizeof(struct wait_note) <= WIRE_NOTE_BYTES, "it is a note");
/* A wait in another communicator of the sender's world, which this rank may not be a member of. */
struct far_wait {
    struct wait_note note;
    int64_t heard_ns;
    int32_t peer;
};
struct wait_watch {
    uint64_t ticket, done; /* at the last look: the wait, and the last retired ticket of the other communicator */
    struct wait_note mine, *theirs;
    struct far_wait *far; /* [DEADLOCK_WAITS] waits in other communicators of the world */
    uint32_t next_far, turn;
};

/* The newest call that a rank refused, and which of the 32 calls before it were refused too. Refusal notes carry this, and it is kept for
 * every member, because a member's published calls may be overwritten long before another rank reaches them. */
struct refusals {
    uint64_t last;
    uint32_t before; /* bit i: call last - 1 - i */
    int32_t reason;  /* of the last refusal */
};

/* A consistent copy of a published call. */
struct made_call {
    uint64_t n;
    uint32_t fingerprint, chain, op;
    int32_t root, refused;
    uint8_t collective, type, flags;
};

/* fail.c, differ.c */
bool state_check_peers(struct comm_state *b, const struct entry *e); /* false: it proposed a failure */
/* false: the rank has not made the call, it is not visible here yet, or it was overwritten */
bool state_read_call(const struct comm_state *b, int32_t rank, uint32_t seq, struct made_call *call);
bool state_has_published(const struct comm_state *b, int32_t rank, uint64_t number); /* true also where calls are not published */
void state_propose(struct comm_state *b, const struct cause *cause);
/* Proposes that this rank's own operation failed. code: of the library that did it; 0: none. */
void state_propose_own(struct comm_state *b, const struct entry *e, enum comm_result result, int32_t code);
void state_attend(struct comm_state *b); /* adopts the cause that the board names, if its note is here */
void state_note(struct comm_state *b, const struct wire_event *event);
void state_mismatch(struct comm_state *b, uint32_t seq, int32_t peer);
void state_hear_refusal(struct comm_state *b, int32_t peer, const struct cause *note);
bool state_lengths_agree(struct comm_state *b, uint32_t seq); /* compares the edges of a ragged library call; false: proposed a failure */
void state_compare(struct comm_state *b); /* compares the members' published calls with this rank's, as far as all have made them */
void state_send_note(struct comm_state *b, uint32_t sort, const void *bytes, size_t count);
/* for an unfinished entry; the same meaning as record.waited */
uint16_t state_waits_for(const struct comm_state *b, const struct entry *e);
void state_tell_close(struct comm_state *b);
void state_tell_refusal(struct comm_state *b, uint64_t number, enum comm_result reason);
/* a refusal note was received, and all earlier calls of that rank are published */
bool state_knows_refused(const struct comm_state *b, int32_t rank, uint64_t number);

void state_mark_abort(struct comm_state *b, const struct cause *cause); /* aborts the world: its monitor fails the other communicators */
void state_end_recovery(struct comm_state *b);                          /* also ends agree and shrink of a failed communicator */

/* heard.c: NULL if valid; otherwise the fault, as text after "rank N sent" */
const char *heard_note_fault(const struct comm_state *b, const struct wire_event *event);
const char *heard_message_fault(const struct wire_event *event);
/* The peer sent something invalid: the communicator fails with CORRUPT. */
void state_peer_is_wrong(struct comm_state *b, int32_t peer, const char *what);
bool heard_is_error(int32_t result);
bool heard_is_result(int32_t result); /* true also for OK */

/* deadline.c */
void state_check(struct comm_state *b, int64_t now);

/* down.c */
/* the wire reported that this member has closed or died */
void state_down(struct comm_state *b, int32_t rank, const struct wire_event *event);
void state_lost(struct comm_state *b, const struct wire_event *event);
/* True if the rank has closed, and none of its messages is still in flight. */
bool state_has_left(const struct comm_state *b, int32_t rank);
void state_hear_down(struct comm_state *b); /* members that closed or died while the communicator was created */

#endif
