/*
 * What ranks hear from each other beside calls and messages: notes of failures, refusals, closes, queue waits and agreements
 * (recovery_note.h), and the validation of all that a peer sends. This room has no state, and knows of a communicator only struct heard_by.
 */
#ifndef HEARD_HEARD_H
#define HEARD_HEARD_H

#include "wire/collective.h"
#include "wire/wire.h"

enum {
    NOTE_FAILED = 0, /* kinds of notes */
    NOTE_REFUSED = 1,
    NOTE_CLOSED = 2,
    NOTE_QUEUE_WAIT = 3,
    NOTE_RECOVERY = WIRE_NOTE_LONG,
    WAIT_HALVES = 4, /* if a group waits for messages of more ranks, the rest are not reported */
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

/* The communicator that hears a note. */
struct heard_by {
    uint64_t id, sequence; /* sequence: the number of its newest call */
    int32_t size, ranks;   /* its members; those of its world */
    bool recovers;         /* it is small enough for agree and shrink */
};

/* NULL if valid; otherwise the fault, as text after "rank N sent" */
const char *heard_note_fault(const struct heard_by *by, const struct wire_event *event);
const char *heard_message_fault(const struct wire_event *event);
bool heard_is_error(int32_t result);
bool heard_is_result(int32_t result); /* true also for OK */

#endif
