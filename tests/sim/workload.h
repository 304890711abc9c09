/*
 * workload: random programs as workloads of the simulator, one row each in workloads.c, and what else runs them: the regression corpus, and
 * the shrinker.
 */
#ifndef SIM_WORKLOAD_H
#define SIM_WORKLOAD_H

#include "sim/random_program.h"
#include "sim/sim.h"

/* Rows: correct programs, with faults that none may fail of; programs with a mistake; programs under faults that end ranks. */
bool workload_correct(uint64_t seed, const struct sim_options *options, struct sim_result *result);
bool workload_wrong(uint64_t seed, const struct sim_options *options, struct sim_result *result);
bool workload_faulty(uint64_t seed, const struct sim_options *options, struct sim_result *result);

/* Correct programs, with ranks on several hosts. */
bool workload_hosts(uint64_t seed, const struct sim_options *options, struct sim_result *result);

/* Runs one program, as its schedule and faults say, and judges it. result->text says what failed. */
bool workload_run(const struct random_program *p, struct sim_result *result);

/* workload_probe.c: which rare paths the run came by. */
struct random_run;
void workload_probe(const struct random_run *run);

/* shrink.c: a program that failed as result says is made as short as it can be and still fails alike; at most `seconds`. */
void workload_shrink(struct random_program *p, struct sim_result *result, double seconds);

#endif
