/* Jobs (conform/job.h) on memory of the mock device. How many parts an operation has is seen by its ticket. */
#ifndef STAGED_JOB_H
#define STAGED_JOB_H

#include "conform/job.h"

enum { IN_ON_DEVICE = 1, OUT_ON_DEVICE = 2, ON_DEVICE = 3 };

/* Waits for a barrier, from whose requests the tickets of the next operation count. */
void staged_job_mark(const struct rig *rig, struct comm_request *before);
/* The entries of the queue since then; all ranks must have as many. */
uint64_t staged_job_parts(const struct rig *rig, const struct comm_request *before, const struct comm_request *q);
/* Runs and verifies one job whose inputs, outputs, or both are on the device. Returns in how many parts it went. */
uint64_t staged_job_run(struct rig *rig, const struct job_shape *shape, int sides);

#endif
