/* Messages that end in their call: a send that the wire takes at once, and a receive whose message is there. They need no place in the list
 * of unfinished messages. */
#include "p2p/op.h"

/* A look that comes too early takes the line away from the sender. So a receive looks in its call only if enough receives before it have
 * found their messages at once. After a look in vain twice as many must have, unless several looks before it were not in vain. */
enum { PROMPT_LEAST = 4, PROMPT_MOST = 256, SEVERAL = 8 };

/* May a message with these ranges start at once, next to all that is unfinished? */
static inline bool may_start(const struct comm_state *b, const struct timeline_range *read, const struct timeline_range *write)
{
    return !b->p2p.held && !b->failure.proposal.result && !timeline_meet(read, &b->p2p.write) && !timeline_meet(write, &b->p2p.write) &&
           !timeline_meet(write, &b->p2p.read) && !timeline_holds(&b->line, b->line.next, read, write);
}

/* The next call that uses the slot opens it anew, if nothing came of this one. */
static inline uint64_t open_slot(struct comm_state *b)
{
    return timeline_slot_open(b->unit.handle, b->p2p.whole % P2P_WHOLE);
}

static inline void end_now(struct comm_state *b, const struct message_call *call, uint64_t ticket, size_t bytes, struct comm_request *req)
{
    int64_t now = state_now(b);
    struct record record = {.bytes = call->bytes,
                            .queued_ns = now,
                            .started_ns = now,
                            .algorithm = call->is_send ? "send" : "recv",
                            .waited = (uint16_t)(call->peer + 1)};

    timeline_slot_finish(b->unit.handle, ticket, COMM_OK);
    b->p2p.whole++;
    state_record(b, &record, ticket, now, COMM_OK);
    b->stats.messages++;
    *(call->is_send ? &b->stats.bytes_out : &b->stats.bytes_in) += bytes;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
}

bool p2p_send_whole(struct comm_state *b, const struct message_call *call, struct comm_request *req)
{
    struct timeline_range read = {(uintptr_t)call->buf, (uintptr_t)call->buf + call->bytes}, nothing = {0, 0};

    if (!may_start(b, &read, &nothing) || call->on_device)
        return false;
    uint64_t ticket = open_slot(b);
    if (!ticket || !message_send_whole(b->messages, call))
        return false;
    end_now(b, call, ticket, call->bytes, req);
    return true;
}

static void look_in_vain(struct comm_state *b)
{
    uint32_t needed = b->p2p.needed;

    if (b->p2p.prompt - needed >= SEVERAL)
        b->p2p.needed = PROMPT_LEAST;
    else if (needed < PROMPT_MOST)
        b->p2p.needed = 2 * needed + PROMPT_LEAST;
    b->p2p.prompt = 0;
}

bool p2p_receive_whole(struct comm_state *b, const struct message_call *call, struct comm_request *req)
{
    struct timeline_range write = {(uintptr_t)call->buf, (uintptr_t)call->buf + call->bytes}, nothing = {0, 0};
    struct wire_event message;

    if (b->p2p.prompt < b->p2p.needed || call->peer < 0 || call->peer == b->team.rank || !b->wire->next || !may_start(b, &nothing, &write))
        return false;
    bool there = b->wire->next(b->channel, (uint32_t)call->peer, &message) && !heard_message_fault(&message);
    uint64_t ticket = there ? open_slot(b) : 0;
    if (!ticket || !message_receive_whole(b->messages, call, &message)) {
        look_in_vain(b);
        return false;
    }
    b->p2p.prompt++;
    end_now(b, call, ticket, message.bytes, req);
    if (p2p_looks_around(b) && !state_idle(b))
        (void)state_step(b);
    return true;
}
