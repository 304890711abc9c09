/* Messages whose peer has closed, and messages past their deadline. */
#include "p2p/op.h"

/* A receive from any peer may still get a message that this rank sent to itself. */
static bool sends_itself(const struct comm_state *b)
{
    for (uint32_t i = b->p2p.first; i != P2P_NONE; i = b->p2p.ops[i].after)
        if (b->p2p.ops[i].is_send && b->p2p.ops[i].state != P2P_MARKER && b->p2p.ops[i].call.peer == b->team.rank)
            return true;
    return false;
}

/* Has the peer of a message closed, or, for COMM_ANY_PEER, have all peers closed? */
bool p2p_peer_left(const struct comm_state *b, int32_t peer, int32_t *rank)
{
    *rank = peer;
    if (peer >= 0)
        return state_has_left(b, peer);
    for (int32_t r = 0; r < b->team.size; r++) {
        if (r == b->team.rank)
            continue;
        *rank = r;
        if (!state_has_left(b, r))
            return false;
    }
    return b->team.size > 1 && !sends_itself(b);
}

/* A receive ends alone. A send cannot be withdrawn, and this rank cannot know whether it was received, so the communicator fails. */
static void end_gone(struct comm_state *b, uint32_t index, int32_t rank)
{
    const struct p2p_op *t = &b->p2p.ops[index];
    int32_t last = (int32_t)(b->failure.closed_at[rank] - 1);

    if (t->is_send)
        state_propose(b,
                      &(struct cause){.number = b->sequence, .rank = rank, .peer = b->team.rank, .result = COMM_ERR_CLOSED, .code = last});
    else if (message_cancel(b->messages, index, COMM_ERR_CLOSED) == COMM_OK)
        base_log(&b->unit.engine->log, LOG_INFO, "comm=%s a receive ends: rank %d closed after its call %d", b->name, rank, last);
}

static bool awaits_gone(const struct comm_state *b, const struct p2p_op *t, int32_t *rank)
{
    return (t->state == P2P_POSTED || t->state == P2P_ASKED) && p2p_peer_left(b, t->call.peer, rank);
}

/* Acts only if a step finds nothing more, because the messages that the closed rank had sent are received first. */
static void check_gone(struct comm_state *b)
{
    int32_t rank;
    uint32_t i = b->p2p.first;

    while (i != P2P_NONE && !awaits_gone(b, &b->p2p.ops[i], &rank))
        i = b->p2p.ops[i].after;
    if (i == P2P_NONE || state_step(b))
        return;
    for (uint32_t next; i != P2P_NONE && !b->failed; i = next) {
        next = b->p2p.ops[i].after;
        if (awaits_gone(b, &b->p2p.ops[i], &rank))
            end_gone(b, i, rank);
    }
}

static bool is_overdue(const struct comm_state *b, const struct p2p_op *t, int64_t now)
{
    bool under_way = t->state == P2P_POSTED || t->state == P2P_STORING || (t->state == P2P_HELD && t->stage);

    return !t->class && under_way && now - t->started_ns >= b->timeout_ns;
}

/* A message that has ended still counts as posted until a step has collected it. Two checks may run without a step in between. Then the
 * second check must not mistake a message that the first one ended for one that its peer still uses. */
static void collect_overdue(struct comm_state *b, int64_t now)
{
    uint32_t i = b->p2p.first;

    while (i != P2P_NONE && !is_overdue(b, &b->p2p.ops[i], now))
        i = b->p2p.ops[i].after;
    if (i != P2P_NONE)
        (void)state_step(b);
}

/* An unmatched receive ends alone. A peer may still read or write any other message past its deadline, so then the communicator fails. */
void p2p_check(struct comm_state *b, int64_t now)
{
    collect_overdue(b, now);
    for (uint32_t i = b->p2p.first, next; i != P2P_NONE && !b->failed; i = next) {
        struct p2p_op *t = &b->p2p.ops[i];
        next = t->after;
        if (t->class) {
            t->class->check(b, t, now);
            continue;
        }
        if (!is_overdue(b, t, now))
            continue;
        if (t->is_send || message_cancel(b->messages, i, COMM_ERR_TIMEOUT) != COMM_OK)
            state_propose(b, &(struct cause){.rank = b->team.rank, .peer = b->team.rank, .result = COMM_ERR_TIMEOUT});
    }
    if (!b->failed)
        check_gone(b);
}
