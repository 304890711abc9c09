/*
 * A program that uses MPI itself beside this library over MPI. The program starts MPI before the library, at each thread level, or the
 * library starts MPI. In one case the program finalizes MPI too early.
 *
 *   app single|funneled|serialized|multiple | later | early | again | helper | stranger | one_at_a_time
 *
 * Its own functions stand in front of MPI's, for the library's module too.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Below MPI_THREAD_SERIALIZED only one thread may call MPI. */
int MPI_Comm_free(MPI_Comm *comm)
{
    int level, main_thread;
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&main_thread);
    CHECK(level >= MPI_THREAD_SERIALIZED || main_thread);
    return PMPI_Comm_free(comm);
}

/* One thread polls MPI while another asks it something: at MPI_THREAD_SERIALIZED, not at the same time. */
static _Atomic int polls, polled;

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    atomic_store(&polls, 1);
    int code = PMPI_Test(request, flag, status);
    rig_nap(RIG_MS);
    atomic_fetch_add(&polled, 1);
    atomic_store(&polls, 0);
    return code;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    CHECK(level == MPI_THREAD_MULTIPLE || !atomic_load(&polls));
    return PMPI_Comm_size(comm, size);
}

static enum comm_result open_world(enum comm_progress_mode progress, struct comm_communicator **world)
{
    char text[640] = "";
    enum comm_result r = comm_open(COMM_CONFIG(.backend = "mpi", .progress = progress, .operation_timeout_ns = 20 * RIG_S,
                                               .error_text = text, .error_text_bytes = sizeof text),
                                   world);
    if (r != COMM_OK)
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
    return r;
}

/* The program's own calls of MPI and this library's calls, at the same time. */
static void use_both(struct comm_communicator *world)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    EQUAL(comm_rank(world), rank);
    EQUAL(comm_size(world), size);
    for (int i = 0; i < 200; i++) {
        int32_t mine = rank + i, sum = 0, theirs = 0;
        struct comm_request q;
        MPI_Request request;
        MUST(comm_allreduce(world, &mine, &sum, 1, COMM_I32, COMM_SUM, &q));
        MPI_Iallreduce(&mine, &theirs, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD, &request);
        if (i % 2)
            MUST(comm_wait(q, RIG_PATIENCE));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (i % 2 == 0)
            MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(sum, theirs);
        EQUAL(sum, size * (size - 1) / 2 + i * size);
    }
}

static void at_level(int level)
{
    struct comm_communicator *world;
    int provided;
    MPI_Init_thread(NULL, NULL, level, &provided);
    if (provided < level) {
        printf("skipped: MPI provides a lower thread level\n");
        exit(77);
    }
    MUST(open_world(COMM_PROGRESS_AUTO, &world));
    use_both(world);
    MUST(comm_close(world, RIG_PATIENCE));
    MPI_Barrier(MPI_COMM_WORLD); /* MPI belongs to the program and still works */
    MPI_Finalize();
}

static void later(void)
{
    struct comm_communicator *world;
    int there = 0;
    MUST(open_world(COMM_PROGRESS_AUTO, &world));
    MPI_Initialized(&there);
    EQUAL(there, 1);
    use_both(world);
    MUST(comm_close(world, RIG_PATIENCE));
    MPI_Finalize(); /* a program may do this, and the library is notified */
}

static void early(void)
{
    struct comm_communicator *world;
    struct comm_request q;
    int32_t in = 1, out;
    struct comm_error error = {.size = sizeof error};
    MPI_Init(NULL, NULL);
    MUST(open_world(COMM_PROGRESS_AUTO, &world));
    use_both(world);
    MPI_Finalize();
    enum comm_result r = comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    MUST(comm_error_detail(world, &error));
    printf("%s: %s\n", comm_result_name(r), error.text);
    EQUAL(r, COMM_ERR_STATE);
    MUST(comm_close(world, RIG_S));
}

static void again(void)
{
    struct comm_communicator *world;
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    IS(open_world(COMM_PROGRESS_AUTO, &world), COMM_ERR_STATE);
}

static void helper(void)
{
    struct comm_communicator *world;
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    IS(open_world(COMM_PROGRESS_THREAD, &world), COMM_ERR_CONFIG);
    MPI_Finalize();
}

static void *issue(void *arg)
{
    struct comm_communicator *world = arg;
    struct comm_request q;
    int32_t in = 1, out;
    enum comm_result r = comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    EQUAL(r, COMM_ERR_STATE);
    return NULL;
}

static void *close_it(void *arg)
{
    MUST(comm_close(arg, RIG_S));
    return NULL;
}

/* Another thread than the one that opened the worlds. It may close them, but not make a collective call. */
static void stranger(void)
{
    struct comm_communicator *world;
    struct comm_error error = {.size = sizeof error};
    pthread_t thread;
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (provided > MPI_THREAD_FUNNELED) {
        printf("skipped: MPI provides more than was asked for\n");
        exit(77);
    }
    MUST(open_world(COMM_PROGRESS_AUTO, &world));
    use_both(world);
    EQUAL(pthread_create(&thread, NULL, close_it, world), 0);
    pthread_join(thread, NULL);
    MUST(open_world(COMM_PROGRESS_AUTO, &world));
    use_both(world);
    EQUAL(pthread_create(&thread, NULL, issue, world), 0);
    pthread_join(thread, NULL);
    MUST(comm_error_detail(world, &error));
    printf("%s\n", error.text);
    MUST(comm_close(world, RIG_S));
    MPI_Finalize();
}

static void *sum_it(void *arg)
{
    struct comm_request q;
    int32_t one = 1, sum = 0;
    MUST(comm_allreduce(arg, &one, &sum, 1, COMM_I32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(sum, comm_size(arg));
    return NULL;
}

/* Rank 0 gives its part of a sum late. On the others, a thread waits for the sum while another opens worlds of one rank. */
static void one_at_a_time(void)
{
    struct comm_communicator *world, *alone;
    pthread_t thread;
    int rank, provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MUST(open_world(COMM_PROGRESS_CALLER, &world));
    if (rank == 0)
        rig_nap(RIG_S);
    EQUAL(pthread_create(&thread, NULL, sum_it, world), 0);
    for (int i = 0; i < 20 && rank; i++) {
        for (int before = atomic_load(&polled), k = 0; atomic_load(&polled) == before && k < 50; k++)
            rig_nap(RIG_MS);
        MUST(comm_open(COMM_CONFIG(.backend = "mpi", .rank = 0, .ranks = 1), &alone));
        MUST(comm_close(alone, RIG_PATIENCE));
    }
    pthread_join(thread, NULL);
    MUST(comm_close(world, RIG_PATIENCE));
    MPI_Finalize();
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"single", MPI_THREAD_SINGLE},
                  {"funneled", MPI_THREAD_FUNNELED},
                  {"serialized", MPI_THREAD_SERIALIZED},
                  {"multiple", MPI_THREAD_MULTIPLE}};
    static const struct {
        const char *name;
        void (*fn)(void);
    } others[] = {{"later", later},   {"early", early},       {"again", again},
                  {"helper", helper}, {"stranger", stranger}, {"one_at_a_time", one_at_a_time}};
    const char *what = count > 1 ? argument[1] : "";
    rig_end_after(100);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(what, levels[i].name) == 0) {
            at_level(levels[i].level);
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(what, others[i].name) == 0) {
            others[i].fn();
            return 0;
        }
    }
    return 2;
}
