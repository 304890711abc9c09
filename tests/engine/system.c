/*
 * System calls that fail, one after another: for each function that the library calls, its first call, its second ... until a run needs
 * fewer. In one of two processes over shared memory, and in a world of one process. The other process must not hang. Data is correct
 * wherever a result is OK. An opening that fails says why. No memory, descriptor, mapping or thread is leaked.
 */
#define _GNU_SOURCE
#include "engine/system_faults.h"

#include "engine/memory_env.h"
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 60000, CALLS_MOST = 24, RUN_SECONDS = 30, OPEN_MS = 400, OPEN_WELL_MS = 10000, SIDE_BY_SIDE = 6 };

#if defined(__SANITIZE_THREAD__)
static const bool under_tsan = true;
#else
static const bool under_tsan = false;
#endif

/* ------------------------------------------------------------------------------------------------------------ leaks */
struct left {
    int descriptors, threads, mappings;
};
static struct left what_is_left(void);

/* Counts only mappings of the library's shared memory; the rest belongs to the C library. */
static int shared_mappings(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:commstream") != NULL;
    fclose(maps);
    return count;
}

static void nothing(void *arg, int32_t rank)
{
    (void)arg;
    (void)rank;
}

/* Called first: some run-times start a thread of their own with the first thread. */
static struct left begin_with(void)
{
    rig_threads(1, nothing, NULL);
    rig_nap(RIG_MS);
    return what_is_left();
}

static struct left what_is_left(void)
{
    return (struct left){(int)proc_entries("/proc/self/fd", NULL), (int)proc_entries("/proc/self/task", NULL), shared_mappings()};
}

/* A joined thread may still be listed for a moment. */
static void check_left(const struct left *before)
{
    struct left now = what_is_left();
    for (int64_t end = rig_now() + 2 * RIG_S; now.threads != before->threads && rig_now() < end; rig_nap(RIG_MS))
        now = what_is_left();
    EQUAL(now.descriptors, before->descriptors);
    EQUAL(now.threads, before->threads);
    EQUAL(now.mappings, before->mappings);
    if (atomic_load(&memory_held) != 0)
        memory_tell();
    EQUAL(atomic_load(&memory_held), 0);
}

/* ------------------------------------------------------------------------------------------------------------ the work */
/* True for the cause, and for what a peer or the application makes of it. */
static bool follows(enum comm_result r)
{
    return r == COMM_OK || r == COMM_ERR_MEMORY || r == COMM_ERR_SYSTEM || r == COMM_ERR_REFUSED || r == COMM_ERR_ABORTED ||
           r == COMM_ERR_CLOSED || r == COMM_ERR_PEER || r == COMM_ERR_CANCELLED;
}

static bool well(struct comm_communicator *c, enum comm_result r, struct comm_request q, const char *what)
{
    if (r == COMM_OK)
        r = comm_wait(q, 8 * RIG_S);
    if (!follows(r))
        rig_die(__FILE__, __LINE__, "%s: %s", what, comm_result_name(r));
    if (r != COMM_OK)
        (void)!comm_abort(c, 1); /* the others would wait for this rank */
    return r == COMM_OK;
}

static void sums(struct comm_communicator *c, size_t n)
{
    int32_t *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
    struct comm_request q = COMM_REQUEST_NONE;
    in[n - 1] = 3;
    if (well(c, comm_allreduce(c, in, out, n, COMM_I32, COMM_SUM, &q), q, "allreduce"))
        CHECK(out[n - 1] == 3 * comm_size(c));
    free(in);
    free(out);
}

static void swaps(struct comm_communicator *c, int32_t rank, size_t n)
{
    int32_t *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
    struct comm_request send = COMM_REQUEST_NONE, receive = COMM_REQUEST_NONE;
    out[n - 1] = rank + 5;
    enum comm_result sent = comm_send(c, out, n, COMM_I32, 1 - rank, 0, &send);
    enum comm_result received = comm_recv(c, in, n, COMM_I32, 1 - rank, 0, NULL, &receive);
    (void)well(c, sent, send, "send");
    if (well(c, received, receive, "recv"))
        CHECK(in[n - 1] == 1 - rank + 5);
    free(in);
    free(out);
}

static void children(struct comm_communicator *c, int32_t rank)
{
    struct comm_communicator *child = NULL;
    struct comm_request q = COMM_REQUEST_NONE;
    if (well(c, comm_dup(c, NULL, &child, &q), q, "dup")) {
        sums(child, 2);
        (void)!comm_close(child, 4 * RIG_S);
    }
    child = NULL;
    if (well(c, comm_split(c, 1, -rank, &child, &q), q, "split")) {
        sums(child, 3);
        (void)!comm_close(child, 4 * RIG_S);
    }
}

static void plans_and_events(struct comm_communicator *c)
{
    struct comm_communicator *record = NULL;
    struct comm_plan *plan = NULL;
    struct comm_event *event = NULL;
    struct comm_request q = COMM_REQUEST_NONE;
    int64_t in = 2, out = 0;
    if (comm_plan_begin(c, &record) == COMM_OK) {
        (void)!comm_allreduce(record, &in, &out, 1, COMM_I64, COMM_SUM, NULL);
        if (comm_plan_end(record, &plan) == COMM_OK && well(c, comm_plan_start(plan, &q), q, "plan"))
            CHECK(out == 2 * comm_size(c));
        comm_plan_free(plan);
    }
    if (comm_event_create(c, &event) == COMM_OK) {
        enum comm_result recorded = comm_event_record(event, c);
        CHECK(follows(recorded == COMM_OK ? comm_event_sync(event, 8 * RIG_S) : recorded));
        comm_event_free(event);
    }
}

/* Includes a sleep: one rank waits while the other is away for a moment. */
static void everything(struct comm_communicator *c, int32_t rank)
{
    struct comm_request q = COMM_REQUEST_NONE;
    sums(c, 1);
    sums(c, LARGE);
    swaps(c, rank, 1);
    swaps(c, rank, LARGE);
    if (rank == 0)
        rig_nap(5 * RIG_MS);
    (void)well(c, comm_barrier(c, &q), q, "barrier");
    children(c, rank);
    plans_and_events(c);
    sums(c, 5);
}

static void quiet(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

/* ------------------------------------------------------------------------------------------------------------ one run of two processes */
static struct {
    struct system_fault fault;
    uint32_t at;
    bool ever_after;
    bool in_one;              /* all ranks are in one process */
    int32_t rank;             /* the rank with failing calls */
    bool must_be_well;        /* the fault must have no effect */
    int32_t descriptor_limit; /* this many more descriptors than are open; -1: no limit */
} trial;

static void plant(int32_t rank)
{
    if (rank != trial.rank)
        return;
    if (trial.descriptor_limit >= 0) {
        struct rlimit limit = {0};
        int highest = dup(0); /* the lowest free number: all lower ones are in use */
        close(highest);
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = (rlim_t)(highest + trial.descriptor_limit);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        system_fail(&(struct system_fault){"setrlimit", EPERM}, 1, true); /* as if this were the hard limit too */
    } else {
        system_fail(&trial.fault, trial.at, trial.ever_after);
    }
}

static void heal(int32_t rank)
{
    struct rlimit limit = {0};
    system_heal();
    if (rank == trial.rank && trial.descriptor_limit >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void rank_main(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    struct left before = begin_with();
    (void)none;
    plant(rank);
    int64_t start = rig_now();
    enum comm_result r =
        comm_open(COMM_CONFIG(.backend = "shm", .open_timeout_ns = (trial.must_be_well ? OPEN_WELL_MS : OPEN_MS) * RIG_MS,
                              .operation_timeout_ns = 6 * RIG_S, .log = quiet, .error_text = text, .error_text_bytes = sizeof text),
                  &world);
    CHECK(trial.must_be_well || rig_now() - start < 4 * RIG_S);
    CHECK((r == COMM_OK) == (world != NULL));
    if (r != COMM_OK && !text[0])
        rig_die(__FILE__, __LINE__, "the opening failed with %s, and does not say why", comm_result_name(r));
    if (r != COMM_OK && trial.must_be_well)
        rig_die(__FILE__, __LINE__, "the opening failed with %s: %s", comm_result_name(r), text);
    if (world) {
        everything(world, rank);
        struct comm_error error = {.size = sizeof error};
        MUST(comm_error_detail(world, &error));
        if (trial.must_be_well && error.result != COMM_OK)
            rig_die(__FILE__, __LINE__, "it failed: %s", error.text);
        enum comm_result closed = comm_close(world, 4 * RIG_S);
        CHECK(closed == COMM_OK || closed == COMM_ERR_TIMEOUT);
    }
    proc->page[rank].number[0] = system_failed();
    proc->page[rank].number[1] = r;
    heal(rank);
    check_left(&before);
}

struct party {
    struct comm_communicator *world[2];
};

static void party_main(void *arg, int32_t rank)
{
    struct party *p = arg;
    everything(p->world[rank], rank);
    (void)!comm_close(p->world[rank], 4 * RIG_S);
}

/* Both ranks are in this process. */
static void both_main(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct party p = {{NULL}};
    char text[512] = "";
    struct left before = begin_with();
    (void)none;
    plant(rank);
    enum comm_result r =
        comm_open_local(COMM_CONFIG(.operation_timeout_ns = 6 * RIG_S, .log = quiet, .error_text = text, .error_text_bytes = sizeof text),
                        2, NULL, p.world);
    if (strcmp(trial.fault.call, "pthread_create") == 0)
        system_heal(); /* the threads of the ranks belong to the test */
    if (r == COMM_OK)
        rig_threads(2, party_main, &p);
    else if (!text[0])
        rig_die(__FILE__, __LINE__, "the opening failed with %s, and does not say why", comm_result_name(r));
    proc->page[rank].number[0] = system_failed();
    proc->page[rank].number[1] = r;
    heal(rank);
    check_left(&before);
}

/* Returns whether the fault occurred. */
static bool try_once(int32_t *opened)
{
    struct proc proc = {.raw = true};
    proc_start(&proc, trial.in_one ? 1 : 2, trial.in_one ? both_main : rank_main);
    proc_finish(&proc, -1, RUN_SECONDS * RIG_S);
    *opened = (int32_t)proc.page[trial.rank].number[1];
    return proc.page[trial.rank].number[0] != 0;
}

/* Fails the first call of a function, then the second, and so on. */
static void try_fault(const struct system_fault *fault)
{
    int32_t opened;
    bool came = true;
    trial.fault = *fault;
    for (trial.at = 1; came && trial.at <= CALLS_MOST; trial.at += rig_quick() && trial.at > 1 ? 8 : 1) {
        rig_note("rank %d: %s number %u ends with %s", trial.rank, fault->call, trial.at, strerror(fault->error));
        came = try_once(&opened);
    }
    if (trial.must_be_well)
        return;
    rig_note("rank %d: every %s ends with %s", trial.rank, fault->call, strerror(fault->error));
    trial.at = 1;
    trial.ever_after = true;
    try_once(&opened);
    trial.ever_after = false;
}

/* Runs workers in parallel, each in its own processes: a failing opening mostly waits until its time is over. */
static void side_by_side(size_t workers, void (*work)(const void *arg, size_t worker), const void *arg)
{
    pid_t pid[SIDE_BY_SIDE];
    CHECK(workers <= SIDE_BY_SIDE);
    fflush(NULL);
    for (size_t w = 0; w < workers; w++) {
        pid[w] = fork();
        CHECK(pid[w] >= 0);
        if (pid[w])
            continue;
        work(arg, w);
        fflush(NULL);
        _exit(0);
    }
    for (size_t w = 0; w < workers; w++) {
        int status = -1;
        CHECK(waitpid(pid[w], &status, 0) == pid[w]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

struct faults {
    const struct system_fault *list;
    size_t count;
};

static void try_some(const void *arg, size_t worker)
{
    const struct faults *all = arg;
    for (size_t i = worker; i < all->count; i += SIDE_BY_SIDE)
        try_fault(&all->list[i]);
}

static void try_each(const struct system_fault *list, size_t count, bool must_be_well)
{
    trial.must_be_well = must_be_well;
    trial.descriptor_limit = -1;
    side_by_side(SIDE_BY_SIDE, try_some, &(struct faults){list, count});
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ------------------------------------------------------------------------------------------------------------ the tests */
static const struct system_fault hard[] = {
    {"socket", EMFILE},        {"bind", EADDRINUSE},       {"listen", ENOBUFS},   {"accept4", EMFILE},       {"connect", EACCES},
    {"sendmsg", ETOOMANYREFS}, {"recvmsg", ENOMEM},        {"send", ENOBUFS},     {"recv", ENOMEM},          {"memfd_create", EMFILE},
    {"memfd_create", ENOSYS},  {"ftruncate", ENOSPC},      {"fallocate", ENOSPC}, {"fallocate", ENOMEM},     {"fcntl", EMFILE},
    {"mmap", ENOMEM},          {"madvise", EINVAL},        {"eventfd", EMFILE},   {"epoll_create1", EMFILE}, {"epoll_ctl", ENOMEM},
    {"epoll_ctl", ENOSPC},     {"pthread_create", EAGAIN}, {"getrandom", ENOSYS}, {"poll", ENOMEM},
};

RIG_TEST(system_fails_in_a_rank)
{
    proc_needs_shm();
    trial.rank = 1;
    try_each(hard, COUNT(hard), false);
}

RIG_TEST(system_fails_in_rank_0)
{
    proc_needs_shm();
    trial.rank = 0;
    try_each(hard, COUNT(hard), false);
}

RIG_TEST(system_fails_in_one_process)
{
    trial.in_one = true;
    try_each(hard, COUNT(hard), false);
}

/* An interruption by a signal, or a moment without room, must have no effect. */
static const struct system_fault soft[] = {
    {"send", EINTR},      {"send", EAGAIN},      {"recv", EINTR},         {"recv", EAGAIN},          {"sendmsg", EINTR},
    {"sendmsg", EAGAIN},  {"recvmsg", EINTR},    {"recvmsg", EAGAIN},     {"poll", EINTR},           {"connect", EINTR},
    {"connect", EAGAIN},  {"accept4", EINTR},    {"accept4", EAGAIN},     {"accept4", ECONNABORTED}, {"fallocate", EINTR},
    {"getrandom", EINTR}, {"futex_wait", EINTR}, {"epoll_pwait2", EINTR}, {"epoll_wait", EINTR},     {"read", EINTR},
    {"write", EINTR},
};

RIG_TEST(interruptions_are_nothing)
{
    proc_needs_shm();
    for (trial.rank = 0; trial.rank < 2; trial.rank++)
        try_each(soft, COUNT(soft), true);
}

/* Old or strict kernels lack some calls, and the library uses others instead. */
RIG_TEST(features_that_are_absent)
{
    static const struct system_fault absent[] = {
        {"pidfd_open", ENOSYS}, {"pidfd_open", EPERM}, {"membarrier", ENOSYS}, {"membarrier", EPERM}, {"epoll_pwait2", ENOSYS}};
    proc_needs_shm();
    trial.ever_after = true;
    trial.must_be_well = true;
    trial.descriptor_limit = -1;
    trial.at = 1;
    for (trial.rank = 0; trial.rank < 2; trial.rank++) {
        for (size_t i = 0; i < COUNT(absent); i++) {
            int32_t opened;
            if (under_tsan && strcmp(absent[i].call, "membarrier") == 0)
                continue; /* not used under TSan, which does not understand it */
            trial.fault = absent[i];
            rig_note("rank %d: no %s (%s)", trial.rank, absent[i].call, strerror(absent[i].error));
            CHECK(try_once(&opened));
            IS((enum comm_result)opened, COMM_OK);
        }
    }
}

/* A limit as set by ulimit -n; it also affects descriptors received in messages. */
static void run_out(const void *arg, size_t rank)
{
    int32_t opened = COMM_ERR_SYSTEM;
    (void)arg;
    trial.rank = (int32_t)rank;
    for (trial.descriptor_limit = 0; opened != COMM_OK; trial.descriptor_limit++) {
        rig_note("rank %d has %d descriptors", trial.rank, trial.descriptor_limit);
        CHECK(trial.descriptor_limit < 100);
        try_once(&opened);
    }
    CHECK(trial.descriptor_limit > 8); /* some openings failed */
}

RIG_TEST(descriptors_run_out)
{
    proc_needs_shm();
    side_by_side(2, run_out, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(system_fails_in_a_rank),      cmocka_unit_test(system_fails_in_rank_0),
                                       cmocka_unit_test(system_fails_in_one_process), cmocka_unit_test(interruptions_are_nothing),
                                       cmocka_unit_test(features_that_are_absent),    cmocka_unit_test(descriptors_run_out)};

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("engine_system", tests, NULL, NULL);
}
