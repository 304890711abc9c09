/* How long the ranks of comm_mpi_open() (commstream/mpi.h) wait for each other. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <commstream/mpi.h>

#include <stdlib.h>
#include <string.h>

static char text[640];

/* As comm_open() reads it: the environment before the program. */
static void patience_is_read(void)
{
    static const struct {
        const char *own, *other, *options;
        int64_t ns;
        double seconds;
    } cases[] = {
        {NULL, NULL, NULL, 0, 60},
        {NULL, NULL, NULL, 250 * RIG_MS, 0.25},
        {"5", NULL, NULL, 250 * RIG_MS, 5},
        {"5", "7000", "open_timeout=9", 0, 5},
        {"", "7000", "open_timeout=9", RIG_S, 7},
        {NULL, "7s", NULL, 0, 7},
        {NULL, NULL, "open_timeout=9", 0, 9},
        {NULL, NULL, "open_timeout=9", RIG_S, 1},
        {NULL, NULL, "window=8,open_timeout=1.5m,chunk=4K", 0, 90},
        {NULL, NULL, "open_timeout=4,open_timeout=3", 0, 3},
        {NULL, NULL, "peer_open_timeout=4", 0, 60},
        {"1h", NULL, NULL, 0, 3600},
        {"1500ms", NULL, NULL, 0, 1.5},
        {"2000000us", NULL, NULL, 0, 2},
        {"3000000000ns", NULL, NULL, 0, 3},
        {"soon", NULL, NULL, RIG_S, 60}, /* comm_open() refuses these */
        {"5 s", NULL, NULL, RIG_S, 60},
        {"0", NULL, NULL, RIG_S, 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsetenv("COMM_OPEN_TIMEOUT");
        unsetenv("COBRE_TCP_CONNECT_TIMEOUT_MS");
        if (cases[i].own)
            setenv("COMM_OPEN_TIMEOUT", cases[i].own, 1);
        if (cases[i].other)
            setenv("COBRE_TCP_CONNECT_TIMEOUT_MS", cases[i].other, 1);
        double got = comm_mpi_patience(COMM_CONFIG(.options = cases[i].options, .open_timeout_ns = cases[i].ns));
        if (got < cases[i].seconds * 0.999999 || got > cases[i].seconds * 1.000001)
            rig_die(__FILE__, __LINE__, "case %zu: %g seconds, expected %g", i, got, cases[i].seconds);
    }
    unsetenv("COMM_OPEN_TIMEOUT");
    unsetenv("COBRE_TCP_CONNECT_TIMEOUT_MS");
}

/* Stands in front of MPI's: a rank is late when the others wait for it. */
static int64_t late_ns;

int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm mpi, MPI_Request *request)
{
    if (late_ns)
        rig_nap(late_ns);
    late_ns = 0;
    return PMPI_Iallreduce(in, out, n, type, op, mpi, request);
}

static enum comm_result open_for(const char *environment, int64_t ns, struct comm_communicator **world)
{
    setenv("COMM_OPEN_TIMEOUT", environment, 1);
    return comm_mpi_open(MPI_COMM_WORLD,
                         COMM_CONFIG(.backend = "shm", .open_timeout_ns = ns, .error_text = text, .error_text_bytes = sizeof text), world);
}

/* Rank 1 is late: for the program's time, but not for the environment's; then the reverse. */
int main(void)
{
    struct comm_communicator *world = NULL;
    int rank;
    rig_end_after(100);
    MPI_Init(NULL, NULL);
    patience_is_read();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    late_ns = rank == 1 ? 2 * RIG_S : 0;
    MUST(open_for("50", RIG_S / 2, &world));
    MUST(comm_barrier(world, NULL));
    MUST(comm_close(world, RIG_PATIENCE));
    if (rank != 1) {
        int64_t since = rig_now();
        IS(open_for("1s", 90 * RIG_S, &world), COMM_ERR_TIMEOUT);
        CHECK(strstr(text, "COMM_OPEN_TIMEOUT") && rig_now() - since < RIG_PATIENCE);
    } else {
        long long in[2] = {0}, out[2];
        MPI_Request request;
        MPI_Comm met;
        int done = 0;
        MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &met); /* the only call that has no deadline */
        rig_nap(3 * RIG_S);
        PMPI_Iallreduce(in, out, 2, MPI_LONG_LONG_INT, MPI_MIN, met, &request); /* so that MPI can end */
        for (int64_t until = rig_now() + RIG_PATIENCE; !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE))
            CHECK(rig_now() < until);
    }
    MPI_Finalize();
    return 0;
}
