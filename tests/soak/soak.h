/*
 * soak: random programs over every wire. A rank is killed, stopped, or misbehaves at a random moment, and the others must handle it. The
 * seed determines everything except the machine's timing: the program, the wire, the victim, and how and when it is struck.
 */
#ifndef SOAK_SOAK_H
#define SOAK_SOAK_H

#include "proc/proc.h"

#include <signal.h>
#include <stdio.h>

enum { SOAK_RANKS_MAX = 4, SOAK_STEPS_MAX = 14, SOAK_SLOTS = 5, SOAK_FAULTS_MAX = 2 };

/* ------------------------------------------------------------------------------------------------------------ what a seed determines */
struct soak_wire {
    const char *name, *backend;
    const char *set[6]; /* environment variables: NAME, value, ... */
    bool ring;          /* needs io_uring, which a kernel or a container may refuse */
    bool connects;      /* connects all of its ranks, so that a peer can misbehave only through frames */
};
extern const struct soak_wire soak_wires[];
extern const uint32_t soak_wire_count;

enum soak_step_kind {
    STEP_JOBS,   /* up to four collectives at once, with every byte compared */
    STEP_MANY,   /* many short sums, waited for at the end */
    STEP_SHARED, /* a sum in memory that peers on this host can address */
    STEP_RING,   /* messages to the next rank */
    STEP_CROWD,  /* messages to one rank, which receives from any peer */
    STEP_WINDOW, /* puts, updates, tickets, signals and fences */
    STEP_QUEUE,  /* the queue of a duplicate waits for work of the world */
    STEP_PLAN,   /* sums and messages that are recorded once and started several times */
    STEP_GROUP,  /* sums and messages in one group */
    STEP_DUP,
    STEP_SPLIT,
    STEP_SUBSET,
    STEP_CLOSE,
    STEP_AGREE,
    STEP_NAP,
    STEP_KINDS
};
struct soak_step {
    enum soak_step_kind kind;
    int32_t slot, to; /* slot: the communicator; to: the slot of the new one */
    uint32_t count, members;
    size_t n;
    uint64_t seed;
};

enum soak_fault_kind {
    FAULT_KILL,
    FAULT_EXIT,
    FAULT_ABORT,      /* abort(): killed by its own signal */
    FAULT_PAUSE,      /* stopped for a moment: no rank may notice */
    FAULT_STOP,       /* stopped until it is given up, then continued */
    FAULT_COMM_ABORT, /* comm_abort */
    FAULT_HOSTILE,    /* from then on sends what no correct rank sends */
    FAULT_KINDS
};
enum soak_when {
    WHEN_TIMER,    /* amount: ns after the step began */
    WHEN_CALLS,    /* amount: system calls after that */
    WHEN_STEPS,    /* amount: instructions after that */
    WHEN_FRACTION, /* amount: in millionths of the time that the same program takes without a fault */
    WHEN_KINDS
};
struct soak_fault {
    enum soak_fault_kind kind;
    enum soak_when when;
    int32_t victim, step; /* step 0: while the world opens; 1 and higher: steps of the program; after those: the end */
    int64_t amount, stopped_ns;
};

struct soak_program {
    uint64_t seed;
    const struct soak_wire *wire;
    int32_t ranks, steps, fault_count;
    bool recovers;     /* survivors agree, shrink and continue */
    bool hostile;      /* the fault is FAULT_HOSTILE: the contents of memory are not checked */
    bool local;        /* all ranks are in one process, which is the victim */
    char options[128]; /* of the world */
    struct soak_step step[SOAK_STEPS_MAX];
    struct soak_fault fault[SOAK_FAULTS_MAX];
};
/* hostile: a peer misbehaves; otherwise a rank is killed or stopped. ring: io_uring is available. traced: ptrace is available. */
struct soak_can {
    bool hostile, ring, traced;
};
void soak_make(struct soak_program *program, uint64_t seed, struct soak_can can);
/* Prints the program's steps and faults in a few lines. */
void soak_tell(const struct soak_program *program, FILE *to);

/* ------------------------------------------------------------------------------------------------------------ the rank */
/* The meanings of the numbers on a rank's page. Its result, rank, cause and so on are those that the world reported. */
enum {
    SAYS_LEFT,    /* descriptors, threads and mappings that it leaked */
    SAYS_DONE,    /* 1: the whole program succeeded; 2: it recovered, and went on to its end; 3: it was left out */
    SAYS_DELAY,   /* how many ns its threads wanted a CPU and had none */
    SAYS_OPENING, /* 1: the world did not open */
    SAYS_MEMBERS, /* of the communicator that it ended with, as bits */
    SAYS_STEP,    /* the current step, or the one that failed */
    SAYS_FIRST,   /* the first error of a call or a request */
    SAYS_OVER     /* 1: it is about to end */
};
struct soak_slot {
    struct comm_communicator *c;
    struct comm_window *window;
    int32_t size, me;
    int64_t added, signals; /* to the window, so far */
};
struct soak_rank {
    struct proc *proc;
    struct proc_page *page;
    const struct soak_program *program;
    int32_t rank;
    bool agreed;                       /* a step agreed that some rank failed: not asked again */
    struct soak_slot slot[SOAK_SLOTS]; /* the first is the world */
};
/* The main function for proc_start; proc->place is the program. */
void soak_rank_main(struct proc *proc, int32_t rank, struct comm_communicator *none);
/* Runs one step. Returns OK if everything was correct, otherwise the error. */
enum comm_result soak_step_run(struct soak_rank *r, const struct soak_step *s);
/* Waits for all requests in a randomly chosen way. Returns the first error by index. */
enum comm_result soak_await(const struct soak_rank *r, struct comm_request *requests, size_t count, uint64_t *chance);
/* window.c */
enum comm_result soak_step_window(struct soak_rank *r, const struct soak_step *s);
/* How long the threads of a process have wanted a CPU and had none, since it began. */
int64_t soak_delay(pid_t pid);
/* A planted fault of the test itself: is SOAK_PLANT this one? */
bool soak_planted(const char *what);
/* hostile.c: from now on this process sends what no correct rank sends. */
void soak_turn_hostile(uint64_t seed);

/* ------------------------------------------------------------------------------------------------------------ the verdict */
enum soak_verdict { SOAK_OK, SOAK_HANG = 10, SOAK_LATE, SOAK_WRONG_CAUSE, SOAK_LEFTOVER, SOAK_WRONG_RESULT, SOAK_CRASH, SOAK_VERDICTS };
extern const char *const soak_verdict_names[SOAK_VERDICTS - SOAK_HANG];

/* The outcome of a run, in memory shared with the worker. */
struct soak_outcome {
    _Atomic int32_t struck;     /* a rank was killed, stopped or made hostile */
    _Atomic int32_t kind;       /* enum soak_fault_kind of the first fault */
    _Atomic int32_t told;       /* survivors that reported a cause */
    _Atomic int32_t recovered;  /* survivors that shrank and continued */
    _Atomic int32_t in_opening; /* it happened while the world opened */
    _Atomic int32_t starved;    /* the machine stood still: time is not judged */
    _Atomic int64_t slowest_ns; /* from the death to the last report */
};
/* In a process of its own: runs the program and exits with the verdict. Its text is on standard error. */
_Noreturn void soak_judge(const struct soak_program *program, struct soak_outcome *outcome);

#endif
