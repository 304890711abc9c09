/*
 * native_fake: a native inside this process, for all its ranks. It behaves as real libraries may: it completes late and in any order, fails
 * at a chosen call, lacks some calls, cannot cancel, and holds buffers. The linker adds it to the wire `local`, or to `shm` (on_shm).
 *
 * As a stream (NATIVE_STREAM) it is one queue per channel: started operations run in order, read their input when they run, and block at
 * waits. Reductions use the canonical order, so that the conformance suite can compare bit for bit.
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
    uint32_t delay;    /* an operation ends after at most this many polls */
    uint32_t connects; /* `joined` returns PENDING this many times */
    uint64_t seed;
    enum fake_function fails; /* the fails_at-th call of this function, counted over all ranks, returns an error */
    int32_t result;           /* the error; 0: BACKEND */
    uint64_t fails_at;
    bool partly;             /* lacks some calls, depending on their length */
    bool scatters;           /* takes reduce_scatter_v */
    bool no_child;           /* only the world has a native */
    bool on_shm;             /* beside the wire shm, whose ranks meet, here as threads */
    _Atomic bool holds;      /* after a failure the buffers stay in use while this is true */
    bool no_rank_0;          /* rank 0 of a child has no native */
    uint32_t parks;          /* waits without a word that may be pending at once, on all channels; 0: any number */
    bool parks_not;          /* a stream that cannot park: `wait` without a word returns UNSUPPORTED */
    _Atomic bool stalls;     /* nothing ends */
    _Atomic int64_t look_ns; /* a poll takes at least this long, as one that copies does */
    /* Counters. */
    _Atomic uint64_t calls[FAKE_FUNCTIONS];
    _Atomic uint64_t started, ended, looks, waits, reached, mixed, channels, natives;
    _Atomic uint64_t parked, kept; /* with `parks`: waits that are pending, and room that is kept for others */
    _Atomic uint64_t strangers;    /* starts and polls by threads that did not call fake_program_thread */
    /* With NATIVE_STANDS: calls that were noted, and that were forgotten; starts with other buffers than the first; starts of a call that
     * still ran, or that was forgotten while it ran. */
    _Atomic uint64_t noted, forgotten, moved, overlaps;
    _Atomic uint64_t failed, gone; /* calls of leave with these causes */
    _Atomic uint64_t order;        /* starts on one channel with a ticket below an earlier one */
};
extern struct fake_native fake;
void fake_reset(void);
void fake_program_thread(void);

#endif
