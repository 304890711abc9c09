/*
 * The production faces, in this unit so that a run can begin with none: they are the one list of a process, and here every rank would share
 * it with all others and with earlier runs. Each rank's are kept by its env; what remains shared is the lock of the list, so no thread
 * gives way while it holds that. Their memory is counted apart: it is never given back.
 */
#define timeline_face_take plain_face_take
#define timeline_face_give plain_face_give
#define timeline_slot_open plain_slot_open
#define timeline_except plain_except
#include "timeline/face.c"
#undef timeline_face_take
#undef timeline_face_give
#undef timeline_slot_open
#undef timeline_except

#include "sim/inside.h"

struct comm_communicator *timeline_face_take(const struct comm_env *env, void *body);
void timeline_face_give(struct comm_communicator *face);
uint64_t timeline_slot_open(struct comm_communicator *face, uint32_t index);
void timeline_except(struct comm_communicator *face, uint64_t ticket, enum comm_result result);

/* held: of the one lock that all ranks share here. */
static void enter(bool held)
{
    sim.held = held;
    sim.current->in_face = true;
}

static void leave(void)
{
    sim.held = false;
    sim.current->in_face = false;
}

void sim_forget_faces(void)
{
    faces.oldest = faces.newest = NULL;
    atomic_store(&faces.lock.word, 0);
    atomic_store(&faces.lock.waiters, 0);
}

struct comm_communicator *timeline_face_take(const struct comm_env *env, void *body)
{
    enter(true);
    struct comm_communicator *face = plain_face_take(env, body);
    leave();
    return face;
}

void timeline_face_give(struct comm_communicator *face)
{
    enter(true);
    plain_face_give(face);
    leave();
}

uint64_t timeline_slot_open(struct comm_communicator *face, uint32_t index)
{
    enter(false);
    uint64_t ticket = plain_slot_open(face, index);
    leave();
    return ticket;
}

void timeline_except(struct comm_communicator *face, uint64_t ticket, enum comm_result result)
{
    enter(false);
    plain_except(face, ticket, result);
    leave();
}
