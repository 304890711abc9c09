/* bits: runs every collective, in a few lengths and types, on ranks that are processes, and checks that the results have the same bits as
 * with all ranks in one process. */
#ifndef PROC_BITS_H
#define PROC_BITS_H

#include "proc/proc.h"

/* A proc_main: runs all collectives, verifies each, and leaves a hash of each result on its page. */
void bits_run(struct proc *proc, int32_t rank, struct comm_communicator *world);
/* Runs them again with all ranks in this process, and compares the hashes. */
void bits_compare(const struct proc *proc);

#endif
