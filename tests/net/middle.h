/*
 * middle: a machine between two ranks. It is a thread of the dialing rank. The linker replaces connect() (-Wl,--wrap=connect), and for IPv4
 * streams the replacement connects to this thread instead. The thread forwards all bytes, inspects them, and causes the one fault that it
 * is configured for.
 */
#ifndef NET_MIDDLE_H
#define NET_MIDDLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum middle_fault {
    MIDDLE_CHANGE,
    MIDDLE_LOSE,
    MIDDLE_REPEAT,
    MIDDLE_CUT,
    MIDDLE_DELAY,
    MIDDLE_FAULTS,
    MIDDLE_SWALLOW = MIDDLE_FAULTS, /* loses all bytes that follow, but not the end of the connection */
    MIDDLE_SWAP,                    /* exchanges 64 bytes with the 64 after them */
    MIDDLE_HOLD,                    /* delays what arrives after the closer begins to close, on this connection and all before it */
    MIDDLE_SORTS
};
extern const char *const middle_fault_names[MIDDLE_SORTS];

enum { MIDDLE_DIALS = 8, MIDDLE_ANY = -2, MIDDLE_MARK = 32 };

/* What the middles of all ranks saw, in shared memory. */
struct middle_seen {
    _Atomic int64_t marks;                /* how often the mark passed in plain */
    _Atomic uint32_t hello[MIDDLE_DIALS]; /* the last word of the names in each connection's hello, by the connection's number */
};

/* Which connection of a dialing rank (MIDDLE_ANY: each, since a rank that dials too early dials again), in which direction (0: from the
 * dialer), after how many bytes. rank -1: any rank. */
extern struct middle {
    enum middle_fault fault;
    int connection, direction;
    size_t at;
    unsigned char bits; /* bits to change; 0: one bit */
    int rank;           /* the rank whose connections are affected; `self` is this process's rank */
    int self;
    int64_t held_ns;          /* for MIDDLE_HOLD */
    _Atomic int64_t *closes;  /* set when the closer begins to close */
    const char *mark;         /* MIDDLE_MARK bytes; NULL: not searched */
    struct middle_seen *seen; /* NULL: nothing is recorded */
} middle;

#endif
