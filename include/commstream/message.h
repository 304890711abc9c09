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
#define COMM_ANY_TAG UINT32_MAX /* tags: 0 .. UINT32_MAX - 1 */
/* Complete when buf may be reused, not when it was received. */
COMM_MUST enum comm_result comm_send(struct comm_communicator *c, const void *buf, size_t n, enum comm_type type, int32_t peer, uint32_t tag,
                                     struct comm_request *req);
/* n is the capacity. status may be NULL. */
COMM_MUST enum comm_result comm_recv(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t peer, uint32_t tag,
                                     struct comm_status *status, struct comm_request *req);
/* COMM_OK and status when a message could be received now, COMM_PENDING when not within timeout_ns. With several receiving threads use recv. */
COMM_MUST enum comm_result comm_probe(struct comm_communicator *c, int32_t peer, uint32_t tag, int64_t timeout_ns, struct comm_status *status);

#ifdef __cplusplus
}
#endif

#endif
