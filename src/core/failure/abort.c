/* comm_abort and comm_revoke: the program itself fails a communicator, or every communicator of a world. */
#include "failure/failure.h"

#include "comm/state.h"

static void fail_by_call(struct comm_state *b, const struct cause *how)
{
    struct cause cause = *how;

    cause.rank = cause.peer = b->team.rank;
    cause.number = b->sequence;
    state_propose(b, &cause);
    state_settle(b);
}

enum comm_result engine_revoke(struct comm_communicator *c)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    if (b->recording.plan)
        r = COMM_ERR_STATE;
    else
        fail_by_call(b, &(struct cause){.result = COMM_ERR_REVOKED});
    state_unlock(b);
    return r;
}

/* Aborts the world even if nothing of it is left that could fail. */
static void abort_by_call(struct comm_state *b, int32_t code)
{
    struct cause cause = {.rank = b->team.rank, .result = COMM_ERR_ABORTED, .code = code};

    fail_by_call(b, &cause); /* first: ranks of this process that see the abort mark would choose causes of their own */
    state_mark_abort(b, &cause);
    state_end_recovery(b);
}

static struct world *world_of(struct comm_communicator *c, struct engine **e, int32_t *rank, enum comm_result *r)
{
    struct comm_state *b = state_lock(c, r);
    struct world *w = b ? b->world : NULL;

    if (b) {
        *e = b->unit.engine;
        *rank = b->team.world ? b->team.world[b->team.rank] : -1;
        engine_hold(*e);
        state_unlock(b);
    }
    return w;
}

enum comm_result engine_abort(struct comm_communicator *c, int32_t code)
{
    enum comm_result r;
    struct engine *e = NULL;
    int32_t rank = -1;
    struct world *w = world_of(c, &e, &rank, &r);

    if (!w)
        return r;
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;
    for (uint32_t i = 0; i < most; i++) {
        struct comm_state *b = state_at(e, i);
        if (!b)
            continue;
        if (b->world == w && b->team.world[b->team.rank] == rank) /* each rank of a process fails only its own communicators */
            abort_by_call(b, code);
        state_unlock(b);
    }
    engine_drop(e);
    return COMM_OK;
}

void abort_spread(struct engine *e)
{
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;

    for (uint32_t i = 0; i < most; i++) {
        struct comm_state *b = state_at(e, i);
        if (!b)
            continue;
        if (state_is_aborted(b)) {
            b->guest = true;
            state_step(b); /* first process its last notes */
            state_hear_abort(b);
            state_settle(b);
            b->guest = false;
        }
        state_unlock(b);
    }
}
