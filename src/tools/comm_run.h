/* The parts of comm-run, private to its files. */
#ifndef TOOLS_COMM_RUN_H
#define TOOLS_COMM_RUN_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    RUN_RANKS_MAX = 4096,
    RUN_STATUS_USAGE = 2,
    RUN_STATUS_TIMEOUT = 124,
    RUN_STATUS_CANNOT_RUN = 127,
};

struct settings {
    int32_t ranks;
    bool bind, tags;
    int64_t timeout_ns; /* 0: no limit */
    char **command;
};

struct text {
    char *data;
    size_t used, room;
};

struct output {
    int fd; /* -1: nobody reads it any more */
    struct text pending;
};

struct stream {
    int fd; /* -1: ended */
    struct output *out;
    struct text line;
    size_t owed; /* after the end of all ranks: bytes that they left in the pipe */
};

struct rank {
    pid_t pid; /* also its process group */
    bool ended;
    struct stream streams[2];
};

enum phase { RUNNING, GRACE, TERMINATING, KILLING, DRAINING };

struct job {
    const struct settings *settings;
    struct rank *ranks;
    struct pollfd *polls;
    struct output out, err;
    int32_t running;
    int status; /* exit status of the first failure; 0: none */
    enum phase phase;
    int64_t phase_deadline, deadline;
    int signals, interrupts;
    int input; /* the pipe to rank 0 if standard input is a terminal; -1: rank 0 reads standard input itself, or it has ended */
    struct text typed;
    pid_t keeper;
    sigset_t mask_before;
    struct rlimit files_before;
    char id[33], secret[65]; /* secret: empty if ranks need none, or have one */
};

/* Prints the reason to standard error and exits. Ranks that were started die with this process. */
__attribute__((noreturn, format(printf, 2, 3))) void run_stop(int status, const char *format, ...);

void run_read_arguments(struct settings *settings, int argc, char **argv);
void run_set_variable(const char *name, const char *value);

/* Creates the ranks, which wait, and the keeper; then lets the ranks run. */
void run_start(struct job *job);
/* Sends a signal to the process group of every rank; ended_too: also of ranks that have ended. */
void run_signal_ranks(const struct job *job, int number, bool ended_too);

#endif
