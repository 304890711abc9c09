/*
 * Calls of other members: what they published and refused, and where that differs from this rank's calls. A difference becomes the proposed
 * cause of failure (fail.c).
 */
#include "base/hash.h"
#include "comm/state.h"

bool state_read_call(const struct comm_state *b, int32_t rank, uint32_t seq, struct made_call *call)
{
    const struct wire_call *ring = b->channel->peer_calls[rank], *from = ring ? &ring[seq & b->calls.mask] : NULL;

    if (!from || atomic_load_explicit(&from->seq, memory_order_acquire) != seq)
        return false;
    call->n = atomic_load_explicit(&from->n, memory_order_relaxed);
    call->fingerprint = atomic_load_explicit(&from->fingerprint, memory_order_relaxed);
    call->chain = atomic_load_explicit(&from->chain, memory_order_relaxed);
    call->op = atomic_load_explicit(&from->op, memory_order_relaxed);
    call->root = atomic_load_explicit(&from->root, memory_order_relaxed);
    call->refused = atomic_load_explicit(&from->refused, memory_order_relaxed);
    call->collective = atomic_load_explicit(&from->collective, memory_order_relaxed);
    call->type = atomic_load_explicit(&from->type, memory_order_relaxed);
    call->flags = atomic_load_explicit(&from->flags, memory_order_relaxed);
    /* A peer wrote these values, and a cause made of them must be valid for all others. */
    if (call->collective >= COLLECTIVE_END)
        call->collective = 0; /* "none" */
    if (call->refused && !heard_is_error(call->refused))
        call->refused = COMM_ERR_CORRUPT;
    /* The owner may have overwritten this slot meanwhile. A half-read call would be reported as a mismatch, so check again. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&from->seq, memory_order_relaxed) == seq;
}

static bool has_refused(const struct refusals *refusals, uint64_t number)
{
    uint64_t since = refusals->last - number;

    return refusals->last >= number && (since == 0 ? number != 0 : since <= 32 && (refusals->before >> (since - 1) & 1));
}

/* A note may overtake the calls before it. When those calls are published too, they show whether both ranks mean the same call by a
 * number. */
bool state_has_published(const struct comm_state *b, int32_t rank, uint64_t number)
{
    const struct wire_call *ring = rank >= 0 ? b->channel->peer_calls[rank] : NULL;
    uint32_t there = ring ? atomic_load_explicit(&ring[(uint32_t)number & b->calls.mask].seq, memory_order_acquire) : 0;

    return !ring || (there != 0 && (int32_t)(there - (uint32_t)number) >= 0);
}

bool state_knows_refused(const struct comm_state *b, int32_t rank, uint64_t number)
{
    return has_refused(&b->failure.heard[rank], number) && state_has_published(b, rank, number);
}

/* Has this rank an unfinished call of this number that it did not refuse? A call that has retired did not need the peer. */
static bool made_well(struct comm_state *b, uint64_t number, uint32_t *collective)
{
    for (uint64_t t = b->line.done + 1; t < b->line.next; t++) {
        const struct entry *e = state_entry(b, t);
        *collective = e->record.collective;
        if (e->seq && e->seq == (uint32_t)number)
            return e->head.kind != TIMELINE_REFUSED;
    }
    return false;
}

/* Finds the oldest call that the peer refused and that this rank has in progress. */
static bool find_refused(struct comm_state *b, int32_t peer, struct cause *cause)
{
    const struct refusals *theirs = &b->failure.heard[peer];

    for (uint64_t number = theirs->last > 32 ? theirs->last - 32 : 1; number <= theirs->last; number++) {
        if (!state_knows_refused(b, peer, number) || !made_well(b, number, &cause->collective))
            continue;
        cause->number = number;
        cause->rank = peer;
        cause->result = COMM_ERR_REFUSED;
        cause->code = theirs->reason;
        return true;
    }
    return false;
}

/* Records the refusal. Then checks every published call that this rank made and the peer refused, then older calls that are still in
 * progress. */
void state_hear_refusal(struct comm_state *b, int32_t peer, const struct cause *note)
{
    uint64_t last = state_published(b);
    struct cause cause = {.peer = b->team.rank};

    if (note->number > b->failure.refused_until)
        b->failure.refused_until = note->number;
    b->failure.heard[peer] = (struct refusals){note->number, note->point, note->code};
    for (uint64_t seq = last > b->calls.mask ? last - b->calls.mask : 1; seq <= last; seq++) {
        struct made_call mine, theirs;
        if (state_read_call(b, b->team.rank, (uint32_t)seq, &mine) && state_read_call(b, peer, (uint32_t)seq, &theirs) && theirs.refused &&
            !mine.refused) {
            state_mismatch(b, (uint32_t)seq, peer); /* an older difference may have shifted the numbers, so look for that cause first */
            return;
        }
    }
    if (find_refused(b, peer, &cause))
        state_mismatch(b, (uint32_t)cause.number, peer);
}

/* Finds the lowest pair of ranks whose calls differ under this number; every rank finds the same pair. A refused call is reported as a
 * refusal. */
static bool find_difference(const struct comm_state *b, uint32_t seq, struct cause *cause)
{
    struct made_call first, call;
    int32_t first_rank = -1;

    for (int32_t r = 0; r < b->team.size; r++) {
        if (!state_read_call(b, r, seq, &call))
            continue;
        if (first_rank < 0) {
            first = call;
            first_rank = r;
        } else if (call.refused != first.refused || (!call.refused && call.fingerprint != first.fingerprint)) {
            const struct made_call *refused = call.refused ? &call : first.refused ? &first : NULL;
            *cause = (struct cause){.number = seq,
                                    .rank = refused == &first ? first_rank : r,
                                    .peer = refused == &first ? r : first_rank,
                                    .result = refused ? COMM_ERR_REFUSED : COMM_ERR_MISMATCH,
                                    .collective = refused == &call ? first.collective : call.collective,
                                    .code = refused ? refused->refused : 0};
            return true;
        }
    }
    return false;
}

/* Lines carry a chain over all calls, so an earlier call may be the one that differs. This proposes the oldest difference that is still
 * published. */
void state_mismatch(struct comm_state *b, uint32_t seq, int32_t peer)
{
    uint32_t from = seq > b->calls.mask ? seq - b->calls.mask : 1;
    struct cause cause = {.number = seq, .rank = peer, .peer = b->team.rank, .result = COMM_ERR_MISMATCH};
    struct made_call call;

    if (state_read_call(b, peer, seq, &call))
        cause.collective = call.collective;
    else if (!made_well(b, seq, &cause.collective)) /* most often it has the name of this rank's call */
        cause.collective = 0;
    bool found = false;
    for (uint32_t s = from; s <= seq && !found; s++)
        found = find_difference(b, s, &cause);
    for (int32_t r = 0; r < b->team.size && !found; r++)
        found = find_refused(b, r, &cause);
    state_propose(b, &cause);
}

/* ------------------------------------------------------------------------------------------------------------ lengths */
static uint64_t edge(int32_t from, int32_t to, size_t n)
{
    return base_hash(base_hash((uint64_t)from << 32 | (uint32_t)to, n), 0);
}

/* Sums the hashes of the edges to (given) or from all others, by the counts of a root, or of a rank in alltoall. */
static uint64_t edges(const struct comm_state *b, const size_t *counts, bool given)
{
    uint64_t sum = 0;

    for (int32_t r = 0; r < b->team.size; r++)
        if (r != b->team.rank)
            sum += given ? edge(b->team.rank, r, counts[r]) : edge(r, b->team.rank, counts[r]);
    return sum;
}

uint32_t state_balance(const struct comm_state *b, const struct engine_call *call)
{
    int32_t rank = b->team.rank;

    if (call->collective == COLLECTIVE_GATHER_V)
        return (uint32_t)(rank == call->root ? -edges(b, call->counts, false) : edge(rank, call->root, call->n));
    if (call->collective == COLLECTIVE_SCATTER_V)
        return (uint32_t)(rank == call->root ? edges(b, call->counts, true) : -edge(call->root, rank, call->n));
    return (uint32_t)(edges(b, call->in_counts ? call->in_counts : call->counts, true) - edges(b, call->counts, false));
}

/* False: all ranks have published the call, and the two lengths of some edge differ; then that is proposed. */
bool state_lengths_agree(struct comm_state *b, uint32_t seq)
{
    struct made_call mine = {.collective = 0}, call;
    uint32_t sum = 0;

    for (int32_t r = 0; r < b->team.size; r++) {
        if (!state_read_call(b, r, seq, &call) || !collective_is_ragged(call.collective))
            return true;
        sum += call.op;
        if (r == b->team.rank)
            mine = call;
    }
    if (!sum)
        return true;
    /* this rank's own root, if it is a rank: a peer can publish any number */
    int32_t rank = mine.collective != COLLECTIVE_ALLTOALL_V && mine.root > 0 && mine.root < b->team.size ? mine.root : 0;
    state_propose(b,
                  &(struct cause){.number = seq, .rank = rank, .peer = rank, .result = COMM_ERR_MISMATCH, .collective = mine.collective});
    return false;
}

/* Compares published calls. One-way collectives that differ (in the root, say) may complete everywhere, so nothing else finds them. */
void state_compare(struct comm_state *b)
{
    uint64_t last = state_published(b);

    if (b->calls.compared + b->calls.mask < last)
        b->calls.compared = last - b->calls.mask;
    for (; b->calls.compared < last && !b->failed && !b->failure.proposal.result; b->calls.compared++) {
        uint32_t seq = (uint32_t)b->calls.compared + 1; /* no call has the number 0: a place with it is empty, or is being written */
        struct made_call mine, call;
        bool made = seq && state_read_call(b, b->team.rank, seq, &mine);
        for (int32_t r = 0; seq && r < b->team.size; r++) {
            if (!state_read_call(b, r, seq, &call))
                return;
            if (made && call.chain != mine.chain) {
                state_mismatch(b, seq, r);
                return;
            }
        }
        if (made && !state_lengths_agree(b, seq))
            return;
    }
}
