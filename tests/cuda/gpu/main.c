/* comm-gpu runs the suite on this machine's device and prints the costs in one table. Without a device it exits with 77 and names the
 * missing piece. */
#define _GNU_SOURCE
#include "suite.h"

#include "selection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 9 };
#ifdef COMM_PLAYED
#    include "mock.h"
static size_t slow_words;
static int runs;
static void begin(void)
{
    slow_words = selected(1024, 1024, 128);
    runs = (int)selected(RUNS, RUNS, 1);
    mock_reset(&(struct mock_options){.seed = 1, .queues = 32}); /* a queue per stream: in one check a stream must pass a blocked one */
    mock_run(true);
}
static void end(void)
{
    mock_run(false);
    if (mock_live()) {
        mock_list_live();
        exit(1);
    }
}
#else
static const size_t slow_words = 16u << 20; /* 64 MiB, 20 times: about a millisecond */
static const int runs = RUNS;
static void begin(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* a stream that waits for the host may block streams on its connection */
}
static void end(void) {}
#endif

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return 77;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(void)
{
    struct nccl_calls nccl;
    struct suite s;
    char why[512] = "", device[128] = "";
    int version;

    begin();
    if (!bench_load(why, sizeof why))
        return skip(why);
    if (cuda_load_nccl(&cuda_source_system, &nccl, &version, why, sizeof why) != COMM_OK)
        return skip(why);
    suite_open(&s, slow_words);
    s.bench.calls->cuDeviceGetName(device, sizeof device, 0);
    printf("%s, NCCL %d.%d.%d\n", device, version / 10000, version / 100 % 100, version % 100);
    for (int i = 0; i < suite_check_count; i++) {
        printf("  %-62s", suite_checks[i].name);
        fflush(stdout);
        suite_checks[i].run(&s);
        printf("ok\n");
    }
    for (int i = 0; i < suite_figure_count; i++) {
        double run[RUNS];
        for (int k = 0; k < runs; k++)
            run[k] = suite_figures[i].measure(&s);
        qsort(run, (size_t)runs, sizeof *run, compare);
        printf("  %-62s%8.2f %s (%.2f to %.2f)\n", suite_figures[i].name, run[runs / 2], suite_figures[i].unit, run[0], run[runs - 1]);
    }
    suite_close(&s);
    end();
    return 0;
}
