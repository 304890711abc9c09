/* The work queue: tickets, window, conflicts, queue waits, retiring in order. */
#include "timeline/timeline.h"

#include <string.h>

enum { FIRST_CAPACITY = 64 };

enum comm_result timeline_open(struct timeline *line, const struct comm_env *env, struct comm_communicator *handle, uint32_t entry_bytes,
                               uint32_t window, uint32_t capacity_max)
{
    BASE_ASSERT(capacity_max && !(capacity_max & (capacity_max - 1)));
    *line = (struct timeline){
        .env = env, .handle = handle, .entry_bytes = entry_bytes, .window = window, .ahead = window, .capacity_max = capacity_max};
    line->capacity = capacity_max < FIRST_CAPACITY ? capacity_max : FIRST_CAPACITY;
    line->next = handle->first;
    line->started = line->done = handle->first - 1;
    line->entries = env->take(env, (size_t)line->capacity * entry_bytes, 64);
    return line->entries ? COMM_OK : COMM_ERR_MEMORY;
}

void timeline_close(struct timeline *line)
{
    env_give_back(line->env, line->entries, (size_t)line->capacity * line->entry_bytes);
    line->entries = NULL;
}

bool timeline_reserve(struct timeline *line, uint64_t count)
{
    uint64_t capacity = line->capacity, wanted = line->next - line->done - 1 + count;
    size_t bytes = line->entry_bytes;

    while (capacity < wanted)
        capacity *= 2;
    if (capacity == line->capacity)
        return true;
    unsigned char *entries = capacity > line->capacity_max ? NULL : line->env->take(line->env, capacity * bytes, 64);
    if (!entries)
        return false;
    for (uint64_t t = line->done + 1; t < line->next; t++)
        memcpy(entries + (t & (capacity - 1)) * bytes, timeline_entry(line, t), bytes);
    line->env->give(line->env, line->entries, line->capacity * bytes);
    line->entries = entries;
    line->capacity = (uint32_t)capacity;
    return true;
}

static bool conflict(const struct timeline_range *old_read, const struct timeline_range *old_write, const struct timeline_range *read,
                     const struct timeline_range *write)
{
    return timeline_meet(old_write, read) || timeline_meet(old_write, write) || timeline_meet(old_read, write);
}

bool timeline_conflict(const struct timeline_entry *entry, const struct timeline_range *read, const struct timeline_range *write)
{
    bool meets = conflict(&entry->read, &entry->write, read, write), one = !entry->parts;

    for (uint32_t i = 0; meets && i < entry->parts && !one; i++)
        one = conflict(&entry->part[i].read, &entry->part[i].write, read, write);
    return meets && one;
}

static bool entries_conflict(const struct timeline_entry *old, const struct timeline_entry *e)
{
    bool meets = timeline_conflict(old, &e->read, &e->write), one = !e->parts;

    for (uint32_t i = 0; meets && i < e->parts && !one; i++)
        one = timeline_conflict(old, &e->part[i].read, &e->part[i].write);
    return meets && one;
}

static bool conflicts_with_started(const struct timeline *line, uint64_t ticket, const struct timeline_entry *e)
{
    if (!conflict(&line->started_read, &line->started_write, &e->read, &e->write))
        return false;
    for (uint64_t t = line->done + 1; t <= line->started; t++) {
        const struct timeline_entry *old = timeline_entry(line, t);
        bool one_call = timeline_first(old, t) == timeline_first(e, ticket);
        if (old->state != TIMELINE_ENDED && !one_call && entries_conflict(old, e))
            return true;
    }
    return false;
}

uint64_t timeline_startable(const struct timeline *line)
{
    uint64_t ticket = line->started + 1;

    if (ticket >= line->next || ticket - line->done > line->ahead || line->holding)
        return 0;
    const struct timeline_entry *e = timeline_entry(line, ticket);
    if (e->kind == TIMELINE_BARRIER && line->done != line->started)
        return 0;
    if (e->kind == TIMELINE_WORK && line->done != line->started && conflicts_with_started(line, ticket, e))
        return 0;
    return ticket;
}

void timeline_pass_wait(struct timeline *line, struct timeline_entry *wait)
{
    BASE_ASSERT(wait->kind == TIMELINE_QUEUE_WAIT && wait->state == TIMELINE_QUEUED);
    wait->kind = TIMELINE_PASSED;
    wait->result = COMM_OK;
    line->waits_issued--;
}

void timeline_fail(struct timeline *line, enum comm_result cause)
{
    struct comm_communicator *handle = line->handle;

    BASE_ASSERT(atomic_load_explicit(&handle->failed, memory_order_relaxed) == UINT64_MAX);
    atomic_store_explicit(&handle->result, cause, memory_order_release);
    atomic_store_explicit(&handle->failed, line->done + 1, memory_order_release);
    line->holding = line->waits_issued = 0;
    line->alone = 0;
    line->queued_read = line->queued_write = (struct timeline_range){0, 0};
    line->started_read = line->started_write = (struct timeline_range){0, 0};
}

bool timeline_holds(const struct timeline *line, uint64_t ticket, const struct timeline_range *read, const struct timeline_range *write)
{
    if (line->done + 1 == line->next)
        return false;
    if (!line->waits_issued && !line->alone && !conflict(&line->queued_read, &line->queued_write, read, write) &&
        !conflict(&line->started_read, &line->started_write, read, write))
        return false;
    for (uint64_t t = line->done + 1; t < ticket && t < line->next; t++) {
        const struct timeline_entry *e = timeline_entry(line, t);
        if (e->state != TIMELINE_ENDED && (e->kind == TIMELINE_QUEUE_WAIT || timeline_conflict(e, read, write)))
            return true;
    }
    return false;
}
