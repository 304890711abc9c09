/* A workload: the virtual time of calls, compared with the cost model. */
#ifndef TESTS_SIM_TIMING_H
#define TESTS_SIM_TIMING_H

#include "sim/sim.h"

bool run_timing(uint64_t seed, const struct sim_options *options, struct sim_result *result);

#endif
