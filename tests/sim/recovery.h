/* A workload: programs that continue after failures. */
#ifndef TESTS_SIM_RECOVERY_H
#define TESTS_SIM_RECOVERY_H

#include "sim/sim.h"

bool run_recovery(uint64_t seed, const struct sim_options *options, struct sim_result *result);

#endif
