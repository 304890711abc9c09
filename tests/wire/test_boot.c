/* How ranks meet, and above all how they do not: every failure is an error that names its rank, within the deadline. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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
    int mode; /* 0 all, 1 opens and closes at once, 2 opens alone */
    bool exchange;
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
    struct boot_config config = {.env = env,
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
    for (int way = 0; way < 3; way++) { /* a short name, a long one, the program's own exchange */
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
    for (int i = 0; i < 2; i++) { /* also the one who came hears who did not */
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
    for (int i = 0; i < 3; i++) /* rank 1 goes away while the others gather */
        g[i] = (struct guest){.rank = i, .ranks = 3, .job = job, .patience = 5 * SECOND, .mode = i == 1 ? 1 : 3};
    party(g, 3);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(g[i].result, COMM_OK);
        assert_int_equal(g[i].later, COMM_ERR_PEER);
        assert_non_null(strstr(g[i].text, "rank 1"));
    }
}

static void twins_and_others_are_refused(void **state)
{
    (void)state;
    char job[64];
    name_job(job, sizeof job, "twins");
    struct guest g[5];
    for (int i = 0; i < 5; i++)
        g[i] = (struct guest){.rank = i < 3 ? i : 1, .ranks = 3, .job = job, .patience = 5 * SECOND, .mode = 1};
    g[3].ranks = 2; /* a world of another size under the same name */
    g[2].patience = 10 * SECOND;
    pthread_t thread[5];
    int order[] = {0, 1, 4, 3, 2};
    for (int k = 0; k < 5; k++) { /* rank 2 comes last, so that the others meet rank 0 */
        assert_int_equal(pthread_create(&thread[order[k]], NULL, visit, &g[order[k]]), 0);
        usleep(50000);
    }
    for (int i = 0; i < 5; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(g[0].result, COMM_OK);
    assert_int_equal(g[2].result, COMM_OK);
    assert_int_equal(g[1].result, COMM_OK);
    assert_int_equal(g[4].result, COMM_ERR_AUTH);
    assert_non_null(strstr(g[4].text, "rank 1"));
    assert_int_equal(g[3].result, COMM_ERR_AUTH);
    assert_non_null(strstr(g[3].text, "world of 2"));
}

/* Who connects and says nothing, or something else, neither enters nor holds anybody up; a second rank 0 is refused. */
static void strangers(void **state)
{
    (void)state;
    char job[64];
    name_job(job, sizeof job, "strangers");
    struct guest g[3] = {{.rank = 0, .ranks = 2, .job = job, .patience = 5 * SECOND},
                         {.rank = 1, .ranks = 2, .job = job, .patience = 5 * SECOND},
                         {.rank = 0, .ranks = 2, .job = job, .patience = SECOND}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, visit, &g[0]), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "commstream.%u.%s", (unsigned)geteuid(), job);
    int fd[40];
    for (int i = 0; i < 40; i++) {
        fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int tries = 0;
        while (connect(fd[i], (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) &&
               tries++ < 500)
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
        cmocka_unit_test(strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
