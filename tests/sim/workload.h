/*
 * workload: random programs as workloads of the simulator, one row each in workloads.c, and for their other users: the
 * regression corpus and the shrinker.
 */
#ifndef SIM_WORKLOAD_H
#define SIM_WORKLOAD_H

#include "sim/random_program.h"
#include "sim/sim.h"

/* Rows: correct programs, with faults that must not cause failures; programs with a mistake; programs with faults that
 * end ranks. */
bool workload_correct(uint64_t seed, const struct sim_options *options, struct sim_result *result);
bool workload_wrong(uint64_t seed, const struct sim_options *options, struct sim_result *result);
bool workload_faulty(uint64_t seed, const struct sim_options *options, struct sim_result *result);

/* Correct programs with ranks on several hosts. */
bool workload_hosts(uint64_t seed, const struct sim_options *options, struct sim_result *result);

/* Runs one program with its schedule and faults, and judges it. result->text says what failed. */
bool workload_run(const struct random_program *p, struct sim_result *result);

/* workload_probe.c: the rare paths that the run reached. */
struct random_run;
void workload_probe(const struct random_run *run);

/* shrink.c: makes a failing program as short as possible while it still fails in the same way; takes at most `seconds`. */
void workload_shrink(struct random_program *p, struct sim_result *result, double seconds);

#endif
