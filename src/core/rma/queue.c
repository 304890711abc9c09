/* Calls on windows as members of the message line: what they wait for, and in which order they run. one_sided.c executes them. */
#include "rma/queue.h"

#include <string.h>

static struct timeline_range range_of(const void *at, size_t bytes)
{
    return at ? (struct timeline_range){(uintptr_t)at, (uintptr_t)at + bytes} : (struct timeline_range){0, 0};
}

/* Whether something earlier of this rank still writes this memory. i: P2P_NONE for a call that is not among the messages yet. */
static bool is_written(const struct comm_state *b, const struct p2p_op *t, uint32_t i, struct timeline_range memory)
{
    const struct timeline_range nothing = {0, 0};

    if (timeline_holds(&b->line, t->work, &memory, &nothing))
        return true;
    for (uint32_t k = timeline_meet(&memory, &b->p2p.write) ? b->p2p.first : i; k != i; k = b->p2p.ops[k].after)
        if (timeline_meet(&memory, &b->p2p.ops[k].write))
            return true;
    return false;
}

static void take_operand(const struct comm_state *b, const struct p2p_op *t, uint32_t i, const void **at, uint64_t *value)
{
    if (*at && !is_written(b, t, i, range_of(*at, t->one.element))) {
        memcpy(value, *at, t->one.element);
        *at = NULL;
    }
}

/* A swap copies its two operands as soon as nothing writes them. They may be far apart, and one range over both would also hold the swap
 * back for what happens between them. True: both are copied. */
static bool take_operands(const struct comm_state *b, struct p2p_op *t, uint32_t i)
{
    struct one_sided *one = &t->one;

    if (one->kind != ONE_SWAP)
        return true;
    take_operand(b, t, i, &one->expected, &one->expected_value);
    take_operand(b, t, i, &one->from, &one->desired_value);
    struct timeline_range expected = range_of(one->expected, one->element);
    t->read = range_of(one->from, one->element);
    timeline_widen(&t->read, &expected);
    return !one->expected && !one->from;
}

/* Calls of one rank on one part are done in order. Signals are counters, so a wait for a signal holds back nothing. Calls that a part's
 * owner executes stay in order because they are requested in order. */
static bool behind_one(const struct comm_state *b, uint32_t i)
{
    const struct one_sided *one = &b->p2p.ops[i].one;

    if (one->kind == ONE_WAIT || one->window->held < 2)
        return false;
    for (uint32_t k = b->p2p.first; k != i; k = b->p2p.ops[k].after) {
        const struct one_sided *old = &b->p2p.ops[k].one;
        if (old->kind && old->kind != ONE_WAIT && old->window == one->window &&
            (old->peer == one->peer || one->peer == COMM_ANY_PEER || old->peer == COMM_ANY_PEER))
            return true;
    }
    return false;
}

static bool one_may_start(const struct comm_state *b, uint32_t i)
{
    struct p2p_op *t = &b->p2p.ops[i];

    if (t->fence > b->line.done || (t->one.apart ? !link_in_turn(b, i) : behind_one(b, i)))
        return false;
    return take_operands(b, t, i) && !timeline_holds(&b->line, t->work, &t->read, &t->write) && !p2p_meets_earlier(b, i);
}

bool p2p_may_ask(struct comm_state *b, uint32_t i)
{
    struct p2p_op *t = &b->p2p.ops[i];
    bool may = one_may_start(b, i);

    if (may)
        p2p_begins(b, t);
    b->p2p.held -= t->state == P2P_HELD;
    t->state = may ? P2P_ASKED : link_in_turn(b, i) ? P2P_HELD : P2P_BEHIND;
    b->p2p.held += t->state == P2P_HELD;
    return may;
}

/* Starts or continues a call. OK: it has ended. */
enum comm_result p2p_start_one(struct comm_state *b, uint32_t i)
{
    struct p2p_op *t = &b->p2p.ops[i];

    if (t->one.apart) {
        if (p2p_may_ask(b, i))
            link_ask(b, i);
        return COMM_PENDING;
    }
    if (t->state != P2P_ONE) {
        if (!one_may_start(b, i)) {
            b->p2p.held += t->state != P2P_HELD;
            t->state = P2P_HELD;
            return COMM_PENDING;
        }
        b->p2p.held -= t->state == P2P_HELD;
        b->p2p.ones++;
        t->state = P2P_ONE;
        p2p_begins(b, t);
    }
    return one_sided_step(b, &t->one);
}

static bool step_ones(struct comm_state *b)
{
    bool moved = false;

    for (uint32_t i = b->p2p.first, next; i != P2P_NONE; i = next) {
        next = b->p2p.ops[i].after;
        if (b->p2p.ops[i].state != P2P_ONE)
            continue;
        size_t done = b->p2p.ops[i].one.done;
        if (one_sided_step(b, &b->p2p.ops[i].one) == COMM_OK) {
            p2p_end(b, &b->p2p.ops[i], COMM_OK);
            moved = true;
        } else {
            moved |= b->p2p.ops[i].one.done != done;
        }
    }
    return moved;
}

bool p2p_holds_window(const struct comm_state *b, const struct comm_window *w, uint64_t ticket)
{
    for (uint32_t i = w->held ? b->p2p.first : P2P_NONE; i != P2P_NONE; i = b->p2p.ops[i].after) {
        const struct p2p_op *t = &b->p2p.ops[i];
        if (t->one.kind && t->one.kind != ONE_WAIT && t->one.window == w && t->work <= ticket)
            return true;
    }
    return false;
}

/* w NULL: ends the waits for signals, on all windows. */
void p2p_forget_window(struct comm_state *b, const struct comm_window *w, enum comm_result result)
{
    for (uint32_t i = b->p2p.pending ? b->p2p.first : P2P_NONE, next; i != P2P_NONE; i = next) {
        const struct one_sided *one = &b->p2p.ops[i].one;
        next = b->p2p.ops[i].after;
        if (one->kind && (w ? one->window == w : one->kind == ONE_WAIT))
            p2p_end(b, &b->p2p.ops[i], result);
    }
}

/* The ranges of this rank's own memory that the call touches; for a swap, take_operands sets what is read. */
static void one_ranges(const struct one_sided *one, struct p2p_op *t)
{
    size_t bytes = one->n * (one->element ? one->element : 1);

    t->read = range_of(one->from, bytes);
    t->write = range_of(one->to, bytes);
    t->call.bytes = bytes;
    t->call.peer = one->peer;
    t->is_send = one->kind != ONE_WAIT;
}

static const char *one_name(const struct p2p_op *t)
{
    static const char *const names[] = {
        [ONE_PUT] = "put",       [ONE_GET] = "get",   [ONE_UPDATE] = "update", [ONE_SWAP] = "swap",
        [ONE_SIGNAL] = "signal", [ONE_WAIT] = "wait", [ONE_FLUSH] = "flush",
    };

    return names[t->one.kind];
}

/* A wait for a signal ends alone, also when all ranks that could send one have closed. */
static void check_wait(struct comm_state *b, const struct p2p_op *t, bool late)
{
    int32_t rank;
    bool gone = b->team.size > 1 && p2p_peer_left(b, COMM_ANY_PEER, &rank);

    if (!late && !gone)
        return;
    bool reached = one_sided_step(b, &b->p2p.ops[t->call.slot].one) == COMM_OK;
    p2p_end(b, t, reached ? COMM_OK : late ? COMM_ERR_TIMEOUT : COMM_ERR_CLOSED);
}

static void check_one(struct comm_state *b, const struct p2p_op *t, int64_t now)
{
    bool late = now - t->started_ns >= b->timeout_ns;

    if (t->state != P2P_ONE && t->state != P2P_ASKED) /* it has not started */
        return;
    if (t->one.kind == ONE_WAIT)
        check_wait(b, t, late);
    else if (late) /* its lock is held by a stopped rank, or its owner is silent */
        state_propose(b, &(struct cause){.rank = b->team.rank, .peer = b->team.rank, .result = COMM_ERR_TIMEOUT});
}

static void one_ended(struct p2p_op *t)
{
    t->one.window->held--;
}

static const struct p2p_class one_class = {.name = one_name, .start = p2p_start_one, .check = check_one, .ended = one_ended};

enum comm_result p2p_one_sided(struct comm_state *b, const struct one_sided *one, struct comm_request *req)
{
    uint32_t i;
    struct p2p_op alone = {.one = *one, .work = b->line.next, .fence = one->window->fence};

    *req = COMM_REQUEST_NONE;
    alone.one.apart = (one->n || one->kind == ONE_SIGNAL) && one->window->part[one->peer].apart;
    one_ranges(one, &alone);
    bool ready = take_operands(b, &alone, P2P_NONE);
    b->stats.messages++;
    if (one->peer != b->team.rank) {
        b->stats.bytes_out += one->from ? alone.call.bytes : 0;
        b->stats.bytes_in += one->to ? alone.call.bytes : 0;
    }
    if (BASE_LIKELY(ready && !b->p2p.pending && alone.fence <= b->line.done && !alone.one.apart) &&
        !timeline_holds(&b->line, alone.work, &alone.read, &alone.write) && one_sided_step(b, &alone.one) == COMM_OK)
        return COMM_OK;
    enum comm_result r = alone.one.apart ? link_ready(b, one->peer) : COMM_OK;
    r = r == COMM_OK ? p2p_take_slot(b, &i) : r;
    if (r != COMM_OK)
        return r;
    struct p2p_op *t = &b->p2p.ops[i];
    alone.ticket = t->ticket;
    alone.before = t->before;
    alone.after = t->after;
    alone.member_of = P2P_NONE;
    alone.call.slot = i;
    alone.queued_ns = b->unit.engine->env->now(b->unit.engine->env);
    *t = alone;
    t->class = &one_class;
    b->p2p.pending++;
    one->window->held++;
    if (t->one.apart)
        link_stand(b, i);
    timeline_widen(&b->p2p.read, &t->read);
    timeline_widen(&b->p2p.write, &t->write);
    *req = (struct comm_request){b->unit.handle, t->ticket};
    if (p2p_start_one(b, i) == COMM_OK)
        p2p_end(b, &b->p2p.ops[i], COMM_OK);
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ the part */
static bool step(struct comm_state *b)
{
    bool moved = !b->failed && b->p2p.ones && step_ones(b);

    if (!b->failed && b->rma.apart)
        moved |= links_step(b);
    return moved;
}

static bool blocks(const struct comm_state *b, uint64_t ticket, const struct timeline_entry *e)
{
    const struct comm_window *w = ((const struct entry *)(const void *)e)->window;

    return w && p2p_holds_window(b, w, ticket);
}

static bool serve(struct comm_state *b)
{
    return b->rma.busy || message_wants_step(b->messages);
}

static void close_all(struct comm_state *b)
{
    links_close(b);
    windows_close(b);
}

const struct comm_part rma_part = {
    .name = "rma",
    .world_close = memory_close,
    .leave = windows_leave,
    .close = close_all,
    .message = links_message,
    .step_beside = step,
    .blocks = blocks,
    .serve = serve,
};
