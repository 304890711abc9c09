/*
 * The small exchange: an allreduce or barrier of few bytes on a communicator where nothing else goes on, written by hand. It is the program
 * read_all (everybody shows all to everybody, each reduces), the same bytes in the same lines, so that ranks which take the program meet
 * it; but no program is interpreted and no run is set up, which is more than the whole exchange takes otherwise.
 *
 * What stands between a call and the first store that peers wait for comes first, what only we need later, while the peers' lines travel.
 * The operation is an entry of the queue like any other: what fails, closes, lists or waits for it knows nothing of this file.
 */
#include "engine/body.h"

#include <commstream/collective.h>

enum { WAIT_TURNS = 400, WAIT_EAGER_TURNS = 64, WAIT_YIELDS = 32, FETCH_AHEAD = 8 };

/* ------------------------------------------------------------------------------------------------------------ which calls */
static inline bool same_form(const struct express_form *f, const struct engine_call *call)
{
    return f->known && f->n == call->n && f->op == call->op && f->type == call->type && f->collective == call->collective &&
           f->flags == call->flags && f->root == call->root;
}

static void learn_form(struct body *b, const struct engine_call *call)
{
    struct express_form *f = &b->form;
    enum comm_result why;
    bool reduces =
        (call->collective == COLLECTIVE_ALLREDUCE || call->collective == COLLECTIVE_BARRIER) && !b->world->check && !b->world->order_block;
    const struct algo_row *row =
        reduces && b->team.size <= EXPRESS_RANKS ? body_choose(b, call->collective, call->n * data_partial_bytes(call->type), &why) : NULL;

    *f = (struct express_form){.collective = call->collective,
                               .flags = call->flags,
                               .type = call->type,
                               .op = call->op,
                               .n = call->n,
                               .bytes = call->n * data_type_bytes(call->type),
                               .root = call->root,
                               .fingerprint = body_fingerprint(b, call),
                               .known = true};
    if (!row || (row->build != algo_read_all && b->team.size > 1))
        return;
    if (b->native && ((b->native_flags & NATIVE_STREAM) || native_takes(b, call) != COMM_ERR_UNSUPPORTED))
        return;
    f->reduce = data_reducer(call->type, call->op, b->engine->isa);
    f->algorithm = row->name;
    f->fits = f->reduce != NULL;
}

/* Does it conflict with what is under way here? A barrier conflicts with everything. */
static bool conflicts(const struct body *b, const struct engine_call *call)
{
    const struct timeline *line = &b->line;

    return line->fences || call->collective == COLLECTIVE_BARRIER || timeline_meet(&call->write, &line->started_read) ||
           timeline_meet(&call->write, &line->started_write) || timeline_meet(&call->read, &line->started_write);
}

/* Nothing in the queue but operations of this kind, none of which it conflicts with. */
static inline bool has_way(struct body *b, const struct engine_call *call)
{
    uint64_t pending = b->line.next - 1 - b->line.done;

    if (BASE_LIKELY(!pending))
        return true;
    if (b->express.last + 1 != b->line.next)
        return false;
    if (pending < b->line.window && !conflicts(b, call))
        return true;
    express_poll(b);
    return b->line.done + 1 == b->line.next && !b->failed; /* what it saw may have ended the communicator */
}

/* Nothing to hear of, and nothing but operations of this kind. */
static inline bool may_go(struct body *b)
{
    const struct wire_board *board = b->channel->board;

    if (b->talk_first != TALK_NONE || b->failed || b->proposal.result || b->sequence < b->refused_until || (uint32_t)(b->sequence + 1) == 0)
        return false;
    return !board || !atomic_load_explicit(&board->cause, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------------------------------ the operation */
static inline enum wire_result show(struct body *b, const struct engine_call *call, wire_key key, uint32_t chain)
{
    if (b->team.size == 1)
        return WIRE_DONE;

    struct wire_span span = {call->in, b->form.bytes};
    struct wire_expose e; /* field by field, here and below: compilers clear a whole structure first, and with slow instructions */
    e.key = key;
    e.fingerprint = chain;
    e.edge = WIRE_ONCE | WIRE_TO_ALL;
    e.flags = WIRE_WORK;
    e.peers = b->others;
    e.npeers = (uint32_t)b->team.size - 1;
    e.nspans = 1;
    e.spans = &span;
    e.cookie = (uint64_t)EXPRESS_COOKIE << 32 | (uint32_t)b->line.next;
    return b->wire->expose(b->channel, &e);
}

/* The parts of an entry that this way uses; body_fill_entry and number_call in a few stores. */
static inline __attribute__((always_inline)) struct entry *enter(struct body *b, const struct engine_call *call, struct entry *e,
                                                                 uint32_t chain)
{
    const struct express_form *f = &b->form;
    bool barrier = call->collective == COLLECTIVE_BARRIER;

    e->head.kind = barrier ? TIMELINE_BARRIER : TIMELINE_WORK;
    e->head.result = COMM_OK;
    e->head.read = call->read;
    e->head.write = call->write;
    e->call.in = call->in;
    e->call.out = call->out;
    e->call.n = call->n;
    e->ended = NULL;
    e->reduce = f->reduce; /* the form may be another before this one ends */
    e->root = call->root;
    e->fingerprint = f->fingerprint;
    e->seq = (uint32_t)++b->sequence;
    e->chain = b->chain = chain;
    e->record.bytes = f->bytes;
    e->record.algorithm = f->algorithm;
    e->record.sequence = e->seq;
    e->record.collective = (uint16_t)call->collective;
    e->record.waited = 0;
    e->record.queued_ns = e->record.started_ns = b->engine->env->now(b->engine->env);
    return e;
}

/*
 * Once its line stands, nobody needs anything of this rank any more, so the call does not look for the others': a look that comes before
 * a peer's store takes the line away from it, and both then pay for it twice. Who waits looks, some instructions later.
 */
static inline __attribute__((always_inline)) bool go(struct body *b, const struct engine_call *call, struct comm_request *req)
{
    enum comm_result why;

    if (BASE_UNLIKELY(!has_way(b, call)))
        return false;
    uint32_t chain = body_chain(b->chain, b->form.fingerprint);
    struct entry *e = (struct entry *)(void *)timeline_room(&b->line, &why);
    if (BASE_UNLIKELY(!e))
        return false; /* the long way says why */
    enum wire_result shown = show(b, call, wire_key_of((uint32_t)b->sequence + 1, 0, 0), chain);
    if (BASE_UNLIKELY(shown != WIRE_DONE && shown != WIRE_PENDING))
        return false; /* the long way waits for room */
    e->showing = shown == WIRE_PENDING;
    body_publish_call(b, enter(b, call, e, chain), call, COMM_OK);
    uint64_t ticket = b->line.done + 1 == b->line.next ? timeline_issue_alone(&b->line) : timeline_issue_beside(&b->line);
    b->express.last = ticket;
    b->stats.operations++;
    b->express_bytes += b->form.bytes;
    if (req)
        *req = (struct comm_request){b->face, ticket};
    if (b->team.size > 1)
        b->wire->flush(b->channel);
    else
        express_poll(b);
    if (BASE_UNLIKELY(!b->is_active && express_pending(b)))
        body_activate(b);
    return true;
}

bool express_issue(struct body *b, const struct engine_call *call, struct comm_request *req)
{
    if (!may_go(b) || call->counts)
        return false;
    if (BASE_UNLIKELY(!same_form(&b->form, call)))
        learn_form(b, call);
    return b->form.fits && go(b, call, req);
}

static inline __attribute__((always_inline)) bool repeat(struct body *b, const void *in, void *out, struct comm_request *req)
{
    const struct express_form *f = &b->form;
    uintptr_t from = (uintptr_t)(in == COMM_IN_PLACE ? out : in), to = (uintptr_t)out;
    bool apart = in == COMM_IN_PLACE || from + f->bytes <= to || to + f->bytes <= from;
    struct engine_call call = {.collective = COLLECTIVE_ALLREDUCE,
                               .type = f->type,
                               .op = f->op,
                               .in = (const void *)from,
                               .out = out,
                               .n = f->n,
                               .read = {from, from + f->bytes},
                               .write = {to, to + f->bytes}};

    return BASE_LIKELY(from && to && out != COMM_IN_PLACE && apart) && go(b, &call, req);
}

bool engine_repeat(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                   struct comm_request *req)
{
    enum comm_result why;
    struct body *b = body_lock(c, &why);
    bool went = false;

    if (!b)
        return false;
    const struct express_form *f = &b->form;
    bool same = f->fits && f->n == n && n && f->op == op && f->type == type && f->collective == COLLECTIVE_ALLREDUCE;
    if (BASE_LIKELY(same && !f->flags && !f->root && !b->recording && may_go(b)))
        went = repeat(b, in, out, req);
    body_unlock(b);
    return went;
}

static void finish(struct body *b, uint64_t ticket, struct entry *e)
{
    struct express *x = &b->express;
    struct data_reduce reduce = {.from = x->from,
                                 .ways = (uint32_t)b->team.size,
                                 .divisor = (uint32_t)b->team.size,
                                 .to = e->call.out,
                                 .elements = e->call.n,
                                 .final = true};

    x->from[b->team.rank] = e->call.in;
    if (e->call.n)
        e->reduce(&reduce);
    x->seen = 0;
    body_record(b, &e->record, ticket, b->engine->env->now(b->engine->env), COMM_OK);
    timeline_retire_oldest(&b->line);
    b->told_done = ticket;
    if (b->team.size > 1)
        b->wire->release(b->channel, e->seq, NULL);
}

static inline enum wire_result look_for(struct body *b, const struct entry *e, int32_t rank, uint32_t how, struct wire_view *view)
{
    struct wire_look look;
    look.key = wire_key_of(e->seq, 0, 0);
    look.fingerprint = e->chain;
    look.edge = WIRE_ONCE | WIRE_TO_ALL;
    look.flags = (uint16_t)(WIRE_WORK | how);
    look.peer = (uint32_t)rank;
    look.reserved = 0;
    look.land = NULL;
    look.bytes = e->record.bytes;
    look.cookie = 0;
    look.view = view;
    return b->wire->view(b->channel, &look);
}

/* Lines that are looked for together travel side by side, not each after the one before. */
static void fetch(struct body *b, const struct entry *e)
{
    for (int32_t i = 0; i < b->team.size - 1; i++)
        (void)look_for(b, e, b->others[i], WIRE_FETCH, NULL);
}

static void fetch_ahead(struct body *b)
{
    struct express *x = &b->express;
    uint64_t from = x->fetched > b->line.done + 1 ? x->fetched : b->line.done + 1;
    uint64_t to = b->line.done + FETCH_AHEAD < x->last ? b->line.done + FETCH_AHEAD : x->last;

    for (uint64_t t = from + 1; t <= to; t++)
        fetch(b, body_entry(b, t));
    x->fetched = to > x->fetched ? to : x->fetched;
}

/* Are the oldest one's lines all there? */
static bool has_arrived(struct body *b, struct entry *e)
{
    struct express *x = &b->express;

    for (int32_t i = 0; i < b->team.size - 1; i++) {
        struct wire_view view;
        int32_t r = b->others[i];
        if (x->seen >> r & 1)
            continue;
        enum wire_result result = look_for(b, e, r, WIRE_GLANCE, &view);
        if (result == WIRE_AGAIN) {
            e->record.waited = (uint16_t)(r + 1);
            return false;
        }
        if (BASE_UNLIKELY(result == WIRE_MISMATCH)) {
            body_mismatch(b, e->seq, r);
            return false;
        }
        x->seen |= 1u << r;
        x->from[r] = view.at;
    }
    return !e->showing;
}

/* The wire has read the bytes of the operation whose ticket ends in this. */
void express_shown(struct body *b, uint32_t ticket)
{
    uint64_t oldest = b->line.done + 1;

    body_entry(b, oldest + (uint32_t)(ticket - (uint32_t)oldest))->showing = false; /* the pass that brought this looks again */
}

/* Ends what has arrived, oldest first. */
bool express_poll(struct body *b)
{
    uint64_t done = b->line.done;

    while (express_pending(b)) {
        struct entry *e = body_entry(b, b->line.done + 1);
        if (b->express.last != b->line.done + 1)
            fetch_ahead(b);
        if (!has_arrived(b, e))
            break;
        finish(b, b->line.done + 1, e);
    }
    if (b->line.done == done)
        return false;
    engine_told(b->engine);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ waiting */
/* The body, locked, while this request is one of ours and unfinished. */
static inline struct body *hold(struct comm_request request)
{
    struct comm_communicator *face = request.comm;

    if (!base_home_trylock(&face->lock, face->env))
        return NULL;
    struct body *b = atomic_load_explicit(&face->body, memory_order_relaxed);
    if (b && express_pending(b) && request.ticket <= b->express.last && !b->failed)
        return b;
    base_home_unlock(&face->lock, face->env);
    return NULL;
}

static inline bool let_go(struct body *b, uint64_t ticket)
{
    bool ended = b->line.done >= ticket;

    if (ended && b->line.done + 1 != b->line.next && !express_pending(b))
        body_settle(b); /* what stood behind it may start */
    body_unlock(b);
    return ended;
}

/* More ranks than CPUs: the others need this one. Nothing is held while they have it but the engine, by whoever called this. */
bool express_wait_in_turn(struct engine *e, struct comm_request request)
{
    int64_t now = 0;

    for (int turn = 0; turn < WAIT_YIELDS; turn++) {
        struct body *b = hold(request);
        if (!b)
            return timeline_test(request) != COMM_PENDING;
        fetch(b, body_entry(b, b->line.done + 1));
        express_poll(b);
        if (let_go(b, request.ticket))
            return true;
        if (!engine_yield(e, &now))
            return false;
    }
    return false;
}

/*
 * Waits for it a moment, under the communicator's lock: for as long as a peer that called at the same time takes. Where ranks outnumber
 * CPUs that peer may not even run: then waiting is in turns, by who holds the engine.
 */
bool express_wait(struct comm_request request)
{
    if (request.ticket <= atomic_load_explicit(&request.comm->done, memory_order_acquire))
        return false;
    struct body *b = hold(request);
    if (!b)
        return false;
    if (b->engine->crowded) {
        body_unlock(b);
        return false;
    }
    const struct comm_env *env = b->engine->env;
    for (int turn = 0; turn < WAIT_TURNS && express_pending(b) && b->line.done < request.ticket; turn++)
        if (!express_poll(b) && turn >= WAIT_EAGER_TURNS)
            env->relax(env, false);
    return let_go(b, request.ticket);
}
