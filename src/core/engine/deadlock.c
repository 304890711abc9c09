/*
 * Deadlocks: queue waits and operations that wait for one another in a circle, over several communicators and ranks.
 *
 * A queue wait that is open holds back everything behind it, and it waits for a request of another communicator here, which ends only after
 * the oldest unfinished entry of that one. That is either a queue wait again, of this rank, or a collective that needs members who have
 * not started it, because they stand at queue waits of their own. So all that must be known is, of every open queue wait: whose it is, what
 * it waits for, what stands at the head there, and how far its own communicator had started. Each rank tells that in a note, once a look,
 * while it stays as it is.
 *
 * The waits that hold one another are the greatest set in which each waits for one of the set. It is believed when every member of it has
 * said so again, unchanged, after it was first seen: then all stood so at the same moment, and nothing but a failure can move them.
 * Only waits of communicators that this rank is a member of are known to it, so a circle is found if some rank is in all of it.
 */
#include "engine/body.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ this rank's waits */
/* What the head of the other communicator is; false: it moves, or nothing certain can be said. */
static bool describe_head(const struct body *y, struct fence_note *note)
{
    const struct entry *head = body_entry(y, y->line.done + 1);

    if (y->failed || y->line.done + 1 == y->line.next || head->head.state != TIMELINE_STARTED)
        return false;
    note->waits_for = y->team.id;
    note->head = head->head.kind == TIMELINE_FENCE ? 0 : head->seq;
    note->collective = head->record.collective;
    note->root = head->root;
    return head->head.kind == TIMELINE_FENCE || head->call.n || head->head.kind == TIMELINE_BARRIER;
}

static uint32_t started_before(const struct body *b, uint64_t fence)
{
    for (uint64_t t = fence + 1; t < b->line.next; t++)
        if (body_entry(b, t)->seq)
            return body_entry(b, t)->seq - 1;
    return (uint32_t)b->sequence;
}

/* done: how far the other one is. */
enum fence { FENCE_NONE, FENCE_OPEN, FENCE_UNSEEN };
static enum fence describe_fence(const struct body *b, struct fence_note *note, uint64_t *done)
{
    if (!b->fence || b->failed)
        return FENCE_NONE;
    const struct timeline_point *point = &body_entry(b, b->fence)->point;
    struct comm_communicator *face = point->kind == POINT_REQUEST ? point->request.comm : NULL;
    if (!face || face == b->face || point->request.ticket & TIMELINE_MESSAGE || timeline_point_test(point) != COMM_PENDING)
        return FENCE_NONE;
    if (!base_home_trylock(&face->lock, face->env)) /* by try: of two communicators' locks neither comes first */
        return FENCE_UNSEEN;
    const struct body *y = atomic_load_explicit(&face->body, memory_order_relaxed);
    bool certain = y && y->engine == b->engine && !y->recording && describe_head(y, note);
    *done = certain ? y->line.done : 0;
    base_home_unlock(&face->lock, face->env);
    note->started = started_before(b, b->fence);
    note->which = (uint32_t)base_hash(base_hash(1, b->fence), *done);
    return certain ? FENCE_OPEN : FENCE_NONE;
}

static void tell(struct body *b, const struct fence_note *note)
{
    body_send_note(b, NOTE_FENCE, note, sizeof *note);
    if (b->team.size > 1)
        b->wire->flush(b->channel);
}

/* Under b's lock, once a look. True: a queue wait is open that may be part of a circle. */
bool deadlock_tell(struct body *b)
{
    struct fence_note note = {0};
    struct fence_watch *w = &b->fence_watch;
    uint64_t done = 0;
    enum fence fence = describe_fence(b, &note, &done);
    bool open = fence == FENCE_OPEN;

    if (fence == FENCE_UNSEEN)
        return true;
    if (open && w->ticket == b->fence && w->done == done) {
        note.round = w->mine.round + 1;
        w->mine = note;
        tell(b, &note);
        return true;
    }
    if (w->mine.round && !b->failed) {
        note = (struct fence_note){0};
        tell(b, &note);
    }
    *w = (struct fence_watch){.ticket = open ? b->fence : 0, .done = done, .theirs = w->theirs};
    return open;
}

void deadlock_heard(struct body *b, int32_t peer, const void *bytes)
{
    const struct comm_env *env = b->engine->env;
    struct fence_watch *w = &b->fence_watch;

    if (!w->theirs)
        w->theirs = env->take(env, (size_t)b->team.size * sizeof *w->theirs, 64);
    if (w->theirs) /* without memory a circle may be found by another rank, or by the deadline */
        memcpy(&w->theirs[peer], bytes, sizeof w->theirs[peer]);
}

/* ------------------------------------------------------------------------------------------------------------ all that is known */
struct known {
    struct fence_note note;
    uint64_t comm; /* the communicator's identity */
    int32_t rank, world;
    uint32_t index; /* of the communicator here that knows it */
    bool held;
};
struct knot {
    struct known of[DEADLOCK_WAITS];
    uint32_t count;
};

static void add(struct knot *k, const struct body *b, int32_t rank, const struct fence_note *note)
{
    int32_t world = b->team.world[rank];

    for (uint32_t i = 0; i < k->count; i++) /* ranks of one process: each of their bodies tells it */
        if (k->of[i].comm == b->team.id && k->of[i].world == world)
            return;
    if (note->round && k->count < DEADLOCK_WAITS)
        k->of[k->count++] =
            (struct known){.note = *note, .comm = b->team.id, .rank = rank, .world = world, .index = b->index, .held = true};
}

static void gather(struct engine *e, struct knot *k)
{
    uint32_t most = atomic_load_explicit(&e->words, memory_order_acquire) * 64;

    k->count = 0;
    for (uint32_t i = 0; i < most; i++) {
        struct comm_communicator *face = atomic_load_explicit(&e->faces[i], memory_order_acquire);
        if (!face)
            continue;
        base_home_visit(&face->lock, face->env);
        const struct body *b = atomic_load_explicit(&face->body, memory_order_relaxed);
        if (b && b->engine == e && !b->failed && !b->recording) {
            add(k, b, b->team.rank, &b->fence_watch.mine);
            for (int32_t r = 0; b->fence_watch.theirs && r < b->team.size; r++)
                if (r != b->team.rank)
                    add(k, b, r, &b->fence_watch.theirs[r]);
        }
        base_home_unlock(&face->lock, face->env);
    }
}

/* Whether a rank's part of a collective cannot end before that member has started it. */
static bool needs(const struct known *n, const struct known *member)
{
    if ((int32_t)(n->note.head - member->note.started) <= 0)
        return false;
    switch (n->note.collective) {
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALLGATHER:
    case COLLECTIVE_BARRIER:
    case COLLECTIVE_SPLIT:
    case COLLECTIVE_DUP:
    case COLLECTIVE_WINDOW:
        return true;
    case COLLECTIVE_BROADCAST:
        return member->rank == n->note.root;
    default:
        return false;
    }
}

static bool is_held(const struct knot *k, const struct known *n)
{
    for (uint32_t i = 0; i < k->count; i++) {
        const struct known *other = &k->of[i];
        if (!other->held || other->comm != n->note.waits_for)
            continue;
        if (n->note.head ? other->world != n->world && needs(n, other) : other->world == n->world)
            return true;
    }
    return false;
}

/* The greatest set whose members all wait for members. True: there is one. */
static bool find_knot(struct knot *k)
{
    bool changed = true, any = false;

    while (changed) {
        changed = any = false;
        for (uint32_t i = 0; i < k->count; i++) {
            if (!k->of[i].held)
                continue;
            any = k->of[i].held = is_held(k, &k->of[i]);
            changed |= !any;
        }
    }
    for (uint32_t i = 0; i < k->count && !any; i++)
        any = k->of[i].held;
    return any;
}

/* ------------------------------------------------------------------------------------------------------------ believed, and told */
static uint64_t signature_of(const struct knot *k)
{
    uint64_t hash = 1;

    for (uint32_t i = 0; i < k->count; i++) {
        const struct known *n = &k->of[i];
        if (!n->held)
            continue;
        hash = base_hash(base_hash(hash, n->comm), (uint64_t)(uint32_t)n->world);
        hash = base_hash(base_hash(hash, n->note.waits_for), (uint64_t)n->note.started << 32 | n->note.head);
        hash = base_hash(hash, n->note.which);
    }
    return hash;
}

/* Everyone has said the same again since this set was first seen. */
static bool is_proven(struct engine *e, const struct knot *k)
{
    uint64_t signature = signature_of(k);
    bool same = e->knot_signature == signature, proven = same;

    for (uint32_t i = 0; i < k->count; i++) {
        proven &= !k->of[i].held || k->of[i].note.round > e->knot_round[i];
        if (!same)
            e->knot_round[i] = k->of[i].note.round;
    }
    e->knot_signature = signature;
    return proven;
}

static void fail_all(struct engine *e, const struct knot *k)
{
    for (uint32_t i = 0; i < k->count; i++) {
        const struct known *n = &k->of[i];
        enum comm_result r;
        struct comm_communicator *face = n->held ? atomic_load_explicit(&e->faces[n->index], memory_order_acquire) : NULL;
        struct body *b = face ? body_lock(face, &r) : NULL;
        if (!b)
            continue;
        if (b->engine == e && b->team.id == n->comm && !b->recording) {
            b->guest = true; /* the watcher's thread */
            body_propose(b, &(struct cause){.number = n->note.started + 1,
                                            .rank = n->rank,
                                            .peer = b->team.rank,
                                            .result = COMM_ERR_DEADLOCK,
                                            .code = (int32_t)n->note.head});
            body_settle(b);
            b->guest = false;
        }
        body_unlock(b);
    }
}

void deadlock_look(struct engine *e)
{
    struct knot knot;

    gather(e, &knot);
    if (!find_knot(&knot))
        e->knot_signature = 0;
    else if (is_proven(e, &knot))
        fail_all(e, &knot);
}
