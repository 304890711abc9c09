/*
 * The fast path: a small collective on a communicator that does nothing else, without the interpreter. It does what a program of one
 * exchange does (select/exchange.c): the same bytes in the same lines, so a rank on the fast path meets a rank that runs the program. But
 * it sets up no run, which would take longer than the whole exchange.
 *
 * First comes what stands between the call and the first store that peers wait for. What only this rank needs comes later, while the
 * peers' lines travel. The operation is an entry of the queue like any other: what fails, closes, lists or waits for it knows nothing of
 * this file.
 */
#include "fastpath/fastpath.h"

#include "comm/state.h"

#include <commstream/collective.h>
#include <string.h>

enum { FETCH_EARLY = 3, FETCH_SOON_BYTES = 256 /* what a peer that came at the same time has written by then; of more, later */ };

/* ------------------------------------------------------------------------------------------------------------ may it go this way? */
/* Does it conflict with what is under way here? A barrier conflicts with everything. The address range over all may meet it where none of
 * them does, by where their buffers happen to lie: then each is asked, so that addresses alone never decide which way a call goes. */
static bool conflicts(struct comm_state *b, const struct engine_call *call)
{
    struct timeline *line = &b->line;
    bool found = line->fences || call->collective == COLLECTIVE_BARRIER;

    timeline_join(line);
    if (!found && timeline_beside(line, &call->read, &call->write))
        return false;
    for (uint64_t t = line->done + 1; !found && t < line->next; t++)
        found = timeline_conflict(timeline_entry(line, t), &call->read, &call->write);
    return found;
}

/* The queue has nothing but operations of this kind, and the call conflicts with none of them. */
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
    return b->line.done + 1 == b->line.next && !b->failed; /* what it saw may have ended the communicator */
}

/* The communicator has not failed, no peer refused a call, and no message is under way. */
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
    const struct wire_span span = {(const void *)((uintptr_t)in + give->at), give->bytes}; /* as a number: of no bytes it may be NULL */
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

/* To each its own, from where room ended; or FAILED, from where there was no memory for the places. */
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

/* One span for all, however long. */
static inline enum wire_result show_long(struct comm_state *b, const struct call_template *f, struct entry *entry, const void *in,
                                         uint32_t seq, uint32_t chain, uint64_t ticket)
{
    struct wire_span span = {in, f->shown};
    struct wire_expose e; /* field by field, here and below: compilers clear a whole structure first, and with slow instructions */
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

/* Peers have been shown something: the call is made, and what else becomes of it is this way's to say. */
static inline bool has_begun(const struct call_template *f, const struct entry *e)
{
    return f->pairs && !f->only && e->unshown < f->shows;
}

/* The parts of an entry that this way uses, but for its head and what `show` says. */
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

/* state_fill_entry and number_call in a few stores. */
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

void fastpath_fetch(struct comm_state *b, const struct call_template *f, uint32_t seq)
{
    for (uint32_t ranks = f->fetched; ranks; ranks &= ranks - 1) {
        uint32_t r = (uint32_t)__builtin_ctz(ranks);
        b->wire->fetch(b->channel, wire_key_of(seq, 0, f->takes[r].edge), r, f->came[r]);
    }
}

/* One that ends in its call, alone in the queue: it was never an entry there, but a number, a record and a published call all the same. */
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
    b->told.done = b->fastpath->last = f->last = ticket;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (b->team.size > 1) {
        b->wire->release(b->channel, seq, NULL);
        b->wire->flush(b->channel);
    }
    engine_tell(b->unit.engine);
}

static inline void count(struct comm_state *b, struct call_template *f)
{
    struct fastpath *x = b->fastpath;

    x->template = f;
    b->stats.operations++;
    x->bytes_out += f->bytes_out;
    x->bytes_in += f->bytes_in;
}

/* Whether the call looks for the bytes of its peers itself. A look that comes before a peer's store takes the line away from the peer, and
 * both then pay for it twice: so a call leaves that to whoever waits, some instructions later. A call that has nothing to look for is done;
 * one that only looks, and came later than its peers the last time, may do so again; so may any call where ranks share CPUs. */
static inline bool looks_in_call(const struct comm_state *b, const struct call_template *f)
{
    const struct fastpath *x = b->fastpath;

    return !f->looked || ((!f->npeers || b->unit.engine->oversubscribed) && x->missed != x->last);
}

/* Ends the operation in its call, where all that it needs is there and nothing is queued. */
static inline __attribute__((always_inline)) bool end_in_call(struct comm_state *b, struct call_template *f, const struct engine_call *call,
                                                              struct entry *e, uint32_t chain, struct comm_request *req)
{
    uint32_t seq = (uint32_t)b->sequence + 1;

    if (b->line.done + 1 != b->line.next || !looks_in_call(b, f) ||
        (f->looked && fastpath_come(b, f, e, call->in, call->out, seq, chain) != WIRE_DONE) || e->unshown)
        return false;
    if (f->looked)
        fastpath_fetch(b, f, seq + FETCH_EARLY);
    if (f->writes)
        fastpath_make_result(b, f, call->in, call->out);
    pass_through(b, f, call, chain, req);
    return true;
}

/* The operation stands in the queue, and its wait ends it. The lines of the peers are asked for here, halfway: a peer that came at the same
 * time has just stored, and its line travels while the rest of the call is done. */
static inline __attribute__((always_inline)) void enqueue(struct comm_state *b, struct call_template *f, const struct engine_call *call,
                                                          struct entry *e, uint32_t chain, bool unshown, struct comm_request *req)
{
    struct fastpath *x = b->fastpath;

    enter(b, f, call, e, chain);
    bool alone = b->line.done + 1 == b->line.next;
    if (f->npeers && f->looked && alone)
        fastpath_fetch(b, f, e->seq);
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

/* The general way: any call whose template fits. False: nothing happened; the queue's own way says why, if it cannot go either. */
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

/* Buffers that are there, apart, and conflict with nothing that is under way. */
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
 * The straight way: issue_general without a branch that a straight template leaves out. Every rank both shows and looks, and nothing is
 * unfinished but operations of this kind that it does not conflict with: the call as most programs make it, a few bytes and then a wait, or
 * several and then a wait. False: nothing happened, and issue_general finds out why.
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
        fastpath_fetch(b, f, seq);
    state_publish(b, seq, f->call.fingerprint, chain, &f->as, f->as.op, COMM_OK);
    count(b, f);
    (void)(alone ? timeline_issue_alone(line, &e->head) : timeline_issue_beside(line, &e->head));
    x->last = f->last = ticket;
    x->straight = few && alone ? ticket : 0;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (!soon && alone)
        fastpath_fetch(b, f, seq);
    fastpath_flush(b);
    if (BASE_UNLIKELY(!b->is_active))
        state_activate(b);
    return true;
}

/* A function of its own, so that a call of few bytes saves no registers for it. */
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
        return false; /* in place: what lands takes the place of what is shown */
    if (!f || !f->call.fits)
        return false;
    return (f->straight && issue_straight(b, f, (uintptr_t)call->in, (uintptr_t)call->out, req)) || issue_general(b, f, call, req);
}

bool fastpath_again(struct comm_state *b, const struct call_shape *as, const void *in, void *out, struct comm_request *req)
{
    struct call_template *f = b->fastpath ? b->fastpath->template : NULL; /* a recorder has none */
    bool same = f && f->straight && f->call.fits && f->call.n == as->n && f->call.what == as->what && f->call.where == as->where;

    return same && !f->has_counts[0] && may_issue(b) && issue_straight(b, f, (uintptr_t)in, (uintptr_t)out, req);
}

/* The call of a template with other buffers: they must be there, as long as the template says, and apart. */
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
    if (BASE_UNLIKELY(same && (state_is_foreign(b, in) || state_is_foreign(b, out))))
        same = false; /* the general way stages it */
    if (BASE_LIKELY(same && !b->recording.plan && may_issue(b) && (!f->has_counts[0] || (v && fastpath_same_layout(b, f, v)))))
        went = (f->straight && issue_straight(b, f, (uintptr_t)in, (uintptr_t)out, req)) || issue_repeated(b, f, in, out, req);
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

/* ------------------------------------------------------------------------------------------------------------ later */
/* Those that found no room, in their order. */
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
            state_lacks_memory(b, e);
            return;
        }
    }
    x->waits = 0;
}
