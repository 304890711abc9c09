/* A one-sided call as the message line queues it (p2p/op.h). The rma room executes it. */
#ifndef P2P_ONE_SIDED_OP_H
#define P2P_ONE_SIDED_OP_H

#include <commstream/window.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A call on a window. The engine executes it itself, because memory that all ranks can address needs no wire. */
enum one_sided_kind { ONE_NONE = 0, ONE_PUT, ONE_GET, ONE_UPDATE, ONE_SWAP, ONE_SIGNAL, ONE_WAIT, ONE_FLUSH };
struct one_sided {
    struct comm_window *window;
    uint8_t kind; /* ONE_NONE: a message */
    int32_t peer; /* FLUSH: may be COMM_ANY_PEER; WAIT: this rank */
    /* Buffers of the caller. The call reads from and expected, and writes to. NULL: not used, or copied to desired_value and
     * expected_value. */
    const void *from, *expected;
    void *to;
    uint64_t expected_value, desired_value; /* SWAP: the elements, in the first bytes */
    size_t n, done, offset, element;        /* n and done count elements; for PUT and GET, bytes */
    enum comm_type type;
    comm_op op;
    uint32_t slot;   /* for SIGNAL and WAIT */
    uint64_t amount; /* SIGNAL: the amount to add; WAIT: the value to reach */
    bool apart;      /* this rank cannot address the part, so its owner executes the call */
    uint32_t behind; /* apart: the next call of this rank to that part that was not completely requested yet */
    uint32_t waits;  /* apart: the next call that waits for room to request the rest from this peer */
    size_t asked;    /* apart: elements that were requested */
};

#endif
