/*
 * The message line: messages, which start at the call and end one by one, and markers, which end after everything issued before them. An
 * unreached queue wait or conflicting entry before a message holds it back. A held message holds back later ones of its pair of ranks and
 * direction.
 */
#include "p2p/op.h"

#include "comm/parts.h"

#include <string.h>

enum { FIRST_OPS = P2P_WHOLE + 64, FINISHED_BATCH = 64 };

static enum comm_result open_p2p_ops(struct comm_state *b, struct team_offer *offer)
{
    (void)offer;
    b->p2p.ops = b->unit.engine->env->take(b->unit.engine->env, FIRST_OPS * sizeof *b->p2p.ops, 64);
    if (!b->p2p.ops)
        return COMM_ERR_MEMORY;
    b->p2p.room = FIRST_OPS;
    for (uint32_t i = FIRST_OPS; i-- > P2P_WHOLE;) {
        b->p2p.ops[i].after = b->p2p.free;
        b->p2p.free = i;
    }
    return COMM_OK;
}

static void close_p2p_ops(struct comm_state *b)
{
    env_give_back(b->unit.engine->env, b->p2p.ops, b->p2p.room * sizeof *b->p2p.ops);
}

static enum comm_result grow(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;
    uint32_t messages = (b->p2p.room - P2P_WHOLE) * 2, room = P2P_WHOLE + messages;

    if (messages > b->unit.engine->options.queue * 2 || room > 1u << TIMELINE_INDEX_BITS)
        return COMM_ERR_FULL;
    struct p2p_op *more = env->take(env, room * sizeof *more, 64);
    if (!more)
        return COMM_ERR_MEMORY;
    memcpy(more, b->p2p.ops, b->p2p.room * sizeof *more);
    env->give(env, b->p2p.ops, b->p2p.room * sizeof *more);
    b->p2p.ops = more;
    for (uint32_t i = room; i-- > b->p2p.room;) {
        more[i].after = b->p2p.free;
        b->p2p.free = i;
    }
    b->p2p.room = room;
    return COMM_OK;
}

/* Takes a slot, puts it at the end of the list of unfinished ones, and makes it pending under a new ticket. */
enum comm_result p2p_take_slot(struct comm_state *b, uint32_t *index)
{
    enum comm_result r = b->p2p.free == P2P_NONE ? grow(b) : COMM_OK;

    if (r != COMM_OK)
        return r;
    uint32_t i = b->p2p.free;
    uint64_t ticket = timeline_slot_open(b->unit.handle, i);
    if (!ticket)
        return COMM_ERR_MEMORY;
    struct p2p_op *t = &b->p2p.ops[i];
    b->p2p.free = t->after;
    memset(t, 0, offsetof(struct p2p_op, one.peer)); /* the rest is for calls on windows, which write all of it */
    t->ticket = ticket;
    t->before = b->p2p.last;
    t->after = t->member_of = P2P_NONE;
    if (b->p2p.last != P2P_NONE)
        b->p2p.ops[b->p2p.last].after = i;
    else
        b->p2p.first = i;
    b->p2p.last = i;
    *index = i;
    return COMM_OK;
}

static void give_slot(struct comm_state *b, uint32_t i)
{
    struct p2p_op *t = &b->p2p.ops[i];

    if (t->before != P2P_NONE)
        b->p2p.ops[t->before].after = t->after;
    else
        b->p2p.first = t->after;
    if (t->after != P2P_NONE)
        b->p2p.ops[t->after].before = t->before;
    else
        b->p2p.last = t->before;
    t->state = P2P_FREE;
    t->after = b->p2p.free;
    b->p2p.free = i;
}

/* ------------------------------------------------------------------------------------------------------------ ending */
const char *p2p_name(const struct p2p_op *t)
{
    if (t->state == P2P_MARKER)
        return "marker";
    if (t->state == P2P_MEETING)
        return "subset";
    if (t->state == P2P_RECOVERY)
        return "recovery";
    if (t->class)
        return t->class->name(t);
    return t->is_send ? "send" : "recv";
}

static void finish(struct comm_state *b, uint32_t i, enum comm_result result)
{
    struct p2p_op *t = &b->p2p.ops[i];
    struct p2p_op *marker = t->member_of != P2P_NONE ? &b->p2p.ops[t->member_of] : NULL;
    bool carried = marker && marker != t && marker->carries;

    BASE_ASSERT(t->state != P2P_FREE);
    if (BASE_UNLIKELY(b->world->check & CHECK_BUFFERS) && t->state == P2P_POSTED && t->is_send && result == COMM_OK &&
        t->sum != check_sum(t->call.buf, t->call.bytes))
        result = COMM_ERR_CORRUPT;
    if (carried && result != COMM_OK && marker->error == COMM_OK)
        marker->error = result;
    if (result != COMM_OK && !b->failed && !carried)
        timeline_except(b->unit.handle, t->ticket, result, false);
    timeline_slot_finish(b->unit.handle, t->ticket, result);
    b->p2p.finished = true;
    if (t->state == P2P_MARKER) {
        b->p2p.markers--;
        give_slot(b, i);
        return;
    }
    for (uint32_t m = b->p2p.markers ? t->after : P2P_NONE; m != P2P_NONE; m = b->p2p.ops[m].after)
        if (b->p2p.ops[m].state == P2P_MARKER && b->p2p.ops[m].member_of != m)
            b->p2p.ops[m].remaining--;
    if (t->member_of != P2P_NONE)
        b->p2p.ops[t->member_of].remaining--;
    struct record record = {.bytes = t->call.bytes,
                            .queued_ns = t->queued_ns,
                            .started_ns = t->started_ns,
                            .algorithm = p2p_name(t),
                            .waited = (uint16_t)(t->call.peer + 1),
                            .flags = BASE_UNLIKELY(t->call.on_device) ? COMM_INFO_STAGED | staged_held(t->stage) : 0};
    state_record(b, &record, t->ticket, state_now(b), result);
    b->p2p.held -= t->state == P2P_HELD;
    b->p2p.ones -= t->state == P2P_ONE;
    if (t->class)
        t->class->ended(t);
    if (BASE_UNLIKELY(t->stage != NULL))
        p2p_unstage(b, t);
    give_slot(b, i);
    if (--b->p2p.pending == 0)
        b->p2p.read = b->p2p.write = (struct timeline_range){0, 0};
}

static void give_to_part(struct comm_state *b, const struct message_finished *done)
{
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->message && (*part)->message(b, done))
            return;
}

static void end_message(struct comm_state *b, const struct message_finished *done)
{
    struct p2p_op *t = &b->p2p.ops[done->slot];

    if (done->result == COMM_OK && done->peer != b->team.rank)
        *(t->is_send ? &b->stats.bytes_out : &b->stats.bytes_in) += done->bytes;
    if (BASE_LIKELY(!t->stage) || !p2p_store(b, t, done))
        finish(b, done->slot, done->result);
}

bool p2p_accept(struct comm_state *b, int32_t peer)
{
    struct wire_event message;
    struct message_finished done;

    if (!b->wire->next(b->channel, (uint32_t)peer, &message) || heard_message_fault(&message) ||
        !message_accept(b->messages, &message, &done))
        return false;
    end_message(b, &done);
    return true;
}

bool p2p_take_finished(struct comm_state *b)
{
    struct message_finished done[FINISHED_BATCH];
    bool moved = false;

    while (message_due(b->messages)->finished) {
        uint32_t count = message_take_finished(b->messages, done, FINISHED_BATCH);
        for (uint32_t i = 0; i < count; i++) {
            if (BASE_UNLIKELY(b->failed)) /* one of this batch made it fail, and that has ended the rest */
                return true;
            if (BASE_UNLIKELY(done[i].slot & (P2P_SETUP | P2P_LINK))) {
                give_to_part(b, &done[i]);
                continue;
            }
            end_message(b, &done[i]);
        }
        moved = true;
    }
    return moved;
}

static void end_all(struct comm_state *b, enum comm_result result)
{
    p2p_take_finished(b);
    for (uint32_t i = b->p2p.first, next; i != P2P_NONE; i = next) {
        next = b->p2p.ops[i].after;
        if (b->p2p.ops[i].state != P2P_RECOVERY)
            finish(b, i, result);
    }
}

void p2p_cancel_held(struct comm_state *b)
{
    for (uint32_t i = b->p2p.held ? b->p2p.first : P2P_NONE, next; i != P2P_NONE; i = next) {
        next = b->p2p.ops[i].after;
        if (b->p2p.ops[i].state == P2P_HELD && !b->p2p.ops[i].is_send && !b->p2p.ops[i].class)
            finish(b, i, COMM_ERR_CANCELLED);
    }
}

/* ------------------------------------------------------------------------------------------------------------ starting */
static bool same_line(const struct p2p_op *held, const struct p2p_op *later)
{
    if (held->class || later->class)
        return false; /* those have an order of their own */
    bool meet = held->call.peer == later->call.peer || held->call.peer == COMM_ANY_PEER || later->call.peer == COMM_ANY_PEER;

    return held->is_send == later->is_send && meet;
}

static bool behind_held(const struct comm_state *b, uint32_t i)
{
    for (uint32_t h = b->p2p.first; h != i; h = b->p2p.ops[h].after)
        if (b->p2p.ops[h].state == P2P_HELD && same_line(&b->p2p.ops[h], &b->p2p.ops[i]))
            return true;
    return false;
}

/* A receive waits for earlier messages that use its memory. A send waits for earlier receives into its memory. */
bool p2p_meets_earlier(const struct comm_state *b, uint32_t i)
{
    const struct p2p_op *t = &b->p2p.ops[i];

    if (!timeline_meet(&t->read, &b->p2p.write) && !timeline_meet(&t->write, &b->p2p.read) && !timeline_meet(&t->write, &b->p2p.write))
        return false;
    for (uint32_t k = b->p2p.first; k != i; k = b->p2p.ops[k].after) {
        const struct p2p_op *old = &b->p2p.ops[k];
        if (timeline_meet(&t->read, &old->write) || timeline_meet(&t->write, &old->read) || timeline_meet(&t->write, &old->write))
            return true;
    }
    return false;
}

/* Nothing starts while a cause of failure is proposed. A rank that gave up may have skipped a message, and the peer would then mistake the
 * next message for it. */
static enum comm_result start_or_hold(struct comm_state *b, uint32_t i)
{
    struct p2p_op *t = &b->p2p.ops[i];

    bool alone = b->p2p.pending == 1 && b->line.done + 1 == b->line.next;
    bool meets = !alone && (p2p_is_behind(b, t) || timeline_holds(&b->line, t->work, &t->read, &t->write) || p2p_meets_earlier(b, i));
    bool holds = b->failure.proposal.result || meets;

    if (BASE_UNLIKELY(t->call.on_device) && !holds) { /* a held send copies its data to the stage while earlier ones do */
        p2p_begins(b, t);
        enum comm_result r = p2p_stage(b, t);
        if (r != COMM_OK && r != COMM_PENDING)
            return r;
        holds = r == COMM_PENDING;
    }
    if (holds || (b->p2p.held && behind_held(b, i))) {
        b->p2p.held += t->state != P2P_HELD;
        t->state = P2P_HELD;
        return COMM_OK;
    }
    p2p_begins(b, t);
    if (BASE_UNLIKELY(b->world->check & CHECK_BUFFERS) && t->is_send)
        t->sum = check_sum(t->call.buf, t->call.bytes);
    enum comm_result r = message_post(b->messages, &t->call);
    if (r == COMM_OK) {
        b->p2p.held -= t->state == P2P_HELD;
        t->state = P2P_POSTED;
    }
    return r;
}

static bool post_held(struct comm_state *b)
{
    bool moved = false;

    for (uint32_t i = b->p2p.held ? b->p2p.first : P2P_NONE, next; i != P2P_NONE; i = next) {
        next = b->p2p.ops[i].after;
        if (b->p2p.ops[i].state != P2P_HELD)
            continue;
        if (b->p2p.ops[i].class) {
            bool ended = b->p2p.ops[i].class->start(b, i) == COMM_OK;
            moved |= ended || b->p2p.ops[i].state != P2P_HELD;
            if (ended)
                finish(b, i, COMM_OK);
            continue;
        }
        enum comm_result r = start_or_hold(b, i);
        if (b->failed)
            return true;
        if (r != COMM_OK && r != COMM_ERR_FULL)
            finish(b, i, r);
        moved |= b->p2p.ops[i].state != P2P_HELD;
    }
    return moved;
}

bool p2p_step(struct comm_state *b)
{
    bool moved = false;

    if (b->failed || (b->p2p.first == P2P_NONE && !b->setup.sending && !message_wants_step(b->messages) && !b->rma.apart))
        return false;
    if (b->p2p.held)
        moved |= post_held(b);
    moved |= message_wants_step(b->messages) && message_step(b->messages);
    moved |= b->p2p.longs && p2p_move_longs(b);
    moved |= p2p_take_finished(b);
    moved |= b->staged.copying && p2p_finish_stored(b);
    moved |= b->p2p.markers && p2p_finish_markers(b);
    return moved;
}

/* Does an unfinished message that was issued before work `ticket` conflict with that work? */
static bool blocks(const struct comm_state *b, uint64_t ticket, const struct timeline_entry *e)
{
    if (!timeline_meet(&b->p2p.write, &e->read) && !timeline_meet(&b->p2p.write, &e->write) && !timeline_meet(&b->p2p.read, &e->write))
        return false;
    for (uint32_t i = b->p2p.first; i != P2P_NONE; i = b->p2p.ops[i].after) {
        const struct p2p_op *t = &b->p2p.ops[i];
        if (t->state != P2P_MARKER && t->work <= ticket && timeline_conflict(e, &t->read, &t->write))
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ calls */
enum comm_result p2p_post(struct comm_state *b, const struct message_call *call, uint32_t marker, struct comm_request *req)
{
    bool whole = call->is_send && call->kind == MESSAGE_PROGRAM && p2p_send_whole(b, call, req);

    return whole ? COMM_OK : p2p_post_pending(b, call, marker, req);
}

enum comm_result p2p_post_pending(struct comm_state *b, const struct message_call *call, uint32_t marker, struct comm_request *req)
{
    uint32_t i;
    uint64_t behind = 0;
    enum comm_result r = BASE_UNLIKELY(call->on_device) ? p2p_reach_device(b, call) : COMM_OK;

    if (r == COMM_OK && b->p2p.free == P2P_NONE) /* first: what follows the stream leaves a mark on it, which a FULL must not */
        r = grow(b);
    if (r == COMM_OK && BASE_UNLIKELY(call->on_device) && b->library_work.flags & NATIVE_STREAM)
        r = p2p_follow_stream(b, call, &behind);
    if (r == COMM_OK)
        r = p2p_take_slot(b, &i);
    if (r != COMM_OK)
        return r;
    struct p2p_op *t = &b->p2p.ops[i];
    struct timeline_range range = {(uintptr_t)call->buf, (uintptr_t)call->buf + call->bytes};
    t->is_send = call->is_send;
    t->call = *call;
    t->buf = range;
    t->call.slot = i;
    t->member_of = marker;
    if (marker != P2P_NONE)
        b->p2p.ops[marker].remaining++;
    t->work = b->line.next;
    t->behind = behind;
    b->now = state_now(b); /* one time for the whole call */
    t->queued_ns = b->now;
    *(t->is_send ? &t->read : &t->write) = range;
    uint64_t ticket = t->ticket;
    b->p2p.pending++;
    if (BASE_UNLIKELY(call->on_device)) { /* it is held until its stage is ready. If the device fails now, the failure ends it */
        t->state = P2P_HELD;
        b->p2p.held++;
    }
    r = start_or_hold(b, i);
    if (r != COMM_OK && b->failed)
        return r;
    if (r != COMM_OK) {
        t = &b->p2p.ops[i];
        b->p2p.held -= t->state == P2P_HELD;
        if (t->stage)
            p2p_unstage(b, t);
        timeline_slot_finish(b->unit.handle, ticket, r);
        if (marker != P2P_NONE)
            b->p2p.ops[marker].remaining--;
        give_slot(b, i);
        b->p2p.pending--;
        return r;
    }
    timeline_widen(t->is_send ? &b->p2p.read : &b->p2p.write, &range);
    b->stats.messages++;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (message_due(b->messages)->finished) /* it ended at once */
        p2p_step(b);
    return COMM_OK;
}

void p2p_end(struct comm_state *b, const struct p2p_op *t, enum comm_result result)
{
    finish(b, (uint32_t)(t - b->p2p.ops), result);
}

void p2p_end_recovery(struct comm_state *b, uint32_t index, enum comm_result result)
{
    uint64_t ticket = b->p2p.ops[index].ticket;

    if (result != COMM_OK)
        timeline_except(b->unit.handle, ticket, result, false);
    timeline_slot_finish(b->unit.handle, ticket, result);
    b->p2p.finished = true;
    give_slot(b, index);
}

/* An agree or shrink has a slot too. Held messages count, because the end of one that is posted here may start them before the next one is
 * posted; so do finished ones whose results were not taken. */
bool p2p_reserve(struct comm_state *b, uint32_t messages)
{
    uint32_t used = P2P_WHOLE + b->p2p.pending + b->p2p.markers + b->recovery.running;
    uint32_t posted = message_pending(b->messages) + message_due(b->messages)->finished;

    while (b->p2p.room - used < messages + 1)
        if (grow(b) != COMM_OK)
            return false;
    return posted + b->p2p.held + messages <= b->unit.engine->options.queue && timeline_slots_reserve(b->unit.handle, b->p2p.room);
}

const struct comm_part p2p_part = {
    .name = "p2p",
    .open = open_p2p_ops,
    .close = close_p2p_ops,
    .step_beside = p2p_step,
    .blocks = blocks,
    .check = p2p_check,
    .ended = end_all,
};
