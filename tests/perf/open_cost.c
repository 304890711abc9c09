/*
 * The cost for a rank to open a world over tcp: time, descriptors, memory. Also the time of the first message on a link that is created for
 * it. `comm-run -n 64 --backend tcp bin/open_cost`, with COMM_TCP_LINKS=all and then with =needed.
 */
#define _GNU_SOURCE
#include <commstream/comm.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPEN, DESCRIPTORS, RESIDENT, FIRST, NEXT, CLOSE, FIGURES };
static const char *const names[FIGURES] = {"open us", "descriptors", "resident KiB", "first message us", "next one us", "close us"};

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void must(enum comm_result result, const char *what)
{
    if (result == COMM_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, comm_result_name(result));
    exit(1);
}

static int64_t descriptors(void)
{
    int64_t count = 0;

    for (int fd = 0; fd < 65536; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int64_t resident_kib(void)
{
    char line[128];
    long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");

    while (status && fgets(line, sizeof line, status) && sscanf(line, "VmRSS: %lld", &kib) != 1)
        ;
    if (status)
        fclose(status);
    return kib;
}

static void barrier(struct comm_communicator *c)
{
    struct comm_request request;

    must(comm_barrier(c, &request), "barrier");
    must(comm_wait(request, COMM_FOREVER), "barrier");
}

/* A round trip between ranks a and b. */
static int64_t round_trip(struct comm_communicator *c, int32_t a, int32_t b)
{
    struct comm_request request;
    char byte = 0;
    int64_t began = now_us();

    for (int way = 0; way < 2; way++) {
        int32_t from = way ? b : a, to = way ? a : b;
        if (comm_rank(c) == from) {
            must(comm_send(c, &byte, 1, COMM_U8, to, 1, &request), "send");
            must(comm_wait(request, COMM_FOREVER), "send");
        } else if (comm_rank(c) == to) {
            must(comm_recv(c, &byte, 1, COMM_U8, from, 1, NULL, &request), "receive");
            must(comm_wait(request, COMM_FOREVER), "receive");
        }
    }
    return now_us() - began;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Prints the median and the maximum over all ranks. */
static void tell(struct comm_communicator *c, const int64_t mine[FIGURES])
{
    size_t ranks = (size_t)comm_size(c);
    int64_t *all = calloc(ranks * FIGURES, sizeof *all), *one = calloc(ranks, sizeof *one);
    struct comm_request request;

    if (!all || !one)
        exit(1);
    must(comm_gather(c, mine, all, FIGURES, COMM_I64, 0, &request), "gather");
    must(comm_wait(request, COMM_FOREVER), "gather");
    for (int f = 0; f < CLOSE && comm_rank(c) == 0; f++) {
        size_t from = 0;
        for (size_t r = 0; r < ranks; r++)
            one[r] = all[r * FIGURES + (size_t)f];
        qsort(one, ranks, sizeof *one, ascending);
        while (from + 1 < ranks && one[from] < 0) /* ranks that did not measure it */
            from++;
        printf("%-18s median %8lld   most %8lld\n", names[f], (long long)one[from + (ranks - from) / 2], (long long)one[ranks - 1]);
    }
    free(all);
    free(one);
}

int main(void)
{
    struct comm_communicator *world = NULL;
    int64_t mine[FIGURES] = {0}, began = now_us();

    must(comm_open(NULL, &world), "open");
    mine[OPEN] = now_us() - began;
    barrier(world);
    mine[DESCRIPTORS] = descriptors();
    mine[RESIDENT] = resident_kib();
    mine[FIRST] = mine[NEXT] = -1;
    for (int32_t low = 0; low < 8; low++) { /* pair by pair; the higher and the lower rank begin in turn */
        int32_t high = comm_size(world) / 2 + 3 + low, a = low % 2 ? low : high, b = low % 2 ? high : low;
        barrier(world);
        if (high >= comm_size(world) || (comm_rank(world) != a && comm_rank(world) != b))
            continue;
        mine[FIRST] = round_trip(world, a, b);
        for (int i = 0; i < 20; i++)
            mine[NEXT] = round_trip(world, a, b);
    }
    barrier(world);
    tell(world, mine);
    bool first = comm_rank(world) == 0;
    began = now_us();
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    if (first)
        printf("%-18s rank 0 %8lld\n", names[CLOSE], (long long)(now_us() - began));
    return 0;
}
