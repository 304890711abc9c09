/*
 * Data-parallel training with gradients in the memory of a CUDA device. The job is that of ../train. Each gradient is copied to the device
 * when it is ready, and is reduced there while the backward pass continues. A stream waits for the results; the host does not. The CPU
 * computes the network, so that this example needs no CUDA compiler. If kernels write the gradients, the library is called in the same way.
 *
 * The same training also runs with gradients in host memory, alternately step by step, and must end with the same weights. With --lose
 * STEP, rank 1 is killed in the backward pass of that step. The other ranks exclude it, repeat the step, and continue.
 *
 *     comm-run -n 4 train_cuda [--epochs N] [--backend nccl|cuda|shm|tcp] [--lose STEP] [--data FILE]
 *
 * With --backend nccl each rank of a host needs its own device, and NCCL reduces. With --backend cuda kernels of this library reduce, if
 * each rank has its own device. Otherwise gradients are staged through host memory, and ranks may share a device. The last line says which
 * way they went: buffers=direct or buffers=staged.
 */
#define _GNU_SOURCE
#include <commstream/commstream.h>
#include <commstream/cuda.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../train/job.h"
#include "../train/matrix.h"
#include "device.h"

enum { BATCH = JOB_BATCH, HIDDEN = 64, VICTIM = 1 };
static const double ACCURACY_WANTED = 0.9;
static const float SAME_ENOUGH = 1e-3f; /* NCCL adds in another order */

/* One of the two trainings: with gradients on the device or on the host. */
struct side {
    bool on_device;
    struct comm_communicator *world, *comm; /* `comm` has the ranks of `world` and is used only by the buckets */
    struct comm_buckets *buckets;
    struct network net;
    char *there; /* on the device: the gradients */
    struct CUstream_st *stream;
    struct comm_event *read;
    bool dies; /* in this backward pass */
};

struct job {
    const char *data, *backend; /* backend of the device's world; NULL: as the host's world */
    int epochs, lose, step;
    bool lost; /* a rank was lost */
    struct digits digits;
    struct side device, host;
};

static void wait_for(struct comm_request request, enum comm_result result, const char *what)
{
    must(NULL, result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result, what);
}

/* ---------------------------------------------------------------------------------------------------- what a side works with */
static void begin_side(struct side *side)
{
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 16 << 10, .first_bytes = 4 << 10};
    struct comm_gradient gradients[NETWORK_TENSORS];
    struct comm_request request = COMM_REQUEST_NONE;
    enum comm_result result = comm_dup(side->world, NULL, &side->comm, &request);
    wait_for(request, result, "dup");
    for (size_t t = 0; t < NETWORK_TENSORS; t++) {
        size_t from = side->net.offsets[t], count = side->net.offsets[t + 1] - from;
        void *data = side->on_device ? (void *)(side->there + from * sizeof(float)) : side->net.gradients + from;
        gradients[t] = (struct comm_gradient){.data = data, .count = count, .type = COMM_F32};
    }
    must(side->comm, comm_buckets_create(side->comm, gradients, NETWORK_TENSORS, &options, &side->buckets), "buckets");
    if (side->on_device)
        must(side->comm, comm_event_create(side->comm, &side->read), "event");
}

static void end_side(struct side *side)
{
    if (side->on_device)
        comm_event_free(side->read);
    comm_buckets_free(side->buckets);
    must(NULL, comm_close(side->comm, COMM_DEFAULT_TIMEOUT), "close");
}

/* The gradients are in pinned memory, so that the device can copy them asynchronously. */
static void create_network(struct side *side, bool on_device)
{
    side->on_device = on_device;
    if (!network_create(&side->net, HIDDEN, BATCH + 1, 7))
        exit(1);
    size_t bytes = side->net.offsets[NETWORK_TENSORS] * sizeof(float);
    if (on_device) {
        free(side->net.gradients);
        side->net.gradients = device_pinned(bytes);
        side->there = device_memory(bytes);
        side->stream = device_stream();
    }
    begin_side(side);
}

static void free_network(struct side *side)
{
    end_side(side);
    if (side->on_device) {
        device_free_pinned(side->net.gradients);
        device_free(side->there);
        device_drop_stream(side->stream);
        side->net.gradients = NULL;
    }
    network_free(&side->net);
}

/* ---------------------------------------------------------------------------------------------------- a step */
static void gradient_stands(void *arg, size_t tensor)
{
    struct side *side = arg;
    if (tensor == NETWORK_TURN || !side->on_device)
        return;
    size_t from = side->net.offsets[tensor], count = side->net.offsets[tensor + 1] - from;
    if (side->dies && tensor == 4)
        (void)kill(getpid(), SIGKILL);
    device_copy(side->stream, side->there + from * sizeof(float), side->net.gradients + from, count * sizeof(float));
    /* The end of the step reports any error. */
    while (comm_buckets_ready_stream(side->buckets, tensor, side->stream) == COMM_ERR_FULL && comm_progress(side->comm) >= 0)
        continue;
}

/* The stream waits for the results, and then copies them to the host. */
static enum comm_result reduce_on_device(struct side *side)
{
    enum comm_result result = COMM_PENDING;
    while (result == COMM_PENDING || result == COMM_ERR_FULL) {
        result = comm_buckets_wait_stream(side->buckets, side->stream);
        if (result != COMM_OK && comm_progress(side->comm) < 0)
            break;
    }
    device_copy(side->stream, side->net.gradients, side->there, side->net.offsets[NETWORK_TENSORS] * sizeof(float));
    enum comm_result recorded = comm_event_record_stream(side->read, side->stream);
    if (recorded == COMM_OK)
        recorded = comm_event_sync(side->read, COMM_FOREVER);
    must(NULL, recorded, "read the gradients");
    /* The stream continues even if a reduction failed. So ask the communicator whether the results are valid. */
    return result == COMM_OK ? comm_sync(side->comm, COMM_FOREVER) : result;
}

static enum comm_result reduce_on_host(struct side *side)
{
    for (size_t t = NETWORK_TENSORS; t-- > 0;)
        (void)!comm_buckets_ready(side->buckets, t);
    return comm_buckets_wait(side->buckets, COMM_FOREVER);
}

static enum comm_result take_gradients(struct job *job, struct side *side, const size_t *batch)
{
    size_t share[BATCH], right = 0;
    int ranks = comm_size(side->world);
    size_t rows = job_share(batch, comm_rank(side->world), ranks, share);
    (void)network_forward(&side->net, &job->digits, share, rows, &right);
    network_backward(&side->net, (float)ranks / (float)BATCH, gradient_stands, side);
    return side->on_device ? reduce_on_device(side) : reduce_on_host(side);
}

/* Returns whether the step succeeded on all ranks. One rank may succeed where others fail, so all ranks agree on it. */
static bool went_well(struct side *side, enum comm_result result)
{
    uint64_t well = result == COMM_OK;
    struct comm_request request = COMM_REQUEST_NONE;
    if (!well)
        must(NULL, comm_revoke(side->comm), "revoke"); /* ranks that still wait return */
    enum comm_result agreed = comm_agree(side->world, &well, &request);
    wait_for(request, agreed, "agree");
    return well != 0;
}

static void shrink(struct side *side)
{
    struct comm_communicator *survivors = NULL;
    struct comm_request request = COMM_REQUEST_NONE;
    end_side(side);
    enum comm_result result = comm_shrink(side->world, &survivors, &request);
    wait_for(request, result, "shrink");
    must(NULL, comm_close(side->world, COMM_DEFAULT_TIMEOUT), "close");
    side->world = survivors;
    begin_side(side);
}

/* If the step failed although no rank is dead, it would fail again. */
static void leave_out_the_dead(struct job *job, struct side *side, enum comm_result result)
{
    int ranks = comm_size(side->world);
    if (result != COMM_OK)
        fprintf(stderr, "train_cuda: step %d on the %s: %s\n", job->step, side->on_device ? "device" : "host", comm_result_text(result));
    shrink(&job->device);
    shrink(&job->host);
    if (comm_size(side->world) == ranks)
        must(NULL, result == COMM_OK ? COMM_ERR_STATE : result, "step");
}

static void train_side(struct job *job, struct side *side, const size_t *batch, float rate)
{
    for (;;) {
        side->dies = side->on_device && job->step == job->lose && !job->lost && comm_rank(side->world) == VICTIM;
        enum comm_result result = take_gradients(job, side, batch);
        if (went_well(side, result))
            break;
        leave_out_the_dead(job, side, result); /* no rank has applied this step, so it is repeated */
        job->lost = true;
    }
    network_update(&side->net, rate, 0.9f);
}

static void train(struct job *job)
{
    size_t order[BATCH * JOB_BATCHES];
    for (int epoch = 0; epoch < job->epochs; epoch++) {
        size_t count = job_shuffle(&job->digits, epoch, order);
        float rate = job_rate(epoch, job->epochs);
        for (size_t at = 0; at + BATCH <= count; at += BATCH, job->step++) {
            train_side(job, &job->device, order + at, rate);
            train_side(job, &job->host, order + at, rate);
        }
    }
}

/* ---------------------------------------------------------------------------------------------------- the end */
static float largest_difference(const struct network *a, const struct network *b)
{
    float most = 0;
    for (size_t i = 0; i < a->offsets[NETWORK_TENSORS]; i++) {
        float difference = fabsf(a->parameters[i] - b->parameters[i]);
        most = difference > most ? difference : most;
    }
    return most;
}

/* A last sum of gradients tells which way they went. */
static bool is_direct(struct side *side)
{
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request request = COMM_REQUEST_NONE;
    enum comm_result result = comm_allreduce(side->world, COMM_IN_PLACE, side->there, HIDDEN, COMM_F32, COMM_SUM, &request);
    wait_for(request, result, "sum");
    must(side->world, comm_describe_request(request, &info), "describe");
    return (info.flags & COMM_INFO_STAGED) == 0;
}

static bool report(struct job *job)
{
    struct comm_info info = {.size = sizeof info};
    must(job->device.comm, comm_describe(job->device.comm, &info), "describe");
    double accuracy = job_accuracy(&job->device.net, &job->digits);
    bool bits = network_hash(&job->device.net) == network_hash(&job->host.net);
    bool direct = is_direct(&job->device), has_own_order = strcmp(info.backend, "nccl") == 0;
    bool same = bits || (has_own_order && largest_difference(&job->device.net, &job->host.net) <= SAME_ENOUGH);
    bool good = same && accuracy >= ACCURACY_WANTED;
    if (comm_rank(job->device.world) == 0)
        printf("train_cuda: %s ranks=%d backend=%s buffers=%s steps=%d accuracy=%.2f weights=%s\n", good ? "ok" : "failed",
               comm_size(job->device.world), info.backend, direct ? "direct" : "staged", job->step, accuracy,
               bits   ? "identical"
               : same ? "close"
                      : "different");
    return good;
}

static bool parse_number(const char *text, long low, int *number)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < low || value > 1000000)
        return false;
    *number = (int)value;
    return true;
}

/* What was expected; NULL: the option is right. */
static const char *wrong_option(struct job *job, const char *option, const char *value)
{
    if (strcmp(option, "--epochs") == 0)
        return parse_number(value, 1, &job->epochs) ? NULL : "a number from 1 to 1000000";
    if (strcmp(option, "--lose") == 0)
        return parse_number(value, 0, &job->lose) ? NULL : "a step from 0 to 1000000";
    if (strcmp(option, "--backend") == 0)
        job->backend = value;
    else if (strcmp(option, "--data") == 0)
        job->data = value;
    else
        return "--epochs, --lose, --backend or --data with a value";
    return NULL;
}

static bool parse(struct job *job, int argc, char **argv)
{
    *job = (struct job){.data = TRAIN_DATA, .epochs = 20, .lose = -1};
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "", *expected = wrong_option(job, argv[i], value);
        if (i + 1 == argc && expected == NULL)
            expected = "a value";
        if (expected != NULL) {
            fprintf(stderr, "train_cuda: %s %s: expected %s\n", argv[i], value, expected);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct job job;
    struct comm_info info = {.size = sizeof info};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: train_cuda [--epochs N] [--backend nccl|cuda|shm|tcp] [--lose STEP] [--data FILE]\n");
        return 0;
    }
    if (!parse(&job, argc, argv))
        return 2;
    matrix_begin();
    if (!device_load())
        return 77;
    if (!digits_load(&job.digits, job.data))
        return 1;
    /* two worlds, because collectives of backend nccl take only device memory */
    job_open_worlds(COMM_PROGRESS_THREAD, &job.host.world, job.backend, &job.device.world);
    must(NULL, comm_describe(job.device.world, &info), "describe");
    if (!device_use(info.local_rank))
        return 1;
    create_network(&job.device, true);
    create_network(&job.host, false);
    train(&job);
    bool good = report(&job);
    free_network(&job.device);
    free_network(&job.host);
    digits_free(&job.digits);
    must(NULL, comm_close(job.device.world, COMM_DEFAULT_TIMEOUT), "close");
    must(NULL, comm_close(job.host.world, COMM_DEFAULT_TIMEOUT), "close");
    return good ? 0 : 1;
}
