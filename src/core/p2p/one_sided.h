/* A one-sided call as it is queued beside messages (p2p/op.h); what it does is the rma room's. */
#ifndef P2P_ONE_SIDED_H
#define P2P_ONE_SIDED_H

#include <commstream/window.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A call on a window: the engine's own, since memory that all reach needs no wire to move it. */
enum one_sided_kind { ONE_NONE = 0, ONE_PUT, ONE_GET, ONE_UPDATE, ONE_SWAP, ONE_SIGNAL, ONE_WAIT, ONE_FLUSH };
struct one_sided {
    struct comm_window *window;
    uint8_t kind; /* ONE_NONE: a message */
    int32_t peer; /* FLUSH: or COMM_ANY_PEER; WAIT: this rank */
    const void *from, *expected;
    void *to;
    size_t n, done, offset, element; /* n, done: elements; PUT, GET: bytes */
    enum comm_type type;
    comm_op op;
    uint32_t slot;   /* SIGNAL, WAIT */
    uint64_t amount; /* SIGNAL: to add; WAIT: at least */
    bool apart;      /* the part is no memory here: its owner does it */
    uint32_t behind; /* apart: the next call of this rank to that part that was not all asked for */
    uint32_t waits;  /* apart: the next call that waits for room to ask this peer for the rest of it */
    size_t asked;    /* apart: elements */
};

#endif
