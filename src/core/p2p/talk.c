/*
 * The second line: messages, which start at the call and end one by one, and markers, which stand behind everything issued so far. A
 * message is held back by an unfinished fence or conflicting entry before it; held, it holds back later ones of its pair and direction.
 */
#include "p2p/talk.h"

#include "comm/parts.h"

#include <string.h>

enum { FIRST_TALKS = 64, FINISHED_BATCH = 64 };

static enum comm_result open_talks(struct body *b, struct team_offer *offer)
{
    (void)offer;
    b->talks = b->unit.engine->env->take(b->unit.engine->env, FIRST_TALKS * sizeof *b->talks, 64);
    if (!b->talks)
        return COMM_ERR_MEMORY;
    b->talk_room = FIRST_TALKS;
    for (uint32_t i = FIRST_TALKS; i-- > 0;) {
        b->talks[i].after = b->talk_free;
        b->talk_free = i;
    }
    return COMM_OK;
}

static void close_talks(struct body *b)
{
    if (b->talks)
        b->unit.engine->env->give(b->unit.engine->env, b->talks, b->talk_room * sizeof *b->talks);
}

static enum comm_result grow(struct body *b)
{
    const struct comm_env *env = b->unit.engine->env;
    uint32_t room = b->talk_room * 2;

    if (room > b->unit.engine->options.queue * 2 || room > 1u << TIMELINE_INDEX_BITS)
        return COMM_ERR_FULL;
    struct talk *more = env->take(env, room * sizeof *more, 64);
    if (!more)
        return COMM_ERR_MEMORY;
    memcpy(more, b->talks, b->talk_room * sizeof *more);
    env->give(env, b->talks, b->talk_room * sizeof *more);
    b->talks = more;
    for (uint32_t i = room; i-- > b->talk_room;) {
        more[i].after = b->talk_free;
        b->talk_free = i;
    }
    b->talk_room = room;
    return COMM_OK;
}

/* A slot at the end of the list of unfinished ones, pending under a new ticket. */
enum comm_result talk_take_slot(struct body *b, uint32_t *index)
{
    enum comm_result r = b->talk_free == TALK_NONE ? grow(b) : COMM_OK;

    if (r != COMM_OK)
        return r;
    uint32_t i = b->talk_free;
    uint64_t ticket = timeline_slot_open(b->unit.face, i);
    if (!ticket)
        return COMM_ERR_MEMORY;
    struct talk *t = &b->talks[i];
    b->talk_free = t->after;
    *t = (struct talk){.ticket = ticket, .before = b->talk_last, .after = TALK_NONE, .member_of = TALK_NONE};
    if (b->talk_last != TALK_NONE)
        b->talks[b->talk_last].after = i;
    else
        b->talk_first = i;
    b->talk_last = i;
    *index = i;
    return COMM_OK;
}

static void give_slot(struct body *b, uint32_t i)
{
    struct talk *t = &b->talks[i];

    if (t->before != TALK_NONE)
        b->talks[t->before].after = t->after;
    else
        b->talk_first = t->after;
    if (t->after != TALK_NONE)
        b->talks[t->after].before = t->before;
    else
        b->talk_last = t->before;
    t->state = TALK_FREE;
    t->after = b->talk_free;
    b->talk_free = i;
}

/* ------------------------------------------------------------------------------------------------------------ ending */
const char *talk_name(const struct talk *t)
{
    if (t->state == TALK_MARKER)
        return "marker";
    if (t->state == TALK_MEETING)
        return "subset";
    if (t->state == TALK_RECOVERY)
        return "recovery";
    if (t->class)
        return t->class->name(t);
    return t->is_send ? "send" : "recv";
}

static void finish(struct body *b, uint32_t i, enum comm_result result)
{
    struct talk *t = &b->talks[i];
    struct talk *marker = t->member_of != TALK_NONE ? &b->talks[t->member_of] : NULL;
    bool carried = marker && marker != t && marker->carries;

    if (BASE_UNLIKELY(b->world->check & CHECK_BUFFERS) && t->state == TALK_POSTED && t->is_send && result == COMM_OK &&
        t->sum != check_sum(t->call.buf, t->call.bytes))
        result = COMM_ERR_CORRUPT;
    if (carried && result != COMM_OK && marker->error == COMM_OK)
        marker->error = result;
    if (result != COMM_OK && !b->failed && !carried)
        timeline_except(b->unit.face, t->ticket, result);
    timeline_slot_finish(b->unit.face, t->ticket, result);
    b->talk_finished = true;
    if (t->state == TALK_MARKER) {
        b->talk_markers--;
        give_slot(b, i);
        return;
    }
    for (uint32_t m = b->talk_markers ? t->after : TALK_NONE; m != TALK_NONE; m = b->talks[m].after)
        if (b->talks[m].state == TALK_MARKER && b->talks[m].member_of != m)
            b->talks[m].remaining--;
    if (t->member_of != TALK_NONE)
        b->talks[t->member_of].remaining--;
    struct record made = {.bytes = t->call.bytes,
                          .queued_ns = t->queued_ns,
                          .started_ns = t->queued_ns,
                          .algorithm = talk_name(t),
                          .waited = (uint16_t)(t->call.peer + 1)};
    body_record(b, &made, t->ticket, b->unit.engine->env->now(b->unit.engine->env), result);
    b->talk_held -= t->state == TALK_HELD;
    b->talk_ones -= t->state == TALK_ONE;
    if (t->class)
        t->class->ended(t);
    give_slot(b, i);
    if (--b->talk_pending == 0)
        b->talk_read = b->talk_write = (struct timeline_hull){0, 0};
}

/* What its messages ended with, or else its work. */
static enum comm_result marker_result(const struct body *b, const struct talk *t)
{
    enum comm_result r = (enum comm_result)t->error;

    for (uint64_t ticket = t->first_work; t->carries && r == COMM_OK && ticket <= t->work; ticket++)
        r = timeline_test((struct comm_request){b->unit.face, ticket});
    return r;
}

static bool finish_markers(struct body *b)
{
    bool moved = false;

    for (uint32_t i = b->talk_markers ? b->talk_first : TALK_NONE, next; i != TALK_NONE; i = next) {
        struct talk *t = &b->talks[i];
        next = t->after;
        if (t->state == TALK_MARKER && !t->remaining && t->work <= b->line.done) {
            finish(b, i, marker_result(b, t));
            moved = true;
        }
    }
    return moved;
}

static void give_to_part(struct body *b, const struct message_finished *done)
{
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->message && (*part)->message(b, done))
            return;
}

bool talk_take_finished(struct body *b)
{
    struct message_finished done[FINISHED_BATCH];
    uint32_t count;
    bool moved = false;

    while ((count = message_take_finished(b->messages, done, FINISHED_BATCH)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            if (BASE_UNLIKELY(done[i].slot & (TALK_LETTER | TALK_LINK))) {
                give_to_part(b, &done[i]);
                continue;
            }
            if (done[i].result == COMM_OK && done[i].peer != b->team.rank)
                *(b->talks[done[i].slot].is_send ? &b->stats.bytes_out : &b->stats.bytes_in) += done[i].bytes;
            finish(b, done[i].slot, done[i].result);
        }
        moved = true;
    }
    return moved;
}

static void end_all(struct body *b, enum comm_result result)
{
    talk_take_finished(b);
    for (uint32_t i = b->talk_first, next; i != TALK_NONE; i = next) {
        next = b->talks[i].after;
        if (b->talks[i].state != TALK_RECOVERY)
            finish(b, i, result);
    }
}

void talk_cancel_held(struct body *b)
{
    for (uint32_t i = b->talk_held ? b->talk_first : TALK_NONE, next; i != TALK_NONE; i = next) {
        next = b->talks[i].after;
        if (b->talks[i].state == TALK_HELD && !b->talks[i].is_send && !b->talks[i].class)
            finish(b, i, COMM_ERR_CANCELLED);
    }
}

/* ------------------------------------------------------------------------------------------------------------ starting */
static bool same_line(const struct talk *held, const struct talk *later)
{
    if (held->class || later->class)
        return false; /* they have an order of their own */
    bool meet = held->call.peer == later->call.peer || held->call.peer == COMM_ANY_PEER || later->call.peer == COMM_ANY_PEER;

    return held->is_send == later->is_send && meet;
}

static bool behind_held(const struct body *b, uint32_t i)
{
    for (uint32_t h = b->talk_first; h != i; h = b->talks[h].after)
        if (b->talks[h].state == TALK_HELD && same_line(&b->talks[h], &b->talks[i]))
            return true;
    return false;
}

/* A receive waits for earlier messages that use its memory, a send for earlier receives into it. */
bool talk_meets_earlier(const struct body *b, uint32_t i)
{
    const struct talk *t = &b->talks[i];

    if (!timeline_meet(&t->read, &b->talk_write) && !timeline_meet(&t->write, &b->talk_read) && !timeline_meet(&t->write, &b->talk_write))
        return false;
    for (uint32_t k = b->talk_first; k != i; k = b->talks[k].after) {
        const struct talk *old = &b->talks[k];
        if (timeline_meet(&t->read, &old->write) || timeline_meet(&t->write, &old->read) || timeline_meet(&t->write, &old->write))
            return true;
    }
    return false;
}

/* Nothing starts while a cause of failure waits to be chosen: who gave up has perhaps left a message out, and a peer would take the next
 * one for it. */
static enum comm_result start_or_hold(struct body *b, uint32_t i)
{
    struct talk *t = &b->talks[i];

    if (b->proposal.result || timeline_holds(&b->line, t->work, &t->read, &t->write) || talk_meets_earlier(b, i) ||
        (b->talk_held && behind_held(b, i))) {
        b->talk_held += t->state != TALK_HELD;
        t->state = TALK_HELD;
        return COMM_OK;
    }
    if (BASE_UNLIKELY(b->world->check & CHECK_BUFFERS) && t->is_send)
        t->sum = check_sum(t->call.buf, t->call.bytes);
    enum comm_result r = message_post(b->messages, &t->call);
    if (r == COMM_OK) {
        b->talk_held -= t->state == TALK_HELD;
        t->state = TALK_POSTED;
    }
    return r;
}

static bool post_held(struct body *b)
{
    bool moved = false;

    for (uint32_t i = b->talk_held ? b->talk_first : TALK_NONE, next; i != TALK_NONE; i = next) {
        next = b->talks[i].after;
        if (b->talks[i].state != TALK_HELD)
            continue;
        if (b->talks[i].class) {
            bool ended = b->talks[i].class->start(b, i) == COMM_OK;
            moved |= ended || b->talks[i].state != TALK_HELD;
            if (ended)
                finish(b, i, COMM_OK);
            continue;
        }
        enum comm_result r = start_or_hold(b, i);
        if (r != COMM_OK && r != COMM_ERR_FULL)
            finish(b, i, r);
        moved |= b->talks[i].state != TALK_HELD;
    }
    return moved;
}

bool talk_step(struct body *b)
{
    bool moved = false;

    if (b->failed || (b->talk_first == TALK_NONE && !b->letters_sending && !message_wants_step(b->messages) && !b->windows_apart))
        return false;
    if (b->talk_held)
        moved |= post_held(b);
    moved |= message_step(b->messages);
    moved |= talk_take_finished(b);
    moved |= finish_markers(b);
    return moved;
}

/* Does an unfinished message issued before work `ticket` conflict with it? */
static bool blocks(const struct body *b, uint64_t ticket, const struct timeline_entry *e)
{
    if (!timeline_meet(&b->talk_write, &e->read) && !timeline_meet(&b->talk_write, &e->write) && !timeline_meet(&b->talk_read, &e->write))
        return false;
    for (uint32_t i = b->talk_first; i != TALK_NONE; i = b->talks[i].after) {
        const struct talk *t = &b->talks[i];
        if (t->state != TALK_MARKER && t->work <= ticket && timeline_conflict(e, &t->read, &t->write))
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ markers */
/* Whether that ticket may end with an error of its own (refused by all, or a child that could not be made), which is not the error of a
 * point behind it. */
static bool may_end_alone(struct body *b, uint64_t ticket)
{
    const struct entry *e = body_entry(b, ticket);

    if (ticket <= b->line.done)
        return atomic_load_explicit(&b->unit.face->exceptions, memory_order_relaxed) != 0;
    return e->head.kind == TIMELINE_REFUSED || e->ended || (e->head.state == TIMELINE_ENDED && e->head.result != COMM_OK);
}

uint64_t talk_mark(struct body *b)
{
    uint64_t last = b->line.next - 1;
    uint32_t i;

    if (!b->talk_pending && last < atomic_load_explicit(&b->unit.face->first, memory_order_relaxed))
        return 0;
    if (!b->talk_pending && !may_end_alone(b, last))
        return last;
    if (talk_take_slot(b, &i) != COMM_OK)
        return UINT64_MAX;
    struct talk *t = &b->talks[i];
    t->state = TALK_MARKER;
    t->work = b->line.next - 1;
    t->remaining = b->talk_pending;
    b->talk_markers++;
    return t->ticket;
}

/* ------------------------------------------------------------------------------------------------------------ calls */
enum comm_result talk_post(struct body *b, const struct message_call *call, uint32_t marker, struct comm_request *req)
{
    uint32_t i;
    enum comm_result r = talk_take_slot(b, &i);

    if (r != COMM_OK)
        return r;
    struct talk *t = &b->talks[i];
    struct timeline_hull hull = {(uintptr_t)call->buf, (uintptr_t)call->buf + call->bytes};
    t->is_send = call->is_send;
    t->call = *call;
    t->call.slot = i;
    t->member_of = marker;
    if (marker != TALK_NONE)
        b->talks[marker].remaining++;
    t->work = b->line.next;
    t->queued_ns = b->unit.engine->env->now(b->unit.engine->env);
    *(t->is_send ? &t->read : &t->write) = hull;
    uint64_t ticket = t->ticket;
    b->talk_pending++;
    r = start_or_hold(b, i);
    if (r != COMM_OK) {
        timeline_slot_finish(b->unit.face, ticket, r);
        if (marker != TALK_NONE)
            b->talks[marker].remaining--;
        give_slot(b, i);
        b->talk_pending--;
        return r;
    }
    timeline_widen(t->is_send ? &b->talk_read : &b->talk_write, &hull);
    b->stats.messages++;
    if (req)
        *req = (struct comm_request){b->unit.face, ticket};
    talk_step(b);
    return COMM_OK;
}

/* A request of this line that is no message: it stands before nothing, and markers wait for it. */
enum comm_result talk_begin(struct body *b, uint32_t *index, struct comm_request *req)
{
    enum comm_result r = talk_take_slot(b, index);

    if (r != COMM_OK)
        return r;
    struct talk *t = &b->talks[*index];
    t->state = TALK_MEETING;
    t->work = b->line.next;
    t->call.peer = COMM_ANY_PEER;
    t->queued_ns = b->unit.engine->env->now(b->unit.engine->env);
    b->talk_pending++;
    *req = (struct comm_request){b->unit.face, t->ticket};
    return COMM_OK;
}

void talk_end(struct body *b, const struct talk *t, enum comm_result result)
{
    finish(b, (uint32_t)(t - b->talks), result);
}

enum comm_result talk_begin_recovery(struct body *b, uint32_t *index, struct comm_request *req)
{
    enum comm_result r = talk_take_slot(b, index);

    if (r != COMM_OK)
        return r;
    b->talks[*index].state = TALK_RECOVERY;
    b->talks[*index].call.peer = COMM_ANY_PEER;
    *req = (struct comm_request){b->unit.face, b->talks[*index].ticket};
    return COMM_OK;
}

void talk_end_recovery(struct body *b, uint32_t index, enum comm_result result)
{
    uint64_t ticket = b->talks[index].ticket;

    if (result != COMM_OK)
        timeline_except(b->unit.face, ticket, result);
    timeline_slot_finish(b->unit.face, ticket, result);
    b->talk_finished = true;
    give_slot(b, index);
}

/* ------------------------------------------------------------------------------------------------------------ plans */
/* Room for so many messages more and a marker; false: nothing changed. */
bool talk_reserve(struct body *b, uint32_t messages)
{
    uint32_t used = b->talk_pending + b->talk_markers;

    while (b->talk_room - used < messages + 1)
        if (grow(b) != COMM_OK)
            return false;
    return message_pending(b->messages) + messages <= b->unit.engine->options.queue;
}

enum comm_result talk_open_marker(struct body *b, bool carries, uint32_t *marker)
{
    uint32_t i;
    enum comm_result r = talk_take_slot(b, &i);

    if (r != COMM_OK)
        return r;
    struct talk *t = &b->talks[i];
    t->state = TALK_MARKER;
    t->member_of = i;
    t->remaining = 1; /* until it is closed */
    t->carries = carries;
    t->first_work = b->line.next;
    b->talk_markers++;
    *marker = i;
    return COMM_OK;
}

void talk_close_marker(struct body *b, uint32_t marker, enum comm_result error, struct comm_request *req)
{
    struct talk *t = &b->talks[marker];

    t->work = b->line.next - 1;
    t->error = t->error == COMM_OK && t->carries ? (int32_t)error : t->error;
    t->remaining--;
    if (req)
        *req = (struct comm_request){b->unit.face, t->ticket};
    talk_step(b);
}

const struct comm_part p2p_part = {
    .name = "p2p",
    .open = open_talks,
    .close = close_talks,
    .step_beside = talk_step,
    .blocks = blocks,
    .check = talk_check,
    .ended = end_all,
};
