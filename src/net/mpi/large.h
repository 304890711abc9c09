/*
 * MPI's collectives that the library of this process may lack, whatever the header of the build has: the nonblocking ones that count with
 * MPI_Count, and the persistent ones that count with int or with MPI_Count (all MPI 4.0). They are looked up when the world opens.
 */
#ifndef NET_MPI_LARGE_H
#define NET_MPI_LARGE_H

#include <mpi.h>

/* X(nonblocking name, persistent name, parameters). C and D are the types of a count and of a displacement. INFO is the parameter that only
 * persistent calls have, with a comma before it. */
#define MPI_COLLECTIVES(X, C, D, INFO)                                                                                                     \
    X(Ibcast, Bcast_init, (void *, C, MPI_Datatype, int, MPI_Comm INFO, MPI_Request *))                                                    \
    X(Iallreduce, Allreduce_init, (const void *, void *, C, MPI_Datatype, MPI_Op, MPI_Comm INFO, MPI_Request *))                           \
    X(Ireduce, Reduce_init, (const void *, void *, C, MPI_Datatype, MPI_Op, int, MPI_Comm INFO, MPI_Request *))                            \
    X(Ireduce_scatter_block, Reduce_scatter_block_init, (const void *, void *, C, MPI_Datatype, MPI_Op, MPI_Comm INFO, MPI_Request *))     \
    X(Ireduce_scatter, Reduce_scatter_init, (const void *, void *, const C *, MPI_Datatype, MPI_Op, MPI_Comm INFO, MPI_Request *))         \
    X(Iscan, Scan_init, (const void *, void *, C, MPI_Datatype, MPI_Op, MPI_Comm INFO, MPI_Request *))                                     \
    X(Iexscan, Exscan_init, (const void *, void *, C, MPI_Datatype, MPI_Op, MPI_Comm INFO, MPI_Request *))                                 \
    X(Iallgather, Allgather_init, (const void *, C, MPI_Datatype, void *, C, MPI_Datatype, MPI_Comm INFO, MPI_Request *))                  \
    X(Iallgatherv, Allgatherv_init,                                                                                                        \
      (const void *, C, MPI_Datatype, void *, const C *, const D *, MPI_Datatype, MPI_Comm INFO, MPI_Request *))                           \
    X(Igather, Gather_init, (const void *, C, MPI_Datatype, void *, C, MPI_Datatype, int, MPI_Comm INFO, MPI_Request *))                   \
    X(Igatherv, Gatherv_init,                                                                                                              \
      (const void *, C, MPI_Datatype, void *, const C *, const D *, MPI_Datatype, int, MPI_Comm INFO, MPI_Request *))                      \
    X(Iscatter, Scatter_init, (const void *, C, MPI_Datatype, void *, C, MPI_Datatype, int, MPI_Comm INFO, MPI_Request *))                 \
    X(Iscatterv, Scatterv_init,                                                                                                            \
      (const void *, const C *, const D *, MPI_Datatype, void *, C, MPI_Datatype, int, MPI_Comm INFO, MPI_Request *))                      \
    X(Ialltoall, Alltoall_init, (const void *, C, MPI_Datatype, void *, C, MPI_Datatype, MPI_Comm INFO, MPI_Request *))                    \
    X(Ialltoallv, Alltoallv_init,                                                                                                          \
      (const void *, const C *, const D *, MPI_Datatype, void *, const C *, const D *, MPI_Datatype, MPI_Comm INFO, MPI_Request *))

#define MPI_COLLECTIVE_MEMBER(name, persistent, parameters) int(*name) parameters;
#define MPI_NO_INFO
#define MPI_WITH_INFO , MPI_Info
struct mpi_large {
    MPI_COLLECTIVES(MPI_COLLECTIVE_MEMBER, MPI_Count, MPI_Aint, MPI_NO_INFO)
};
/* Persistent calls, each under the name of the nonblocking call that it replaces. */
struct mpi_standing_large {
    MPI_COLLECTIVES(MPI_COLLECTIVE_MEMBER, MPI_Count, MPI_Aint, MPI_WITH_INFO)
    int (*Ibarrier)(MPI_Comm, MPI_Info, MPI_Request *);
};
struct mpi_standing_int {
    MPI_COLLECTIVES(MPI_COLLECTIVE_MEMBER, int, int, MPI_WITH_INFO)
    int (*Ibarrier)(MPI_Comm, MPI_Info, MPI_Request *);
};
#undef MPI_COLLECTIVE_MEMBER

/* Each returns NULL if the library in this process lacks one of the calls. */
const struct mpi_large *mpi_large_find(void);
const struct mpi_standing_large *mpi_standing_large_find(void);
const struct mpi_standing_int *mpi_standing_int_find(void);

#endif
