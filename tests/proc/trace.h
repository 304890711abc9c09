/* A rank that is moved from outside, by ptrace: from one system call or instruction to the next, so that it can be ended at any of them. */
#ifndef PROC_TRACE_H
#define PROC_TRACE_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether this process may trace a child of its own. */
bool trace_may(void);
/* A rank's own call: it stops, and its parent, who waits for it, traces it from there. */
void trace_me(void);
/* The parent's: it stands where trace_me stopped it, its system calls are told apart from signals, and it ends with its tracer. */
void trace_take(pid_t pid);
/* On to the next stop by PTRACE_SYSCALL or PTRACE_SINGLESTEP; false: the process has ended instead, and is reaped. */
bool trace_on(pid_t pid, int how);
/* Which system call it stops at the beginning of; -1: it stops at an end. */
long trace_call(pid_t pid);

#endif
