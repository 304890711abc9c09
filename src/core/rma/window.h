/* Windows, for the files of this room. A window is accessed under its communicator's lock. The addresses of its parts never change. */
#ifndef RMA_WINDOW_H
#define RMA_WINDOW_H

#include "comm/state.h"
#include "message/message.h"
#include "rma/rma.h"

/* In the owner's memory, in front of its counters. lock: 0, or 1 + the rank that is updating elements that no atomic instruction fits. */
struct window_control {
    _Alignas(64) _Atomic uint64_t lock;
    _Alignas(64) _Atomic uint64_t signal[];
};
struct window_part {
    char *at; /* NULL: no bytes, or apart */
    size_t bytes;
    struct window_control *control;
    uint32_t signals;
    bool apart;           /* this rank cannot address it: the owner executes the requests (window_link.h) */
    uint32_t first, last; /* this rank's calls to it that are not completely requested yet, in order; P2P_NONE: none */
};
#define WINDOW_NOWHERE UINT64_MAX /* in a ticket: only the owner can address its part */

/* What each rank contributes when a window is created. */
struct window_ticket {
    uint64_t part, bytes, control;
    uint32_t signals;
    int32_t result; /* of creating its part */
};

struct comm_window {
    struct comm_communicator *comm;
    const struct comm_env *env;
    _Atomic(struct comm_state *) state; /* NULL: the communicator was closed */
    struct comm_window *next;
    void *memory, *control; /* owned by the library, or NULL */
    void *own;              /* this rank's part, owned by the library or by the caller */
    size_t memory_bytes, control_bytes;
    uint64_t number; /* number of the creating call; equal on all ranks */
    uint64_t fence;  /* ticket of the last fence */
    uint32_t held;   /* how many of this rank's calls are unfinished */
    int32_t size, rank;
    bool making; /* the ranks have not agreed on it yet */
    bool apart;  /* some rank cannot address some part: peers may send requests */
    bool heap;   /* `control` and `memory` are from the heap: no peer can address them */
    struct window_ticket mine, *all;
    struct window_part *part;
    struct comm_window **out;
};

/* Executes one bounded step. OK: done; PENDING: not yet. The window exists on all ranks, and the arguments are valid. */
enum comm_result one_sided_step(struct comm_state *b, struct one_sided *one);
/* The communicator is closing: its windows lose their memory, and only their handles remain. Heap memory is freed with the handle, after
 * the wire has left, which may still write to it. */
void windows_leave(struct comm_state *b);
void windows_close(struct comm_state *b); /* after the wire has left */

/* window_link.c: parts that this rank cannot address */
bool links_open(struct comm_state *b);  /* for the first such window; false: no memory */
void links_close(struct comm_state *b); /* after the wire has left */
bool links_step(struct comm_state *b);  /* receives answers and serves peers; true: something moved */
bool links_message(struct comm_state *b, const struct message_finished *done); /* true: the message belonged to a link */
bool links_rest(const struct comm_state *b, const struct comm_window *w);      /* true: nothing is being done for a peer on this window */
/* window_ask.c */
enum comm_result link_ready(struct comm_state *b, int32_t peer); /* allocates the state to send requests to that peer: OK or MEMORY */
void link_ask(struct comm_state *b, uint32_t op);                /* its turn has come: requests it, now or when there is room */
void link_stand(struct comm_state *b, uint32_t op);              /* a new call: queues it behind the others to that part */
bool link_in_turn(const struct comm_state *b, uint32_t op);      /* true: all earlier calls to that part are completely requested */

#endif
