/*
 * Collectives. Each takes the next place in its communicator's queue and returns at once; they appear to run one after another in that
 * order and complete in it. Every rank of c makes the same calls in the same order, so one thread at a time issues on a communicator (a dup
 * for each independent source of calls). A mismatch is one named error (COMM_ERR_MISMATCH) on every rank, before a byte of the user's is
 * written.
 *
 * Counts. n is always the smallest block: elements per rank for gather, scatter, allgather and reduce_scatter (its OUTPUT), per pair for
 * alltoall. The v forms take counts in elements, one per rank; displs NULL means dense, in rank order. The arrays are copied by the call.
 *
 * Buffers are the library's until the request is complete: not to be written, and if results come into them not to be read. Those that a
 * role does not use may be NULL. In place: pass COMM_IN_PLACE as `in`. broadcast has one buffer anyway.
 *   reduce (root), allreduce, scan, exscan  input in out          allgather(_v)       own block already in out at its place
 *   gather(_v) (root)    own block already in out                 scatter(_v) (root)  pass COMM_IN_PLACE as `out`: own block stays
 *   alltoall(_v)         input in out                             reduce_scatter(_v)  input in out (ranks*n), result at out + rank*n
 * Except so, in and out must not overlap (COMM_ERR_ARGUMENT).
 *
 * req may be NULL: nobody waits for this one, and comm_sync reports its error. Errors of a call itself: ARGUMENT, UNSUPPORTED (this type
 * with this operator), MEMORY, FULL (nothing was queued: make progress and call again), CLOSED, FORKED, or what the communicator failed
 * with. A call that is not built yet is UNSUPPORTED on every rank alike, takes no number, and says so below. May change until 0.1.
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

#define COMM_IN_PLACE ((void *)(intptr_t)-1)
/*
 * Complete when every rank has issued it. It waits for earlier collectives and later ones wait for it; messages pass it both ways. Moves no
 * data, and orders no memory of other ranks but through what they sent. MPI_Ibarrier.
 */
COMM_MUST enum comm_result comm_barrier(struct comm_communicator *c, struct comm_request *req);
/*
 * n elements of root's buf to every rank's buf. Complete on the root when buf may be reused, elsewhere when the elements are there; it says
 * nothing of the others. MPI_Ibcast, ncclBroadcast.
 */
COMM_MUST enum comm_result comm_broadcast(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t root,
                                          struct comm_request *req);
/*
 * Element by element, all ranks' in combined by op into root's out; elsewhere out is not touched and may be NULL. The order of operands is
 * fixed by rank alone, whatever the root. MPI_Ireduce, ncclReduce.
 */
COMM_MUST enum comm_result comm_reduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                       int32_t root, struct comm_request *req);
/*
 * Element by element, all ranks' in (n elements) combined by op into every rank's out, with the same bits everywhere. MPI_Iallreduce,
 * ncclAllReduce.
 */
COMM_MUST enum comm_result comm_allreduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                          struct comm_request *req);
/*
 * Rank r's out is the combination of in of ranks 0 .. r, in rank order. n elements each. AVG is UNSUPPORTED. MPI_Iscan.
 */
COMM_MUST enum comm_result comm_scan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                     struct comm_request *req);
/*
 * Rank r's out is the combination of in of ranks 0 .. r-1; rank 0's out is left as it was and may be NULL. n elements each. AVG is
 * UNSUPPORTED. MPI_Iexscan.
 */
COMM_MUST enum comm_result comm_exscan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                       struct comm_request *req);
/*
 * in has a block of n elements for each rank; block r of all ranks, combined by op, becomes rank r's out (n elements).
 * MPI_Ireduce_scatter_block, ncclReduceScatter.
 */
COMM_MUST enum comm_result comm_reduce_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                               comm_op op, struct comm_request *req);
/*
 * As comm_reduce_scatter with blocks of counts[r] elements, dense in rank order. counts are equal on all ranks (MISMATCH).
 * MPI_Ireduce_scatter.
 */
COMM_MUST enum comm_result comm_reduce_scatter_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts,
                                                 enum comm_type type, comm_op op, struct comm_request *req);
/*
 * Each rank's in (n elements) into block r of root's out (ranks*n elements); elsewhere out may be NULL. MPI_Igather.
 */
COMM_MUST enum comm_result comm_gather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                                       struct comm_request *req);
/*
 * As comm_gather where rank r gives n = counts[r] elements, which lie at displs[r] of root's out. counts and displs are read on the root
 * alone; a length that differs from the root's count is MISMATCH. MPI_Igatherv.
 */
COMM_MUST enum comm_result comm_gather_v(struct comm_communicator *c, const void *in, size_t n, void *out, const size_t *counts,
                                         const size_t *displs, enum comm_type type, int32_t root, struct comm_request *req);
/*
 * Block r of root's in (ranks*n elements) into rank r's out (n elements); elsewhere in may be NULL. MPI_Iscatter.
 */
COMM_MUST enum comm_result comm_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                                        struct comm_request *req);
/*
 * As comm_scatter where rank r takes n = counts[r] elements from displs[r] of root's in. counts and displs are read on the root alone; a
 * length that differs from the root's count is MISMATCH. MPI_Iscatterv.
 */
COMM_MUST enum comm_result comm_scatter_v(struct comm_communicator *c, const void *in, const size_t *counts, const size_t *displs,
                                          void *out, size_t n, enum comm_type type, int32_t root, struct comm_request *req);
/*
 * Each rank's in (n elements) into block r of every rank's out (ranks*n elements). MPI_Iallgather, ncclAllGather.
 */
COMM_MUST enum comm_result comm_allgather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                          struct comm_request *req);
/*
 * As comm_allgather where rank r gives counts[r] elements, which lie at displs[r] of every out. counts are equal on all ranks (MISMATCH);
 * displs are each rank's own; places must not overlap. MPI_Iallgatherv.
 */
COMM_MUST enum comm_result comm_allgather_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts,
                                            const size_t *displs, enum comm_type type, struct comm_request *req);
/*
 * Block r of this rank's in goes to rank r, and lies there as the block of this rank; n elements per pair. MPI_Ialltoall.
 */
COMM_MUST enum comm_result comm_alltoall(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                         struct comm_request *req);
/*
 * As comm_alltoall where in_counts[r] elements at in_displs[r] go to rank r and out_counts[r] come from it to out_displs[r]. What one rank
 * gives another must be what that one takes (MISMATCH at the edge); in place, in_counts and in_displs are not looked at. MPI_Ialltoallv.
 */
COMM_MUST enum comm_result comm_alltoall_v(struct comm_communicator *c, const void *in, const size_t *in_counts, const size_t *in_displs,
                                           void *out, const size_t *out_counts, const size_t *out_displs, enum comm_type type,
                                           struct comm_request *req);

#define COMM_ROOT_FAILED SIZE_MAX
/*
 * Length and bytes in one: on the root *bytes is the length, elsewhere the capacity of buf going in and the length coming out; it stays in
 * place until complete. More than fits is TRUNCATED there. Length COMM_ROOT_FAILED at the root ends the request on every rank with ABORTED
 * and fails no communicator: for a root that could not read its file. *bytes is read by the call. It takes two numbers. Two of
 * one root look alike to the library, whatever their lengths: a rank that leaves out the first gets its bytes in the second call, unless
 * COMM_CHECK=calls is on. Two MPI_Ibcast of count and data.
 */
COMM_MUST enum comm_result comm_broadcast_bytes(struct comm_communicator *c, void *buf, size_t *bytes, int32_t root,
                                                struct comm_request *req);

#ifdef __cplusplus
}
#endif

#endif
