/* The table of what MPI libraries do wrong. */
#include "net/mpi/mpi_module.h"

#include <limits.h>
#include <string.h>

/* By the beginning of their version text. tests/mpi/quirks.c shows each fault by MPI alone, so a version without
 * it is noticed, and tests/mpi/cells.c that it is avoided. MPICH 4.0.2 and Intel MPI 2021.18 fail with "Invalid communicator" in MPI_Ibcast
 * of 2 GiB, with int counts and with MPI_Count. MPI_Iallgatherv of Intel MPI 2021.18 never ends if one rank gives next to nothing and
 * another gives much (at 2 ranks: 1 and 20,000 elements of 8 bytes) and a rank rests between its tests. Open MPI's algorithms of a long
 * MPI_Iallreduce differ on ranks in place (issue.c; the test is tests/mpi/apart.c). In MPICH 4.0.2 and Intel MPI 2021.18, a persistent
 * collective that is started again leaves wrong results (MPI_Gather_init, of one rank too) or fails with "Invalid communicator". */
static const struct mpi_fault faults[] = {
    {"MPICH Version: 4.0", INT_MAX, 0, 0, false, 0},
    {"MPICH Version: 5", SIZE_MAX / 2, 0, 0, true, 0},
    {"Intel(R) MPI", INT_MAX, UINT32_C(1) << COLLECTIVE_ALLGATHER_V, 0, false, 0},
    {"Open MPI v5", SIZE_MAX / 2, 0, UINT32_C(1) << COLLECTIVE_ALLREDUCE, true, UINT32_C(1) << COLLECTIVE_ALLGATHER},
    {"Open MPI", SIZE_MAX / 2, 0, UINT32_C(1) << COLLECTIVE_ALLREDUCE, false, 0},
    {"", SIZE_MAX / 2, 0, 0, false, 0},
};

const struct mpi_fault *mpi_faults_here(void)
{
    char version[NATIVE_VERSION_BYTES];
    const struct mpi_fault *fault = faults;

    mpi_library_text(version, sizeof version);
    while (strncmp(version, fault->library, strlen(fault->library)) != 0)
        fault++;
    return fault;
}

/* No other version was tried. */
bool mpi_is_later_mpich_over_ucx(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS || strncmp(version, "MPICH", 5) != 0 || !strstr(version, "ch4:ucx"))
        return false;
    return strncmp(version + strcspn(version, "0123456789"), "4.0.", 4) != 0;
}

/* Seen on two hosts, when the rank died and when it had just exited: inside MPI_Isend, and inside MPI_Test of a collective, MPICH 5.0.2
 * over UCX ends with a signal, and Intel MPI 2021.18 may never return. */
bool mpi_dies_with_peers(void)
{
    char version[NATIVE_VERSION_BYTES];

    mpi_library_text(version, sizeof version);
    return mpi_is_later_mpich_over_ucx() || strncmp(version, "Intel(R) MPI", 12) == 0;
}
