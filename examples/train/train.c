/*
 * Data-parallel training: every rank holds the whole network and processes its share of each batch, and the ranks average their gradients.
 * The same training runs four times from one seed. The runs alternate by epoch, so that all have the same conditions. They are: without
 * reduction (the cost of computing), reduction after the backward pass, and reduction during the backward pass, with progress by the
 * callers or by a progress thread. The last three must end with the same bits on every rank.
 *
 *     comm-run -n 4 train [--epochs N] [--data FILE] [--link MB|auto]
 *
 * --link limits each TCP connection to so many MB a second, as a network between hosts does. With auto, a reduction takes about as long as
 * computing a step. It needs backend tcp: shared memory has no link, and little to hide.
 */
#define _GNU_SOURCE
#include <commstream/commstream.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "job.h"
#include "link.h"
#include "matrix.h"

enum { BATCH = JOB_BATCH, HIDDEN = 256, EPOCHS_MAX = 1000, RUNS = 4 };
static const double ACCURACY_WANTED = 0.96;

enum mode { ALONE, BLOCKING, OVERLAPPED, THREADED };
static const char *const mode_texts[RUNS] = {
    "computing alone, nothing reduced",
    "reduced after the backward pass",
    "overlapped, moved by the callers",
    "overlapped, moved by a thread",
};

struct run {
    enum mode mode;
    struct comm_communicator *comm;
    struct network net;
    struct comm_buckets *buckets;
    double step_us[EPOCHS_MAX]; /* mean step of each epoch */
    double loss;                /* of the last epoch, per image of this rank's share */
};

struct demo {
    const char *data;
    int epochs, rank, ranks;
    bool bar, measure_link;
    double link;                                /* bytes per second of each connection; 0: as it is */
    int limited;                                /* connections to which that is done */
    struct comm_communicator *world, *threaded; /* the same ranks twice: callers make progress in one, a thread in the other */
    struct digits digits;
    struct run runs[RUNS];
};

static double now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static void barrier(struct comm_communicator *c)
{
    struct comm_request request = COMM_REQUEST_NONE;
    must(c, comm_barrier(c, &request), "barrier");
    must(c, comm_wait(request, COMM_FOREVER), "barrier");
}

static void open_worlds(struct demo *demo)
{
    job_open_worlds(COMM_PROGRESS_CALLER, &demo->world, NULL, &demo->threaded);
    demo->rank = comm_rank(demo->world);
    demo->ranks = comm_size(demo->world);
}

/* Small buckets, so that the gradients of the last layers are reduced while those of the first layers are computed. */
static void create_runs(struct demo *demo)
{
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 32 << 10, .first_bytes = 32 << 10};
    for (int i = 0; i < RUNS; i++) {
        struct run *run = &demo->runs[i];
        struct comm_gradient gradients[NETWORK_TENSORS];
        size_t rows = (size_t)((BATCH + demo->ranks - 1) / demo->ranks);
        run->mode = (enum mode)i;
        run->comm = run->mode == THREADED ? demo->threaded : demo->world;
        /* One more row than the largest share, and room for tests in batches of that size. */
        if (!network_create(&run->net, HIDDEN, rows + 1, 7)) {
            fprintf(stderr, "out of memory\n");
            exit(1);
        }
        for (size_t t = 0; t < NETWORK_TENSORS; t++) {
            gradients[t] = (struct comm_gradient){
                .data = run->net.gradients + run->net.offsets[t], .count = run->net.offsets[t + 1] - run->net.offsets[t], .type = COMM_F32};
        }
        must(run->comm, comm_buckets_create(run->comm, gradients, NETWORK_TENSORS, &options, &run->buckets), "buckets");
    }
}

/* The backward pass calls this for each complete gradient. Between products, callers briefly make progress. */
static void gradient_stands(void *arg, size_t tensor)
{
    struct run *run = arg;
    if (run->mode < OVERLAPPED)
        return;
    if (tensor != NETWORK_TURN) {
        must(run->comm, comm_buckets_ready(run->buckets, tensor), "ready");
    } else if (run->mode == OVERLAPPED) {
        enum comm_result result = comm_progress(run->comm);
        must(run->comm, result == COMM_PENDING ? COMM_OK : result, "progress");
    }
}

static void train_step(struct demo *demo, struct run *run, const size_t *numbers, size_t rows, float rate)
{
    size_t right = 0;
    run->loss += network_forward(&run->net, &demo->digits, numbers, rows, &right);
    /* COMM_AVG divides by the number of ranks, but we want the mean over the batch. */
    network_backward(&run->net, (float)demo->ranks / (float)BATCH, gradient_stands, run);
    for (size_t t = NETWORK_TENSORS; run->mode == BLOCKING && t-- > 0;)
        must(run->comm, comm_buckets_ready(run->buckets, t), "ready");
    if (run->mode != ALONE)
        must(run->comm, comm_buckets_wait(run->buckets, COMM_FOREVER), "reduce");
    network_update(&run->net, rate, 0.9f);
}

/*
 * The step time is the mean over an epoch between
 * barriers: when ranks share CPUs, single steps are either not interrupted or interrupted for long, so their median would represent
 * neither.
 */
static void train_epoch(struct demo *demo, struct run *run, int epoch)
{
    size_t order[BATCH * JOB_BATCHES], share[BATCH], images = 0;
    size_t steps = job_shuffle(&demo->digits, epoch, order) / BATCH;
    float rate = job_rate(epoch, demo->epochs);
    run->loss = 0;
    if (demo->link > 0)
        demo->limited = link_limit(demo->link); /* also what was connected since the last epoch */
    barrier(demo->world);
    double begin = now_us();
    for (size_t step = 0; step < steps; step++) {
        size_t rows = job_share(order + step * BATCH, demo->rank, demo->ranks, share);
        train_step(demo, run, share, rows, rate);
        images += rows;
    }
    barrier(demo->world);
    run->step_us[epoch] = (now_us() - begin) / (double)steps;
    run->loss /= images != 0 ? (double)images : 1;
}

/* A link on which the bytes that a rank sends for a reduction take as long as a step without one: the second of two, which is warm. */
static void choose_link(struct demo *demo)
{
    struct run *alone = &demo->runs[ALONE];
    struct comm_request request = COMM_REQUEST_NONE;
    double share = 2.0 * (demo->ranks - 1) / demo->ranks, bytes = share * sizeof(float) * (double)alone->net.offsets[NETWORK_TENSORS];
    if (!demo->measure_link || demo->ranks == 1)
        return;
    train_epoch(demo, alone, 0);
    train_epoch(demo, alone, 0);
    demo->link = bytes / alone->step_us[0] * 1e6;
    must(demo->world, comm_broadcast(demo->world, &demo->link, 1, COMM_F64, 0, &request), "broadcast");
    must(demo->world, comm_wait(request, COMM_FOREVER), "broadcast");
}

static void show_progress(struct demo *demo, int epoch)
{
    const struct run *run = &demo->runs[OVERLAPPED];
    int done = epoch + 1, filled = 30 * done / demo->epochs;
    bool end = done == demo->epochs;
    if (demo->rank != 0)
        return;
    if (demo->bar)
        printf("\r[%-30.*s] epoch %d/%d  loss %.4f%s", filled, "##############################", done, demo->epochs, run->loss,
               end ? "\n" : "");
    else if (end || done % 10 == 0)
        printf("epoch %d/%d  loss %.4f\n", done, demo->epochs, run->loss);
    fflush(stdout);
}

static void train(struct demo *demo)
{
    choose_link(demo);
    for (int epoch = 0; epoch < demo->epochs; epoch++) {
        for (int i = 0; i < RUNS; i++)
            train_epoch(demo, &demo->runs[(i + epoch) % RUNS], epoch);
        show_progress(demo, epoch);
    }
}

/* Whether blocking and overlapped runs, on this and every other rank, have the same hash. */
static bool all_identical(struct demo *demo)
{
    uint64_t mine[RUNS], *all = calloc((size_t)demo->ranks, sizeof mine);
    struct comm_request request = COMM_REQUEST_NONE;
    bool identical = all != NULL;
    for (int i = 0; i < RUNS; i++)
        mine[i] = network_hash(&demo->runs[i].net);
    if (all == NULL)
        exit(1);
    must(demo->world, comm_allgather(demo->world, mine, all, RUNS, COMM_U64, &request), "allgather");
    must(demo->world, comm_wait(request, COMM_FOREVER), "allgather");
    for (int r = 0; r < demo->ranks; r++) {
        for (int i = BLOCKING; i < RUNS; i++)
            identical = identical && all[r * RUNS + i] == mine[BLOCKING];
    }
    free(all);
    return identical;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(struct run *run, int epochs)
{
    qsort(run->step_us, (size_t)epochs, sizeof run->step_us[0], compare);
    return run->step_us[epochs / 2];
}

static double faster(const double us[RUNS])
{
    return us[OVERLAPPED] < us[THREADED] ? us[OVERLAPPED] : us[THREADED];
}

/* The share of the reduction's cost that is hidden behind computation, by the better of the two ways; 0 if the cost is too small to
 * measure. */
static int hidden_percent(const double us[RUNS])
{
    double cost = us[BLOCKING] - us[ALONE];
    double percent = cost > us[ALONE] / 50 ? 100 * (us[BLOCKING] - faster(us)) / cost : 0;
    return (int)(percent < 0 ? 0 : percent > 100 ? 100 : percent);
}

static void show_times(const struct demo *demo, const double us[RUNS], int cpus)
{
    printf("step time, median of %d epochs in turn:\n", demo->epochs);
    for (int i = 0; i < RUNS; i++)
        printf("  %-34s %9.1f us\n", mode_texts[i], us[i]);
    if (demo->link > 0 && demo->limited == 0)
        printf("no link was limited: these ranks have no TCP connections; COMM_BACKEND=tcp gives them some\n");
    else if (demo->link > 0)
        printf("each connection was limited to %.0f MB/s, as a network between hosts is\n", demo->link / 1e6);
    else if (cpus > 0 && demo->ranks > cpus)
        printf("(%d ranks on %d CPUs: while one waits another computes, so little is left to hide)\n", demo->ranks, cpus);
    printf("overlap hid %d %% of what the reduction costs: a step took %.0f us instead of %.0f, %.0f %% less\n", hidden_percent(us),
           faster(us), us[BLOCKING], 100 * (1 - faster(us) / us[BLOCKING]));
}

static bool report(struct demo *demo)
{
    struct comm_info info = {.size = sizeof info};
    double us[RUNS], accuracy = job_accuracy(&demo->runs[OVERLAPPED].net, &demo->digits);
    bool identical = all_identical(demo), good = identical && accuracy >= ACCURACY_WANTED;
    must(demo->world, comm_describe(demo->world, &info), "describe");
    for (int i = 0; i < RUNS; i++)
        us[i] = median(&demo->runs[i], demo->epochs);
    if (demo->rank != 0)
        return good;
    printf("loss %.4f, accuracy %.4f on %zu digits never trained on; products by %s\n", demo->runs[OVERLAPPED].loss, accuracy,
           demo->digits.count - demo->digits.train_count, matrix_library());
    show_times(demo, us, info.cpus);
    printf("weights after the three reduced trainings, on all ranks: %s\n", identical ? "the same bits" : "DIFFERENT");
    printf("demo: %s ranks=%d backend=%s accuracy=%.2f identical=%s hidden_pct=%d\n", good ? "ok" : "failed", demo->ranks, info.backend,
           accuracy, identical ? "yes" : "no", hidden_percent(us));
    fflush(stdout);
    return good;
}

/* A number of MB per second, or "auto". */
static bool parse_link(struct demo *demo, const char *text)
{
    char *end;
    demo->measure_link = strcmp(text, "auto") == 0;
    demo->link = demo->measure_link ? 0 : strtod(text, &end) * 1e6;
    return demo->measure_link || (*end == '\0' && demo->link >= 1e6 && demo->link < 1e12);
}

static bool parse_epochs(struct demo *demo, const char *text)
{
    char *end;
    long epochs = strtol(text, &end, 10);
    demo->epochs = epochs >= 1 && epochs <= EPOCHS_MAX ? (int)epochs : 0;
    return end != text && *end == '\0' && demo->epochs != 0;
}

/* What was expected; NULL: the option is right. */
static const char *wrong_option(struct demo *demo, const char *option, const char *value)
{
    if (strcmp(option, "--epochs") == 0)
        return parse_epochs(demo, value) ? NULL : "a number from 1 to 1000";
    if (strcmp(option, "--link") == 0)
        return parse_link(demo, value) ? NULL : "MB per second, from 1 to 1000000, or auto";
    if (strcmp(option, "--data") != 0)
        return "--epochs, --data or --link with a value";
    demo->data = value;
    return NULL;
}

static bool parse(struct demo *demo, int argc, char **argv)
{
    demo->epochs = 60;
    demo->data = TRAIN_DATA;
    demo->bar = isatty(STDOUT_FILENO) != 0;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "", *expected = wrong_option(demo, argv[i], value);
        if (i + 1 == argc && expected == NULL)
            expected = "a value";
        if (expected != NULL) {
            fprintf(stderr, "train: %s %s: expected %s\n", argv[i], value, expected);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct demo demo;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: train [--epochs 1..%d] [--data FILE] [--link MB_PER_SECOND|auto]\n", EPOCHS_MAX);
        return 0;
    }
    if (!parse(&demo, argc, argv))
        return 2;
    matrix_begin();
    if (!digits_load(&demo.digits, demo.data))
        return 1;
    open_worlds(&demo);
    create_runs(&demo);
    train(&demo);
    bool good = report(&demo);
    for (int i = 0; i < RUNS; i++) {
        comm_buckets_free(demo.runs[i].buckets);
        network_free(&demo.runs[i].net);
    }
    digits_free(&demo.digits);
    must(NULL, comm_close(demo.threaded, COMM_DEFAULT_TIMEOUT), "close");
    must(NULL, comm_close(demo.world, COMM_DEFAULT_TIMEOUT), "close");
    return good ? 0 : 1;
}
