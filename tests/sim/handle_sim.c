/*
 * The production handles, compiled here so that a run can begin without any. They are a process's only list, which
 * every rank would otherwise share with all others and with earlier runs. Each rank's handles are kept in its env. The
 * lock of the list is still shared, so no thread yields while it holds that lock. Their memory is counted separately:
 * it is never freed.
 */
#define timeline_handle_take plain_handle_take
#define timeline_handle_give plain_handle_give
#define timeline_slot_open plain_slot_open
#define timeline_slots_reserve plain_slots_reserve
#define timeline_except plain_except
#include "timeline/handle.c"
#undef timeline_handle_take
#undef timeline_handle_give
#undef timeline_slot_open
#undef timeline_slots_reserve
#undef timeline_except

#include "sim/inside.h"

struct comm_communicator *timeline_handle_take(const struct comm_env *env, void *body);
void timeline_handle_give(struct comm_communicator *handle);
uint64_t timeline_slot_open(struct comm_communicator *handle, uint32_t index);
bool timeline_slots_reserve(struct comm_communicator *handle, uint32_t count);
void timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told);

/* held: whether the lock that all ranks share here is held. */
static void enter(bool held)
{
    sim.held = held;
    sim.current->in_handle = true;
}

static void leave(void)
{
    sim.held = false;
    sim.current->in_handle = false;
}

void sim_forget_handles(void)
{
    handles.oldest = handles.newest = NULL;
    atomic_store(&handles.lock.word, 0);
    atomic_store(&handles.lock.waiters, 0);
}

struct comm_communicator *timeline_handle_take(const struct comm_env *env, void *body)
{
    enter(true);
    struct comm_communicator *handle = plain_handle_take(env, body);
    leave();
    return handle;
}

void timeline_handle_give(struct comm_communicator *handle)
{
    enter(true);
    plain_handle_give(handle);
    leave();
}

uint64_t timeline_slot_open(struct comm_communicator *handle, uint32_t index)
{
    enter(false);
    uint64_t ticket = plain_slot_open(handle, index);
    leave();
    return ticket;
}

bool timeline_slots_reserve(struct comm_communicator *handle, uint32_t count)
{
    enter(false);
    bool reserved = plain_slots_reserve(handle, count);
    leave();
    return reserved;
}

void timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told)
{
    enter(false);
    plain_except(handle, ticket, result, told);
    leave();
}
