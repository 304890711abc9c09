/* Windows: what the files of this room know of them. A window is touched under its communicator's lock; where its parts lie never changes.
 */
#ifndef RMA_WINDOW_H
#define RMA_WINDOW_H

#include "comm/state.h"
#include "message/message.h"
#include "rma/rma.h"

/* In the owner's memory, in front of its counters. lock: 0, or 1 + the rank that updates elements which no atomic fits. */
struct window_control {
    _Alignas(64) _Atomic uint64_t lock;
    _Alignas(64) _Atomic uint64_t signal[];
};
struct window_part {
    char *at; /* NULL: nothing, or apart */
    size_t bytes;
    struct window_control *control;
    uint32_t signals;
    bool apart;           /* no memory here: its owner does what is asked of it (window_link.h) */
    uint32_t first, last; /* this rank's calls to it that were not all asked for, in order; P2P_NONE */
};
#define WINDOW_NOWHERE UINT64_MAX /* of a ticket's part: its owner alone reaches it */

/* What each rank tells when a window is made. */
struct window_ticket {
    uint64_t part, bytes, control;
    uint32_t signals;
    int32_t result; /* of making its part */
};

struct comm_window {
    struct comm_communicator *comm;
    const struct comm_env *env;
    _Atomic(struct comm_state *) state; /* NULL: the communicator was closed */
    struct comm_window *next;
    void *memory, *control; /* of ours, or NULL */
    void *own;              /* this rank's part, whoever's memory it is */
    size_t memory_bytes, control_bytes;
    uint64_t number; /* equal on all ranks: of the creating call */
    uint64_t fence;  /* ticket of the last fence */
    uint32_t held;   /* this rank's unfinished calls */
    int32_t size;
    bool making; /* not agreed on yet */
    bool apart;  /* some parts are, to somebody: peers may ask */
    bool heap;   /* `control`, and `memory`, are of the heap: no peer reaches them */
    struct window_ticket mine, *all;
    struct window_part *part;
    struct comm_window **out;
};

/* One bounded step: OK: done; PENDING: not yet. Its window is whole, and its arguments are sound. */
enum comm_result one_sided_step(struct comm_state *b, struct one_sided *one);
/* The communicator is closed: its windows lose their memory and stay as handles; what is of the heap ends with the handle. */
void windows_close(struct comm_state *b);

/* window_link.c: parts that are no memory here */
bool links_open(struct comm_state *b);  /* for the first such window; false: no memory */
void links_close(struct comm_state *b); /* when the wire has left */
bool links_step(struct comm_state *b);  /* hears answers, does what peers ask; true: something moved */
bool links_message(struct comm_state *b, const struct message_finished *done); /* true: it was theirs */
bool links_rest(const struct comm_state *b, const struct comm_window *w);      /* nothing of it is being done for a peer */
/* window_ask.c */
enum comm_result link_ready(struct comm_state *b, int32_t peer); /* room to ask that peer is there: OK, or MEMORY */
void link_ask(struct comm_state *b, uint32_t op);                /* it is in turn: asks for it, now or when there is room */
void link_stand(struct comm_state *b, uint32_t op);              /* it is made: behind the others to that part */
bool link_in_turn(const struct comm_state *b, uint32_t op);      /* all before it to that part were asked for */

#endif
