/* A wait for a small exchange: it looks at the lines itself, and for longer only where ranks have a CPU each. */
#include "engine/body.h"

#include "base/fetch.h"

enum { WAIT_TURNS = 400, WAIT_EAGER_TURNS = 64, WAIT_YIELDS = 32, WAIT_FETCH_BYTES = 16384 };

/* The body, locked, while this request is one of ours and unfinished. */
static inline struct body *hold(struct comm_request request)
{
    struct comm_communicator *face = request.comm;

    if (!base_home_trylock(&face->lock, face->env))
        return NULL;
    struct body *b = atomic_load_explicit(&face->body, memory_order_relaxed);
    if (b && express_pending(b) && request.ticket <= b->express.last && !b->failed)
        return b;
    base_home_unlock(&face->lock, face->env);
    return NULL;
}

static inline bool let_go(struct body *b, uint64_t ticket)
{
    bool ended = b->line.done >= ticket;

    if (ended && b->line.done + 1 != b->line.next && !express_pending(b))
        body_settle(b); /* what stood behind it may start */
    else if (b->express.owes)
        express_flush(b);
    body_unlock(b);
    return ended;
}

/* More ranks than CPUs: the others need this one. Nothing is held while they have it but the engine, by whoever called this. */
bool express_wait_in_turn(struct engine *engine, struct comm_request request)
{
    int64_t now = 0;

    for (int turn = 0; turn < WAIT_YIELDS; turn++) {
        struct body *b = hold(request);
        if (!b)
            return timeline_test(request) != COMM_PENDING;
        const struct entry *e = body_entry(b, b->line.done + 1);
        express_fetch(b, e->form, e->seq);
        express_poll(b);
        if (let_go(b, request.ticket))
            return true;
        if (!engine_yield(engine, &now))
            return false;
    }
    return false;
}

/* Over a network there is time, while the others' bytes are on their way, to have the result's memory near: it will be written at once. */
static void fetch_result(const struct body *b)
{
    const struct entry *e = body_entry(b, b->line.done + 1);
    size_t bytes = e->form->writes < WAIT_FETCH_BYTES ? e->form->writes : WAIT_FETCH_BYTES;

    for (size_t at = 0; at < bytes; at += 64)
        base_fetch_to_write((const char *)e->call.out + at);
}

/*
 * Waits for it a moment, under the communicator's lock: for as long as a peer that called at the same time takes. Where ranks outnumber
 * CPUs that peer may not even run: then waiting is in turns, by who holds the engine.
 */
bool express_wait(struct comm_request request)
{
    struct body *b = hold(request);
    if (!b)
        return false;
    if (b->engine->crowded) { /* once: who it waits for may have run before */
        (void)express_poll(b);
        return let_go(b, request.ticket);
    }
    const struct comm_env *env = b->engine->env;
    b->express.is_plain = data_float_is_plain();
    /* A look that comes at once after one that found nothing takes the line away just while it is being written: the clock is read in
     * between, so that nobody has to who found something, and it says when to within such a look. */
    for (int turn = 0; turn < WAIT_TURNS && express_pending(b) && b->line.done < request.ticket; turn++) {
        if (express_poll(b))
            continue;
        if (turn == 0 && b->channel->traffic)
            fetch_result(b);
        if (turn >= WAIT_EAGER_TURNS)
            env->relax(env, false);
        b->express.looked_ns = env->now(env);
    }
    b->express.looked_ns = 0;
    b->express.is_plain = false;
    return let_go(b, request.ticket);
}
