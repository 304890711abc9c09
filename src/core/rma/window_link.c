/* What both sides of a link share: messages, sizes, memory, and the step of a pass. */
#include "rma/window_link.h"

#include "base/format.h"

enum { SLOT_CODE_BITS = 8 };
_Static_assert(LINK_SHOWN < 1 << SLOT_CODE_BITS, "a slot holds a code");

/* ------------------------------------------------------------------------------------------------------------ pieces */
size_t link_most(const struct one_sided *one)
{
    if (one->kind == ONE_PUT || one->kind == ONE_GET)
        return LINK_PIECE;
    return one->kind == ONE_UPDATE ? LINK_STAGED / one->element : 1;
}

size_t link_takes(const struct one_sided *one, size_t n)
{
    switch (one->kind) {
    case ONE_PUT:
        return n;
    case ONE_UPDATE:
        return one->op == COMM_NOOP ? 0 : n * one->element;
    case ONE_SWAP:
        return 2 * one->element;
    default:
        return 0;
    }
}

size_t link_brings(const struct one_sided *one, size_t n)
{
    if (one->kind == ONE_GET)
        return n;
    return (one->kind == ONE_UPDATE || one->kind == ONE_SWAP) && one->to ? n * one->element : 0;
}

/* ------------------------------------------------------------------------------------------------------------ messages */
enum comm_result link_post(struct comm_state *b, enum message_kind kind, bool is_send, int32_t peer, void *at, size_t bytes, uint32_t code)
{
    return message_post(b->messages, &(struct message_call){.buf = at,
                                                            .bytes = bytes,
                                                            .peer = peer,
                                                            .slot = LINK_SLOT | (uint32_t)peer << SLOT_CODE_BITS | code,
                                                            .is_send = is_send,
                                                            .kind = (uint8_t)kind});
}

void link_no_memory(struct comm_state *b)
{
    if (!b->failed && !b->failure.proposal.result)
        state_propose(b, &(struct cause){.number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = COMM_ERR_MEMORY});
}

bool links_message(struct comm_state *b, const struct message_finished *done)
{
    int32_t peer = (int32_t)((done->slot & (LINK_SLOT - 1)) >> SLOT_CODE_BITS);
    uint32_t code = done->slot & ((1u << SLOT_CODE_BITS) - 1);

    if (!(done->slot & LINK_SLOT))
        return false;
    if (b->failed)
        return true;
    if (done->result == COMM_ERR_TRUNCATED)
        state_peer_is_wrong(b, peer, "more to a window than there may be in one message");
    else if (done->result != COMM_OK)
        state_propose(b, &(struct cause){.number = b->sequence, .rank = b->team.rank, .peer = peer, .result = done->result});
    else if (code <= LINK_HEARD)
        link_ask_done(b, peer, code, done->bytes);
    else
        link_serve_done(b, peer, code, done->bytes);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ life */
bool links_open(struct comm_state *b)
{
    if (!b->rma.links)
        b->rma.links = b->unit.engine->env->take(b->unit.engine->env, (size_t)b->team.size * sizeof *b->rma.links, 64);
    return b->rma.links != NULL;
}

void links_close(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    for (int32_t r = 0; b->rma.links && r < b->team.size; r++) {
        struct window_link *l = &b->rma.links[r];
        env_give_back(env, l->asking, sizeof *l->asking);
        if (l->serves && l->serves->staged)
            env->give(env, l->serves->staged, 2 * LINK_STAGED);
        env_give_back(env, l->serves, sizeof *l->serves);
    }
    env_give_back(env, b->rma.links, (size_t)b->team.size * sizeof *b->rma.links);
    b->rma.links = NULL;
}

/* A link with no work and without a new message costs two loads. */
bool links_step(struct comm_state *b)
{
    bool moved = false;

    if (!message_came(b->messages) && !b->rma.busy)
        return false;
    b->rma.busy = false;
    for (int32_t r = 0; r < b->team.size && !b->failed && !b->failure.proposal.result; r++) {
        if (r == b->team.rank)
            continue;
        moved |= link_hear(b, r);
        moved |= link_ask_waiting(b, r);
        moved |= link_serve(b, r);
    }
    return moved;
}

bool links_rest(const struct comm_state *b, const struct comm_window *w)
{
    for (int32_t r = 0; b->rma.links && !b->failed && r < b->team.size; r++) {
        const struct link_serves *s = b->rma.links[r].serves;
        if (s && s->serving > SERVES_READ && s->doing.window == w)
            return false;
    }
    return true;
}
