/* How ranks meet, and how meetings fail: every failure is an error that names the rank, within the deadline. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "net/boot/star.h"
#include "wire/world.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct guest {
    int32_t rank, ranks;
    const char *job;
    int64_t patience;
    int mode; /* 0 all, 1 opens and closes at once, 2 only opens */
    bool exchange;
    const struct comm_env *env; /* NULL: the default */
    enum comm_result result, later;
    char text[256];
    uint32_t fds;
};

static pthread_barrier_t exchange_barrier;
static unsigned char exchange_blob[8][64];
static int exchange(void *arg, const void *in, size_t bytes, void *out)
{
    struct guest *g = arg;
    memcpy(exchange_blob[g->rank], in, bytes);
    pthread_barrier_wait(&exchange_barrier);
    for (int32_t i = 0; i < g->ranks; i++)
        memcpy((char *)out + (size_t)i * bytes, exchange_blob[i], bytes);
    pthread_barrier_wait(&exchange_barrier);
    return 0;
}

static void gather_and_pass(struct guest *g, struct wire_boot *boot)
{
    static const size_t sizes[] = {1, 64, 100000};
    for (int k = 0; k < 3; k++) {
        unsigned char *in = malloc(sizes[k]), *out = malloc(sizes[k] * (size_t)g->ranks);
        memset(in, g->rank + 1 + k, sizes[k]);
        CHECK(boot->class->allgather(boot, in, sizes[k], out) == COMM_OK);
        for (size_t i = 0; i < sizes[k] * (size_t)g->ranks; i++)
            CHECK(out[i] == (unsigned char)(i / sizes[k] + 1 + (size_t)k));
        free(in);
        free(out);
    }
    int given[4], all[8 * 4];
    for (int i = 0; i < 4; i++)
        given[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(boot->class->pass(boot, given, 4, all) == COMM_OK);
    for (int i = 0; i < 4 * g->ranks; i++) {
        CHECK(fcntl(all[i], F_GETFD) & FD_CLOEXEC);
        CHECK(write(all[i], "x", 1) == 1 && close(all[i]) == 0);
        g->fds++;
    }
    for (int i = 0; i < 4; i++)
        close(given[i]);
}

static void *visit(void *arg)
{
    struct guest *g = arg;
    const struct comm_env *env = wire_default_env();
    struct wire_boot *boot = NULL;
    const struct base_log log = {.env = env, .level = LOG_ERROR, .rank = g->rank};
    struct boot_config config = {.env = g->env ? g->env : env,
                                 .log = &log,
                                 .rank = g->rank,
                                 .ranks = g->ranks,
                                 .job = g->job,
                                 .deadline = env->now(env) + g->patience,
                                 .exchange = g->exchange ? exchange : NULL,
                                 .exchange_arg = g,
                                 .error_text = g->text,
                                 .error_text_bytes = sizeof g->text};
    g->result = wire_backend_find("shm")->boot->open(&config, &boot);
    if (g->result != COMM_OK)
        return NULL;
    if (g->mode == 0)
        gather_and_pass(g, boot);
    if (g->mode == 3) {
        char in = 0, out[8];
        g->later = boot->class->allgather(boot, &in, 1, out);
    }
    boot->class->close(boot);
    return NULL;
}

static void party(struct guest *g, int count)
{
    pthread_t thread[8];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, visit, &g[i]), 0);
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
}

static const int64_t SECOND = 1000000000;
static void name_job(char *job, size_t bytes, const char *what)
{
    snprintf(job, bytes, "boot-%s-%d", what, (int)getpid());
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void meet_and_exchange(void **state)
{
    (void)state;
    char job[256];
    struct guest g[5];
    int before = open_descriptors();
    for (int way = 0; way < 3; way++) { /* a short name, a long name, the program's own exchange */
        name_job(job, sizeof job, "meet");
        for (size_t at = strlen(job); way == 1 && at < 200; at++)
            job[at] = 'x', job[at + 1] = 0;
        pthread_barrier_init(&exchange_barrier, NULL, 5);
        for (int i = 0; i < 5; i++)
            g[i] = (struct guest){.rank = i, .ranks = 5, .job = job, .patience = 10 * SECOND, .exchange = way == 2};
        party(g, 5);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(g[i].result, COMM_OK);
            assert_int_equal(g[i].fds, 20);
        }
        pthread_barrier_destroy(&exchange_barrier);
    }
    assert_int_equal(open_descriptors(), before);
}

static void alone(void **state)
{
    (void)state;
    struct guest g = {.rank = 0, .ranks = 1, .job = "boot-alone", .patience = SECOND};
    visit(&g);
    assert_int_equal(g.result, COMM_OK);
    assert_int_equal(g.fds, 4);
}

static void missing_are_named(void **state)
{
    (void)state;
    char job[64];
    name_job(job, sizeof job, "missing");
    struct guest g[2] = {{.rank = 0, .ranks = 4, .job = job, .patience = SECOND / 3},
                         {.rank = 2, .ranks = 4, .job = job, .patience = SECOND / 3}};
    int before = open_descriptors();
    party(g, 2);
    for (int i = 0; i < 2; i++) { /* a rank that came also learns which ranks did not */
        assert_int_equal(g[i].result, COMM_ERR_TIMEOUT);
        assert_non_null(strstr(g[i].text, "missing: 1 3"));
    }
    g[1].patience = SECOND / 10;
    visit(&g[1]);
    assert_int_equal(g[1].result, COMM_ERR_TIMEOUT);
    assert_non_null(strstr(g[1].text, "rank 0"));
    assert_int_equal(open_descriptors(), before);
}

static void dead_is_named(void **state)
{
    (void)state;
    char job[64];
    name_job(job, sizeof job, "dead");
    struct guest g[3];
    for (int i = 0; i < 3; i++) /* rank 1 leaves while the others gather */
        g[i] = (struct guest){.rank = i, .ranks = 3, .job = job, .patience = 5 * SECOND, .mode = i == 1 ? 1 : 3};
    party(g, 3);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(g[i].result, COMM_OK);
        assert_int_equal(g[i].later, COMM_ERR_PEER);
        assert_non_null(strstr(g[i].text, "rank 1"));
    }
}

struct visiting {
    pthread_t thread;
    struct guest *guest;
    _Atomic bool over;
};

static void *visit_and_say(void *arg)
{
    struct visiting *v = arg;

    visit(v->guest);
    v->over = true;
    return NULL;
}

static void begin_visit(struct visiting *v, struct guest *g)
{
    v->guest = g;
    v->over = false;
    assert_int_equal(pthread_create(&v->thread, NULL, visit_and_say, v), 0);
}

static void await(const _Atomic bool *what, const struct guest *g)
{
    for (int i = 0; !*what; i++, usleep(2000))
        if (i == 10000)
            fail_msg("rank %d of %d was told nothing", g->rank, g->ranks);
}

/* The last rank comes only when all other ranks have been judged, so it does not matter how long each of them took. */
static void twins_and_others_are_refused(void **state)
{
    enum { ROOT, FIRST, LAST, SMALL, TWIN, ALL };
    struct visiting v[ALL];
    struct guest g[ALL];
    char job[64];

    (void)state;
    name_job(job, sizeof job, "twins");
    for (int i = 0; i < ALL; i++)
        g[i] = (struct guest){.rank = i < SMALL ? i : 1, .ranks = 3, .job = job, .patience = 20 * SECOND, .mode = 1};
    g[SMALL].ranks = 2; /* a world of another size with the same name */
    begin_visit(&v[ROOT], &g[ROOT]);
    begin_visit(&v[FIRST], &g[FIRST]);
    begin_visit(&v[TWIN], &g[TWIN]);
    begin_visit(&v[SMALL], &g[SMALL]);
    await(&v[SMALL].over, &g[SMALL]);
    for (int i = 0; !v[FIRST].over && !v[TWIN].over; i++, usleep(2000))
        assert_true(i < 10000);
    begin_visit(&v[LAST], &g[LAST]);
    for (int i = 0; i < ALL; i++)
        pthread_join(v[i].thread, NULL);
    const struct guest *refused = g[TWIN].result == COMM_OK ? &g[FIRST] : &g[TWIN]; /* whichever came second */
    for (int i = 0; i < ALL; i++)
        if (i != SMALL && &g[i] != refused && g[i].result != COMM_OK)
            fail_msg("rank %d: %d \"%s\"", g[i].rank, (int)g[i].result, g[i].text);
    assert_int_equal(refused->result, COMM_ERR_AUTH);
    assert_non_null(strstr(refused->text, "rank 1"));
    assert_int_equal(g[SMALL].result, COMM_ERR_AUTH);
    assert_non_null(strstr(g[SMALL].text, "world of 2"));
}

/* ------------------------------------------------------------------------------------------------------------ late ranks */
static _Atomic bool root_listens, root_may_look;

/* Rank 0 reads this clock for the first time just before it looks for arrivals. */
static int64_t now_when_let(const struct comm_env *env)
{
    (void)env;
    root_listens = true;
    for (int i = 0; !root_may_look && i < 10000; i++)
        usleep(2000);
    return wire_default_env()->now(wire_default_env());
}

static socklen_t name_of(const char *job, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "commstream.%u.%s", (unsigned)geteuid(), job);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* says false: connects, but has sent nothing when rank 0 looks. */
static int come_as(int32_t rank, const char *job, bool says)
{
    struct greeting g = {.magic = BOOT_MAGIC, .version = BOOT_VERSION, .rank = rank, .ranks = 2};
    struct timeval patience = {.tv_sec = 20};
    struct sockaddr_un address;
    socklen_t length = name_of(job, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (const char *at = job; *at; at++)
        g.job = base_hash(g.job, (unsigned char)*at);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
    if (says)
        assert_int_equal(send(fd, &g, sizeof g, MSG_NOSIGNAL), sizeof g);
    return fd;
}

/* Reads everything that was sent to fd; text is what follows its first frame. */
static struct frame told(int fd, char text[BOOT_TEXT])
{
    struct frame frame = {.magic = 0};

    memset(text, 0, BOOT_TEXT);
    if (recv(fd, &frame, sizeof frame, MSG_WAITALL) == (ssize_t)sizeof frame && frame.bytes < BOOT_TEXT)
        (void)!recv(fd, text, frame.bytes, MSG_WAITALL);
    close(fd);
    return frame;
}

/* All three are connected when rank 0 looks. It accepts the first and is complete; it must tell the others, which would
 * otherwise believe that it died. */
static void who_comes_too_late_hears_so(void **state)
{
    struct comm_env held = *wire_default_env();
    char job[64], text[BOOT_TEXT];
    struct visiting root;
    struct guest g = {.rank = 0, .ranks = 2, .job = job, .patience = 20 * SECOND, .mode = 1, .env = &held};

    (void)state;
    name_job(job, sizeof job, "late");
    held.now = now_when_let;
    begin_visit(&root, &g);
    await(&root_listens, &g);
    int first = come_as(1, job, true), twin = come_as(1, job, true), silent = come_as(1, job, false);
    root_may_look = true;
    pthread_join(root.thread, NULL);
    assert_int_equal(g.result, COMM_OK);
    assert_int_equal(told(first, text).kind, FRAME_WELCOME);
    struct frame answer = told(twin, text);
    assert_int_equal(answer.kind, FRAME_REFUSED);
    assert_int_equal(answer.result, COMM_ERR_AUTH);
    assert_non_null(strstr(text, "rank 1 is there already"));
    answer = told(silent, text);
    assert_int_equal(answer.kind, FRAME_REFUSED);
    assert_int_equal(answer.result, COMM_ERR_AUTH);
    assert_non_null(strstr(text, "all 2 ranks of rank 0's world are there"));
}

/* A client that connects and sends nothing, or something else, is not accepted and delays nobody; a second rank 0 is
 * refused. */
static void pending_peers(void **state)
{
    (void)state;
    char job[64];
    name_job(job, sizeof job, "pending_peers");
    struct guest g[3] = {{.rank = 0, .ranks = 2, .job = job, .patience = 5 * SECOND},
                         {.rank = 1, .ranks = 2, .job = job, .patience = 5 * SECOND},
                         {.rank = 0, .ranks = 2, .job = job, .patience = SECOND}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, visit, &g[0]), 0);
    struct sockaddr_un address;
    socklen_t length = name_of(job, &address);
    int fd[40];
    for (int i = 0; i < 40; i++) {
        fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int tries = 0;
        while (connect(fd[i], (struct sockaddr *)&address, length) && tries++ < 500)
            usleep(2000);
        assert_true(tries < 500);
        if (i % 2)
            assert_int_equal(send(fd[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    }
    visit(&g[2]);
    assert_int_equal(g[2].result, COMM_ERR_CONFIG);
    visit(&g[1]);
    pthread_join(thread, NULL);
    assert_int_equal(g[0].result, COMM_OK);
    assert_int_equal(g[1].result, COMM_OK);
    for (int i = 0; i < 40; i++)
        close(fd[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(meet_and_exchange),
        cmocka_unit_test(missing_are_named),
        cmocka_unit_test(dead_is_named),
        cmocka_unit_test(twins_and_others_are_refused),
        cmocka_unit_test(who_comes_too_late_hears_so),
        cmocka_unit_test(pending_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
