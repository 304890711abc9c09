/* Delays: calls that peers have not made, operations past their deadline. Also calls that differ from a peer's. */
#include "comm/parts.h"

#include "base/format.h"

enum { LATE_STEPS = 3 };
static const int64_t late_ns[LATE_STEPS] = {5000000000, 10000000000, 60000000000};

static const struct wire_call *peer_call(const struct comm_state *b, int32_t rank, uint32_t seq)
{
    const struct wire_call *call = b->channel->peer_calls[rank];

    return call ? &call[seq & b->calls.mask] : NULL;
}

/* Checks this call with every member: true unless one made a different call under the same number, refused it, or closed before it. */
bool state_check_peers(struct comm_state *b, const struct entry *e)
{
    for (int32_t r = 0; r < b->team.size; r++) {
        struct made_call call;
        bool made = r != b->team.rank && state_read_call(b, r, e->seq, &call);
        struct cause cause = {.number = e->seq, .rank = r, .peer = b->team.rank, .collective = e->record.collective};
        if (made && (call.refused || call.chain != e->chain)) {
            state_mismatch(b, e->seq, r);
            return false;
        }
        if (!made && b->failure.closed_at[r] && (int32_t)((uint32_t)b->failure.closed_at[r] - 1 - e->seq) < 0 && r != b->team.rank) {
            cause.result = COMM_ERR_CLOSED;
            cause.code = (int32_t)(b->failure.closed_at[r] - 1);
            state_propose(b, &cause);
            return false;
        }
    }
    return true;
}

static void list_absent(const struct comm_state *b, const struct entry *e, char *text, size_t bytes)
{
    size_t at = 0;

    text[0] = 0;
    for (int32_t r = 0; r < b->team.size; r++) {
        const struct wire_call *call = r == b->team.rank ? NULL : peer_call(b, r, e->seq);
        if (call && atomic_load_explicit(&call->seq, memory_order_acquire) != e->seq)
            base_append(text, bytes, &at, " %d", r);
    }
}

static void warn_late(struct comm_state *b, uint64_t ticket, const struct entry *e, int64_t waited)
{
    char absent[256];

    if (b->late.ticket != ticket) {
        b->late.ticket = ticket;
        b->late.step = 0;
    }
    if (b->late.step >= LATE_STEPS || waited < late_ns[b->late.step])
        return;
    while (b->late.step < LATE_STEPS && waited >= late_ns[b->late.step]) /* if the check comes late, it logs only one warning */
        b->late.step++;
    list_absent(b, e, absent, sizeof absent);
    base_log(&b->unit.engine->log, LOG_WARNING, "comm=%s call=%u op=%s is late: waiting for %lld s; not called yet by ranks:%s", b->name,
             e->seq, e->seq ? collective_name(e->record.collective) : "wait", (long long)(waited / 1000000000),
             absent[0] ? absent : " none");
}

static bool check_deadline(struct comm_state *b, uint64_t ticket, const struct entry *e, int64_t now)
{
    int64_t since = e->head.kind == TIMELINE_QUEUE_WAIT ? b->queue_wait.since_ns : e->record.started_ns;

    if (e->by != ENTRY_BY_PROGRAM)
        since = b->library->since(b, ticket, e);
    if (ticket == b->line.done + 1)
        warn_late(b, ticket, e, now - since);
    if (now - since < b->timeout_ns)
        return true;
    state_propose_own(b, e, COMM_ERR_TIMEOUT, 0);
    return false;
}

void state_check(struct comm_state *b, int64_t now)
{
    if (b->recovery.running) {
        PARTS_EACH (part, b->unit.engine)
            if ((*part)->check_always)
                (*part)->check_always(b, now);
        state_settle(b);
    }
    if (b->recording.plan || b->failed)
        return;
    for (uint64_t t = b->line.done + 1; t <= b->line.started && !b->failed && !b->failure.proposal.result; t++) {
        const struct entry *e = state_entry(b, t);
        if (e->head.state != TIMELINE_STARTED)
            continue;
        if (e->seq && !state_check_peers(b, e))
            break;
        if (!check_deadline(b, t, e, now))
            break;
    }
    if (!b->failed)
        state_compare(b);
    if (b->library && !b->failed)
        b->library->tend(b);
    PARTS_EACH (part, b->unit.engine)
        if (b->p2p.pending && !b->failed && (*part)->check)
            (*part)->check(b, now);
    state_settle(b);
}
