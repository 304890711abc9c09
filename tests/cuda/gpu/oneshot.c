/* Backend cuda, with a world of its own. One rank waits for nobody; the kernel, its words and its mailbox are used all the same. */
#include "suite.h"
#include "now.h"

#include <stdio.h>
#include <string.h>

enum { LONG_WORDS = 3 * 16384 + 5 }; /* four kernels */

static void open_oneshot(struct comm_communicator **world)
{
    OK(comm_open_local(COMM_CONFIG(.backend = "cuda", .progress = COMM_PROGRESS_CALLER), 1, NULL, world));
}

void suite_one_kernel(struct suite *s)
{
    struct comm_request_info info = {.size = sizeof info};
    struct comm_communicator *world;
    struct comm_request q;

    open_oneshot(&world);
    for (uint32_t round = 1; round <= 20; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        OK(comm_queue_wait_stream(world, s->compute));
        OK(comm_allreduce(world, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->out, round);
        OK(comm_allreduce(world, COMM_IN_PLACE, s->out + 1, SUITE_WORDS - 1, COMM_F32, COMM_AVG, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        suite_expect(s, s->consume, s->out, round);
    }
    OK(comm_describe_request(q, &info));
    if (strcmp(info.algorithm, "cuda") != 0)
        printf("  (staged: the module has no kernel for this device)\n");
    OK(comm_close(world, COMM_DEFAULT_TIMEOUT));
}

/* The first and the last words are the sum's. Where the module has no kernel for the device, such a communicator takes no device memory. */
void suite_kernels_in_a_stream(struct suite *s)
{
    struct comm_communicator *world, *c;
    struct comm_info info = {.size = sizeof info};
    uint32_t *in = bench_memory(&s->bench, LONG_WORDS), *out = bench_memory(&s->bench, LONG_WORDS);

    open_oneshot(&world);
    OK(NOW(comm_dup, world, &(struct comm_options){.size = sizeof(struct comm_options), .stream = s->compute}, &c));
    OK(comm_describe(c, &info));
    for (uint32_t round = 1; info.device_order && round <= 20; round++) {
        suite_delay(s, s->compute);
        bench_fill(&s->bench, s->compute, in, round, LONG_WORDS);
        OK(comm_allreduce(c, in, out, LONG_WORDS, COMM_U32, COMM_SUM, NULL));
        OK(comm_barrier(c, NULL));
        suite_expect(s, s->compute, out, round);
        suite_expect(s, s->compute, out + LONG_WORDS - SUITE_WORDS, round);
    }
    if (!info.device_order)
        printf("  (not run: the module has no kernel for this device)\n");
    OK(comm_close(c, COMM_DEFAULT_TIMEOUT));
    OK(comm_close(world, COMM_DEFAULT_TIMEOUT));
    bench_free(&s->bench, in);
    bench_free(&s->bench, out);
}

/* Each launch of the graph sums what the stream wrote before it. */
static void launch_sums(struct suite *s, struct comm_communicator *c)
{
    struct bench_graph graph = {0};

    bench_capture(&s->bench, s->compute);
    OK(comm_allreduce(c, s->in, s->out, SUITE_WORDS, COMM_U32, COMM_SUM, NULL));
    OK(comm_barrier(c, NULL));
    bench_end_capture(&s->bench, s->compute, &graph);
    for (uint32_t round = 1; round <= 100; round++) {
        bench_fill(&s->bench, s->compute, s->in, round, SUITE_WORDS);
        bench_launch(&s->bench, &graph, s->compute);
        if (round % 20 == 0)
            suite_expect(s, s->compute, s->out, round);
        if (round == 50)
            suite_refuses_to_close(c);
    }
    bench_drop_graph(&s->bench, &graph);
}

void suite_kernels_in_a_graph(struct suite *s)
{
    struct comm_communicator *world, *c;
    struct comm_info info = {.size = sizeof info};

    open_oneshot(&world);
    OK(NOW(comm_dup, world, &(struct comm_options){.size = sizeof(struct comm_options), .stream = s->compute}, &c));
    OK(comm_describe(c, &info));
    if (info.device_order)
        launch_sums(s, c);
    else
        printf("  (not run: the module has no kernel for this device)\n");
    OK(comm_close(c, COMM_DEFAULT_TIMEOUT));
    OK(comm_close(world, COMM_DEFAULT_TIMEOUT));
}

double suite_one_kernel_round_trip(struct suite *s)
{
    struct comm_communicator *world;

    open_oneshot(&world);
    double cost = suite_round_trips(s, world, 2560);
    OK(comm_close(world, COMM_DEFAULT_TIMEOUT));
    return cost;
}
