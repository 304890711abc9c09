/* A brief wait for a message, under the lock of its communicator: without the bookkeeping of a wait that may sleep. */
#include "fastpath/fastpath.h"

#include "p2p/op.h"

/* This thread may keep the lock and its CPU if a pass makes no system call, every rank has a CPU, and no callback is due. */
static bool may_poll(const struct comm_state *b)
{
    return !b->unit.engine->oversubscribed && !b->wire->system_calls && !b->library &&
           !atomic_load_explicit(&b->unit.notice_count, memory_order_relaxed);
}

/* Are messages alone under way, and all given to the wire? Then nothing moves until the wire has something new. */
static bool waits_for_wire(const struct comm_state *b)
{
    return b->line.done + 1 == b->line.next && !b->p2p.held && !b->p2p.markers && !b->p2p.ones && !b->staged.copying && !b->rma.apart &&
           !b->recovery.running && !b->setup.subsets && !b->setup.sending && !message_wants_step(b->messages);
}

static bool is_pending(const struct comm_state *b, uint64_t ticket)
{
    uint32_t i = timeline_slot_index(ticket);

    return i < b->p2p.room && b->p2p.ops[i].ticket == ticket && b->p2p.ops[i].state != P2P_FREE && !b->failed;
}

/* The clock, read between two looks, also gives the time of the completion, exact to one look. */
bool fastpath_wait_message(struct comm_request request)
{
    enum { TURNS = 200 };
    const struct comm_env *env = request.comm->env;

    if (timeline_slot_is_ok(request))
        return true;
    if (timeline_test(request) != COMM_PENDING || !base_home_trylock(&request.comm->lock, env))
        return false;
    struct comm_state *b = state_of(request.comm);
    if (!b) {
        base_home_unlock(&request.comm->lock, env);
        return false;
    }
    for (int turn = 0; turn < TURNS && may_poll(b) && is_pending(b, request.ticket); turn++) {
        b->now = turn ? env->now(env) : 0;
        (void)!(waits_for_wire(b) ? state_glance(b) : state_step(b));
    }
    b->now = 0;
    state_leave(b);
    return timeline_slot_is_ok(request) || timeline_test(request) == COMM_OK;
}
