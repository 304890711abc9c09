/**
 * @file collective.h
 * @brief Collective operations: barrier, broadcast, reduce, scan, gather, scatter, allgather, alltoall.
 *
 * Every rank of a communicator makes the same collective calls in the same order. Each call takes the next place in the
 * communicator's queue and returns at once. The operations appear to run one after another in that order and complete in
 * it. Only one thread at a time may issue collectives on a communicator; use a comm_dup() for each independent source of
 * calls. If ranks make different calls, every rank gets the same COMM_ERR_MISMATCH, and no output buffer is written
 * (backend mpi may have written some by then).
 *
 * **Counts.** `n` is the number of elements in the smallest block: per rank for gather, scatter, allgather and
 * reduce_scatter (the size of its output), per pair of ranks for alltoall. It may be 0. The `_v` functions take one count
 * per rank. `displs` gives the offset of each block in elements; NULL means dense, in rank order. Blocks of an output must
 * not overlap, which the library does not check. The library copies these arrays during the call.
 *
 * **Buffers.** From the call until the request completes, the buffers belong to the library: do not write an input, and do
 * not read or write an output. A buffer that this rank does not use, or that has no elements, may be NULL. Input and output
 * must not overlap, except in place.
 *
 * **In place.** Pass COMM_IN_PLACE as `in`, and the input is taken from `out`:
 *
 * | function | where the input is |
 * |---|---|
 * | comm_reduce() on the root, comm_allreduce(), comm_scan(), comm_exscan() | `out` |
 * | comm_allgather(), comm_allgather_v(), comm_gather() and comm_gather_v() on the root | this rank's block of `out` |
 * | comm_alltoall(), comm_alltoall_v() | `out`, all blocks |
 * | comm_reduce_scatter(), comm_reduce_scatter_v() | `out`, all blocks; the result replaces this rank's block |
 * | comm_scatter(), comm_scatter_v() on the root | `in`; pass COMM_IN_PLACE as `out`, and the root's block stays in `in` |
 *
 * **Devices.** Buffers may be memory of a CUDA device (docs/guide/cuda.md). On backend nccl, those of a collective that NCCL
 * has must be, and the buffer of comm_broadcast_bytes() must be the host's (otherwise COMM_ERR_ARGUMENT).
 *
 * **Errors.** All functions here may return COMM_ERR_ARGUMENT, COMM_ERR_UNSUPPORTED (this type with this operator, or this
 * backend), COMM_ERR_MEMORY, COMM_ERR_FULL (nothing was queued: make progress and call again), COMM_ERR_CLOSED,
 * COMM_ERR_FORKED, or the error that the communicator failed with; on nccl also COMM_ERR_BACKEND, and COMM_ERR_STATE if its
 * stream is being captured and cannot take the call. comm_error_detail() names the argument, its value and what was expected.
 *
 * **Threads.** Any thread may call.
 */
#ifndef COMMSTREAM_COLLECTIVE_H
#define COMMSTREAM_COLLECTIVE_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Passed as `in` (or as `out` of a scatter): the input is in the output buffer. See the table above. */
#define COMM_IN_PLACE ((void *)(intptr_t)-1)

/**
 * Waits until every rank has called it.
 *
 * It moves no data. Earlier collectives of this communicator complete before it and later ones start after it. It does not
 * order messages (comm_send(), comm_recv()). Like MPI_Ibarrier.
 *
 * @param c    communicator
 * @param req  receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_barrier(struct comm_communicator *c, struct comm_request *req);

/**
 * Copies n elements from the root to every other rank.
 *
 * On the root the request completes when `buf` may be reused; on other ranks when the elements have arrived. It says
 * nothing about the progress of other ranks. Like MPI_Ibcast and ncclBroadcast.
 *
 * @param c     communicator
 * @param buf   n elements: the input on the root, the output on all other ranks
 * @param n     number of elements, the same on all ranks
 * @param type  element type
 * @param root  rank that has the data, 0 to comm_size(c) - 1
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_broadcast(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t root,
                                          struct comm_request *req);

/**
 * Combines the inputs of all ranks, element by element, into `out` on the root.
 *
 * The order of operands depends only on rank numbers, not on the root. Like MPI_Ireduce and ncclReduce.
 *
 * @param c     communicator
 * @param in    n elements, or COMM_IN_PLACE on the root
 * @param out   n elements on the root; not used on other ranks, where it may be NULL
 * @param n     number of elements, the same on all ranks
 * @param type  element type
 * @param op    operator: a built-in one (COMM_SUM, ...) or one made by comm_op_create() or comm_op_create_premul_sum()
 * @param root  rank that gets the result, 0 to comm_size(c) - 1
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_reduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                       int32_t root, struct comm_request *req);

/**
 * Combines the inputs of all ranks, element by element, into `out` on every rank.
 *
 * Every rank gets the same bits. Like MPI_Iallreduce and ncclAllReduce.
 *
 * @param c     communicator
 * @param in    n elements, or COMM_IN_PLACE
 * @param out   n elements
 * @param n     number of elements, the same on all ranks
 * @param type  element type
 * @param op    operator: a built-in one (COMM_SUM, ...) or one made by comm_op_create() or comm_op_create_premul_sum()
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_allreduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                          struct comm_request *req);

/**
 * Computes an inclusive prefix reduction: rank r gets the combination of the inputs of ranks 0 to r, in rank order.
 *
 * Like MPI_Iscan. COMM_AVG is not supported.
 *
 * @param c     communicator
 * @param in    n elements, or COMM_IN_PLACE
 * @param out   n elements
 * @param n     number of elements, the same on all ranks
 * @param type  element type
 * @param op    operator: a built-in one (COMM_SUM, ...) or one made by comm_op_create() or comm_op_create_premul_sum()
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_scan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                     struct comm_request *req);

/**
 * Computes an exclusive prefix reduction: rank r gets the combination of the inputs of ranks 0 to r - 1, in rank order.
 *
 * The output of rank 0 is not changed and, unless it is in place, may be NULL. Like MPI_Iexscan. COMM_AVG is not supported.
 *
 * @param c     communicator
 * @param in    n elements, or COMM_IN_PLACE
 * @param out   n elements
 * @param n     number of elements, the same on all ranks
 * @param type  element type
 * @param op    operator: a built-in one (COMM_SUM, ...) or one made by comm_op_create() or comm_op_create_premul_sum()
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_exscan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                       struct comm_request *req);

/**
 * Combines the inputs of all ranks, element by element, and gives block r of the result to rank r.
 *
 * Like MPI_Ireduce_scatter_block and ncclReduceScatter.
 *
 * @param c     communicator
 * @param in    comm_size(c) * n elements, one block for each rank in rank order, or COMM_IN_PLACE
 * @param out   n elements; in place, comm_size(c) * n elements, and the result is stored at element comm_rank(c) * n
 * @param n     number of elements of a block, the same on all ranks
 * @param type  element type
 * @param op    operator: a built-in one (COMM_SUM, ...) or one made by comm_op_create() or comm_op_create_premul_sum()
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_reduce_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                               comm_op op, struct comm_request *req);

/**
 * As comm_reduce_scatter(), with a block size for each rank.
 *
 * Like MPI_Ireduce_scatter.
 *
 * @param c       communicator
 * @param in      blocks of counts[0], counts[1], ... elements, dense in rank order, or COMM_IN_PLACE
 * @param out     counts[comm_rank(c)] elements; in place, all blocks
 * @param counts  comm_size(c) block sizes in elements, the same on all ranks (otherwise COMM_ERR_MISMATCH)
 * @param type    element type
 * @param op      operator: a built-in one (COMM_SUM, ...) or one made by comm_op_create() or comm_op_create_premul_sum()
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_reduce_scatter_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts,
                                                 enum comm_type type, comm_op op, struct comm_request *req);

/**
 * Collects n elements from each rank on the root: rank r's input becomes block r of the root's `out`.
 *
 * Like MPI_Igather.
 *
 * @param c     communicator
 * @param in    n elements, or COMM_IN_PLACE on the root
 * @param out   comm_size(c) * n elements on the root; not used on other ranks, where it may be NULL
 * @param n     number of elements of each rank, the same on all ranks
 * @param type  element type
 * @param root  rank that collects, 0 to comm_size(c) - 1
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_gather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                                       struct comm_request *req);

/**
 * As comm_gather(), with a count and an offset for each rank.
 *
 * Like MPI_Igatherv.
 *
 * @param c       communicator
 * @param in      n elements, or COMM_IN_PLACE on the root
 * @param n       number of elements of this rank; must equal counts[comm_rank(c)] of the root (otherwise COMM_ERR_MISMATCH; on the
 *                root COMM_ERR_ARGUMENT, and in place it is ignored there)
 * @param out     all blocks, on the root; not used on other ranks
 * @param counts  comm_size(c) block sizes in elements; read on the root only
 * @param displs  comm_size(c) offsets into `out` in elements; NULL: dense, in rank order; read on the root only
 * @param type    element type
 * @param root    rank that collects, 0 to comm_size(c) - 1
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_gather_v(struct comm_communicator *c, const void *in, size_t n, void *out, const size_t *counts,
                                         const size_t *displs, enum comm_type type, int32_t root, struct comm_request *req);

/**
 * Distributes the root's blocks: block r of the root's `in` goes to rank r.
 *
 * Like MPI_Iscatter.
 *
 * @param c     communicator
 * @param in    comm_size(c) * n elements on the root; not used on other ranks, where it may be NULL
 * @param out   n elements, or COMM_IN_PLACE on the root
 * @param n     number of elements of a block, the same on all ranks
 * @param type  element type
 * @param root  rank that has the data, 0 to comm_size(c) - 1
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                                        struct comm_request *req);

/**
 * As comm_scatter(), with a count and an offset for each rank.
 *
 * Like MPI_Iscatterv.
 *
 * @param c       communicator
 * @param in      all blocks, on the root; not used on other ranks
 * @param counts  comm_size(c) block sizes in elements; read on the root only
 * @param displs  comm_size(c) offsets into `in` in elements; NULL: dense, in rank order; read on the root only
 * @param out     n elements, or COMM_IN_PLACE on the root
 * @param n       number of elements of this rank; must equal counts[comm_rank(c)] of the root (otherwise COMM_ERR_MISMATCH; on the
 *                root COMM_ERR_ARGUMENT, and in place it is ignored there)
 * @param type    element type
 * @param root    rank that has the data, 0 to comm_size(c) - 1
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_scatter_v(struct comm_communicator *c, const void *in, const size_t *counts, const size_t *displs,
                                          void *out, size_t n, enum comm_type type, int32_t root, struct comm_request *req);

/**
 * Collects n elements from each rank on every rank: rank r's input becomes block r of every `out`.
 *
 * Like MPI_Iallgather and ncclAllGather.
 *
 * @param c     communicator
 * @param in    n elements, or COMM_IN_PLACE
 * @param out   comm_size(c) * n elements
 * @param n     number of elements of each rank, the same on all ranks
 * @param type  element type
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_allgather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                          struct comm_request *req);

/**
 * As comm_allgather(), with a count and an offset for each rank.
 *
 * Like MPI_Iallgatherv.
 *
 * @param c       communicator
 * @param in      counts[comm_rank(c)] elements, or COMM_IN_PLACE
 * @param out     all blocks
 * @param counts  comm_size(c) block sizes in elements, the same on all ranks (otherwise COMM_ERR_MISMATCH)
 * @param displs  comm_size(c) offsets into `out` in elements; NULL: dense, in rank order. May differ between ranks.
 * @param type    element type
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_allgather_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts,
                                            const size_t *displs, enum comm_type type, struct comm_request *req);

/**
 * Exchanges blocks between all pairs: block r of this rank's `in` goes to rank r, which stores it as block comm_rank(c).
 *
 * Like MPI_Ialltoall.
 *
 * @param c     communicator
 * @param in    comm_size(c) * n elements, or COMM_IN_PLACE
 * @param out   comm_size(c) * n elements
 * @param n     number of elements of a block, the same on all ranks
 * @param type  element type
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_alltoall(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                         struct comm_request *req);

/**
 * As comm_alltoall(), with a count and an offset for each block.
 *
 * What rank a sends to rank b must be as long as what b expects from a (otherwise COMM_ERR_MISMATCH; for a rank's own block
 * COMM_ERR_ARGUMENT). Like MPI_Ialltoallv.
 *
 * @param c           communicator
 * @param in          blocks to send, or COMM_IN_PLACE
 * @param in_counts   comm_size(c) sizes in elements of the blocks to send; ignored in place
 * @param in_displs   their offsets into `in` in elements; NULL: dense, in rank order; ignored in place
 * @param out         blocks to receive
 * @param out_counts  comm_size(c) sizes in elements of the blocks to receive
 * @param out_displs  their offsets into `out` in elements; NULL: dense, in rank order
 * @param type        element type
 * @param req         receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_alltoall_v(struct comm_communicator *c, const void *in, const size_t *in_counts, const size_t *in_displs,
                                           void *out, const size_t *out_counts, const size_t *out_displs, enum comm_type type,
                                           struct comm_request *req);

/** Passed as the length by the root of comm_broadcast_bytes() that has nothing to send. */
#define COMM_ROOT_FAILED SIZE_MAX

/**
 * Broadcasts a length and that many bytes in one call, for receivers that do not know the length.
 *
 * If the data does not fit into a receiver's buffer, that receiver's request ends with COMM_ERR_TRUNCATED, its buffer is not
 * changed, and *bytes is the length that was sent; the other ranks get the data. A root that could not produce its data passes
 * COMM_ROOT_FAILED as the length: the request then ends with COMM_ERR_ABORTED on every rank, *bytes of the receivers is not
 * changed, and the communicator does not fail. The call takes two sequence numbers. Like two calls of MPI_Ibcast.
 *
 * Calls with the same root are not distinguished by their lengths. If a rank leaves one out, it gets the data of that one
 * in its next call, unless the option COMM_CHECK=calls is on.
 *
 * @param c      communicator
 * @param buf    the data on the root; on other ranks a buffer of *bytes bytes
 * @param bytes  on the root the length; on other ranks the capacity of `buf` when called and the length received when the
 *               request completes. It is read by the call and must stay valid until then.
 * @param root   rank that has the data, 0 to comm_size(c) - 1
 * @param req    receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in collective.h(3)
 */
COMM_MUST enum comm_result comm_broadcast_bytes(struct comm_communicator *c, void *buf, size_t *bytes, int32_t root,
                                                struct comm_request *req);

#ifdef __cplusplus
}
#endif

#endif
