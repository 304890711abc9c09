/* Blocks of different lengths that no other rank knows: the lengths first, then the blocks. Rounds overlap: while the blocks of one are on
 * their way, the program makes those of the next, and sends its lengths at once. */
#include "must.h"

enum { ROUNDS = 10, MOST = 7 };

/* What this rank found in a round. How much that is only this rank knows. */
static size_t work(int32_t rank, int round, double *found)
{
    size_t count = (size_t)(rank * 3 + round) % MOST;
    for (size_t i = 0; i < count; i++)
        found[i] = rank * 100 + round;
    return count;
}

struct round {
    struct comm_request lengths, blocks;
    double mine[MOST], *all;
    uint64_t count, *counts; /* of this rank, and of each */
};

/* Makes this rank's block, and sends its length to all. */
static void begin(struct comm_communicator *world, struct round *r, int number)
{
    r->count = work(comm_rank(world), number, r->mine);
    must(comm_allgather(world, &r->count, r->counts, 1, COMM_U64, &r->lengths), "allgather");
}

/* Once the lengths are here: room for all blocks, and the exchange. They are dense, in the order of the ranks. */
static void exchange(struct comm_communicator *world, struct round *r, size_t *counts)
{
    size_t sum = 0;
    must(comm_wait(r->lengths, COMM_FOREVER), "wait for the lengths");
    for (int32_t i = 0; i < comm_size(world); i++)
        sum += counts[i] = (size_t)r->counts[i];
    free(r->all);
    r->all = malloc((sum + 1) * sizeof *r->all);
    expect(r->all != NULL, "memory");
    must(comm_allgather_v(world, r->mine, r->all, counts, NULL, COMM_F64, &r->blocks), "allgather_v"); /* copies `counts` */
}

static double finish(struct comm_communicator *world, struct round *r)
{
    double sum = 0;
    size_t at = 0;
    must(comm_wait(r->blocks, COMM_FOREVER), "wait for the blocks");
    for (int32_t i = 0; i < comm_size(world); i++)
        for (uint64_t k = 0; k < r->counts[i]; k++)
            sum += r->all[at++];
    return sum;
}

int main(void)
{
    struct comm_communicator *world;
    must(comm_open(NULL, &world), "open");
    int32_t ranks = comm_size(world);
    struct round rounds[2] = {{.count = 0}}; /* used in turn */
    size_t *counts = malloc((size_t)ranks * sizeof *counts);
    for (int i = 0; i < 2; i++)
        rounds[i].counts = calloc((size_t)ranks, sizeof *rounds[i].counts);
    expect(counts && rounds[0].counts && rounds[1].counts, "memory");

    double sum = 0, expected = 0, found[MOST];
    begin(world, &rounds[0], 0);
    for (int i = 0; i < ROUNDS; i++) {
        exchange(world, &rounds[i % 2], counts);
        if (i + 1 < ROUNDS)
            begin(world, &rounds[(i + 1) % 2], i + 1);
        sum += finish(world, &rounds[i % 2]);
    }
    for (int32_t r = 0; r < ranks; r++)
        for (int i = 0; i < ROUNDS; i++)
            for (size_t k = work(r, i, found); k > 0; k--)
                expected += r * 100 + i;
    expect(sum >= expected && sum <= expected, "every block of every rank");
    if (comm_rank(world) == 0)
        printf("counts: rounds=%d sum=%g\n", ROUNDS, sum);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    for (int i = 0; i < 2; i++) {
        free(rounds[i].counts);
        free(rounds[i].all);
    }
    free(counts);
    return 0;
}
