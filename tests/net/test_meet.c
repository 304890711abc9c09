/* How ranks meet at an address, and above all how that fails: each mistake is an error with its reason, within the time limit. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/guest.h"

#include "net/auth/crypto.h"
#include "net/boot/meeting.h"
#include "net/boot/star.h"
#include "wire/table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void all_meet(const char *address)
{
    struct guest g[GUESTS];

    for (int32_t i = 0; i < GUESTS; i++) /* rank 0 comes last */
        g[i] =
            (struct guest){.rank = i, .ranks = GUESTS, .job = "j", .address = address, .patience = 10 * SECOND, .late = i ? 0 : SECOND / 5};
    guest_meet(g, GUESTS);
    for (int32_t i = 0; i < GUESTS; i++) {
        if (g[i].result != COMM_OK)
            fail_msg("rank %d: %s", i, g[i].text);
        assert_true(g[i].exchanged);
        assert_true(strstr(g[i].own, ".0.0.1") || strstr(g[i].own, "::1")); /* the address at which the others reach it */
    }
}

static void ipv4(void **state)
{
    char address[64];

    (void)state;
    all_meet(guest_free_address(AF_INET, address));
}

static void ipv6(void **state)
{
    char address[64];

    (void)state;
    if (!guest_free_address(AF_INET6, address))
        group_skip("no IPv6 loopback here");
    all_meet(address);
}

static void by_name(void **state)
{
    char address[64], named[80];

    (void)state;
    guest_free_address(AF_INET, address);
    snprintf(named, sizeof named, "localhost%s", strchr(address, ':'));
    all_meet(named);
}

/* The next socket that is dialed takes the dialed port as its own, as the kernel may choose it. */
static _Atomic int to_itself;
int __real_connect(int fd, const struct sockaddr *at, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *at, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *at, socklen_t length)
{
    if (at->sa_family == AF_INET && atomic_fetch_sub(&to_itself, 1) > 0)
        assert_int_equal(bind(fd, at, length), 0);
    return __real_connect(fd, at, length);
}

/* Such a rank dials again, and does not hold the port when rank 0 comes. */
static void joined_to_itself(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    if (crypto_missing())
        group_skip("%s", crypto_missing());
    guest_pair(g, guest_free_address(AF_INET, address));
    g[0].secret = g[1].secret = "0123456789abcdef";
    g[0].late = SECOND / 4;
    atomic_store(&to_itself, 1);
    guest_meet(g, 2);
    assert_true(atomic_load(&to_itself) <= 0);
    guest_expect(&g[0], COMM_OK, "");
    guest_expect(&g[1], COMM_OK, "");
}

/* A name with addresses of both families, of which this kernel seems to have one. */
static _Atomic bool both;
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list)
{
    struct addrinfo *six = NULL;

    if (!atomic_load(&both))
        return __real_getaddrinfo(host, port, hints, list);
    assert_int_equal(__real_getaddrinfo("127.0.0.1", port, hints, list), 0);
    assert_int_equal(__real_getaddrinfo("::1", port, hints, &six), 0);
    (*list)->ai_next = six;
    return 0;
}

void __real_freeaddrinfo(struct addrinfo *list);
void __wrap_freeaddrinfo(struct addrinfo *list);
void __wrap_freeaddrinfo(struct addrinfo *list)
{
    if (atomic_load(&both)) {
        __real_freeaddrinfo(list->ai_next);
        list->ai_next = NULL;
    }
    __real_freeaddrinfo(list);
}

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol)
{
    if (family != AF_INET6 || !atomic_load(&both))
        return __real_socket(family, type, protocol);
    errno = EAFNOSUPPORT;
    return -1;
}

/* While nothing listens at the other address, that is no reason to give up. */
static void one_family(void **state)
{
    char address[64], named[80];
    struct guest g[2];

    (void)state;
    if (crypto_missing())
        group_skip("%s", crypto_missing());
    guest_free_address(AF_INET, address);
    snprintf(named, sizeof named, "both.test%s", strchr(address, ':'));
    guest_pair(g, named);
    g[0].secret = g[1].secret = "0123456789abcdef";
    g[0].late = SECOND / 4;
    atomic_store(&both, true);
    guest_meet(g, 2);
    atomic_store(&both, false);
    guest_expect(&g[0], COMM_OK, "");
    guest_expect(&g[1], COMM_OK, "");
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
    guest_pair(g, address);
    guest_meet(g, 1);
    guest_expect(&g[0], COMM_ERR_CONFIG, "is taken");
    close(holder);
}

static void nobody_listens(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    guest_pair(g, guest_free_address(AF_INET, address));
    g[1].patience = SECOND / 2;
    guest_meet(&g[1], 1);
    guest_expect(&g[1], COMM_ERR_TIMEOUT, "rank 0 did not come in time");
}

static void late_joiner(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    guest_pair(g, guest_free_address(AF_INET, address));
    g[0].patience = SECOND / 2;
    g[1].late = SECOND;
    g[1].patience = SECOND / 2;
    guest_meet(g, 2);
    guest_expect(&g[0], COMM_ERR_TIMEOUT, "missing: 1");
    guest_expect(&g[1], COMM_ERR_TIMEOUT, "rank 0 did not come in time");
}

static void wrong_size(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    guest_pair(g, guest_free_address(AF_INET, address));
    g[0].patience = SECOND;
    g[1].ranks = 3;
    guest_meet(g, 2);
    guest_expect(&g[1], COMM_ERR_AUTH, "rank 1 came for a world of 3 ranks, rank 0 opens one of 2");
    guest_expect(&g[0], COMM_ERR_TIMEOUT, "missing: 1");
}

static void stale_run(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    guest_pair(g, guest_free_address(AF_INET, address));
    g[0].patience = SECOND;
    g[1].job = "the run before";
    guest_meet(g, 2);
    guest_expect(&g[1], COMM_ERR_AUTH, "another job");
}

/* The rank whose greeting has a newer version; -1: none. */
static _Atomic int32_t newer = -1;
enum io __real_boot_send_all(const struct boot_config *c, int fd, const void *bytes, size_t count);
enum io __wrap_boot_send_all(const struct boot_config *c, int fd, const void *bytes, size_t count);
enum io __wrap_boot_send_all(const struct boot_config *c, int fd, const void *bytes, size_t count)
{
    struct greeting g;

    if (c->rank != newer || count != sizeof g)
        return __real_boot_send_all(c, fd, bytes, count);
    memcpy(&g, bytes, sizeof g);
    g.version++;
    return __real_boot_send_all(c, fd, &g, sizeof g);
}

static void another_version(void **state)
{
    char address[64];
    struct guest g[2];

    (void)state;
    guest_pair(g, guest_free_address(AF_INET, address));
    g[0].patience = SECOND;
    newer = 1;
    guest_meet(g, 2);
    newer = -1;
    guest_expect(&g[1], COMM_ERR_AUTH, "rank 0 of this job speaks version");
    guest_expect(&g[0], COMM_ERR_TIMEOUT, "missing: 1");
}

static void same_rank_twice(void **state)
{
    char address[64];
    struct guest g[3];

    (void)state;
    guest_free_address(AF_INET, address);
    for (int32_t i = 0; i < 3; i++)
        g[i] = (struct guest){.rank = i ? 1 : 0, .ranks = 3, .job = "j", .address = address, .patience = SECOND};
    guest_meet(g, 3);
    int refused = (g[1].result == COMM_ERR_AUTH) + (g[2].result == COMM_ERR_AUTH);
    assert_int_equal(refused, 1);
    guest_expect(g[1].result == COMM_ERR_AUTH ? &g[1] : &g[2], COMM_ERR_AUTH, "rank 1 is there already");
    guest_expect(&g[0], COMM_ERR_TIMEOUT, "missing: 2");
}

/* Peers that do not belong to the job must not keep the others out: silence, garbage, another version. */
struct knock {
    const char *address;
    int kind;
};
static void *knock(void *arg)
{
    const struct knock *k = arg;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "commstream/tcp/127.0.0.1/%s", strchr(k->address, ':') + 1);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    char garbage[4096];
    int fd[8];

    memset(garbage, 0x5a, sizeof garbage);
    if (k->kind == 2) {
        struct greeting g = {.magic = BOOT_MAGIC, .version = BOOT_VERSION + 1, .rank = 1, .ranks = 2};
        memcpy(garbage, &g, sizeof g);
    }
    for (int i = 0; i < 8; i++) {
        fd[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        int tries = 0;
        while (connect(fd[i], (struct sockaddr *)&at, length) && tries++ < 2000)
            guest_nap(SECOND / 1000);
        assert_true(tries < 2000);
        if (k->kind)
            (void)!send(fd[i], garbage, k->kind == 1 ? sizeof garbage : sizeof(struct greeting), MSG_NOSIGNAL);
    }
    guest_nap(SECOND / 2);
    for (int i = 0; i < 8; i++)
        close(fd[i]);
    return NULL;
}

static void pending_peers(void **state)
{
    char address[64];

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct guest g[2];
        struct knock k = {guest_free_address(AF_INET, address), kind};
        pthread_t thread;
        guest_pair(g, address);
        g[1].late = SECOND / 4;
        assert_int_equal(pthread_create(&thread, NULL, knock, &k), 0);
        guest_meet(g, 2);
        pthread_join(thread, NULL);
        guest_expect(&g[0], COMM_OK, "");
        guest_expect(&g[1], COMM_OK, "");
        assert_true(g[0].exchanged && g[1].exchanged);
    }
}

static void not_beyond_loopback(void **state)
{
    struct guest g[2];

    (void)state;
    guest_pair(g, "192.0.2.1:4444"); /* reserved, so nobody has it: RFC 5737 */
    guest_meet(g, 2);
    guest_expect(&g[0], COMM_ERR_CONFIG, "COMM_TCP_INSECURE=1");
    guest_expect(&g[1], COMM_ERR_CONFIG, "COMM_TCP_INSECURE=1");
}

static void malformed(void **state)
{
    static const char *const addresses[] = {"host",   "host:",  ":1",      "host:0", "host:65536",
                                            "host:x", "::1:80", "[::1:80", "[]:80",  "[::1]80"};

    (void)state;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct guest g[2];
        guest_pair(g, addresses[i]);
        guest_meet(g, 1);
        guest_expect(&g[0], COMM_ERR_CONFIG, "expected HOST:PORT");
    }
}

/* Rank 0, which closes the first connection after its greeting. Then it listens on, or it is gone. */
struct crowded {
    const char *address;
    bool listens_on;
};

static int abstract_listener(const char *address)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "commstream/tcp/127.0.0.1/%s", strchr(address, ':') + 1);
    const struct timeval patience = {10, 0};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static int take_greeting(int listener)
{
    struct greeting g;
    int fd = accept(listener, NULL, NULL);

    if (fd >= 0)
        assert_int_equal(recv(fd, &g, sizeof g, MSG_WAITALL), (int)sizeof g);
    return fd;
}

static void *crowded_main(void *arg)
{
    const struct crowded *c = arg;
    struct frame welcome = {.magic = BOOT_MAGIC, .kind = FRAME_WELCOME};
    struct {
        struct frame head;
        uint64_t numbers[2];
    } data = {{.magic = BOOT_MAGIC, .kind = FRAME_DATA, .bytes = 16}, {1000, 1001}};
    char said[sizeof(struct frame) + sizeof(uint64_t)];
    int listener = abstract_listener(c->address), fd = take_greeting(listener);

    if (!c->listens_on)
        close(listener);
    close(fd);
    if (!c->listens_on)
        return NULL;
    fd = take_greeting(listener);
    if (fd < 0) /* it did not come again */
        return NULL;
    assert_int_equal(send(fd, &welcome, sizeof welcome, 0), (int)sizeof welcome);
    assert_int_equal(recv(fd, said, sizeof said, MSG_WAITALL), (int)sizeof said);
    assert_int_equal(send(fd, &data, sizeof data, 0), (int)sizeof data);
    assert_int_equal(recv(fd, said, 1, 0), 0);
    close(fd);
    close(listener);
    return NULL;
}

/* A rank 0 to which many come at once makes room that way. It has not died. */
static void put_out_to_make_room(void **state)
{
    char address[64];
    struct guest g[2];
    pthread_t thread;

    (void)state;
    for (int on = 0; on < 2; on++) {
        struct crowded c = {guest_free_address(AF_INET, address), on != 0};
        guest_pair(g, address);
        assert_int_equal(pthread_create(&thread, NULL, crowded_main, &c), 0);
        guest_meet(&g[1], 1);
        pthread_join(thread, NULL);
        guest_expect(&g[1], on ? COMM_OK : COMM_ERR_PEER, on ? "" : "rank 0 died while the world was opening");
        assert_int_equal(g[1].exchanged, on);
    }
}

/* The socket to the launcher is full, so that what the rank says would wait for a reader. */
static void launcher_reads_nothing(void **state)
{
    static const char before[4096];
    static const struct base_log quiet = {.level = 0, .rank = -1};
    const struct comm_env *env = wire_default_env();
    struct boot_config config = {.env = env, .log = &quiet, .ranks = 2, .job = "j", .deadline = env->now(env) + SECOND / 4};
    struct meeting m = {.ranks = 2, .port = 1};
    char number[16], why[MEETING_WHY] = "";
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    for (size_t piece = sizeof before; piece; piece /= 2)
        while (send(pair[0], before, piece, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            continue;
    snprintf(number, sizeof number, "%d", pair[0]);
    setenv("PMI_FD", number, 1);
    alarm(30);
    assert_int_equal(meeting_pmi.write(&config, "1", &m, why, sizeof why), COMM_ERR_TIMEOUT);
    alarm(0);
    assert_non_null(strstr(why, "the launcher did not read in time"));
    unsetenv("PMI_FD");
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ipv4),
        cmocka_unit_test(ipv6),
        cmocka_unit_test(by_name),
        cmocka_unit_test(joined_to_itself),
        cmocka_unit_test(one_family),
        cmocka_unit_test(port_taken),
        cmocka_unit_test(malformed),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(late_joiner),
        cmocka_unit_test(wrong_size),
        cmocka_unit_test(stale_run),
        cmocka_unit_test(same_rank_twice),
        cmocka_unit_test(another_version),
        cmocka_unit_test(pending_peers),
        cmocka_unit_test(not_beyond_loopback),
        cmocka_unit_test(put_out_to_make_room),
        cmocka_unit_test(launcher_reads_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
