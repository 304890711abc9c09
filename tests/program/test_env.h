/* The smallest env that programs need: zeroed memory, counted. */
#ifndef TESTS_PROGRAM_ENV_H
#define TESTS_PROGRAM_ENV_H

#include "base/env.h"

#include <stdlib.h>
#include <string.h>

static size_t test_env_taken;   /* bytes taken now */
static long test_env_left = -1; /* number of takes that still succeed; negative: all */

static inline void *test_take(const struct comm_env *env, size_t bytes, size_t align)
{
    void *memory = NULL;
    (void)env;
    if (test_env_left == 0 || posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1))
        return NULL;
    test_env_left -= test_env_left > 0;
    test_env_taken += bytes;
    return memset(memory, 0, bytes);
}

static inline void test_give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    test_env_taken -= bytes;
    free(memory);
}

static const struct comm_env test_env = {.name = "test", .take = test_take, .give = test_give};

#endif
