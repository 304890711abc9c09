/* Several reductions run while the program computes: issue them, compute in pieces with a call of comm_progress between them, wait once. */
#include "must.h"

enum { OPERATIONS = 8, ELEMENTS = 10000, PIECES = 100, PIECE = 20000 };

/* One piece of the Leibniz series for pi. */
static double compute(int piece)
{
    double sum = 0;
    for (int i = piece * PIECE; i < (piece + 1) * PIECE; i++)
        sum += (i % 2 == 0 ? 4.0 : -4.0) / (2.0 * i + 1.0);
    return sum;
}

int main(void)
{
    static double in[OPERATIONS][ELEMENTS], out[OPERATIONS][ELEMENTS];
    struct comm_communicator *world;
    struct comm_request requests[OPERATIONS];
    must(comm_open(NULL, &world), "open");

    for (int i = 0; i < OPERATIONS; i++) {
        for (int k = 0; k < ELEMENTS; k++)
            in[i][k] = comm_rank(world) * (i + 1);
        must(comm_allreduce(world, in[i], out[i], ELEMENTS, COMM_F64, COMM_MAX, &requests[i]), "allreduce");
    }

    double pi = 0;
    for (int piece = 0; piece < PIECES; piece++) {
        pi += compute(piece);
        enum comm_result turn = comm_progress(world); /* COMM_PENDING: there is more to do; COMM_OK: idle */
        must(turn == COMM_PENDING ? COMM_OK : turn, "progress");
    }

    must(comm_wait_all(requests, OPERATIONS, COMM_FOREVER), "wait");
    for (int i = 0; i < OPERATIONS; i++)
        expect(out[i][ELEMENTS - 1] == (comm_size(world) - 1) * (i + 1), "the maximum is the last rank's");
    if (comm_rank(world) == 0)
        printf("overlap: operations=%d pi=%.4f\n", OPERATIONS, pi);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
