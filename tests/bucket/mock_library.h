/*
 * mock_library: the public calls that the bucket room makes, in a library that is not there. A world has two ranks, whose other rank gives
 * zeros, so COMM_AVG halves. Each call is recorded; a queue is full and an answer late when the test says so.
 */
#ifndef TESTS_BUCKET_MOCK_LIBRARY_H
#define TESTS_BUCKET_MOCK_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <commstream/comm.h>

enum { MOCK_CALLS_MAX = 4096 };

struct mock_call {
    void *at;
    size_t n;
    enum comm_type type;
    comm_op op;
};

/* What the mock library saw, and how it is to behave. */
struct mock_library {
    struct mock_call calls[MOCK_CALLS_MAX];
    _Atomic size_t count;
    _Atomic uint32_t inside; /* threads inside allreduce at once */
    size_t full_after;       /* FULL from this call on, until somebody waits */
    size_t refuse_at;        /* this call is refused with UNSUPPORTED; it has no request */
    bool late;               /* requests stay pending */
    bool in_callback;        /* waits are refused with STATE */
    bool no_marker;          /* comm_last is refused with FULL */
    size_t progress_left;    /* so many calls of progress until a full queue has room */
    size_t lasts;            /* calls of comm_last */
    long taken;              /* pieces of memory that were taken and not given back */
};

extern struct mock_library mock;
extern struct comm_communicator *const mock_world;

/* No call has been made, and every one is answered at once. */
void mock_begin(void);

#endif
