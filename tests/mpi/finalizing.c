/*
 * The program calls MPI_Finalize while its world is open, and another thread is inside a call of MPI that the library makes: MPI ends when
 * that call has, and no other is made. The program's own functions stand in front of MPI's, for the library's module too.
 *
 *   finalizing BACKEND look | child | world | text | open
 *
 * look: a thread of the library looks at MPI. The others are a thread of the program's own, which closes a communicator or the world, asks
 * why a communicator has failed, or opens a world.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic bool armed, inside, finalized;
static pthread_t program;
static struct comm_communicator *world, *child;
static const char *backend;

static void close_child(void)
{
    MUST(comm_close(child, RIG_PATIENCE));
}

static void close_world(void)
{
    MUST(comm_close(world, RIG_PATIENCE));
}

static void ask_why(void)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request q;
    enum comm_result r = comm_barrier(child, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    IS(r, COMM_ERR_BACKEND);
    MUST(comm_error_detail(child, &error));
    CHECK(strstr(error.text, "reported error"));
}

static void open_another(void)
{
    struct comm_communicator *another;
    IS(comm_open(COMM_CONFIG(.backend = backend), &another), COMM_ERR_STATE);
}

static const struct scene {
    const char *name, *held; /* NULL: any call that looks */
    void (*run)(void);       /* NULL: the library's threads are enough */
    bool closes;
} scenes[] = {{"look", NULL, NULL, false},
              {"child", "MPI_Comm_free", close_child, false},
              {"world", "MPI_Comm_free", close_world, true},
              {"text", "MPI_Error_string", ask_why, false},
              {"open", "MPI_Query_thread", open_another, false}};
static const struct scene *scene = scenes;

/* Another thread than the program's takes a second for its call. What the last rank holds up, MPI_Finalize of the others may wait for. */
static void hold(const char *call)
{
    if (atomic_load(&finalized))
        rig_die(__FILE__, __LINE__, "%s was called after MPI_Finalize had returned", call);
    if (!atomic_load(&armed) || pthread_equal(program, pthread_self()) || (scene->held && strcmp(scene->held, call) != 0))
        return;
    if (atomic_exchange(&inside, true))
        return;
    rig_nap(RIG_S);
    if (atomic_load(&finalized))
        rig_die(__FILE__, __LINE__, "MPI_Finalize returned while a thread was inside %s", call);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    hold("MPI_Test");
    return PMPI_Test(request, flag, status);
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    hold("MPI_Iprobe");
    return PMPI_Iprobe(source, tag, comm, flag, status);
}

int MPI_Testsome(int count, MPI_Request *request, int *ended, int *index, MPI_Status *status)
{
    hold("MPI_Testsome");
    return PMPI_Testsome(count, request, ended, index, status);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    hold("MPI_Comm_free");
    return PMPI_Comm_free(comm);
}

int MPI_Error_string(int code, char *text, int *length)
{
    hold("MPI_Error_string");
    return PMPI_Error_string(code, text, length);
}

int MPI_Query_thread(int *level)
{
    hold("MPI_Query_thread");
    return PMPI_Query_thread(level);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    return atomic_load(&armed) && scene->run == ask_why ? MPI_ERR_OTHER : PMPI_Ibarrier(comm, request);
}

static void *run_scene(void *arg)
{
    (void)arg;
    scene->run();
    return NULL;
}

/* The world is still there, and MPI is not. */
static void is_over(void)
{
    struct comm_request q;
    enum comm_result r = comm_barrier(world, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    IS(r, COMM_ERR_STATE);
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    printf("%s\n", error.text);
    MUST(comm_close(world, RIG_S));
}

int main(int count, char **argument)
{
    struct comm_request q;
    pthread_t thread;
    int provided;
    rig_end_after(60);
    if (count != 3)
        return 2;
    backend = argument[1];
    while (strcmp(scene->name, argument[2]) != 0)
        if (++scene == scenes + sizeof scenes / sizeof *scenes)
            return 2;
    program = pthread_self();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MUST(comm_open(COMM_CONFIG(.backend = backend, .operation_timeout_ns = 20 * RIG_S), &world));
    MUST(NOW(comm_dup, world, NULL, &child));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    if (scene->closes)
        MUST(comm_close(child, RIG_PATIENCE));
    atomic_store(&armed, true);
    if (scene->run)
        EQUAL(pthread_create(&thread, NULL, run_scene, NULL), 0);
    for (int64_t until = rig_now() + RIG_PATIENCE; !atomic_load(&inside); rig_nap(RIG_MS))
        CHECK(rig_now() < until);
    MPI_Finalize();
    atomic_store(&finalized, true);
    if (scene->run)
        pthread_join(thread, NULL);
    rig_nap(3 * RIG_S); /* for the ticks of the monitor */
    if (!scene->closes)
        is_over();
    return 0;
}
