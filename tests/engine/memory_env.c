/* Wraps the default env: counts memory, and keeps a list of live blocks (memory_env.h). */
#define _GNU_SOURCE
#include "engine/memory_env.h"

#include <stdio.h>
#include <string.h>

#include "timeline/timeline.h"
#include "wire/table.h"

_Atomic uint64_t memory_takes, memory_gives, memory_fail_at, memory_fail_more, memory_failed;
_Atomic int64_t memory_held, memory_held_bytes;

static struct comm_env counting;
static const struct comm_env *machine;
static _Atomic int ready; /* 0; 1: being created; 2: ready */
static _Thread_local int in_handle;

/* The blocks held at present, for the message of a failed test. */
enum { LIVE_MOST = 8192 };
static struct live {
    void *at;
    size_t bytes;
    uint64_t number;
} live[LIVE_MOST];
static struct base_lock live_lock;

static void remember(void *at, size_t bytes, uint64_t number)
{
    base_lock(&live_lock, machine);
    for (size_t i = 0; i < LIVE_MOST; i++) {
        if (!live[i].at) {
            live[i] = (struct live){at, bytes, number};
            break;
        }
    }
    base_unlock(&live_lock, machine);
}

static void forget(const void *at, size_t bytes)
{
    base_lock(&live_lock, machine);
    for (size_t i = 0; i < LIVE_MOST; i++) {
        if (live[i].at == at) {
            if (live[i].bytes != bytes)
                fprintf(stderr, "take %llu: %zu bytes taken, %zu given\n", (unsigned long long)live[i].number, live[i].bytes, bytes);
            live[i].at = NULL;
            break;
        }
    }
    base_unlock(&live_lock, machine);
}

void memory_tell(void)
{
    for (size_t i = 0; i < LIVE_MOST; i++)
        if (live[i].at)
            fprintf(stderr, "take %llu: %zu bytes not given back\n", (unsigned long long)live[i].number, live[i].bytes);
}

static void *count_take(const struct comm_env *env, size_t bytes, size_t align)
{
    uint64_t number = atomic_fetch_add(&memory_takes, 1) + 1, fail = atomic_load(&memory_fail_at);

    (void)env;
    if (fail && number >= fail && number <= fail + atomic_load(&memory_fail_more)) {
        atomic_fetch_add(&memory_failed, 1);
        return NULL;
    }
    void *memory = machine->take(machine, bytes, align);
    if (memory && !in_handle) {
        atomic_fetch_add(&memory_held, 1);
        atomic_fetch_add(&memory_held_bytes, (int64_t)bytes);
        remember(memory, bytes, number);
    }
    return memory;
}

static void count_give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    if (!memory)
        return;
    atomic_fetch_add(&memory_gives, 1);
    forget(memory, bytes);
    atomic_fetch_sub(&memory_held, 1);
    atomic_fetch_sub(&memory_held_bytes, (int64_t)bytes);
    memset(memory, 0xdb, bytes < 4096 ? bytes : 4096); /* makes a use after free visible */
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

struct comm_communicator *__real_timeline_handle_take(const struct comm_env *env, void *state);
struct comm_communicator *__wrap_timeline_handle_take(const struct comm_env *env, void *state);
struct comm_communicator *__wrap_timeline_handle_take(const struct comm_env *env, void *state)
{
    in_handle++;
    struct comm_communicator *handle = __real_timeline_handle_take(env, state);
    in_handle--;
    return handle;
}

uint64_t __real_timeline_slot_open(struct comm_communicator *handle, uint32_t index);
uint64_t __wrap_timeline_slot_open(struct comm_communicator *handle, uint32_t index);
uint64_t __wrap_timeline_slot_open(struct comm_communicator *handle, uint32_t index)
{
    in_handle++;
    uint64_t ticket = __real_timeline_slot_open(handle, index);
    in_handle--;
    return ticket;
}

bool __real_timeline_slots_reserve(struct comm_communicator *handle, uint32_t count);
bool __wrap_timeline_slots_reserve(struct comm_communicator *handle, uint32_t count);
bool __wrap_timeline_slots_reserve(struct comm_communicator *handle, uint32_t count)
{
    in_handle++;
    bool reserved = __real_timeline_slots_reserve(handle, count);
    in_handle--;
    return reserved;
}

void __real_timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told);
void __wrap_timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told);
void __wrap_timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told)
{
    in_handle++;
    __real_timeline_except(handle, ticket, result, told);
    in_handle--;
}
