/* bits: every collective, in a few lengths and types, by ranks that are processes; and that they have the bits of ranks in one process. */
#ifndef PROC_BITS_H
#define PROC_BITS_H

#include "proc/proc.h"

/* A proc_main: runs them all, verifies each, and leaves a hash of each on its page. */
void bits_run(struct proc *proc, int32_t rank, struct comm_communicator *world);
/* Runs them again, all ranks here, and compares the hashes. */
void bits_compare(const struct proc *proc);

#endif
