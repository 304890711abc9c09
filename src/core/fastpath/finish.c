/*
 * Completion of small exchanges: the arrival of bytes, the result, and the waits. A wait polls the lines itself, and longer only if each
 * rank has a CPU.
 */
#include "fastpath/fastpath.h"

#include "base/fetch.h"
#include "comm/state.h"

#include <string.h>

enum { FETCH_AHEAD = 8, SAME_TIME = 8 };
enum { WAIT_TURNS = 400, WAIT_EAGER_TURNS = 64, WAIT_YIELDS = 32, WAIT_FETCH_BYTES = 16384 };

/* ------------------------------------------------------------------------------------------------------------ arrival */
static inline enum wire_result glance(struct comm_state *b, const struct call_template *f, uint32_t seq, uint32_t chain, uint32_t rank,
                                      struct wire_view *view)
{
    struct wire_look look;
    look.key = wire_key_of(seq, 0, 0);
    look.fingerprint = chain;
    look.edge = WIRE_ONCE | WIRE_TO_ALL;
    look.flags = WIRE_WORK | WIRE_GLANCE;
    look.peer = rank;
    look.rounds = 0;
    look.land = NULL;
    look.bytes = f->came[rank];
    look.cookie = 0;
    look.view = view;
    return b->wire->view(b->channel, &look);
}

static inline void copy_few(char *to, const char *from, size_t bytes)
{
    if (bytes == sizeof(uint64_t))
        memcpy(to, from, sizeof(uint64_t));
    else if (bytes && to != from)
        memcpy(to, from, bytes);
}

static inline enum wire_result land_few(struct comm_state *b, const struct fastpath_span *take, void *out, uint32_t seq, uint32_t chain,
                                        uint32_t rank)
{
    const void *at;
    enum wire_result seen = b->wire->see(b->channel, wire_key_of(seq, 0, take->edge), chain ^ take->mark, rank, take->bytes, &at);

    if (seen != WIRE_DONE)
        return seen;
    if (BASE_UNLIKELY(b->channel->caps.dirties && take->bytes > b->channel->caps.inline_max))
        data_take((char *)((uintptr_t)out + take->at), (void *)(uintptr_t)at, take->bytes, false);
    else
        copy_few((char *)((uintptr_t)out + take->at), at, take->bytes);
    return seen;
}

static __attribute__((noinline)) enum wire_result land_pair(struct comm_state *b, const struct call_template *f, void *out, uint32_t seq,
                                                            uint32_t chain, uint32_t rank)
{
    const struct fastpath_span *take = &f->takes[rank];
    struct wire_look look = {.key = wire_key_of(seq, 0, take->edge),
                             .fingerprint = chain ^ take->mark,
                             .edge = take->kind,
                             .flags = WIRE_WORK | WIRE_GLANCE,
                             .peer = rank,
                             .land =
                                 take->bytes ? (char *)out + take->at : (void *)&b->fastpath->from[rank], /* NULL would not be landing */
                             .bytes = take->bytes};

    return b->wire->view(b->channel, &look);
}

/* Have the bytes of these ranks come for the oldest operation? What came is kept. */
static inline enum wire_result all_here(struct comm_state *b, const struct call_template *f, uint32_t of, void *out, uint32_t seq,
                                        uint32_t chain)
{
    struct fastpath *x = b->fastpath;

    for (uint32_t ranks = of & ~x->seen; ranks; ranks &= ranks - 1) {
        struct wire_view view;
        uint32_t r = (uint32_t)__builtin_ctz(ranks);
        enum wire_result result = f->few            ? b->wire->see(b->channel, wire_key_of(seq, 0, 0), chain, r, f->came[r], &x->from[r])
                                  : f->takes[r].few ? land_few(b, &f->takes[r], out, seq, chain, r)
                                  : f->pairs        ? land_pair(b, f, out, seq, chain, r)
                                                    : glance(b, f, seq, chain, r, &view);
        if (result != WIRE_DONE) {
            x->missed = b->line.done + 1;
            x->lacks = r;
            return result;
        }
        x->seen |= 1u << r;
        if (!f->pairs && !f->few)
            x->from[r] = view.at;
    }
    return WIRE_DONE;
}

/* The same if this rank shows a value that it must compute from others first, and other ranks wait for it. FAILED: no memory for its
 * place. */
static __attribute__((noinline)) enum wire_result all_here_later(struct comm_state *b, const struct call_template *f, struct entry *e,
                                                                 const void *in, uint32_t seq, uint32_t chain)
{
    struct fastpath *x = b->fastpath;
    uint32_t self = 1u << b->team.rank;

    if (e->unshown) {
        enum wire_result result = all_here(b, f, f->first, NULL, seq, chain);
        if (result != WIRE_DONE)
            return result;
        if (!(x->seen & self))
            fastpath_make_total(b, f, in);
        x->seen |= self;
        result = b->wire->show(b->channel, wire_key_of(seq, 0, 0), chain, x->total, f->shown);
        e->unshown = result != WIRE_DONE;
        x->owes |= result == WIRE_DONE;
        if (result == WIRE_FAILED)
            return result;
    }
    return all_here(b, f, f->looked, NULL, seq, chain);
}

static inline enum wire_result come(struct comm_state *b, const struct call_template *f, struct entry *e, const void *in, void *out,
                                    uint32_t seq, uint32_t chain)
{
    return BASE_UNLIKELY(f->later) ? all_here_later(b, f, e, in, seq, chain) : all_here(b, f, f->looked, out, seq, chain);
}

enum wire_result fastpath_come(struct comm_state *b, const struct call_template *f, struct entry *e, const void *in, void *out,
                               uint32_t seq, uint32_t chain)
{
    return come(b, f, e, in, out, seq, chain);
}

/* ------------------------------------------------------------------------------------------------------------ completion */
static inline void make_result(struct comm_state *b, struct call_template *f, const void *in, char *out)
{
    struct fastpath *x = b->fastpath;

    if (BASE_UNLIKELY(f->totals)) {
        fastpath_make_prefix(b, f, in, out);
        return;
    }
    x->from[b->team.rank] = in;
    if (f->elements) {
        for (uint32_t r = 0; f->at && r < f->ways; r++)
            x->from[r] = (const char *)x->from[r] + f->at;
        f->sum.to = out;
        f->sum.is_plain = x->is_plain;
        f->reduce(&f->sum);
    }
    for (uint32_t parts = f->copied; parts; parts &= parts - 1) {
        uint32_t r = (uint32_t)__builtin_ctz(parts);
        copy_few((char *)((uintptr_t)out + f->to[r]), (const char *)((uintptr_t)x->from[r] + f->at), f->length[r]);
    }
    if (BASE_UNLIKELY(f->dirties)) /* from the start of what the peer shows; a reduction has moved `from` on */
        data_dirty((char *)(uintptr_t)x->from[!b->team.rank] - (f->elements ? f->at : 0), f->dirties);
}

void fastpath_make_result(struct comm_state *b, struct call_template *f, const void *in, void *out)
{
    make_result(b, f, in, out);
}

/* Completes the oldest operation, after its bytes have come. `release` later tells the peers that the lines are free, for several
 * operations at once. */
static inline void finish(struct comm_state *b, uint64_t ticket, struct entry *e, int64_t now)
{
    struct call_template *f = e->template;

    make_result(b, f, e->call.in, e->call.out);
    b->fastpath->seen = 0;
    b->fastpath->owes |= !f->mutual;
    state_record(b, &e->record, ticket, now, COMM_OK);
    timeline_retire_oldest(&b->line, &e->head);
}

static inline void release(struct comm_state *b, uint64_t ticket, uint32_t seq)
{
    b->reported.done = ticket;
    if (b->team.size > 1)
        b->wire->release(b->channel, seq, NULL);
}

/* Prefetches lines of later operations, which travel while the oldest one completes. */
static inline void fetch_ahead(struct comm_state *b, uint64_t oldest)
{
    struct fastpath *x = b->fastpath;
    uint64_t to = oldest + FETCH_AHEAD - 1 < x->last ? oldest + FETCH_AHEAD - 1 : x->last;

    if (x->fetched < oldest)
        x->fetched = oldest;
    while (x->fetched < to) {
        const struct entry *e = state_entry(b, ++x->fetched);
        fastpath_fetch(b, e->template, e->seq, false);
    }
}

/* `come` for an operation on the straight path: few bytes, in the peers' lines or next to them. The bytes next to a line are prefetched
 * before each look. If the look then finds the line, those bytes are there too, and a rank that both shows and looks seldom looks too
 * early. */
static inline enum wire_result come_straight(struct comm_state *b, struct entry *e)
{
    struct fastpath *x = b->fastpath;
    const struct call_template *f = e->template;

    for (uint32_t left = f->looked & ~x->seen; left; left &= left - 1) {
        uint32_t r = (uint32_t)__builtin_ctz(left);
        if (f->beside >> r & 1)
            b->wire->fetch(b->channel, wire_key_of(e->seq, 0, 0), r, f->came[r]);
        enum wire_result here = b->wire->see(b->channel, wire_key_of(e->seq, 0, 0), e->chain, r, f->came[r], &x->from[r]);
        if (here != WIRE_DONE) {
            x->lacks = r;
            return here;
        }
        x->seen |= 1u << r;
    }
    return WIRE_DONE;
}

/* Records why the oldest operation cannot end yet. */
static __attribute__((noinline)) void note_lack(struct comm_state *b, struct entry *e, enum wire_result here)
{
    struct fastpath *x = b->fastpath;

    if (here == WIRE_AGAIN)
        e->record.waited = (uint16_t)(x->lacks + 1);
    else if (here == WIRE_MISMATCH)
        state_mismatch(b, e->seq, (int32_t)x->lacks);
    else if (here == WIRE_FAILED)
        state_propose_own(b, e, COMM_ERR_MEMORY, 0);
}

/* Completes operations whose bytes have come, oldest first. The clock is read once for several, because the bytes of queued operations have
 * usually been there for longer than it takes to complete them. */
bool fastpath_poll(struct comm_state *b)
{
    struct fastpath *x = b->fastpath;
    uint64_t done = b->line.done, waits = x->waits;
    int64_t now = x->looked_ns;
    uint32_t ended = 0, seq = 0;
    struct entry *e = NULL;
    enum wire_result here = WIRE_DONE;

    if (BASE_UNLIKELY(waits))
        fastpath_show_waiting(b);
    x->owes |= x->waits != waits;
    while (fastpath_pending(b)) {
        uint64_t oldest = b->line.done + 1;
        e = state_entry(b, oldest);
        const struct call_template *f = e->template;
        if (x->last != oldest)
            fetch_ahead(b, oldest);
        bool straight = f->straight && f->few;
        here = BASE_LIKELY(straight) ? come_straight(b, e) : come(b, f, e, e->call.in, e->call.out, e->seq, e->chain);
        if (here != WIRE_DONE || e->unshown | e->unread)
            break;
        if (!now || ++ended % SAME_TIME == 0)
            now = b->unit.engine->env->now(b->unit.engine->env);
        seq = e->seq;
        finish(b, oldest, e, now);
        if (!f->mutual)
            release(b, oldest, seq);
    }
    if (b->line.done != done)
        release(b, b->line.done, seq);
    if (here != WIRE_DONE)
        note_lack(b, e, here);
    if (b->line.done == done && x->waits == waits)
        return false;
    engine_wake_if_asleep(b->unit.engine);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ waiting */
/* Returns the state, locked, if the request is unfinished work. A recorder has none. */
static inline struct comm_state *hold_pending(struct comm_request request)
{
    struct comm_communicator *handle = request.comm;

    if (!base_home_trylock(&handle->lock, handle->env))
        return NULL;
    struct comm_state *b = atomic_load_explicit(&handle->state, memory_order_relaxed);
    if (b && request.ticket > b->line.done && request.ticket < b->line.next)
        return b;
    base_home_unlock(&handle->lock, handle->env);
    return NULL;
}

static inline bool is_exchange(const struct comm_state *b, uint64_t ticket)
{
    return ticket <= b->fastpath->last && !b->failed;
}

/* The same if it is a fast-path operation. */
static inline struct comm_state *hold(struct comm_request request)
{
    struct comm_state *b = hold_pending(request);

    if (!b || is_exchange(b, request.ticket))
        return b;
    state_unlock(b);
    return NULL;
}

static __attribute__((noinline)) bool wait_on_library(struct comm_state *b, uint64_t ticket)
{
    bool ended = b->library && b->library->wait_short(b, ticket);

    if (BASE_UNLIKELY(b->failed != b->reported.failed))
        state_settle(b); /* others may wait for what has failed here */
    state_unlock(b);
    return ended;
}

static inline bool let_go(struct comm_state *b, uint64_t ticket)
{
    bool ended = b->line.done >= ticket;

    if ((ended && b->line.done + 1 != b->line.next && !fastpath_pending(b)) || BASE_UNLIKELY(b->failed != b->reported.failed))
        state_settle(b); /* later entries may start now, or others wait for what has failed */
    else if (b->fastpath->owes)
        fastpath_flush(b);
    state_unlock(b);
    return ended;
}

/* There are more ranks than CPUs, so the others need this CPU. While they have it, this thread holds no lock. The caller holds the
 * engine. */
bool fastpath_wait_in_turn(struct engine *engine, struct comm_request request)
{
    int64_t now = 0;

    for (int turn = 0; turn < WAIT_YIELDS; turn++) {
        struct comm_state *b = hold(request);
        if (!b)
            return timeline_peek(request) != COMM_PENDING;
        const struct entry *e = state_entry(b, b->line.done + 1);
        fastpath_fetch(b, e->template, e->seq, false);
        fastpath_poll(b);
        if (let_go(b, request.ticket))
            return true;
        if (!engine_yield(engine, &now))
            return false;
    }
    return false;
}

/* Over a network there is time, while the peers' bytes are in flight, to bring the memory of the result into the cache. */
static void fetch_result(const struct comm_state *b)
{
    const struct entry *e = state_entry(b, b->line.done + 1);
    size_t bytes = e->template->writes < WAIT_FETCH_BYTES ? e->template->writes : WAIT_FETCH_BYTES;

    for (size_t at = 0; at < bytes; at += 64)
        base_fetch_to_write((const char *)e->call.out + at);
}

/* A look right after one that found nothing would take the line away while its writer is writing it. So read the clock in between. That
 * time then also serves as the completion time, exact to one look, and no other clock read is needed. */
static inline void look_later(struct comm_state *b, int turn)
{
    const struct comm_env *env = b->unit.engine->env;

    if (turn == 0 && b->channel->traffic)
        fetch_result(b);
    if (turn >= WAIT_EAGER_TURNS)
        env->relax(env, false);
    b->fastpath->looked_ns = env->now(env);
}

/* fastpath_poll for an operation that took the straight path alone, without the cases that cannot occur then. */
static inline bool poll_straight(struct comm_state *b, struct entry *e, uint64_t ticket)
{
    struct fastpath *x = b->fastpath;
    enum wire_result here = come_straight(b, e);

    if (here != WIRE_DONE) {
        e->record.waited = (uint16_t)(x->lacks + 1);
        return here != WIRE_AGAIN && fastpath_poll(b); /* which reports the error */
    }
    finish(b, ticket, e, x->looked_ns ? x->looked_ns : b->unit.engine->env->now(b->unit.engine->env));
    release(b, ticket, e->seq);
    engine_wake_if_asleep(b->unit.engine);
    return true;
}

static inline void wait_straight(struct comm_state *b, uint64_t ticket)
{
    struct entry *e = state_entry(b, ticket);

    for (int turn = 0; turn < WAIT_TURNS && !b->failed && !poll_straight(b, e, ticket); turn++)
        look_later(b, turn);
}

/* Polls the oldest operations until this one ends. Long ones may fill all the room, so that peers wait for operations that end here. So
 * flush before going on. */
static inline void wait_among_others(struct comm_state *b, uint64_t ticket)
{
    struct fastpath *x = b->fastpath;
    bool is_long = state_entry(b, ticket)->template->shown > b->channel->caps.inline_max;

    for (int turn = 0; turn < WAIT_TURNS && fastpath_pending(b) && b->line.done < ticket; turn++)
        if (!fastpath_poll(b))
            look_later(b, turn);
        else if (is_long || x->waits || x->owes)
            fastpath_flush(b);
}

/*
 * Waits briefly, under the communicator's lock, as long as a peer that called at the same time may need. If ranks outnumber CPUs, that peer
 * may not even be running. Then the caller, which holds the engine, waits in turns (fastpath_wait_in_turn).
 */
bool fastpath_wait(struct comm_request request)
{
    struct comm_state *b = hold_pending(request);
    if (!b)
        return false;
    if (!is_exchange(b, request.ticket))
        return wait_on_library(b, request.ticket);
    struct fastpath *x = b->fastpath;
    if (b->unit.engine->oversubscribed) { /* once: the peer may have run before */
        (void)fastpath_poll(b);
        return let_go(b, request.ticket);
    }
    x->is_plain = data_float_is_plain();
    if (BASE_LIKELY(x->straight == request.ticket && b->line.next == request.ticket + 1))
        wait_straight(b, request.ticket);
    else
        wait_among_others(b, request.ticket);
    x->looked_ns = 0;
    x->is_plain = false;
    return let_go(b, request.ticket);
}
