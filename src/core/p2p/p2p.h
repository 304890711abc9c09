/* Messages: the calls of the program. */
#ifndef P2P_P2P_H
#define P2P_P2P_H

#include <commstream/message.h>

#include "comm/call.h"

enum comm_result engine_message(struct comm_communicator *c, bool is_send, void *buf, size_t bytes, int32_t peer, uint32_t tag,
                                struct comm_status *status, struct comm_request *req);
/* Before something that uses this memory goes to the communicator's stream. FULL: a message that is staged beside the stream uses it. */
enum comm_result p2p_precede_stream(struct comm_state *b, const struct timeline_range *read, const struct timeline_range *write);
enum comm_result engine_cancel(struct comm_request request);
enum comm_result engine_probe(struct comm_communicator *c, int32_t peer, uint32_t tag, int64_t timeout_ns, struct comm_status *status);

#endif
