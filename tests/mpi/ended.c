/*
 * ended PROGRAM...: the command that an MPI launcher starts for each rank. It becomes the program. A second process traces it, without
 * changing what it does, and appends to $ENDS how it ended: "rank 2 exit 0", "rank 1 signal 9". So the launcher itself starts, watches and
 * kills the rank, and is the rank's parent, as without this command. (Only a parent or a tracer is told how a process ended: ptrace(2),
 * "Death under ptrace".)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 1024 };

static void say(int file, const char *how, int number)
{
    const char *rank = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
    char line[64];

    snprintf(line, sizeof line, "rank %s %s %d\n", rank ? rank : "?", how, number);
    if (write(file, line, strlen(line)) != (ssize_t)strlen(line))
        _exit(2);
}

/* Runs until the program has ended. Passes every signal on to the program except the one that reports its exec. A program that was stopped
 * stays so until it is continued. */
static int end_of(pid_t pid)
{
    int status;

    for (bool begun = false;;) {
        pid_t got = waitpid(pid, &status, __WALL);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 || !WIFSTOPPED(status))
            return got < 0 ? -1 : status;
        int number = status >> 16 ? 0 : WSTOPSIG(status);
        if (status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP) {
            ptrace(PTRACE_LISTEN, pid, NULL, NULL);
            continue;
        }
        if (number == SIGTRAP && !begun) {
            begun = true;
            number = 0;
        }
        ptrace(PTRACE_CONT, pid, NULL, (void *)(long)number);
    }
}

_Noreturn static void observe(pid_t pid, int file, int begin)
{
    for (int i = 0; i < FILES; i++)
        if (i != file && i != begin)
            close(i); /* other processes wait for the end of file on these descriptors */
    setsid();         /* leaves the process group, because a launcher kills whole groups */
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
        say(file, "untraced", errno);
    close(begin);
    int status = end_of(pid);
    if (status >= 0)
        say(file, WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    _exit(0);
}

int main(int argc, char **argv)
{
    int file = getenv("ENDS") ? open(getenv("ENDS"), O_WRONLY | O_APPEND | O_CLOEXEC) : -1, begin[2];
    pid_t self = getpid();
    char byte;

    if (argc < 2 || file < 0 || pipe2(begin, O_CLOEXEC)) {
        fprintf(stderr, "usage: ENDS=FILE ended PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* for systems on which only a parent may trace */
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0)
            observe(self, file, begin[1]);
        _exit(0);
    }
    close(begin[1]);
    if (child < 0 || waitpid(child, NULL, 0) != child || read(begin[0], &byte, 1) != 0)
        return 2;
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
