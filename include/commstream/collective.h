#ifndef COMMSTREAM_COLLECTIVE_H
#define COMMSTREAM_COLLECTIVE_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * n is always the smallest block: elements per rank for gather, scatter, allgather and reduce_scatter (its OUTPUT), per pair for alltoall.
 * req may be NULL: nobody waits for this one, comm_sync reports its error. Buffers that a role does not use may be NULL.
 * In place: pass COMM_IN_PLACE as `in`. broadcast has one buffer anyway.
 *   reduce (root), allreduce, scan, exscan  input in out          allgather(_v)       own block already in out at its place
 *   gather(_v) (root)    own block already in out                 scatter(_v) (root)  pass COMM_IN_PLACE as `out`: own block stays
 *   alltoall(_v)         input in out                             reduce_scatter(_v)  input in out (ranks*n), result at out + rank*n
 * Except so, in and out must not overlap (COMM_ERR_ARGUMENT). v forms: counts in elements, one per rank; displs NULL: dense, in rank order.
 */
#define COMM_IN_PLACE ((void *)(intptr_t)-1)
COMM_MUST enum comm_result comm_barrier(struct comm_communicator *c, struct comm_request *req);
COMM_MUST enum comm_result comm_broadcast(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t root,
                                          struct comm_request *req);
COMM_MUST enum comm_result comm_reduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                       int32_t root, struct comm_request *req);
COMM_MUST enum comm_result comm_allreduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                          struct comm_request *req);
COMM_MUST enum comm_result comm_scan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                     struct comm_request *req);
COMM_MUST enum comm_result comm_exscan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                       struct comm_request *req); /* rank 0's out is left as it was */
COMM_MUST enum comm_result comm_reduce_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                               comm_op op, struct comm_request *req); /* MPI_Reduce_scatter_block, ncclReduceScatter */
COMM_MUST enum comm_result comm_reduce_scatter_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts,
                                                 enum comm_type type, comm_op op, struct comm_request *req);
COMM_MUST enum comm_result comm_gather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                                       struct comm_request *req);
COMM_MUST enum comm_result comm_gather_v(struct comm_communicator *c, const void *in, size_t n, void *out, const size_t *counts,
                                         const size_t *displs, enum comm_type type, int32_t root, struct comm_request *req);
COMM_MUST enum comm_result comm_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                                        struct comm_request *req);
COMM_MUST enum comm_result comm_scatter_v(struct comm_communicator *c, const void *in, const size_t *counts, const size_t *displs, void *out,
                                          size_t n, enum comm_type type, int32_t root, struct comm_request *req);
COMM_MUST enum comm_result comm_allgather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                          struct comm_request *req);
/* counts must be equal on all ranks (checked: COMM_ERR_MISMATCH); what this rank gives is counts[rank]. */
COMM_MUST enum comm_result comm_allgather_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts,
                                            const size_t *displs, enum comm_type type, struct comm_request *req);
COMM_MUST enum comm_result comm_alltoall(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                         struct comm_request *req);
COMM_MUST enum comm_result comm_alltoall_v(struct comm_communicator *c, const void *in, const size_t *in_counts, const size_t *in_displs,
                                           void *out, const size_t *out_counts, const size_t *out_displs, enum comm_type type,
                                           struct comm_request *req);
/* Length and bytes in one: on the root *bytes is the length, elsewhere the capacity in and the length out. length COMM_ROOT_FAILED at the root
   ends the request on every rank with COMM_ERR_ABORTED without failing the communicator. `bytes` stays in place until complete. */
#define COMM_ROOT_FAILED SIZE_MAX
COMM_MUST enum comm_result comm_broadcast_bytes(struct comm_communicator *c, void *buf, size_t *bytes, int32_t root, struct comm_request *req);

#ifdef __cplusplus
}
#endif

#endif
