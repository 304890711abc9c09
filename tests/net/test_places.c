/* Where ranks meet without a given address: a file, and interfaces; and each way in which that fails. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/guest.h"

#include "base/hash.h"
#include "net/auth/handshake.h"
#include "net/posix/interface.h"
#include "net/boot/meeting.h"
#include "wire/table.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

/* An earlier run was killed while it opened, and left its file, which says that its ranks had other secrets than those of this run. */
static void stale_secret(void **state)
{
    char nobody[64], why[400] = "", host[INTERFACE_ADDRESS];
    struct guest g[2];

    (void)state;
    assert_true(interface_address(wire_default_env(), host, why, sizeof why));
    for (int keyed = 0; keyed < 2; keyed++) {
        struct meeting old = {.job = base_hash(0, 'j'), .run = 1, .ranks = 2, .keyed = keyed, .key = {7}};
        guest_pair(g, address);
        guest_free_address(AF_INET, nobody);
        old.port = (uint32_t)strtoul(strchr(nobody, ':') + 1, NULL, 10);
        snprintf(old.host, sizeof old.host, "%s", host);
        if (keyed)
            g[0].secret = g[1].secret = "0123456789abcdef0123456789abcdef";
        assert_int_equal(meeting_file.write(NULL, path, &old, why, sizeof why), COMM_OK);
        g[0].late = SECOND / 2;
        guest_meet(g, 2);
        guest_expect(&g[0], COMM_OK, "");
        guest_expect(&g[1], COMM_OK, "");
        assert_true(g[0].exchanged && g[1].exchanged && g[0].keyed && g[1].keyed);
    }
}

/* Another program has the port by now. */
enum other { OTHER_IS_SILENT, OTHER_TALKS, OTHER_HANGS_UP, OTHER_BEGINS, OTHERS }; /* begins: to answer, and hangs up */
struct program {
    enum other how;
    int listener;
    _Atomic bool stop;
};

/* Reads the hello first, since unread bytes would make the connection end before its answer is read. */
static void begin_answer(int fd)
{
    unsigned char hello[HANDSHAKE_HELLO], head[HANDSHAKE_HEAD];

    handshake_refuse(HANDSHAKE_OK, head);
    (void)!recv(fd, hello, sizeof hello, MSG_WAITALL);
    (void)!send(fd, head, sizeof head, MSG_NOSIGNAL);
}

static void *program_main(void *arg)
{
    struct program *p = arg;
    int taken[64], count = 0;

    while (!atomic_load(&p->stop)) {
        struct pollfd comes = {.fd = p->listener, .events = POLLIN};
        if (poll(&comes, 1, 20) <= 0)
            continue;
        int fd = accept(p->listener, NULL, NULL);
        assert_true(fd >= 0);
        if (p->how == OTHER_TALKS)
            (void)!send(fd, "SSH-2.0-OpenSSH_9.2\r\n", 21, MSG_NOSIGNAL);
        if (p->how == OTHER_BEGINS)
            begin_answer(fd);
        if (p->how == OTHER_HANGS_UP || p->how == OTHER_BEGINS || count == 64)
            close(fd);
        else
            taken[count++] = fd;
    }
    while (count)
        close(taken[--count]);
    return NULL;
}

static void start_program(struct program *p, enum other how, bool given, pthread_t *thread)
{
    char old_address[64], why[MEETING_WHY];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct meeting old = {.job = base_hash(0, 'j'), .run = 1, .ranks = 2, .host = "127.0.0.1", .keyed = !given, .key = {7}};

    guest_free_address(AF_INET, old_address);
    old.port = (uint32_t)strtoul(strchr(old_address, ':') + 1, NULL, 10);
    at.sin_port = htons((uint16_t)old.port);
    *p = (struct program){.how = how, .listener = socket(AF_INET, SOCK_STREAM, 0)};
    assert_int_equal(bind(p->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(p->listener, 64), 0);
    assert_int_equal(pthread_create(thread, NULL, program_main, p), 0);
    assert_int_equal(meeting_file.write(NULL, path, &old, why, sizeof why), COMM_OK);
}

static void stop_program(struct program *p, pthread_t thread)
{
    atomic_store(&p->stop, true);
    pthread_join(thread, NULL);
    close(p->listener);
}

/* With the secret of the file, and with one that the ranks were given. */
static void stale_port(void **state)
{
    struct program p;
    struct guest g[2];
    pthread_t thread;

    (void)state;
    for (int how = 0; how < 2 * OTHERS; how++) {
        start_program(&p, (enum other)(how % OTHERS), how >= OTHERS, &thread);
        guest_pair(g, address);
        g[0].late = SECOND / 2;
        if (how >= OTHERS)
            g[0].secret = g[1].secret = "0123456789abcdef0123456789abcdef";
        guest_meet(g, 2);
        stop_program(&p, thread);
        guest_expect(&g[0], COMM_OK, "");
        guest_expect(&g[1], COMM_OK, "");
        assert_true(g[0].exchanged && g[1].exchanged);
    }
}

/* No rank 0 comes, and the error says what may be wrong: of a file with a secret, of one without if a secret was given, and of one that
 * says otherwise than this rank. */
static void stale_port_to_the_end(void **state)
{
    static const struct {
        bool without, given;
        enum comm_result result;
        const char *text;
    } cases[] = {{false, false, COMM_ERR_TIMEOUT, "did not prove the secret in it; did an earlier run leave that file?"},
                 {true, true, COMM_ERR_TIMEOUT, "did not prove the job's secret; did an earlier run leave that file?"},
                 {false, true, COMM_ERR_AUTH, "if an earlier run left the file /tmp/"}};
    struct program p;
    struct guest g[2];
    pthread_t thread;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int how = 0; how < OTHERS; how++) {
            guest_pair(g, address);
            g[1].patience = SECOND / 2;
            g[1].secret = cases[i].given ? "0123456789abcdef0123456789abcdef" : NULL;
            start_program(&p, (enum other)how, cases[i].without, &thread);
            guest_meet(&g[1], 1);
            stop_program(&p, thread);
            guest_expect(&g[1], cases[i].result, cases[i].text);
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

/* Loopback would be found, where no other host reaches this one. */
static void no_descriptor_to_choose_by(void **state)
{
    char found[INTERFACE_ADDRESS], why[400] = "";
    struct rlimit before, none;
    int lowest = dup(0);

    (void)state;
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)lowest, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool chosen = interface_address(wire_default_env(), found, why, sizeof why);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(chosen);
    assert_non_null(strstr(why, "cannot be listed: Too many open files"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),
        cmocka_unit_test_setup_teardown(stale_file, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(stale_secret, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(stale_port, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(stale_port_to_the_end, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(nobody_writes, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(wrong_size, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(one_has_a_secret, make_folder, drop_folder),
        cmocka_unit_test(no_folder),
        cmocka_unit_test(matching),
        cmocka_unit_test_setup_teardown(choosing, make_folder, drop_folder),
        cmocka_unit_test(no_descriptor_to_choose_by),
    };

    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    wire_default_env()->start(wire_default_env());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
