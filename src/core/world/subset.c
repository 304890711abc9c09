/*
 * comm_subset: a communicator made by its members alone, while the other ranks go on and notice nothing. So it is no operation of the
 * parent's queue, which all ranks would share, but a request of the message line, and its members meet by letters: messages of the
 * library's own, each to each, in three rounds.
 *
 *   hello    how many subsets each has begun: the most of these is the number of this one, the same on all and new on all
 *   offers   as in a split; then each connects
 *   ready    whether everybody could: all succeed, or all end with the same error
 *
 * A letter belongs to the subset of its list and tag, and from the second round on of its number. Several of the same list and tag are
 * met in the order of their calls, which is that of the letters between any two.
 */
#include "world/communicators.h"
#include "world/create.h"
#include "world/parts.h"

#include "base/format.h"
#include "base/hash.h"
#include "fastpath/wait.h"
#include "p2p/talk.h"

#include <string.h>

enum { ROUND_HELLO, ROUND_OFFERS, ROUND_READY };

struct letter_text {
    uint64_t key, number;
    int32_t round, ready;
    struct team_ticket ticket;
};
struct letter {
    struct letter *next;
    uint32_t slot;
    int32_t peer;
    bool is_send, arrived;
    enum comm_result result;
    struct letter_text text;
};
struct subset {
    struct subset *next;
    struct creation *making;
    uint64_t key, most; /* most: the greatest number heard of in the first round */
    uint32_t talk;
    int32_t count, round;
    int32_t sent, heard; /* in this round: to so many of the members, in their order; from so many others */
    bool joining;
    bool heard_from[];
};

static size_t subset_bytes(int32_t count)
{
    return sizeof(struct subset) + (size_t)count * sizeof(bool);
}

static void count_joining(struct body *b, struct subset *s, bool joining)
{
    if (s->joining != joining)
        body_count_joining(b, joining ? 1 : -1);
    s->joining = joining;
}

static void drop_subset(struct body *b, struct subset *s)
{
    struct subset **at = &b->subsets;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (!b->failed) /* a failure has ended all joining */
        count_joining(b, s, false);
    creation_drop(s->making);
    b->unit.engine->env->give(b->unit.engine->env, s, subset_bytes(s->count));
}

/* ------------------------------------------------------------------------------------------------------------ letters */
static struct letter *take_letter(struct body *b, int32_t peer, bool is_send)
{
    const struct comm_env *env = b->unit.engine->env;
    struct letter *made = env->take(env, sizeof *made, _Alignof(struct letter)), **at = &b->letters;

    if (!made)
        return NULL;
    *made = (struct letter){.slot = TALK_LETTER | b->letter_slots++, .peer = peer, .is_send = is_send};
    b->letters_sending += is_send;
    while (*at)
        at = &(*at)->next;
    return *at = made;
}

static void drop_letter(struct body *b, struct letter *letter)
{
    struct letter **at = &b->letters;

    while (*at != letter)
        at = &(*at)->next;
    *at = letter->next;
    b->letters_sending -= letter->is_send && !letter->arrived;
    b->unit.engine->env->give(b->unit.engine->env, letter, sizeof *letter);
}

static enum comm_result post_letter(struct body *b, struct letter *letter)
{
    struct message_call call = {.buf = &letter->text,
                                .bytes = sizeof letter->text,
                                .peer = letter->peer,
                                .slot = letter->slot,
                                .is_send = letter->is_send,
                                .kind = MESSAGE_LETTER};
    enum comm_result r = message_post(b->messages, &call);

    if (r != COMM_OK)
        drop_letter(b, letter);
    return r;
}

static bool letter_done(struct body *b, const struct message_finished *done)
{
    struct letter *letter = b->letters;
    bool whole = done->result == COMM_OK && done->bytes == sizeof letter->text;

    if (!(done->slot & TALK_LETTER))
        return false;
    while (letter->slot != done->slot)
        letter = letter->next;
    letter->peer = done->peer;
    letter->arrived = true;
    b->letters_sending -= letter->is_send;
    if (!whole) /* all letters are of one length */
        letter->result = done->result == COMM_OK || done->result == COMM_ERR_TRUNCATED ? COMM_ERR_CORRUPT : done->result;
    if (letter->is_send && whole)
        drop_letter(b, letter);
    return true;
}

static bool take_letters(struct body *b)
{
    bool moved = false;

    while (message_letter(b->messages)) {
        struct letter *letter = take_letter(b, COMM_ANY_PEER, false);
        if (!letter || post_letter(b, letter) != COMM_OK)
            break; /* no memory: asked again */
        moved = true;
    }
    return moved;
}

/* What this round says to those who were not told yet. */
static bool send_letters(struct body *b, struct subset *s)
{
    struct creation *n = s->making;

    for (; s->sent < s->count; s->sent++) {
        int32_t peer = n->members[s->sent];
        if (peer == b->team.rank)
            continue;
        struct letter *letter = take_letter(b, peer, true);
        if (!letter)
            return false;
        letter->text = (struct letter_text){.key = s->key, .number = n->number, .round = s->round, .ready = n->ready, .ticket = n->mine[1]};
        if (post_letter(b, letter) != COMM_OK)
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

static bool belongs(const struct subset *s, const struct letter *letter)
{
    const struct letter_text *text = &letter->text;
    int32_t place = place_of(s, letter->peer);

    if (s->key != text->key || s->round != text->round || place == s->count || s->heard_from[place])
        return false;
    return s->round == ROUND_HELLO || s->making->number == text->number;
}

static void hear(struct subset *s, const struct letter *letter)
{
    const struct letter_text *text = &letter->text;
    struct creation *n = s->making;

    s->heard_from[place_of(s, letter->peer)] = true;
    s->heard++;
    if (s->round == ROUND_HELLO)
        s->most = text->number > s->most ? text->number : s->most;
    else if (s->round == ROUND_OFFERS)
        n->all[1][letter->peer] = text->ticket;
    else
        n->all_ready[letter->peer] = text->ready;
}

/* In the order in which they came: one that is still on its way holds back the later ones, which may be of the same pair. */
static bool read_letters(struct body *b)
{
    bool moved = false;

    for (struct letter *letter = b->letters, *next; letter && (letter->arrived || letter->is_send); letter = next) {
        struct subset *s = letter->is_send ? NULL : b->subsets;
        next = letter->next;
        if (letter->result != COMM_OK) { /* nobody can go on without it */
            bool theirs = letter->result == COMM_ERR_CORRUPT;
            body_propose(b, &(struct cause){.number = b->sequence,
                                            .rank = theirs ? letter->peer : b->team.rank,
                                            .peer = theirs ? b->team.rank : letter->peer,
                                            .result = letter->result});
            return true;
        }
        while (s && !belongs(s, letter))
            s = s->next;
        if (!s)
            continue;
        hear(s, letter);
        drop_letter(b, letter);
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

/* All have been told and heard of in this round. False: asked again. */
static bool end_round(struct body *b, struct subset *s)
{
    struct creation *n = s->making;

    if (s->round == ROUND_HELLO) {
        n->number = s->most;
        b->subsets_begun = s->most > b->subsets_begun ? s->most : b->subsets_begun;
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
        talk_end(b, &b->talks[s->talk], n->result);
        drop_subset(b, s);
        return true;
    }
    next_round(s);
    return true;
}

static bool turn(struct body *b)
{
    enum comm_result refused = message_refused(b->messages);

    if (refused != COMM_OK && !b->failed) { /* a letter may have been lost, and no other can be sent: nobody can go on */
        body_propose(b, &(struct cause){.number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = refused});
        return false;
    }
    bool moved = take_letters(b) && talk_take_finished(b);

    moved |= read_letters(b);
    if (b->failed || b->proposal.result) /* which may be chosen by another, in time: until then there is no next letter */
        return false;
    for (struct subset *s = b->subsets, *next; s && !b->failed; s = next) {
        next = s->next;
        if (send_letters(b, s) && s->heard == s->count - 1)
            moved |= end_round(b, s);
    }
    return moved && !b->failed;
}

static bool step(struct body *b)
{
    bool moved = false;

    while (!b->failed && b->subsets && turn(b))
        moved = true;
    return moved;
}

/* ------------------------------------------------------------------------------------------------------------ when it does not come */
/* Something of that member has come or may be coming, and is read in its turn. */
static bool letter_comes(const struct body *b, const struct subset *s, int32_t rank)
{
    if (message_letter(b->messages)) /* not taken yet, for want of memory */
        return true;
    for (const struct letter *letter = b->letters; letter; letter = letter->next)
        if (!letter->is_send && (!letter->arrived || (letter->peer == rank && belongs(s, letter))))
            return true;
    return false;
}

/* The subset and its member that is awaited and closed, or is awaited for too long. */
static const struct subset *awaits_gone(const struct body *b, int64_t now, int32_t *rank)
{
    for (const struct subset *s = b->subsets; s; s = s->next) {
        bool late = now - b->talks[s->talk].queued_ns >= b->timeout_ns;
        for (int32_t i = 0; i < s->count; i++) {
            *rank = s->making->members[i];
            if (*rank == b->team.rank || s->heard_from[i])
                continue;
            if (late || (body_has_left(b, *rank) && !letter_comes(b, s, *rank)))
                return s;
        }
    }
    return NULL;
}

/* Others may be further and use the child already, so the parent fails, as with a split. But only when a step finds nothing more: whoever
 * was the last to be awaited may have closed when it had said all. */
static void check(struct body *b, int64_t now)
{
    int32_t rank;

    if (!b->subsets || b->failed || b->proposal.result || !awaits_gone(b, now, &rank))
        return;
    if (body_step(b) || b->failed || !awaits_gone(b, now, &rank))
        return;
    bool closed = b->closed_at[rank] != 0;
    body_propose(b, &(struct cause){.number = b->sequence,
                                    .rank = closed ? rank : b->team.rank,
                                    .peer = closed ? b->team.rank : rank,
                                    .result = closed ? COMM_ERR_CLOSED : COMM_ERR_TIMEOUT,
                                    .code = closed ? (int32_t)(b->closed_at[rank] - 1) : 0});
}

static void end_all(struct body *b, enum comm_result result)
{
    (void)result;
    while (b->subsets) {
        creation_fail(b, b->subsets->making);
        drop_subset(b, b->subsets);
    }
}

static void leave(struct body *b)
{
    while (b->subsets)
        drop_subset(b, b->subsets);
    while (b->letters)
        drop_letter(b, b->letters);
}

/* ------------------------------------------------------------------------------------------------------------ the call */
static struct subset *make_subset(struct body *b, const int32_t *ranks, int32_t count, uint32_t tag, struct comm_communicator **out)
{
    const struct comm_env *env = b->unit.engine->env;
    struct subset *s = env->take(env, subset_bytes(count), _Alignof(struct subset)), **at = &b->subsets;
    struct creation *n = s ? creation_make(b, out) : NULL;

    if (!n) {
        if (s)
            env->give(env, s, subset_bytes(count));
        return NULL;
    }
    s->making = n;
    s->count = count;
    s->key = base_hash(base_hash(0, tag), (uint64_t)count);
    for (int32_t i = 0; i < count; i++) {
        n->members[i] = ranks[i];
        s->key = base_hash(s->key, (uint64_t)ranks[i]);
    }
    n->identity = s->key | UINT64_C(1) << 63; /* no split's color, nor a dup */
    base_format(n->name, sizeof n->name, "%.*s/subset.%u", 12, b->name, tag);
    while (*at)
        at = &(*at)->next;
    *at = s;
    return s;
}

static enum comm_result begin(struct body *b, const int32_t *ranks, int32_t count, uint32_t tag, struct comm_communicator **out,
                              struct comm_request *req)
{
    struct subset *s = b->recording || b->failed ? NULL : make_subset(b, ranks, count, tag, out);

    if (b->recording)
        return COMM_ERR_STATE;
    if (!s)
        return b->failed ? (enum comm_result)b->cause.result : COMM_ERR_MEMORY;
    enum comm_result r = talk_begin(b, &s->talk, req);
    if (r != COMM_OK) {
        drop_subset(b, s);
        return r;
    }
    s->making->number = s->most = ++b->subsets_begun;
    body_activate(b);
    return COMM_OK;
}

enum comm_result engine_subset(struct comm_communicator *c, const int32_t *ranks, int32_t count, uint32_t tag,
                               struct comm_communicator **out, struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct body *b = body_lock(c, &r);

    if (b) {
        r = begin(b, ranks, count, tag, out, &own);
        if (!b->recording)
            body_settle(b);
        body_unlock(b);
    }
    return engine_answer(r, own, req);
}

const struct comm_part subset_part = {
    .name = "subset", .leave = leave, .message = letter_done, .step_beside = step, .check = check, .ended = end_all};
