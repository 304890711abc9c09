/*
 * What MPI libraries do wrong, seen through MPI alone: each row of the table of faults in src/net/mpi/faults.c is here. A library that does
 * it right makes its test fail; then the row is for older versions, and the library's own call can be used again.
 *
 *   quirks in_place | displacement | long | uneven | persistent
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net/mpi/library.h"

typedef int reduce_fn(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
typedef int gather_fn(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm, MPI_Request *);
typedef int persistent_fn(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
typedef int broadcast_fn(void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *);

static int rank, ranks;

/* Into a pointer to a function: MPI_Ibcast and its like are not among the calls that the module for the standard ABI looks up. */
static void find(const char *name, void *function)
{
    void *at = mpi_library_symbol(name);
    CHECK(at != NULL);
    memcpy(function, &at, sizeof at);
}

/* Tests with rests in between, as an event loop does. False: the call has not ended well within five seconds. */
static bool ends(MPI_Request *request, int64_t rest)
{
    int done = 0, r = MPI_SUCCESS;
    for (int64_t end = rig_now() + 5 * RIG_S; r == MPI_SUCCESS && !done && rig_now() < end; rig_nap(rest))
        r = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return r == MPI_SUCCESS && done;
}

/* Open MPI: ranks that give their input in place use another algorithm for a long allreduce than those that do not. */
static bool in_place(void)
{
    enum { N = 1 << 16 };
    static int32_t in[N], out[N];
    reduce_fn *reduce;
    find("MPI_Iallreduce", &reduce);
    MPI_Request request;
    for (int i = 0; i < N; i++)
        out[i] = in[i] = i + rank;
    CHECK(reduce(rank % 2 ? MPI_IN_PLACE : in, out, N, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    if (!ends(&request, RIG_MS))
        return true;
    for (int i = 0; i < N; i++)
        if (out[i] != ranks * i + ranks * (ranks - 1) / 2)
            return true;
    return false;
}

/* MPICH 4.0: an allgatherv of one rank ignores where the rank's block goes. */
static bool displacement(void)
{
    const int32_t in = 5;
    int32_t out[4] = {0};
    const int count = 1, at = 3;
    gather_fn *gather;
    find("MPI_Iallgatherv", &gather);
    MPI_Request request;
    CHECK(ranks == 1);
    CHECK(gather(&in, 1, MPI_INT32_T, out, &count, &at, MPI_INT32_T, MPI_COMM_WORLD, &request) == MPI_SUCCESS && ends(&request, 0));
    return out[at] != in;
}

/* MPICH 4.0 and Intel MPI: a broadcast of 2 GiB is an error. All of the memory is the same few pages. */
static bool long_broadcast(void)
{
    enum { TURN = 2 << 20, TURNS = 1024 };
    broadcast_fn *broadcast;
    find("MPI_Ibcast", &broadcast);
    MPI_Request request;
    int done = 0, r;
    int file = memfd_create("long", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, TURN) == 0);
    char *at = mmap(NULL, (size_t)TURN * TURNS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t i = 0; i < TURNS; i++)
        CHECK(mmap(at + i * TURN, TURN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
    r = broadcast(at, TURN / 4 * TURNS, MPI_INT32_T, 0, MPI_COMM_WORLD, &request);
    for (int64_t end = rig_now() + 60 * RIG_S; r == MPI_SUCCESS && !done && rig_now() < end;)
        r = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return r != MPI_SUCCESS;
}

/* Intel MPI: an allgatherv in which one rank gives next to nothing never ends if ranks rest between their tests. */
static bool uneven(void)
{
    enum { MUCH = 70001 };
    static int64_t in[MUCH], out[MUCH + 1];
    gather_fn *gather;
    find("MPI_Iallgatherv", &gather);
    const int counts[] = {MUCH, 1}, displs[] = {0, MUCH};
    MPI_Request request;
    CHECK(ranks == 2);
    for (int turn = 0; turn < 100; turn++) {
        CHECK(gather(in, counts[rank], MPI_INT64_T, out, counts, displs, MPI_INT64_T, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
        if (!ends(&request, RIG_MS / 20))
            return true;
    }
    return false;
}

/* MPICH 4.0 and Intel MPI: a persistent collective works once. The simplest is a gather of one rank, which is a copy. */
static bool persistent(void)
{
    int32_t in = 5, out = 0;
    persistent_fn *gather;
    find("MPI_Gather_init", &gather);
    MPI_Request request;
    CHECK(gather(&in, 1, MPI_INT32_T, &out, 1, MPI_INT32_T, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request) == MPI_SUCCESS);
    for (; in < 8; in++)
        if (MPI_Start(&request) != MPI_SUCCESS || !ends(&request, 0) || out != in)
            return true;
    return false;
}

static const struct quirk {
    const char *name;
    bool (*shows)(void); /* on some rank; it may have left MPI in the middle of a call */
} quirks[] = {
    {"in_place", in_place}, {"displacement", displacement}, {"long", long_broadcast}, {"uneven", uneven}, {"persistent", persistent}};

int main(int argc, char **argv)
{
    static char library[MPI_MAX_LIBRARY_VERSION_STRING];
    char why[256] = "", path[512];
    const char *intel = getenv("COMM_TEST_MPI_INTEL"); /* the only one that is opened at run time */
    int level, length;
    const struct quirk *quirk = quirks;
    rig_end_after(120);
    while (quirk < quirks + sizeof quirks / sizeof *quirks && (argc != 2 || strcmp(quirk->name, argv[1]) != 0))
        quirk++;
    CHECK(quirk < quirks + sizeof quirks / sizeof *quirks);
    snprintf(path, sizeof path, "%s/lib/libmpi_abi.so.1", intel ? intel : "");
    if (mpi_library_open(&(struct native_config){.library = path, .error_text = why, .error_text_bytes = sizeof why}) != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s", why);
    CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &level) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_library_version(library, &length);
    bool shows = quirk->shows();
    printf("rank %d: %s %s %.40s\n", rank, quirk->name, shows ? "is a fault of" : "is no fault of", library);
    fflush(stdout);
    rig_nap(RIG_S); /* for the others; MPI_Finalize may wait for a call that never ends */
    _exit(0);
}
