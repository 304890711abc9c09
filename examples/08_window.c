/* A window: memory of all ranks that each can read and update without its owner taking part. Here it is one histogram on rank 0 in which
 * all ranks count, and a table that one rank of each host fills for all ranks of that host. */
#include "must.h"

enum { BINS = 16, SAMPLES = 10000, TABLE = 1000 };

/* Rank 0 provides the memory, the others none. Each rank counts and reads without help of rank 0's program, also from another host. */
static int64_t count_all(struct comm_communicator *world)
{
    struct comm_window *counts;
    struct comm_request request;
    int64_t bins[BINS], total = 0;
    const int64_t one = 1;
    int32_t rank = comm_rank(world);
    uint32_t random = (uint32_t)rank + 1;

    must(comm_window_create(world, rank == 0 ? BINS * sizeof(int64_t) : 0, NULL, &counts, &request), "window_create");
    must(comm_wait(request, COMM_FOREVER), "window_create");
    for (int i = 0; i < SAMPLES; i++) {
        random = random * 1664525u + 1013904223u;
        must(comm_accumulate(counts, &one, 1, COMM_I64, COMM_SUM, 0, (random >> 28) * sizeof(int64_t), NULL), "accumulate");
    }
    must(comm_window_fence(counts, &request), "fence"); /* all updates before it are visible after it */
    must(comm_wait(request, COMM_FOREVER), "fence");
    must(comm_get(counts, bins, BINS, COMM_I64, 0, 0, &request), "get");
    must(comm_wait(request, COMM_FOREVER), "get");
    for (int i = 0; i < BINS; i++)
        total += bins[i];
    must(comm_window_free(counts), "window_free");
    return total;
}

/* One copy per host, with its pages spread over the memory nodes. One rank fills it, all read it. */
static void share_table(struct comm_communicator *host)
{
    struct comm_window *table;
    struct comm_request request;
    void *at;
    size_t bytes = comm_rank(host) == 0 ? TABLE * sizeof(double) : 0;
    const struct comm_window_options options = {.size = sizeof options, .placement = COMM_PLACEMENT_INTERLEAVE};

    must(comm_window_create(host, bytes, &options, &table, &request), "window_create");
    must(comm_wait(request, COMM_FOREVER), "window_create");
    must(comm_window_pointer(table, 0, &at, NULL), "window_pointer"); /* needs shared memory: not over tcp */
    double *value = at;
    for (int i = 0; comm_rank(host) == 0 && i < TABLE; i++)
        value[i] = 0.5 * i;
    must(comm_window_fence(table, &request), "fence");
    must(comm_wait(request, COMM_FOREVER), "fence");
    expect(value[TABLE - 1] == 0.5 * (TABLE - 1), "the table as the first rank of the host filled it");
    must(comm_window_free(table), "window_free");
}

int main(void)
{
    struct comm_communicator *world, *host;
    must(comm_open(NULL, &world), "open");
    must(comm_split_place(world, COMM_PLACE_NODE, &host, NULL), "split_place");
    must(comm_sync(world, COMM_FOREVER), "split_place");

    int64_t total = count_all(world);
    expect(total == (int64_t)comm_size(world) * SAMPLES, "every sample counted once");
    share_table(host);
    if (comm_rank(world) == 0)
        printf("window: ranks=%d counted=%lld\n", comm_size(world), (long long)total);
    must(comm_close(host, COMM_DEFAULT_TIMEOUT), "close");
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
