/* Controls a rank from outside by ptrace, from one system call or instruction to the next, so that it can be killed at any of them. */
#ifndef PROC_TRACE_H
#define PROC_TRACE_H

#include <stdbool.h>
#include <sys/types.h>

/* May this process trace a child of its own? */
bool trace_may(void);
/* Called by the rank: it stops, and its parent, which waits for it, traces it from there. */
void trace_me(void);
/* Called by the parent, when the rank has stopped in trace_me. System calls become distinguishable from signals, and the rank dies with its
 * tracer. */
void trace_take(pid_t pid);
/* Continues to the next stop, by PTRACE_SYSCALL or PTRACE_SINGLESTEP. false: the process has ended instead, and is reaped. */
bool trace_on(pid_t pid, int how);
/* The system call at whose start the rank has stopped; -1: it has stopped at an end. */
long trace_call(pid_t pid);

#endif
