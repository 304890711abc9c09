/* The MPI for which a module is compiled: its name in error texts, and the name of the module. */
#ifndef NET_MPI_FAMILY_H
#define NET_MPI_FAMILY_H

#include <mpi.h>

#if defined(MPI_ABI_CALLS) /* compiled with this library's own abi/mpi.h */
#    define MODULE_NAME "mpi_abi"
#    define MODULE_STARTER "the launcher of that MPI"
#    define MODULE_LIBRARY "an MPI with the standard ABI"
#elif defined(OPEN_MPI)
#    define MODULE_NAME "mpi_openmpi"
#    define MODULE_STARTER "mpirun of Open MPI"
#    define TEXT_OF(x) #    x
#    define VERSION_TEXT(a, b, c) "Open MPI " TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)
#    define MODULE_LIBRARY VERSION_TEXT(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#    define MODULE_NAME "mpi_mpich"
#    define MODULE_STARTER "mpiexec.hydra of MPICH"
#    define MODULE_LIBRARY "MPICH " MPICH_VERSION
#else
#    error "an MPI that is neither Open MPI nor of MPICH's family: docs/guide/mpi.md"
#endif

#endif
