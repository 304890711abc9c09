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

/* A rank of a world. The id, because the world may be closed meanwhile, and another one have its memory. */
struct seat {
    const struct world *world;
    uint64_t id;
    int32_t rank;
};

static struct seat seat_of(struct comm_communicator *c, struct engine **e, enum comm_result *r)
{
    struct comm_state *b = state_lock(c, r);

    if (!b)
        return (struct seat){NULL, 0, -1};
    struct seat seat = {b->world, b->world->id, b->team.world ? b->team.world[b->team.rank] : -1};
    *e = b->unit.engine;
    engine_hold(*e);
    state_unlock(b);
    return seat;
}

enum comm_result engine_abort(struct comm_communicator *c, int32_t code)
{
    enum comm_result r;
    struct engine *e = NULL;
    struct seat seat = seat_of(c, &e, &r);

    if (!seat.world)
        return r;
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;
    for (uint32_t i = 0; i < most; i++) {
        struct comm_state *b = state_at(e, i);
        if (!b)
            continue;
        bool same = b->world == seat.world && b->world->id == seat.id;
        if (same && b->team.world[b->team.rank] == seat.rank) /* each rank of a process fails only its own communicators */
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
