/*
 * A hostile member: a rank that opened the world like any other, with the real handshake, and whose library is then held still while the
 * test speaks for it. It knows all that its library knew (names of channels, numbers of frames) and keeps no rule that is not asked of it.
 */
#ifndef TESTS_NET_MEMBER_H
#define TESTS_NET_MEMBER_H

#include "net/lane/lane.h"

#include <commstream/open.h>

struct member {
    struct tcp_channel *c;
    uint32_t victim;
    struct tcp_lane *lane; /* its two */
};

/* From here on that rank's library does nothing more; it may only end by _exit. Everything that was said before must have been heard. */
void member_take(struct member *m, struct comm_communicator *world, int32_t victim);
/* A frame of the world's channel; numbered as the next one of its connection. False: the other end has closed. */
bool member_say(struct member *m, uint32_t lane, struct frame f, const void *payload);
/* The same but for the end of its payload, which comes with member_finish. */
bool member_begin(struct member *m, uint32_t lane, struct frame f, const void *payload, uint32_t given);
bool member_finish(struct member *m, uint32_t lane, const struct frame *f, const void *rest, uint32_t given);
/* Reads until a frame of that kind comes, whose payload (of up to `room` bytes) it gives. False: the other end has closed, or 10 s passed.
 */
bool member_hear(struct member *m, uint32_t lane, enum frame_kind kind, struct frame *f, void *payload, size_t room);
/* Whether the victim ends that connection within 10 s. */
bool member_is_refused(struct member *m, uint32_t lane);

#endif
