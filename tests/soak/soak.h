/*
 * soak: random programs over every wire whose ranks are ended, stopped, or misbehave at a random moment, and what the others must make of
 * it. All of a run follows from its seed but the machine's own timing: which program, over which wire, who is struck, how and when.
 */
#ifndef SOAK_SOAK_H
#define SOAK_SOAK_H

#include "proc/proc.h"

#include <signal.h>
#include <stdio.h>

enum { SOAK_RANKS_MAX = 4, SOAK_STEPS_MAX = 14, SOAK_SLOTS = 5, SOAK_FAULTS_MAX = 2 };

/* ------------------------------------------------------------------------------------------------------------ what a seed says */
struct soak_wire {
    const char *name, *backend;
    const char *set[6]; /* environment: NAME, value, ... */
    bool ring;          /* needs io_uring, which a kernel or a container may refuse */
    bool connects;      /* between all of its ranks, so that frames are all that a peer can misbehave by */
};
extern const struct soak_wire soak_wires[];
extern const uint32_t soak_wire_count;

enum soak_step_kind {
    STEP_JOBS,   /* up to four collectives at once, every byte compared */
    STEP_MANY,   /* a row of short sums, waited for at its end */
    STEP_SHARED, /* a sum in memory that peers of this host reach */
    STEP_RING,   /* messages to the next rank */
    STEP_CROWD,  /* messages to one rank, which receives from anybody */
    STEP_WINDOW, /* puts, updates, tickets, signals and fences */
    STEP_QUEUE,  /* a copy's queue waits for the world's work */
    STEP_PLAN,   /* sums and messages that are recorded once and started several times */
    STEP_GROUP,  /* sums and messages that are begun as one */
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
    int32_t slot, to; /* on which communicator; which slot gets the new one */
    uint32_t count, members;
    size_t n;
    uint64_t seed;
};

enum soak_fault_kind {
    FAULT_KILL,
    FAULT_EXIT,
    FAULT_ABORT,      /* abort(), by a signal of its own */
    FAULT_PAUSE,      /* stopped for a moment: nobody may make anything of it */
    FAULT_STOP,       /* stopped until it is given up, then continued */
    FAULT_COMM_ABORT, /* comm_abort */
    FAULT_HOSTILE,    /* says from then on what no rank says */
    FAULT_KINDS
};
enum soak_when {
    WHEN_TIMER,    /* amount: ns after the step began */
    WHEN_CALLS,    /* system calls after that */
    WHEN_STEPS,    /* instructions after that */
    WHEN_FRACTION, /* amount: of a million parts of the time that the same program took without a fault */
    WHEN_KINDS
};
struct soak_fault {
    enum soak_fault_kind kind;
    enum soak_when when;
    int32_t victim, step; /* step 0: the world opens; 1 ..: the program's; behind them: the end */
    int64_t amount, stopped_ns;
};

struct soak_program {
    uint64_t seed;
    const struct soak_wire *wire;
    int32_t ranks, steps, fault_count;
    bool recovers;     /* survivors agree, shrink and go on */
    bool hostile;      /* a fault is FAULT_HOSTILE: nothing is said of what memory holds */
    bool local;        /* all ranks in one process, which is the victim */
    char options[128]; /* of the world */
    struct soak_step step[SOAK_STEPS_MAX];
    struct soak_fault fault[SOAK_FAULTS_MAX];
};
/* hostile: a peer misbehaves; otherwise a rank is ended or stopped. ring: io_uring is there. traced: ptrace is. */
struct soak_can {
    bool hostile, ring, traced;
};
void soak_make(struct soak_program *program, uint64_t seed, struct soak_can can);
/* The program's steps and faults in a few lines, for people. */
void soak_tell(const struct soak_program *program, FILE *to);

/* ------------------------------------------------------------------------------------------------------------ a rank */
/* What the numbers of a rank's page mean; result, rank, cause and so on are those of the world, when told. */
enum {
    SAYS_LEFT,    /* descriptors, threads and mappings that it kept */
    SAYS_DONE,    /* 1: all of the program was right; 2: it recovered, and went on to its end; 3: it was left out */
    SAYS_DELAY,   /* for so many ns its threads wanted a CPU and had none */
    SAYS_OPENING, /* 1: the world did not open */
    SAYS_MEMBERS, /* of the communicator that it ended with, as bits */
    SAYS_STEP,    /* in which it was when it failed, or is */
    SAYS_FIRST,   /* the first error that a call or a request gave */
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
    bool agreed;                       /* in a step, that somebody failed: it is not asked again */
    struct soak_slot slot[SOAK_SLOTS]; /* the first is the world's */
};
/* The main of proc_start; proc->place is the program. */
void soak_rank_main(struct proc *proc, int32_t rank, struct comm_communicator *none);
/* One step; what it failed with, or OK and everything was right. */
enum comm_result soak_step_run(struct soak_rank *r, const struct soak_step *s);
/* All of count requests end, waited for in a way that chance draws; the first error by index. */
enum comm_result soak_await(const struct soak_rank *r, struct comm_request *requests, size_t count, uint64_t *chance);
/* window.c */
enum comm_result soak_step_window(struct soak_rank *r, const struct soak_step *s);
/* How long threads of a process wanted a CPU and had none, since it began. */
int64_t soak_delay(pid_t pid);
/* A planted fault of the test itself: whether SOAK_PLANT is this one. */
bool soak_planted(const char *what);
/* hostile.c: from now on this process says what no rank says. */
void soak_turn_hostile(uint64_t seed);

/* ------------------------------------------------------------------------------------------------------------ the verdict */
enum soak_verdict { SOAK_OK, SOAK_HANG = 10, SOAK_LATE, SOAK_WRONG_CAUSE, SOAK_LEFTOVER, SOAK_WRONG_RESULT, SOAK_CRASH, SOAK_VERDICTS };
extern const char *const soak_verdict_names[SOAK_VERDICTS - SOAK_HANG];

/* What became of a run, in memory that the worker shares. */
struct soak_outcome {
    _Atomic int32_t struck;     /* a rank was ended, stopped or turned */
    _Atomic int32_t kind;       /* enum soak_fault_kind of the first */
    _Atomic int32_t told;       /* survivors that were told a cause */
    _Atomic int32_t recovered;  /* survivors that shrank and went on */
    _Atomic int32_t in_opening; /* it was while the world opened */
    _Atomic int32_t starved;    /* the machine stood still: no verdict on time */
    _Atomic int64_t slowest_ns; /* from the death to the last who was told */
};
/* In a process of its own: runs the program, and ends with the verdict, whose text is on standard error. */
_Noreturn void soak_judge(const struct soak_program *program, struct soak_outcome *outcome);

#endif
