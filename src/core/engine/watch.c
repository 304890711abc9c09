/*
 * The watcher sleeps on death notices and looks around once a tick: it proposes failures and warns of late ranks; it runs no program, but
 * for communicators whose peers ask something of windows while nobody here waits (serve.c). What it looks for is also looked for by a
 * waiter before it sleeps.
 */
#include "engine/recover.h"
#include "engine/talk.h"

#include "base/format.h"

enum {
    LATE_STEPS = 3,
    FENCE_TICK_NS = 200000000, /* while a queue wait is open or a choice is waited for, seldom for long */
    COME_BY_TURNS = 16,
};
static const int64_t late_ns[LATE_STEPS] = {5000000000, 10000000000, 60000000000};

/* ------------------------------------------------------------------------------------------------------------ one operation */
static const struct wire_call *peer_call(const struct body *b, int32_t rank, uint32_t seq)
{
    const struct wire_call *call = b->channel->peer_calls[rank];

    return call ? &call[seq & b->calls_mask] : NULL;
}

/* Another call under our number, a refused one, or a member that closed before it. */
bool body_check_peers(struct body *b, const struct entry *e)
{
    for (int32_t r = 0; r < b->team.size; r++) {
        struct made_call call;
        bool made = r != b->team.rank && body_read_call(b, r, e->seq, &call);
        struct cause cause = {.number = e->seq, .rank = r, .peer = b->team.rank, .collective = e->record.collective};
        if (made && (call.refused || call.chain != e->chain)) {
            body_mismatch(b, e->seq, r);
            return false;
        }
        if (!made && b->closed_at[r] && b->closed_at[r] - 1 < e->seq && r != b->team.rank) {
            cause.result = COMM_ERR_CLOSED;
            cause.code = (int32_t)(b->closed_at[r] - 1);
            body_propose(b, &cause);
            return false;
        }
    }
    return true;
}

static void list_absent(const struct body *b, const struct entry *e, char *text, size_t bytes)
{
    size_t at = 0;

    text[0] = 0;
    for (int32_t r = 0; r < b->team.size; r++) {
        const struct wire_call *call = r == b->team.rank ? NULL : peer_call(b, r, e->seq);
        if (call && atomic_load_explicit(&call->seq, memory_order_acquire) != e->seq)
            base_append(text, bytes, &at, " %d", r);
    }
}

static void warn_late(struct body *b, uint64_t ticket, const struct entry *e, int64_t waited)
{
    char absent[256];

    if (b->late_ticket != ticket) {
        b->late_ticket = ticket;
        b->late_step = 0;
    }
    if (b->late_step >= LATE_STEPS || waited < late_ns[b->late_step])
        return;
    while (b->late_step < LATE_STEPS && waited >= late_ns[b->late_step]) /* who looked away for long tells it once */
        b->late_step++;
    list_absent(b, e, absent, sizeof absent);
    base_log(&b->engine->log, LOG_WARNING, "comm=%s call=%u op=%s is late: waiting for %lld s; not called yet by ranks:%s", b->name, e->seq,
             e->seq ? collective_name(e->record.collective) : "wait", (long long)(waited / 1000000000), absent[0] ? absent : " none");
}

static bool check_deadline(struct body *b, uint64_t ticket, const struct entry *e, int64_t now)
{
    int64_t since = e->head.kind == TIMELINE_FENCE ? b->fence_ns : e->record.started_ns;

    if (ticket == b->line.done + 1)
        warn_late(b, ticket, e, now - since);
    if (now - since < b->timeout_ns)
        return true;
    body_propose(
        b,
        &(struct cause){
            .number = e->seq, .rank = b->team.rank, .peer = b->team.rank, .result = COMM_ERR_TIMEOUT, .collective = e->record.collective});
    return false;
}

/* What this rank has sent itself may be what a general receive waits for. */
static bool sends_itself(const struct body *b)
{
    for (uint32_t i = b->talk_first; i != TALK_NONE; i = b->talks[i].after)
        if (b->talks[i].is_send && b->talks[i].state != TALK_MARKER && b->talks[i].call.peer == b->team.rank)
            return true;
    return false;
}

bool body_has_left(const struct body *b, int32_t rank)
{
    int64_t lead = b->channel->caps.note_lead_ns;

    return b->closed_at[rank] && (!lead || b->engine->env->now(b->engine->env) - b->closed_ns >= lead);
}

/* Whether a message waits for somebody who closed: its peer, or with an open peer all of them. */
static bool gone(const struct body *b, int32_t peer, int32_t *rank)
{
    *rank = peer;
    if (peer >= 0)
        return body_has_left(b, peer);
    for (int32_t r = 0; r < b->team.size; r++) {
        if (r == b->team.rank)
            continue;
        *rank = r;
        if (!body_has_left(b, r))
            return false;
    }
    return b->team.size > 1 && !sends_itself(b);
}

/* A receive ends alone. A send cannot be taken back, and whether it was received is not known: the communicator fails. */
static void end_gone(struct body *b, uint32_t index, int32_t rank)
{
    const struct talk *t = &b->talks[index];
    int32_t last = (int32_t)(b->closed_at[rank] - 1);

    if (t->is_send)
        body_propose(b,
                     &(struct cause){.number = b->sequence, .rank = rank, .peer = b->team.rank, .result = COMM_ERR_CLOSED, .code = last});
    else if (message_cancel(b->messages, index, COMM_ERR_CLOSED) == COMM_OK)
        base_log(&b->engine->log, LOG_INFO, "comm=%s a receive ends: rank %d closed after its call %d", b->name, rank, last);
}

static bool awaits_gone(const struct body *b, const struct talk *t, int32_t *rank)
{
    return (t->state == TALK_POSTED || t->state == TALK_ASKED) && gone(b, t->call.peer, rank);
}

/* Only when a step finds nothing more: what the closed rank had sent is taken first. */
static void check_gone(struct body *b)
{
    int32_t rank;
    uint32_t i = b->talk_first;

    while (i != TALK_NONE && !awaits_gone(b, &b->talks[i], &rank))
        i = b->talks[i].after;
    if (i == TALK_NONE || body_step(b))
        return;
    for (uint32_t next; i != TALK_NONE && !b->failed; i = next) {
        next = b->talks[i].after;
        if (awaits_gone(b, &b->talks[i], &rank))
            end_gone(b, i, rank);
    }
}

/* Who waits for a signal ends alone, when all who could give one have closed too. True: nothing more is to be done about this one. */
static bool check_one(struct body *b, const struct talk *t, int64_t now)
{
    int32_t rank;
    bool late = now - t->queued_ns >= b->timeout_ns;

    if (t->one.kind != ONE_WAIT) {
        if (late && (t->state == TALK_ONE ||
                     t->state == TALK_ASKED)) /* its lock is held by a rank that stands still, or its owner does not answer */
            body_propose(b, &(struct cause){.rank = b->team.rank, .peer = b->team.rank, .result = COMM_ERR_TIMEOUT});
        return true;
    }
    if (late || (b->team.size > 1 && gone(b, COMM_ANY_PEER, &rank)))
        talk_end(b, t, late ? COMM_ERR_TIMEOUT : COMM_ERR_CLOSED);
    return true;
}

/* A receive that nothing matched ends alone; anything else past its deadline may still be read or written by its peer: the communicator
 * fails. */
static void check_messages(struct body *b, int64_t now)
{
    for (uint32_t i = b->talk_first, next; i != TALK_NONE && !b->failed; i = next) {
        struct talk *t = &b->talks[i];
        next = t->after;
        if (t->one.kind && check_one(b, t, now))
            continue;
        if (t->state != TALK_POSTED || now - t->queued_ns < b->timeout_ns)
            continue;
        if (t->is_send || message_cancel(b->messages, i, COMM_ERR_TIMEOUT) != COMM_OK)
            body_propose(b, &(struct cause){.rank = b->team.rank, .peer = b->team.rank, .result = COMM_ERR_TIMEOUT});
    }
    if (!b->failed)
        check_gone(b);
    subset_check(b, now);
}

void body_check(struct body *b, int64_t now)
{
    if (b->recovering) {
        recovery_check(b, now);
        body_settle(b);
    }
    if (b->recording || b->failed)
        return;
    for (uint64_t t = b->line.done + 1; t <= b->line.started && !b->failed && !b->proposal.result; t++) {
        const struct entry *e = body_entry(b, t);
        if (e->head.state != TIMELINE_STARTED)
            continue;
        if (e->seq && !body_check_peers(b, e))
            break;
        if (!check_deadline(b, t, e, now))
            break;
    }
    if (!b->failed)
        body_compare(b);
    if (b->talk_pending && !b->failed)
        check_messages(b, now);
    body_settle(b);
}

/* ------------------------------------------------------------------------------------------------------------ deaths */
/* The newest call that this rank sees of a member: where its goodbye was not heard, its last one. */
static uint64_t last_call(const struct body *b, int32_t rank)
{
    const struct wire_call *ring = b->channel->peer_calls[rank];
    uint32_t last = 0;

    for (uint32_t i = 0; ring && i <= b->calls_mask; i++) {
        uint32_t seq = atomic_load_explicit(&ring[i].seq, memory_order_acquire);
        if (seq && (!last || (int32_t)(seq - last) > 0))
            last = seq;
    }
    return last;
}

/* Who closed in good order fails nobody: only an operation that needs it does, when it is found (body_check_peers). */
static void body_down(struct body *b, int32_t rank, const struct wire_event *event)
{
    const struct entry *oldest = b->line.done < b->line.started ? body_entry(b, b->line.done + 1) : NULL;
    struct cause cause = {.number = oldest && oldest->seq ? oldest->seq : b->sequence,
                          .rank = rank,
                          .peer = b->team.rank,
                          .result = event->result,
                          .collective = oldest ? oldest->record.collective : 0,
                          .code = (event->tag ? -1 : 1) * (int32_t)(event->bytes / 1000000)};

    if (b->closed_at[rank])
        return;
    if (event->result != COMM_ERR_CLOSED) {
        body_propose(b, &cause);
        return;
    }
    b->closed_at[rank] = 1 + last_call(b, rank);
    b->closed_ns = b->engine->env->now(b->engine->env);
}

/* Who closed had made its calls, and what it gave for them was lost between here and there, or never taken from it. Who died is told of by
 * the death itself. */
void body_lost(struct body *b, const struct wire_event *event)
{
    int32_t rank = event->peer;
    uint32_t seq = wire_key_seq(event->key);
    uint64_t ticket = b->line.done + 1;

    body_down(b, rank, event);
    if (!b->closed_at[rank])
        return;
    while (seq && ticket < b->line.started && body_entry(b, ticket)->seq != seq)
        ticket++;
    body_propose(b, &(struct cause){.number = seq ? seq : b->sequence,
                                    .rank = rank,
                                    .peer = b->team.rank,
                                    .result = COMM_ERR_CLOSED,
                                    .collective = seq && ticket <= b->line.started ? body_entry(b, ticket)->record.collective : 0,
                                    .code = (int32_t)(b->closed_at[rank] - 1),
                                    .point = 1});
}

void body_hear_down(struct body *b)
{
    for (int32_t r = 0; r < b->team.size; r++) {
        uint8_t how = atomic_load_explicit(&b->world->down[b->team.world[r]], memory_order_acquire);
        if (how && r != b->team.rank)
            body_down(b, r, &(struct wire_event){.result = (int8_t)how});
    }
}

/* The world may be gone by now, and another where it lay. */
static void member_down(struct engine *e, const struct world *w, uint64_t id, const struct wire_event *event)
{
    uint32_t most = atomic_load_explicit(&e->words, memory_order_acquire) * 64;

    for (uint32_t i = 0; i < most; i++) {
        struct body *b = body_at(e, i);
        if (!b)
            continue;
        int32_t rank = b->world == w && b->world->id == id ? team_find(&b->team, event->peer) : -1;
        if (rank >= 0 && rank != b->team.rank) {
            b->guest = true;
            body_step(b); /* its last words first: it may have closed, or failed for another cause */
            body_down(b, rank, event);
            body_settle(b);
            b->guest = false;
        }
        body_unlock(b);
    }
}

/* Before the first communicator hears it, and while the world is sure to be there. */
static void note_down(struct world *w, const struct wire_event *events, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++)
        if (events[k].kind == WIRE_EVENT_DOWN)
            atomic_store_explicit(&w->down[events[k].peer], (uint8_t)events[k].result, memory_order_release);
}

void engine_poll(struct engine *e)
{
    int before = e->env->cancel(e->env, ENV_CANCEL_OFF);

    for (uint32_t i = 0; i < ENGINE_WORLDS; i++) {
        struct wire_event events[ENGINE_EVENTS];
        uint32_t count = 0;
        uint64_t id = 0;

        base_lock(&e->poll_lock, e->env);
        struct world *w = atomic_load_explicit(&e->worlds[i], memory_order_acquire);
        if (w) {
            id = w->id;
            count = w->backend->wire->poll(w->wire, events, ENGINE_EVENTS);
            note_down(w, events, count);
        }
        base_unlock(&e->poll_lock, e->env);
        for (uint32_t k = 0; k < count; k++)
            if (events[k].kind == WIRE_EVENT_DOWN)
                member_down(e, w, id, &events[k]);
    }
    e->env->cancel(e->env, before);
}

/* A caller that makes progress all the time holds the lock nearly all the time too: it is waited for a little. Not for long: whoever has it
 * looks around himself before he sleeps. */
static bool come_by(struct comm_communicator *face)
{
    for (int turn = 0; turn < COME_BY_TURNS; turn++) {
        if (base_home_trylock(&face->lock, face->env))
            return true;
        face->env->relax(face->env, true);
    }
    return false;
}

/* Every communicator, idle ones too: an abort or a close that nobody here waits for must be heard. */
static bool look_around(struct engine *e, int64_t now)
{
    bool fences = false;
    uint32_t most = atomic_load_explicit(&e->words, memory_order_acquire) * 64;

    for (uint32_t i = 0; i < most; i++) {
        struct comm_communicator *face = atomic_load_explicit(&e->faces[i], memory_order_acquire);
        if (!face || !come_by(face))
            continue;
        struct body *b = atomic_load_explicit(&face->body, memory_order_relaxed);
        if (b && b->engine == e) {
            b->guest = true;
            const struct wire_board *board = b->channel ? b->channel->board : NULL;
            if (b->channel && !b->failed && (!board || atomic_load_explicit(&board->cause, memory_order_relaxed)))
                body_step(b); /* without a board what others have to say is heard in their notes alone */
            body_check(b, now);
            fences |= !b->recording && deadlock_tell(b);
            fences |= b->proposal.result && !b->failed; /* another's choice is waited for, and not for long */
            b->guest = false;
        }
        base_home_unlock(&face->lock, face->env);
    }
    return fences;
}

/* Why it woke: peers ask of windows; a wire's descriptor tells something, which may be just that; all else. */
enum woken { WOKEN_ASKED = 1, WOKEN_BY_WIRE = 2, WOKEN_DUE = 4 };

/* Until it is rung, a wire's descriptor tells something, the tick is over, or asks are to be looked for again. `looked`: when it looked
 * around last. */
static uint32_t watcher_sleeps(struct engine *e, struct serve_round *round, bool fences, int64_t looked)
{
    const struct comm_env *env = e->env;
    int64_t now = env->now(env), tick = atomic_load_explicit(&e->tick_ns, memory_order_relaxed);
    int64_t until = looked + (fences && tick > FENCE_TICK_NS ? FENCE_TICK_NS : tick);
    bool timer = atomic_load_explicit(&e->armed, memory_order_seq_cst) && atomic_load_explicit(&e->natives, memory_order_relaxed);

    if (timer)
        native_nap(e, now, &until);
    int64_t alarm = round->nap_ns && now + round->nap_ns < until ? now + round->nap_ns : until;
    bool came = engine_heed(e, round);
    if (!came)
        env->bell_wait(env, &e->watch, alarm);
    bool rung = env->bell_clear(env, &e->watch);
    came |= engine_rise(e, round);
    now = env->now(env);
    if (timer && now >= until && atomic_load_explicit(&e->armed, memory_order_seq_cst) &&
        atomic_load_explicit(&e->natives, memory_order_relaxed))
        env->bell_ring(env, &e->bell); /* a loop that sleeps on the descriptor polls natives at their deadlines */
    bool early = now < alarm, due = rung || now >= until || (early && !came);
    return (came ? WOKEN_ASKED : 0) | (early ? WOKEN_BY_WIRE : 0) | (due ? WOKEN_DUE : 0);
}

void engine_watcher(void *arg)
{
    struct engine *e = arg;
    const struct comm_env *env = e->env;
    struct serve_round round = {0};
    int64_t looked = env->now(env);
    bool fences = false;

    while (!atomic_load_explicit(&e->stopping, memory_order_acquire)) {
        uint32_t why = watcher_sleeps(e, &round, fences, looked);
        if (why & (WOKEN_DUE | WOKEN_BY_WIRE))
            engine_poll(e);
        if (atomic_exchange_explicit(&e->heard_abort, 0, memory_order_acq_rel))
            engine_spread_abort(e);
        if (why & WOKEN_DUE) {
            looked = env->now(env);
            fences = look_around(e, looked);
            if (fences)
                deadlock_look(e);
        }
        engine_serve_round(e, &round, why & WOKEN_ASKED);
    }
}
