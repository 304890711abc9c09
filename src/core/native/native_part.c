/*
 * The engine's interface to natives: which calls a library takes, how they start and end, and what remains when a communicator fails. An
 * operation of a native is an entry of the queue like any other. It uses no window place and no run. But it has a sequence number, and its
 * call is published, so that different calls on different ranks are detected before anything starts.
 */
#include "native/native.h"
#include "native/repeat.h"
#include "native/short.h"
#include "native/standing.h"
#include "native/stream.h"
#include "native/takes.h"

#include "base/format.h"
#include "comm/state.h"

#include <string.h>

enum { NAP_MOST_NS = 1000000, COPYING_NS = 2000, AGREE_BYTES = 4096, TEND_TURNS = 256 };
#define SUSPECT_NS INT64_C(2000000000) /* how long to wait for the peers' calls: two ticks */

static bool may_enter(const struct comm_state *b)
{
    return !b->guest || !(b->library_work.flags & NATIVE_CALLER);
}

/* ------------------------------------------------------------------------------------------------------------ joining */
static const struct collective_library library;

static enum comm_result open(struct comm_state *b, struct team_offer *offer)
{
    struct native *native = b->world->native;
    struct wire_team team = {b->team.id, b->team.rank, b->team.size, b->team.world, b->channel};

    offer->has_native = 0;
    if (!native || b->terms.programs_only)
        return COMM_OK;
    enum comm_result r = native->class->join(native, &team, NULL, offer->native, &b->native);
    if (r == COMM_OK) {
        offer->has_native = 1;
        b->library = &library;
        b->library_work.flags = native->flags;
        if (b->terms.stream && native->class->stream) {
            if (!native->class->stream(b->native, b->terms.stream, &b->terms.stream))
                return COMM_ERR_ARGUMENT;
            b->library_work.flags |= NATIVE_STREAM;
        }
    } else {
        b->native = NULL;
    }
    return native_may_do_without(b, r) ? COMM_OK : r;
}

static enum comm_result go_without(struct comm_state *b, enum comm_result result)
{
    b->native = NULL;
    b->library = NULL;
    b->library_work.flags = 0;
    return result;
}

/* Packs the members' offers into b->offers, as state_connect did with the wires' offers. */
static enum comm_result connect(struct comm_state *b, const struct team_offer *offers)
{
    struct wire_team team = {b->team.id, b->team.rank, b->team.size, b->team.world, b->channel};
    unsigned char *packed = b->offers;
    bool all = b->native != NULL;

    for (int32_t r = 0; r < b->team.size; r++)
        all &= offers[r].has_native != 0;
    if (!b->native)
        return COMM_OK;
    if (!all) /* some member has none for this communicator: then no member uses it */
        b->native->native->class->leave(b->native, NATIVE_LEAVE_CLOSE);
    if (!all)
        return go_without(b, COMM_OK);
    for (int32_t r = 0; r < b->team.size; r++)
        memcpy(packed + (size_t)r * NATIVE_OFFER_BYTES, offers[r].native, NATIVE_OFFER_BYTES);
    enum comm_result result = b->native->native->class->join(b->world->native, &team, packed, NULL, &b->native);
    if (result != COMM_OK)
        return go_without(b, native_may_do_without(b, result) ? COMM_OK : result);
    return COMM_OK;
}

static enum comm_result joined(struct comm_state *b)
{
    enum comm_result result = b->native->native->class->joined(b->native);

    b->library_work.flags |= result == COMM_OK ? b->native->native->flags & NATIVE_STANDS : 0;
    if (result == COMM_OK && b->library_work.flags & NATIVE_STREAM) {
        b->line.ahead = b->line.capacity_max; /* operations on a stream need no run, so the window does not limit them */
        b->terms.unpacked = true;
    }
    return result;
}

static void drop(struct comm_state *b)
{
    const struct native_class *class = b->native->native->class;

    base_home_visit(&b->unit.handle->lock, b->unit.engine->env);
    (void)class->leave(b->native, NATIVE_LEAVE_FAILED);
    (void)class->leave(b->native, NATIVE_LEAVE_CLOSE);
    (void)go_without(b, COMM_OK);
    b->line.ahead = b->line.window;
    b->terms.unpacked = false;
    base_home_unlock(&b->unit.handle->lock, b->unit.engine->env);
}

/* ------------------------------------------------------------------------------------------------------------ starting */
/* Counts this communicator in sleepers.must_poll once something is pending, until a pass finds it idle. */
static void count(struct comm_state *b, bool pending)
{
    struct engine *e = b->unit.engine;

    b->library_work.counted = pending;
    if (!pending) {
        atomic_fetch_sub_explicit(&e->sleepers.must_poll, 1, memory_order_relaxed);
        return;
    }
    atomic_fetch_add_explicit(&e->sleepers.must_poll, 1, memory_order_relaxed);
    engine_wake(e); /* a thread that sleeps without a poll deadline must set one */
}

static void start_pending(struct comm_state *b)
{
    b->library_work.pending++;
    b->library_work.served = true;
    atomic_store_explicit(&b->unit.engine->sleepers.nap_ns, ENGINE_NAP_LEAST_NS, memory_order_relaxed);
}

/* Compares this call with those that the peers have published. Of two ranks, the second one sees the first one's call, and starts nothing
 * if they differ. Reading a cache line that another CPU has just written takes as long as half of a small exchange, so small calls are
 * compared only by a rank that has to wait, and at the tick. */
static bool calls_agree(struct comm_state *b, const struct entry *e)
{
    uint32_t at = e->seq & b->calls.mask;

    atomic_thread_fence(memory_order_seq_cst);
    for (int32_t r = 0; r < b->team.size; r++) {
        const struct wire_call *ring = r == b->team.rank ? NULL : b->channel->peer_calls[r];
        if (!ring || atomic_load_explicit(&ring[at].seq, memory_order_acquire) != e->seq)
            continue;
        if (atomic_load_explicit(&ring[at].chain, memory_order_relaxed) != e->chain ||
            atomic_load_explicit(&ring[at].refused, memory_order_relaxed))
            return state_check_peers(b, e);
    }
    return true;
}

/* True for a native call on a thread that may not enter the library, that would overtake another, or whose plan's last start of it has not
 * ended; and for a program beyond the window. */
static bool may_not_start(const struct comm_state *b, uint64_t ticket)
{
    const struct entry *e = state_entry(b, ticket);

    if (e->by != ENTRY_BY_PROGRAM)
        return !may_enter(b) || native_would_overtake(b, e) || (e->standing && e->standing->runs);
    return (e->head.kind == TIMELINE_WORK || e->head.kind == TIMELINE_BARRIER) && ticket - b->line.done > b->line.window;
}

void native_start(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    const struct native_class *class = b->native->native->class;
    struct native_call call = {.collective = e->record.collective,
                               .type = e->call.type,
                               .op = e->call.op,
                               .root = e->root,
                               .in = e->call.in,
                               .out = e->call.out,
                               .n = e->call.n,
                               .element_bytes = data_type_bytes(e->call.type),
                               .counts = e->call.counts,
                               .displs = e->call.displs,
                               .in_counts = e->call.in_counts,
                               .in_displs = e->call.in_displs,
                               .reduce = native_reducer(b, e->record.collective, e->call.type, e->call.op),
                               .scale = operator_is_premul(e->call.op) ? data_scale : NULL,
                               .context = e->user, /* it begins with what the kernel needs */
                               .grain = e->user ? ((const struct data_user *)(const void *)e->user)->element_bytes : 1,
                               .exact = native_is_exact(b, e->record.collective, e->call.type, e->call.op),
                               .standing = e->standing ? &e->standing->made : NULL,
                               .on_device = false,
                               .cookie = ticket};
    int32_t code = 0;

    if (e->by == ENTRY_BY_STREAM) { /* the library already has it, since the call */
        start_pending(b);
        return;
    }
    native_name_algorithm(b, &call, e);
    if (call.n * call.element_bytes >= AGREE_BYTES && !calls_agree(b, e))
        return;
    if (BASE_UNLIKELY(b->world->check) && native_checks_buffers(b) && !e->stage)
        check_freeze(b, e);
    enum comm_result r = class->start(b->native, &call, &code);
    if (e->standing)
        e->standing->runs = r == COMM_OK;
    if (r == COMM_OK) {
        start_pending(b);
        return;
    }
    if (!e->record.started_ns)
        e->record.queued_ns = e->record.started_ns = state_now(b);
    state_propose_own(b, e, r, code);
}

static void start(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    e->record.started_ns = state_now(b);
    native_start(b, ticket, e);
}

/* ------------------------------------------------------------------------------------------------------------ ending */
/* Has each peer published the call of this number, or a later one? Peers on other hosts announce their calls once per tick. */
static bool all_have_called(const struct comm_state *b, uint32_t seq)
{
    for (int32_t r = 0; r < b->team.size; r++) {
        const struct wire_call *ring = b->channel->peer_calls[r];
        uint32_t there = ring ? atomic_load_explicit(&ring[seq & b->calls.mask].seq, memory_order_acquire) : seq;
        if (there == 0 || (int32_t)(there - seq) < 0)
            return false;
    }
    return true;
}

/* Calls that differ explain more than the library's own error. True once it is known whether they do, or when waiting is useless. */
static bool settle_suspect(struct comm_state *b)
{
    struct library_suspect *s = &b->library_work.suspect;
    struct entry *e = state_entry(b, s->ticket);
    int64_t now = b->unit.engine->env->now(b->unit.engine->env);

    if (e->seq && (!state_check_peers(b, e) || !state_lengths_agree(b, e->seq)))
        return true;
    if (e->seq && !all_have_called(b, e->seq) && now < s->until_ns)
        return false;
    state_propose_own(b, e, s->result, s->code);
    return true;
}

/* A library reports calls that differ in its own way, or not at all. Our report is better if the peers' calls can be read. Until that is
 * settled the operation counts as pending. An error of a device is not due to different calls, so then there is no wait. */
static void suspect(struct comm_state *b, const struct native_event *event)
{
    int64_t now = b->unit.engine->env->now(b->unit.engine->env);
    int64_t patience = b->library_work.flags & NATIVE_STREAM ? 0 : SUSPECT_NS;

    if (b->library_work.suspect.ticket)
        return; /* only the first error is reported */
    b->library_work.suspect = (struct library_suspect){
        .ticket = event->cookie, .until_ns = now + patience, .result = (enum comm_result)event->result, .code = event->code};
    b->library_work.pending++;
}

static bool look_at_suspect(struct comm_state *b)
{
    if (BASE_LIKELY(!b->library_work.suspect.ticket) || b->failed || !settle_suspect(b))
        return false;
    b->library_work.suspect.ticket = 0;
    b->library_work.pending--;
    return true;
}

static void take_ended(struct comm_state *b, const struct native_event *event)
{
    struct entry *e = state_entry(b, event->cookie);

    BASE_ASSERT(event->cookie > b->line.done && event->cookie <= b->line.started && e->by != ENTRY_BY_PROGRAM);
    if (event->result != COMM_OK && event->cookie == b->library_work.suspect.ticket)
        return; /* reported twice; it is already counted */
    b->library_work.pending--;
    if (event->result == COMM_OK)
        standing_ended(b, e);
    if (event->result == COMM_OK && event->cookie == b->library_work.alone)
        native_retire_short(b, e);
    else if (event->result == COMM_OK && BASE_UNLIKELY(e->stage != NULL))
        state_end_work(b, event->cookie, e); /* first its output must be copied to the device */
    else if (event->result == COMM_OK)
        timeline_end(&b->line, event->cookie,
                     BASE_UNLIKELY(b->world->check) && e->by == ENTRY_BY_NATIVE && native_checks_buffers(b) ? check_thaw(b, e) : COMM_OK);
    else
        suspect(b, event);
}

bool native_look(struct comm_state *b)
{
    struct native_event events[ENGINE_EVENTS];

    if (!b->library_work.pending || b->failed || !may_enter(b))
        return false;
    uint32_t count = b->native->native->class->advance(b->native, events, ENGINE_EVENTS);
    for (uint32_t i = 0; i < count && !b->failed; i++)
        take_ended(b, &events[i]);
    if (count && b->library_work.pending && b->library_work.flags & NATIVE_IN_ORDER)
        b->library_work.ended_ns = b->unit.engine->env->now(b->unit.engine->env);
    return look_at_suspect(b) || count != 0;
}

/*
 * MPI moves only inside its calls. When an operation has ended on this rank, MPI may still owe something to a peer for it: an
 * acknowledgement of a long message, for which there was no room. The peer's operation does not end until this rank calls MPI again, and
 * this rank may wait for that peer in a program. So the library is called although nothing is pending here: while anything is unfinished
 * on the communicator, and at the monitor's tick.
 */
static bool may_owe(const struct comm_state *b)
{
    return b->library_work.served && !b->library_work.pending && !(b->library_work.flags & NATIVE_IN_ORDER);
}

static void tend(struct comm_state *b)
{
    struct native_event none;

    b->library_work.turns = 0;
    if (may_owe(b) && may_enter(b))
        (void)b->native->native->class->advance(b->native, &none, 1);
}

/* ------------------------------------------------------------------------------------------------------------ passes */
/* A library that copies inside its poll (as MPI does) does not report it. But such a poll takes long, and a waiting thread must not go to
 * sleep between two of them. So a long poll counts as movement. A stream copies by itself: a poll of it that takes long has asked the
 * device, and nothing has moved. */
static bool step(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;
    bool moved = b->library_work.parked && native_release_parked(b);

    if (BASE_LIKELY(!b->library_work.pending)) {
        if (++b->library_work.turns >= TEND_TURNS)
            tend(b);
        return moved;
    }
    bool copies = !(b->library_work.flags & NATIVE_STREAM);
    int64_t before = copies ? env->now(env) : 0;
    moved |= native_look(b);
    moved = moved || (copies && env->now(env) - before > COPYING_NS);
    if (moved)
        atomic_store_explicit(&b->unit.engine->sleepers.nap_ns, ENGINE_NAP_LEAST_NS, memory_order_relaxed);
    return moved;
}

/* ------------------------------------------------------------------------------------------------------------ failing and leaving */
static uint32_t leave_failed(struct comm_state *b)
{
    bool gone = b->failure.cause.result == COMM_ERR_PEER || b->failure.cause.result == COMM_ERR_CLOSED;

    b->library_work.told = true;
    return b->native->native->class->leave(b->native, gone ? NATIVE_LEAVE_GONE : NATIVE_LEAVE_FAILED);
}

static void failing(struct comm_state *b, enum comm_result result)
{
    (void)result;
    if (!b->native)
        return;
    uint32_t pending = b->library_work.pending;
    b->library_work.pending = b->library_work.parked = 0;
    b->library_work.served = false;
    b->library_work.suspect.ticket = 0;
    b->library_work.alone = 0;
    b->library_work.held = may_enter(b) ? leave_failed(b) : pending;
    for (uint64_t t = b->line.done + 1; b->library_work.held && t <= b->line.started; t++) {
        struct entry *e = state_entry(b, t);
        if (e->by == ENTRY_BY_NATIVE && e->head.state == TIMELINE_STARTED)
            e->record.flags |= COMM_INFO_BUFFERS_HELD;
    }
}

bool native_holds(struct comm_state *b)
{
    if (b->library_work.held && may_enter(b))
        b->library_work.held = leave_failed(b);
    return b->library_work.held != 0;
}

enum comm_result native_may_close(struct comm_state *b, char *why, size_t why_bytes)
{
    const struct native_class *class = b->native ? b->native->native->class : NULL;

    return class && class->may_close ? class->may_close(b->native, why, why_bytes) : COMM_OK;
}

static void leave(struct comm_state *b)
{
    if (b->library_work.counted)
        count(b, false);
    repeat_forget(b);
    if (!b->native)
        return;
    if (b->failed && !b->library_work.told && may_enter(b)) /* the monitor, which may not enter, has noticed the failure */
        (void)leave_failed(b);
    uint32_t left = b->library_work.held = b->native->native->class->leave(b->native, NATIVE_LEAVE_CLOSE);
    standing_end(b);
    b->native = NULL;
    b->library = NULL;
    if (left)
        base_log(&b->unit.engine->log, LOG_WARNING, "comm=%s closed while %s may still use the buffers of %u operations: kept on purpose",
                 b->name, b->world->native->class->name, left);
}

/* ------------------------------------------------------------------------------------------------------------ sleeping */
/* A library moves long data only in calls, and a nap between them delays it. So naps begin late (YIELD_TO_POLL in progress/pass.c), and
 * each is a sixteenth longer than the one before. Where ranks share CPUs, a waiting one gives way at once and for longer. */
static void nap(struct engine *e, int64_t now, int64_t *until)
{
    int64_t most = atomic_load_explicit(&e->sleepers.nap_ns, memory_order_relaxed);

    if (!atomic_load_explicit(&e->sleepers.must_poll, memory_order_relaxed))
        return;
    if (now + most < *until)
        *until = now + most;
    int64_t next = most + (e->oversubscribed ? most : most / 16);
    atomic_store_explicit(&e->sleepers.nap_ns, next < NAP_MOST_NS ? next : NAP_MOST_NS, memory_order_relaxed);
}

/* Counted in sleepers.must_poll while a pass could end what is pending, or let the library do what it owes. */
static void active(struct comm_state *b, bool is_active)
{
    bool looks = b->library_work.counted || b->library_work.pending || may_owe(b);

    if (BASE_UNLIKELY(b->library_work.counted != (is_active && looks)))
        count(b, !b->library_work.counted);
}

static const struct collective_library library = {
    .takes = native_takes,
    .algorithm = native_algorithm,
    .issue = native_issue,
    .repeat = native_repeat,
    .issue_standing = standing_issue,
    .stand_back = standing_drop,
    .wait_short = native_wait_short,
    .may_not_start = may_not_start,
    .start = start,
    .wait = native_stream_wait,
    .messages = native_stream_messages,
    .group = native_stream_group,
    .is_device_memory = native_is_device_memory,
    .joined = joined,
    .drop = drop,
    .step = step,
    .tend = tend,
    .active = active,
    .since = native_since,
};

const struct comm_part native_part = {
    .name = "native",
    .nap = nap,
    .open = open,
    .connect = connect,
    .leave = leave,
    .failing = failing,
};
