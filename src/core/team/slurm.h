/* Parses the two notations in which SLURM describes a step. No side effects; private to team. */
#ifndef TEAM_SLURM_H
#define TEAM_SLURM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLURM_HOSTS_MOST = 65536 };

/* The host at `index` of "n[01-03,7],gpu[1-2]x[0-1],login". false: the index is too large, the list is malformed, or the buffer is too
 * small. */
bool slurm_host(const char *list, uint64_t index, char *host, size_t room);
/* How many hosts; 0: malformed, or more than SLURM_HOSTS_MOST. */
uint64_t slurm_hosts(const char *list);
/* "2(x3),1" means 2 tasks on each of three nodes and 1 on the fourth. *tasks: of node `node`; *all: the total. false: the text is malformed
 * or has no such node. */
bool slurm_tasks(const char *text, uint64_t node, uint64_t *tasks, uint64_t *all);

#endif
