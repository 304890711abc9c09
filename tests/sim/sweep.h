/* What the sweeps share: the number of cases, and their results. */
#ifndef SIM_SWEEP_H
#define SIM_SWEEP_H

#include "sim/collectives.h"

struct sweep_tally {
    uint64_t cases, failures, events;
};

enum { SWEEP_FAULT_RANKS = 9 };

/* sweep_faults.c: up to `most` ranks; runs one in `stride` of the cases, evenly spread, from number `first` on. */
struct sweep_tally sweep_faults(int32_t most, uint64_t stride, uint64_t first, bool tells);

#endif
