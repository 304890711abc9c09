/* The message line of a communicator: messages, markers, subsets in the making, calls on windows. Its lock is held in every call. */
#ifndef P2P_TALK_H
#define P2P_TALK_H

#include "staged/staged.h"
#include "comm/state.h"
#include "message/message.h"
#include "p2p/one_sided.h"
#include "p2p/p2p.h"

/* MEETING: a subset in the making. ONE: a call on a window, under way. RECOVERY: agree or shrink, for which neither line waits. Of a part
 * that is apart: BEHIND others to it, whose end starts it; ASKED for, or as much of it as there is room for. STORING: it came, and goes to
 * the device. */
enum p2p_state { P2P_FREE, P2P_HELD, P2P_POSTED, P2P_MARKER, P2P_MEETING, P2P_ONE, P2P_RECOVERY, P2P_BEHIND, P2P_ASKED, P2P_STORING };
struct p2p_op;
/* Requests of another room that stand among the messages (calls on windows). */
struct p2p_class {
    const char *(*name)(const struct p2p_op *t);
    enum comm_result (*start)(struct comm_state *b, uint32_t i);              /* moves it if it may start; OK: it has ended */
    void (*check)(struct comm_state *b, const struct p2p_op *t, int64_t now); /* deadlines, and peers that are gone */
    void (*ended)(struct p2p_op *t);
};
/* Messages of the library's own have one of these bits in the name that the message room gives back; parts take them (`message`). */
#define P2P_SETUP UINT32_C(0x80000000)
#define P2P_LINK UINT32_C(0x40000000)

struct p2p_op {
    const struct p2p_class *class; /* NULL: a message or a marker */
    uint8_t state;
    bool is_send;
    uint32_t before, after; /* list of unfinished messages, or of free slots (after) */
    uint64_t ticket;        /* of the message line */
    uint64_t work;          /* messages: first work ticket issued after it; markers: last issued before it */
    uint32_t remaining;     /* markers: messages that they still wait for */
    uint32_t member_of;     /* a plan's message: its marker; a plan's marker: itself; otherwise P2P_NONE */
    int32_t error;          /* a group's marker: the first of its members' */
    bool carries;           /* a group's marker: it ends with that error, which is nobody else's */
    uint64_t first_work;    /* a group's marker: of the group */
    struct timeline_range read, write;
    struct message_call call;
    struct stage *stage;       /* of a device's buffer; NULL: none, or not begun */
    struct timeline_range buf; /* the caller's buffer */
    int64_t queued_ns;
    uint64_t sum;   /* with check=buffers: of what is sent */
    uint64_t fence; /* of a window: it waits for this ticket */
    struct one_sided one;
};

bool p2p_step(struct comm_state *b); /* posts held messages, takes what finished, completes markers */
void p2p_cancel_held(struct comm_state *b);

/* A send or a receive, posted or held back; marker: of its plan, or P2P_NONE. */
enum comm_result p2p_post(struct comm_state *b, const struct message_call *call, uint32_t marker, struct comm_request *req);
uint64_t p2p_mark(struct comm_state *b); /* the ticket of a marker behind everything so far; 0: everything is complete or no memory */
/* The marker of a plan: behind the messages that are posted for it and the work issued until it is closed. */
bool p2p_reserve(struct comm_state *b, uint32_t messages);
enum comm_result p2p_open_marker(struct comm_state *b, bool carries, uint32_t *marker); /* carries: it ends with its members' first error */
void p2p_close_marker(struct comm_state *b, uint32_t marker, enum comm_result error, struct comm_request *req);

/* Requests of this line that are no messages. */
enum comm_result p2p_take_slot(struct comm_state *b, uint32_t *index); /* pending under a new ticket, at the end of the list */
enum comm_result p2p_begin(struct comm_state *b, uint32_t *index, struct comm_request *req); /* of a subset: it stands before nothing */
void p2p_end(struct comm_state *b, const struct p2p_op *t, enum comm_result result);
/* Of agree and shrink: a request that stands on neither line and outlives a failure. */
enum comm_result p2p_begin_recovery(struct comm_state *b, uint32_t *index, struct comm_request *req);
void p2p_end_recovery(struct comm_state *b, uint32_t index, enum comm_result result);
bool p2p_meets_earlier(const struct comm_state *b, uint32_t i); /* waits for an older one for its memory's sake */
bool p2p_take_finished(struct comm_state *b);
const char *p2p_name(const struct p2p_op *t);

/* p2p_call.c: and what a program calls */
/* A message of device memory as its library takes it; UNSUPPORTED: it is one that no library does. */
enum comm_result p2p_of_device(struct comm_state *b, const struct message_call *call, struct native_message *message);

/* staged.c: messages of a device's memory */
/* OK: what is sent is in the stage, or what is received may be put there, and call.buf names it. PENDING: not yet. */
enum comm_result p2p_stage(struct comm_state *b, struct p2p_op *t);
/* It has come. True: its bytes are on the way to the device, and it ends when they are there. */
bool p2p_store(struct comm_state *b, struct p2p_op *t, const struct message_finished *done);
/* Of one that is STORING: true: they are there. */
bool p2p_stored(struct comm_state *b, struct p2p_op *t);
enum comm_result p2p_reach_device(struct comm_state *b, const struct message_call *call);

/* check.c */
void p2p_check(struct comm_state *b, int64_t now);
/* Whether that peer has closed, and nothing of it is still to come; COMM_ANY_PEER: all have, and *rank is one of them. */
bool p2p_peer_left(const struct comm_state *b, int32_t peer, int32_t *rank);

extern const struct comm_part p2p_part;

#endif
