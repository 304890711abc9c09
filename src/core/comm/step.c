/* One step of a communicator: events from its wire, runs that may move, entries that retire, entries that may start. */
#include "comm/pack.h"
#include "comm/parts.h"

#include "message/message.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ places */
static void set_ready(struct comm_state *b, uint32_t place)
{
    b->runs.ready[place / 64] |= UINT64_C(1) << place % 64;
    b->runs.any_ready = true;
}

static bool take_ready(struct comm_state *b, uint32_t place)
{
    uint64_t bit = UINT64_C(1) << place % 64, held = b->runs.ready[place / 64] & bit;

    b->runs.ready[place / 64] &= ~bit;
    return held != 0;
}

/* Lends the memory that was returned last first: it is still in the cache, and mapped. False: no memory. */
static bool lend(const struct comm_env *env, struct spare **spares, struct loan *loan, size_t bytes)
{
    if (bytes <= loan->bytes)
        return true;
    if (!loan->bytes && *spares) {
        *loan = (struct loan){(char *)*spares, (*spares)->bytes};
        *spares = (*spares)->next;
    }
    if (bytes <= loan->bytes)
        return true;
    bytes = bytes < sizeof **spares ? sizeof **spares : bytes;
    env_give_back(env, loan->at, loan->bytes);
    loan->at = env->take(env, bytes, 64);
    loan->bytes = loan->at ? bytes : 0;
    return loan->at != NULL;
}

static void take_back(struct spare **spares, struct loan *loan)
{
    struct spare *spare = (struct spare *)(void *)loan->at;

    if (!loan->bytes)
        return;
    *spare = (struct spare){*spares, loan->bytes};
    *spares = spare;
    *loan = (struct loan){NULL, 0};
}

/* ------------------------------------------------------------------------------------------------------------ running */
/* True if the data may be torn. An operation that read bytes in a peer's own memory may have read what that peer wrote there after its
 * failure. The peer's cause was on the board before that. The fence pairs with the compare-and-swap in state_attend, which comes before the
 * owner's requests end. */
static bool may_be_torn(const struct comm_state *b)
{
    if (BASE_LIKELY(!b->channel->borrows))
        return false;
    atomic_thread_fence(memory_order_acquire);
    return b->channel->board && atomic_load_explicit(&b->channel->board->cause, memory_order_relaxed);
}

void state_end_work(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    enum comm_result r = COMM_OK;

    if (BASE_UNLIKELY(may_be_torn(b)))
        return; /* it ends with the communicator, whose failure will be noticed next */
    if (BASE_UNLIKELY(e->stage != NULL) && !b->staged.calls->stored(b, ticket, e))
        return;
    if (BASE_UNLIKELY(b->world->check))
        r = check_thaw(b, e);
    if (e->ended)
        r = e->ended(b, ENTRY_ENDED, e->ended_arg); /* it may have issued a call and so moved the entries: e is not used again */
    if (r == COMM_PENDING) {
        e = state_entry(b, ticket);
        if (!e->joining)
            state_count_joining(b, 1);
        e->joining = true;
        return;
    }
    if (!b->failed)
        timeline_end(&b->line, ticket, r);
}

static void leave_memory(struct comm_state *b, struct run_slot *p)
{
    take_back(&b->runs.spare_views, &p->views);
    if (BASE_LIKELY(p->scratch.bytes <= ENGINE_SCRATCH_KEPT)) {
        take_back(&b->runs.spare_scratch, &p->scratch);
    } else {
        b->unit.engine->env->give(b->unit.engine->env, p->scratch.at, p->scratch.bytes);
        p->scratch = (struct loan){NULL, 0};
    }
}

/* Continues creating calls whose child's native was not connected yet. */
static void step_joining(struct comm_state *b)
{
    for (uint64_t t = b->line.done + 1; t <= b->line.started && b->library_work.joining && !b->failed; t++) {
        struct entry *e = state_entry(b, t);
        if (!e->joining || e->head.state != TIMELINE_STARTED)
            continue;
        state_end_work(b, t, e);
        e = state_entry(b, t);
        if (b->failed || e->head.state == TIMELINE_STARTED)
            continue;
        e->joining = false;
        state_count_joining(b, -1);
    }
}

static void step_run(struct comm_state *b, uint64_t ticket)
{
    uint32_t place = (uint32_t)ticket & (b->line.window - 1);
    struct run *run = &b->runs.places[place].run;
    enum run_result r = run_step(run);

    if (r == RUN_ENDED) {
        leave_memory(b, &b->runs.places[place]);
        state_entry(b, ticket)->record.waited = run->waited;
        state_end_work(b, ticket, state_entry(b, ticket));
    } else if (r == RUN_MISMATCH)
        state_mismatch(b, run->seq, run->mismatch_peer);
    else if (r == RUN_FAILED)
        state_propose_own(b, state_entry(b, ticket), COMM_ERR_MEMORY, 0);
    else if (run->again)
        set_ready(b, place);
    b->runs.gave_way |= r == RUN_GAVE_WAY;
}

/* Copies the inputs into one block behind the scratch memory. All earlier operations that write them have ended by now. */
static void start_pack(struct run_slot *p, const struct entry *e, size_t scratch)
{
    struct run_element element = pack_element(e->pack);

    p->run.call.in = p->run.call.out = p->run.scratch + scratch;
    pack_gather(e->pack, p->run.scratch + scratch);
    run_start_as(&p->run, e->program, &element);
}

/* For an alltoall in place by a program that writes early. */
static bool reads_a_copy(const struct entry *e)
{
    bool pairs = e->record.collective == COLLECTIVE_ALLTOALL || e->record.collective == COLLECTIVE_ALLTOALL_V;

    return pairs && program_writes_early(e->program) && e->call.in == e->call.out;
}

/* Bytes behind the scratch memory that the operation uses instead of the caller's buffers. */
static size_t beside_bytes(const struct entry *e)
{
    if (BASE_UNLIKELY(e->pack != NULL))
        return e->pack->bytes;
    if (BASE_UNLIKELY(e->spill))
        return e->call.n * data_type_bytes(e->call.type);
    if (BASE_UNLIKELY(e->user != NULL))
        return operator_beside(e->user, e->record.collective, entry_bytes(e, &e->head.read));
    return BASE_UNLIKELY(reads_a_copy(e)) ? entry_bytes(e, &e->head.write) : 0;
}

static size_t scratch_bytes(const struct comm_state *b, const struct entry *e)
{
    if (BASE_LIKELY(!e->user))
        return run_scratch_bytes(e->program, &e->call, b->channel, b->team.size);
    return operator_scratch(e->user, e->program, &e->call, b->channel, b->team.size);
}

static void start_work(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    uint32_t index = (uint32_t)ticket & (b->line.window - 1);
    struct run_slot *p = &b->runs.places[index];
    struct run *run = &p->run;
    const struct comm_env *env = b->unit.engine->env;

    e->record.started_ns = state_now(b);
    size_t scratch = scratch_bytes(b, e), beside = beside_bytes(e);
    if (!lend(env, &b->runs.spare_views, &p->views, e->program->views * sizeof *run->view) ||
        !lend(env, &b->runs.spare_scratch, &p->scratch, scratch + beside)) {
        state_propose_own(b, e, COMM_ERR_MEMORY, 0);
        return;
    }
    if (BASE_UNLIKELY(b->world->check))
        check_freeze(b, e);
    run->channel = b->channel;
    run->call = e->call;
    run->view = (struct wire_view *)(void *)p->views.at;
    run->scratch = p->scratch.at;
    run->seq = e->seq;
    run->fingerprint = e->chain;
    run->index = index;
    run->isa = b->unit.engine->isa;
    run->oversubscribed = b->unit.engine->oversubscribed;
    run->rank = b->team.rank;
    run->size = b->team.size;
    if (BASE_UNLIKELY(e->pack != NULL)) {
        start_pack(p, e, scratch);
    } else if (BASE_UNLIKELY(e->user != NULL)) {
        operator_start(e->user, run, e->program, entry_bytes(e, &e->head.read), beside ? run->scratch + scratch : NULL);
    } else {
        if (BASE_UNLIKELY(e->spill))
            run->call.in = run->call.out = run->scratch + scratch;
        else if (BASE_UNLIKELY(beside))
            run->call.in = memcpy(run->scratch + scratch, e->call.in, beside);
        run_start(run, e->program);
    }
    step_run(b, ticket);
}

void state_begin_work(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    if (e->by == ENTRY_BY_PROGRAM)
        start_work(b, ticket, e);
    else
        b->library->start(b, ticket, e);
}

static void start_entry(struct comm_state *b, uint64_t ticket)
{
    struct entry *e = state_entry(b, ticket);

    timeline_start(&b->line, ticket);
    switch (e->head.kind) {
    case TIMELINE_PASSED:
    case TIMELINE_REFUSED:
        timeline_end(&b->line, ticket, (enum comm_result)e->head.result);
        break;
    case TIMELINE_QUEUE_WAIT:
        b->queue_wait.ticket = ticket;
        b->queue_wait.since_ns = state_now(b);
        state_look_at_waits(b);
        break;
    default:
        if (BASE_UNLIKELY(e->on_device))
            b->staged.calls->start(b, ticket, e);
        else
            state_begin_work(b, ticket, e);
    }
}

/* ------------------------------------------------------------------------------------------------------------ retiring */
bool state_room_for_record(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;
    uint32_t room = b->records.room ? b->records.room * 2 : 64;
    struct record *more = env->take(env, room * sizeof *more, 64);

    if (!more)
        return false;
    if (b->records.at) {
        memcpy(more, b->records.at, b->records.room * sizeof *more);
        env->give(env, b->records.at, b->records.room * sizeof *more);
    }
    b->records.at = more;
    b->records.room = room;
    return true;
}

static bool retire_ended(struct comm_state *b)
{
    uint64_t ticket = timeline_retirable(&b->line);
    uint32_t seq = 0;

    if (!ticket)
        return false;
    int64_t now = state_now(b);
    for (; ticket; ticket = timeline_retirable(&b->line)) {
        struct entry *e = state_entry(b, ticket);
        /* of a native: more than a window can end at once, because a stream orders them */
        if (BASE_UNLIKELY(b->calls.unpublished == ticket))
            state_publish_more(b);
        if (e->seq)
            seq = e->seq;
        if (BASE_UNLIKELY(e->ended != NULL))
            (void)e->ended(b, ENTRY_RETIRED, e->ended_arg);
        state_record(b, &e->record, ticket, now, (enum comm_result)e->head.result);
        state_forget_entry(b, e);
        timeline_retire(&b->line);
    }
    if (seq)
        b->wire->release(b->channel, seq, NULL);
    return true;
}

void state_run_queue(struct comm_state *b)
{
    for (;;) {
        if (BASE_UNLIKELY(b->calls.unpublished)) /* here, because entries behind others start nowhere else */
            state_publish_more(b);
        uint64_t ticket = b->failed ? 0 : timeline_startable(&b->line);
        if (ticket && b->library && b->library->may_not_start(b, ticket))
            ticket = 0;
        if (ticket && BASE_UNLIKELY(state_entry(b, ticket)->on_device) && b->staged.calls->may_not_start(b, state_entry(b, ticket)))
            ticket = 0;
        if (ticket && !(b->p2p.pending && parts_block(b, ticket, timeline_entry(&b->line, ticket))))
            start_entry(b, ticket);
        else if (b->failed || !retire_ended(b))
            break;
    }
}

/* ------------------------------------------------------------------------------------------------------------ one pass */
static void take_event(struct comm_state *b, const struct wire_event *event)
{
    uint32_t index = (uint32_t)(event->cookie >> 32);

    if (BASE_UNLIKELY(event->kind == WIRE_EVENT_LOST)) {
        state_lost(b, event);
    } else if (event->kind == WIRE_EVENT_ANNOUNCED && event->result == WIRE_NOTE) {
        state_note(b, event);
    } else if (event->kind == WIRE_EVENT_ANNOUNCED) {
        const char *why = heard_message_fault(event);
        if (BASE_UNLIKELY(why != NULL))
            state_peer_is_wrong(b, event->peer, why);
        else
            message_event(b->messages, event);
    } else if (index & MESSAGE_COOKIE) {
        message_event(b->messages, event);
    } else if (BASE_LIKELY(index < b->line.window)) {
        run_event(&b->runs.places[index].run, event);
        set_ready(b, index);
    } else {
        parts_event(b, event);
    }
}

static void step_ready(struct comm_state *b)
{
    b->runs.any_ready = false;
    for (uint64_t t = b->line.done + 1; t <= b->line.started && !b->failed; t++) {
        const struct timeline_entry *e = timeline_entry(&b->line, t);
        if (take_ready(b, (uint32_t)t & (b->line.window - 1)) && e->state == TIMELINE_STARTED)
            step_run(b, t);
    }
}

static inline void run_queue(struct comm_state *b)
{
    if (b->line.done + 1 != b->line.next)
        state_run_queue(b);
}

/* True if anything waits next to the queue. So a pass with only collectives calls no part for it. */
static inline bool has_beside(const struct comm_state *b)
{
    return b->p2p.first != P2P_NONE || b->setup.sending || b->rma.apart || message_wants_step(b->messages);
}

static inline void note_delivered(struct comm_state *b)
{
    _Atomic uint32_t *delivered = &b->unit.handle->delivered;

    if (b->p2p.finished)
        atomic_store_explicit(delivered, atomic_load_explicit(delivered, memory_order_relaxed) + 1, memory_order_relaxed);
    b->p2p.finished = false;
}

/* After a call or a pass: starts work that may start, flushes what peers wait for, and wakes sleepers. */
static void settle(struct comm_state *b)
{
    uint64_t done = b->line.done;
    uint32_t waits = b->line.waits_issued;

    if (BASE_UNLIKELY(waits)) /* whoever set its event meanwhile did not get the lock to start what waits for it */
        state_look_at_waits(b);
    run_queue(b);
    if ((b->line.done != done || b->line.waits_issued < waits) && has_beside(b))
        parts_step_beside(b);
    b->wire->flush(b->channel);
    if (b->line.done != b->reported.done || b->failed != b->reported.failed || b->p2p.finished) {
        b->reported.done = b->line.done;
        b->reported.failed = b->failed;
        note_delivered(b);
        engine_wake(b->unit.engine);
    }
    b->now = 0;
    state_activate(b);
}

static bool step(struct comm_state *b, bool only_if_new)
{
    struct wire_event events[ENGINE_EVENTS];
    uint64_t done = b->line.done, started = b->line.started;
    bool failed = b->failed;
    uint32_t count = b->wire->advance(b->channel, events, ENGINE_EVENTS);
    bool moved = b->channel->moved;

    b->channel->moved = false;
    if (only_if_new && !count && !moved)
        return false;
    b->runs.gave_way = false;
    for (uint32_t i = 0; i < count; i++)
        take_event(b, &events[i]);
    if (b->failure.proposal.result && !b->failed)
        state_attend(b);
    if (b->runs.any_ready && !b->failed)
        step_ready(b);
    bool parts = parts_step(b);
    if (b->library)
        parts |= b->library->step(b);
    if (BASE_UNLIKELY(b->staged.copying))
        parts |= b->staged.calls->step(b);
    if (b->library_work.joining && !b->failed)
        step_joining(b);
    if (BASE_UNLIKELY(b->line.waits_issued))
        state_look_at_waits(b);
    run_queue(b);
    bool beside = has_beside(b) && parts_step_beside(b);
    if (beside)
        run_queue(b); /* a message that ended may have held work back */
    if (BASE_UNLIKELY(b->recovery.running))
        beside |= parts_step_last(b);
    settle(b);
    moved |= count || beside || parts || b->runs.gave_way;
    return moved || b->line.done != done || b->line.started != started || b->failed != failed;
}

/* Disables thread cancellation around code that may make system calls. Many passes of an operation within a host make none, and switching
 * costs as much as a short pass. */
static inline bool calls_system(const struct comm_state *b)
{
    return b->wire->system_calls || b->library || b->recovery.running;
}

bool state_step(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    if (BASE_UNLIKELY(b->recording.plan != NULL))
        return false;
    if (!calls_system(b))
        return step(b, false);
    int before = env->cancel(env, ENV_CANCEL_OFF);
    bool moved = step(b, false);
    env->cancel(env, before);
    return moved;
}

bool state_glance(struct comm_state *b)
{
    return step(b, true);
}

void state_settle(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    if (!calls_system(b)) {
        settle(b);
        return;
    }
    int before = env->cancel(env, ENV_CANCEL_OFF);
    settle(b);
    env->cancel(env, before);
}

/* Has this communicator anything that a pass could move? */
void state_activate(struct comm_state *b)
{
    bool busy = !state_idle(b) || b->rma.apart || atomic_load_explicit(&b->unit.notice_count, memory_order_relaxed);

    if (b->library)
        b->library->active(b, busy);
    if (busy == b->is_active)
        return;
    b->is_active = busy;
    engine_activate(b->unit.engine, b->index, busy);
}
