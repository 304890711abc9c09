/* Ranks that meet by the program's own exchange, and each way in which that fails. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/guest.h"

#include "net/boot/exchange.h"
#include "net/posix/interface.h"
#include "wire/table.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RESULT_AT = 24 + CRYPTO_KEY + INTERFACE_ADDRESS }; /* in a card of net/boot/exchange.c */
enum broken { EXCHANGE_FAILS, EXCHANGE_SWAPS, EXCHANGE_FORGETS, EXCHANGE_OF_ANOTHER_SIZE, EXCHANGE_OF_NO_ERROR };

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
    case EXCHANGE_OF_NO_ERROR: { /* rank 1 says that it failed, with a result that is no error */
        int32_t one = 1;
        memcpy(all, in, bytes);
        memcpy(all + bytes, in, bytes);
        memcpy(all + bytes + 8, &one, sizeof one);
        memcpy(all + bytes + RESULT_AT, &one, sizeof one);
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
                    {COMM_ERR_CONFIG, "rank 0 opens a world of 3 ranks, rank 0 one of 2"},
                    {COMM_ERR_CORRUPT, "rank 1: "}};
    static const struct base_log quiet = {.level = 0, .rank = -1};

    (void)state;
    for (int i = 0; i < 5; i++) {
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
struct lacking;
struct side {
    struct both *both;
    int32_t rank;
    const struct lacking *lacking;
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

/* This rank's first request for memory fails. */
static _Thread_local int taken;

static void *take_later(const struct comm_env *env, size_t bytes, size_t align)
{
    (void)env;
    return taken++ ? wire_default_env()->take(wire_default_env(), bytes, align) : NULL;
}

extern const struct boot_class boot_unix, boot_tcp; /* as src/core/wire/table.c names them */

enum lack { LACKS_NOTHING, LACKS_RANDOM, LACKS_MEMORY, LACKS_A_BACKEND };
static const struct lacking {
    enum lack lack;
    bool over_tcp;
    int32_t rank;
    enum comm_result result;
    const char *own, *others;
} lacking[] = {
    {LACKS_RANDOM, false, 0, COMM_ERR_SYSTEM, "no randomness for the name of the meeting", "rank 0 cannot open (COMM_ERR_SYSTEM)"},
    {LACKS_RANDOM, true, 0, COMM_ERR_SYSTEM, "no randomness for the meeting", "rank 0: no randomness for the meeting"},
    {LACKS_MEMORY, false, 0, COMM_ERR_MEMORY, "no memory to meet 2 ranks", "rank 0 cannot open (COMM_ERR_MEMORY)"},
    {LACKS_MEMORY, false, 1, COMM_ERR_MEMORY, "no memory to meet 2 ranks", "rank 1 cannot open (COMM_ERR_MEMORY)"},
    {LACKS_MEMORY, true, 0, COMM_ERR_MEMORY, "no memory to meet 2 ranks", "rank 0: no memory to meet 2 ranks"},
    {LACKS_MEMORY, true, 1, COMM_ERR_MEMORY, "no memory to meet 2 ranks", "rank 1: no memory to meet 2 ranks"},
    {LACKS_A_BACKEND, false, 0, COMM_ERR_UNSUPPORTED, "it lacks the backend", "rank 0 cannot open (COMM_ERR_UNSUPPORTED)"},
    {LACKS_A_BACKEND, true, 1, COMM_ERR_UNSUPPORTED, "it lacks the backend", "rank 1: it lacks the backend"},
};

static void *open_lacking(void *arg)
{
    static const struct base_log quiet = {.level = 0, .rank = -1};
    struct side *side = arg;
    struct comm_env env = *wire_default_env();
    struct wire_boot *boot = NULL;
    enum lack lack = side->rank == side->lacking->rank ? side->lacking->lack : LACKS_NOTHING;

    taken = 0;
    env.random = lack == LACKS_RANDOM ? no_random : env.random;
    env.take = lack == LACKS_MEMORY ? take_later : env.take;
    struct boot_config config = {.env = &env,
                                 .log = &quiet,
                                 .rank = side->rank,
                                 .ranks = 2,
                                 .job = "j",
                                 .deadline = env.now(&env) + 10 * SECOND,
                                 .exchange = exchange_of_both,
                                 .exchange_arg = side,
                                 .failed = lack == LACKS_A_BACKEND ? COMM_ERR_UNSUPPORTED : COMM_OK,
                                 .error_text = side->text,
                                 .error_text_bytes = sizeof side->text};
    if (config.failed != COMM_OK)
        snprintf(side->text, sizeof side->text, "it lacks the backend");
    side->result = side->lacking->over_tcp ? boot_tcp.open(&config, &boot) : boot_unix.open(&config, &boot);
    return NULL;
}

/* A rank that fails must say so inside the exchange: if it stays away, the others wait for it there. */
static void open_both(const struct lacking *l)
{
    struct both both;
    struct side side[2] = {{.both = &both, .rank = 0, .lacking = l}, {.both = &both, .rank = 1, .lacking = l}};
    pthread_t thread[2];

    pthread_barrier_init(&both.here, NULL, 2);
    alarm(30); /* no wait inside the exchange has a limit */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_lacking, &side[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    alarm(0);
    for (int i = 0; i < 2; i++) {
        const char *text = i == l->rank ? l->own : l->others;
        if (side[i].result != l->result || strncmp(side[i].text, text, strlen(text)) != 0)
            fail_msg("rank %d of case %d: %d \"%s\"", i, (int)(l - lacking), (int)side[i].result, side[i].text);
    }
    pthread_barrier_destroy(&both.here);
}

static void a_rank_that_cannot_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        open_both(&lacking[i]);
}

/* What fails before: here the secret. */
struct guarded {
    struct side side;
    const char *secret;
};

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
        cmocka_unit_test(a_rank_that_cannot_open),
        cmocka_unit_test(a_secret_that_is_too_short),
    };

    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    wire_default_env()->start(wire_default_env());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
