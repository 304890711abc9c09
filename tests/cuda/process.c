#include "process.h"

#include "../conform/rig.h"
#include "clean.h"

struct rank my;

void make_buffers(int32_t rank)
{
    bench_open(&my.bench, rank);
    my.stream = bench_stream(&my.bench);
    my.in = bench_memory(&my.bench, WORDS * RANKS_MOST);
    my.out = bench_memory(&my.bench, WORDS * RANKS_MOST);
}

void drop_buffers(void)
{
    bench_free(&my.bench, my.in);
    bench_free(&my.bench, my.out);
    bench_drop_stream(&my.bench, my.stream);
    bench_close(&my.bench);
    clean_end();
}

void expect(struct comm_request q, size_t at, uint32_t want)
{
    uint32_t got[WORDS * RANKS_MOST];

    MUST(comm_wait(q, RIG_PATIENCE));
    bench_read(&my.bench, my.stream, got, my.out, WORDS * RANKS_MOST);
    for (size_t i = 0; i < WORDS; i++)
        EQUAL(got[at + i], want);
}
