#include "job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void must(struct comm_communicator *c, enum comm_result result, const char *what)
{
    struct comm_error error = {.size = sizeof error};
    if (result == COMM_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, comm_result_text(result));
    if (c != NULL && comm_error_detail(c, &error) == COMM_OK)
        fprintf(stderr, "%s\n", error.text);
    exit(1);
}

static int exchange(void *arg, const void *in, size_t bytes, void *out)
{
    struct comm_request request = COMM_REQUEST_NONE;
    enum comm_result result = comm_allgather(arg, in, out, bytes, COMM_BYTE, &request);
    if (result == COMM_OK)
        result = comm_wait(request, COMM_FOREVER);
    if (result != COMM_OK)
        fprintf(stderr, "exchange: %s\n", comm_result_text(result));
    return result == COMM_OK ? 0 : -1;
}

void job_open_worlds(enum comm_progress_mode first_progress, struct comm_communicator **first, const char *backend,
                     struct comm_communicator **second)
{
    char why[512] = "";
    struct comm_config config = {.size = sizeof config, .progress = first_progress};
    config.error_text = why;
    config.error_text_bytes = sizeof why;
    enum comm_result result = comm_open(&config, first);
    if (result == COMM_OK) {
        config.backend = backend;
        config.rank = comm_rank(*first);
        config.ranks = comm_size(*first);
        config.exchange = exchange;
        config.exchange_arg = *first;
        config.progress = COMM_PROGRESS_THREAD;
        result = comm_open(&config, second);
    }
    if (result != COMM_OK)
        fprintf(stderr, "open: %s\n", why);
    must(NULL, result, "open");
}

size_t job_shuffle(const struct digits *digits, int epoch, size_t order[JOB_BATCH * JOB_BATCHES])
{
    size_t most = JOB_BATCH * JOB_BATCHES, count = digits->train_count < most ? digits->train_count : most;
    random_shuffle((uint64_t)epoch + 1, order, count);
    return count;
}

float job_rate(int epoch, int epochs)
{
    return 0.04f * 0.5f * (1.0f + cosf(3.14159265f * (float)epoch / (float)epochs));
}

size_t job_share(const size_t *batch, int rank, int ranks, size_t share[JOB_BATCH])
{
    size_t rows = 0;
    for (int i = rank; i < JOB_BATCH; i += ranks)
        share[rows++] = batch[i];
    return rows;
}

double job_accuracy(struct network *net, const struct digits *digits)
{
    size_t right = 0, tested = digits->count - digits->train_count;
    for (size_t at = digits->train_count; at < digits->count;) {
        size_t numbers[JOB_BATCH], rows = 0;
        while (rows < net->rows_max && rows < JOB_BATCH && at < digits->count)
            numbers[rows++] = at++;
        (void)network_forward(net, digits, numbers, rows, &right);
    }
    return (double)right / (double)tested;
}
