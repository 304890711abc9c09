/* The smallest program: opens the world, adds up one number of every rank, closes.  comm-run -n 4 ex_hello */
#include "must.h"

int main(void)
{
    struct comm_communicator *world;
    struct comm_request request;
    must(comm_open(NULL, &world), "open");

    /* The call returns at once. The request is a value that can be copied and waited for any number of times. */
    int64_t mine = comm_rank(world) + 1, sum = 0;
    must(comm_allreduce(world, &mine, &sum, 1, COMM_I64, COMM_SUM, &request), "allreduce");
    must(comm_wait(request, COMM_FOREVER), "wait");

    int64_t ranks = comm_size(world);
    expect(sum == ranks * (ranks + 1) / 2, "1 + 2 + ... + ranks");
    if (comm_rank(world) == 0)
        printf("hello: ranks=%d sum=%d\n", (int)ranks, (int)sum);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
