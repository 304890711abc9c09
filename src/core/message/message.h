/*
 * message: sends and receives of one communicator, matched here and nowhere else, above the wire: order is kept per ordered pair and a
 * receive matches the oldest arrival of its peer and tag. Calls are made under the communicator's lock. Self-sends match without the wire.
 *
 * The timeline is not known here: what completes is told by index to whoever drives this room, through message_finished.
 */
#ifndef MESSAGE_MESSAGE_H
#define MESSAGE_MESSAGE_H

#include <commstream/message.h>

#include "wire/wire.h"

#define MESSAGE_COOKIE UINT32_C(0x80000000) /* bit 31 of the upper half of a cookie: an event of this room, not of a run */

struct message_room; /* opaque; one per communicator */

/* Whose a message is: the program's, or the library's own, which no program sends or receives. It travels as the round of the key. A
 * receive of the library's takes the oldest that came: a setup message whoever sent it, the others of one peer. */
enum message_kind { MESSAGE_PROGRAM = 0, MESSAGE_SETUP, MESSAGE_ASK, MESSAGE_ANSWER, MESSAGE_KINDS };

/* A send or a receive as its caller gave it. */
struct message_call {
    void *buf; /* a send only reads it */
    size_t bytes;
    int32_t peer;
    uint32_t tag;
    struct comm_status *status; /* receives; NULL: not wanted */
    uint32_t slot;              /* the caller's name for it, given back in message_finished */
    bool is_send;
    bool on_device; /* buf is a device's, when the caller gives it; not looked at here */
    uint8_t kind;   /* enum message_kind; but for MESSAGE_PROGRAM tag is not looked at */
};
struct message_finished {
    uint32_t slot;
    enum comm_result result; /* OK, TRUNCATED, CANCELLED, MISMATCH (the wire's word), MEMORY, or message_fail's */
    int32_t peer;            /* of what was matched */
    size_t bytes;            /* sent, or received: what came */
};

/* depth: how many may be posted, their results not taken, before post says FULL (memory is taken in steps, never in a post below the
   high-water mark). Arrivals without a receive cannot be refused and do not count. Touches the channel at the first send or match, not
   before. */
enum comm_result message_open(const struct comm_env *env, struct wire_channel *channel, int32_t rank, int32_t size, uint32_t depth,
                              struct message_room **room);
void message_close(struct message_room *room);
/* OK, or what every post is answered from now on: an arrival was lost for want of memory. */
enum comm_result message_refused(const struct message_room *room);
/* COMM_OK: pending or already finished (in the finished list); FULL, MEMORY, or what the room failed with: nothing happened. (The
   library's own are few, and not refused for the depth.) There was no memory for an arrival: its order would be lost, so all unmatched
   receives end with MEMORY and every later post is answered so. */
enum comm_result message_post(struct message_room *room, const struct message_call *call);
bool message_setup(const struct message_room *room);    /* whether one came and was not taken */
uint32_t message_came(const struct message_room *room); /* how many asks and answers came, of all peers, and were not taken */
/* Whether one of kind (MESSAGE_ASK or MESSAGE_ANSWER) came from peer and was not taken, and how long the oldest is. */
bool message_came_from(const struct message_room *room, enum message_kind kind, int32_t peer, size_t *bytes);
/* COMM_OK: an unmatched receive ended with `result`: CANCELLED, or TIMEOUT (in the finished list); STATE: matched already, or no such slot.
 */
enum comm_result message_cancel(struct message_room *room, uint32_t slot, enum comm_result result);
void message_cancel_all(struct message_room *room); /* every unmatched receive: for close */
/* Whether a receive for peer and tag (both may be open) would be matched now; status, if wanted, is of what it would get. */
bool message_probe(const struct message_room *room, int32_t peer, uint32_t tag, struct comm_status *status);
/* An ANNOUNCED message, or a DONE whose cookie has MESSAGE_COOKIE. */
void message_event(struct message_room *room, const struct wire_event *event);
/* Sends and takes what had no room before. True: something moved. */
bool message_step(struct message_room *room);
uint32_t message_take_finished(struct message_room *room, struct message_finished *out, uint32_t max);
uint32_t message_pending(const struct message_room *room); /* posted, not finished */
bool message_wants_step(const struct message_room *room);  /* something had no room */
/* For who looks for circles, seldom. Whether the message of that slot was announced or posted, and its other half has not met it (a send
 * may be under way all the same: its receiver knows) ... */
bool message_waits(const struct message_room *room, uint32_t slot);
/* ... and whether nothing of this rank's is on its way: every send was handed to the wire, and no receive that was matched is unfinished.
 */
bool message_is_quiet(const struct message_room *room);
/* The communicator failed: forget everything; slots of all that were pending are written to out through take_finished with `result`. */
void message_fail(struct message_room *room, enum comm_result result);

#endif
