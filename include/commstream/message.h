/**
 * @file message.h
 * @brief Point-to-point messages: send, receive, probe.
 *
 * Messages are not part of the queue of collectives. Each one starts at once and completes on its own. Messages are matched in order for
 * each pair of ranks and tag. A receive without a matching send holds back nothing except operations that use the same memory. A queue
 * wait (comm_queue_wait_event()) holds back the messages issued after it, until its point is reached.
 *
 * Any thread may call. If several threads send to the same rank with the same tag, the order of their calls is the order of the messages.
 * A rank may send to itself.
 *
 * **Memory.** Between ranks of one host the receiver keeps messages of at most 40 bytes until receives match them, however many there are.
 * Longer ones wait at their sender once a few KiB are under way, and so do all messages over a network.
 *
 * **Errors.** COMM_ERR_ARGUMENT, COMM_ERR_UNSUPPORTED (on nccl: this peer with device memory and tag 0), COMM_ERR_MEMORY, COMM_ERR_FULL
 * (nothing was queued: make progress and call again), COMM_ERR_CLOSED, COMM_ERR_FORKED, or the error that the communicator failed with.
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

/** Matches a message from any rank. */
#define COMM_ANY_PEER (-1)
/** Matches a message with any tag. Tags of messages are 0 to UINT32_MAX - 1. */
#define COMM_ANY_TAG UINT32_MAX

/**
 * Sends n elements to another rank.
 *
 * The request completes when `buf` may be reused; this does not mean that the message was received. A send that is still pending fails the
 * communicator: with COMM_ERR_TIMEOUT at its deadline, with COMM_ERR_CLOSED if its receiver closes. Like MPI_Isend and ncclSend.
 *
 * On backend nccl with device memory and tag 0 the two ranks give the same length, and the message occupies the stream of c until both
 * ends are there: put sends and receives that wait for each other into one group. With another tag it is staged, and begins when the stream
 * has passed what is there at the call.
 *
 * @param c     communicator
 * @param buf   n elements; the library reads them until the request completes
 * @param n     number of elements
 * @param type  element type
 * @param peer  receiving rank, 0 to comm_size(c) - 1
 * @param tag   0 to UINT32_MAX - 1
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the send was started; otherwise an error, listed in message.h(3)
 */
COMM_MUST enum comm_result comm_send(struct comm_communicator *c, const void *buf, size_t n, enum comm_type type, int32_t peer,
                                     uint32_t tag, struct comm_request *req);

/**
 * Receives a message of up to n elements.
 *
 * If the message is longer, this receive alone ends with COMM_ERR_TRUNCATED, the message is lost, and `status` has its length. A receive
 * that matches nothing ends alone, too: with COMM_ERR_CANCELLED by comm_cancel() and comm_close(), with COMM_ERR_TIMEOUT at its deadline,
 * and with COMM_ERR_CLOSED if the peer closes (COMM_ANY_PEER: all other ranks). Like MPI_Irecv and ncclRecv.
 *
 * On backend nccl with device memory and tag 0 or COMM_ANY_TAG, which means 0 there, the peer is a rank, and comm_cancel() returns
 * COMM_ERR_STATE. With another tag it is staged, as in comm_send().
 *
 * @param c       communicator
 * @param buf     room for n elements; the library's until the request completes
 * @param n       largest number of elements
 * @param type    element type
 * @param peer    sending rank, or COMM_ANY_PEER
 * @param tag     tag of the message, or COMM_ANY_TAG
 * @param status  receives the sender, tag and length; the library's until the request completes; NULL: not wanted
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the receive was started; otherwise an error, listed in message.h(3)
 */
COMM_MUST enum comm_result comm_recv(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t peer, uint32_t tag,
                                     struct comm_status *status, struct comm_request *req);

/**
 * Waits for a message that a receive with this peer and tag would match, and leaves it in place.
 *
 * If several threads receive, another one may take the message first; use comm_recv() there. Like MPI_Probe and MPI_Iprobe.
 *
 * @param c           communicator
 * @param peer        sending rank, or COMM_ANY_PEER
 * @param tag         tag of the message, or COMM_ANY_TAG
 * @param timeout_ns  how long to wait, at most the operation timeout; 0: look once
 * @param status      receives the sender, tag and length; NULL: not wanted
 * @return COMM_OK if there is a message; COMM_PENDING if there was none in time; COMM_ERR_STATE on a recorder, and inside a callback unless
 *         timeout_ns is 0; otherwise an error, listed in message.h(3)
 */
COMM_MUST enum comm_result comm_probe(struct comm_communicator *c, int32_t peer, uint32_t tag, int64_t timeout_ns,
                                      struct comm_status *status);

#ifdef __cplusplus
}
#endif

#endif
