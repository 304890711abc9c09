/* MPI's nonblocking collectives that count with MPI_Count (MPI 4.0). The library of this process may have them even if the header of the
 * build did not, and the reverse. So they are looked up when the world opens. */
#ifndef NET_MPI_LARGE_H
#define NET_MPI_LARGE_H

#include <mpi.h>

#define MPI_LARGE_CALLS(X)                                                                                                                 \
    X(Ibcast, (void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *))                                                             \
    X(Iallreduce, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *))                                        \
    X(Ireduce, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *))                                      \
    X(Ireduce_scatter_block, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *))                             \
    X(Ireduce_scatter, (const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *))                           \
    X(Iscan, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *))                                             \
    X(Iexscan, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *))                                           \
    X(Iallgather, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm, MPI_Request *))                       \
    X(Iallgatherv,                                                                                                                         \
      (const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *))         \
    X(Igather, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *))                     \
    X(Igatherv,                                                                                                                            \
      (const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, int, MPI_Comm, MPI_Request *))    \
    X(Iscatter, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *))                    \
    X(Iscatterv,                                                                                                                           \
      (const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *))    \
    X(Ialltoall, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm, MPI_Request *))                        \
    X(Ialltoallv, (const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *,           \
                   MPI_Datatype, MPI_Comm, MPI_Request *))

struct mpi_large {
#define MPI_LARGE_MEMBER(name, parameters) int(*name) parameters;
    MPI_LARGE_CALLS(MPI_LARGE_MEMBER)
#undef MPI_LARGE_MEMBER
};

/* Returns NULL if the library in this process lacks one of the calls. */
const struct mpi_large *mpi_large_find(void);

#endif
