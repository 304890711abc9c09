/* What this training and that of ../train_cuda share: batches, learning rate, accuracy, and two worlds of the same ranks. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include <commstream/commstream.h>

#include "digits.h"
#include "network.h"

enum { JOB_BATCH = 192, JOB_BATCHES = 16 };

/* Prints an error and ends the program. c may be NULL. */
void must(struct comm_communicator *c, enum comm_result result, const char *what);
/* Opens a world, then a second one of the same ranks, which meet through the first. `backend` is the second one's; NULL: as the first. */
void job_open_worlds(enum comm_progress_mode first_progress, struct comm_communicator **first, const char *backend,
                     struct comm_communicator **second);

/* Shuffles the images in the same way on all ranks. Returns how many are in `order`. */
size_t job_shuffle(const struct digits *digits, int epoch, size_t order[JOB_BATCH * JOB_BATCHES]);
float job_rate(int epoch, int epochs);
/* Rank r takes images r, r + ranks, ... of each batch. Returns how many. */
size_t job_share(const size_t *batch, int rank, int ranks, size_t share[JOB_BATCH]);
/* The share of right answers on the digits that are not trained on. */
double job_accuracy(struct network *net, const struct digits *digits);

#endif
