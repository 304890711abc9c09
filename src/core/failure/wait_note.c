/*
 * What this rank reports of its open queue waits, and what its peers reported of theirs: the facts from which deadlock.c finds cycles.
 */
#include "failure/wait_note.h"

#include "failure/failure.h"
#include "p2p/op.h"

#include <string.h>

/* Describes the head of the other communicator's queue. false: it can move, or nothing certain is known. */
static bool describe_head(const struct comm_state *y, struct wait_note *note)
{
    const struct entry *head = state_entry(y, y->line.done + 1);

    if (y->failed || y->line.done + 1 == y->line.next || head->head.state != TIMELINE_STARTED)
        return false;
    note->waits_for = y->team.id;
    note->head = head->head.kind == TIMELINE_QUEUE_WAIT ? 0 : head->seq;
    note->collective = (uint8_t)head->record.collective;
    note->root = head->root;
    return head->head.kind == TIMELINE_QUEUE_WAIT || head->call.n || head->head.kind == TIMELINE_BARRIER;
}

static uint32_t started_before(const struct comm_state *b, uint64_t wait)
{
    for (uint64_t t = wait + 1; t < b->line.next; t++)
        if (state_entry(b, t)->seq)
            return state_entry(b, t)->seq - 1;
    return (uint32_t)b->sequence;
}

static bool add_half(struct wait_note *note, int32_t peer)
{
    for (uint32_t i = 0; i < note->halves; i++)
        if (note->half[i] == peer)
            return true;
    if (note->halves == WAIT_HALVES || peer > UINT16_MAX)
        return false;
    note->half[note->halves++] = (uint16_t)peer;
    return true;
}

/* Does that message wait for its other half, or for a queue wait of its own communicator? A receive is reported only after its peer has
 * reported its own wait twice. By then, everything that the peer sent before has arrived. */
static bool describe_message(const struct comm_state *y, const struct p2p_op *t, struct wait_note *note)
{
    const struct wait_watch *w = &y->queue_wait.watch;
    int32_t peer = t->call.peer;
    bool held = t->state == P2P_HELD;

    if (held ? !y->queue_wait.ticket || y->queue_wait.ticket >= t->work
             : t->state != P2P_POSTED || peer == COMM_ANY_PEER || !message_waits(y->messages, t->call.slot))
        return false;
    if (note->collective != WAIT_SEND)
        note->collective = t->is_send ? WAIT_SEND : WAIT_RECEIVE;
    if (!held && !t->is_send && peer != y->team.rank && (!w->theirs || w->theirs[peer].round < 2))
        return true;
    if (!held && !add_half(note, peer))
        return true;
    note->behind |= held;
    note->head |= !held;
    note->waits_for = y->team.id;
    return true;
}

/* The same for a request of the message line. A group waits for all its members, so one member that never ends is enough. */
static bool describe_p2p(const struct comm_state *y, uint64_t ticket, struct wait_note *note)
{
    uint32_t group = timeline_slot_index(ticket);
    bool waits = false;

    for (uint32_t i = y->failed ? P2P_NONE : y->p2p.first; i != P2P_NONE; i = y->p2p.ops[i].after)
        if (y->p2p.ops[i].ticket == ticket || (y->p2p.ops[i].member_of == group && y->p2p.ops[group].ticket == ticket))
            waits |= describe_message(y, &y->p2p.ops[i], note);
    return waits;
}

/* True if everything that b's peers will still get from it comes behind its open queue wait. */
static bool is_quiet(const struct comm_state *b)
{
    bool quiet = message_is_quiet(b->messages);

    for (uint32_t i = b->p2p.first; i != P2P_NONE && quiet; i = b->p2p.ops[i].after)
        quiet = b->p2p.ops[i].state != P2P_HELD || b->queue_wait.ticket < b->p2p.ops[i].work;
    return quiet;
}

/* WAIT_UNSEEN: the other communicator was locked. *done: the last retired ticket of the other communicator. */
enum open_wait { WAIT_NONE, WAIT_OPEN, WAIT_UNSEEN };
static enum open_wait describe_wait(const struct comm_state *b, struct wait_note *note, uint64_t *done)
{
    if (!b->queue_wait.ticket || b->failed)
        return WAIT_NONE;
    const struct timeline_point *point = &state_entry(b, b->queue_wait.ticket)->point;
    struct comm_communicator *handle = point->kind == POINT_REQUEST ? point->request.comm : NULL;
    bool message = (point->request.ticket & TIMELINE_MESSAGE) != 0, other = handle != b->unit.handle;
    if (!handle || (!other && !message) || timeline_point_test(point) != COMM_PENDING)
        return WAIT_NONE;
    if (other && !base_home_trylock(&handle->lock, handle->env)) /* no order is defined between locks of two communicators, so only try */
        return WAIT_UNSEEN;
    const struct comm_state *y = other ? atomic_load_explicit(&handle->state, memory_order_relaxed) : b;
    bool certain = y && y->unit.engine == b->unit.engine && !y->recording.plan &&
                   (message ? describe_p2p(y, point->request.ticket, note) : describe_head(y, note));
    *done = certain && !message ? y->line.done : 0;
    if (other)
        base_home_unlock(&handle->lock, handle->env);
    note->started = started_before(b, b->queue_wait.ticket);
    note->quiet = is_quiet(b);
    note->which = (uint32_t)base_hash(base_hash(base_hash(1, b->queue_wait.ticket), *done), b->records.count);
    return certain ? WAIT_OPEN : WAIT_NONE;
}

void wait_note_send(struct comm_state *b, const struct wait_note *note)
{
    state_send_note(b, NOTE_QUEUE_WAIT, note, sizeof *note);
    if (b->team.size > 1)
        b->wire->flush(b->channel);
}

/* Called under b's lock, once per look. True: a queue wait is open that may be part of a cycle. */
bool deadlock_tell(struct comm_state *b)
{
    struct wait_note note = {0};
    struct wait_watch *w = &b->queue_wait.watch;
    uint64_t done = 0;
    enum open_wait wait = describe_wait(b, &note, &done);
    bool open = wait == WAIT_OPEN;

    if (wait == WAIT_UNSEEN)
        return true;
    if (open && w->ticket == b->queue_wait.ticket && w->done == done) {
        note.of = b->team.id;
        note.rank = b->team.rank;
        note.round = w->mine.round + 1;
        w->mine = note;
        wait_note_send(b, &note);
        return true;
    }
    if (w->mine.round && !b->failed) {
        note = (struct wait_note){.of = b->team.id, .rank = b->team.rank};
        wait_note_send(b, &note);
    }
    w->ticket = open ? b->queue_wait.ticket : 0;
    w->done = done;
    w->mine = (struct wait_note){0};
    return open;
}

/* Stores a note about another communicator of the same world. If there are too many, the oldest is replaced. */
static void heard_far(struct comm_state *b, int32_t peer, const struct wait_note *note)
{
    const struct comm_env *env = b->unit.engine->env;
    struct wait_watch *w = &b->queue_wait.watch;
    uint32_t at = 0;

    if (!w->far)
        w->far = env->take(env, DEADLOCK_WAITS * sizeof *w->far, 64);
    if (!w->far)
        return;
    while (at < DEADLOCK_WAITS && !(w->far[at].note.of == note->of && w->far[at].peer == peer))
        at++;
    if (at == DEADLOCK_WAITS)
        at = w->next_far++ % DEADLOCK_WAITS;
    w->far[at] = (struct far_wait){.note = *note, .heard_ns = env->now(env), .peer = peer};
}

/* Without memory the note is lost. Then another rank may find the cycle, or the deadline ends it. */
static void heard(struct comm_state *b, int32_t peer, const void *bytes)
{
    const struct comm_env *env = b->unit.engine->env;
    struct wait_watch *w = &b->queue_wait.watch;
    struct wait_note note;

    memcpy(&note, bytes, sizeof note);
    if (note.of != b->team.id) {
        heard_far(b, peer, &note);
        return;
    }
    if (!w->theirs)
        w->theirs = env->take(env, (size_t)b->team.size * sizeof *w->theirs, 64);
    if (w->theirs)
        w->theirs[peer] = note;
}

static void forget(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;
    struct wait_watch *w = &b->queue_wait.watch;

    env_give_back(env, w->theirs, (size_t)b->team.size * sizeof *w->theirs);
    env_give_back(env, w->far, DEADLOCK_WAITS * sizeof *w->far);
}

static bool hear_note(struct comm_state *b, const struct wire_event *event)
{
    if (wire_key_edge(event->key) != NOTE_QUEUE_WAIT)
        return false;
    heard(b, event->peer, event->note);
    return true;
}

const struct comm_part deadlock_part = {.name = "deadlock", .close = forget, .note = hear_note};
