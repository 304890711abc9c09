/*
 * Agreement among the live members of a communicator, on a word and on the set of dead members. It works whatever the state of the
 * communicator. The lowest live rank is the coordinator. It proposes when all live members have entered, and decides when all of them have
 * accepted. If it dies, the next rank takes over. That rank proposes the value that a member accepted from the highest earlier coordinator,
 * because that value may have been decided.
 *
 * A rank that considers others dead promises to accept nothing from them any more. It sends that set in its note, and every rank believes
 * it unless it considers the sender dead. A rank that finds itself in such a set, because it was stopped or cut off, leaves with PEER.
 * docs/internals/recovery.md has the proof.
 */
#include "failure/failure.h"
#include "failure/recover.h"

#include "base/format.h"
#include "p2p/op.h"

#include <stdarg.h>
#include <string.h>

enum { LATE_STEPS = 3, LIST_BYTES = 200 };
static const int64_t late_ns[LATE_STEPS] = {5000000000, 10000000000, 60000000000};

static size_t recovery_bytes(const struct recovery *v, int32_t size)
{
    return sizeof *v + (size_t)size * v->note_bytes;
}

static enum comm_result open(struct comm_state *b, struct team_offer *offer)
{
    const struct comm_env *env = b->unit.engine->env;
    struct recovery made = {.words = recovery_words(b->team.size)};

    (void)offer;
    if (b->team.size > RECOVERY_RANKS)
        return COMM_OK;
    made.note_bytes = recovery_note_bytes(b->team.size);
    b->recovery.state = env->take(env, recovery_bytes(&made, b->team.size), 64);
    if (b->recovery.state)
        memcpy(b->recovery.state, &made, sizeof made);
    return b->recovery.state ? COMM_OK : COMM_ERR_MEMORY;
}

static void leave(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    if (!b->recovery.state)
        return;
    shrink_drop(b);
    env->give(env, b->recovery.state, recovery_bytes(b->recovery.state, b->team.size));
    b->recovery.state = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ notes */
static struct recovery_note *my_note(struct comm_state *b)
{
    return recovery_note(b->recovery.state, b->team.rank);
}

static void tell(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    struct wire_span span = {my_note(b), v->note_bytes};
    struct wire_expose note = {.key = wire_key_of(++v->reported, 0, NOTE_RECOVERY), .flags = WIRE_NOTE, .nspans = 1, .spans = &span};

    if (v->changed && b->team.size > 1)
        b->wire->expose(b->channel, &note);
    v->changed = false;
}

static bool hear_note(struct comm_state *b, const struct wire_event *event)
{
    struct recovery *v = b->recovery.state;

    if (wire_key_edge(event->key) != NOTE_RECOVERY)
        return false;
    if (v && event->peer != b->team.rank)
        memcpy(recovery_note(v, event->peer), event->note, v->note_bytes);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ ending */
void recovery_finish(struct comm_state *b, enum comm_result result)
{
    struct recovery *v = b->recovery.state;

    v->stage = RECOVERY_IDLE;
    b->recovery.running = false;
    v->flags = NULL;
    v->shrinking.out = NULL;
    p2p_end_recovery(b, v->op, result);
}

/* Ends this rank's part for good, because others can no longer rely on it, or because it has left. */
static __attribute__((format(printf, 3, 4))) void give_up(struct comm_state *b, enum comm_result result, const char *format, ...)
{
    struct recovery *v = b->recovery.state;
    va_list arguments;

    if (!v || v->stage == RECOVERY_IDLE)
        return;
    v->error = (struct comm_error){.size = sizeof v->error, .result = result, .rank = b->team.rank, .peer = -1};
    va_start(arguments, format);
    base_format_list(v->error.text, sizeof v->error.text, format, arguments);
    va_end(arguments);
    base_copy_text(v->error.cause, sizeof v->error.cause, base_result_name(result) + strlen("COMM_ERR_"));
    base_log(&b->unit.engine->log, LOG_WARNING, "comm=%s %s", b->name, v->error.text);
    my_note(b)->left = (int32_t)result;
    v->over = result;
    v->changed = true;
    tell(b);
    shrink_abandon(b);
    recovery_finish(b, result);
}

void recovery_leave(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    bool used = b->failed;

    if (!v || v->over != COMM_OK)
        return;
    give_up(b, COMM_ERR_CLOSED, "the communicator was closed while its agree or shrink was under way");
    for (int32_t r = 0; r < b->team.size; r++)
        used |= recovery_note(v, r)->instance != 0;
    if (v->over != COMM_OK || !used)
        return;
    my_note(b)->left = COMM_ERR_CLOSED;
    v->over = COMM_ERR_CLOSED;
    v->changed = true;
    tell(b);
    b->wire->flush(b->channel);
}

/* ------------------------------------------------------------------------------------------------------------ which members are alive */
static bool is_gone(struct comm_state *b, int32_t rank)
{
    bool named = b->failed && b->failure.cause.result == COMM_ERR_PEER && b->failure.cause.rank == rank;

    return named || b->failure.closed_at[rank] || recovery_note(b->recovery.state, rank)->left || world_down(b->world, b->team.world[rank]);
}

/* Merges the dead sets of the others. Sets of ranks that this rank considers dead no longer count, so if two ranks consider each other
 * dead, one of them is believed. */
static bool hear_deaths(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    int32_t me = b->team.rank;
    uint64_t *dead = recovery_set(v, me, SET_DEAD);
    bool more = false;

    if (is_gone(b, me)) {
        give_up(b, COMM_ERR_PEER, "this rank (%d) was given up by the others, which go on without it", me);
        return true;
    }
    for (int32_t r = 0; r < b->team.size; r++)
        more |= r != me && !recovery_has(dead, r) && is_gone(b, r) && recovery_add(dead, r);
    for (int32_t r = 0; r < b->team.size; r++) {
        const uint64_t *theirs = recovery_set(v, r, SET_DEAD);
        if (r == me || recovery_has(dead, r))
            continue;
        if (recovery_has(theirs, me)) {
            give_up(b, COMM_ERR_PEER, "this rank (%d) was given up by rank %d and cannot go on with the others", me, r);
            return true;
        }
        for (uint32_t w = 0; w < v->words; w++) {
            more |= (theirs[w] & ~dead[w]) != 0;
            dead[w] |= theirs[w];
        }
    }
    v->changed |= more;
    return more;
}

static int32_t lowest_alive(const struct comm_state *b, const uint64_t *dead)
{
    int32_t r = 0;

    while (r < b->team.size && recovery_has(dead, r))
        r++;
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ one agreement */
void recovery_enter(struct comm_state *b, enum recovery_stage kind, uint64_t flags)
{
    struct recovery *v = b->recovery.state;
    struct recovery_note *mine = my_note(b);
    size_t bytes = v->words * sizeof(uint64_t);

    mine->last = mine->value;
    memcpy(recovery_set(v, b->team.rank, SET_LAST), recovery_set(v, b->team.rank, SET_VALUE), bytes);
    memset(recovery_set(v, b->team.rank, SET_VALUE), 0, bytes);
    mine->instance++;
    mine->kind = kind;
    mine->flags = flags;
    mine->value = 0;
    mine->accepted = mine->decided = 0;
    v->stage = kind;
    v->changed = true;
}

static void accept(struct comm_state *b, uint32_t ballot, uint64_t value, const uint64_t *set)
{
    struct recovery *v = b->recovery.state;
    struct recovery_note *mine = my_note(b);

    mine->accepted = ballot;
    mine->value = value;
    memmove(recovery_set(v, b->team.rank, SET_VALUE), set, v->words * sizeof *set);
    v->changed = true;
}

static void decide(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    const uint64_t *set = recovery_set(v, b->team.rank, SET_VALUE);
    uint64_t *dead = recovery_set(v, b->team.rank, SET_DEAD);

    for (uint32_t w = 0; w < v->words; w++)
        dead[w] |= set[w];
    my_note(b)->decided = 1;
    v->changed = true;
}

/* A decision may be taken from any rank, also from one that has died since or is already in the next agreement. */
static bool take_decision(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    uint32_t instance = my_note(b)->instance;

    for (int32_t r = 0; r < b->team.size; r++) {
        const struct recovery_note *n = recovery_note(v, r);
        bool here = n->instance == instance && n->decided, before = n->instance == instance + 1;
        const uint64_t *set = recovery_set(v, r, here ? SET_VALUE : SET_LAST);
        if (!here && !before)
            continue;
        if (recovery_has(set, b->team.rank)) {
            give_up(b, COMM_ERR_PEER, "this rank (%d) was given up by the others, which have decided without it", b->team.rank);
            return true;
        }
        accept(b, here ? n->accepted : 0, here ? n->value : n->last, set);
        decide(b);
        return true;
    }
    return false;
}

static bool differs(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    const struct recovery_note *mine = my_note(b);

    for (int32_t r = 0; r < b->team.size; r++) {
        const struct recovery_note *n = recovery_note(v, r);
        if (n->instance != mine->instance || (n->kind == mine->kind && n->left != COMM_ERR_MISMATCH))
            continue;
        give_up(b, COMM_ERR_MISMATCH, "rank %d called %s, but rank %d something else: expected one order of agree and shrink on all",
                b->team.rank, mine->kind == RECOVERY_AGREE ? "agree" : "shrink", r);
        return true;
    }
    return false;
}

/* False: a live rank has not entered, or does not yet know which ranks are dead. */
static bool propose(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    int32_t me = b->team.rank, from = me;
    const struct recovery_note *mine = my_note(b);
    const uint64_t *dead = recovery_set(v, me, SET_DEAD);
    uint64_t flags = mine->flags;

    for (int32_t r = 0; r < b->team.size; r++) {
        const struct recovery_note *n = recovery_note(v, r);
        if (r == me || recovery_has(dead, r))
            continue;
        if (n->instance != mine->instance || lowest_alive(b, recovery_set(v, r, SET_DEAD)) != me)
            return false;
        flags &= n->flags;
        if (n->accepted > recovery_note(v, from)->accepted)
            from = r;
    }
    const struct recovery_note *before = recovery_note(v, from);
    if (before->accepted)
        accept(b, 1 + (uint32_t)me, before->value, recovery_set(v, from, SET_VALUE));
    else
        accept(b, 1 + (uint32_t)me, flags, dead);
    return true;
}

static bool all_accepted(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    const uint64_t *dead = recovery_set(v, b->team.rank, SET_DEAD);
    const struct recovery_note *mine = my_note(b);

    for (int32_t r = 0; r < b->team.size; r++) {
        const struct recovery_note *n = recovery_note(v, r);
        if (r != b->team.rank && !recovery_has(dead, r) && (n->instance != mine->instance || n->accepted != mine->accepted))
            return false;
    }
    return true;
}

static bool step_agreement(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    const struct recovery_note *mine = my_note(b);
    int32_t me = b->team.rank, coordinator = lowest_alive(b, recovery_set(v, me, SET_DEAD));
    const struct recovery_note *n = recovery_note(v, coordinator);

    if (take_decision(b) || differs(b))
        return true;
    if (coordinator != me) {
        if (n->instance != mine->instance || n->accepted != 1 + (uint32_t)coordinator || mine->accepted >= n->accepted)
            return false;
        accept(b, n->accepted, n->value, recovery_set(v, coordinator, SET_VALUE));
        return true;
    }
    if (mine->accepted != 1 + (uint32_t)me)
        return propose(b);
    if (!all_accepted(b))
        return false;
    decide(b);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ stages */
/* The others get the note before the caller gets its result. */
static void conclude(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;

    tell(b);
    switch (v->stage) {
    case RECOVERY_AGREE:
        if (v->flags)
            *v->flags = my_note(b)->value;
        recovery_finish(b, COMM_OK);
        break;
    case RECOVERY_SET:
        memcpy(v->shrinking.base, recovery_set(v, b->team.rank, SET_VALUE), v->words * sizeof(uint64_t));
        shrink_begin_child(b);
        break;
    default:
        shrink_conclude(b);
    }
}

static bool turn(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    bool moved = hear_deaths(b);

    if (v->stage == RECOVERY_OFFERS)
        moved |= shrink_take_offers(b);
    else if (v->stage == RECOVERY_JOINING)
        moved |= shrink_take_copy(b);
    else if (v->stage != RECOVERY_IDLE && step_agreement(b)) {
        moved = true;
        if (v->stage != RECOVERY_IDLE && my_note(b)->decided)
            conclude(b);
    }
    tell(b);
    return moved;
}

static bool step(struct comm_state *b)
{
    bool moved = false;

    while (b->recovery.state && b->recovery.state->stage != RECOVERY_IDLE && turn(b))
        moved = true;
    return moved;
}

/* ------------------------------------------------------------------------------------------------------------ late members */
static void list_awaited(struct comm_state *b, char *text, size_t bytes)
{
    struct recovery *v = b->recovery.state;
    const struct recovery_note *mine = my_note(b);
    size_t at = 0;

    text[0] = 0;
    for (int32_t r = 0; r < b->team.size; r++) {
        const struct recovery_note *n = recovery_note(v, r);
        bool here = v->stage == RECOVERY_OFFERS ? n->offered == mine->offered : n->instance >= mine->instance;
        if (r != b->team.rank && !here && !recovery_has(recovery_set(v, b->team.rank, SET_DEAD), r))
            base_append(text, bytes, &at, " %d", r);
    }
    if (!at)
        base_append(text, bytes, &at, " none: they have not answered");
}

static void check(struct comm_state *b, int64_t now)
{
    struct recovery *v = b->recovery.state;
    char awaited[LIST_BYTES];

    if (!v || v->stage == RECOVERY_IDLE)
        return;
    const char *what = my_note(b)->kind == RECOVERY_AGREE ? "agree" : "shrink";
    int64_t waited = now - v->since_ns;
    list_awaited(b, awaited, sizeof awaited);
    if (waited >= b->timeout_ns) {
        give_up(b, COMM_ERR_TIMEOUT, "%s: the deadline of %lld ms passed on rank %d; not called yet by ranks:%s", what,
                (long long)(b->timeout_ns / 1000000), b->team.rank, awaited);
        return;
    }
    if (v->late_step >= LATE_STEPS || waited < late_ns[v->late_step])
        return;
    while (v->late_step < LATE_STEPS && waited >= late_ns[v->late_step])
        v->late_step++;
    base_log(&b->unit.engine->log, LOG_WARNING, "comm=%s %s is late: waiting for %lld s; not called yet by ranks:%s", b->name, what,
             (long long)(waited / 1000000000), awaited);
}

static void aborted(struct comm_state *b)
{
    give_up(b, COMM_ERR_ABORTED, "agree, shrink: the world was aborted meanwhile");
}

const struct comm_part recovery_part = {
    .describe = cause_describe,
    .name = "recovery",
    .open = open,
    .leave = leave,
    .note = hear_note,
    .step_last = step,
    .check_always = check,
    .aborted = aborted,
};
