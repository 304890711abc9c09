/*
 * One rank alone cannot open a world over MPI. The others must not wait for it in a call of MPI, and the next world opens.
 *
 *   alone asked | threads | less | levels
 *
 * Its own functions stand in front of MPI's, for the library's module too.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "now.h"

static char text[640];
static bool gives_less;

int MPI_Init_thread(int *count, char ***argument, int wanted, int *given)
{
    int code = PMPI_Init_thread(count, argument, wanted, given);
    if (gives_less)
        *given = MPI_THREAD_SERIALIZED;
    return code;
}

int MPI_Query_thread(int *given)
{
    int code = PMPI_Query_thread(given);
    if (gives_less)
        *given = MPI_THREAD_SERIALIZED;
    return code;
}

/* Before MPI starts. */
static int launched_rank(void)
{
    const char *of_openmpi = getenv("OMPI_COMM_WORLD_RANK"), *of_hydra = getenv("PMI_RANK");
    CHECK(of_openmpi || of_hydra);
    return (int)strtol(of_openmpi ? of_openmpi : of_hydra, NULL, 10);
}

static enum comm_result open_world(enum comm_progress_mode progress, struct comm_communicator **world)
{
    text[0] = 0;
    return comm_open(COMM_CONFIG(.backend = "mpi", .progress = progress, .open_timeout_ns = 2 * RIG_PATIENCE,
                                 .operation_timeout_ns = RIG_PATIENCE, .error_text = text, .error_text_bytes = sizeof text),
                     world);
}

static void says(const char *what)
{
    if (!strstr(text, what))
        rig_die(__FILE__, __LINE__, "the error says: %s\n    expected in it: %s", text, what);
}

static void sums(struct comm_communicator *c)
{
    struct comm_request q;
    for (int32_t i = 0; i < 10; i++) {
        int32_t mine = i, sum = 0;
        MUST(comm_allreduce(c, &mine, &sum, 1, COMM_I32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(sum, i * comm_size(c));
    }
}

static void world_opens(void)
{
    struct comm_communicator *world = NULL;
    enum comm_result r = open_world(COMM_PROGRESS_CALLER, &world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s: %s", comm_result_name(r), text);
    sums(world);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* What rank 1 has against it is known before the ranks meet: all ranks fail as soon as they have. */
static void all_fail(enum comm_progress_mode progress, int rank, const char *why)
{
    struct comm_communicator *world = NULL;
    int64_t since = rig_now();
    IS(open_world(progress, &world), COMM_ERR_CONFIG);
    says(rank == 1 ? why : "rank 1 cannot have it");
    CHECK(rig_now() - since < RIG_PATIENCE);
}

/* The library starts MPI, and the environment of rank 1 asks for a level at which it cannot have a progress thread. */
static void asked(void)
{
    int rank = launched_rank();
    if (rank == 1)
        setenv("COMM_MPI_THREADS", "serialized", 1);
    all_fail(COMM_PROGRESS_THREAD, rank, "progress=thread, but MPI is started by this library");
    unsetenv("COMM_MPI_THREADS");
    world_opens();
}

/* The program has started MPI at a level at which rank 1 cannot have a progress thread. */
static void threads(void)
{
    int rank, provided;
    gives_less = true;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    all_fail(rank == 1 ? COMM_PROGRESS_THREAD : COMM_PROGRESS_CALLER, rank, "progress=thread, but MPI was started by the program");
    world_opens();
    MPI_Finalize();
}

/* MPI gives rank 1 less than was asked for, when the ranks have met. The others learn that it has left. */
static void less(void)
{
    struct comm_communicator *world = NULL;
    int rank = launched_rank();
    int64_t since = rig_now();
    gives_less = rank == 1;
    enum comm_result r = open_world(rank == 1 ? COMM_PROGRESS_THREAD : COMM_PROGRESS_CALLER, &world);
    CHECK(rig_now() - since < RIG_PATIENCE);
    IS(r, rank == 1 ? COMM_ERR_CONFIG : COMM_ERR_PEER);
    says(rank == 1 ? "progress=thread, but MPI was started by this library" : "rank 1");
    world_opens();
}

static int exchange(void *arg, const void *in, size_t bytes, void *out)
{
    (void)arg;
    return MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
}

/* MPI has another level on rank 1 than on the others, in a world that the program describes. A child of it has no MPI_Comm. */
static void levels(void)
{
    struct comm_communicator *world = NULL, *child = NULL;
    int rank, ranks, provided;
    gives_less = launched_rank() == 1;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    enum comm_result r =
        comm_open(COMM_CONFIG(.backend = "mpi", .rank = rank, .ranks = ranks, .exchange = exchange, .progress = COMM_PROGRESS_CALLER,
                              .operation_timeout_ns = RIG_PATIENCE, .error_text = text, .error_text_bytes = sizeof text),
                  &world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s: %s", comm_result_name(r), text);
    sums(world);
    MUST(NOW(comm_split, world, 0, -rank, &child));
    sums(child);
    MUST(comm_close(child, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    MPI_Finalize();
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*fn)(void);
    } all[] = {{"asked", asked}, {"threads", threads}, {"less", less}, {"levels", levels}};
    rig_end_after(100);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (count > 1 && strcmp(argument[1], all[i].name) == 0) {
            all[i].fn();
            return 0;
        }
    return 2;
}
