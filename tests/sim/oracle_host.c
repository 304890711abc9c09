/* The host of every rank: which of its actions may pass, and what each of them does besides issuing. */
#include "sim/oracle_machine.h"

#include <string.h>

static bool line_done(const struct oracle *o, int32_t comm, int32_t rank, int32_t serial)
{
    const struct oracle_line *line = &o->line[comm][rank];
    return line->head < 0 || o->entry[line->head].serial > serial;
}

bool oracle_point_reached(const struct oracle *o, const struct oracle_point *point, int32_t rank)
{
    switch (point->kind) {
    case ORACLE_REQUEST:
        return o->left[point->of] == 0;
    case ORACLE_MARKER:
        return line_done(o, point->of, rank, point->serial);
    case ORACLE_GATE:
        return o->gate[point->of];
    default:
        return true;
    }
}

/* ------------------------------------------------------------------------------------------------------------ the host */
/* A plan or group without an action of this rank: its request is the null request, which a wait for any request skips. */
static bool stands_for_nothing(const struct oracle *o, int32_t index)
{
    const struct random_action *a = &o->program->action[index];
    for (int32_t i = 0; random_starts(a->verb) && i < o->owns[a->rank]; i++) {
        const struct random_action *b = &o->program->action[o->own[a->rank][i]];
        if (b->plan == a->plan && b->verb <= RANDOM_RECV && !random_starts(b->verb) && b->comm == a->comm)
            return false;
    }
    return random_starts(a->verb);
}

static bool any_done(const struct oracle *o, int32_t rank, int32_t upto, bool all)
{
    int32_t seen = 0, live = 0, done = 0;
    for (int32_t i = o->at[rank] - 1; i >= 0 && seen < upto; i--) {
        int32_t index = o->own[rank][i];
        const struct random_action *a = &o->program->action[index];
        bool none = (a->flags & RANDOM_NOBODYS) != 0;
        if (!none && (!random_issues(a) || (a->flags & RANDOM_NO_REQUEST)))
            continue;
        seen++;
        if (none && !all)
            return true; /* it might have been this one: host_any does not wait either */
        if (none || stands_for_nothing(o, index))
            continue;
        live++;
        done += o->left[index] == 0;
    }
    return all ? done == live : done > 0 || live == 0;
}

/* Whether a message that such a receive would match has been sent. */
static bool announced(const struct oracle *o, const struct random_action *a)
{
    for (int32_t i = 0; i < o->entries; i++) {
        const struct oracle_entry *e = &o->entry[i];
        const struct random_action *b = oracle_action(o, e);
        if (e->kind == ORACLE_SEND && e->state == ORACLE_STARTED && e->comm == a->comm && b->peer == a->rank && b->tag == a->tag)
            return true;
    }
    return false;
}

static void cancel(struct oracle *o, int32_t target)
{
    for (int32_t i = 0; i < o->entries; i++) {
        struct oracle_entry *e = &o->entry[i];
        if (e->issue != target || e->state == ORACLE_DONE)
            continue;
        e->state = ORACLE_DONE;
        o->left[target]--;
        o->line[e->comm][e->rank].messages--;
    }
}

static bool host_fence(struct oracle *o, int32_t index)
{
    const struct random_action *a = &o->program->action[index];
    struct oracle_point point = o->event[a->rank][a->event];
    if (a->verb == RANDOM_WAIT_REQUEST) {
        int32_t target = random_find(o->program, a->target, a->rank, index);
        if (target < 0)
            return true;
        point = (struct oracle_point){ORACLE_REQUEST, target, 0};
    }
    if (o->line[a->comm][a->rank].work + 1 > o->program->queue)
        return false;
    o->left[index] = 0;
    oracle_put(o, index, index, point);
    return true;
}

static void host_event(struct oracle *o, int32_t index)
{
    const struct random_action *a = &o->program->action[index];
    struct oracle_point *event = &o->event[a->rank][a->event];
    bool shut = event->kind == ORACLE_GATE && !o->gate[event->of];
    switch (a->verb) {
    case RANDOM_RECORD:
        *event = (struct oracle_point){ORACLE_MARKER, a->comm, o->line[a->comm][a->rank].serial};
        break;
    case RANDOM_RESET:
        if (o->gates == RANDOM_ACTIONS / 4) {
            oracle_wrong(o, index, "too many gates");
            return;
        }
        o->gate[o->gates] = false;
        *event = (struct oracle_point){ORACLE_GATE, o->gates++, 0};
        break;
    case RANDOM_SET:
        if (shut)
            o->gate[event->of] = true;
        else
            oracle_wrong(o, index, "set without reset");
        return;
    default:
        *event = (struct oracle_point){ORACLE_REACHED, 0, 0};
        break;
    }
    if (shut)
        oracle_wrong(o, index, "a gate that nobody opened is gone");
}

/* A step of buckets has its places from the beginning, but none of its operations need start before all ranks have
 * reached its end. */
static bool host_buckets(struct oracle *o, int32_t index)
{
    const struct random_action *a = &o->program->action[index];
    struct oracle_line *line = &o->line[a->comm][a->rank];
    int32_t begun = a->verb == RANDOM_BUCKETS ? index : random_find(o->program, a->id, a->rank, index);
    const struct oracle_point none = {ORACLE_REACHED, 0, 0};
    if (begun < 0) {
        oracle_wrong(o, index, "no such step");
        return true;
    }
    int32_t places = oracle_places(&o->program->action[begun]);
    if (a->verb == RANDOM_BUCKETS) {
        line->work += places;
        o->left[index] = 0;
        return true;
    }
    if (o->left[index] >= 0)
        return o->left[index] == 0;
    if (line->work > o->program->queue)
        return false;
    line->work -= places;
    o->left[index] = 0;
    oracle_put(o, begun, index, none);
    return false;
}

static void host_fill(const struct oracle *o, int32_t rank, const struct random_action *a, struct oracle_memory *memory)
{
    struct random_range range = random_touched(a, &o->comms).write;
    oracle_fill_range(memory->arena[rank][a->type], o->program, a);
    memset(memory->known[rank][a->type] + range.from, 1, (size_t)(range.to - range.from));
    oracle_forget_spoiled(memory, rank, a->type);
}

bool oracle_host_step(struct oracle *o, int32_t rank, struct oracle_memory *memory)
{
    int32_t index = o->own[rank][o->at[rank]], target;
    const struct random_action *a = &o->program->action[index];
    const struct oracle_line *line = &o->line[a->comm][rank];
    switch (a->verb) {
    case RANDOM_RECORD:
    case RANDOM_RESET:
    case RANDOM_SET:
    case RANDOM_RENEW:
        host_event(o, index);
        return true;
    case RANDOM_WAIT_EVENT:
    case RANDOM_WAIT_REQUEST:
        return host_fence(o, index);
    case RANDOM_HOST_WAIT:
        target = random_find(o->program, a->target, rank, index);
        return target < 0 || o->left[target] == 0;
    case RANDOM_HOST_ANY:
        return any_done(o, rank, a->n, a->flags & RANDOM_ALL);
    case RANDOM_EVENT_SYNC:
        return oracle_point_reached(o, &o->event[rank][a->event], rank);
    case RANDOM_HOST_LAST:
    case RANDOM_SYNC:
        for (int32_t c = 0; c < RANDOM_COMMS && (a->flags & RANDOM_ALL); c++) {
            if (!line_done(o, c, rank, o->line[c][rank].serial))
                return false;
        }
        return line_done(o, a->comm, rank, line->serial);
    case RANDOM_CLOSE:
        if (!line_done(o, a->comm, rank, line->serial))
            return false;
        o->line[a->comm][rank].closed = true;
        return true;
    case RANDOM_CANCEL:
        target = random_find(o->program, a->target, rank, index);
        if (target >= 0)
            cancel(o, target);
        return true;
    case RANDOM_PROBE:
        return announced(o, a);
    case RANDOM_FILL:
        if (memory)
            host_fill(o, rank, a, memory);
        return true;
    case RANDOM_BUCKETS:
    case RANDOM_BUCKETS_WAIT:
        return host_buckets(o, index);
    case RANDOM_SUBSET:
    case RANDOM_SHRINK:
    case RANDOM_AGREE:
    case RANDOM_WINDOW_FREE:
        if (o->left[index] < 0 && !oracle_issue(o, index))
            return false;
        return (random_issues(a) && !(a->flags & RANDOM_NO_REQUEST)) || o->left[index] == 0;
    default:
        return !random_issues(a) || oracle_issue(o, index);
    }
}
