/*
 * A mock machine for fuzz targets: a clock that moves on request, memory that is counted and guarded, and sockets that are queues of bytes
 * in this process, behind the poller's interface. So a target has one thread, makes hardly any system call, and is deterministic.
 *
 * It replaces poller_open and tcp_mesh at link time (WRAP in CMakeLists.txt: MOCK_WRAPS), and the calls that would use a descriptor. The
 * descriptor of a mock lane accepts no byte, so code that sends directly falls back to the poller.
 */
#ifndef TESTS_FUZZ_MOCK_H
#define TESTS_FUZZ_MOCK_H

#include "fuzz/hold.h"
#include "net/auth/handshake.h"
#include "net/lane/lane.h"

enum mock_wire { MOCK_PLAIN, MOCK_CHECKED, MOCK_SEALED };

/* Must be zero before mock_begin. There is one at a time. */
struct mock {
    struct comm_env env;
    int64_t now;
    uint64_t held, held_bytes, held_most; /* number of pieces of memory, their bytes, and the largest number of bytes so far */
    uint32_t rings, turn;
    enum mock_wire how;
    bool late;      /* like a ring: nothing ends when it is started, and a cancelled transfer may just have ended */
    uint32_t piece; /* the most that one receive returns; 0: all there is */
    /* if tcp_mesh is replaced: the seals of the hostile ends */
    struct tcp_lane *far; /* [ranks][TCP_SOCKETS]; NULL: both ends of each connection are in the wire */
    struct tcp_port far_port;
    struct mock_socket *socket;
    uint32_t sockets;
};

/* While on: memory that is taken is never returned, and not counted. */
void mock_keep(bool on);
void mock_begin(struct mock *p);
void mock_end(struct mock *p); /* fails if memory is still held */

/* The other end of a socket: bytes arrive, the last `behind` of them only at mock_release; the end of the stream. */
void mock_arrive(struct mock *p, uint32_t socket, const void *bytes, size_t count, size_t behind);
void mock_release(struct mock *p, uint32_t socket);
void mock_hang_up(struct mock *p, uint32_t socket, bool reset);
size_t mock_waiting(const struct mock *p, uint32_t socket); /* bytes not received yet */
/* How many more bytes the socket accepts; SIZE_MAX, the initial value: any number. */
void mock_room(struct mock *p, uint32_t socket, size_t bytes);

/* Sends bytes from the far end of a lane, sealed like the wire's. */
void mock_say(struct mock *p, uint32_t peer, uint32_t lane, uint32_t socket, const void *bytes, size_t count, size_t behind);

#endif
