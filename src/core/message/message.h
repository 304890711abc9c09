/*
 * message: sends and receives of one communicator. All matching is done here, above the wire. Order is kept per ordered pair of ranks, and
 * a receive matches the oldest arrival of its peer and tag. Calls are made under the communicator's lock. Sends to the own rank match
 * without the wire.
 *
 * This room does not know the timeline. It reports completions by index to its caller (struct message_finished).
 */
#ifndef MESSAGE_MESSAGE_H
#define MESSAGE_MESSAGE_H

#include <commstream/message.h>

#include "wire/wire.h"

#define MESSAGE_COOKIE UINT32_C(0x80000000) /* bit 31 of the upper half of a cookie: the event belongs to this room, not to a run */

/* What a room has for its caller. The room begins with it (message_due), so that a look needs no call. */
struct message_due {
    uint32_t finished; /* operations whose results can be taken */
    uint32_t stalled;  /* peers and matched receives that the wire had no room for */
};
struct message_room; /* opaque; one per communicator */
static inline const struct message_due *message_due(const struct message_room *room)
{
    return (const struct message_due *)(const void *)room;
}

/* Whether a message belongs to the program or to the library. No program can send or receive the library's messages. The kind travels as
 * the round of the key. A receive of the library takes the oldest arrival of its kind: for setup messages of all peers, otherwise of one
 * peer. */
enum message_kind { MESSAGE_PROGRAM = 0, MESSAGE_SETUP, MESSAGE_ASK, MESSAGE_ANSWER, MESSAGE_KINDS };

/* A send or a receive as the caller described it. */
struct message_call {
    void *buf; /* a send only reads it */
    size_t bytes;
    int32_t peer;
    uint32_t tag;
    struct comm_status *status; /* for receives; NULL: not wanted */
    _Atomic uint64_t *moved;    /* NULL; of a send, where caps.takes_growing: wire_expose.there; of a receive: wire_look.came */
    uint32_t slot;              /* the caller's name for it; message_finished returns it */
    bool is_send;
    bool on_device; /* the caller's buf is device memory; not used in this room */
    uint8_t kind;   /* enum message_kind; the tag is ignored unless it is MESSAGE_PROGRAM */
};
struct message_finished {
    uint32_t slot;
    enum comm_result result; /* OK, TRUNCATED, CANCELLED, MISMATCH (from the wire), MEMORY, or the result given to message_fail */
    int32_t peer;            /* of the matched message */
    size_t bytes;            /* a send: bytes sent; a receive: bytes of the message that arrived */
};

/* depth: how many operations may be posted without their results taken before post returns FULL. Memory is allocated in steps, never by a
 * post below the high-water mark. Arrivals without a receive cannot be refused and do not count. The channel is first used at the first
 * send or match. */
enum comm_result message_open(const struct comm_env *env, struct wire_channel *channel, int32_t rank, int32_t size, uint32_t depth,
                              struct message_room **room);
void message_close(struct message_room *room);
/* OK, or the result of every post from now on (an arrival was lost because there was no memory, or message_fail). */
enum comm_result message_refused(const struct message_room *room);
/* COMM_OK: pending, or already in the finished list. FULL, MEMORY or the result that the room failed with: nothing happened. Operations of
 * the library itself are few, and depth does not limit them. If there was no memory for an arrival, the order is lost: then all unmatched
 * receives end with MEMORY, and so does every later post. */
enum comm_result message_post(struct message_room *room, const struct message_call *call);
/* Sends a message of the program if the wire takes it whole at once: the send is over. False: nothing happened; post it. */
bool message_send_whole(struct message_room *room, const struct message_call *call);
/* Takes a message that the wire's next has just found, for a receive that is not posted. False: it is not for this receive, or another one
 * comes first; nothing happened. */
bool message_receive_whole(struct message_room *room, const struct message_call *call, const struct wire_event *message);
bool message_setup(const struct message_room *room);    /* true: a setup message came that was not taken yet */
uint32_t message_came(const struct message_room *room); /* how many asks and answers of all peers came and were not taken yet */
/* True if a message of kind (MESSAGE_ASK or MESSAGE_ANSWER) from peer was not taken yet; *bytes: length of the oldest. */
bool message_came_from(const struct message_room *room, enum message_kind kind, int32_t peer, size_t *bytes);
/* COMM_OK: an unmatched receive ended with `result`, CANCELLED or TIMEOUT, and is in the finished list. STATE: it is already matched, or
 * there is no such slot. */
enum comm_result message_cancel(struct message_room *room, uint32_t slot, enum comm_result result);
void message_cancel_all(struct message_room *room); /* cancels every unmatched receive; for close */
/* Would a receive for peer and tag (wildcards allowed) be matched now? status, if not NULL, describes the message that it would get. */
bool message_probe(const struct message_room *room, int32_t peer, uint32_t tag, struct comm_status *status);
/* Takes a message that the wire's next has just found, for the receive that waits for it. False: no receive of the program waits for it,
 * or that is too short for it; nothing happened. *done: how the receive has ended; it is not in the finished list. */
bool message_accept(struct message_room *room, const struct wire_event *message, struct message_finished *done);
/* Takes an ANNOUNCED message, or a DONE whose cookie has MESSAGE_COOKIE. */
void message_event(struct message_room *room, const struct wire_event *event);
/* Retries the sends and matched receives that the wire had no room for. True: something moved. */
bool message_step(struct message_room *room);
uint32_t message_take_finished(struct message_room *room, struct message_finished *out, uint32_t max);
uint32_t message_pending(const struct message_room *room);             /* operations posted and not finished */
static inline bool message_wants_step(const struct message_room *room) /* true: the wire had no room for some operation */
{
    return message_due(room)->stalled != 0;
}
/* For the deadlock search, which is rare. True if the message of that slot was announced or posted and has not met its other half. A send
 * may be in flight nevertheless; only its receiver knows. */
bool message_waits(const struct message_room *room, uint32_t slot);
/* For the deadlock search. True if this rank has nothing in flight: every send was handed to the wire, and no matched receive is
 * unfinished. */
bool message_is_quiet(const struct message_room *room);
/* The communicator failed: drops everything. All pending operations end with `result` and go to the finished list. */
void message_fail(struct message_room *room, enum comm_result result);

#endif
