/* Moves a traced rank by ptrace (trace.h). */
#define _GNU_SOURCE
#include "proc/trace.h"

#include "conform/rig.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PTRACE_GET_SYSCALL_INFO
#    define PTRACE_GET_SYSCALL_INFO 0x420e
#endif

bool trace_may(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    return status == 0;
}

void trace_me(void)
{
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    raise(SIGSTOP);
}

void trace_take(pid_t pid)
{
    CHECK(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
}

bool trace_on(pid_t pid, int how)
{
    int status;

    CHECK(ptrace((enum __ptrace_request)how, pid, NULL, NULL) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFSTOPPED(status);
}

long trace_call(pid_t pid)
{
    struct {
        uint8_t op, pad[3];
        uint32_t arch;
        uint64_t instruction, stack, number, argument[6];
    } info = {0};

    return ptrace((enum __ptrace_request)PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) > 0 && info.op == 1 ? (long)info.number
                                                                                                                       : -1;
}
