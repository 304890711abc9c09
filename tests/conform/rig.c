/* What the tests of the whole library share: child processes with deadlines, worlds and threads. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include "group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RIG_SLOWER = 5 };
#else
enum { RIG_SLOWER = 1 };
#endif
enum { RIG_SECONDS = 100, RIG_SKIP = 77, RIG_WHY_BYTES = 256 };

static char *rig_why; /* shared with the child, which writes here why its case is skipped; NULL outside */

int64_t rig_slept(void)
{
    unsigned long long computed, waited;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (!file)
        rig_skip("this kernel does not count how long threads wait for a CPU");
    CHECK(fscanf(file, "%llu %llu", &computed, &waited) == 2);
    fclose(file);
    return rig_now() - (int64_t)computed - (int64_t)waited;
}

_Noreturn void rig_skip(const char *why)
{
    if (rig_why)
        snprintf(rig_why, RIG_WHY_BYTES, "%s", why);
    else
        fprintf(stderr, "skipped: %s\n", why);
    fflush(stderr);
    _exit(RIG_SKIP);
}

void rig_not_over(const char *backend, const char *why)
{
    const char *name = getenv("COMM_BACKEND");
    bool mixed = name && strcmp(name, "shm+tcp") == 0 && strcmp(backend, "tcp") == 0; /* tcp joins some of its ranks */
    if (name && (mixed || strcmp(name, backend) == 0))
        rig_skip(why);
}

/* ------------------------------------------------------------------------------------------------------------ isolation */
void rig_isolate(const char *name, void (*body)(void))
{
    char why[RIG_WHY_BYTES];
    rig_why = mmap(NULL, RIG_WHY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(rig_why != MAP_FAILED);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const char *seconds = getenv("COMM_TEST_SECONDS");
        rig_end_after(seconds ? (unsigned)(int)strtol(seconds, NULL, 10) : RIG_SECONDS * RIG_SLOWER);
        body();
        exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    snprintf(why, sizeof why, "%s", rig_why);
    munmap(rig_why, RIG_WHY_BYTES);
    if (WIFEXITED(status) && WEXITSTATUS(status) == RIG_SKIP && *why)
        group_skip("%s", why);
    if (WIFSIGNALED(status))
        fail_msg("%s ended by signal %d", name, WTERMSIG(status));
    else if (WEXITSTATUS(status))
        fail_msg("%s ended with %d", name, WEXITSTATUS(status));
}

/* ------------------------------------------------------------------------------------------------------------ worlds */
/* A world over tcp waits with the requested poller, as the kernel sees it. */
void rig_poller(const char *backend, int32_t ranks)
{
    const char *over = getenv("COMM_BACKEND"), *poller = getenv("COMM_TCP_POLLER");
    if (ranks > 1 && poller && strcmp(over ? over : backend ? backend : "", "tcp") == 0)
        EQUAL(group_holds_ring(), strcmp(poller, "io_uring") == 0);
}

void rig_open(struct rig *rig, int32_t ranks, const struct comm_config *config)
{
    char text[512] = "";
    struct comm_config own = config ? *config : *COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S);
    own.error_text = text;
    own.error_text_bytes = sizeof text;
    memset(rig, 0, sizeof *rig);
    rig->ranks = ranks;
    enum comm_result result = comm_open_local(&own, ranks, NULL, rig->world);
    if (result != COMM_OK)
        rig_die(__FILE__, __LINE__, "comm_open_local of %d ranks, options \"%s\": %s: %s", ranks, own.options ? own.options : "",
                comm_result_name(result), text);
    rig_poller(own.backend, ranks);
}

void rig_open_options(struct rig *rig, int32_t ranks, const char *options)
{
    rig_open(rig, ranks, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S, .options = options));
}

void rig_close(struct rig *rig)
{
    for (int32_t r = 0; r < rig->ranks; r++) {
        if (rig->world[r])
            MUST(comm_close(rig->world[r], RIG_PATIENCE));
        rig->world[r] = NULL;
    }
}

void rig_wait_all(const struct comm_request *requests, size_t count)
{
    enum comm_result result = comm_wait_all(requests, count, RIG_PATIENCE);
    if (result == COMM_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        enum comm_result one = comm_test(requests[i]);
        if (one == COMM_OK)
            continue;
        struct comm_error error = {.size = sizeof error};
        bool told = requests[i].comm && comm_error_detail(requests[i].comm, &error) == COMM_OK;
        rig_die(__FILE__, __LINE__, "request %zu of %zu: %s, wait_all %s: %s", i, count, comm_result_name(one), comm_result_name(result),
                told ? error.text : "no detail");
    }
    rig_die(__FILE__, __LINE__, "wait_all: %s, but every request is complete", comm_result_name(result));
}

void rig_proves_alive(struct comm_communicator *const *c, int32_t ranks)
{
    int32_t in[RIG_RANKS_MAX], out[RIG_RANKS_MAX];
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    for (int32_t r = 0; r < ranks; r++) {
        in[r] = r + 1;
        out[r] = -1;
        MUST(comm_allreduce(c[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &request[r]));
    }
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++)
        EQUAL(out[r], ranks * (ranks + 1) / 2);
}

void rig_dup(struct comm_communicator *const *c, int32_t ranks, struct comm_communicator **out)
{
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_dup(c[r], NULL, &out[r], &request[r]));
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++)
        CHECK(out[r] != NULL);
}

void rig_progress_for(struct comm_communicator *any, int64_t ns)
{
    int64_t end = rig_now() + ns;
    while (rig_now() < end) {
        enum comm_result result = comm_progress(any);
        CHECK(result == COMM_OK || result == COMM_PENDING);
    }
}

/* A turn never blocks: if one takes longer, the machine stood still, which is not the library's fault. */
#define TURN_MOST (100 * RIG_MS)

void rig_fails_within(struct comm_communicator *c, enum comm_result want, int64_t ns, struct comm_error *error)
{
    int64_t passed = 0;
    for (int64_t now = rig_now(), before = now; passed < ns; before = now) {
        enum comm_result moved = comm_progress(c);
        CHECK(moved == COMM_OK || moved == COMM_PENDING);
        *error = (struct comm_error){.size = sizeof *error};
        if (comm_error_detail(c, error) == COMM_OK && error->result == want)
            return;
        now = rig_now();
        passed += now - before < TURN_MOST ? now - before : TURN_MOST;
    }
    rig_die(__FILE__, __LINE__, "rank %d: no %s within %lld ms; the detail says %s: %s", comm_rank(c), comm_result_name(want),
            (long long)(ns / RIG_MS), comm_result_name(error->result), error->text);
}

/* ------------------------------------------------------------------------------------------------------------ threads */
struct rig_thread {
    pthread_t thread;
    void (*fn)(void *arg, int32_t rank);
    void *arg;
    int32_t rank;
};

static void *rig_thread_run(void *arg)
{
    struct rig_thread *thread = arg;
    thread->fn(thread->arg, thread->rank);
    return NULL;
}

void rig_threads(int32_t ranks, void (*fn)(void *arg, int32_t rank), void *arg)
{
    struct rig_thread thread[RIG_RANKS_MAX];
    for (int32_t r = 0; r < ranks; r++) {
        thread[r] = (struct rig_thread){.fn = fn, .arg = arg, .rank = r};
        EQUAL(pthread_create(&thread[r].thread, NULL, rig_thread_run, &thread[r]), 0);
    }
    for (int32_t r = 0; r < ranks; r++)
        pthread_join(thread[r].thread, NULL);
}
