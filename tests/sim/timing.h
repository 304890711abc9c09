/* A workload: what calls take in virtual time, beside what the cost model says. */
#ifndef TESTS_SIM_TIMING_H
#define TESTS_SIM_TIMING_H

#include "sim/sim.h"

bool run_timing(uint64_t seed, const struct sim_options *options, struct sim_result *result);

#endif
