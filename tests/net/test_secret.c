/* Ranks that meet with a job secret, and peers that must be refused: without a secret, with another one, with a replay, with half a
 * handshake, or silent. Each is refused with AUTH and a reason, within the time limit, and does not keep the others out. */
#define _GNU_SOURCE
#include "net/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/guest.h"

#include "net/boot/star.h"
#include "net/boot/secret_find.h"
#include "net/auth/pending.h"
#include "wire/table.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ours[] = "0123456789abcdef0123456789abcdef", theirs[] = "0123456789abcdef0123456789abcdeX";

static void world_of(struct guest *g, int32_t ranks, const char *address)
{
    for (int32_t i = 0; i < ranks; i++)
        g[i] = (struct guest){.rank = i, .ranks = ranks, .job = "j", .address = address, .secret = ours, .patience = 10 * SECOND};
}

static void all_prove_it(void **state)
{
    struct guest g[GUESTS];
    char address[64];

    (void)state;
    world_of(g, GUESTS, guest_free_address(AF_INET, address));
    g[0].late = SECOND / 5;
    guest_meet(g, GUESTS);
    for (int32_t i = 0; i < GUESTS; i++) {
        if (g[i].result != COMM_OK)
            fail_msg("rank %d: %s", i, g[i].text);
        assert_true(g[i].exchanged && g[i].keyed);
    }
}

/* An address of this host that others may reach. It is refused without a secret, and works with one. */
static bool outer_address(char text[64])
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list))
        return false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK))
            continue;
        struct sockaddr_in at = *(const struct sockaddr_in *)(const void *)i->ifa_addr;
        socklen_t length = sizeof at;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        at.sin_port = 0;
        found = !bind(fd, (struct sockaddr *)&at, length) && !getsockname(fd, (struct sockaddr *)&at, &length);
        close(fd);
        char host[INET_ADDRSTRLEN];
        snprintf(text, 64, "%s:%u", inet_ntop(AF_INET, &at.sin_addr, host, sizeof host), ntohs(at.sin_port));
    }
    freeifaddrs(list);
    return found;
}

static void beyond_loopback(void **state)
{
    struct guest g[GUESTS];
    char address[64];

    (void)state;
    if (!outer_address(address))
        group_skip("this host has no address but loopback");
    world_of(g, GUESTS, address);
    guest_meet(g, GUESTS);
    for (int32_t i = 0; i < GUESTS; i++)
        assert_true(g[i].result == COMM_OK && g[i].exchanged);
    guest_pair(g, address);
    guest_meet(g, 2);
    for (int32_t i = 0; i < 2; i++)
        guest_expect(&g[i], COMM_ERR_CONFIG, "comm-info --new-secret");
}

static void another_secret(void **state)
{
    struct guest g[2];
    char address[64];

    (void)state;
    world_of(g, 2, guest_free_address(AF_INET, address));
    g[1].secret = theirs;
    g[0].patience = SECOND;
    guest_meet(g, 2);
    guest_expect(&g[1], COMM_ERR_AUTH, "another secret");
    guest_expect(&g[0], COMM_ERR_TIMEOUT, "missing: 1 (of 2); connections refused: 1, the last one from ");
    guest_expect(&g[0], COMM_ERR_TIMEOUT, ": it claims to be rank 1"); /* it came from 127.0.0.1, or by the socket of this host */
    for (int i = 0; i < 2; i++)
        assert_true(!strstr(g[i].text, ours) && !strstr(g[i].text, theirs));
}

static void one_without(void **state)
{
    struct guest g[2];
    char address[64];

    (void)state;
    for (int bare = 0; bare < 2; bare++) {
        world_of(g, 2, guest_free_address(AF_INET, address));
        g[bare].secret = NULL;
        g[0].patience = SECOND;
        guest_meet(g, 2);
        guest_expect(&g[1], COMM_ERR_AUTH, bare ? "without one" : "it has no secret");
        guest_expect(&g[0], COMM_ERR_TIMEOUT, bare ? "came without one" : "rank 1 has a secret and rank 0 has none");
    }
}

/* The mistakes of test_meet are also reported after the handshake. */
static void wrong_size_and_job(void **state)
{
    struct guest g[3];
    char address[64];

    (void)state;
    world_of(g, 2, guest_free_address(AF_INET, address));
    g[0].patience = SECOND;
    g[1].ranks = 3;
    guest_meet(g, 2);
    guest_expect(&g[1], COMM_ERR_AUTH, "rank 1 came for a world of 3 ranks, rank 0 opens one of 2");
    world_of(g, 2, guest_free_address(AF_INET, address));
    g[0].patience = SECOND;
    g[1].job = "the run before";
    guest_meet(g, 2);
    guest_expect(&g[1], COMM_ERR_AUTH, "another job");
    world_of(g, 3, guest_free_address(AF_INET, address));
    g[0].patience = SECOND;
    g[2].rank = 1;
    guest_meet(g, 3);
    assert_int_equal((g[1].result == COMM_ERR_AUTH) + (g[2].result == COMM_ERR_AUTH), 1);
    guest_expect(g[1].result == COMM_ERR_AUTH ? &g[1] : &g[2], COMM_ERR_AUTH, "rank 1 is there already");
}

/* ------------------------------------------------------------------------------------------------------------ pending peers */
enum knocking { SILENCE, SLOW, GARBAGE, HALF, RECORDING, REPEATING, FLOOD, KNOCKINGS };
struct knock {
    const char *address;
    enum knocking kind;
    _Atomic bool *over;
    unsigned char hello[HANDSHAKE_HELLO];
};

static int dial(const struct knock *k)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_port = htons((uint16_t)strtoul(strchr(k->address, ':') + 1, NULL, 10));
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void say(const struct knock *k, int fd)
{
    unsigned char garbage[4096], answer[HANDSHAKE_ANSWER];
    struct timeval second = {1, 0};

    memset(garbage, 0x5a, sizeof garbage);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    if (k->kind == SLOW) /* the beginning of a right hello, byte by byte */
        for (int i = 0; i < 20 && !*k->over; i++, guest_nap(SECOND / 50))
            (void)!send(fd, k->hello + i, 1, MSG_NOSIGNAL);
    if (k->kind == GARBAGE)
        (void)!send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
    if (k->kind == HALF) {
        (void)!send(fd, k->hello, sizeof k->hello / 2, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
    }
    if (k->kind != RECORDING && k->kind != REPEATING)
        return;
    (void)!send(fd, k->hello, sizeof k->hello, MSG_NOSIGNAL);
    if (recv(fd, answer, sizeof answer, MSG_WAITALL) != (ssize_t)sizeof answer)
        return;
    /* It gets an answer, but cannot continue without the secret: neither with garbage nor with a repetition. */
    (void)!send(fd, k->kind == RECORDING ? garbage : k->hello, sizeof(struct greeting) + CRYPTO_TAG, MSG_NOSIGNAL);
}

static void *knock(void *arg)
{
    const struct knock *k = arg;
    int fd[256], most = k->kind == FLOOD ? 256 : 8;

    guest_nap(SECOND / 10);
    for (int i = 0; i < most; i++) {
        fd[i] = dial(k);
        if (fd[i] >= 0)
            say(k, fd[i]);
    }
    while (!*k->over)
        guest_nap(SECOND / 100);
    for (int i = 0; i < most; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return NULL;
}

static long resident_kib(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

static void pending_peers(void **state)
{
    unsigned char key[CRYPTO_KEY];
    const struct handshake_names names = {HANDSHAKE_MEETING, 1, 0, 0, 0};
    char address[64];

    (void)state;
    assert_true(secret_key(ours, strlen(ours), key));
    long before = 0;
    for (int kind = SILENCE; kind < KNOCKINGS; kind++) {
        _Atomic bool over = false;
        struct handshake recorded;
        struct guest g[2];
        struct knock k = {guest_free_address(AF_INET, address), (enum knocking)kind, &over, {0}};
        pthread_t thread;
        assert_true(handshake_hello(&recorded, wire_default_env(), key, &names, k.hello));
        world_of(g, 2, address);
        g[1].late = SECOND / 2; /* when all pending peers are there */
        assert_int_equal(pthread_create(&thread, NULL, knock, &k), 0);
        guest_meet(g, 2);
        over = true;
        pthread_join(thread, NULL);
        for (int i = 0; i < 2; i++) {
            if (g[i].result != COMM_OK)
                fail_msg("pending peers of kind %d, rank %d: %s", kind, i, g[i].text);
            assert_true(g[i].exchanged && g[i].took < 3 * SECOND);
        }
        before = before ? before : resident_kib();
    }
    assert_in_range(resident_kib() - before, 0, 4096);
}

/*
 * A process that listens in rank 0's place without the secret learns nothing from those that connect, and cannot make them open the world.
 */
static void *impostor(void *arg)
{
    int listener = *(const int *)arg, fd = accept(listener, NULL, NULL);
    unsigned char hello[HANDSHAKE_HELLO], answer[HANDSHAKE_ANSWER];

    (void)!recv(fd, hello, sizeof hello, MSG_WAITALL);
    memset(answer, 0x41, sizeof answer);
    handshake_refuse(HANDSHAKE_OK, answer);
    (void)!send(fd, answer, sizeof answer, MSG_NOSIGNAL);
    guest_nap(SECOND / 2);
    close(fd);
    return NULL;
}

static void mock_root(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    char address[64];
    struct guest g[2];
    pthread_t thread;

    (void)state;
    assert_true(!bind(listener, (struct sockaddr *)&at, length) && !listen(listener, 4) &&
                !getsockname(listener, (struct sockaddr *)&at, &length));
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    world_of(g, 2, address);
    assert_int_equal(pthread_create(&thread, NULL, impostor, &listener), 0);
    guest_meet(&g[1], 1);
    pthread_join(thread, NULL);
    close(listener);
    guest_expect(&g[1], COMM_ERR_AUTH, "another secret");
}

/* ------------------------------------------------------------------------------------------------------------ connections */
struct rank {
    int32_t rank;
    bool newer; /* publishes another version about itself */
    const char *secret, *job;
    enum comm_result result;
    char text[400];
};

/* Publishes what a rank of another version would; the rest of the meeting is unchanged. */
static enum comm_result say_newer(struct wire_boot *boot, const void *in, size_t bytes, void *out)
{
    unsigned char card[1024]; /* begins with a magic and the version */
    uint32_t version;

    assert_true(bytes >= 8 && bytes <= sizeof card);
    memcpy(card, in, bytes);
    memcpy(&version, card + 4, 4);
    version++;
    memcpy(card + 4, &version, 4);
    return wire_backend_find("tcp")->boot->allgather(boot, card, bytes, out);
}

static void *connect_rank(void *arg)
{
    struct rank *r = arg;
    const struct comm_env *env = wire_default_env();
    const struct wire_backend *tcp = wire_backend_find("tcp");
    struct base_log quiet = {.level = 0, .rank = -1};
    struct env_bell bell, watch;
    struct wire_boot *boot = NULL;
    struct wire *wire = NULL;
    struct boot_config meeting = {.env = env,
                                  .log = &quiet,
                                  .rank = r->rank,
                                  .ranks = 3,
                                  .job = r->job,
                                  .secret = r->secret,
                                  .secret_bytes = r->secret ? strlen(r->secret) : 0,
                                  .deadline = env->now(env) + 3 * SECOND,
                                  .error_text = r->text,
                                  .error_text_bytes = sizeof r->text};
    assert_true(!env->bell_open(env, &bell) && !env->bell_open(env, &watch));
    r->result = tcp->boot->open(&meeting, &boot);
    struct boot_class newer = boot ? *boot->class : (struct boot_class)
    {
        0
    };
    newer.allgather = say_newer;
    if (boot && r->newer)
        boot->class = &newer;
    struct wire_config config = {.env = env,
                                 .log = &quiet,
                                 .bell = &bell,
                                 .watch = &watch,
                                 .boot = boot,
                                 .rank = r->rank,
                                 .ranks = 3,
                                 .deadline = meeting.deadline,
                                 .error_text = r->text,
                                 .error_text_bytes = sizeof r->text};
    if (r->result == COMM_OK)
        r->result = tcp->wire->open(&config, &wire);
    if (wire)
        tcp->wire->close(wire);
    if (boot)
        boot->class->close(boot);
    env->bell_close(env, &bell);
    env->bell_close(env, &watch);
    return NULL;
}

/* Ranks of one host meet at an abstract socket, where the kernel identifies the user, and prove the secret when they connect. */
static void connections(void **state)
{
    static const struct {
        const char *last;
        enum comm_result result;
        const char *text;
    } cases[] = {{ours, COMM_OK, ""},
                 {theirs, COMM_ERR_AUTH, "connecting to rank 2 at 127.0.0.1"},
                 {NULL, COMM_ERR_CONFIG, "rank 2 has no job secret and rank 0 has one"}};
    char job[64];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank ranks[3];
        pthread_t thread[3];
        snprintf(job, sizeof job, "connections-%d-%zu", (int)getpid(), i);
        for (int32_t r = 0; r < 3; r++) {
            ranks[r] = (struct rank){.rank = r, .secret = r == 2 ? cases[i].last : ours, .job = job};
            assert_int_equal(pthread_create(&thread[r], NULL, connect_rank, &ranks[r]), 0);
        }
        for (int32_t r = 0; r < 3; r++)
            pthread_join(thread[r], NULL);
        for (int32_t r = 0; r < 3; r++)
            if (ranks[r].result != cases[i].result || !strstr(ranks[r].text, cases[i].text))
                fail_msg("case %zu, rank %d: %d \"%s\"", i, r, (int)ranks[r].result, ranks[r].text);
    }
}

/* All ranks are told which rank has another version. */
static void another_version(void **state)
{
    struct rank ranks[3];
    pthread_t thread[3];
    char job[64];

    (void)state;
    snprintf(job, sizeof job, "version-%d", (int)getpid());
    for (int32_t r = 0; r < 3; r++) {
        ranks[r] = (struct rank){.rank = r, .newer = r == 1, .secret = ours, .job = job};
        assert_int_equal(pthread_create(&thread[r], NULL, connect_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < 3; r++)
        pthread_join(thread[r], NULL);
    for (int32_t r = 0; r < 3; r++)
        if (ranks[r].result != COMM_ERR_CONFIG || !strstr(ranks[r].text, "rank 1 speaks another version of the network protocol"))
            fail_msg("rank %d: %d \"%s\"", r, (int)ranks[r].result, ranks[r].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_prove_it), cmocka_unit_test(beyond_loopback),    cmocka_unit_test(another_secret),
        cmocka_unit_test(one_without),  cmocka_unit_test(wrong_size_and_job), cmocka_unit_test(pending_peers),
        cmocka_unit_test(mock_root),    cmocka_unit_test(connections),        cmocka_unit_test(another_version),
        cmocka_unit_test(sources),
    };

    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
