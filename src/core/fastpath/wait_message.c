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

/* The peer whose next message may end the request without a pass; -1: none. A long message needs passes. */
static int32_t sender_of(const struct comm_state *b, uint64_t ticket)
{
    const struct p2p_op *t = &b->p2p.ops[timeline_slot_index(ticket)];
    bool fits = !t->is_send && t->state == P2P_POSTED && t->call.bytes <= b->channel->caps.whole_max && t->call.peer >= 0;

    return fits && b->wire->next && t->call.peer != b->team.rank ? t->call.peer : -1;
}

/* At the next message of the sender alone, which costs neither side a cache line until the message comes; now and then at everything. */
static void look(struct comm_state *b, int32_t sender)
{
    if (!waits_for_wire(b))
        (void)state_step(b);
    else if (sender < 0 || p2p_looks_around(b))
        (void)state_glance(b);
    else
        (void)p2p_accept(b, sender);
}

/* Called after messages have ended without a pass. If no other thread waits, the communicator stays marked as active until its next
 * pass. */
static void settle(struct comm_state *b)
{
    b->now = 0;
    if (!b->p2p.finished && b->failed == b->reported.failed)
        return;
    if (engine_has_thread(b->unit.engine) || engine_has_sleepers(b->unit.engine))
        state_settle(b);
    else
        b->wire->flush(b->channel);
}

/* The clock, read between two looks, also gives the time of the completion, exact to one look. */
bool fastpath_wait_message(struct comm_request request)
{
    enum { TURNS = 400 };
    const struct comm_env *env = request.comm->env;

    if (timeline_slot_is_ok(request))
        return true;
    if (!base_home_trylock(&request.comm->lock, env))
        return false;
    struct comm_state *b = state_of(request.comm);
    if (!b || !is_pending(b, request.ticket)) {
        base_home_unlock(&request.comm->lock, env);
        return timeline_peek(request) == COMM_OK;
    }
    int32_t sender = sender_of(b, request.ticket), turn = 0;
    for (; turn < TURNS && is_pending(b, request.ticket) && may_poll(b); turn++) {
        b->now = turn ? env->now(env) : 0;
        look(b, sender);
    }
    b->p2p.prompt = turn == 1 && sender >= 0 ? b->p2p.prompt + 1 : 0;
    settle(b);
    state_leave(b);
    return timeline_slot_is_ok(request) || timeline_peek(request) == COMM_OK;
}
