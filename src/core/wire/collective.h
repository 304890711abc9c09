/* The numbers of the collectives. Fingerprints, published calls and calls of a native contain them, so they never
 * change. */
#ifndef WIRE_COLLECTIVE_H
#define WIRE_COLLECTIVE_H

#define COMM_COLLECTIVES(X)                                                                                                                \
    X(BARRIER, 1, "barrier")                                                                                                               \
    X(BROADCAST, 2, "broadcast")                                                                                                           \
    X(REDUCE, 3, "reduce")                                                                                                                 \
    X(ALLREDUCE, 4, "allreduce")                                                                                                           \
    X(ALLGATHER, 5, "allgather")                                                                                                           \
    X(ALLGATHER_V, 6, "allgather_v")                                                                                                       \
    X(REDUCE_SCATTER, 7, "reduce_scatter")                                                                                                 \
    X(SPLIT, 8, "split")                                                                                                                   \
    X(DUP, 9, "dup")                                                                                                                       \
    X(GROUP, 10, "group")                                                                                                                  \
    X(SCAN, 11, "scan")                                                                                                                    \
    X(EXSCAN, 12, "exscan")                                                                                                                \
    X(GATHER, 13, "gather")                                                                                                                \
    X(GATHER_V, 14, "gather_v")                                                                                                            \
    X(SCATTER, 15, "scatter")                                                                                                              \
    X(SCATTER_V, 16, "scatter_v")                                                                                                          \
    X(ALLTOALL, 17, "alltoall")                                                                                                            \
    X(ALLTOALL_V, 18, "alltoall_v")                                                                                                        \
    X(REDUCE_SCATTER_V, 19, "reduce_scatter_v")                                                                                            \
    X(BROADCAST_BYTES, 20, "broadcast_bytes")                                                                                              \
    X(WINDOW, 21, "window")                                                                                                                \
    X(MEMORY, 22, "mem_alloc_symmetric")
enum comm_collective {
#define COMM_COLLECTIVE_ENUM(name, value, text) COLLECTIVE_##name = value,
    COMM_COLLECTIVES(COMM_COLLECTIVE_ENUM)
#undef COMM_COLLECTIVE_ENUM
        COLLECTIVE_END
};

#endif
