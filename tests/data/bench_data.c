/* Nanoseconds of small reductions, gigabytes per second of large ones (read and written), per instruction set. */
#define _GNU_SOURCE
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ns of one call: the best of several rounds of about a millisecond. */
static double measure(data_reduce_fn *reducer, const struct data_reduce *reduce)
{
    double best = 1e18;
    long calls = 1;
    for (int round = 0; round < 12; round++) {
        const double start = now();
        for (long i = 0; i < calls; i++)
            reducer(reduce);
        const double each = (now() - start) / (double)calls;
        best = each < best ? each : best;
        calls = each > 1e6 ? 1 : (long)(1e6 / each) + 1;
    }
    return best;
}

static void line(enum comm_type type, comm_op op, uint32_t ways, size_t elements, bool nontemporal, void *const *memory)
{
    const void *from[8];
    for (uint32_t i = 0; i < ways; i++)
        from[i] = memory[i];
    const struct data_reduce reduce = {
        .from = from, .ways = ways, .divisor = ways, .to = memory[8], .elements = elements, .final = true, .nontemporal = nontemporal};
    printf("%-5s %-4s %u ways %8zu elements%s", data_type_name(type), data_op_name(op), ways, elements,
           nontemporal ? " stream" : "       ");
    for (enum data_isa isa = DATA_SCALAR; isa <= data_isa_best(); isa++) {
        const double ns = measure(data_reducer(type, op, isa), &reduce);
        printf("  %s %9.1f ns", data_isa_name(isa), ns);
        if (elements >= 1000)
            printf(" %6.1f GB/s", (double)(elements * data_type_bytes(type) * (ways + 1)) / ns);
    }
    puts("");
}

int main(void)
{
    enum { BYTES = 8 << 20 };
    static const enum comm_type types[] = {COMM_F32, COMM_F64, COMM_BF16, COMM_F16, COMM_I32, COMM_I8};
    void *memory[9];
    for (int i = 0; i < 9; i++) {
        memory[i] = aligned_alloc(64, BYTES);
        if (!memory[i])
            return 1;
        for (size_t at = 0; at < BYTES; at++)
            ((char *)memory[i])[at] = (char)(at % 32);
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const size_t bytes = data_type_bytes(types[i]);
        line(types[i], COMM_SUM, 2, 2, false, memory);
        line(types[i], COMM_SUM, 8, 2, false, memory);
        line(types[i], COMM_SUM, 2, 4096 / bytes, false, memory);
        line(types[i], COMM_SUM, 4, 4096 / bytes, false, memory);
        line(types[i], COMM_SUM, 7, 4096 / bytes, false, memory);
        line(types[i], COMM_MAX, 2, 4096 / bytes, false, memory);
        line(types[i], COMM_SUM, 2, BYTES / bytes, false, memory);
        line(types[i], COMM_SUM, 2, BYTES / bytes, true, memory);
    }
    for (int i = 0; i < 9; i++)
        free(memory[i]);
    return 0;
}
