/* comm-gpu-suite runs the suite on this machine's device and prints the costs in one table. Without a device it exits with 77 and names the
 * missing piece. */
#define _GNU_SOURCE
#include "played.h"
#include "suite.h"

#include "selection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 9, FIGURES = 16 };

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return 77;
}

/* Rounds of all figures are interleaved, so that what is compared saw the same machine. */
static void print_figures(struct suite *s, int runs)
{
    static double run[FIGURES][RUNS];

    if (suite_figure_count > FIGURES)
        suite_die(__FILE__, __LINE__, "too many figures");
    for (int k = 0; k < runs; k++)
        for (int i = 0; i < suite_figure_count; i++)
            run[i][k] = suite_figures[i].measure(s);
    for (int i = 0; i < suite_figure_count; i++) {
        double median = suite_median(run[i], runs);
        printf("  %-62s%8.2f %s (%.2f to %.2f)\n", suite_figures[i].name, median, suite_figures[i].unit, run[i][0], run[i][runs - 1]);
    }
}

int main(void)
{
    struct nccl_calls nccl;
    struct suite s;
    char why[512] = "", device[128] = "";
    size_t slow_words = PLAYED ? selected(1024, 1024, 128) : 16u << 20; /* 64 MiB, 20 times: about a millisecond */
    int version, runs = PLAYED ? (int)selected(RUNS, RUNS, 1) : RUNS;

    played_begin(1);
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
    print_figures(&s, runs);
    suite_close(&s);
    played_end();
    return 0;
}
