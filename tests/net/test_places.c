/* Where ranks meet without a given address: a file, interfaces, the program's exchange; and each way in which that fails. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/guest.h"

#include "base/hash.h"
#include "net/boot/exchange.h"
#include "net/posix/interface.h"
#include "net/boot/meeting.h"
#include "wire/table.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------------ text of the file */
static const struct meeting written = {
    .job = 0x1234567890abcdef, .run = 7, .ranks = 12, .keyed = 1, .port = 4000, .host = "10.0.0.7", .key = {1, 2, 0xff}};

static void text(void **state)
{
    char bytes[MEETING_BYTES], changed[MEETING_BYTES];
    struct meeting m = written, back;
    size_t n = meeting_format(&m, bytes);
    uint64_t seed = 5;

    (void)state;
    assert_true(n < MEETING_BYTES && meeting_parse(bytes, n, &back));
    assert_memory_equal(&m, &back, sizeof m);
    for (size_t less = 0; less < n; less++) /* incomplete text is never accepted */
        assert_false(meeting_parse(bytes, less, &back));
    m.keyed = 0;
    memset(m.key, 0, sizeof m.key);
    n = meeting_format(&m, bytes);
    assert_true(meeting_parse(bytes, n, &back) && !back.keyed);
    for (int i = 0; i < 20000; i++) { /* accepted fields are within bounds */
        memcpy(changed, bytes, n);
        for (int k = 0; k <= i % 3; k++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            changed[(seed >> 33) % n] = (char)(seed >> 20);
        }
        if (meeting_parse(changed, n, &back))
            assert_true(back.ranks >= 1 && back.port >= 1 && back.port <= 65535 && memchr(back.host, 0, sizeof back.host));
    }
}

/* ------------------------------------------------------------------------------------------------------------ the file */
static char folder[64], path[96], address[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/commstream-places-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/meet", folder);
    snprintf(address, sizeof address, "file:%s", path);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* Rank 0 comes last, and the file of an earlier run is there: even one of the same job, with a port where nobody listens. */
static void stale_file(void **state)
{
    char nobody[64], why[MEETING_WHY];
    struct guest g[2];

    (void)state;
    for (int same = 0; same < 2; same++) {
        struct meeting old = {.job = 99, .run = 1, .ranks = 2, .port = 1, .host = "127.0.0.1"};
        guest_pair(g, address);
        if (same) {
            guest_free_address(AF_INET, nobody);
            old.port = (uint32_t)strtoul(strchr(nobody, ':') + 1, NULL, 10);
            old.job = base_hash(0, 'j'); /* the hash of the job's name, as in star_make */
        }
        assert_int_equal(meeting_file.write(NULL, path, &old, why, sizeof why), COMM_OK);
        g[0].late = SECOND / 2;
        guest_meet(g, 2);
        guest_expect(&g[0], COMM_OK, "");
        guest_expect(&g[1], COMM_OK, "");
        assert_true(g[0].exchanged && g[1].exchanged && access(path, F_OK) != 0);
    }
}

static void nobody_writes(void **state)
{
    char why[MEETING_WHY];
    struct guest g[2];

    (void)state;
    guest_pair(g, address);
    g[1].patience = SECOND / 2;
    guest_meet(&g[1], 1);
    guest_expect(&g[1], COMM_ERR_TIMEOUT, "No such file");
    struct meeting old = {.job = 99, .run = 1, .ranks = 2, .port = 1, .host = "127.0.0.1"};
    assert_int_equal(meeting_file.write(NULL, path, &old, why, sizeof why), COMM_OK);
    guest_meet(&g[1], 1);
    guest_expect(&g[1], COMM_ERR_TIMEOUT, "another job's");
    assert_int_equal(chmod(path, 0644), 0);
    guest_meet(&g[1], 1);
    guest_expect(&g[1], COMM_ERR_TIMEOUT, "of this user alone");
}

static void wrong_size(void **state)
{
    struct guest g[2];

    (void)state;
    guest_pair(g, address);
    g[0].patience = g[1].patience = SECOND;
    g[1].ranks = 3;
    guest_meet(g, 2);
    guest_expect(&g[0], COMM_ERR_TIMEOUT, "missing: 1");
    assert_true(g[1].result == COMM_ERR_TIMEOUT || g[1].result == COMM_ERR_AUTH);
    assert_true(strstr(g[1].text, "a world of 2 ranks, and this rank is of one of 3") || strstr(g[1].text, "No such file"));
}

static void one_has_a_secret(void **state)
{
    struct guest g[2];

    (void)state;
    for (int with = 0; with < 2; with++) {
        guest_pair(g, address);
        g[0].patience = SECOND;
        g[with].secret = "0123456789abcdef0123456789abcdef";
        guest_meet(g, 2);
        if (with)
            guest_expect(&g[1], COMM_ERR_AUTH, "rank 0 came without the secret that rank 1 was given");
        else if (g[1].result == COMM_ERR_AUTH) /* this host has only loopback */
            guest_expect(&g[1], COMM_ERR_AUTH, "without one");
        else
            guest_expect(&g[1], COMM_ERR_CONFIG, "this job has no secret");
    }
}

static void no_folder(void **state)
{
    struct guest g[2];

    (void)state;
    guest_pair(g, "file:/nowhere/at/all");
    guest_meet(g, 1);
    guest_expect(&g[0], COMM_ERR_CONFIG, "No such file");
    guest_pair(g, "file:");
    guest_meet(g, 1);
    guest_expect(&g[0], COMM_ERR_CONFIG, "expected HOST:PORT");
}

/* ------------------------------------------------------------------------------------------------------------ interfaces */
static void matching(void **state)
{
    static const struct {
        const char *wanted, *name, *address;
        bool meant;
    } cases[] = {
        {"eth0", "eth0", "10.0.0.1", true},       {"eth", "eth1", "10.0.0.1", true},       {"=eth", "eth1", "10.0.0.1", false},
        {"=eth1", "eth1", "10.0.0.1", true},      {"ib0,eth", "eth1", "10.0.0.1", true},   {"^docker,lo", "lo", "127.0.0.1", false},
        {"^docker,lo", "eth0", "10.0.0.1", true}, {"10.0.0.0/8", "x", "10.9.8.7", true},   {"10.0.0.0/8", "x", "11.0.0.1", false},
        {"10.0.0.0/9", "x", "10.128.0.1", false}, {"^10.0.0.0/8", "x", "10.1.1.1", false}, {"fd00::/8", "x", "fd12::1", true},
        {"fd00::/8", "x", "10.0.0.1", false},     {"10.0.0.0/33", "x", "10.0.0.1", false}, {"10.0.0/8", "x", "10.0.0.1", false},
        {"0.0.0.0/0", "x", "1.2.3.4", true},      {",", "eth0", "10.0.0.1", false},        {"10.1.2.3/32", "x", "10.1.2.3", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (interface_matches(cases[i].wanted, cases[i].name, cases[i].address) != cases[i].meant)
            fail_msg("%s, %s, %s", cases[i].wanted, cases[i].name, cases[i].address);
}

static void choosing(void **state)
{
    const struct comm_env *env = wire_default_env();
    char found[INTERFACE_ADDRESS], why[400] = "";
    struct in_addr four;
    struct in6_addr six;
    struct guest g[2];

    (void)state;
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("GLOO_SOCKET_IFNAME");
    assert_true(!interface_named(env) && interface_address(env, found, why, sizeof why));
    assert_true(inet_pton(AF_INET, found, &four) == 1 || inet_pton(AF_INET6, found, &six) == 1);
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    assert_true(interface_named(env) && interface_address(env, found, why, sizeof why));
    assert_string_equal(found, "127.0.0.1");
    assert_string_equal(why, "lo, by NCCL_SOCKET_IFNAME");
    setenv("COMM_SOCKET_IFNAME", "nothing", 1);
    assert_false(interface_address(env, found, why, sizeof why));
    assert_non_null(strstr(why, "COMM_SOCKET_IFNAME=nothing names no interface"));
    assert_non_null(strstr(why, "lo(127.0.0.1)"));
    guest_pair(g, address);
    guest_meet(g, 1);
    guest_expect(&g[0], COMM_ERR_CONFIG, "COMM_SOCKET_IFNAME=nothing names no interface");
    unsetenv("COMM_SOCKET_IFNAME");
    unsetenv("NCCL_SOCKET_IFNAME");
}

/* ------------------------------------------------------------------------------------------------------------ the exchange */
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
        enum comm_result r = boot_exchange_open(&config, NULL, &boot);
        if (r != expected[i].result || !strstr(said, expected[i].text))
            fail_msg("case %d: %d \"%s\"", i, (int)r, said);
        assert_null(boot);
    }
}

/* A program's exchange for two ranks that are threads: each waits until both have called. */
struct both {
    pthread_barrier_t here;
    char all[2 * 64];
};
struct side {
    struct both *both;
    int32_t rank;
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
    side->result = boot_unix.open(&config, &boot);
    return NULL;
}

/* Rank 0 cannot choose a name. It must say so inside the exchange: a rank that stays away leaves the others waiting in it. */
static void no_randomness(void **state)
{
    struct both both;
    struct side side[2] = {{.both = &both, .rank = 0}, {.both = &both, .rank = 1}};
    pthread_t thread[2];

    (void)state;
    pthread_barrier_init(&both.here, NULL, 2);
    alarm(30); /* no wait inside the exchange has a limit */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_without_random, &side[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    alarm(0);
    for (int i = 0; i < 2; i++)
        if (side[i].result != COMM_ERR_SYSTEM || !strstr(side[i].text, "no randomness for the name of the meeting"))
            fail_msg("rank %d: %d \"%s\"", i, (int)side[i].result, side[i].text);
    pthread_barrier_destroy(&both.here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),
        cmocka_unit_test_setup_teardown(stale_file, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(nobody_writes, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(wrong_size, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(one_has_a_secret, make_folder, drop_folder),
        cmocka_unit_test(no_folder),
        cmocka_unit_test(matching),
        cmocka_unit_test_setup_teardown(choosing, make_folder, drop_folder),
        cmocka_unit_test(broken_exchange),
        cmocka_unit_test(no_randomness),
    };

    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    wire_default_env()->start(wire_default_env());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
