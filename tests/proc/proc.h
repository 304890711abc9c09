/*
 * proc: ranks as processes. One parent forks them before anything of the library is open, tells them who they are through the launcher's
 * variables, and shares with them one page per rank on which they write what they saw; it kills, stops and times them.
 */
#ifndef PROC_PROC_H
#define PROC_PROC_H

#include "conform/rig.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { PROC_RANKS_MAX = 128, PROC_HASHES = 256 };

/* What one rank tells. */
struct proc_page {
    _Atomic int64_t stage; /* how far it is; the test's own counting */
    _Atomic int64_t time;  /* when it saw what it tells */
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
    _Atomic int64_t *go;    /* the parent's word to all */
    const char *options;
    bool raw;                                       /* main opens the world itself: it is called with NULL */
    void (*enter)(struct proc *proc, int32_t rank); /* in the rank's process, after it was told who it is; NULL: nothing */
    void *place;                                    /* enter's own */
    int64_t stood_ns; /* for so long of proc_finish the machine stood still: what is told late by as much is not the library's doing */
    char job[64];
};

/* Ends the test as skipped where processes cannot meet. */
void proc_needs_shm(void);
/* Forks the ranks; each opens its world over shared memory and runs main. With raw set, main is called with world NULL. */
void proc_start(struct proc *proc, int32_t ranks, proc_main *main);
/* The rank's own open, as proc_start does it. */
struct comm_communicator *proc_open(struct proc *proc, int32_t rank);
/* All ranks but `except` (-1: none) end with 0 in time; the excepted one is reaped, however it ended. */
void proc_finish(struct proc *proc, int32_t except, int64_t patience);
/* Until rank's stage is at least `stage`. */
void proc_await(struct proc *proc, int32_t rank, int64_t stage);
/* Writes the sticky cause of c to the rank's page, with the time. */
void proc_tell_failure(struct proc_page *page, struct comm_communicator *c, enum comm_result result);

/* What a process holds that a world may leave behind: descriptors, threads, and mappings of memory that ranks share. */
struct proc_held {
    int64_t descriptors, threads, mappings;
};
struct proc_held proc_hold(void);
/* It holds as much as it did before; a thread that was joined leaves the list a moment later. */
void proc_holds_as(const struct proc_held *before);
/* It holds more: what proc_holds_as looks at is something that an open world has. */
void proc_holds_more(const struct proc_held *before);
/* Sockets of this host in whose names the job is. */
int64_t proc_names(const struct proc *proc);

/* How many names this folder has, `.` and `..` too, with `part` in them; NULL: all. */
int64_t proc_entries(const char *path, const char *part);
/* How many lines of this file have `part` in them. */
int64_t proc_lines(const char *path, const char *part);
/* All of proc_hold together. */
int64_t proc_holdings(void);

#endif
