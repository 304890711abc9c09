#define _GNU_SOURCE
#include "engine/memory_env.h"

#include <stdlib.h>
#include <string.h>

#include "timeline/timeline.h"
#include "wire/table.h"

_Atomic uint64_t memory_takes, memory_gives, memory_fail_at, memory_fail_more, memory_failed;
_Atomic int64_t memory_held, memory_held_bytes;

static struct comm_env counting;
static const struct comm_env *machine;
static _Atomic int ready; /* 0, 1: being made, 2 */
static _Thread_local int in_face;

static void *count_take(const struct comm_env *env, size_t bytes, size_t align)
{
    uint64_t number = atomic_fetch_add(&memory_takes, 1) + 1, fail = atomic_load(&memory_fail_at);

    (void)env;
    if (fail && number >= fail && number <= fail + atomic_load(&memory_fail_more)) {
        atomic_fetch_add(&memory_failed, 1);
        return NULL;
    }
    void *memory = machine->take(machine, bytes, align);
    if (memory && !in_face) {
        atomic_fetch_add(&memory_held, 1);
        atomic_fetch_add(&memory_held_bytes, (int64_t)bytes);
    }
    return memory;
}

static void count_give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    if (!memory)
        return;
    atomic_fetch_add(&memory_gives, 1);
    atomic_fetch_sub(&memory_held, 1);
    atomic_fetch_sub(&memory_held_bytes, (int64_t)bytes);
    memset(memory, 0xdb, bytes < 4096 ? bytes : 4096); /* who still looks sees it */
    machine->give(machine, memory, bytes);
}

const struct comm_env *__real_wire_default_env(void);
const struct comm_env *__wrap_wire_default_env(void);
const struct comm_env *__wrap_wire_default_env(void)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&ready, &none, 1)) {
        machine = __real_wire_default_env();
        counting = *machine;
        counting.take = count_take;
        counting.give = count_give;
        atomic_store(&ready, 2);
    }
    while (atomic_load(&ready) != 2)
        continue;
    return &counting;
}

struct comm_communicator *__real_timeline_face_take(const struct comm_env *env, void *body);
struct comm_communicator *__wrap_timeline_face_take(const struct comm_env *env, void *body);
struct comm_communicator *__wrap_timeline_face_take(const struct comm_env *env, void *body)
{
    in_face++;
    struct comm_communicator *face = __real_timeline_face_take(env, body);
    in_face--;
    return face;
}

uint64_t __real_timeline_slot_open(struct comm_communicator *face, uint32_t index);
uint64_t __wrap_timeline_slot_open(struct comm_communicator *face, uint32_t index);
uint64_t __wrap_timeline_slot_open(struct comm_communicator *face, uint32_t index)
{
    in_face++;
    uint64_t ticket = __real_timeline_slot_open(face, index);
    in_face--;
    return ticket;
}

void __real_timeline_except(struct comm_communicator *face, uint64_t ticket, enum comm_result result);
void __wrap_timeline_except(struct comm_communicator *face, uint64_t ticket, enum comm_result result);
void __wrap_timeline_except(struct comm_communicator *face, uint64_t ticket, enum comm_result result)
{
    in_face++;
    __real_timeline_except(face, ticket, result);
    in_face--;
}
