/* A window: memory of all ranks that each can read and update without its owner taking part. Here it is one histogram on rank 0 in which
 * all ranks count, and a table that one rank fills once for all ranks of its host. */
#include "must.h"

enum { BINS = 16, SAMPLES = 10000, TABLE = 1000 };

int main(void)
{
    struct comm_communicator *world;
    struct comm_window *counts, *table;
    struct comm_request request;
    void *at;
    must(comm_open(NULL, &world), "open");
    int32_t rank = comm_rank(world), ranks = comm_size(world);

    /* Rank 0 provides the memory, the others none. */
    must(comm_window_create(world, rank == 0 ? BINS * sizeof(int64_t) : 0, NULL, &counts, &request), "window_create");
    must(comm_wait(request, COMM_FOREVER), "window_create");
    const int64_t one = 1;
    uint32_t random = (uint32_t)rank + 1;
    for (int i = 0; i < SAMPLES; i++) {
        random = random * 1664525u + 1013904223u;
        must(comm_accumulate(counts, &one, 1, COMM_I64, COMM_SUM, 0, (random >> 28) * sizeof(int64_t), NULL), "accumulate");
    }
    must(comm_window_fence(counts, &request), "fence"); /* all updates before it are visible after it */
    must(comm_wait(request, COMM_FOREVER), "fence");
    must(comm_window_pointer(counts, 0, &at, NULL), "window_pointer");
    int64_t total = 0;
    for (int i = 0; i < BINS; i++)
        total += ((const int64_t *)at)[i];
    expect(total == (int64_t)ranks * SAMPLES, "every sample counted once");

    /* One copy per host, with its pages spread over the memory nodes. One rank fills it, all read it. */
    must(comm_window_create(
             world, rank == 0 ? TABLE * sizeof(double) : 0,
             &(struct comm_window_options){.size = sizeof(struct comm_window_options), .placement = COMM_PLACEMENT_INTERLEAVE}, &table,
             &request),
         "window_create");
    must(comm_wait(request, COMM_FOREVER), "window_create");
    must(comm_window_pointer(table, 0, &at, NULL), "window_pointer");
    double *value = at;
    for (int i = 0; rank == 0 && i < TABLE; i++)
        value[i] = 0.5 * i;
    must(comm_window_fence(table, &request), "fence");
    must(comm_wait(request, COMM_FOREVER), "fence");
    expect(value[TABLE - 1] == 0.5 * (TABLE - 1), "the table as rank 0 filled it");

    must(comm_window_free(table), "window_free");
    must(comm_window_free(counts), "window_free");
    if (rank == 0)
        printf("window: ranks=%d counted=%lld\n", ranks, (long long)total);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
