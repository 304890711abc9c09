/*
 * comm_subset: its members alone create a communicator, while the other ranks continue and notice nothing. So it is not an operation of the
 * parent's queue, which all ranks share, but a request of the message line. The members communicate with setup messages, which are messages
 * of the library itself, from each member to each, in three rounds:
 *
 *   hello    how many subsets each member has begun; the largest value is the number of this subset, equal and new on all
 *   offers   as in a split; then each member connects
 *   ready    whether every member could connect: all succeed, or all end with the same error
 *
 * A setup message belongs to the subset with its list and tag, and from the second round on also with its number. Several subsets with the
 * same list and tag are matched in the order of their calls, because setup messages between two ranks stay in that order.
 */
#include "world/communicators.h"
#include "world/create.h"
#include "world/part_table.h"

#include "base/format.h"
#include "base/hash.h"
#include "fastpath/wait.h"
#include "p2p/op.h"

#include <string.h>

enum { ROUND_HELLO, ROUND_OFFERS, ROUND_READY };

struct setup_text {
    uint64_t key, number;
    int32_t round, ready;
    struct team_ticket ticket;
};
struct setup_message {
    struct setup_message *next;
    uint32_t slot;
    int32_t peer;
    bool is_send, arrived;
    enum comm_result result;
    struct setup_text text;
};
struct subset {
    struct subset *next;
    struct creation *making;
    uint64_t key, most; /* most: the largest number received in the first round */
    uint32_t op;
    int32_t count, round;
    int32_t sent, heard; /* in this round: sent to this many members, in order; received from this many others */
    bool joining;
    bool heard_from[];
};

static size_t subset_bytes(int32_t count)
{
    return sizeof(struct subset) + (size_t)count * sizeof(bool);
}

static void count_joining(struct comm_state *b, struct subset *s, bool joining)
{
    if (s->joining != joining)
        state_count_joining(b, joining ? 1 : -1);
    s->joining = joining;
}

static void drop_subset(struct comm_state *b, struct subset *s)
{
    struct subset **at = &b->setup.subsets;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (!b->failed) /* a failure has already ended all joining */
        count_joining(b, s, false);
    creation_drop(s->making);
    b->unit.engine->env->give(b->unit.engine->env, s, subset_bytes(s->count));
}

/* ------------------------------------------------------------------------------------------------------------ setup messages */
static struct setup_message *take_setup_message(struct comm_state *b, int32_t peer, bool is_send)
{
    const struct comm_env *env = b->unit.engine->env;
    struct setup_message *made = env->take(env, sizeof *made, _Alignof(struct setup_message)), **at = &b->setup.messages;

    if (!made)
        return NULL;
    *made = (struct setup_message){.slot = P2P_SETUP | b->setup.slots++, .peer = peer, .is_send = is_send};
    b->setup.sending += is_send;
    while (*at)
        at = &(*at)->next;
    return *at = made;
}

static void drop_setup_message(struct comm_state *b, struct setup_message *setup_message)
{
    struct setup_message **at = &b->setup.messages;

    while (*at != setup_message)
        at = &(*at)->next;
    *at = setup_message->next;
    b->setup.sending -= setup_message->is_send && !setup_message->arrived;
    b->unit.engine->env->give(b->unit.engine->env, setup_message, sizeof *setup_message);
}

static enum comm_result post_setup_message(struct comm_state *b, struct setup_message *setup_message)
{
    struct message_call call = {.buf = &setup_message->text,
                                .bytes = sizeof setup_message->text,
                                .peer = setup_message->peer,
                                .slot = setup_message->slot,
                                .is_send = setup_message->is_send,
                                .kind = MESSAGE_SETUP};
    enum comm_result r = message_post(b->messages, &call);

    if (r != COMM_OK)
        drop_setup_message(b, setup_message);
    return r;
}

static bool setup_done(struct comm_state *b, const struct message_finished *done)
{
    struct setup_message *setup_message = b->setup.messages;
    bool whole = done->result == COMM_OK && done->bytes == sizeof setup_message->text;

    if (!(done->slot & P2P_SETUP))
        return false;
    while (setup_message->slot != done->slot)
        setup_message = setup_message->next;
    setup_message->peer = done->peer;
    setup_message->arrived = true;
    b->setup.sending -= setup_message->is_send;
    if (!whole) /* all setup messages have the same length */
        setup_message->result = done->result == COMM_OK || done->result == COMM_ERR_TRUNCATED ? COMM_ERR_CORRUPT : done->result;
    if (setup_message->is_send && whole)
        drop_setup_message(b, setup_message);
    return true;
}

static bool take_setup_messages(struct comm_state *b)
{
    bool moved = false;

    while (message_setup(b->messages)) {
        struct setup_message *setup_message = take_setup_message(b, COMM_ANY_PEER, false);
        if (!setup_message || post_setup_message(b, setup_message) != COMM_OK)
            break; /* no memory: try again later */
        moved = true;
    }
    return moved;
}

/* Sends the message of this round to the members that have not got it yet. */
static bool send_setup_messages(struct comm_state *b, struct subset *s)
{
    struct creation *n = s->making;

    for (; s->sent < s->count; s->sent++) {
        int32_t peer = n->members[s->sent];
        if (peer == b->team.rank)
            continue;
        struct setup_message *setup_message = take_setup_message(b, peer, true);
        if (!setup_message)
            return false;
        setup_message->text =
            (struct setup_text){.key = s->key, .number = n->number, .round = s->round, .ready = n->ready, .ticket = n->mine[1]};
        if (post_setup_message(b, setup_message) != COMM_OK)
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ rounds */
static int32_t place_of(const struct subset *s, int32_t rank)
{
    int32_t i = 0;

    while (i < s->count && s->making->members[i] != rank)
        i++;
    return i;
}

static bool belongs(const struct subset *s, const struct setup_message *setup_message)
{
    const struct setup_text *text = &setup_message->text;
    int32_t place = place_of(s, setup_message->peer);

    if (s->key != text->key || s->round != text->round || place == s->count || s->heard_from[place])
        return false;
    return s->round == ROUND_HELLO || s->making->number == text->number;
}

static void hear(struct subset *s, const struct setup_message *setup_message)
{
    const struct setup_text *text = &setup_message->text;
    struct creation *n = s->making;

    s->heard_from[place_of(s, setup_message->peer)] = true;
    s->heard++;
    if (s->round == ROUND_HELLO)
        s->most = text->number > s->most ? text->number : s->most;
    else if (s->round == ROUND_OFFERS)
        n->all[1][setup_message->peer] = text->ticket;
    else
        n->all_ready[setup_message->peer] = text->ready;
}

/* Reads setup messages in the order of arrival. One that is still in flight holds back later ones, which may be of the same pair of
 * ranks. */
static bool read_setup_messages(struct comm_state *b)
{
    bool moved = false;

    for (struct setup_message *setup_message = b->setup.messages, *next;
         setup_message && (setup_message->arrived || setup_message->is_send); setup_message = next) {
        struct subset *s = setup_message->is_send ? NULL : b->setup.subsets;
        next = setup_message->next;
        if (setup_message->result != COMM_OK) { /* no member can go on without it */
            bool theirs = setup_message->result == COMM_ERR_CORRUPT;
            state_propose(b, &(struct cause){.number = b->sequence,
                                             .rank = theirs ? setup_message->peer : b->team.rank,
                                             .peer = theirs ? b->team.rank : setup_message->peer,
                                             .result = setup_message->result});
            return true;
        }
        while (s && !belongs(s, setup_message))
            s = s->next;
        if (!s)
            continue;
        hear(s, setup_message);
        drop_setup_message(b, setup_message);
        moved = true;
    }
    return moved;
}

static void next_round(struct subset *s)
{
    s->round++;
    s->sent = s->heard = 0;
    memset(s->heard_from, 0, (size_t)s->count * sizeof(bool));
}

/* Ends a round after this rank has sent to all members and heard from all. False: call again. */
static bool end_round(struct comm_state *b, struct subset *s)
{
    struct creation *n = s->making;

    if (s->round == ROUND_HELLO) {
        n->number = s->most;
        b->setup.begun = s->most > b->setup.begun ? s->most : b->setup.begun;
        creation_offer(b, n, s->count);
        n->all[1][b->team.rank] = n->mine[1];
    } else if (s->round == ROUND_OFFERS) {
        bool pending = creation_connect(n) == COMM_PENDING;
        count_joining(b, s, pending);
        if (pending)
            return false;
        n->all_ready[b->team.rank] = n->ready;
    } else {
        n->result = creation_agreed(n);
        if (n->result == COMM_OK)
            creation_hand_over(n);
        p2p_end(b, &b->p2p.ops[s->op], n->result);
        drop_subset(b, s);
        return true;
    }
    next_round(s);
    return true;
}

static bool turn(struct comm_state *b)
{
    enum comm_result refused = message_refused(b->messages);

    if (refused != COMM_OK && !b->failed) { /* a setup message may be lost, and no more can be sent: no member can go on */
        state_propose(b, &(struct cause){.number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = refused});
        return false;
    }
    bool moved = take_setup_messages(b) && p2p_take_finished(b);

    moved |= read_setup_messages(b);
    if (b->failed || b->failure.proposal.result) /* another rank may have to choose the cause; until then no more setup messages are sent */
        return false;
    for (struct subset *s = b->setup.subsets, *next; s && !b->failed; s = next) {
        next = s->next;
        if (send_setup_messages(b, s) && s->heard == s->count - 1)
            moved |= end_round(b, s);
    }
    return moved && !b->failed;
}

static bool step(struct comm_state *b)
{
    bool moved = false;

    while (!b->failed && b->setup.subsets && turn(b))
        moved = true;
    return moved;
}

/* ------------------------------------------------------------------------------------------------------------ members that do not come */
/* True if a message of that member has arrived or may be in flight; it will be read in its turn. */
static bool setup_comes(const struct comm_state *b, const struct subset *s, int32_t rank)
{
    if (message_setup(b->messages)) /* not taken yet, because there was no memory */
        return true;
    for (const struct setup_message *setup_message = b->setup.messages; setup_message; setup_message = setup_message->next)
        if (!setup_message->is_send && (!setup_message->arrived || (setup_message->peer == rank && belongs(s, setup_message))))
            return true;
    return false;
}

/* Finds a subset with a member that has closed, or that it has waited for too long. */
static const struct subset *awaits_gone(const struct comm_state *b, int64_t now, int32_t *rank)
{
    for (const struct subset *s = b->setup.subsets; s; s = s->next) {
        bool late = now - b->p2p.ops[s->op].queued_ns >= b->timeout_ns;
        for (int32_t i = 0; i < s->count; i++) {
            *rank = s->making->members[i];
            if (*rank == b->team.rank || s->heard_from[i])
                continue;
            if (late || (state_has_left(b, *rank) && !setup_comes(b, s, *rank)))
                return s;
        }
    }
    return NULL;
}

/* Other members may be further and may use the child already, so the parent fails, as in a split. But it fails only if a step finds nothing
 * more, because the missing member may have closed after it had sent everything. */
static void check(struct comm_state *b, int64_t now)
{
    int32_t rank;

    if (!b->setup.subsets || b->failed || b->failure.proposal.result || !awaits_gone(b, now, &rank))
        return;
    if (state_step(b) || b->failed || !awaits_gone(b, now, &rank))
        return;
    bool closed = b->failure.closed_at[rank] != 0;
    state_propose(b, &(struct cause){.number = b->sequence,
                                     .rank = closed ? rank : b->team.rank,
                                     .peer = closed ? b->team.rank : rank,
                                     .result = closed ? COMM_ERR_CLOSED : COMM_ERR_TIMEOUT,
                                     .code = closed ? (int32_t)(b->failure.closed_at[rank] - 1) : 0});
}

static void end_all(struct comm_state *b, enum comm_result result)
{
    (void)result;
    while (b->setup.subsets) {
        creation_fail(b, b->setup.subsets->making);
        drop_subset(b, b->setup.subsets);
    }
}

static void leave(struct comm_state *b)
{
    while (b->setup.subsets)
        drop_subset(b, b->setup.subsets);
    while (b->setup.messages)
        drop_setup_message(b, b->setup.messages);
}

/* ------------------------------------------------------------------------------------------------------------ the call */
static struct subset *make_subset(struct comm_state *b, const int32_t *ranks, int32_t count, uint32_t tag, struct comm_communicator **out)
{
    const struct comm_env *env = b->unit.engine->env;
    struct subset *s = env->take(env, subset_bytes(count), _Alignof(struct subset)), **at = &b->setup.subsets;
    struct creation *n = s ? creation_make(b, out) : NULL;

    if (!n) {
        env_give_back(env, s, subset_bytes(count));
        return NULL;
    }
    s->making = n;
    s->count = count;
    s->key = base_hash(base_hash(0, tag), (uint64_t)count);
    for (int32_t i = 0; i < count; i++) {
        n->members[i] = ranks[i];
        s->key = base_hash(s->key, (uint64_t)ranks[i]);
    }
    n->identity = s->key | UINT64_C(1) << 63; /* differs from the color of a split, and from a dup */
    char own[24];
    base_format(own, sizeof own, "subset.%u", tag);
    creation_name(n, b->name, own);
    while (*at)
        at = &(*at)->next;
    *at = s;
    return s;
}

static enum comm_result begin(struct comm_state *b, const int32_t *ranks, int32_t count, uint32_t tag, struct comm_communicator **out,
                              struct comm_request *req)
{
    struct subset *s = b->recording.plan || b->failed ? NULL : make_subset(b, ranks, count, tag, out);

    if (b->recording.plan)
        return COMM_ERR_STATE;
    if (!s)
        return b->failed ? (enum comm_result)b->failure.cause.result : COMM_ERR_MEMORY;
    enum comm_result r = p2p_begin(b, &s->op, req);
    if (r != COMM_OK) {
        drop_subset(b, s);
        return r;
    }
    s->making->number = s->most = ++b->setup.begun;
    state_activate(b);
    return COMM_OK;
}

enum comm_result engine_subset(struct comm_communicator *c, const int32_t *ranks, int32_t count, uint32_t tag,
                               struct comm_communicator **out, struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct comm_state *b = state_lock(c, &r);

    if (b) {
        r = begin(b, ranks, count, tag, out, &own);
        if (!b->recording.plan)
            state_settle(b);
        state_unlock(b);
    }
    return engine_answer(r, own, req);
}

const struct comm_part subset_part = {
    .name = "subset", .leave = leave, .message = setup_done, .step_beside = step, .check = check, .ended = end_all};
