/*
 * A mock machine for fuzz targets: time that moves when it is told to, memory that is counted and guarded, and sockets that are queues of
 * bytes in this process, behind the poller's handle. So a target is one thread, makes hardly a system call, and does the same each time.
 *
 * It takes the place of poller_open and tcp_mesh at link time (WRAP in CMakeLists.txt: MOCK_WRAPS), and of the calls that would reach a
 * descriptor: a mock lane has one that takes no byte, so that whoever would send past the poller is told to go through it.
 */
#ifndef TESTS_FUZZ_PLAYED_H
#define TESTS_FUZZ_PLAYED_H

#include "fuzz/hold.h"
#include "net/auth/handshake.h"
#include "net/lane/lane.h"

enum mock_wire { MOCK_PLAIN, MOCK_CHECKED, MOCK_SEALED };

/* Zero, then mock_begin. There is one at a time. */
struct mock {
    struct comm_env env;
    int64_t now;
    uint64_t held, held_bytes, held_most; /* pieces of memory, their bytes, and the most that those ever were */
    uint32_t rings, turn;
    enum mock_wire how;
    bool late;      /* as a ring: nothing that is started ends at once, and what is cancelled may just have ended */
    uint32_t piece; /* most that one receive gets; 0: all that is there */
    /* Where tcp_mesh's place is taken: the hostile ends' seals. */
    struct tcp_lane *far; /* [ranks][TCP_SOCKETS]; NULL: both ends of each connection are in the wire */
    struct tcp_port far_port;
    struct mock_socket *socket;
    uint32_t sockets;
};

/* From here on, on: what is taken is never given back, and not counted. */
void mock_keep(bool on);
void mock_begin(struct mock *p);
void mock_end(struct mock *p); /* nothing is held any more, or the target fails */

/* What the other end of a socket does: bytes that arrive; of those the last `behind` not before mock_release; the end of the stream. */
void mock_arrive(struct mock *p, uint32_t socket, const void *bytes, size_t count, size_t behind);
void mock_release(struct mock *p, uint32_t socket);
void mock_hang_up(struct mock *p, uint32_t socket, bool reset);
size_t mock_waiting(const struct mock *p, uint32_t socket); /* bytes that somebody may still receive */
/* How many more bytes it takes; SIZE_MAX: any number, as at first. */
void mock_room(struct mock *p, uint32_t socket, size_t bytes);

/* Bytes of the far end of a lane, sealed as the wire's are. */
void mock_say(struct mock *p, uint32_t peer, uint32_t lane, uint32_t socket, const void *bytes, size_t count, size_t behind);

#endif
