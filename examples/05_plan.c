/* Repeated work is recorded once and started many times. A start checks no arguments and allocates nothing. */
#include "must.h"

enum { STARTS = 1000 };

int main(void)
{
    struct comm_communicator *world, *recorder;
    struct comm_plan *plan;
    struct comm_request request;
    int64_t step = 0, counter = 0, total = 0;
    must(comm_open(NULL, &world), "open");

    /* The recorder takes the usual calls and runs nothing. Each start uses the same buffers. */
    must(comm_plan_begin(world, &recorder), "begin");
    must(comm_broadcast(recorder, &step, 1, COMM_I64, 0, NULL), "record a broadcast");
    must(comm_allreduce(recorder, &counter, &total, 1, COMM_I64, COMM_SUM, NULL), "record an allreduce");
    must(comm_plan_end(recorder, &plan), "end");

    int64_t expected = 0;
    for (int64_t i = 0; i < STARTS; i++) {
        step = comm_rank(world) == 0 ? i : -1;
        counter = i + comm_rank(world);
        must(comm_plan_start(plan, &request), "start");
        must(comm_wait(request, COMM_FOREVER), "wait");
        expect(step == i, "everybody has the root's step");
        expected = comm_size(world) * i + comm_size(world) * (comm_size(world) - 1) / 2;
        expect(total == expected, "everybody has the sum");
    }

    if (comm_rank(world) == 0)
        printf("plan: starts=%d total=%d\n", STARTS, (int)total);
    comm_plan_free(plan);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
