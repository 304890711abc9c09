/* The same programs run on real devices and, compiled with COMM_PLAYED, on the mock ones, which these functions start and end. */
#ifndef PLAYED_H
#define PLAYED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef COMM_PLAYED
#    include "mock.h"

enum { PLAYED = 1 };
/* One queue for each stream: in some checks a stream must pass a blocked one. */
static inline void played_begin(uint64_t seed)
{
    mock_reset(&(struct mock_options){.seed = seed, .queues = 32});
    mock_run(true);
}

/* Nothing was misused, and nothing is left. */
static inline void played_end(void)
{
    mock_run(false);
    if (mock_misused())
        fprintf(stderr, "%s\n", mock_misused());
    if (mock_live())
        mock_list_live();
    if (mock_misused() || mock_live())
        exit(1);
}
#else

enum { PLAYED = 0 };
static inline void played_begin(uint64_t seed)
{
    (void)seed;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* a stream that waits for the host may block streams on its connection */
}

static inline void played_end(void) {}
#endif

#endif
