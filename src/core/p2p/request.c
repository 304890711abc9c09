/* Requests of the message line that are not messages: of a subset that is being created, and of agree and shrink. */
#include "p2p/op.h"

/* Begins a request of this line that is not a message. It holds back nothing, and markers wait for it. */
enum comm_result p2p_begin(struct comm_state *b, uint32_t *index, struct comm_request *req)
{
    enum comm_result r = p2p_take_slot(b, index);

    if (r != COMM_OK)
        return r;
    struct p2p_op *t = &b->p2p.ops[*index];
    t->state = P2P_MEETING;
    t->work = b->line.next;
    t->call.peer = COMM_ANY_PEER;
    t->queued_ns = t->started_ns = state_now(b);
    b->p2p.pending++;
    *req = (struct comm_request){b->unit.handle, t->ticket};
    return COMM_OK;
}

enum comm_result p2p_begin_recovery(struct comm_state *b, uint32_t *index, struct comm_request *req)
{
    enum comm_result r = p2p_take_slot(b, index);

    if (r != COMM_OK)
        return r;
    b->p2p.ops[*index].state = P2P_RECOVERY;
    b->p2p.ops[*index].call.peer = COMM_ANY_PEER;
    *req = (struct comm_request){b->unit.handle, b->p2p.ops[*index].ticket};
    return COMM_OK;
}
