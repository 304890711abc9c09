/* Ranks that meet by the program's own exchange, and each way in which that fails. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/guest.h"

#include "net/boot/exchange.h"
#include "wire/table.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum broken { EXCHANGE_FAILS, EXCHANGE_SWAPS, EXCHANGE_FORGETS, EXCHANGE_OF_ANOTHER_SIZE };

static int exchange(void *arg, const void *in, size_t bytes, void *out)
{
    char *all = out;

    memset(all, 0, 2 * bytes);
    switch (*(const enum broken *)arg) {
    case EXCHANGE_FAILS:
        return 1;
    case EXCHANGE_SWAPS:
        memcpy(all + bytes, in, bytes);
        memcpy(all, in, bytes);
        return 0;
    case EXCHANGE_OF_ANOTHER_SIZE: {
        int32_t three = 3;
        memcpy(all, in, bytes);
        memcpy(all + 12, &three, sizeof three);
        return 0;
    }
    default:
        memcpy(all, in, bytes);
        return 0;
    }
}

static void broken_exchange(void **state)
{
    static const struct {
        enum comm_result result;
        const char *text;
    } expected[] = {{COMM_ERR_BACKEND, "exchange failed"},
                    {COMM_ERR_CONFIG, "rank 0's bytes in rank 1's place"},
                    {COMM_ERR_CONFIG, "rank 1's is of another version, or was never written"},
                    {COMM_ERR_CONFIG, "rank 0 opens a world of 3 ranks, rank 0 one of 2"}};
    static const struct base_log quiet = {.level = 0, .rank = -1};

    (void)state;
    for (int i = 0; i < 4; i++) {
        enum broken how = (enum broken)i;
        char said[300] = "";
        struct wire_boot *boot = NULL;
        struct boot_config config = {.env = wire_default_env(),
                                     .log = &quiet,
                                     .ranks = 2,
                                     .job = "j",
                                     .exchange = exchange,
                                     .exchange_arg = &how,
                                     .error_text = said,
                                     .error_text_bytes = sizeof said};
        enum comm_result r = boot_exchange_open(&config, NULL, COMM_OK, &boot);
        if (r != expected[i].result || !strstr(said, expected[i].text))
            fail_msg("case %d: %d \"%s\"", i, (int)r, said);
        assert_null(boot);
    }
}

/* A program's exchange for two ranks that are threads: each waits until both have called. */
struct both {
    pthread_barrier_t here;
    char all[2 * 1024];
};
struct side {
    struct both *both;
    int32_t rank;
    bool over_tcp;
    enum comm_result result;
    char text[300];
};

static int exchange_of_both(void *arg, const void *in, size_t bytes, void *out)
{
    const struct side *side = arg;
    struct both *both = side->both;

    assert_true(bytes <= sizeof both->all / 2);
    memcpy(both->all + (size_t)side->rank * bytes, in, bytes);
    pthread_barrier_wait(&both->here);
    memcpy(out, both->all, 2 * bytes);
    return 0;
}

static int no_random(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    (void)memory;
    (void)bytes;
    return -1;
}

extern const struct boot_class boot_unix; /* as src/core/wire/table.c names it */

static void *open_without_random(void *arg)
{
    static const struct base_log quiet = {.level = 0, .rank = -1};
    struct side *side = arg;
    struct comm_env env = *wire_default_env();
    struct wire_boot *boot = NULL;

    if (side->rank == 0)
        env.random = no_random;
    struct boot_config config = {.env = &env,
                                 .log = &quiet,
                                 .rank = side->rank,
                                 .ranks = 2,
                                 .job = "j",
                                 .deadline = env.now(&env) + 10 * SECOND,
                                 .exchange = exchange_of_both,
                                 .exchange_arg = side,
                                 .error_text = side->text,
                                 .error_text_bytes = sizeof side->text};
    side->result = side->over_tcp ? boot_exchange_open(&config, NULL, COMM_OK, &boot) : boot_unix.open(&config, &boot);
    return NULL;
}

/* Opens both sides, of which rank 0 fails. It must say so inside the exchange: a rank that stays away leaves the others waiting in it. */
static void open_both(bool over_tcp, const char *text)
{
    struct both both;
    struct side side[2] = {{.both = &both, .rank = 0, .over_tcp = over_tcp}, {.both = &both, .rank = 1, .over_tcp = over_tcp}};
    pthread_t thread[2];

    pthread_barrier_init(&both.here, NULL, 2);
    alarm(30); /* no wait inside the exchange has a limit */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_without_random, &side[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    alarm(0);
    for (int i = 0; i < 2; i++)
        if (side[i].result != COMM_ERR_SYSTEM || !strstr(side[i].text, text))
            fail_msg("rank %d: %d \"%s\"", i, (int)side[i].result, side[i].text);
    pthread_barrier_destroy(&both.here);
}

static void no_randomness_for_a_name(void **state)
{
    (void)state;
    open_both(false, "no randomness for the name of the meeting");
}

static void no_randomness_for_a_secret(void **state)
{
    (void)state;
    open_both(true, "no randomness for the meeting");
}

/* What fails before: here the secret. */
struct guarded {
    struct side side;
    const char *secret;
};

extern const struct boot_class boot_tcp;

static void *open_guarded(void *arg)
{
    static const struct base_log quiet = {.level = 0, .rank = -1};
    struct guarded *g = arg;
    struct wire_boot *boot = NULL;
    const struct comm_env *env = wire_default_env();
    struct boot_config config = {.env = env,
                                 .log = &quiet,
                                 .rank = g->side.rank,
                                 .ranks = 2,
                                 .job = "j",
                                 .deadline = env->now(env) + 10 * SECOND,
                                 .exchange = exchange_of_both,
                                 .exchange_arg = &g->side,
                                 .secret = g->secret,
                                 .secret_bytes = strlen(g->secret),
                                 .error_text = g->side.text,
                                 .error_text_bytes = sizeof g->side.text};
    g->side.result = boot_tcp.open(&config, &boot);
    return NULL;
}

static void a_secret_that_is_too_short(void **state)
{
    struct both both;
    struct guarded g[2] = {{{.both = &both, .rank = 0}, "0123456789abcdef"}, {{.both = &both, .rank = 1}, "short"}};
    pthread_t thread[2];

    (void)state;
    pthread_barrier_init(&both.here, NULL, 2);
    alarm(30);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_guarded, &g[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    alarm(0);
    for (int i = 0; i < 2; i++)
        if (g[i].side.result != COMM_ERR_CONFIG || !strstr(g[i].side.text, "config.secret_bytes=5") ||
            (strncmp(g[i].side.text, "rank 1: ", 8) == 0) != (i == 0))
            fail_msg("rank %d: %d \"%s\"", i, (int)g[i].side.result, g[i].side.text);
    pthread_barrier_destroy(&both.here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_exchange),
        cmocka_unit_test(no_randomness_for_a_name),
        cmocka_unit_test(no_randomness_for_a_secret),
        cmocka_unit_test(a_secret_that_is_too_short),
    };

    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    wire_default_env()->start(wire_default_env());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
