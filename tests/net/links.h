/* links: shared by tests of links that are made when needed. Ranks are processes, and count their connections. */
#ifndef NET_LINKS_H
#define NET_LINKS_H

#include "proc/proc.h"

/* A value for proc's `enter`. */
void links_needed(struct proc *proc, int32_t rank);

int links_connected(void);
/* The port on which this rank listens; 0: none. */
int links_port(void);
/* Waits until there are `want` connections: a link's second connection may come slightly after the message that the first one carried. */
void links_await(int want);
/* Checks that at most two epoll instances watch each connection: the poller's, and the one for the ends of connections. Each costs time for
 * every segment. */
void links_check_monitors(void);
/* Checks that TCP never waits longer than a third of link_timeout before it sends again. */
void links_check_pauses(void);

void links_sum(struct comm_communicator *c);
/* Both ranks send first, at the same time. */
void links_exchange(struct comm_communicator *c, int32_t peer);
int32_t links_far_from(int32_t rank, int32_t ranks);

/* A barrier of all ranks. The parent runs them from one number to another. */
void links_phase(struct proc *proc, int32_t rank, int64_t number);
void links_run_phases(struct proc *proc, int64_t from, int64_t to);

#endif
