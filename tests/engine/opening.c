/* How processes meet: by an id that rank 0 created, through the program's own store, and in a second world on the same engine. */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, STORE_BYTES = 16384 };

/* The program's store: the values of the ranks for two rounds, since no rank is ever more than one round ahead. */
struct store {
    _Atomic int round[RANKS];
    _Atomic int id_is_there;
    struct comm_id id;
    unsigned char said[2][RANKS][STORE_BYTES];
};
static struct store *store;

static void make_store(void)
{
    store = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(store != MAP_FAILED);
}

struct speaker {
    int32_t rank;
    int round, fails_at; /* -1: never */
};

static int exchange(void *arg, const void *in, size_t bytes, void *out)
{
    struct speaker *s = arg;
    int k = s->round++;
    CHECK(bytes <= STORE_BYTES);
    memcpy(store->said[k % 2][s->rank], in, bytes);
    atomic_store(&store->round[s->rank], k + 1);
    if (k == s->fails_at)
        return 5;
    for (int32_t r = 0; r < RANKS; r++) {
        for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&store->round[r]) <= k; rig_nap(RIG_MS / 10))
            CHECK(rig_now() < end);
        memcpy((char *)out + (size_t)r * bytes, store->said[k % 2][r], bytes);
    }
    return 0;
}

static void share_id(int32_t rank)
{
    if (rank == 0) {
        MUST(comm_id_create(NULL, &store->id));
        atomic_store(&store->id_is_there, 1);
    }
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&store->id_is_there); rig_nap(RIG_MS / 10))
        CHECK(rig_now() < end);
}

static void use_backend(struct comm_communicator *world, int32_t rank, const char *backend)
{
    struct comm_info info = {.size = sizeof info};
    EQUAL(comm_rank(world), rank);
    EQUAL(comm_size(world), RANKS);
    MUST(comm_describe(world, &info));
    CHECK(strcmp(info.backend, backend) == 0);
    for (int i = 0; i < 50; i++) {
        struct comm_request q;
        int32_t in = rank + i, out = -1;
        MUST(comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(out, 3 * i + 3);
    }
}

static void use(struct comm_communicator *world, int32_t rank)
{
    use_backend(world, rank, "shm");
}

/* Removes the launcher's variables: the configuration of the program says everything. */
static void forget_launcher(void)
{
    static const char *const names[] = {"COMM_RANK", "COMM_RANKS", "COMM_JOB", "COMM_LOCAL_RANK", "COMM_LOCAL_RANKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* ------------------------------------------------------------------------------------------------------------ by an id */
static void by_id(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    (void)proc;
    (void)none;
    forget_launcher();
    share_id(rank);
    enum comm_result r = comm_open(COMM_CONFIG(.rank = rank, .ranks = RANKS, .id = &store->id, .backend = "shm",
                                               .open_timeout_ns = 10 * RIG_S, .error_text = text, .error_text_bytes = sizeof text),
                                   &world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    use(world, rank);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void run(proc_main *main_of_rank)
{
    struct proc proc = {.raw = true};
    proc_needs_shm();
    make_store();
    proc_start(&proc, RANKS, main_of_rank);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

RIG_TEST(processes_meet_by_an_id)
{
    run(by_id);
}

/* The other ranks wait for a missing rank as long as the opening may last, and no longer. */
static void one_is_missing(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    (void)proc;
    (void)none;
    forget_launcher();
    share_id(rank);
    if (rank == 2)
        return;
    int64_t start = rig_now();
    IS(comm_open(COMM_CONFIG(.rank = rank, .ranks = RANKS, .id = &store->id, .backend = "shm", .open_timeout_ns = RIG_S,
                             .log_level = COMM_LOG_ERROR, .error_text = text, .error_text_bytes = sizeof text),
                 &world),
       COMM_ERR_TIMEOUT);
    CHECK(world == NULL && strlen(text) > 0);
    CHECK(rig_now() - start < 5 * RIG_S);
}

RIG_TEST(a_rank_that_never_comes)
{
    run(one_is_missing);
}

/* ------------------------------------------------------------------------------------------------------------ by a store */
static enum comm_result open_by_store(struct speaker *s, struct comm_communicator *engine_of, int64_t timeout,
                                      struct comm_communicator **world, char *text, size_t bytes)
{
    return comm_open(COMM_CONFIG(.rank = s->rank, .ranks = RANKS, .exchange = exchange, .exchange_arg = s, .backend = "shm",
                                 .engine_of = engine_of, .open_timeout_ns = timeout, .error_text = text, .error_text_bytes = bytes),
                     world);
}

static void by_store(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct speaker s = {.rank = rank, .fails_at = -1};
    char text[512] = "";
    (void)proc;
    (void)none;
    forget_launcher();
    for (int i = 0; i < 2; i++) { /* again, after the first world is closed */
        struct comm_communicator *world = NULL;
        enum comm_result r = open_by_store(&s, NULL, 10 * RIG_S, &world, text, sizeof text);
        if (r != COMM_OK)
            rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
        use(world, rank);
        MUST(comm_close(world, RIG_PATIENCE));
    }
}

RIG_TEST(processes_meet_through_a_store)
{
    run(by_store);
}

/* auto: the ranks learn from the exchange that one of them is on another host. */
static void by_store_over_hosts(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct speaker s = {.rank = rank, .fails_at = -1};
    struct comm_communicator *world = NULL;
    struct comm_info info = {.size = sizeof info};
    char text[512] = "";
    (void)proc;
    (void)none;
    forget_launcher();
    unsetenv("COMM_BACKEND");
    if (rank == 2)
        setenv("COMM_HOST", "elsewhere", 1);
    enum comm_result r = comm_open(COMM_CONFIG(.rank = rank, .ranks = RANKS, .exchange = exchange, .exchange_arg = &s,
                                               .open_timeout_ns = 10 * RIG_S, .error_text = text, .error_text_bytes = sizeof text),
                                   &world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    use_backend(world, rank, "shm+tcp");
    MUST(comm_describe(world, &info));
    EQUAL(info.nodes, 2);
    EQUAL(info.local_ranks, rank == 2 ? 1 : 2);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(processes_of_two_hosts_meet_through_a_store)
{
    run(by_store_over_hosts);
}

/* The store fails on one rank. That rank gets the error at once, the others when the time for opening is over. */
static void store_fails(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct speaker s = {.rank = rank, .fails_at = rank == 1 ? 0 : -1};
    struct comm_communicator *world = NULL;
    char text[512] = "";
    (void)proc;
    (void)none;
    forget_launcher();
    int64_t start = rig_now();
    enum comm_result r = open_by_store(&s, NULL, RIG_S, &world, text, sizeof text);
    CHECK(r < 0 && world == NULL && strlen(text) > 0);
    CHECK(rig_now() - start < 5 * RIG_S);
}

RIG_TEST(a_store_that_fails)
{
    run(store_fails);
}

/* A rank that fails before the ranks meet says so in the store, where the others wait for it without a limit of this library's. */
static void one_cannot_open(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct speaker s = {.rank = rank, .fails_at = -1};
    struct comm_communicator *world = NULL, *closed = NULL;
    char text[512] = "";
    (void)proc;
    (void)none;
    forget_launcher();
    if (rank == 1) {
        MUST(comm_open(COMM_CONFIG(.rank = 0, .ranks = 1, .backend = "local"), &closed));
        MUST(comm_close(closed, RIG_PATIENCE));
    }
    IS(open_by_store(&s, closed, 10 * RIG_S, &world, text, sizeof text), COMM_ERR_CLOSED);
    CHECK(world == NULL && strstr(text, rank == 1 ? "engine_of" : "rank 1 cannot open (COMM_ERR_CLOSED)"));
}

RIG_TEST(a_rank_that_fails_before_it_meets)
{
    run(one_cannot_open);
}

/* ------------------------------------------------------------------------------------------------------------ a second world */
/* Two worlds on one engine, with an event between them; a wait on one also moves the other. */
static void second_world(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct speaker s = {.rank = rank, .fails_at = -1};
    struct comm_communicator *first = proc_open(proc, rank), *second = NULL;
    struct comm_event *event;
    struct comm_request q[2];
    int fd[2] = {-1, -2};
    int64_t in = rank + 1, middle = 0, out = 0;
    char text[512] = "";
    (void)none;
    enum comm_result r = open_by_store(&s, first, 10 * RIG_S, &second, text, sizeof text);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    MUST(comm_fd(first, &fd[0]));
    MUST(comm_fd(second, &fd[1]));
    EQUAL(fd[0], fd[1]);
    MUST(comm_event_create(first, &event));
    for (int i = 0; i < 100; i++) {
        if (i % RANKS == rank)
            rig_nap(RIG_MS / 2); /* one rank is late in each round */
        MUST(comm_allreduce(first, &in, &middle, 1, COMM_I64, COMM_SUM, &q[0]));
        MUST(comm_event_record(event, first));
        MUST(comm_queue_wait_event(second, event));
        MUST(comm_allreduce(second, &middle, &out, 1, COMM_I64, COMM_SUM, &q[1]));
        MUST(comm_queue_wait_request(first, q[1])); /* the next round reads and writes the same buffers */
        MUST(comm_wait(q[1], RIG_PATIENCE));
        EQUAL(out, 18);
        MUST(comm_test(q[0]));
    }
    comm_event_free(event);
    MUST(comm_close(first, RIG_PATIENCE));
    use(second, rank);
    IS(open_by_store(&s, first, RIG_S, &first, text, sizeof text), COMM_ERR_CLOSED); /* its engine cannot be found any more */
    MUST(comm_close(second, RIG_PATIENCE));
}

RIG_TEST(two_worlds_on_one_engine)
{
    run(second_world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_meet_by_an_id),           cmocka_unit_test(a_rank_that_never_comes),
        cmocka_unit_test(processes_meet_through_a_store),    cmocka_unit_test(a_store_that_fails),
        cmocka_unit_test(two_worlds_on_one_engine),          cmocka_unit_test(processes_of_two_hosts_meet_through_a_store),
        cmocka_unit_test(a_rank_that_fails_before_it_meets),
    };
    return cmocka_run_group_tests_name("engine_opening", tests, NULL, NULL);
}
