/* A hostile member: a rank that opened the world with the real handshake. Then its library is stopped, and the test sends in its place. It
 * has all the state of its library (names of channels, numbers of frames) and need not keep any rule. */
#ifndef TESTS_NET_MEMBER_H
#define TESTS_NET_MEMBER_H

#include "net/lane/lane.h"

#include <commstream/open.h>

struct member {
    struct tcp_channel *c;
    uint32_t victim;
    struct tcp_lane *lane; /* its two lanes */
};

/* Stops that rank's library for good; the process may only end by _exit. Everything sent before must have been received. */
void member_take(struct member *m, struct comm_communicator *world, int32_t victim);
/* Sends a frame of the world's channel, with the next number of its connection. False: the other end has closed. */
bool member_say(struct member *m, uint32_t lane, struct frame f, const void *payload);
/* Sends only the first `given` bytes of the payload; member_finish sends the rest. */
bool member_begin(struct member *m, uint32_t lane, struct frame f, const void *payload, uint32_t given);
bool member_finish(struct member *m, uint32_t lane, const struct frame *f, const void *rest, uint32_t given);
/* Reads until a frame of that kind arrives, and returns up to `room` bytes of its payload. False: the other end has closed, or 10 s have
 * passed. */
bool member_hear(struct member *m, uint32_t lane, enum frame_kind kind, struct frame *f, void *payload, size_t room);
/* Whether the victim ends that connection within 10 s. */
bool member_is_refused(struct member *m, uint32_t lane);

#endif
