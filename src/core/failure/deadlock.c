/*
 * Deadlocks: queue waits, operations and messages that wait for one another in a cycle, across several communicators and ranks.
 *
 * An open queue wait blocks everything behind it. It waits for a local request, usually of another communicator. That request completes
 * only after the oldest unfinished entry of its communicator. The oldest entry is either again a queue wait of this rank, or a collective.
 * A collective may need members that have not started it, because queue waits of their own block them. So four facts about each open queue
 * wait are enough: its communicator and rank, the communicator that it waits for, the entry at the head there, and the number of the last
 * call that its own communicator had started. Each rank sends these facts in a note, once per look of the monitor, as long as they do not
 * change.
 *
 * A queue wait may also wait for a message whose other half must come from another rank. Suppose that a queue wait of the same communicator
 * blocks that rank, and that it has nothing else in flight there. Then everything that it still sends or receives comes behind that wait. A
 * receive from any peer is left to its deadline.
 *
 * The deadlocked waits are the largest set in which each wait waits for another one of the set. The set is proven when each of its members
 * has reported the same facts again after the set was first seen. Then all of them were blocked at the same moment, and only a failure can
 * end them.
 *
 * The members of a communicator get a note about its wait at every look. The other ranks of the world get a note about one of this rank's
 * waits per look, in turn. They need it because possibly no rank is a member of all communicators of a cycle. Such notes expire, since the
 * end of a wait is not reported to non-members. If a member has its own information about a wait, that takes precedence.
 */
#include "failure/failure.h"
#include "failure/wait_note.h"

#include "comm/state.h"

_Static_assert((int)ENGINE_DEADLOCK_WAITS == (int)DEADLOCK_WAITS, "rounds are indexed by the number of a wait");

enum {
    FAR_NS = 1500000000,
    SEND_NS = 500000000, /* a send that was announced before its rank reported its wait has arrived after this time */
};

/* ------------------------------------------------------------------------------------------------------------ everything that is known */
struct known {
    struct wait_note note;
    const struct world *at;
    int32_t world;  /* the rank, in that world, that waits */
    int64_t lead;   /* how much earlier than data notes may arrive there */
    uint32_t index; /* the communicator in this process that has the note */
    bool held, own;
};
struct wait_cycle {
    struct known of[DEADLOCK_WAITS];
    uint32_t count;
};

static void add(struct wait_cycle *k, const struct comm_state *b, int32_t rank, const struct wait_note *note)
{
    struct known known = {.note = *note,
                          .at = b->world,
                          .world = b->team.world[rank],
                          .lead = b->channel->caps.note_lead_ns,
                          .index = b->index,
                          .held = true,
                          .own = rank == b->team.rank};
    uint32_t at = 0;

    if (!note->round)
        return;
    while (at < k->count && !(k->of[at].note.of == note->of && k->of[at].world == known.world))
        at++;
    if (at == DEADLOCK_WAITS || (at < k->count && (note->of != b->team.id || k->of[at].own)))
        return; /* ranks of one process each report their own wait, and what a member of the communicator knows is newer */
    k->of[at] = known;
    k->count += at == k->count;
}

static void gather(struct engine *e, struct wait_cycle *k)
{
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;
    int64_t since = e->env->now(e->env) - FAR_NS;

    k->count = 0;
    for (uint32_t i = 0; i < most; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        if (!handle)
            continue;
        base_home_visit(&handle->lock, handle->env);
        const struct comm_state *b = atomic_load_explicit(&handle->state, memory_order_relaxed);
        if (b && b->unit.engine == e && !b->failed && !b->recording.plan) {
            const struct wait_watch *w = &b->queue_wait.watch;
            add(k, b, b->team.rank, &w->mine);
            for (int32_t r = 0; w->theirs && r < b->team.size; r++)
                if (r != b->team.rank)
                    add(k, b, r, &w->theirs[r]);
            for (uint32_t f = 0; w->far && f < DEADLOCK_WAITS; f++)
                if (w->far[f].heard_ns > since)
                    add(k, b, w->far[f].peer, &w->far[f].note);
        }
        base_home_unlock(&handle->lock, handle->env);
    }
}

/* ------------------------------------------------------------------------------------------------------------ notes to the world */
/* One of this rank's waits in that world, a different one each turn. */
static const struct known *own_wait(const struct wait_cycle *k, const struct world *w, uint32_t turn)
{
    uint32_t count = 0, seen = 0;

    for (uint32_t i = 0; i < k->count; i++)
        count += k->of[i].own && k->of[i].at == w;
    for (uint32_t i = 0; i < k->count; i++)
        if (k->of[i].own && k->of[i].at == w && seen++ == turn % count)
            return &k->of[i];
    return NULL;
}

/* Is this a communicator of all ranks of its world, and of more than two? With two ranks, or if all ranks are in this process, some member
 * knows all waits anyway. */
static bool is_whole(const struct comm_state *b)
{
    return b->world->rank >= 0 && b->team.size > 2 && b->team.size == b->world->ranks && !b->failed && !b->unit.closing &&
           !b->recording.plan;
}

/* Sends a note through the first communicator of each world that has all its ranks. No other thread may be stepping that communicator, so
 * this also receives its notes. */
static void tell_worlds(struct engine *e, const struct wait_cycle *k)
{
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;
    const struct world *reported = NULL;

    for (uint32_t i = 0; i < most; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        if (!handle || !base_home_trylock(&handle->lock, handle->env))
            continue;
        struct comm_state *b = atomic_load_explicit(&handle->state, memory_order_relaxed);
        if (b && b->unit.engine == e && is_whole(b) && b->world != reported) {
            const struct known *wait = own_wait(k, b->world, b->queue_wait.watch.turn++);
            reported = b->world;
            b->guest = true; /* called by the monitor thread */
            if (wait)
                wait_note_send(b, &wait->note);
            state_step(b);
            b->guest = false;
        }
        base_home_unlock(&handle->lock, handle->env);
    }
}

/* The half of the message that this member must provide comes behind its wait. */
static bool lacks_half(const struct known *member, int32_t half)
{
    return member->note.rank == half && member->note.quiet;
}

/* True if n cannot end before that member acts: a collective before the member has started it, a message before the member's half comes. */
static bool needs(const struct known *n, const struct known *member)
{
    if (wait_note_is_message(&n->note)) {
        for (uint32_t i = 0; i < n->note.halves && i < WAIT_HALVES; i++)
            if (lacks_half(member, n->note.half[i]))
                return true;
        return n->note.behind && member->world == n->world;
    }
    if (member->world == n->world || (int32_t)(n->note.head - member->note.started) <= 0)
        return false;
    switch (n->note.collective) {
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALLGATHER:
    case COLLECTIVE_BARRIER:
    case COLLECTIVE_SPLIT:
    case COLLECTIVE_DUP:
    case COLLECTIVE_WINDOW:
    case COLLECTIVE_MEMORY:
        return true;
    case COLLECTIVE_BROADCAST:
        return member->note.rank == n->note.root;
    default:
        return false;
    }
}

static bool is_held(const struct wait_cycle *k, const struct known *n)
{
    for (uint32_t i = 0; i < k->count; i++) {
        const struct known *other = &k->of[i];
        if (!other->held || other->note.of != n->note.waits_for)
            continue;
        if (n->note.head || wait_note_is_message(&n->note) ? needs(n, other) : other->world == n->world)
            return true;
    }
    return false;
}

/* Finds the largest set of waits in which each waits for another one of the set. True: it is not empty. */
static bool find_wait_cycle(struct wait_cycle *k)
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

/* ------------------------------------------------------------------------------------------------------------ proof and report */
static uint64_t signature_of(const struct wait_cycle *k)
{
    uint64_t hash = 1;

    for (uint32_t i = 0; i < k->count; i++) {
        const struct known *n = &k->of[i];
        if (!n->held)
            continue;
        hash = base_hash(base_hash(hash, n->note.of), (uint64_t)(uint32_t)n->world);
        hash = base_hash(base_hash(hash, n->note.waits_for), (uint64_t)n->note.started << 32 | n->note.head);
        hash = base_hash(hash, n->note.which);
        hash = base_hash(hash, (uint64_t)n->note.collective << 16 | (uint64_t)n->note.halves << 8 | n->note.behind);
        for (uint32_t h = 0; h < WAIT_HALVES; h++)
            hash = base_hash(hash, n->note.half[h]);
    }
    return hash;
}

/* All messages that were in flight when this set was first seen have arrived since. */
static bool has_settled(const struct engine *e, const struct wait_cycle *k)
{
    int64_t wait = 0;

    for (uint32_t i = 0; i < k->count; i++) {
        int64_t late = k->of[i].note.collective == WAIT_SEND ? SEND_NS + k->of[i].lead : k->of[i].lead;
        if (k->of[i].held && wait_note_is_message(&k->of[i].note) && late > wait)
            wait = late;
    }
    return e->env->now(e->env) - e->cycle.since_ns >= wait;
}

/* Each member has reported the same facts again since this set was first seen. */
static bool is_proven(struct engine *e, const struct wait_cycle *k)
{
    uint64_t signature = signature_of(k);
    bool same = e->cycle.signature == signature, settled = same && has_settled(e, k), proven = settled;

    for (uint32_t i = 0; i < k->count; i++) {
        proven &= !k->of[i].held || k->of[i].note.round > e->cycle.round[i];
        if (!settled)
            e->cycle.round[i] = k->of[i].note.round;
    }
    if (!same)
        e->cycle.since_ns = e->env->now(e->env);
    e->cycle.signature = signature;
    return proven;
}

/* What a wait of the set waits for. A collective: its number. A message: -1 - the rank that has its other half. A queue wait: 0. */
static int32_t stuck_on(const struct wait_cycle *k, const struct known *n)
{
    if (!wait_note_is_message(&n->note))
        return (int32_t)n->note.head;
    for (uint32_t h = 0; h < n->note.halves && h < WAIT_HALVES; h++)
        for (uint32_t i = 0; i < k->count; i++)
            if (k->of[i].held && k->of[i].note.of == n->note.waits_for && lacks_half(&k->of[i], n->note.half[h]))
                return -1 - (int32_t)n->note.half[h];
    return 0;
}

static void fail_all(struct engine *e, const struct wait_cycle *k)
{
    for (uint32_t i = 0; i < k->count; i++) {
        const struct known *n = &k->of[i];
        enum comm_result r;
        struct comm_communicator *handle = n->held ? atomic_load_explicit(&e->table.handles[n->index], memory_order_acquire) : NULL;
        struct comm_state *b = handle ? state_lock(handle, &r) : NULL;
        if (!b)
            continue;
        if (b->unit.engine == e && b->team.id == n->note.of && n->note.rank < b->team.size && !b->recording.plan) {
            b->guest = true; /* called by the monitor thread */
            state_propose(b, &(struct cause){.number = n->note.started + 1,
                                             .rank = n->note.rank,
                                             .peer = b->team.rank,
                                             .result = COMM_ERR_DEADLOCK,
                                             .code = stuck_on(k, n)});
            state_settle(b);
            b->guest = false;
        }
        state_unlock(b);
    }
}

void deadlock_look(struct engine *e)
{
    struct wait_cycle cycle;

    gather(e, &cycle);
    tell_worlds(e, &cycle);
    if (!find_wait_cycle(&cycle))
        e->cycle.signature = 0;
    else if (is_proven(e, &cycle))
        fail_all(e, &cycle);
}
