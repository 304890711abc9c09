/* The parts of env_posix, between its own files. */
#ifndef NET_POSIX_POSIX_H
#define NET_POSIX_POSIX_H

#include "base/env.h"

#include <sys/syscall.h>
#include <unistd.h>

/* read(), write() and epoll_wait() are points where a thread can be cancelled (pthreads(7)), which must not happen under a lock; a bare
 * system call is none. ThreadSanitizer must see who wakes whom. */
#if defined(__SANITIZE_THREAD__)
#    define posix_read_bytes(fd, to, bytes) read(fd, to, bytes)
#    define posix_write_bytes(fd, from, bytes) write(fd, from, bytes)
#else
#    define posix_read_bytes(fd, to, bytes) syscall(SYS_read, fd, to, (size_t)(bytes))
#    define posix_write_bytes(fd, from, bytes) syscall(SYS_write, fd, from, (size_t)(bytes))
#endif
/* epoll_wait(2) is not on every machine; epoll_pwait(2) is, with six arguments, the last one being the bytes of the signal mask. */
#define posix_epoll_wait(set, events, most, ms) ((int)syscall(SYS_epoll_pwait, set, events, most, ms, NULL, (size_t)8))

/* The clock: CLOCK_MONOTONIC, by way of the time stamp counter where the kernel itself trusts that. */
void posix_clock_start(void);
int64_t posix_now(const struct comm_env *env);

/* What a forked child does not keep. 0, or an errno. */
int posix_fork_start(void);
void posix_own(const struct comm_env *env, int32_t fd, bool owns);

/* Memory of devices. */
extern _Atomic uint32_t posix_devices;
void posix_find_devices(const struct comm_env *env);
bool posix_on_device(const struct comm_env *env, const void *at);

/* What this process was given: CPUs, a name, modules beside the library. */
uint32_t posix_cpus(const struct comm_env *env);
/* The node, under the folder that the kernel lists them in, that all CPUs of the set are of; -1: of several. Without nodes: 0. */
int32_t posix_numa(const char *nodes, const uint64_t cpu[ENV_CPU_WORDS]);
void posix_identity(const struct comm_env *env, struct env_identity *identity);
void *posix_module(const struct comm_env *env, const char *name, char *why, size_t why_bytes);

/* What is said at exit(). */
void posix_farewell_add(const struct comm_env *env, struct env_farewell *farewell);
void posix_farewell_drop(const struct comm_env *env, struct env_farewell *farewell);

/* The log's lines: env's log_start to panic. */
int posix_log_start(const struct comm_env *env);
void posix_log_stop(const struct comm_env *env);
void posix_write(const struct comm_env *env, env_sink_fn *sink, void *arg, int level, const char *line);
bool posix_drain(const struct comm_env *env, int64_t deadline);
void posix_forget(const struct comm_env *env, env_sink_fn *sink, void *arg, int64_t patience_ns);
void posix_panic(const struct comm_env *env, const char *text);

/* Zeroed; up to 8 MiB of what is given back is kept for later takers. */
void *posix_take(const struct comm_env *env, size_t bytes, size_t align);
void posix_give(const struct comm_env *env, void *memory, size_t bytes);

extern const struct comm_env env_posix;

#endif
