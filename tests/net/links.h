/*
 * links: what tests of links that are made when they are needed share. Ranks are processes, and count the connections that they have.
 */
#ifndef NET_LINKS_H
#define NET_LINKS_H

#include "proc/proc.h"

/* A rank's `enter`. */
void links_needed(struct proc *proc, int32_t rank);

int links_connected(void);
/* The port on which this rank listens; 0: it does not. */
int links_port(void);
/* A link's second connection may come a little after the message that the first one carried. */
void links_await(int want);
/* Each epoll that watches a connection costs every segment that comes on it: the poller's and the one that hears of ends do, no other,
 * however the connection was made. */
void links_check_monitors(void);

void links_sum(struct comm_communicator *c);
/* Both send first, at the same time. */
void links_exchange(struct comm_communicator *c, int32_t peer);
int32_t links_far_from(int32_t rank, int32_t ranks);

/* All ranks are here before one goes on; the parent's part is to run from one such number to another. */
void links_phase(struct proc *proc, int32_t rank, int64_t number);
void links_run_phases(struct proc *proc, int64_t from, int64_t to);

#endif
