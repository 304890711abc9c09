/*
 * The life of a window. Its creation is one exchange of tickets, which is an operation of the queue. A ticket tells where a rank's part is
 * and whether it could be created, so either all ranks get the window or none does. A fence, and the free, are exchanges without data that
 * carry the window's number.
 */
#include "rma/queue.h"

#include "base/format.h"
#include "fastpath/wait.h"

#include <string.h>

enum { CLOSE_LOOK_NS = 1000000 };
enum { PAGE = 4096, WINDOW_FREES = 1 /* part of a fence's fingerprint, together with the number */ };

static const struct wire_memory_class *class_of(const struct comm_state *b)
{
    return b->channel->memory;
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static size_t window_bytes(int32_t size)
{
    return sizeof(struct comm_window) + (size_t)size * (sizeof(struct window_ticket) + sizeof(struct window_part));
}

/* keep: peers may not know yet that the window has ended. b NULL: the communicator has closed, and only heap memory is left. */
static void give(struct comm_state *b, const struct comm_window *w, void *at, size_t bytes, bool keep)
{
    if (at && w->heap)
        w->env->give(w->env, at, bytes);
    else if (at)
        class_of(b)->give(b->channel->wire, at, keep);
}

static void drop_memory(struct comm_state *b, struct comm_window *w, bool keep)
{
    give(b, w, w->memory, w->memory_bytes, keep);
    give(b, w, w->control, w->control_bytes, keep);
    w->memory = w->control = NULL;
}

static void drop(struct comm_state *b, struct comm_window *w, bool keep)
{
    drop_memory(b, w, keep);
    w->env->give(w->env, w, window_bytes(w->size));
}

static void unlink_from(struct comm_state *b, const struct comm_window *w)
{
    struct comm_window **link = &b->rma.windows;

    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
}

static void *take(struct comm_state *b, const struct comm_window *w, size_t bytes, enum comm_placement placement)
{
    if (!w->heap)
        return class_of(b)->take(b->channel->wire, bytes, (enum wire_placement)placement);
    return b->unit.engine->env->take(b->unit.engine->env, bytes, PAGE);
}

/* The address that peers can use for it. A team of one rank has no peers. */
static uint64_t where_is(struct comm_state *b, const void *at, size_t bytes)
{
    uint64_t where = (uint64_t)(uintptr_t)at;

    if (!bytes || b->team.size == 1)
        return where;
    if (class_of(b) && b->world->rank < 0)
        return where; /* ranks of one process can address everything, unless they simulate several hosts */
    return class_of(b) && class_of(b)->where(b->channel->wire, at, bytes, &where) ? where : WINDOW_NOWHERE;
}

static enum comm_result make_part(struct comm_state *b, struct comm_window *w, size_t bytes, const struct comm_window_options *options)
{
    struct window_ticket *mine = &w->mine;

    *mine = (struct window_ticket){.bytes = bytes, .signals = options->signals};
    w->heap = !class_of(b);
    w->own = options->base;
    w->control_bytes = sizeof(struct window_control) + options->signals * sizeof(uint64_t);
    w->control = take(b, w, w->control_bytes, COMM_PLACEMENT_DEFAULT);
    if (w->control && bytes && !w->own) {
        w->memory_bytes = bytes;
        w->own = w->memory = take(b, w, bytes, options->placement);
    }
    if (!w->control || (bytes && !w->own) || (b->team.size > 1 && !links_open(b)))
        return COMM_ERR_MEMORY;
    mine->control = where_is(b, w->control, w->control_bytes);
    mine->part = where_is(b, w->own, bytes);
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ creation */
static void *reach(struct comm_state *b, int32_t rank, uint64_t where)
{
    if (b->world->rank < 0)
        return (void *)(uintptr_t)where;
    return class_of(b)->reach(b->channel, rank, where);
}

static struct window_part part_of(struct comm_state *b, const struct comm_window *w, int32_t rank)
{
    const struct window_ticket *t = &w->all[rank];
    struct window_part part = {.bytes = t->bytes, .signals = t->signals, .first = P2P_NONE, .last = P2P_NONE};

    if (rank == b->team.rank) {
        part.at = t->bytes ? w->own : NULL;
        part.control = w->control;
    } else if (t->part != WINDOW_NOWHERE && t->control != WINDOW_NOWHERE) {
        part.at = t->bytes ? reach(b, rank, t->part) : NULL;
        part.control = reach(b, rank, t->control);
    }
    part.apart = !part.control;
    return part;
}

/* Records why there is no window; the text is the same on every rank. */
static void tell(struct comm_state *b, int32_t rank, enum comm_result result)
{
    struct comm_error *d = &b->failure.last_refused;

    *d = (struct comm_error){.size = sizeof *d, .result = result, .rank = rank, .peer = -1, .sequence = b->sequence};
    base_copy_text(d->operation, sizeof d->operation, collective_name(COLLECTIVE_WINDOW));
    base_copy_text(d->cause, sizeof d->cause, "a rank has no part to give");
    base_format(d->text, sizeof d->text, "comm_window_create: rank %d: %s", rank, base_result_text(result));
}

static enum comm_result made(struct comm_state *b, struct comm_window *w)
{
    for (int32_t r = 0; r < w->size; r++) {
        const struct window_ticket *t = &w->all[r];
        if (t->result != COMM_OK) {
            tell(b, r, (enum comm_result)t->result);
            return (enum comm_result)t->result;
        }
        w->part[r] = part_of(b, w, r);
        w->apart |= w->part[r].apart || t->part == WINDOW_NOWHERE || t->control == WINDOW_NOWHERE;
    }
    w->apart &= w->size > 1;
    return COMM_OK;
}

/* While such windows exist, peers may send requests at any time. They are served even if no thread here waits (serve.c). */
static void count_apart(struct comm_state *b, const struct comm_window *w, bool there)
{
    uint32_t before = b->rma.apart;

    b->rma.apart += w->apart ? (there ? 1 : UINT32_MAX) : 0;
    if (!before == !b->rma.apart)
        return;
    if (b->wire->urge)
        b->wire->urge(b->channel, there);
    engine_note_apart(b->unit.engine, b->index, there);
}

static enum comm_result made_at(struct comm_state *b, enum entry_phase phase, void *arg)
{
    struct comm_window *w = arg;

    if (phase == ENTRY_ENDED)
        return (enum comm_result)(w->mine.result = made(b, w));
    if (phase == ENTRY_DROPPED || w->mine.result != COMM_OK) {
        unlink_from(b, w);
        drop(b, w, phase == ENTRY_DROPPED);
        return COMM_OK;
    }
    w->making = false;
    count_apart(b, w, true);
    *w->out = w;
    return COMM_OK;
}

static struct comm_window *make(struct comm_state *b, struct comm_window **out)
{
    const struct comm_env *env = b->unit.engine->env;
    struct comm_window *w = env->take(env, window_bytes(b->team.size), 64);

    if (!w)
        return NULL;
    *w = (struct comm_window){.comm = b->unit.handle,
                              .env = env,
                              .size = b->team.size,
                              .rank = b->team.rank,
                              .number = b->sequence + 1,
                              .making = true,
                              .out = out};
    atomic_store_explicit(&w->state, b, memory_order_relaxed);
    w->part = (struct window_part *)(void *)(w + 1);
    w->all = (struct window_ticket *)(void *)(w->part + w->size);
    return w;
}

static enum comm_result create(struct comm_state *b, size_t bytes, const struct comm_window_options *options, struct comm_window **out,
                               struct comm_request *req)
{
    struct engine_call call = {.collective = COLLECTIVE_WINDOW, .type = COMM_BYTE, .root = -1, .n = sizeof(struct window_ticket)};
    struct comm_window *w = make(b, out);

    if (!w)
        return state_refuse(b, &call, COMM_ERR_MEMORY);
    w->mine.result = (int32_t)make_part(b, w, bytes, options);
    call.in = &w->mine;
    call.out = w->all;
    call.read = (struct timeline_range){(uintptr_t)&w->mine, (uintptr_t)(&w->mine + 1)};
    call.write = (struct timeline_range){(uintptr_t)w->all, (uintptr_t)(w->all + w->size)};
    w->next = b->rma.windows; /* a peer that gets the window earlier may already send requests for it */
    b->rma.windows = w;
    enum comm_result r = state_issue(b, &call, made_at, w, req);
    if (r != COMM_OK) {
        unlink_from(b, w);
        drop(b, w, false);
    }
    return r;
}

enum comm_result engine_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                      struct comm_window **w, struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct comm_state *b = state_lock(c, &r);

    if (b) {
        r = b->recording.plan ? COMM_ERR_STATE : state_ready_for_calls(b);
        if (r == COMM_OK)
            r = create(b, bytes, options, w, &own);
        if (!b->recording.plan)
            state_settle(b);
        state_leave(b);
    }
    return engine_answer(r, own, req);
}

/* ------------------------------------------------------------------------------------------------------------ use */
/* Locks the communicator, if the window still has one. A closed handle may belong to another communicator by now. */
static struct comm_state *lock(struct comm_window *w, enum comm_result *why)
{
    struct comm_state *mine = atomic_load_explicit(&w->state, memory_order_acquire), *b;

    *why = COMM_ERR_CLOSED;
    if (!mine)
        return NULL;
    b = state_lock(w->comm, why);
    if (b && b != mine) {
        state_unlock(b);
        *why = COMM_ERR_CLOSED;
        return NULL;
    }
    return b;
}

static enum comm_result issue_fence(struct comm_state *b, struct comm_window *w, uint32_t flags, struct comm_request *req)
{
    /* A fence transfers no bytes, but it needs an address: without one, a view would be returned. */
    struct engine_call call = {
        .collective = COLLECTIVE_WINDOW, .type = COMM_BYTE, .in = &w->mine, .out = w->all, .root = (int32_t)w->number, .site = flags};
    enum comm_result r = state_ready_for_calls(b);

    if (r == COMM_OK)
        r = state_issue(b, &call, NULL, NULL, req);
    if (r != COMM_OK)
        return r;
    w->fence = b->line.next - 1;
    state_entry(b, w->fence)->window = w;
    return COMM_OK;
}

enum comm_result engine_window_fence(struct comm_window *w, struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct comm_state *b = lock(w, &r);

    if (b) {
        r = issue_fence(b, w, 0, &own);
        state_settle(b);
        state_leave(b);
    }
    return engine_answer(r, own, req);
}

enum comm_result engine_one_sided(struct comm_window *w, const struct one_sided *one, struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct comm_state *b = lock(w, &r);

    if (b) {
        bool device = b->library_work.flags && (state_is_device_memory(b, one->from) || state_is_device_memory(b, one->to) ||
                                                state_is_device_memory(b, one->expected));
        if (device)
            r = COMM_ERR_UNSUPPORTED; /* windows are in host memory, and so are the buffers of their calls */
        else
            r = b->failed ? (enum comm_result)b->failure.cause.result : p2p_one_sided(b, one, &own);
        state_settle(b);
        state_leave(b);
    }
    return engine_answer(r, own, req);
}

struct comm_communicator *engine_window_comm(const struct comm_window *w)
{
    return atomic_load_explicit(&w->state, memory_order_acquire) ? w->comm : NULL;
}

int32_t engine_window_size(const struct comm_window *w)
{
    return w->size;
}

int32_t engine_window_rank(const struct comm_window *w)
{
    return w->rank;
}

void *engine_window_part(const struct comm_window *w, int32_t peer, size_t *bytes, uint32_t *signals)
{
    *bytes = w->part[peer].bytes;
    *signals = w->part[peer].signals;
    return w->part[peer].at;
}

bool engine_window_apart(const struct comm_window *w, int32_t peer)
{
    return w->part[peer].apart;
}

/* ------------------------------------------------------------------------------------------------------------ the end */
/* Tries once more if there was no room: waiting for the queue makes room. */
static enum comm_result last_fence(struct comm_window *w, struct comm_request *req)
{
    enum comm_result r;

    for (int tries = 0; tries < 2; tries++) {
        struct comm_state *b = lock(w, &r);
        if (!b)
            return r;
        r = issue_fence(b, w, WINDOW_FREES, req);
        state_settle(b);
        state_unlock(b);
        if (r != COMM_ERR_FULL)
            return r;
        (void)engine_wait(engine_last(w->comm), COMM_FOREVER); /* comm_sync would take an error that the program has not seen */
    }
    return r;
}

/* Neither this rank's calls nor the service for its peers touch the memory any more. */
static bool rests(void *arg)
{
    struct comm_window *w = arg;
    enum comm_result r;
    struct comm_state *b = lock(w, &r);
    bool rests = !b || b->failed || (links_rest(b, w) && !p2p_holds_window(b, w, UINT64_MAX));

    if (b)
        state_unlock(b);
    return rests;
}

/* True inside a callback of the window's engine, also inside one that its communicator's close runs. */
static bool in_callback(struct comm_window *w)
{
    struct comm_communicator *c = w->comm;

    base_home_visit(&c->lock, c->env);
    struct comm_state *b = atomic_load_explicit(&w->state, memory_order_acquire);
    bool inside = b && state_of(c) == b && engine_in_callback(b->unit.engine); /* otherwise it has ended, or no callback runs any more */
    base_home_unlock(&c->lock, c->env);
    return inside;
}

/* The communicator cannot be locked: it was closed, or another thread is closing it. Until that has ended, the window is in its list, and
 * what is unfinished there may use the window's memory. */
static void await_close(struct comm_window *w)
{
    _Atomic uint32_t never = 0;

    while (atomic_load_explicit(&w->state, memory_order_acquire))
        w->env->park(w->env, &never, 0, w->env->now(w->env) + CLOSE_LOOK_NS);
}

/* Ends the window on all ranks, and waits until nothing uses its memory. */
static enum comm_result end_everywhere(struct comm_window *w)
{
    struct comm_request last = COMM_REQUEST_NONE;
    enum comm_result r;
    struct comm_state *b = lock(w, &r);

    if (!b)
        return r;
    struct engine *e = b->unit.engine;
    engine_hold(e);
    state_unlock(b);
    r = last_fence(w, &last);
    r = r == COMM_OK ? engine_wait(last, COMM_FOREVER) : r;
    if (w->apart)
        (void)engine_move_until(e, NULL, rests, w, ENGINE_NEVER); /* bounded by the deadline of the calls */
    engine_drop(e);
    return r;
}

enum comm_result engine_window_free(struct comm_window *w)
{
    enum comm_result r, locked;

    if (engine_alive(w->comm) != COMM_OK) /* in a forked child: the window is the parent's */
        return COMM_ERR_FORKED;
    if (in_callback(w))
        return COMM_ERR_STATE;
    r = end_everywhere(w);
    struct comm_state *b = lock(w, &locked);
    if (b) {
        p2p_forget_window(b, w, r == COMM_OK ? COMM_ERR_CANCELLED : r);
        unlink_from(b, w);
        count_apart(b, w, false);
        drop(b, w, r != COMM_OK);
        state_settle(b);
        state_unlock(b);
    } else {
        await_close(w);
        drop(NULL, w, true);
    }
    return r;
}

void windows_leave(struct comm_state *b)
{
    for (struct comm_window *w = b->rma.windows; w; w = w->next)
        if (!w->heap)
            drop_memory(b, w, true);
}

/* Another thread may free each window from then on (await_close). */
void windows_close(struct comm_state *b)
{
    for (struct comm_window *w = b->rma.windows, *next; w; w = next) {
        next = w->next;
        atomic_store_explicit(&w->state, NULL, memory_order_release);
    }
    b->rma.windows = NULL;
}
