/*
 * Messages between two ranks. They stand beside the queue of collectives: each starts at once, is matched in order per (peer, tag), and
 * completes on its own, so that an unanswered receive holds back nothing but what would use its memory. What is held back, by that or by a
 * queue wait, holds back later messages of its pair and direction. Any thread may call; where several send to one peer with one tag, their
 * order is the order of their calls. A rank may send to itself. May change until 0.1.
 */
#ifndef COMMSTREAM_MESSAGE_H
#define COMMSTREAM_MESSAGE_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COMM_ANY_PEER (-1)
/* Tags are 0 .. UINT32_MAX - 1. */
#define COMM_ANY_TAG UINT32_MAX
/*
 * Sends n elements of buf to rank `peer` of c under `tag`. Complete when buf may be reused, which says nothing of the receiver. buf is read
 * by the library until then. A send that is still not taken at its deadline fails c with TIMEOUT. ARGUMENT: no such rank, or COMM_ANY_TAG.
 * MPI_Isend, ncclSend.
 */
COMM_MUST enum comm_result comm_send(struct comm_communicator *c, const void *buf, size_t n, enum comm_type type, int32_t peer,
                                     uint32_t tag, struct comm_request *req);
/*
 * Receives up to n elements into buf from `peer` (or COMM_ANY_PEER) under `tag` (or COMM_ANY_TAG). buf and *status, which may be NULL, are
 * the library's until complete; status then says who sent and how many bytes came. A longer message ends this receive alone with TRUNCATED;
 * one that matches nothing ends by comm_cancel, comm_close, or its deadline. MPI_Irecv, ncclRecv.
 */
COMM_MUST enum comm_result comm_recv(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t peer, uint32_t tag,
                                     struct comm_status *status, struct comm_request *req);
/*
 * Waits at most timeout_ns for a message that such a receive would match: OK and *status when there is one, which it leaves where it is,
 * else PENDING, at the latest after the operation timeout. timeout 0 looks once; another one is STATE inside a callback. With several
 * receiving threads another may take it first: use comm_recv there. MPI_Probe, MPI_Iprobe.
 */
COMM_MUST enum comm_result comm_probe(struct comm_communicator *c, int32_t peer, uint32_t tag, int64_t timeout_ns,
                                      struct comm_status *status);

#ifdef __cplusplus
}
#endif

#endif
