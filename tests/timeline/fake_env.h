/* The least env that a timeline needs: memory that counts and may run out, and locks that nobody contends for. */
#ifndef TESTS_TIMELINE_FAKE_ENV_H
#define TESTS_TIMELINE_FAKE_ENV_H

#include "base/env.h"

#include <stdlib.h>
#include <string.h>

static long fake_held;      /* blocks taken and not given */
static long fake_left = -1; /* takes that still succeed; negative: all */
static _Atomic uint32_t fake_alive = 1;

static void *fake_take(const struct comm_env *env, size_t bytes, size_t align)
{
    void *memory = NULL;

    (void)env;
    if (fake_left == 0 || posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes))
        return NULL;
    fake_left -= fake_left > 0;
    fake_held++;
    return memset(memory, 0, bytes);
}

static void fake_give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    memset(memory, 0xdb, bytes); /* the size is told right, and nothing reads it any more: sanitizers would see */
    fake_held--;
    free(memory);
}

static void fake_relax(const struct comm_env *env, bool yield)
{
    (void)env;
    (void)yield;
}

static void fake_park(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    (void)env;
    (void)word;
    (void)seen;
    (void)deadline;
    abort(); /* one thread: a lock is never contended for */
}

static const struct comm_env fake_env = {
    .name = "fake", .alive = &fake_alive, .relax = fake_relax, .park = fake_park, .take = fake_take, .give = fake_give};

#endif
