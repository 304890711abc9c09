/*
 * What comm_mpi_open() leaves to the program where it fails (commstream/mpi.h): nothing on the program's MPI_Comm, and no world on any
 * rank.
 *
 *   left silent | late | memory | broken
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <commstream/commstream.h>

#include <stdlib.h>

static int blocks; /* of memory */
static bool has_none;

static void *count_malloc(size_t bytes)
{
    void *at = has_none ? NULL : malloc(bytes);
    blocks += at != NULL;
    return at;
}

static void count_free(void *at)
{
    blocks -= at != NULL;
    free(at);
}

/* Fails on rank 1, when all ranks have opened. */
static enum comm_result open_here(const struct comm_config *config, struct comm_communicator **world);
#define comm_open open_here
#define malloc count_malloc
#define free count_free
#include <commstream/mpi.h>
#undef comm_open
#undef malloc
#undef free

#include <string.h>

enum { TURNS = 5 };

static char text[640];
static int rank;
static bool fails_late, is_silent, splits_nothing;
static int made, freed; /* communicators of MPI */
static MPI_Comm unheard = MPI_COMM_NULL;

static enum comm_result open_here(const struct comm_config *config, struct comm_communicator **world)
{
    enum comm_result r = comm_open(config, world);
    if (r != COMM_OK || !fails_late || rank != 1)
        return r;
    MUST(comm_close(*world, RIG_PATIENCE));
    *world = NULL;
    return COMM_ERR_SYSTEM;
}

/* The rest stands in front of MPI's. */
int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm mpi, MPI_Request *request)
{
    if (!is_silent)
        return PMPI_Iallreduce(in, out, n, type, op, mpi, request);
    unheard = mpi;
    return MPI_ERR_OTHER;
}

int MPI_Comm_split(MPI_Comm mpi, int color, int key, MPI_Comm *out)
{
    if (splits_nothing) { /* after an error MPI may have left anything there */
        *out = (MPI_Comm)0;
        return MPI_ERR_OTHER;
    }
    made += color != MPI_UNDEFINED;
    return PMPI_Comm_split(mpi, color, key, out);
}

int MPI_Comm_free(MPI_Comm *mpi)
{
    freed++;
    return PMPI_Comm_free(mpi);
}

static enum comm_result open_world(int64_t ns, struct comm_communicator **world)
{
    text[0] = 0;
    return comm_mpi_open(MPI_COMM_WORLD,
                         COMM_CONFIG(.backend = "shm", .open_timeout_ns = ns, .error_text = text, .error_text_bytes = sizeof text), world);
}

static void await(MPI_Request *request)
{
    int done = 0;
    for (int64_t until = rig_now() + RIG_PATIENCE; !done; MPI_Test(request, &done, MPI_STATUS_IGNORE))
        CHECK(rig_now() < until);
}

/* The program's own nonblocking collectives, on the communicator that it has given. */
static void program_goes_on(void)
{
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < TURNS; i++) {
        int mine = rank + i, sum = 0;
        MPI_Request request;
        PMPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        await(&request);
        EQUAL(sum, ranks * (ranks - 1) / 2 + i * ranks);
    }
}

static void world_opens(void)
{
    struct comm_communicator *world = NULL;
    MUST(open_world(0, &world));
    MUST(comm_barrier(world, NULL));
    MUST(comm_close(world, RIG_PATIENCE));
}

/* MPI fails on rank 1, which therefore says nothing any more. The others wait until their time is up. */
static void silent(void)
{
    struct comm_communicator *world = NULL;
    is_silent = rank == 1;
    IS(open_world(rank == 1 ? 0 : RIG_S, &world), rank == 1 ? COMM_ERR_BACKEND : COMM_ERR_TIMEOUT);
    CHECK(!world && strstr(text, rank == 1 ? "MPI reported an error" : "open_timeout_ns"));
    is_silent = false;
    program_goes_on();
    world_opens();
    if (rank == 1) { /* so that MPI can end */
        long long in[2] = {0}, out[2];
        MPI_Request request;
        PMPI_Iallreduce(in, out, 2, MPI_LONG_LONG_INT, MPI_MIN, unheard, &request);
        await(&request);
    }
    program_goes_on();
}

/* Rank 1 fails when the others have opened. They learn it, and have no world. */
static void late(void)
{
    struct comm_communicator *world = NULL;
    fails_late = true;
    int64_t since = rig_now();
    IS(open_world(0, &world), rank == 1 ? COMM_ERR_SYSTEM : COMM_ERR_REFUSED);
    CHECK(!world && rig_now() - since < RIG_PATIENCE);
    CHECK(rank == 1 || strstr(text, "failed on another rank"));
    fails_late = false;
    program_goes_on();
    world_opens();
    EQUAL(made, freed);
    EQUAL(blocks, 0);
}

/* Rank 1 has no memory, or MPI makes no communicator on any rank. */
static void early(enum comm_result mine, enum comm_result others, const char *why)
{
    struct comm_communicator *world = NULL;
    int64_t since = rig_now();
    IS(open_world(0, &world), rank == 1 ? mine : others);
    CHECK(!world && strstr(text, why) && rig_now() - since < RIG_PATIENCE);
    has_none = splits_nothing = false;
    EQUAL(blocks, 0);
    program_goes_on();
    world_opens();
    EQUAL(made, freed);
    EQUAL(blocks, 0);
}

static void memory(void)
{
    has_none = rank == 1;
    early(COMM_ERR_MEMORY, COMM_ERR_REFUSED, "no memory to meet");
}

static void broken(void)
{
    splits_nothing = true;
    early(COMM_ERR_BACKEND, COMM_ERR_BACKEND, "MPI reported an error");
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"silent", silent}, {"late", late}, {"memory", memory}, {"broken", broken}};
    size_t at = 0;
    rig_end_after(100);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    while (count > 1 && at < sizeof cases / sizeof *cases && strcmp(cases[at].name, argument[1]) != 0)
        at++;
    if (count != 2 || at == sizeof cases / sizeof *cases)
        return 2;
    cases[at].run();
    MPI_Finalize();
    return 0;
}
