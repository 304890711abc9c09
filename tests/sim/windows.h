/* A workload: memory that ranks share. */
#ifndef TESTS_SIM_WINDOWS_H
#define TESTS_SIM_WINDOWS_H

#include "sim/sim.h"

bool run_windows(uint64_t seed, const struct sim_options *options, struct sim_result *result);

#endif
