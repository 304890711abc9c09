/* The parts of env_posix, private to its files. */
#ifndef NET_POSIX_POSIX_H
#define NET_POSIX_POSIX_H

#include "base/env.h"

#include <sys/syscall.h>
#include <unistd.h>

/* read(), write() and epoll_wait() are cancellation points (pthreads(7)). A thread must not be cancelled under a lock, so these make the
 * system calls directly. ThreadSanitizer must see which thread wakes which, so it gets the functions. */
#if defined(__SANITIZE_THREAD__)
#    define posix_read_bytes(fd, to, bytes) read(fd, to, bytes)
#    define posix_write_bytes(fd, from, bytes) write(fd, from, bytes)
#else
#    define posix_read_bytes(fd, to, bytes) syscall(SYS_read, fd, to, (size_t)(bytes))
#    define posix_write_bytes(fd, from, bytes) syscall(SYS_write, fd, from, (size_t)(bytes))
#endif
/* Some machines lack epoll_wait(2). epoll_pwait(2) exists everywhere; its sixth argument is the size of the signal mask. */
#define posix_epoll_wait(set, events, most, ms) ((int)syscall(SYS_epoll_pwait, set, events, most, ms, NULL, (size_t)8))

/* CLOCK_MONOTONIC, computed from the time stamp counter if the kernel trusts it. */
void posix_clock_start(void);
int64_t posix_now(const struct comm_env *env);

/* What a forked child must not keep. Returns 0, or an errno. */
int posix_fork_start(void);
void posix_own(const struct comm_env *env, int32_t fd, bool owns);

/* Device memory. */
extern _Atomic uint32_t posix_devices;
void posix_find_devices(const struct comm_env *env);
bool posix_on_device(const struct comm_env *env, const void *at);

/* What the process was given: CPUs, a host name, modules beside the library. */
uint32_t posix_cpus(const struct comm_env *env);
/* The NUMA node that has all CPUs of the set. `nodes`: the folder in which the kernel lists the nodes. -1: the set spans several nodes. 0:
 * there are no nodes. */
int32_t posix_numa(const char *nodes, const uint64_t cpu[ENV_CPU_WORDS]);
void posix_identity(const struct comm_env *env, struct env_identity *identity);
void *posix_module(const struct comm_env *env, const char *name, char *why, size_t why_bytes);

/* Farewells at exit(). */
void posix_farewell_add(const struct comm_env *env, struct env_farewell *farewell);
void posix_farewell_drop(const struct comm_env *env, struct env_farewell *farewell);

/* The lines of the log: env's log functions and panic. */
int posix_log_start(const struct comm_env *env);
void posix_log_stop(const struct comm_env *env);
void posix_write(const struct comm_env *env, env_sink_fn *sink, void *arg, int level, const char *line);
bool posix_drain(const struct comm_env *env, int64_t deadline);
void posix_forget(const struct comm_env *env, env_sink_fn *sink, void *arg, int64_t patience_ns);
void posix_panic(const struct comm_env *env, const char *text);

/* Zeroed. Up to 8 MiB of returned pieces are kept for later requests. */
void *posix_take(const struct comm_env *env, size_t bytes, size_t align);
void posix_give(const struct comm_env *env, void *memory, size_t bytes);

extern const struct comm_env env_posix;

#endif
