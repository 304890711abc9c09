/*
 * Messages of device memory on a communicator whose library works in a stream (NCCL). The library knows no tags. So those of tag 0 are the
 * library's, in the stream (call.c), and those of another tag are staged and matched on the wire, as on the other backends. Both ranks
 * know the tag, so they take the same way.
 *
 * A staged message is not in the stream, so its order with the stream is made here. It begins when the stream has passed all that was put
 * there before its call: it is held until an entry has ended that does nothing but end then. And nothing that uses its memory is put on the
 * stream before it is over: such a call is FULL.
 */
#include "p2p/op.h"

#include "base/format.h"

bool p2p_is_in_stream(struct comm_state *b, const struct message_call *call)
{
    return b->library_work.flags && p2p_is_untagged(call) && state_is_device_memory(b, call->buf);
}

bool p2p_is_beside_stream(struct comm_state *b, const struct message_call *call)
{
    return call->bytes && b->library_work.flags & NATIVE_STREAM && !p2p_is_untagged(call) && state_is_device_memory(b, call->buf);
}

enum comm_result p2p_follow_stream(struct comm_state *b, const struct message_call *call, uint64_t *behind)
{
    struct comm_request mark = {b->unit.handle, b->p2p.follows};
    enum comm_result r = mark.ticket ? COMM_OK : state_stream_messages(b, NULL, 0, &mark);

    if (r == COMM_OK)
        *behind = mark.ticket;
    else if (r != COMM_ERR_FULL && !b->failed)
        base_copy_text(b->failure.last_refused.operation, sizeof b->failure.last_refused.operation, call->is_send ? "send" : "recv");
    return r;
}

/* The oldest staged message that uses this memory. */
static const struct p2p_op *conflicting(const struct comm_state *b, const struct timeline_range *read, const struct timeline_range *write)
{
    bool meets = timeline_meet(&b->p2p.write, read) || timeline_meet(&b->p2p.write, write) || timeline_meet(&b->p2p.read, write);

    for (uint32_t i = meets ? b->p2p.first : P2P_NONE; i != P2P_NONE; i = b->p2p.ops[i].after) {
        const struct p2p_op *t = &b->p2p.ops[i];
        if (t->call.on_device && (timeline_meet(&t->write, read) || timeline_meet(&t->write, write) || timeline_meet(&t->read, write)))
            return t;
    }
    return NULL;
}

/* The stream could wait for the message, but that needs the host to call CUDA, and CUDA may let no call in while a stream stands. */
enum comm_result p2p_precede_stream(struct comm_state *b, const struct timeline_range *read, const struct timeline_range *write)
{
    struct comm_error *d = &b->failure.last_refused;

    if (BASE_LIKELY(!conflicting(b, read, write)))
        return COMM_OK;
    state_run_queue(b); /* calls just put on the stream must count as started before their end can be reported */
    state_step(b);
    if (b->failed)
        return (enum comm_result)b->failure.cause.result;
    const struct p2p_op *t = conflicting(b, read, write);
    if (!t)
        return COMM_OK;
    *d = (struct comm_error){.size = sizeof *d, .result = COMM_ERR_FULL, .rank = b->team.rank, .peer = t->call.peer};
    base_copy_text(d->cause, sizeof d->cause, "refused at the call");
    base_format(d->text, sizeof d->text, "an unfinished %s of tag %u uses the same memory beside the stream; wait for it, and call again",
                p2p_name(t), t->call.tag);
    return COMM_ERR_FULL;
}
