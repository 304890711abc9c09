/* A workload: windows whose owners make no progress. */
#ifndef TESTS_SIM_OWNERS_H
#define TESTS_SIM_OWNERS_H

#include "sim/sim.h"

bool run_owners(uint64_t seed, const struct sim_options *options, struct sim_result *result);

#endif
