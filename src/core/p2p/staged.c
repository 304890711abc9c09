/*
 * Messages in device memory. A send is copied to a stage, and a receive arrives in a stage and is copied to the device. A short message is
 * copied whole. Of a long one, pieces are copied while others travel: the sender tells the wire how many bytes are in its stage, and the
 * wire tells the receiver how many have arrived (`moved`). Neither rank knows how the other one does it.
 */
#include "p2p/op.h"

#include "base/format.h"

enum { LONG_BYTES = 2 << 20, PIECE_BYTES = 1 << 20 };

/* Opens the pool, and checks that all of the buffer is memory of the device. */
enum comm_result p2p_reach_device(struct comm_state *b, const struct message_call *call)
{
    struct comm_error *reported = &b->failure.last_refused;
    char text[192] = "";
    enum comm_result r = staging_open(&b->staged.pool, b->unit.engine, text, sizeof text);

    if (r == COMM_OK && staging_spans(b->staged.pool, call->buf, call->bytes))
        return COMM_OK;
    *reported = (struct comm_error){.size = sizeof *reported, .result = r, .rank = b->team.rank, .peer = call->peer};
    if (r == COMM_OK) {
        reported->result = r = COMM_ERR_ARGUMENT;
        base_format(text, sizeof text, "expected %zu bytes of a device's memory: it ends before", call->bytes);
    }
    base_copy_text(reported->operation, sizeof reported->operation, call->is_send ? "send" : "recv");
    base_copy_text(reported->cause, sizeof reported->cause, "refused at the call");
    base_format(reported->text, sizeof reported->text, "%s: buf=0x%llx; %s", reported->operation, (unsigned long long)(uintptr_t)call->buf,
                text);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ stages */
/* A longer one is copied in pieces, so that its first bytes travel while later ones are copied. Of a receive the longest message counts
 * that it can take. A send to this rank is one copy from its stage, and with check=buffers a checksum is made of all of it. */
static bool is_long(const struct comm_state *b, const struct p2p_op *t)
{
    if (t->call.bytes <= LONG_BYTES || !t->is_send)
        return t->call.bytes > LONG_BYTES;
    return t->call.peer != b->team.rank && b->channel->caps.takes_growing && !(b->world->check & CHECK_BUFFERS);
}

static void enlist(struct comm_state *b, struct p2p_op *t)
{
    struct stage *stage = t->stage, **last = &b->p2p.longs;

    while (*last)
        last = &(*last)->next;
    *last = stage;
    stage->next = NULL;
    stage->is_long = true;
    stage->pieces.slot = t->call.slot;
    t->call.moved = &stage->pieces.moved;
}

static bool take(struct comm_state *b, struct p2p_op *t)
{
    struct stage_side none = {0, 0, NULL}, whole = {t->buf.from, t->buf.to - t->buf.from, NULL};
    struct stage *stage = t->stage = staging_take(b->staged.pool, t->is_send ? &whole : &none, t->is_send ? &none : &whole);

    if (!stage)
        return false;
    t->call.buf = t->is_send ? stage->in.at : stage->out.at;
    if (t->is_send)
        stage->copy = STAGE_WAITING;
    stage->pieces.begun = stage->pieces.first = stage->pieces.next = 0;
    atomic_store_explicit(&stage->pieces.moved, 0, memory_order_relaxed);
    if (is_long(b, t))
        enlist(b, t);
    return true;
}

void p2p_unstage(struct comm_state *b, struct p2p_op *t)
{
    struct stage **at = &b->p2p.longs;

    while (t->stage->is_long && *at != t->stage)
        at = &(*at)->next;
    if (t->stage->is_long)
        *at = t->stage->next;
    staged_give(b, t->stage);
    t->stage = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ copies */
/* Begins the copy of what comes next, up to `end`. FULL: the device has no room now. */
static enum comm_result begin_copy(struct comm_state *b, struct p2p_op *t, size_t end)
{
    size_t *begun = &t->stage->pieces.begun;
    char *ours = (char *)t->call.buf + *begun, *theirs = (char *)t->buf.from + *begun;
    struct device_piece piece =
        t->is_send ? (struct device_piece){ours, theirs, end - *begun} : (struct device_piece){theirs, ours, end - *begun};
    enum comm_result r = staging_copy(b->staged.pool, t->stage, t->is_send ? DEVICE_IN : DEVICE_OUT, &piece, 1);

    if (r == COMM_OK)
        *begun = end;
    else if (r != COMM_ERR_FULL)
        staged_failed(b, NULL, r);
    return r;
}

/* Copies all that is left, up to `end`. PENDING: the copy is in progress, or there is still no room for it. */
static enum comm_result copy_rest(struct comm_state *b, struct p2p_op *t, size_t end)
{
    enum comm_result r = COMM_OK;

    if (t->stage->pieces.begun == end)
        t->stage->copy = STAGE_COPYING;
    else if (t->stage->copy == STAGE_WAITING)
        r = begin_copy(b, t, end);
    if (r != COMM_OK && r != COMM_ERR_FULL)
        return r;
    r = staged_note(b, t->stage);
    if (r != COMM_OK)
        return r;
    return staging_reached(t->stage) ? COMM_OK : COMM_PENDING;
}

/* Tells the wire how much of a long send is in the stage. True: more than before. */
static bool tell_moved(const struct p2p_op *t)
{
    struct stage_pieces *p = &t->stage->pieces;
    uint32_t before = p->first;

    while (p->first != p->next && staging_is_there(&p->place[p->first % STAGE_PIECES]))
        p->first++;
    size_t moved = (size_t)p->first * PIECE_BYTES;
    if (p->first != before)
        atomic_store_explicit(&p->moved, moved < t->call.bytes ? moved : t->call.bytes, memory_order_release);
    return p->first != before;
}

/* Copies as many pieces of a long send as may be in progress. *moved: more of it can travel. */
static enum comm_result fetch(struct comm_state *b, struct p2p_op *t, bool *moved)
{
    struct stage_pieces *p = &t->stage->pieces;
    enum comm_result r = COMM_OK;

    *moved = tell_moved(t);
    while (p->begun < t->call.bytes && p->next - p->first < STAGE_PIECES) {
        size_t left = t->call.bytes - p->begun;
        r = begin_copy(b, t, p->begun + (left < PIECE_BYTES ? left : PIECE_BYTES));
        if (r != COMM_OK)
            break;
        p->place[p->next++ % STAGE_PIECES] = t->stage->place;
        *moved |= tell_moved(t);
    }
    if (r != COMM_OK && r != COMM_ERR_FULL)
        return r;
    if (p->begun < t->call.bytes)
        t->stage->copy = STAGE_WAITING;
    r = staged_note(b, t->stage); /* before the last look: what is over when a sleeper need not watch it any more has been told */
    if (r == COMM_OK)
        *moved |= tell_moved(t);
    return r;
}

/* Copies to the device what has arrived of a long receive, if it is worth a copy. True: it did. */
static bool store_some(struct comm_state *b, struct p2p_op *t)
{
    size_t came = atomic_load_explicit(&t->stage->pieces.moved, memory_order_acquire);
    enum comm_result r = COMM_PENDING;

    if (came - t->stage->pieces.begun >= PIECE_BYTES)
        r = begin_copy(b, t, came);
    bool goes_on = r == COMM_OK || r == COMM_PENDING || r == COMM_ERR_FULL;
    if (goes_on && staged_note(b, t->stage) != COMM_OK)
        return false;
    return r == COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ steps of a message */
/* A long send is posted in a later pass than the one that takes its stage: the call that issues it may still be refused, and then the
 * device must not use its buffer. */
enum comm_result p2p_stage(struct comm_state *b, struct p2p_op *t)
{
    bool fresh = !t->stage, moved;

    if (fresh && !take(b, t))
        return COMM_ERR_MEMORY;
    if (!t->is_send)
        return COMM_OK;
    if (!t->stage->is_long)
        return copy_rest(b, t, t->call.bytes);
    enum comm_result r = fetch(b, t, &moved);
    return r == COMM_OK && fresh && !staging_reached(t->stage) ? COMM_PENDING : r;
}

bool p2p_move_longs(struct comm_state *b)
{
    bool moved = false;

    for (struct stage *stage = b->p2p.longs, *next; !b->failed && !b->failure.proposal.result && stage; stage = next) {
        struct p2p_op *t = &b->p2p.ops[stage->pieces.slot];
        bool more = false;
        next = stage->next;
        if (t->state == P2P_POSTED && t->is_send)
            (void)fetch(b, t, &more);
        else if (t->state == P2P_POSTED)
            more = store_some(b, t);
        moved |= more;
    }
    return moved;
}

/* For a message in state STORING. True: its copies are over. */
static bool stored(struct comm_state *b, struct p2p_op *t)
{
    if (!t->is_send)
        return copy_rest(b, t, t->call.bytes) == COMM_OK;
    return staged_note(b, t->stage) == COMM_OK && staging_reached(t->stage);
}

bool p2p_store(struct comm_state *b, struct p2p_op *t, const struct message_finished *done)
{
    bool arrived = !t->is_send && done->result == COMM_OK && done->bytes, fetches = t->is_send && !staging_rests(t->stage);

    if (b->failed || !(arrived || fetches))
        return false;
    if (arrived)
        t->call.bytes = done->bytes;
    t->state = P2P_STORING;
    t->error = done->result;
    t->stage->copy = arrived ? STAGE_WAITING : STAGE_COPYING;
    return !stored(b, t);
}

bool p2p_finish_stored(struct comm_state *b)
{
    bool moved = false;

    for (uint32_t i = b->p2p.first, next; i != P2P_NONE && !b->failed && !b->failure.proposal.result; i = next) {
        struct p2p_op *t = &b->p2p.ops[i];
        next = t->after;
        if (t->state != P2P_STORING || !stored(b, t))
            continue;
        p2p_end(b, t, (enum comm_result)t->error);
        moved = true;
    }
    return moved;
}
