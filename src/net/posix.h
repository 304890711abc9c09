/* The parts of env_posix, between its own files. */
#ifndef NET_POSIX_H
#define NET_POSIX_H

#include "base/env.h"

/* The clock: CLOCK_MONOTONIC, by way of the time stamp counter where the kernel itself trusts that. */
void posix_clock_start(void);
int64_t posix_now(const struct comm_env *env);

/* What this process was given: CPUs, a name, modules beside the library. */
uint32_t posix_cpus(const struct comm_env *env);
/* The node, under the folder that the kernel lists them in, that all CPUs of the set are of; -1: of several. Without nodes: 0. */
int32_t posix_numa(const char *nodes, const uint64_t cpu[ENV_CPU_WORDS]);
void posix_identity(const struct comm_env *env, struct env_identity *identity);
void *posix_module(const struct comm_env *env, const char *name, char *why, size_t why_bytes);

extern const struct comm_env env_posix;

#endif
