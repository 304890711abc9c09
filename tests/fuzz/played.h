/*
 * A played machine for fuzz targets: time that moves when it is told to, memory that is counted and guarded, and sockets that are queues of
 * bytes in this process, behind the poller's face. So a target is one thread, makes hardly a system call, and does the same each time.
 *
 * It takes the place of poller_open and tcp_mesh at link time (WRAP in CMakeLists.txt: PLAYED_WRAPS), and of the calls that would reach a
 * descriptor: a played lane has one that takes no byte, so that whoever would send past the poller is told to go through it.
 */
#ifndef TESTS_FUZZ_PLAYED_H
#define TESTS_FUZZ_PLAYED_H

#include "fuzz/hold.h"
#include "net/auth/handshake.h"
#include "net/tcp/tcp.h"

enum played_wire { PLAYED_PLAIN, PLAYED_CHECKED, PLAYED_SEALED };

/* Zero, then played_begin. There is one at a time. */
struct played {
    struct comm_env env;
    int64_t now;
    uint64_t held, held_bytes, held_most; /* pieces of memory, their bytes, and the most that those ever were */
    uint32_t rings, turn;
    enum played_wire how;
    bool late;      /* as a ring: nothing that is started ends at once, and what is cancelled may just have ended */
    uint32_t piece; /* most that one receive gets; 0: all that is there */
    /* Where tcp_mesh's place is taken: the hostile ends' seals. */
    struct tcp_lane *far; /* [ranks][TCP_SOCKETS]; NULL: both ends of each connection are in the wire */
    struct tcp_port far_port;
    struct played_socket *socket;
    uint32_t sockets;
};

/* From here on, on: what is taken is never given back, and not counted. */
void played_keep(bool on);
void played_begin(struct played *p);
void played_end(struct played *p); /* nothing is held any more, or the target fails */

/* What the other end of a socket does: bytes that arrive; of those the last `behind` not before played_release; the end of the stream. */
void played_arrive(struct played *p, uint32_t socket, const void *bytes, size_t count, size_t behind);
void played_release(struct played *p, uint32_t socket);
void played_hang_up(struct played *p, uint32_t socket, bool reset);
size_t played_waiting(const struct played *p, uint32_t socket); /* bytes that somebody may still receive */
/* How many more bytes it takes; SIZE_MAX: any number, as at first. */
void played_room(struct played *p, uint32_t socket, size_t bytes);

/* Bytes of the far end of a lane, sealed as the wire's are. */
void played_say(struct played *p, uint32_t peer, uint32_t lane, uint32_t socket, const void *bytes, size_t count, size_t behind);

#endif
