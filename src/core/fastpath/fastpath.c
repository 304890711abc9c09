/*
 * The fast path: a small collective on a communicator that does nothing else, without the interpreter. It does what a program of one
 * exchange does (select/exchange.c): it writes the same bytes to the same lines. So a rank on the fast path can meet a rank that runs the
 * program. But it sets up no run, which would take longer than the whole exchange.
 *
 * First comes only what is needed for the first store that peers wait for. Work that only this rank needs comes later, while the peers'
 * lines are in flight. The operation is an entry of the queue like any other, so the code that fails, closes, lists or waits for operations
 * does not depend on this file.
 */
#include "fastpath/fastpath.h"

#include "comm/state.h"

#include <commstream/collective.h>
#include <string.h>

/* FETCH_SOON_BYTES: a peer that called at the same time has written this much by then; longer data are fetched later */
enum { FETCH_EARLY = 3, FETCH_SOON_BYTES = 256, FETCH_FEW_BYTES = 512 };

/* ------------------------------------------------------------------------------------------------------------ eligibility */
/* Does the call conflict with operations in progress? A barrier conflicts with everything. The union of all address ranges may overlap the
 * call although no single operation does, depending on where the buffers are. Then each operation is compared, so that addresses alone
 * never decide which path a call takes. */
static bool conflicts(struct comm_state *b, const struct engine_call *call)
{
    struct timeline *line = &b->line;
    bool found = line->holding || call->collective == COLLECTIVE_BARRIER;

    timeline_join(line);
    if (!found && timeline_beside(line, &call->read, &call->write))
        return false;
    for (uint64_t t = line->done + 1; !found && t < line->next; t++)
        found = timeline_conflict(timeline_entry(line, t), &call->read, &call->write);
    return found;
}

/* True if the queue contains only fast-path operations, and the call conflicts with none of them. */
static inline bool queue_allows(struct comm_state *b, const struct engine_call *call)
{
    uint64_t pending = b->line.next - 1 - b->line.done;

    if (BASE_LIKELY(!pending))
        return true;
    if (b->fastpath->last + 1 != b->line.next)
        return false;
    if (pending < b->line.window && !conflicts(b, call))
        return true;
    fastpath_poll(b);
    return b->line.done + 1 == b->line.next && !b->failed; /* the poll may have ended the communicator */
}

/* True if the communicator has not failed, no peer refused a call, and no message is in progress. */
static inline bool may_issue(struct comm_state *b)
{
    const struct wire_board *board = b->channel->board;

    if (b->p2p.first != P2P_NONE || b->failed || b->failure.proposal.result || b->sequence < b->failure.refused_until ||
        (uint32_t)(b->sequence + 1) == 0)
        return false;
    return !board || !atomic_load_explicit(&board->cause, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------------------------------ the operation */
static inline enum wire_result show_one(struct comm_state *b, const struct fastpath_span *give, const uint16_t *peer, const void *in,
                                        uint32_t seq, uint32_t chain, uint64_t ticket)
{
    /* as a number: with 0 bytes, the pointer may be NULL */
    const struct wire_span span = {(const void *)((uintptr_t)in + give->at), give->bytes};
    const wire_key key = wire_key_of(seq, 0, give->edge);

    if (BASE_LIKELY(give->few))
        return b->wire->show(b->channel, key, chain ^ give->mark, span.at, span.bytes);
    return b->wire->expose(b->channel, &(struct wire_expose){.key = key,
                                                             .fingerprint = chain ^ give->mark,
                                                             .edge = give->kind,
                                                             .peers = peer,
                                                             .npeers = 1,
                                                             .nspans = 1,
                                                             .spans = &span,
                                                             .cookie = (uint64_t)FASTPATH_COOKIE << 32 | (uint32_t)ticket});
}

/* Shows each peer its own block. AGAIN: there was no room for the next one. FAILED: no memory for the place. */
static __attribute__((noinline)) enum wire_result show_pairs(struct comm_state *b, const struct call_template *f, struct entry *e,
                                                             const void *in, uint32_t seq, uint32_t chain, uint64_t ticket)
{
    while (e->unshown) {
        const uint16_t *peer = &f->peers[f->npeers - e->unshown];
        enum wire_result shown = show_one(b, &f->gives[*peer], peer, in, seq, chain, ticket);
        if (shown != WIRE_DONE && shown != WIRE_PENDING)
            return shown;
        e->unshown--;
        e->unread = (uint8_t)(e->unread + (shown == WIRE_PENDING));
    }
    return e->unread ? WIRE_PENDING : WIRE_DONE;
}

/* Shows one span of any length to all peers. */
static inline enum wire_result show_long(struct comm_state *b, const struct call_template *f, struct entry *entry, const void *in,
                                         uint32_t seq, uint32_t chain, uint64_t ticket)
{
    struct wire_span span = {in, f->shown};
    struct wire_expose e; /* set field by field, here and below: compilers clear a whole structure first, with slow instructions */
    e.key = wire_key_of(seq, 0, 0);
    e.fingerprint = chain;
    e.edge = WIRE_ONCE | WIRE_TO_ALL;
    e.flags = WIRE_WORK | WIRE_LAST;
    e.peers = f->peers;
    e.npeers = f->npeers;
    e.nspans = 1;
    e.spans = &span;
    e.cookie = (uint64_t)FASTPATH_COOKIE << 32 | (uint32_t)ticket;
    enum wire_result shown = b->wire->expose(b->channel, &e);
    entry->unshown = shown == WIRE_AGAIN;
    entry->unread = shown == WIRE_PENDING;
    return shown;
}

static inline enum wire_result show(struct comm_state *b, const struct call_template *f, struct entry *entry, const void *in, uint32_t seq,
                                    uint32_t chain, uint64_t ticket)
{
    if (f->only) {
        enum wire_result shown = show_one(b, f->only, f->peers, in, seq, chain, ticket);
        entry->unshown = shown == WIRE_AGAIN;
        return shown;
    }
    if (BASE_UNLIKELY(f->pairs))
        return show_pairs(b, f, entry, in, seq, chain, ticket);
    if (BASE_LIKELY(f->few)) {
        enum wire_result few = b->wire->show(b->channel, wire_key_of(seq, 0, 0), chain, in, f->shown);
        entry->unshown = few == WIRE_AGAIN;
        return few;
    }
    return show_long(b, f, entry, in, seq, chain, ticket);
}

/* True if peers were shown something. Then the call has started, and the fast path must finish it. */
static inline bool has_begun(const struct call_template *f, const struct entry *e)
{
    return f->pairs && !f->only && e->unshown < f->shows;
}

/* Fills the parts of an entry that the fast path uses, except its head and the results of `show`. */
static inline __attribute__((always_inline)) void fill(struct comm_state *b, struct call_template *f, struct entry *e, const void *in,
                                                       void *out, uint32_t chain)
{
    e->call.in = in;
    e->call.out = out;
    e->call.n = f->call.n;
    e->ended = NULL;
    e->template = f;
    e->root = f->as.root;
    e->fingerprint = f->call.fingerprint;
    e->seq = (uint32_t)b->sequence;
    e->chain = chain;
    e->record.bytes = f->bytes;
    e->record.algorithm = f->algorithm;
    e->record.sequence = e->seq;
    e->record.collective = (uint16_t)f->as.collective;
    e->record.waited = 0;
    e->record.queued_ns = e->record.started_ns = b->unit.engine->env->now(b->unit.engine->env);
}

/* Does what state_fill_entry and number_call do, in fewer stores. */
static inline __attribute__((always_inline)) struct entry *enter(struct comm_state *b, struct call_template *f,
                                                                 const struct engine_call *call, struct entry *e, uint32_t chain)
{
    bool barrier = call->collective == COLLECTIVE_BARRIER;

    b->sequence++;
    b->chain = chain;
    e->head.kind = barrier ? TIMELINE_BARRIER : TIMELINE_WORK;
    e->head.result = COMM_OK;
    e->head.read = call->read;
    e->head.write = call->write;
    fill(b, f, e, call->in, call->out, chain);
    return e;
}

/* there: the bytes have probably come. Otherwise many prefetches would take lines away from a peer that is writing them. */
void fastpath_fetch(struct comm_state *b, const struct call_template *f, uint32_t seq, bool there)
{
    for (uint32_t ranks = f->fetched; ranks; ranks &= ranks - 1) {
        uint32_t r = (uint32_t)__builtin_ctz(ranks);
        b->wire->fetch(b->channel, wire_key_of(seq, 0, f->takes[r].edge), r, there || f->came[r] <= FETCH_FEW_BYTES ? f->came[r] : 0);
    }
}

/* Completes an operation within its call, if the queue is empty. It never becomes an entry of the queue, but it has a sequence number, a
 * record and a published call like any other. */
static inline __attribute__((always_inline)) void pass_through(struct comm_state *b, struct call_template *f,
                                                               const struct engine_call *call, uint32_t chain, struct comm_request *req)
{
    uint32_t seq = (uint32_t)++b->sequence;
    uint64_t ticket = timeline_pass(&b->line);
    int64_t now = b->unit.engine->env->now(b->unit.engine->env);

    b->chain = chain;
    state_publish(b, seq, f->call.fingerprint, chain, call, call->op, COMM_OK);
    struct record *record = state_next_record(b);
    if (BASE_LIKELY(record != NULL)) {
        record->ticket = ticket;
        record->bytes = f->bytes;
        record->queued_ns = record->started_ns = record->completed_ns = now;
        record->algorithm = f->algorithm;
        record->sequence = seq;
        record->collective = (uint16_t)call->collective;
        record->waited = 0;
        record->result = COMM_OK;
        record->flags = 0;
    }
    b->fastpath->seen = 0;
    b->reported.done = b->fastpath->last = f->last = ticket;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (b->team.size > 1) {
        b->wire->release(b->channel, seq, NULL);
        b->wire->flush(b->channel);
    }
    engine_wake_if_asleep(b->unit.engine);
}

static inline void count(struct comm_state *b, struct call_template *f)
{
    struct fastpath *x = b->fastpath;

    x->template = f;
    b->stats.operations++;
    x->bytes_out += f->bytes_out;
    x->bytes_in += f->bytes_in;
}

/* Should the call itself look for its peers' bytes? A look that comes before a peer's store takes the cache line away from the peer, and
 * both pay twice. So the call leaves the look to the wait, some instructions later. Exceptions: a call that needs no bytes is done at once.
 * A call that only looks may look again if it came later than its peers the last time. So may any call if ranks share CPUs. */
static inline bool looks_in_call(const struct comm_state *b, const struct call_template *f)
{
    const struct fastpath *x = b->fastpath;

    return !f->looked || ((!f->npeers || b->unit.engine->oversubscribed) && x->missed != x->last);
}

/* Completes the operation within its call, if all the bytes it needs are there and nothing is queued. */
static inline __attribute__((always_inline)) bool end_in_call(struct comm_state *b, struct call_template *f, const struct engine_call *call,
                                                              struct entry *e, uint32_t chain, struct comm_request *req)
{
    uint32_t seq = (uint32_t)b->sequence + 1;

    if (b->line.done + 1 != b->line.next || !looks_in_call(b, f) ||
        (f->looked && fastpath_come(b, f, e, call->in, call->out, seq, chain) != WIRE_DONE) || e->unshown)
        return false;
    if (f->looked)
        fastpath_fetch(b, f, seq + FETCH_EARLY, !f->npeers);
    if (f->writes)
        fastpath_make_result(b, f, call->in, call->out);
    pass_through(b, f, call, chain, req);
    return true;
}

/* Puts the operation into the queue; its wait completes it. The peers' lines are fetched here, halfway: a peer that called at the same time
 * has just stored, and its line travels while the rest of the call runs. */
static inline __attribute__((always_inline)) void enqueue(struct comm_state *b, struct call_template *f, const struct engine_call *call,
                                                          struct entry *e, uint32_t chain, bool unshown, struct comm_request *req)
{
    struct fastpath *x = b->fastpath;

    enter(b, f, call, e, chain);
    bool alone = b->line.done + 1 == b->line.next;
    if (f->npeers && f->looked && alone)
        fastpath_fetch(b, f, e->seq, false);
    state_publish_call(b, e, call, COMM_OK);
    uint64_t ticket = alone ? timeline_issue_alone(&b->line, &e->head) : timeline_issue_beside(&b->line, &e->head);
    x->last = f->last = ticket;
    if (BASE_UNLIKELY(unshown && !x->waits))
        x->waits = ticket;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (f->npeers)
        fastpath_flush(b);
    if (BASE_UNLIKELY(!b->is_active))
        state_activate(b);
}

/* The general path: any call with a matching template. False: nothing happened, and the normal queue takes the call or reports why it
 * cannot. */
static inline __attribute__((always_inline)) bool issue_general(struct comm_state *b, struct call_template *f,
                                                                const struct engine_call *call, struct comm_request *req)
{
    struct fastpath *x = b->fastpath;
    enum wire_result shown = WIRE_DONE;
    enum comm_result why;

    if (BASE_UNLIKELY(!queue_allows(b, call)))
        return false;
    uint32_t chain = state_chain(b->chain, f->call.fingerprint);
    struct entry *e = (struct entry *)(void *)timeline_room(&b->line, &why);
    if (BASE_UNLIKELY(!e))
        return false;
    e->unshown = f->shows;
    e->unread = 0;
    if (f->npeers && !f->later)
        shown = BASE_UNLIKELY(x->waits) ? WIRE_AGAIN : show(b, f, e, call->in, (uint32_t)b->sequence + 1, chain, b->line.next);
    if (BASE_UNLIKELY(shown == WIRE_FAILED)) {
        if (!has_begun(f, e))
            return false;
        shown = WIRE_AGAIN;
    }
    count(b, f);
    if (shown == WIRE_DONE && end_in_call(b, f, call, e, chain, req))
        return true;
    enqueue(b, f, call, e, chain, shown == WIRE_AGAIN, req);
    return true;
}

/* True if the buffers are given, do not overlap, and conflict with nothing in progress. */
static inline __attribute__((always_inline)) bool buffers_allow(struct comm_state *b, const struct timeline_range *read,
                                                                const struct timeline_range *write, bool alone)
{
    bool apart = read->to <= write->from || write->to <= read->from;

    if (BASE_UNLIKELY(b->fastpath->waits || !read->from || !write->from || !apart || (void *)read->from == COMM_IN_PLACE ||
                      (void *)write->from == COMM_IN_PLACE))
        return false;
    return alone || (b->fastpath->last + 1 == b->line.next && timeline_beside(&b->line, read, write));
}

/*
 * The straight path: issue_general without the branches that a straight template does not need. Every rank both shows and looks, and the
 * only unfinished operations are fast-path ones that do not conflict. This is the most common pattern of programs: calls of a few bytes,
 * one or several, and then a wait. False: nothing happened, and issue_general determines why.
 */
static inline __attribute__((always_inline)) bool issue_straight_as(struct comm_state *b, struct call_template *f, uintptr_t from,
                                                                    uintptr_t to, bool few, struct comm_request *req)
{
    struct timeline *line = &b->line;
    struct fastpath *x = b->fastpath;
    uint32_t seq = (uint32_t)b->sequence + 1, chain = state_chain(b->chain, f->call.fingerprint);
    uint64_t ticket = line->next;
    const struct timeline_range read = {from, from + f->reads}, write = {to, to + f->writes};
    bool soon = f->shown <= FETCH_SOON_BYTES, alone = line->done + 1 == ticket;

    if (!buffers_allow(b, &read, &write, alone))
        return false;
    struct entry *e = state_entry(b, ticket);
    e->unread = 0;
    enum wire_result shown = few ? b->wire->show(b->channel, wire_key_of(seq, 0, 0), chain, (const void *)from, f->shown)
                                 : show_long(b, f, e, (const void *)from, seq, chain, ticket);
    if (BASE_UNLIKELY(shown != WIRE_DONE && shown != WIRE_PENDING))
        return false;
    b->sequence++;
    b->chain = chain;
    e->unshown = 0;
    e->head.kind = TIMELINE_WORK;
    e->head.result = COMM_OK;
    e->head.read = read;
    e->head.write = write;
    fill(b, f, e, (const void *)from, (void *)to, chain);
    if (soon && alone)
        fastpath_fetch(b, f, seq, false);
    state_publish(b, seq, f->call.fingerprint, chain, &f->as, f->as.op, COMM_OK);
    count(b, f);
    (void)(alone ? timeline_issue_alone(line, &e->head) : timeline_issue_beside(line, &e->head));
    x->last = f->last = ticket;
    x->straight = few && alone ? ticket : 0;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (!soon && alone)
        fastpath_fetch(b, f, seq, false);
    fastpath_flush(b);
    if (BASE_UNLIKELY(!b->is_active))
        state_activate(b);
    return true;
}

/* A separate function, so that a call of few bytes saves no registers for it. */
static __attribute__((noinline)) bool issue_straight_long(struct comm_state *b, struct call_template *f, uintptr_t from, uintptr_t to,
                                                          struct comm_request *req)
{
    return issue_straight_as(b, f, from, to, false, req);
}

static inline __attribute__((always_inline)) bool issue_straight(struct comm_state *b, struct call_template *f, uintptr_t from,
                                                                 uintptr_t to, struct comm_request *req)
{
    return BASE_LIKELY(f->few) ? issue_straight_as(b, f, from, to, true, req) : issue_straight_long(b, f, from, to, req);
}

bool fastpath_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    if (!may_issue(b) || b->team.size > FASTPATH_RANKS)
        return false;
    struct call_template *f = call_template_of(b, call);
    if (f && f->pairs && f->npeers && f->looked && call->in == call->out)
        return false; /* in place: data that arrive would overwrite data that are shown */
    if (!f || !f->call.fits)
        return false;
    return (f->straight && issue_straight(b, f, (uintptr_t)call->in, (uintptr_t)call->out, req)) || issue_general(b, f, call, req);
}

bool fastpath_again(struct comm_state *b, const struct call_shape *as, const void *in, void *out, struct comm_request *req)
{
    struct call_template *f = b->fastpath ? b->fastpath->template : NULL; /* a recorder has none */
    bool same = f && f->straight && f->call.fits && f->call.n == as->n && f->call.what == as->what && f->call.where == as->where;

    return same && !f->vectors.has_counts[0] && may_issue(b) && issue_straight(b, f, (uintptr_t)in, (uintptr_t)out, req);
}

/* Issues the call of a template with other buffers. They must be given, as long as the template says, and must not overlap. */
static inline __attribute__((always_inline)) bool issue_repeated(struct comm_state *b, struct call_template *f, const void *in, void *out,
                                                                 struct comm_request *req)
{
    uintptr_t from = f->reads ? (uintptr_t)in : 0, to = f->writes ? (uintptr_t)out : 0, nowhere = (uintptr_t)COMM_IN_PLACE;

    if (in == COMM_IN_PLACE && f->in_place && to)
        from = to;
    bool apart = from + f->reads <= to || to + f->writes <= from || !f->reads || !f->writes || (in == COMM_IN_PLACE && f->in_place);
    if (BASE_UNLIKELY((f->reads && (!from || from == nowhere)) || (f->writes && (!to || to == nowhere)) || !apart))
        return false;
    struct engine_call call = f->as;
    call.in = (const void *)from;
    call.out = (void *)to;
    call.read = (struct timeline_range){from, from + f->reads};
    call.write = (struct timeline_range){to, to + f->writes};
    return issue_general(b, f, &call, req);
}

static inline __attribute__((always_inline)) bool repeat_last(struct comm_communicator *c, const void *in, void *out, size_t n,
                                                              uint64_t what, uint64_t where, const struct engine_vectors *v,
                                                              struct comm_request *req)
{
    enum comm_result why;
    struct comm_state *b = state_lock(c, &why);
    bool went = false;

    if (!b)
        return false;
    struct call_template *f = b->fastpath ? b->fastpath->template : NULL; /* a recorder has none */
    bool same = f && f->call.fits && (f->call.n == n || (v && n == ENGINE_AS_COUNTED)) && f->call.what == what && f->call.where == where;
    if (same && state_sees_devices(b) && ((in != COMM_IN_PLACE && state_is_foreign(b, in)) || state_is_foreign(b, out)))
        same = false; /* the general path stages it */
    if (BASE_LIKELY(same && !b->recording.plan && may_issue(b) && (!f->vectors.has_counts[0] || (v && fastpath_same_layout(b, f, v)))))
        went = (f->straight && issue_straight(b, f, (uintptr_t)in, (uintptr_t)out, req)) || issue_repeated(b, f, in, out, req);
    else if (b->library && !state_sees_devices(b) && (!v || (v->counts && n == ENGINE_AS_COUNTED && !v->in_counts)))
        went = b->library->repeat(b, in, out, n, what, where, v ? v->counts : NULL, v ? v->displs : NULL, req);
    state_leave(b);
    return went;
}

bool engine_repeat(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                   struct comm_request *req)
{
    return repeat_last(c, in, out, n, what, where, NULL, req);
}

bool engine_repeat_v(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                     const struct engine_vectors *v, struct comm_request *req)
{
    return repeat_last(c, in, out, n, what, where, v, req);
}

/* ------------------------------------------------------------------------------------------------------------ later steps */
/* Shows the bytes of operations that found no room, in order. */
void fastpath_show_waiting(struct comm_state *b)
{
    struct fastpath *x = b->fastpath;

    for (; x->waits && x->waits <= x->last; x->waits++) {
        struct entry *e = state_entry(b, x->waits);
        enum wire_result shown =
            e->unshown && !e->template->later ? show(b, e->template, e, e->call.in, e->seq, e->chain, x->waits) : WIRE_DONE;
        if (shown == WIRE_AGAIN)
            return;
        if (BASE_UNLIKELY(shown == WIRE_FAILED)) {
            state_propose_own(b, e, COMM_ERR_MEMORY, 0);
            return;
        }
    }
    x->waits = 0;
}
