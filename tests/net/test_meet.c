/* How ranks meet over an address, and above all how they do not: each mistake is an error that says so, within the time that was given. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/boot_star.h"
#include "wire/table.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { GUESTS = 4 };
#define SECOND INT64_C(1000000000)
extern const struct boot_class boot_tcp;

struct guest {
    int32_t rank, ranks;
    const char *job, *address;
    int64_t patience, late;
    enum comm_result result;
    int64_t took;
    char text[400], own[64];
    bool exchanged;
};

static void nap(int64_t ns)
{
    struct timespec t = {ns / SECOND, ns % SECOND};
    nanosleep(&t, NULL);
}

static void *visit(void *arg)
{
    struct guest *g = arg;
    const struct comm_env *env = wire_default_env();
    static const struct base_log quiet = {.level = 0, .rank = -1};
    struct wire_boot *boot = NULL;

    nap(g->late);
    int64_t start = env->now(env);
    struct boot_config config = {.env = env,
                                 .log = &quiet,
                                 .rank = g->rank,
                                 .ranks = g->ranks,
                                 .job = g->job,
                                 .address = g->address,
                                 .deadline = start + g->patience,
                                 .error_text = g->text,
                                 .error_text_bytes = sizeof g->text};
    g->result = boot_tcp.open(&config, &boot);
    g->took = env->now(env) - start;
    if (g->result != COMM_OK)
        return NULL;
    uint64_t in = 1000 + (uint64_t)g->rank, out[GUESTS] = {0};
    g->exchanged = boot->class->allgather(boot, &in, sizeof in, out) == COMM_OK;
    for (int32_t i = 0; i < g->ranks; i++)
        g->exchanged &= out[i] == 1000 + (uint64_t)i;
    snprintf(g->own, sizeof g->own, "%s", boot->address);
    boot->class->close(boot);
    return NULL;
}

/* A port that nobody has; another process may take it meanwhile, which no test of ours does. */
static const char *free_address(int family, char text[64])
{
    struct sockaddr_storage at = {.ss_family = (sa_family_t)family};
    socklen_t length = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    struct sockaddr_in *four = (struct sockaddr_in *)&at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&at;
    int fd = socket(family, SOCK_STREAM, 0);

    if (family == AF_INET6)
        six->sin6_addr = in6addr_loopback;
    else
        four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, length) || getsockname(fd, (struct sockaddr *)&at, &length)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    close(fd);
    snprintf(text, 64, family == AF_INET6 ? "[::1]:%u" : "127.0.0.1:%u", ntohs(family == AF_INET6 ? six->sin6_port : four->sin_port));
    return text;
}

static void meet(struct guest *guests, int32_t count)
{
    pthread_t thread[GUESTS];

    for (int32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, visit, &guests[i]), 0);
    for (int32_t i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
}

static void all_meet(const char *address)
{
    struct guest g[GUESTS];

    for (int32_t i = 0; i < GUESTS; i++) /* rank 0 comes last */
        g[i] =
            (struct guest){.rank = i, .ranks = GUESTS, .job = "j", .address = address, .patience = 10 * SECOND, .late = i ? 0 : SECOND / 5};
    meet(g, GUESTS);
    for (int32_t i = 0; i < GUESTS; i++) {
        if (g[i].result != COMM_OK)
            fail_msg("rank %d: %s", i, g[i].text);
        assert_true(g[i].exchanged);
        assert_true(strstr(g[i].own, ".0.0.1") || strstr(g[i].own, "::1")); /* by which the others reach it */
    }
}

static void ipv4(void **state)
{
    char address[64];

    (void)state;
    all_meet(free_address(AF_INET, address));
}

static void ipv6(void **state)
{
    char address[64];

    (void)state;
    if (!free_address(AF_INET6, address)) {
        print_message("skipped: no IPv6 loopback here\n");
        skip();
    }
    all_meet(address);
}

static void by_name(void **state)
{
    char address[64], named[80];

    (void)state;
    free_address(AF_INET, address);
    snprintf(named, sizeof named, "localhost%s", strchr(address, ':'));
    all_meet(named);
}

/* Both ranks of a world of two, one of them otherwise than it must be. */
static void pair(struct guest g[2], const char *address)
{
    for (int32_t i = 0; i < 2; i++)
        g[i] = (struct guest){.rank = i, .ranks = 2, .job = "j", .address = address, .patience = 3 * SECOND};
}

static void expect(const struct guest *g, enum comm_result result, const char *text)
{
    if (g->result != result || !strstr(g->text, text))
        fail_msg("rank %d: %d \"%s\"; expected %d \"%s\"", g->rank, (int)g->result, g->text, (int)result, text);
    assert_true(g->took < 5 * SECOND);
}

static void port_taken(void **state)
{
    char address[64];
    struct guest g[2];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int holder = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_true(!bind(holder, (struct sockaddr *)&at, length) && !listen(holder, 1) &&
                !getsockname(holder, (struct sockaddr *)&at, &length));
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    pair(g, address);
    meet(g, 1);
    expect(&g[0], COMM_ERR_CONFIG, "is taken");
    close(holder);
}

static void nobody_listens(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    pair(g, free_address(AF_INET, address));
    g[1].patience = SECOND / 2;
    meet(&g[1], 1);
    expect(&g[1], COMM_ERR_TIMEOUT, "rank 0 did not come in time");
}

static void late_joiner(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    pair(g, free_address(AF_INET, address));
    g[0].patience = SECOND / 2;
    g[1].late = SECOND;
    g[1].patience = SECOND / 2;
    meet(g, 2);
    expect(&g[0], COMM_ERR_TIMEOUT, "missing: 1");
    expect(&g[1], COMM_ERR_TIMEOUT, "rank 0 did not come in time");
}

static void wrong_size(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    pair(g, free_address(AF_INET, address));
    g[0].patience = SECOND;
    g[1].ranks = 3;
    meet(g, 2);
    expect(&g[1], COMM_ERR_AUTH, "rank 1 came for a world of 3 ranks, rank 0 opens one of 2");
    expect(&g[0], COMM_ERR_TIMEOUT, "missing: 1");
}

static void stale_run(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    pair(g, free_address(AF_INET, address));
    g[0].patience = SECOND;
    g[1].job = "the run before";
    meet(g, 2);
    expect(&g[1], COMM_ERR_AUTH, "another job");
}

static void same_rank_twice(void **state)
{
    char address[64];
    struct guest g[3];

    (void)state;
    free_address(AF_INET, address);
    for (int32_t i = 0; i < 3; i++)
        g[i] = (struct guest){.rank = i ? 1 : 0, .ranks = 3, .job = "j", .address = address, .patience = SECOND};
    meet(g, 3);
    int refused = (g[1].result == COMM_ERR_AUTH) + (g[2].result == COMM_ERR_AUTH);
    assert_int_equal(refused, 1);
    expect(g[1].result == COMM_ERR_AUTH ? &g[1] : &g[2], COMM_ERR_AUTH, "rank 1 is there already");
    expect(&g[0], COMM_ERR_TIMEOUT, "missing: 2");
}

/* Who knocks and is none of us does not keep the others out: silence, garbage, another version. */
struct knock {
    const char *address;
    int kind;
};
static void *knock(void *arg)
{
    const struct knock *k = arg;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char garbage[4096];
    int fd[8];

    at.sin_port = htons((uint16_t)strtoul(strchr(k->address, ':') + 1, NULL, 10));
    memset(garbage, 0x5a, sizeof garbage);
    if (k->kind == 2) {
        struct greeting g = {.magic = BOOT_MAGIC, .version = BOOT_VERSION + 1, .rank = 1, .ranks = 2};
        memcpy(garbage, &g, sizeof g);
    }
    nap(SECOND / 10);
    for (int i = 0; i < 8; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd[i], (struct sockaddr *)&at, sizeof at) == 0 && k->kind)
            (void)!send(fd[i], garbage, k->kind == 1 ? sizeof garbage : sizeof(struct greeting), MSG_NOSIGNAL);
    }
    nap(SECOND / 2);
    for (int i = 0; i < 8; i++)
        close(fd[i]);
    return NULL;
}

static void strangers(void **state)
{
    char address[64];

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct guest g[2];
        struct knock k = {free_address(AF_INET, address), kind};
        pthread_t thread;
        pair(g, address);
        g[1].late = SECOND / 4;
        assert_int_equal(pthread_create(&thread, NULL, knock, &k), 0);
        meet(g, 2);
        pthread_join(thread, NULL);
        expect(&g[0], COMM_OK, "");
        expect(&g[1], COMM_OK, "");
        assert_true(g[0].exchanged && g[1].exchanged);
    }
}

static void not_beyond_loopback(void **state)
{
    struct guest g[2];

    (void)state;
    pair(g, "192.0.2.1:4444"); /* of nobody: RFC 5737 */
    meet(g, 2);
    expect(&g[0], COMM_ERR_CONFIG, "COMM_TCP_INSECURE=1");
    expect(&g[1], COMM_ERR_CONFIG, "COMM_TCP_INSECURE=1");
}

static void malformed(void **state)
{
    static const char *const addresses[] = {"host",   "host:",  ":1",      "host:0", "host:65536",
                                            "host:x", "::1:80", "[::1:80", "[]:80",  "[::1]80"};

    (void)state;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct guest g[2];
        pair(g, addresses[i]);
        meet(g, 1);
        expect(&g[0], COMM_ERR_CONFIG, "expected HOST:PORT");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ipv4),        cmocka_unit_test(ipv6),
        cmocka_unit_test(by_name),     cmocka_unit_test(port_taken),
        cmocka_unit_test(malformed),   cmocka_unit_test(nobody_listens),
        cmocka_unit_test(late_joiner), cmocka_unit_test(wrong_size),
        cmocka_unit_test(stale_run),   cmocka_unit_test(same_rank_twice),
        cmocka_unit_test(strangers),   cmocka_unit_test(not_beyond_loopback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
