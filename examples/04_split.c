/* Groups of ranks and streams of work: one communicator for the even ranks, one for the odd ranks, and a second stream over all of them. */
#include "must.h"

int main(void)
{
    struct comm_communicator *world, *half, *stream;
    struct comm_request requests[2];
    must(comm_open(NULL, &world), "open");
    int32_t rank = comm_rank(world), ranks = comm_size(world);

    must(comm_split(world, rank % 2, rank, &half, NULL), "split"); /* without requests: comm_sync waits for both */
    must(comm_dup(world, NULL, &stream, NULL), "dup");
    must(comm_sync(world, COMM_FOREVER), "sync");

    /* Two communicators have two queues: neither call waits for the other. */
    int32_t of_half = 0, of_all = 0;
    must(comm_allreduce(half, &rank, &of_half, 1, COMM_I32, COMM_SUM, &requests[0]), "allreduce in the half");
    must(comm_allreduce(stream, &rank, &of_all, 1, COMM_I32, COMM_SUM, &requests[1]), "allreduce of all");
    must(comm_wait_all(requests, 2, COMM_FOREVER), "wait");

    int32_t expected = 0;
    for (int32_t r = rank % 2; r < ranks; r += 2)
        expected += r;
    expect(of_half == expected, "the sum over ranks of this parity");
    expect(of_all == ranks * (ranks - 1) / 2, "the sum over all ranks");
    expect(comm_translate(half, comm_rank(half), world) == rank, "a rank of the half is known in the world");
    if (rank == 0)
        printf("split: even=%d all=%d\n", of_half, of_all);
    must(comm_close(half, COMM_DEFAULT_TIMEOUT), "close half");
    must(comm_close(stream, COMM_DEFAULT_TIMEOUT), "close stream");
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
