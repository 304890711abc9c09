/* The caller's side of a link: cuts calls into pieces, requests the pieces in order, and receives the answers in the same order. */
#include "rma/window_link.h"

#include <string.h>

static struct link_asking *asking_of(const struct comm_state *b, int32_t peer)
{
    return b->rma.links[peer].asking;
}

enum comm_result link_ready(struct comm_state *b, int32_t peer)
{
    struct window_link *l = &b->rma.links[peer];

    if (l->asking)
        return COMM_OK;
    l->asking = b->unit.engine->env->take(b->unit.engine->env, sizeof *l->asking, 64);
    if (!l->asking)
        return COMM_ERR_MEMORY;
    l->asking->first = l->asking->last = P2P_NONE;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ turns */
void link_stand(struct comm_state *b, uint32_t op)
{
    struct one_sided *one = &b->p2p.ops[op].one;
    struct window_part *part = &one->window->part[one->peer];

    one->behind = P2P_NONE;
    if (part->last != P2P_NONE)
        b->p2p.ops[part->last].one.behind = op;
    else
        part->first = op;
    part->last = op;
}

bool link_in_turn(const struct comm_state *b, uint32_t op)
{
    const struct one_sided *one = &b->p2p.ops[op].one;

    return one->window->part[one->peer].first == op;
}

static void leave_turn(const struct one_sided *one)
{
    struct window_part *part = &one->window->part[one->peer];

    part->first = one->behind;
    if (part->first == P2P_NONE)
        part->last = P2P_NONE;
}

/* ------------------------------------------------------------------------------------------------------------ requests */
static size_t elements(const struct one_sided *one)
{
    return one->kind == ONE_SIGNAL ? 1 : one->n;
}

/* The next free slot for a request, or NULL. A slot is free when its last request was answered and the wire no longer reads it. */
static struct link_order *free_order(struct link_asking *a)
{
    struct link_order *o = &a->order[(a->issued + 1) % LINK_DEPTH];

    return o->open ? NULL : o;
}

static void fill_data(const struct one_sided *one, struct link_order *o, size_t bytes)
{
    if (one->kind == ONE_SWAP) {
        memcpy(o->parcel.data, &one->expected_value, one->element);
        memcpy(o->parcel.data + one->element, &one->desired_value, one->element);
    } else if (bytes) {
        memcpy(o->parcel.data, (const char *)one->from + o->at * one->element, bytes);
    }
}

/* False: there was no memory, and the communicator fails. */
static bool send_order(struct comm_state *b, const struct one_sided *one, struct link_order *o, uint32_t code)
{
    size_t takes = link_takes(one, o->n);
    bool more = takes > LINK_INLINE;
    void *rest = more ? (char *)(uintptr_t)one->from + o->at * one->element : NULL;

    if (!more)
        fill_data(one, o, takes);
    o->unsent = 1;
    if (link_post(b, MESSAGE_ASK, true, one->peer, &o->parcel, sizeof o->parcel.head + (more ? 0 : takes), code) != COMM_OK) {
        link_no_memory(b);
        return false;
    }
    o->unsent += more;
    if (more && link_post(b, MESSAGE_ASK, true, one->peer, rest, takes, code) != COMM_OK) {
        link_no_memory(b);
        return false;
    }
    return true;
}

static bool ask_piece(struct comm_state *b, uint32_t op)
{
    struct p2p_op *t = &b->p2p.ops[op];
    struct one_sided *one = &t->one;
    struct link_asking *a = asking_of(b, one->peer);
    struct link_order *o = free_order(a);
    size_t left = elements(one) - one->asked, most = link_most(one);

    if (!o)
        return false;
    a->issued++;
    o->ticket = t->ticket;
    o->op = op;
    o->at = one->asked;
    o->n = left < most ? left : most;
    o->brings = link_brings(one, o->n);
    o->answered = false;
    o->open = true;
    o->parcel.head.ask = (struct link_ask){.window = one->window->number,
                                           .offset = one->offset + o->at * one->element,
                                           .n = o->n,
                                           .amount = one->amount,
                                           .kind = one->kind,
                                           .type = (uint32_t)one->type,
                                           .op = one->op,
                                           .slot = one->slot,
                                           .wants_old = one->kind == ONE_UPDATE && one->to};
    one->asked += o->n;
    return send_order(b, one, o, LINK_SENT_ORDER + (uint32_t)(o - a->order));
}

/* Requests as many pieces as there is room for. True: all are requested. */
static bool ask_rest(struct comm_state *b, uint32_t op)
{
    const struct one_sided *one = &b->p2p.ops[op].one;

    while (one->asked < elements(one) && !b->failed && !b->failure.proposal.result && ask_piece(b, op))
        ;
    return one->asked == elements(one);
}

static void wait_for_room(struct comm_state *b, uint32_t op)
{
    struct one_sided *one = &b->p2p.ops[op].one;
    struct link_asking *a = asking_of(b, one->peer);

    one->waits = P2P_NONE;
    if (a->last != P2P_NONE)
        b->p2p.ops[a->last].one.waits = op;
    else
        a->first = op;
    a->last = op;
}

/* Requests this call. When it is completely requested, continues with the calls behind it to that part, if they may run and there is
 * room. */
void link_ask(struct comm_state *b, uint32_t op)
{
    do {
        if (!ask_rest(b, op)) {
            wait_for_room(b, op);
            return;
        }
        leave_turn(&b->p2p.ops[op].one);
        op = b->p2p.ops[op].one.behind;
    } while (op != P2P_NONE && p2p_may_ask(b, op));
}

bool link_ask_waiting(struct comm_state *b, int32_t peer)
{
    struct link_asking *a = asking_of(b, peer);
    uint64_t before = a ? a->issued : 0;

    while (a && a->first != P2P_NONE && ask_rest(b, a->first)) {
        uint32_t op = a->first;
        a->first = b->p2p.ops[op].one.waits;
        if (a->first == P2P_NONE)
            a->last = P2P_NONE;
        link_ask(b, op);
    }
    return a && a->issued != before;
}

/* ------------------------------------------------------------------------------------------------------------ answers */
/* Ends a request when it is answered and the wire no longer reads the caller's data. */
static void close_order(struct comm_state *b, struct link_order *o)
{
    if (!o->answered || o->unsent)
        return;
    struct p2p_op *t = &b->p2p.ops[o->op];
    o->open = false;
    if (t->ticket != o->ticket || !t->one.kind)
        return;
    t->one.done += o->n;
    if (t->one.done == elements(&t->one))
        p2p_end(b, t, COMM_OK);
}

static void answer_order(struct comm_state *b, struct link_asking *a)
{
    struct link_order *o = &a->order[++a->answered % LINK_DEPTH];

    o->answered = true;
    close_order(b, o);
}

static char *lands_at(const struct comm_state *b, const struct link_order *o)
{
    const struct one_sided *one = &b->p2p.ops[o->op].one;

    return (char *)one->to + o->at * one->element;
}

/* An answer may cover several requests. Only the last of them may return data. */
static bool sound(const struct link_asking *a, const struct link_answer *answer)
{
    if (answer->done <= a->answered || answer->done > a->issued)
        return false;
    for (uint64_t i = a->answered + 1; i < answer->done; i++)
        if (a->order[i % LINK_DEPTH].brings)
            return false;
    size_t brings = a->order[answer->done % LINK_DEPTH].brings, beside = a->came - sizeof(union link_head);

    return answer->bytes == brings && beside == (brings <= LINK_INLINE ? brings : 0);
}

static void read_answer(struct comm_state *b, int32_t peer, struct link_asking *a)
{
    const struct link_answer *answer = &a->in.head.answer;

    if (a->came < sizeof a->in.head || !sound(a, answer)) {
        state_peer_is_wrong(b, peer, "an answer to what was not asked of its window");
        return;
    }
    while (a->answered + 1 < answer->done)
        answer_order(b, a);
    const struct link_order *o = &a->order[answer->done % LINK_DEPTH];
    if (o->brings > LINK_INLINE) {
        a->hearing = HEARS_MORE;
        return;
    }
    if (o->brings)
        memcpy(lands_at(b, o), a->in.data, o->brings);
    a->hearing = HEARS_NOTHING;
    answer_order(b, a);
}

/* Takes a message, if there is one. */
static bool take(struct comm_state *b, int32_t peer, struct link_asking *a)
{
    const struct link_order *o = &a->order[(a->answered + 1) % LINK_DEPTH];
    bool head = a->hearing == HEARS_NOTHING;
    size_t bytes;

    if (!message_came_from(b->messages, MESSAGE_ANSWER, peer, &bytes))
        return false;
    if (head ? bytes > sizeof a->in : bytes != o->brings) {
        state_peer_is_wrong(b, peer, "an answer of another length than what was asked of its window");
        return false;
    }
    void *land = head ? (void *)&a->in : lands_at(b, o);
    if (link_post(b, MESSAGE_ANSWER, false, peer, land, bytes, LINK_HEARD) != COMM_OK) {
        link_no_memory(b);
        return false;
    }
    a->hearing = head ? HEARS_HEAD : HEARS_LANDING;
    p2p_take_finished(b);
    return true;
}

bool link_hear(struct comm_state *b, int32_t peer)
{
    struct link_asking *a = b->rma.links[peer].asking;
    bool moved = false;
    size_t bytes;

    if (!a) {
        if (message_came_from(b->messages, MESSAGE_ANSWER, peer, &bytes))
            state_peer_is_wrong(b, peer, "an answer to what was not asked of its window");
        return false;
    }
    while (!b->failed && !b->failure.proposal.result) {
        if (a->hearing == HEARS_READ)
            read_answer(b, peer, a);
        else if (a->hearing == HEARS_HEAD || a->hearing == HEARS_LANDING || !take(b, peer, a))
            break;
        moved = true;
    }
    return moved;
}

void link_ask_done(struct comm_state *b, int32_t peer, uint32_t code, size_t bytes)
{
    struct link_asking *a = asking_of(b, peer);

    if (code < LINK_HEARD) {
        struct link_order *o = &a->order[code - LINK_SENT_ORDER];
        o->unsent--;
        close_order(b, o);
        return;
    }
    b->rma.busy = true;
    a->came = bytes;
    if (a->hearing == HEARS_HEAD) {
        a->hearing = HEARS_READ;
        return;
    }
    a->hearing = HEARS_NOTHING;
    answer_order(b, a);
}
