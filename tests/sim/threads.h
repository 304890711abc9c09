/* Threads of one rank: the workload, and the judge of runs in which nothing is slow. */
#ifndef TESTS_SIM_THREADS_H
#define TESTS_SIM_THREADS_H

#include "sim/sim.h"

bool run_threads(uint64_t seed, const struct sim_options *options, struct sim_result *result);
bool sim_judge_time(struct sim_result *result);
/* After the last fault everything must have ended, with success or an error, within a minute and a half. */
bool sim_judge_end(struct sim_result *result);

#endif
