/*
 * work: what ranks on several simulated hosts (hosts.h) do in a loop until something fails, and checks of what they report then. Shared by
 * the tests of namespaces.
 */
#ifndef NET_WORK_H
#define NET_WORK_H

#include "net/hosts.h"

enum { WORK_LENGTH = 300000, WORK_KINDS = 4 };
#define WORK_TOLD (INT64_C(1) << 40) /* the stage of a rank that has reported a failure */
#define WORK_LINK_TOLD_NS (5 * RIG_S)
#define WORK_KILLED_TOLD_NS RIG_S

struct work {
    const char *name;
    enum comm_result (*turn)(struct comm_communicator *world, int64_t i);
};
/* Small sums, large sums, messages, and a wait for the last rank. */
extern const struct work work_kinds[WORK_KINDS];
extern const struct work *work_chosen; /* of this case; ranks are forked after it is chosen */
/* Ranks that were told of the failure continue with those that they can still reach. number[0]: how many those are. */
extern bool work_recovers;

/* An allreduce of n numbers, whose result is checked. */
enum comm_result work_sum(struct comm_communicator *world, int64_t i, size_t n);
/* A proc_main: runs until *go has the number of turns, or until something fails. */
void work_go_on(struct proc *proc, int32_t rank, struct comm_communicator *world);
/* Starts ranks that do this work on the hosts, and waits until they are under way. */
void work_start(struct proc *proc, struct hosts *h, const struct work *what);
/* All ranks end after the same number of turns, in the future. */
void work_end_well(struct proc *proc);
/* All ranks of [first, last) must report the same: that a rank of [gone, gone_last) is gone, and in which way. */
void work_all_told(struct proc *proc, int32_t first, int32_t last, int32_t gone, int32_t gone_last, const char *how, int64_t within);
void work_end_all(struct proc *proc);

#endif
