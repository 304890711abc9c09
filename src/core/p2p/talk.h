/* The message line of a communicator: messages, markers, subsets in the making, calls on windows. Its lock is held in every call. */
#ifndef P2P_TALK_H
#define P2P_TALK_H

#include "comm/body.h"
#include "message/message.h"
#include "p2p/one_sided.h"
#include "p2p/p2p.h"

/* MEETING: a subset in the making. ONE: a call on a window, under way. RECOVERY: agree or shrink, for which neither line waits. Of a part
 * that is apart: BEHIND others to it, whose end starts it; ASKED for, or as much of it as there is room for. */
enum talk_state { TALK_FREE, TALK_HELD, TALK_POSTED, TALK_MARKER, TALK_MEETING, TALK_ONE, TALK_RECOVERY, TALK_BEHIND, TALK_ASKED };
struct talk;
/* Requests of another room that stand among the messages (calls on windows). */
struct talk_class {
    const char *(*name)(const struct talk *t);
    enum comm_result (*start)(struct body *b, uint32_t i);            /* moves it if it may start; OK: it has ended */
    void (*check)(struct body *b, const struct talk *t, int64_t now); /* deadlines, and peers that are gone */
    void (*ended)(struct talk *t);
};
/* Messages of the library's own have one of these bits in the name that the message room gives back; parts take them (`message`). */
#define TALK_LETTER UINT32_C(0x80000000)
#define TALK_LINK UINT32_C(0x40000000)

struct talk {
    const struct talk_class *class; /* NULL: a message or a marker */
    uint8_t state;
    bool is_send;
    uint32_t before, after; /* list of unfinished messages, or of free slots (after) */
    uint64_t ticket;        /* of the message line */
    uint64_t work;          /* messages: first work ticket issued after it; markers: last issued before it */
    uint32_t remaining;     /* markers: messages that they still wait for */
    uint32_t member_of;     /* a plan's message: its marker; a plan's marker: itself; otherwise TALK_NONE */
    int32_t error;          /* a group's marker: the first of its members' */
    bool carries;           /* a group's marker: it ends with that error, which is nobody else's */
    uint64_t first_work;    /* a group's marker: of the group */
    struct timeline_hull read, write;
    struct message_call call;
    int64_t queued_ns;
    uint64_t sum;   /* with check=buffers: of what is sent */
    uint64_t fence; /* of a window: it waits for this ticket */
    struct one_sided one;
};

bool talk_step(struct body *b); /* posts held messages, takes what finished, completes markers */
void talk_cancel_held(struct body *b);

/* A send or a receive, posted or held back; marker: of its plan, or TALK_NONE. */
enum comm_result talk_post(struct body *b, const struct message_call *call, uint32_t marker, struct comm_request *req);
uint64_t talk_mark(struct body *b); /* the ticket of a marker behind everything so far; 0: everything is complete or no memory */
/* The marker of a plan: behind the messages that are posted for it and the work issued until it is closed. */
bool talk_reserve(struct body *b, uint32_t messages);
enum comm_result talk_open_marker(struct body *b, bool carries, uint32_t *marker); /* carries: it ends with its members' first error */
void talk_close_marker(struct body *b, uint32_t marker, enum comm_result error, struct comm_request *req);

/* Requests of this line that are no messages. */
enum comm_result talk_take_slot(struct body *b, uint32_t *index); /* pending under a new ticket, at the end of the list */
enum comm_result talk_begin(struct body *b, uint32_t *index, struct comm_request *req); /* of a subset: it stands before nothing */
void talk_end(struct body *b, const struct talk *t, enum comm_result result);
/* Of agree and shrink: a request that stands on neither line and outlives a failure. */
enum comm_result talk_begin_recovery(struct body *b, uint32_t *index, struct comm_request *req);
void talk_end_recovery(struct body *b, uint32_t index, enum comm_result result);
bool talk_meets_earlier(const struct body *b, uint32_t i); /* waits for an older one for its memory's sake */
bool talk_take_finished(struct body *b);
const char *talk_name(const struct talk *t);

/* talk_call.c: and what a program calls */
enum comm_result talk_refuse_device(struct body *b, const char *call);

/* check.c */
void talk_check(struct body *b, int64_t now);
/* Whether that peer has closed, and nothing of it is still to come; COMM_ANY_PEER: all have, and *rank is one of them. */
bool talk_peer_left(const struct body *b, int32_t peer, int32_t *rank);

extern const struct comm_part p2p_part;

#endif
