/* A workload: a communicator that waits for a failing request of another one. */
#ifndef TESTS_SIM_DEPENDENCY_H
#define TESTS_SIM_DEPENDENCY_H

#include "sim/sim.h"

bool run_dependency(uint64_t seed, const struct sim_options *options, struct sim_result *result);

#endif
