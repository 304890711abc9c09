/* Points: an event holds one, and a queue wait copies it. */
#include "timeline/timeline.h"

struct timeline_manual *timeline_manual_make(const struct comm_env *env)
{
    struct timeline_manual *manual = env->take(env, sizeof *manual, 64);

    if (!manual)
        return NULL;
    manual->env = env;
    atomic_store_explicit(&manual->references, 1, memory_order_relaxed);
    atomic_store_explicit(&manual->state, COMM_PENDING, memory_order_release);
    return manual;
}

struct timeline_point timeline_point_copy(const struct timeline_point *point)
{
    if (point->kind == POINT_MANUAL)
        atomic_fetch_add_explicit(&point->manual->references, 1, memory_order_relaxed);
    return *point;
}

void timeline_point_drop(struct timeline_point *point)
{
    struct timeline_manual *manual = point->kind == POINT_MANUAL ? point->manual : NULL;

    *point = (struct timeline_point){0};
    if (manual && atomic_fetch_sub_explicit(&manual->references, 1, memory_order_acq_rel) == 1)
        manual->env->give(manual->env, manual, sizeof *manual);
}

enum comm_result timeline_point_test(const struct timeline_point *point)
{
    switch (point->kind) {
    case POINT_REQUEST:
        return timeline_peek(point->request);
    case POINT_MANUAL:
        return (enum comm_result)atomic_load_explicit(&point->manual->state, memory_order_acquire);
    case POINT_WORD:
        return atomic_load_explicit(point->word, memory_order_acquire) >= point->value ? COMM_OK : COMM_PENDING;
    case POINT_REACHED:
        break;
    }
    return COMM_OK;
}

void timeline_point_settle(struct timeline_point *point, const struct comm_communicator *c)
{
    if (point->kind != POINT_REQUEST || point->request.comm != c)
        return;
    enum comm_result r = timeline_point_test(point);
    if (r != COMM_PENDING)
        *point = (struct timeline_point){.kind = POINT_REQUEST, .request = timeline_refusal(r)};
}
