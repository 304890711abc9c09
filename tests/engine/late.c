/*
 * Warnings about late ranks come after 5, 10 and 60 s, each once, and the operation continues until its deadline. The test controls the
 * clock and moves it forward, so that a minute takes no time. A thread checks for late ranks before it sleeps, so each jump is followed by
 * a short wait.
 */
#define _GNU_SOURCE
#include "base/env.h"
#include "conform/rig.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ the clock */
static struct comm_env env;
static const struct comm_env *machine;
static _Atomic int64_t ahead;

static int64_t late_now(const struct comm_env *e)
{
    (void)e;
    return machine->now(machine) + atomic_load(&ahead);
}

static int64_t deadline_of_machine(int64_t deadline)
{
    return deadline == ENV_FOREVER ? deadline : deadline - atomic_load(&ahead);
}

static void late_park(const struct comm_env *e, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    (void)e;
    machine->park(machine, word, seen, deadline_of_machine(deadline));
}

static void late_bell_wait(const struct comm_env *e, struct env_bell *bell, int64_t deadline)
{
    (void)e;
    machine->bell_wait(machine, bell, deadline_of_machine(deadline));
}

static bool late_join(const struct comm_env *e, struct env_thread *thread, int64_t deadline)
{
    (void)e;
    return machine->join(machine, thread, deadline_of_machine(deadline));
}

const struct comm_env *__real_wire_default_env(void);
const struct comm_env *__wrap_wire_default_env(void);
const struct comm_env *__wrap_wire_default_env(void)
{
    if (!machine) { /* the first call is made before there are other threads */
        machine = __real_wire_default_env();
        env = *machine;
        env.now = late_now;
        env.park = late_park;
        env.bell_wait = late_bell_wait;
        env.join = late_join;
    }
    return &env;
}

/* ------------------------------------------------------------------------------------------------------------ warnings */
static struct {
    pthread_mutex_t lock;
    int count;
    char last[256];
} warnings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    pthread_mutex_lock(&warnings.lock);
    if (strstr(line, " is late: ")) {
        warnings.count++;
        snprintf(warnings.last, sizeof warnings.last, "%s", line);
    }
    pthread_mutex_unlock(&warnings.lock);
}

static int due(int64_t waited)
{
    return (waited >= 5 * RIG_S) + (waited >= 10 * RIG_S) + (waited >= 60 * RIG_S);
}

/*
 * Moves the clock of the world forward. A waiting thread checks for late ranks before it sleeps. On a busy machine that may take a while,
 * during which the clock continues. want: the number of warnings by then; more are allowed only if another one became due meanwhile. text:
 * the end of the last warning, after a time between the jump and now.
 */
static void at(int64_t since, int64_t ms, struct comm_request request, int want, const char *text)
{
    int count = 0, seconds = -1;
    char last[sizeof warnings.last] = "";
    const char *time;

    rig_note("%lld ms after the call", (long long)ms);
    atomic_fetch_add(&ahead, since + ms * RIG_MS - env.now(&env));
    for (int64_t end = rig_now() + RIG_PATIENCE / 2; count < want || seconds < 0; seconds = 0) {
        IS(comm_wait(request, 60 * RIG_MS), COMM_PENDING); /* longer than its patience: an oversubscribed waiter yields for up to 21 ms */
        CHECK(env.log.drain(&env, env.now(&env) + RIG_PATIENCE) && rig_now() < end);
        pthread_mutex_lock(&warnings.lock);
        count = warnings.count;
        snprintf(last, sizeof last, "%s", warnings.last);
        pthread_mutex_unlock(&warnings.lock);
    }
    int64_t waited = env.now(&env) - since;
    if (count > want + due(waited) - due(ms * RIG_MS))
        rig_die(__FILE__, __LINE__, "%d warnings, expected %d: %s", count, want, last);
    if (!text || count != want)
        return;
    time = strstr(last, "waiting for ");
    if (!time || sscanf(time, "waiting for %d s", &seconds) != 1 || seconds < ms / 1000 || seconds > waited / RIG_S || !strstr(time, text))
        rig_die(__FILE__, __LINE__, "it says: %s", last);
}

static void open_three(struct rig *rig, int64_t timeout_ns)
{
    rig_open(rig, 3, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = timeout_ns, .log = hear));
}

/* ------------------------------------------------------------------------------------------------------------ the tests */
RIG_TEST(contract_4_5_late_at_5_10_and_60_s)
{
    static const int64_t step_ms[] = {3000, 5400, 8000, 10400, 57000, 60400, 600000};
    static const int want[] = {0, 1, 1, 2, 2, 3, 3};
    static const char *const text[] = {NULL, "; not called yet by ranks: 1", NULL, "; not called yet by ranks: 1",
                                       NULL, "; not called yet by ranks: 1", NULL};
    struct comm_request q[3];
    int64_t in = 1, out[3] = {0};
    struct rig rig;
    open_three(&rig, 1800 * RIG_S);
    int64_t since = env.now(&env);
    MUST(comm_allreduce(rig.world[0], &in, &out[0], 1, COMM_I64, COMM_SUM, &q[0]));
    for (size_t i = 0; i < sizeof step_ms / sizeof *step_ms; i++)
        at(since, step_ms[i], q[0], want[i], text[i]);
    MUST(comm_allreduce(rig.world[1], &in, &out[1], 1, COMM_I64, COMM_SUM, &q[1]));
    MUST(comm_allreduce(rig.world[2], &in, &out[2], 1, COMM_I64, COMM_SUM, &q[2]));
    rig_wait_all(q, 3); /* late, but without an error */
    EQUAL(out[0], 3);
    rig_close(&rig);
}

/* A rank that did not check for a minute gets one warning, not three. The next operation gets warnings of its own. */
RIG_TEST(contract_4_5_late_is_told_once_a_look)
{
    struct comm_request q[3];
    int64_t in = 1, out[3] = {0};
    struct rig rig;
    open_three(&rig, 1800 * RIG_S);
    for (int round = 0; round < 2; round++) {
        int64_t since = env.now(&env);
        MUST(comm_allreduce(rig.world[1], &in, &out[1], 1, COMM_I64, COMM_SUM, &q[1]));
        MUST(comm_allreduce(rig.world[2], &in, &out[2], 1, COMM_I64, COMM_SUM, &q[2]));
        at(since, 70400, q[1], 2 * round + 2, "; not called yet by ranks: 0"); /* one warning for each rank in this process */
        at(since, 80000, q[2], 2 * round + 2, NULL);
        MUST(comm_allreduce(rig.world[0], &in, &out[0], 1, COMM_I64, COMM_SUM, &q[0]));
        rig_wait_all(q, 3);
    }
    rig_close(&rig);
}

RIG_TEST(contract_4_5_late_ends_with_the_deadline)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request q;
    int64_t in = 1, out = 0;
    struct rig rig;
    open_three(&rig, 20 * RIG_S);
    int64_t since = env.now(&env);
    MUST(comm_allreduce(rig.world[0], &in, &out, 1, COMM_I64, COMM_SUM, &q));
    at(since, 11400, q, 1, "; not called yet by ranks: 1 2");
    at(since, 17000, q, 1, NULL);
    atomic_fetch_add(&ahead, 3 * RIG_S);
    IS(comm_wait(q, RIG_S), COMM_ERR_TIMEOUT);
    rig_fails_within(rig.world[0], COMM_ERR_TIMEOUT, RIG_S, &error);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contract_4_5_late_at_5_10_and_60_s),
                                       cmocka_unit_test(contract_4_5_late_is_told_once_a_look),
                                       cmocka_unit_test(contract_4_5_late_ends_with_the_deadline)};

    return cmocka_run_group_tests_name("engine_late", tests, NULL, NULL);
}
