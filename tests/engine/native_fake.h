/*
 * native_fake: a native that lives in this process, for every rank of it, and does what libraries do to us: completes late and in any
 * order, fails at a chosen call, lacks some calls, cannot cancel, holds buffers. The linker puts it beside the wire `local`.
 *
 * As a stream (NATIVE_STREAM) it is a queue per channel: what was started runs in order, reads its input when it gets there, and stands
 * where it must wait. Reductions are made in the canonical order, so that the conformance suite compares bit for bit.
 */
#ifndef TESTS_ENGINE_NATIVE_FAKE_H
#define TESTS_ENGINE_NATIVE_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum fake_function {
    FAKE_NONE,
    FAKE_PROBE,
    FAKE_OPEN,
    FAKE_JOIN,
    FAKE_CONNECT,
    FAKE_JOINED,
    FAKE_ACCEPT,
    FAKE_START,
    FAKE_ENDS,
    FAKE_FUNCTIONS
};

struct fake_native {
    uint32_t flags;    /* NATIVE_* */
    uint32_t delay;    /* an operation ends after up to so many looks at it */
    uint32_t connects; /* `joined` says PENDING so often */
    uint64_t seed;
    enum fake_function fails; /* the fails_at-th call of this function, counted over all ranks, has an error */
    int32_t result;           /* which one; 0: BACKEND */
    uint64_t fails_at;
    bool partly;         /* lacks some calls, by their length */
    bool no_child;       /* only the world has it */
    _Atomic bool holds;  /* after a failure the buffers stay in use until this is false again */
    bool no_rank_0;      /* rank 0 of a child has none */
    bool parks_not;      /* a stream that may not park: `wait` without a word is UNSUPPORTED */
    _Atomic bool stalls; /* nothing ends */
    /* counted */
    _Atomic uint64_t calls[FAKE_FUNCTIONS];
    _Atomic uint64_t started, ended, looks, waits, reached, mixed, channels, natives;
    _Atomic uint64_t strangers; /* starts and looks by threads that did not say fake_program_thread */
    _Atomic uint64_t order;     /* of starts on one channel: a ticket below an earlier one's */
};
extern struct fake_native fake;
void fake_reset(void);
void fake_program_thread(void);

#endif
