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

/* A host on which this process starts ranks, by ssh. */
struct host {
    char *name;
    int32_t first, ranks;
};

struct settings {
    int32_t ranks;    /* of the whole program */
    int32_t first;    /* an agent's first rank; otherwise 0 */
    int32_t children; /* what this process starts: ranks, or an agent on each host */
    struct host *hosts;
    int32_t host_count; /* those with ranks; 0: the ranks run here */
    int32_t host_names; /* all that were named */
    bool agent;         /* another comm-run gives orders through standard input */
    bool bind, tags;
    int64_t timeout_ns; /* 0: no limit */
    const char *ssh;
    char **command;
    char **exported; /* NAME or NAME=VALUE, of -x */
    size_t exports;
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

/* A rank, or the ssh of a host. */
struct child {
    pid_t pid; /* also its process group */
    bool ended;
    int orders; /* of a host: the pipe to its agent */
    struct stream streams[2];
};

enum phase { RUNNING, GRACE, TERMINATING, KILLING, DRAINING };

struct job {
    const struct settings *settings;
    struct child *children;
    struct pollfd *polls;
    struct output out, err;
    int32_t running; /* children */
    int status;      /* exit status of the first failure; 0: none */
    bool lossy;      /* some output could not be written */
    enum phase phase;
    int64_t phase_deadline, deadline;
    int signals, interrupts;
    bool orderless; /* an agent whose standard input has ended */
    int input;      /* the pipe to rank 0 if standard input is a terminal; -1: rank 0 reads standard input itself, or it has ended */
    struct text typed;
    pid_t keeper;
    sigset_t mask_before;
    struct rlimit files_before;
};

/* Prints the reason to standard error and exits. Ranks that were started die with this process. */
__attribute__((noreturn, format(printf, 2, 3))) void run_stop(int status, const char *format, ...);

void run_read_arguments(struct settings *settings, int argc, char **argv);
void run_forget(const struct settings *settings); /* frees what it has */
void run_set_variable(const char *name, const char *value);

/* Creates the children, which wait, and the keeper; then lets the children run. */
void run_start(struct job *job);
/* Sends a signal to the process group of every rank, or by way of its host's agent; ended_too: also of ranks that have ended. */
void run_signal_ranks(const struct job *job, int number, bool ended_too);
void run_cut_hosts(const struct job *job); /* kills the ssh of each host */

/* comm_run_output.c */
void run_append(struct text *text, const char *bytes, size_t count);
void run_drop_front(struct text *text, size_t count);
__attribute__((format(printf, 2, 3))) void run_say(struct job *job, const char *format, ...);
void run_begin_report(struct job *job); /* of an agent: what is said next is its report */
/* Reads once, and emits whole lines. */
void run_read_stream(struct job *job, int32_t index, struct stream *stream);
void run_end_stream(struct job *job, int32_t index, struct stream *stream);
void run_write_output(struct job *job, struct output *out);

/* comm_run_hosts.c */
void run_add_hosts(struct settings *settings, const char *list);           /* HOST[:RANKS],... */
void run_add_hostfile(struct settings *settings, const char *path);        /* a line for each: HOST, HOST:RANKS or HOST slots=RANKS */
void run_spread(struct settings *settings);                                /* over the hosts; ranks 0: as many as the hosts have */
void run_choose_address(const struct settings *settings, const char *job); /* of rank 0, unless it is given */
/* The command that starts the agent of a host, for execvp. */
char **run_host_command(const struct settings *settings, int32_t index);
/* The variables for the ranks of a host, in one block, which the agent takes from its standard input before it starts. */
void run_send_variables(const struct settings *settings, int fd);
void run_take_variables(void);

#endif
