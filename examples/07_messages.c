/* Messages: each completes on its own. They match in order per peer and tag. First a ring of neighbours, then one rank that receives from
 * any rank. */
#include "must.h"

enum { TAG_RING = 1, TAG_REPORT = 2, ELEMENTS = 5000 };

int main(void)
{
    static int32_t mine[ELEMENTS], theirs[ELEMENTS];
    struct comm_communicator *world;
    struct comm_request requests[2];
    struct comm_status status;
    must(comm_open(NULL, &world), "open");
    int32_t rank = comm_rank(world), ranks = comm_size(world);
    int32_t left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;

    /* Receive first, then send. Neither call waits, so no order of calls can deadlock. */
    for (int32_t i = 0; i < ELEMENTS; i++)
        mine[i] = rank * ELEMENTS + i;
    must(comm_recv(world, theirs, ELEMENTS, COMM_I32, left, TAG_RING, &status, &requests[0]), "recv");
    must(comm_send(world, mine, ELEMENTS, COMM_I32, right, TAG_RING, &requests[1]), "send");
    must(comm_wait_all(requests, 2, COMM_FOREVER), "ring");
    expect(status.peer == left && status.bytes == sizeof theirs, "the status names the sender and the length");
    for (int32_t i = 0; i < ELEMENTS; i++)
        expect(theirs[i] == left * ELEMENTS + i, "the left neighbour's numbers");

    int32_t report = rank * rank, sum = 0;
    if (rank != 0)
        must(comm_send(world, &report, 1, COMM_I32, 0, TAG_REPORT, &requests[0]), "send");
    for (int32_t i = 1; rank == 0 && i < ranks; i++) {
        must(comm_recv(world, &report, 1, COMM_I32, COMM_ANY_PEER, TAG_REPORT, &status, &requests[0]), "recv");
        must(comm_wait(requests[0], COMM_FOREVER), "wait");
        expect(report == status.peer * status.peer, "the status tells whose report it is");
        sum += report;
    }
    must(comm_sync(world, COMM_FOREVER), "sync");
    if (rank == 0)
        printf("messages: ranks=%d sum=%d\n", ranks, sum);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
