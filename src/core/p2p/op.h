/* The message line of a communicator: messages, markers, subsets that are being created, calls on windows. The communicator's lock is held
 * in every call. */
#ifndef P2P_OP_H
#define P2P_OP_H

#include "staged/staged.h"
#include "comm/state.h"
#include "message/message.h"
#include "p2p/one_sided_op.h"
#include "p2p/p2p.h"

/* MEETING: a subset that is being created. ONE: a call on a window, in progress. RECOVERY: agree or shrink; neither line waits for it. For
 * a window part that this rank cannot address: BEHIND: waits for earlier calls to that part, and the end of the last one starts it. ASKED:
 * requested from the owner, as far as there is room. STORING: the message is over, but not its copies: the data is being copied to the
 * device; or the receiver took nothing of a long send, whose data is still copied from the device. */
enum p2p_state { P2P_FREE, P2P_HELD, P2P_POSTED, P2P_MARKER, P2P_MEETING, P2P_ONE, P2P_RECOVERY, P2P_BEHIND, P2P_ASKED, P2P_STORING };
struct p2p_op;
/* Requests of another room that are queued among the messages (calls on windows). */
struct p2p_class {
    const char *(*name)(const struct p2p_op *t);
    enum comm_result (*start)(struct comm_state *b, uint32_t i);              /* starts it if it may start; OK: it has ended */
    void (*check)(struct comm_state *b, const struct p2p_op *t, int64_t now); /* deadlines, and peers that have closed or died */
    void (*ended)(struct p2p_op *t);
};
/* The first slots serve as requests of messages that end in their call, in turn. So the word of such a request, which a wait looks at,
 * stays for as many more of them. */
enum { P2P_WHOLE = 32 };
/* The slot of a message of the library itself has one of these bits; parts handle its completion (`message`). */
#define P2P_SETUP UINT32_C(0x80000000)
#define P2P_LINK UINT32_C(0x40000000)

/* A slot of the message line: a message, a marker, or a request of another kind. */
struct p2p_op {
    _Alignas(64) const struct p2p_class *class; /* NULL: a message or a marker */
    uint8_t state;
    bool is_send;
    uint32_t before, after; /* in the list of unfinished messages, or of free slots (only `after`) */
    uint64_t ticket;        /* on the message line */
    uint64_t work;          /* messages: the first work ticket issued after it; markers: the last one issued before it */
    uint32_t remaining;     /* markers: messages that it still waits for */
    uint32_t member_of;     /* a message of a plan: its marker; the marker of a plan: itself; otherwise P2P_NONE */
    int32_t error;          /* marker of a group: the first error of its members; STORING: how the message ended */
    bool carries;           /* marker of a group: it ends with that error, which its members then do not report */
    uint64_t first_work;    /* marker of a group: the first work ticket of the group */
    struct timeline_range read, write;
    struct message_call call;
    struct stage *stage;           /* for a device buffer; NULL: none, or not started yet */
    uint64_t behind;               /* on a communicator with a stream: it is held until this entry has ended; 0: by none */
    struct timeline_range buf;     /* the caller's buffer */
    int64_t queued_ns, started_ns; /* started_ns 0: earlier work of this rank holds it back. Its deadline counts from there */
    uint64_t sum;                  /* checksum of a send, with check=buffers */
    uint64_t fence;                /* call on a window: it waits for this ticket */
    struct one_sided one;
};

/* Most looks are at the next message of one peer alone. One in so many is at everything, for the sake of the others. */
static inline bool p2p_looks_around(struct comm_state *b)
{
    enum { LOOKS = 16 };

    return ++b->p2p.looks % LOOKS == 0;
}

/* Its deadline counts from now on, unless it has begun before. */
static inline void p2p_begins(const struct comm_state *b, struct p2p_op *t)
{
    if (!t->started_ns)
        t->started_ns = state_now(b);
}

/* The stream has not passed yet what is before this message. */
static inline bool p2p_is_behind(const struct comm_state *b, const struct p2p_op *t)
{
    return BASE_UNLIKELY(t->behind > b->line.done) && state_entry(b, t->behind)->head.state != TIMELINE_ENDED;
}

bool p2p_step(struct comm_state *b); /* posts held messages, collects finished ones, completes markers */
void p2p_cancel_held(struct comm_state *b);

/* whole.c: a send that ends in its call, as most short ones do within a host, or a receive whose message has probably come. False: nothing
 * happened. */
bool p2p_send_whole(struct comm_state *b, const struct message_call *call, struct comm_request *req);
bool p2p_receive_whole(struct comm_state *b, const struct message_call *call, struct comm_request *req);
/* Posts a send or a receive, or holds it back. marker: the marker of its plan, or P2P_NONE. */
enum comm_result p2p_post(struct comm_state *b, const struct message_call *call, uint32_t marker, struct comm_request *req);
/* The same, but does not try to end a send in its call. */
enum comm_result p2p_post_pending(struct comm_state *b, const struct message_call *call, uint32_t marker, struct comm_request *req);
/* Takes the next message of `peer`, if a receive waits for it and the wire can give it at once (wire_class.next). True: the receive has
 * ended. The caller flushes the wire and wakes sleepers. */
bool p2p_accept(struct comm_state *b, int32_t peer);
/* Reserves places for this many more messages and a marker, so that none of them is FULL. false: there are not so many now. */
bool p2p_reserve(struct comm_state *b, uint32_t messages);

/* marker.c */
/* a ticket behind everything issued so far; 0: everything is complete; UINT64_MAX: no slot for a marker */
uint64_t p2p_mark(struct comm_state *b);
/* The marker of a plan: it comes after the messages posted for the plan and the work issued until the marker is closed. carries: it ends
 * with the first error of its members. */
enum comm_result p2p_open_marker(struct comm_state *b, bool carries, uint32_t *marker);
void p2p_close_marker(struct comm_state *b, uint32_t marker, enum comm_result error, struct comm_request *req);
bool p2p_finish_markers(struct comm_state *b); /* ends those that have nothing left to wait for; true: some */

/* Requests of this line that are not messages. */
enum comm_result p2p_take_slot(struct comm_state *b, uint32_t *index); /* pending under a new ticket, at the end of the list */
enum comm_result p2p_begin(struct comm_state *b, uint32_t *index, struct comm_request *req); /* of a subset: it holds back nothing */
void p2p_end(struct comm_state *b, const struct p2p_op *t, enum comm_result result);
/* For agree and shrink: a request that neither line waits for and that survives a failure. */
enum comm_result p2p_begin_recovery(struct comm_state *b, uint32_t *index, struct comm_request *req);
void p2p_end_recovery(struct comm_state *b, uint32_t index, enum comm_result result);
bool p2p_meets_earlier(const struct comm_state *b, uint32_t i); /* true: it must wait for an older message that uses the same memory */
bool p2p_take_finished(struct comm_state *b);
const char *p2p_name(const struct p2p_op *t);

/* call.c: for the program's calls */
/* A device-memory message in the form that the stream library takes. UNSUPPORTED: no library can do it. */
enum comm_result p2p_of_device(struct comm_state *b, const struct message_call *call, struct native_message *message);

/* staged.c: messages in device memory */
/* OK: the message may be posted, and call.buf points into the stage: a send has its data there, or, if it is long, some of them; a receive
 * has room. PENDING: not yet. */
enum comm_result p2p_stage(struct comm_state *b, struct p2p_op *t);
void p2p_unstage(struct comm_state *b, struct p2p_op *t);
bool p2p_move_longs(struct comm_state *b); /* goes on with the copies of long messages that are on their way; true: something moved */
/* The message is over. True: its copies are not, and it ends with them. */
bool p2p_store(struct comm_state *b, struct p2p_op *t, const struct message_finished *done);
bool p2p_finish_stored(struct comm_state *b); /* ends the messages whose copies are over; true: some */
enum comm_result p2p_reach_device(struct comm_state *b, const struct message_call *call);

/* tagged.c: messages of device memory, and the stream of the communicator */
/* The library does it, in the stream; or it is staged beside the stream. Neither: it is not in memory of a device, or there is no stream.
 */
bool p2p_is_in_stream(struct comm_state *b, const struct message_call *call);
bool p2p_is_beside_stream(struct comm_state *b, const struct message_call *call);
static inline bool p2p_is_untagged(const struct message_call *call)
{
    return call->tag == 0 || (!call->is_send && call->tag == COMM_ANY_TAG);
}
/* Before such a message gets its place: *behind is the entry that must end before it may begin. FULL: the queue has no room. */
enum comm_result p2p_follow_stream(struct comm_state *b, const struct message_call *call, uint64_t *behind);

/* check.c */
void p2p_check(struct comm_state *b, int64_t now);
/* Has this peer closed, with nothing of it still in flight? COMM_ANY_PEER: have all peers? Then *rank is one of them. */
bool p2p_peer_left(const struct comm_state *b, int32_t peer, int32_t *rank);

extern const struct comm_part p2p_part;

#endif
