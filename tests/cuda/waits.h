/* A world of one rank on a device beside a world of the host, and streams of the program's: for tests of what waits for what. */
#ifndef TESTS_CUDA_WAITS_H
#define TESTS_CUDA_WAITS_H

#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 16 };
struct bed {
    struct comm_communicator *nccl, *host[2];
    struct bench bench;
    struct CUstream_st *compute, *other;
    uint32_t *in, *out;
    struct comm_event *event;
};

/* A world of one rank on a device, and a host world of two ranks on the same engine. */
static inline void make_bed(struct bed *bed, const struct mock_options *options)
{
    mock_reset(options);
    mock_run(true);
    *bed = (struct bed){0};
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S), 1, NULL,
                         &bed->nccl));
    MUST(comm_open_local(COMM_CONFIG(.engine_of = bed->nccl, .operation_timeout_ns = 30 * RIG_S), 2, NULL, bed->host));
    bench_open(&bed->bench, 0);
    bed->compute = bench_stream(&bed->bench);
    bed->other = bench_stream(&bed->bench);
    bed->in = bench_memory(&bed->bench, WORDS);
    bed->out = bench_memory(&bed->bench, WORDS);
    MUST(comm_event_create(bed->nccl, &bed->event));
}

static inline void drop_bed(struct bed *bed)
{
    comm_event_free(bed->event);
    for (int r = 0; r < 2; r++)
        MUST(comm_close(bed->host[r], COMM_DEFAULT_TIMEOUT));
    MUST(comm_close(bed->nccl, COMM_DEFAULT_TIMEOUT));
    while (!mock_idle())
        rig_nap(RIG_MS);
    bench_free(&bed->bench, bed->in);
    bench_free(&bed->bench, bed->out);
    bench_drop_stream(&bed->bench, bed->compute);
    bench_drop_stream(&bed->bench, bed->other);
    bench_close(&bed->bench);
    mock_run(false);
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

static inline void set_flag(void *arg)
{
    atomic_store((_Atomic int *)arg, 1);
}

static inline bool comes(_Atomic int *flag)
{
    int64_t start = rig_now();

    while (!atomic_load(flag))
        if (rig_now() - start > 5 * RIG_S)
            return false;
        else
            rig_nap(RIG_MS / 10);
    return true;
}

static const struct mock_options settings[] = {{.seed = 1, .queues = 1}, {.seed = 2, .queues = 32}, {.seed = 3, .queues = 2}};
enum { SETTINGS = sizeof settings / sizeof *settings };

#endif
