/* A world: the ranks that met, the wire between them, and what they agreed on. All its communicators (comm/state.h) use it. */
#ifndef COMMON_WORLD_H
#define COMMON_WORLD_H

#include "base/env.h"
#include "base/lock.h"
#include "model/cost.h"
#include "progress/engine.h"
#include "wire/module.h"

struct engine;
struct native;
struct user_op_row;
struct wire;
struct wire_backend;
struct world_memory;

enum { CHECK_CALLS = 1, CHECK_BUFFERS = 2, CHECK_RENDEZVOUS = 4 }; /* option `check` */

/* Which ranks share a host. Equal on all ranks; found when the world opens. */
struct world_hosts {
    int32_t *of;      /* by world rank: the number of its host, from 0 in the order of the hosts' lowest ranks */
    char (*name)[64]; /* by host number */
    int32_t count, ranks;
};

struct world {
    struct progress_wire port; /* first */
    struct engine *engine;
    const struct wire_backend *backend;
    _Atomic uint32_t no_asks; /* `asks` of a wire that has none */
    struct native *native;    /* NULL: none */
    uint64_t id;
    struct wire_limits limits;   /* agreed: rank 0's */
    char forced[256];            /* option algorithm; rank 0's */
    struct cost_machine machine; /* rank 0's: from its file if measured, otherwise built in */
    bool measured;
    bool falls_back;              /* to staged device buffers where the native cannot connect the ranks */
    bool free_order, fixed_order; /* as requested; neither: fixed, except for a native */
    int64_t timeout_ns, peer_timeout_ns, link_timeout_ns;
    _Atomic uint32_t references; /* from its communicators */
    _Atomic uint64_t aborted;    /* 0, or 1 + the rank that called comm_abort, with its code in the upper half */
    int32_t rank, ranks;         /* rank -1: all ranks are in this process */
    struct world_hosts hosts;
    struct base_lock operator_lock; /* a leaf lock; protects the next two */
    struct user_op_row *operators;
    uint32_t operator_room;
    struct base_lock memory_lock; /* a leaf lock; protects the next one */
    struct world_memory *memories;
    uint32_t check;      /* CHECK_*, rank 0's */
    int32_t order_block; /* rank 0's; 0 if the blocks give T's order anyway */
    bool oversubscribed; /* all ranks are on one host that has fewer CPUs; equal on all ranks */
    char launcher[16], slurm_job[32];
    _Atomic bool lost;     /* a communicator failed because a rank ended, which this rank may have heard from another one alone */
    _Atomic uint8_t *down; /* [ranks]: 0, or how the wire has reported the rank's end (world_note_end); never cleared */
};
void world_drop(struct world *w); /* drops a reference; the last one closes the world */
static inline bool world_down(const struct world *w, int32_t rank)
{
    return atomic_load_explicit(&w->down[rank], memory_order_acquire) != 0;
}

/* Remembers a rank's end for communicators that do not exist yet: its result, or that it gave this rank up. */
enum { WORLD_GAVE_UP = 1 }; /* no result is positive */
static inline void world_note_end(struct world *w, const struct wire_event *event)
{
    uint8_t how = event->tag == WIRE_GAVE_UP ? WORLD_GAVE_UP : (uint8_t)event->result;

    atomic_store_explicit(&w->down[event->peer], how, memory_order_release);
}

/* Result 0: the rank is not down. */
static inline struct wire_event world_end(const struct world *w, int32_t rank)
{
    uint8_t how = atomic_load_explicit(&w->down[rank], memory_order_acquire);

    if (how == WORLD_GAVE_UP)
        return (struct wire_event){.result = COMM_ERR_PEER, .tag = WIRE_GAVE_UP};
    return (struct wire_event){.result = (int8_t)how};
}

#endif
