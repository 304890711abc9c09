/*
 * proc: ranks as processes. A parent forks them before it opens anything of the library, and gives them their ranks through the launcher's
 * variables. It shares one page with each rank, in which the rank writes what it saw. It kills, stops and times the ranks.
 */
#ifndef PROC_PROC_H
#define PROC_PROC_H

#include "conform/rig.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { PROC_RANKS_MAX = 128, PROC_HASHES = 256 };

/* What a rank reports. */
struct proc_page {
    _Atomic int64_t stage; /* how far the rank is; each test counts as it likes */
    _Atomic int64_t time;  /* the time of the report */
    _Atomic int32_t result, rank;
    _Atomic int64_t sequence;
    _Atomic int64_t number[8];
    uint64_t hash[PROC_HASHES];
    char cause[24], operation[24], text[512];
};

struct proc;
typedef void proc_main(struct proc *proc, int32_t rank, struct comm_communicator *world);
struct proc {
    int32_t ranks;
    proc_main *main;
    pid_t pid[PROC_RANKS_MAX];
    struct proc_page *page; /* [ranks] */
    _Atomic int64_t *go;    /* a word from the parent to all ranks */
    const char *options;
    bool raw; /* main opens the world itself; it is called with NULL */
    /* called in the rank's process, after the launcher's variables are set; NULL: nothing */
    void (*enter)(struct proc *proc, int32_t rank);
    void *place; /* for use by `enter` */
    /* For how long the machine stood still during proc_finish. Reports that are late by this much are not the library's fault. */
    int64_t stood_ns;
    char job[64];
};

/* Skips the test if processes cannot connect. */
void proc_needs_shm(void);
/* Forks the ranks; each opens its world over shared memory and runs main. With raw set, main is called with world NULL. */
void proc_start(struct proc *proc, int32_t ranks, proc_main *main);
/* Opens the world of this rank, as proc_start does. */
struct comm_communicator *proc_open(struct proc *proc, int32_t rank);
/* Checks that all ranks except `except` (-1: none) end with status 0 in time. The excepted rank is reaped whatever its status. */
void proc_finish(struct proc *proc, int32_t except, int64_t patience);
/* Waits until the rank's stage is at least `stage`. */
void proc_await(struct proc *proc, int32_t rank, int64_t stage);
/* Writes the sticky cause of c to the rank's page, with the time. */
void proc_tell_failure(struct proc_page *page, struct comm_communicator *c, enum comm_result result);

/* What a world could leak in a process: descriptors, threads, and mappings of shared memory. */
struct proc_held {
    int64_t descriptors, threads, mappings;
};
struct proc_held proc_hold(void);
/* Checks that the process holds as much as before; a joined thread leaves the list a moment later. */
void proc_holds_as(const struct proc_held *before);
/* Checks that the process holds more, so that proc_holds_as does compare something that an open world has. */
void proc_holds_more(const struct proc_held *before);
/* Counts the sockets of this host with the job in their names. */
int64_t proc_names(const struct proc *proc);

/* Counts the names in this folder, including `.` and `..`, that contain `part`; NULL: all. */
int64_t proc_entries(const char *path, const char *part);
/* Counts the lines of this file that contain `part`. */
int64_t proc_lines(const char *path, const char *part);
/* The sum of the counts of proc_hold. */
int64_t proc_holdings(void);

#endif
