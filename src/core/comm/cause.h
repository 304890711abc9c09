/*
 * How a communicator fails: the one cause that all its members adopt (heard/heard.h), and the files that find causes.
 * comm/differ.c compares calls, comm/down.c handles peers that closed or died, comm/deadline.c and failure/watch.c detect silence and
 * delay, and failure/deadlock.c finds queue waits that wait for each other.
 */
#ifndef COMM_CAUSE_H
#define COMM_CAUSE_H

#include "comm/entry.h"
#include "heard/heard.h"
#include "program/program.h"
#include "wire/wire.h"

struct comm_state;
struct engine;

enum { DEADLOCK_WAITS = 64 }; /* open queue waits that are examined together */
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

/* The peer sent something invalid: the communicator fails with CORRUPT. */
void state_peer_is_wrong(struct comm_state *b, int32_t peer, const char *what);

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
