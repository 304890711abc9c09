/*
 * middle: a machine between two ranks. It is a thread of the rank that dials: connect() of IPv4 streams is this file's, by the linker
 * (-Wl,--wrap=connect), and makes a connection to it instead; it passes on what comes, looks at it, and does the one harm it is told to.
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
    MIDDLE_SWALLOW = MIDDLE_FAULTS, /* all that follows, but for its end */
    MIDDLE_SWAP,                    /* 64 bytes with the 64 behind them */
    MIDDLE_HOLD,                    /* what comes once the closer closes, on this and all connections before it */
    MIDDLE_SORTS
};
extern const char *const middle_fault_names[MIDDLE_SORTS];

enum { MIDDLE_DIALS = 8, MIDDLE_ANY = -2, MIDDLE_MARK = 32 };

/* What all ranks' middles saw; in memory that they share. */
struct middle_seen {
    _Atomic int64_t marks;                /* how often the mark passed in plain */
    _Atomic uint32_t hello[MIDDLE_DIALS]; /* the last word of the names in a connection's hello, by its number */
};

/* Which connection of those that a rank dials (MIDDLE_ANY: each; who dials too early dials again), in which direction (0: from the dialer),
 * behind how many bytes; rank -1: of any. */
extern struct middle {
    enum middle_fault fault;
    int connection, direction;
    size_t at;
    unsigned char bits; /* that are changed; 0: one of them */
    int rank;           /* whose dials; this process is `self` */
    int self;
    int64_t held_ns;          /* of MIDDLE_HOLD */
    _Atomic int64_t *closes;  /* he does */
    const char *mark;         /* MIDDLE_MARK bytes; NULL: nobody looks */
    struct middle_seen *seen; /* NULL: nothing is kept */
} middle;

#endif
