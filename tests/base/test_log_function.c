/* The log with a function of the program's: the order of its lines, and what a world that closes does about a function that does not
 * return. */
#define _GNU_SOURCE
#include "base/cases.h"

#include "conform/rig.h"
#include "base/log.h"
#include "net/posix/posix.h"

#include <pthread.h>
#include <stdio.h>

static const struct comm_env *const env = &env_posix;
enum { FLOOD = 4000 };

static struct {
    _Atomic int count, dropped, broken, inside, let_go;
    _Atomic long last[4];
} heard;

/* "THREAD NUMBER" */
static void hear(void *arg, int level, const char *line)
{
    int thread, number;

    (void)level;
    if (arg != &heard) {
        atomic_store(&heard.broken, 1);
    } else if (sscanf(line, "commstream: %d lines dropped", &number) == 1) {
        atomic_fetch_add(&heard.dropped, number);
    } else if (sscanf(line, "%d %d", &thread, &number) == 2) {
        if (number <= atomic_exchange(&heard.last[thread], number))
            atomic_store(&heard.broken, 1);
        atomic_fetch_add(&heard.count, 1);
    }
}

static void *write_many(void *arg)
{
    char line[32];

    for (int i = 1; i <= FLOOD; i++) {
        snprintf(line, sizeof line, "%d %d", (int)(intptr_t)arg, i);
        env->log.write(env, hear, &heard, LOG_INFO, line);
    }
    return NULL;
}

RIG_CASE(log_lines_of_many_threads_keep_their_order)
{
    pthread_t threads[4];

    CHECK(env->start(env) == 0 && env->log.start(env) == 0);
    for (intptr_t i = 0; i < 4; i++)
        EQUAL(pthread_create(&threads[i], NULL, write_many, (void *)i), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(env->log.drain(env, env->now(env) + RIG_PATIENCE));
    env->log.write(env, hear, &heard, LOG_INFO, "0 99999"); /* what was dropped at the very last is told with the next one */
    CHECK(env->log.drain(env, env->now(env) + RIG_PATIENCE));
    EQUAL(heard.broken, 0);
    EQUAL(heard.count + heard.dropped, 4 * FLOOD + 1);
}

static void stay(void *arg, int level, const char *line)
{
    (void)level;
    (void)line;
    atomic_fetch_add((_Atomic int *)arg, 1);
    atomic_store(&heard.inside, 1);
    CHECK(!env->log.drain(env, env->now(env) + RIG_PATIENCE)); /* from here it would wait for itself */
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&heard.let_go) && rig_now() < end;)
        rig_nap(RIG_MS);
}

/* What a function was not told before its world closed it never is, and a close waits no longer than it says. */
RIG_CASE(log_forgets_a_function_that_does_not_return)
{
    static _Atomic int mine;

    CHECK(env->start(env) == 0 && env->log.start(env) == 0);
    for (int i = 0; i < 3; i++)
        env->log.write(env, stay, &mine, LOG_INFO, "stays");
    while (!atomic_load(&heard.inside))
        rig_nap(RIG_MS);
    atomic_store(&heard.last[0], 0);
    env->log.write(env, hear, &heard, LOG_INFO, "0 1");
    int64_t since = rig_now();
    env->log.forget(env, stay, &mine, 20 * RIG_MS);
    CHECK(rig_now() - since < RIG_PATIENCE / 2);
    EQUAL(mine, 1);
    atomic_store(&heard.let_go, 1);
    for (int64_t end = rig_now() + RIG_PATIENCE; !env->log.drain(env, env->now(env) + RIG_S); rig_nap(RIG_MS))
        CHECK(rig_now() < end); /* nobody waits for what was waited for in vain, until it moves */
    EQUAL(mine, 1);             /* the other two were taken back ... */
    EQUAL(heard.count, 1);      /* ... and what was another's was not */
}

RIG_CASE(log_forgets_nothing_that_is_told_in_time)
{
    CHECK(env->start(env) == 0 && env->log.start(env) == 0);
    for (int i = 1; i <= 100; i++) {
        char line[32];
        snprintf(line, sizeof line, "1 %d", i);
        env->log.write(env, hear, &heard, LOG_INFO, line);
    }
    env->log.forget(env, hear, &heard, RIG_PATIENCE);
    EQUAL(heard.count, 100);
}
