/*
 * Markers of the message line. A marker ends after the messages and the work that were issued before it: it is what comm_sync() and a plan
 * with messages wait for.
 */
#include "p2p/op.h"

/* The first error of the marker's messages, otherwise of its work, which then does not report it. */
static enum comm_result marker_result(const struct comm_state *b, const struct p2p_op *t)
{
    enum comm_result r = (enum comm_result)t->error;

    for (uint64_t ticket = t->first_work; t->carries && r == COMM_OK && ticket <= t->work; ticket++)
        r = timeline_test((struct comm_request){b->unit.handle, ticket});
    return r;
}

bool p2p_finish_markers(struct comm_state *b)
{
    bool moved = false;

    for (uint32_t i = b->p2p.first, next; i != P2P_NONE; i = next) {
        struct p2p_op *t = &b->p2p.ops[i];
        next = t->after;
        if (t->state == P2P_MARKER && !t->remaining && t->work <= b->line.done) {
            p2p_end(b, t, marker_result(b, t));
            moved = true;
        }
    }
    return moved;
}

/* May this ticket end with an error of its own, which is not an error of a point behind it? That is so if all ranks refused it, if a child
 * communicator could not be created, or if its input changed in flight (check=buffers). */
static bool may_end_alone(struct comm_state *b, uint64_t ticket)
{
    const struct entry *e = state_entry(b, ticket);

    if (ticket <= b->line.done)
        return atomic_load_explicit(&b->unit.handle->exceptions, memory_order_relaxed) != 0;
    return e->head.kind == TIMELINE_REFUSED || e->ended || (b->world->check & CHECK_BUFFERS) ||
           (e->head.state == TIMELINE_ENDED && e->head.result != COMM_OK);
}

/* The newest entry of the line, if it is a marker behind everything. */
static const struct p2p_op *newest_marker(const struct comm_state *b)
{
    const struct p2p_op *t = b->p2p.last == P2P_NONE ? NULL : &b->p2p.ops[b->p2p.last];

    return t && t->state == P2P_MARKER && t->member_of == P2P_NONE && t->work == b->line.next - 1 ? t : NULL;
}

uint64_t p2p_mark(struct comm_state *b)
{
    uint64_t last = b->line.next - 1;
    uint32_t i;

    if (!b->p2p.pending && last < atomic_load_explicit(&b->unit.handle->first, memory_order_relaxed))
        return 0;
    if (!b->p2p.pending && !may_end_alone(b, last))
        return last;
    const struct p2p_op *same = newest_marker(b);
    if (same)
        return same->ticket;
    if (p2p_take_slot(b, &i) != COMM_OK)
        return UINT64_MAX;
    struct p2p_op *t = &b->p2p.ops[i];
    t->state = P2P_MARKER;
    t->work = b->line.next - 1;
    t->remaining = b->p2p.pending;
    b->p2p.markers++;
    return t->ticket;
}

enum comm_result p2p_open_marker(struct comm_state *b, bool carries, uint32_t *marker)
{
    uint32_t i;
    enum comm_result r = p2p_take_slot(b, &i);

    if (r != COMM_OK)
        return r;
    struct p2p_op *t = &b->p2p.ops[i];
    t->state = P2P_MARKER;
    t->member_of = i;
    t->remaining = 1; /* until the marker is closed */
    t->carries = carries;
    t->first_work = b->line.next;
    b->p2p.markers++;
    *marker = i;
    return COMM_OK;
}

void p2p_close_marker(struct comm_state *b, uint32_t marker, enum comm_result error, struct comm_request *req)
{
    struct p2p_op *t = &b->p2p.ops[marker];

    t->work = b->line.next - 1;
    t->error = t->error == COMM_OK && t->carries ? (int32_t)error : t->error;
    t->remaining--;
    if (req)
        *req = (struct comm_request){b->unit.handle, t->ticket};
    p2p_step(b);
}
