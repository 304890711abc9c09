/* A rank is lost during training, and the others continue. The ranks agree on every step, and exclude the dead rank. */
#define _GNU_SOURCE
#include "must.h"

#include <unistd.h>

enum { STEPS = 60, LOST_AT = 20, WEIGHTS = 4, SAMPLES = 12 };

/* The gradient of this rank's samples, which lie on y = 1 x0 + 2 x1 + 3 x2 + 4 x3. */
static void gradient_of(const double *weight, int first_rank, double *gradient)
{
    for (int w = 0; w < WEIGHTS; w++)
        gradient[w] = 0;
    for (int s = 0; s < SAMPLES; s++) {
        double x[WEIGHTS], error = 0;
        for (int w = 0; w < WEIGHTS; w++) {
            x[w] = (double)((s * 7 + w * 5 + first_rank * 3) % 11 - 5) / 5;
            error += (weight[w] - (w + 1)) * x[w];
        }
        for (int w = 0; w < WEIGHTS; w++)
            gradient[w] += error * x[w] / SAMPLES;
    }
}

/* The sum over all ranks, or an error if a rank is gone. */
static enum comm_result add_up(struct comm_communicator *c, const double *mine, double *sum)
{
    struct comm_request request;
    enum comm_result result = comm_allreduce(c, mine, sum, WEIGHTS, COMM_F64, COMM_SUM, &request);
    return result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
}

/* Whether the step succeeded on all ranks. A rank with the sum may be the only one that has it. */
static int went_well(struct comm_communicator *c, enum comm_result result)
{
    uint64_t well = result == COMM_OK;
    struct comm_request request;
    if (!well)
        must(comm_revoke(c), "revoke"); /* releases ranks that still wait */
    must(comm_agree(c, &well, &request), "agree");
    must(comm_wait(request, COMM_FOREVER), "agree");
    return well != 0;
}

static struct comm_communicator *without_the_dead(struct comm_communicator *c)
{
    struct comm_communicator *survivors = NULL;
    struct comm_request request;
    must(comm_shrink(c, &survivors, &request), "shrink");
    must(comm_wait(request, COMM_FOREVER), "shrink");
    must(comm_close(c, COMM_DEFAULT_TIMEOUT), "close");
    return survivors;
}

int main(void)
{
    struct comm_communicator *c = NULL;
    double weight[WEIGHTS] = {0}, mine[WEIGHTS], sum[WEIGHTS];
    must(comm_open(NULL, &c), "open");
    int rank = comm_rank(c), ranks = comm_size(c), step = 0;
    while (step < STEPS) {
        if (ranks > 1 && rank == 1 && step == LOST_AT)
            _exit(0); /* without closing, like a process that crashes */
        gradient_of(weight, rank, mine);
        if (!went_well(c, add_up(c, mine, sum))) {
            c = without_the_dead(c); /* no rank has applied this step, so it is repeated */
            continue;
        }
        for (int w = 0; w < WEIGHTS; w++)
            weight[w] -= sum[w] / comm_size(c);
        step++;
    }
    expect(comm_size(c) == (ranks > 1 ? ranks - 1 : 1), "one rank was lost");
    for (int w = 0; w < WEIGHTS; w++)
        expect(weight[w] > w + 0.99 && weight[w] < w + 1.01, "the weights were found");
    if (comm_rank(c) == 0)
        printf("recover: %d of %d ranks came to the end, after %d steps\n", comm_size(c), ranks, step);
    must(comm_close(c, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
