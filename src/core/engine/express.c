/*
 * The small exchange: an allreduce or barrier of few bytes on an idle communicator, written by hand. It is the program read_all (everybody
 * shows all to everybody, each reduces), the same bytes in the same lines, so that ranks which take the program meet it; but no program is
 * interpreted and no run is set up, which is more than the whole exchange takes otherwise.
 *
 * What stands between a call and the first store that peers wait for comes first, what only we need later, while the peers' lines travel.
 * The operation is an entry of the queue like any other: what fails, closes, lists or waits for it knows nothing of this file.
 */
#include "engine/body.h"

enum { WAIT_TURNS = 400, WAIT_EAGER_TURNS = 64 };

/* ------------------------------------------------------------------------------------------------------------ which calls */
static bool same_form(const struct express_form *f, const struct engine_call *call)
{
    return f->known && f->n == call->n && f->op == call->op && f->type == call->type && f->collective == call->collective &&
           f->flags == call->flags && f->root == call->root;
}

static void learn_form(struct body *b, const struct engine_call *call)
{
    struct express_form *f = &b->form;
    enum comm_result why;
    bool reduces = call->collective == COLLECTIVE_ALLREDUCE || call->collective == COLLECTIVE_BARRIER;
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
    f->reduce = data_reducer(call->type, call->op, b->engine->isa);
    f->algorithm = row->name;
    f->fits = f->reduce != NULL;
}

/* Nothing queued, nothing to hear of, and a form that is served. */
static bool may_go(struct body *b, const struct engine_call *call)
{
    struct express_form *f = &b->form;
    const struct wire_board *board = b->channel->board;

    if (b->line.done + 1 != b->line.next || b->talk_first != TALK_NONE || b->failed || b->proposal.result || call->counts ||
        b->sequence < b->refused_until || (uint32_t)(b->sequence + 1) == 0)
        return false;
    if (board && atomic_load_explicit(&board->cause, memory_order_relaxed))
        return false;
    if (BASE_UNLIKELY(!same_form(f, call)))
        learn_form(b, call);
    return f->fits;
}

/* ------------------------------------------------------------------------------------------------------------ the operation */
static enum wire_result show(struct body *b, const struct engine_call *call, wire_key key, uint32_t chain)
{
    if (b->team.size == 1)
        return WIRE_DONE;

    struct wire_span span = {call->in, b->form.bytes};
    struct wire_expose e = {.key = key,
                            .fingerprint = chain,
                            .edge = WIRE_ONCE | WIRE_TO_ALL,
                            .flags = WIRE_WORK,
                            .peers = b->others,
                            .npeers = (uint32_t)b->team.size - 1,
                            .nspans = 1,
                            .spans = &span};

    return b->wire->expose(b->channel, &e);
}

static void enter(struct body *b, const struct engine_call *call, struct entry *e, uint32_t chain, struct comm_request *req)
{
    body_fill_entry(e, call, b->form.fingerprint, b);
    e->seq = (uint32_t)++b->sequence;
    e->chain = b->chain = chain;
    e->vectors = NULL;
    e->algorithm = b->form.algorithm;
    e->started_ns = e->queued_ns;
    uint64_t ticket = timeline_issue_alone(&b->line);
    body_publish_call(b, e, call, COMM_OK);
    b->stats.operations++;
    b->express.ticket = ticket;
    b->express.reduce = b->form.reduce; /* the form may be another before this one ends */
    b->express.bytes = b->form.bytes;
    b->express.seen = 1u << b->team.rank;
    b->express.key = wire_key_of(e->seq, 0, 0);
    b->express.from[b->team.rank] = call->in;
    if (req)
        *req = (struct comm_request){b->face, ticket};
}

bool express_issue(struct body *b, const struct engine_call *call, struct comm_request *req)
{
    enum comm_result why;

    if (!may_go(b, call))
        return false;
    uint32_t chain = body_chain(b->chain, b->form.fingerprint);
    struct entry *e = (struct entry *)(void *)timeline_room(&b->line, &why);
    if (!e || show(b, call, wire_key_of((uint32_t)b->sequence + 1, 0, 0), chain) != WIRE_DONE)
        return false; /* the long way says why, or waits for room */
    enter(b, call, e, chain, req);
    if (b->team.size > 1)
        b->wire->flush(b->channel);
    express_poll(b);
    b->now = 0;
    if (BASE_UNLIKELY(!b->is_active && b->express.ticket))
        body_activate(b);
    return true;
}

static void finish(struct body *b)
{
    uint64_t ticket = b->express.ticket;
    struct entry *e = body_entry(b, ticket);
    struct data_reduce reduce = {.from = b->express.from,
                                 .ways = (uint32_t)b->team.size,
                                 .divisor = (uint32_t)b->team.size,
                                 .to = e->call.out,
                                 .elements = e->call.n,
                                 .final = true};

    if (e->call.n)
        b->express.reduce(&reduce);
    b->express.ticket = 0;
    body_record(b, ticket, e, b->engine->env->now(b->engine->env), COMM_OK);
    timeline_retire_oldest(&b->line);
    b->told_done = ticket;
    if (b->team.size > 1)
        b->wire->release(b->channel, e->seq, NULL);
    engine_told(b->engine);
}

/* Looks at the lines that are missing; ends the operation when all are there. */
bool express_poll(struct body *b)
{
    struct express *x = &b->express;
    const struct entry *e = body_entry(b, x->ticket);

    for (int32_t r = 0; r < b->team.size; r++) {
        if (x->seen >> r & 1)
            continue;
        struct wire_look look = {.key = x->key,
                                 .fingerprint = e->chain,
                                 .edge = WIRE_ONCE | WIRE_TO_ALL,
                                 .flags = WIRE_WORK | WIRE_GLANCE,
                                 .peer = (uint32_t)r,
                                 .bytes = x->bytes,
                                 .view = &x->view[r]};
        enum wire_result result = b->wire->view(b->channel, &look);
        if (result == WIRE_AGAIN)
            return false;
        if (BASE_UNLIKELY(result == WIRE_MISMATCH)) {
            body_mismatch(b, e->seq, r);
            return false;
        }
        x->seen |= 1u << r;
        x->from[r] = x->view[r].at;
    }
    finish(b);
    return true;
}

/* Waits for it a moment, under the communicator's lock: for as long as a peer that called at the same time takes. */
bool express_wait(struct comm_request request)
{
    struct comm_communicator *face = request.comm;
    bool ended = false;

    if (!base_home_trylock(&face->lock, face->env))
        return false;
    struct body *b = atomic_load_explicit(&face->body, memory_order_relaxed);
    if (b && b->express.ticket == request.ticket && !b->engine->crowded) {
        const struct comm_env *env = b->engine->env;
        for (int turn = 0; turn < WAIT_TURNS && !ended && b->express.ticket; turn++) {
            ended = express_poll(b);
            if (!ended && turn >= WAIT_EAGER_TURNS)
                env->relax(env, false);
        }
    }
    if (ended && b->line.done + 1 != b->line.next)
        body_settle(b); /* what stood behind it may start */
    base_home_unlock(&face->lock, face->env);
    return ended;
}
