/*
 * The owner's side of a link. Executes the peers' requests for this rank's parts, one after the other. It uses the same functions as this
 * rank's own calls, so all updates of one location use the same atomics.
 */
#include "rma/window_link.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ reading requests */
static struct comm_window *find_window(const struct comm_state *b, uint64_t number)
{
    struct comm_window *w = b->rma.windows;

    while (w && w->number != number)
        w = w->next;
    return w;
}

static bool sound_update(const struct link_ask *a)
{
    const char *why;

    if (a->op == COMM_REPLACE || a->op == COMM_NOOP)
        return true;
    return !(a->op & OPERATOR_USER) && a->op != COMM_AVG && data_check((enum comm_type)a->type, a->op, &why) == COMM_OK;
}

/* The size of an element; 0: the request is invalid. */
static size_t element_of(const struct link_ask *a)
{
    enum comm_type type = (enum comm_type)a->type;

    switch (a->kind) {
    case ONE_PUT:
    case ONE_GET:
    case ONE_SIGNAL:
        return 1;
    case ONE_UPDATE:
        return sound_update(a) ? data_type_bytes(type) : 0;
    case ONE_SWAP:
        return type == COMM_BYTE || (type >= COMM_I8 && type <= COMM_U64) ? data_type_bytes(type) : 0;
    default:
        return 0;
    }
}

/* Validates everything that the peer sent, before an address is computed from it. */
static bool sound(const struct comm_window *w, const struct window_part *part, const struct link_ask *a, size_t beside,
                  struct one_sided *one)
{
    *one = (struct one_sided){.kind = (uint8_t)a->kind, .element = element_of(a), .op = a->op, .type = (enum comm_type)a->type};
    if (a->kind > ONE_SIGNAL || !one->element || !w->apart)
        return false;
    if (a->kind == ONE_SIGNAL)
        return a->slot < part->signals && beside == 0;
    if (!a->n || a->n > link_most(one) || a->offset > part->bytes || a->n * one->element > part->bytes - a->offset)
        return false;
    size_t takes = link_takes(one, a->n);
    return beside == (takes <= LINK_INLINE ? takes : 0);
}

static bool need_stage(struct comm_state *b, struct link_serves *s)
{
    if (!s->staged)
        s->staged = b->unit.engine->env->take(b->unit.engine->env, (size_t)2 * LINK_STAGED, 64);
    if (!s->staged)
        link_no_memory(b);
    return s->staged != NULL;
}

/* Sets where the data of the request are, and where the old values go: next to the request, in the stage, or in the window itself. */
static bool place(struct comm_state *b, struct link_serves *s, char *there)
{
    struct one_sided *one = &s->doing;
    bool moves = one->kind == ONE_PUT || one->kind == ONE_GET;

    if (!moves && (s->takes > LINK_INLINE || s->brings > LINK_INLINE) && !need_stage(b, s))
        return false;
    one->from = s->takes > LINK_INLINE ? s->staged : s->in.data;
    if (one->kind == ONE_SWAP) {
        memcpy(&one->expected_value, s->in.data, one->element);
        memcpy(&one->desired_value, s->in.data + one->element, one->element);
    }
    if (one->kind == ONE_GET)
        s->show = there;
    else if (s->brings)
        s->show = one->to = s->brings > LINK_INLINE ? s->staged + LINK_STAGED : s->old;
    return true;
}

static bool read_ask(struct comm_state *b, int32_t peer, struct link_serves *s)
{
    const struct link_ask *a = &s->in.head.ask;
    struct comm_window *w = s->came >= sizeof s->in.head ? find_window(b, a->window) : NULL;
    const struct window_part *part = w ? &w->part[b->team.rank] : NULL;
    struct one_sided *one = &s->doing;

    if (w && w->making) { /* the peer has the window already, this rank does not yet */
        b->rma.busy = true;
        return false;
    }
    if (!w || !sound(w, part, a, s->came - sizeof s->in.head, one)) {
        state_peer_is_wrong(b, peer, "an ask that no call on a window makes");
        return false;
    }
    one->window = w;
    one->peer = b->team.rank;
    one->n = a->n;
    one->offset = a->offset;
    one->slot = a->slot;
    one->amount = a->amount;
    s->takes = link_takes(one, one->n);
    one->to = a->wants_old || a->kind != ONE_UPDATE ? s->old : NULL; /* only so that link_brings counts it; place() sets the address */
    s->brings = link_brings(one, one->n);
    if (!place(b, s, part->at + one->offset))
        return false;
    s->serving = s->takes > LINK_INLINE ? SERVES_MORE : SERVES_DOING;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ execution */
static bool take(struct comm_state *b, int32_t peer, struct link_serves *s)
{
    bool head = s->serving == SERVES_NOTHING;
    void *land = &s->in;
    size_t bytes;

    if (!message_came_from(b->messages, MESSAGE_ASK, peer, &bytes))
        return false;
    if (head ? bytes > sizeof s->in : bytes != s->takes) {
        state_peer_is_wrong(b, peer, "an ask of another length than any call on a window makes");
        return false;
    }
    if (!head && s->doing.kind == ONE_PUT)
        land = s->doing.window->part[b->team.rank].at + s->doing.offset;
    else if (!head)
        land = s->staged;
    if (link_post(b, MESSAGE_ASK, false, peer, land, bytes, LINK_ASKED) != COMM_OK) {
        link_no_memory(b);
        return false;
    }
    s->serving = head ? SERVES_HEAD : SERVES_LANDING;
    p2p_take_finished(b);
    return true;
}

static void finished(struct link_serves *s)
{
    s->done++;
    s->serving = s->brings ? SERVES_DONE : SERVES_NOTHING;
}

static void do_it(struct comm_state *b, struct link_serves *s)
{
    if (s->doing.kind == ONE_GET || one_sided_step(b, &s->doing) == COMM_OK)
        finished(s);
    else
        b->rma.busy = true;
}

static bool tell(struct comm_state *b, int32_t peer, struct link_serves *s, size_t brings)
{
    bool more = brings > LINK_INLINE;

    s->out.head.answer = (struct link_answer){.done = s->done, .bytes = brings};
    if (brings && !more)
        memcpy(s->out.data, s->show, brings);
    s->telling = true;
    s->reported = s->done;
    enum comm_result r = link_post(b, MESSAGE_ANSWER, true, peer, &s->out, sizeof s->out.head + (more ? 0 : brings), LINK_TOLD);
    if (r == COMM_OK && more)
        r = link_post(b, MESSAGE_ANSWER, true, peer, (char *)(uintptr_t)s->show, brings, LINK_SHOWN);
    if (brings)
        s->serving = more ? SERVES_SHOWING : SERVES_NOTHING;
    if (r != COMM_OK)
        link_no_memory(b);
    p2p_take_finished(b);
    return r == COMM_OK;
}

static bool serve_more(struct comm_state *b, int32_t peer, struct link_serves *s)
{
    switch (s->serving) {
    case SERVES_NOTHING:
    case SERVES_MORE:
        return take(b, peer, s);
    case SERVES_READ:
        return read_ask(b, peer, s);
    case SERVES_DOING:
        do_it(b, s);
        return true;
    case SERVES_DONE:
        return !s->telling && tell(b, peer, s, s->brings);
    default:
        return false; /* a message is in flight */
    }
}

/* Answers without data are combined into one. It is sent when no more requests are waiting, and before the peer runs out of room. */
static bool is_due(const struct comm_state *b, int32_t peer, const struct link_serves *s)
{
    size_t bytes;

    if (s->telling || s->done == s->reported || s->serving == SERVES_DONE)
        return false;
    return s->done - s->reported >= LINK_DEPTH / 2 || !message_came_from(b->messages, MESSAGE_ASK, peer, &bytes);
}

static struct link_serves *serves_of(struct comm_state *b, int32_t peer)
{
    struct window_link *l = &b->rma.links[peer];
    size_t bytes;

    if (l->serves || !message_came_from(b->messages, MESSAGE_ASK, peer, &bytes))
        return l->serves;
    l->serves = b->unit.engine->env->take(b->unit.engine->env, sizeof *l->serves, 64);
    if (!l->serves)
        link_no_memory(b);
    return l->serves;
}

bool link_serve(struct comm_state *b, int32_t peer)
{
    struct link_serves *s = serves_of(b, peer);
    bool moved = false;

    if (!s)
        return false;
    for (int turn = 0; turn < 4 * LINK_ASKS_A_TURN && !b->failed && !b->failure.proposal.result && serve_more(b, peer, s); turn++)
        moved = true;
    if (!b->failed && !b->failure.proposal.result && is_due(b, peer, s))
        moved |= tell(b, peer, s, 0);
    return moved;
}

void link_serve_done(struct comm_state *b, int32_t peer, uint32_t code, size_t bytes)
{
    struct link_serves *s = b->rma.links[peer].serves;

    b->rma.busy = true;
    if (code == LINK_TOLD || code == LINK_SHOWN) {
        s->telling &= code != LINK_TOLD;
        s->serving = code == LINK_SHOWN ? SERVES_NOTHING : s->serving;
        return;
    }
    s->came = bytes;
    if (s->serving == SERVES_HEAD)
        s->serving = SERVES_READ;
    else if (s->doing.kind == ONE_PUT)
        finished(s);
    else
        s->serving = SERVES_DOING;
}
