/* The command line of comm-perf. */
#define _GNU_SOURCE
#include "tools/perf_fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const mode_names[] = {"request", "isolated", "aligned", "pipelined", "plan", "overlap"};

static const char usage[] =
    "usage: comm-perf COLLECTIVE [options]      measures one call; run it under comm-run or another launcher\n"
    "  COLLECTIVE         %s\n"
    "  --backend NAME     auto local shm tcp shm+tcp mpi shm+mpi nccl cuda (auto)\n"
    "  --min, --max SIZE  bytes that each rank gives, first and last: 8, 64K, 16M, 1G (8 and 16M; sendrecv, send: 64 and 64)\n"
    "  --factor N         from one size to the next (4)\n"
    "  --type TYPE        %s (f32)\n"
    "  --op OP            %s (sum)\n"
    "  --mode MODE        blocking request isolated aligned pipelined plan overlap (request)\n"
    "                     request, blocking: a call and its wait\n"
    "                     isolated: the same after a barrier, whose time is not counted, as the OSU benchmarks do\n"
    "                     aligned: all ranks, which must be on one host, begin each call at the same time of the clock\n"
    "                     pipelined: 16 calls, then one wait for all; time per call\n"
    "                     plan: the call is recorded once, then started and waited for\n"
    "                     overlap: computes between call and wait; prints the hidden part of the call's time\n"
    "  --touch            the caller writes every input and reads every output; the time of that alone is subtracted\n"
    "  --memory MEMORY    malloc comm device (malloc): where the buffers come from; comm is comm_mem_alloc, device is the memory of the\n"
    "                     rank's CUDA device; backend nccl takes comm and device\n"
    "  --check            verify every result before timing\n"
    "  --format FORMAT    table csv json (table); json has one object per line\n"
    "or: comm-perf A,B+C*ranks,D/ranks [options]              compares A with calls that do the same, by the median of ratios\n"
    "                     B+C: first B, then C; *ranks, /ranks: the bytes times or divided by the number of ranks.\n"
    "                     Only --mode request, without --touch\n"
    "or: comm-perf --fit | --fit-try | --fit-check FILE       measures the parameters of this machine for COMM_MACHINE, or checks\n"
    "                     them; comm-perf --fit alone lists its options\n"
    "or: comm-perf --version | --help\n";

static void reject(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "comm-perf: %s is '%s'; expected %s\n", option, value, expected);
    exit(2);
}

static size_t parse_size(const char *option, const char *text)
{
    static const char units[] = "kKmMgG";
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? (unsigned)((unit - units) / 2 + 1) * 10 : 0;
    if (text[0] < '0' || text[0] > '9' || (*end && (!unit || end[1])) || value == 0 || value > (SIZE_MAX >> 1) >> shift)
        reject(option, text, "a number above 0, like 8, 64K, 16M or 1G");
    return (size_t)value << shift;
}

static void parse_mode(struct perf *perf, const char *value)
{
    perf->mode_name = value;
    for (size_t i = 0; i < sizeof mode_names / sizeof mode_names[0]; i++) {
        if (!strcmp(value, mode_names[i])) {
            perf->mode = (enum perf_mode)i;
            return;
        }
    }
    if (strcmp(value, "blocking"))
        reject("--mode", value, "blocking, request, isolated, aligned, pipelined, plan or overlap");
    perf->mode = MODE_REQUEST;
}

static void parse_format(struct perf *perf, const char *value)
{
    static const char *const formats[] = {"table", "csv", "json"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (!strcmp(value, formats[i])) {
            perf->format = (enum perf_format)i;
            return;
        }
    }
    reject("--format", value, "table, csv or json");
}

static void parse_memory(struct perf *perf, const char *value)
{
    for (enum perf_memory memory = PERF_MALLOC; memory <= PERF_DEVICE; memory++) {
        if (!strcmp(value, perf_memory_name(memory))) {
            perf->memory = memory;
            return;
        }
    }
    reject("--memory", value, "malloc, comm or device");
}

static void parse_value(struct perf *perf, const char *option, const char *value)
{
    if (!strcmp(option, "--backend")) {
        perf->backend = value;
    } else if (!strcmp(option, "--min")) {
        perf->min = parse_size(option, value);
    } else if (!strcmp(option, "--max")) {
        perf->max = parse_size(option, value);
    } else if (!strcmp(option, "--factor")) {
        perf->factor = parse_size(option, value);
        if (perf->factor < 2)
            reject(option, value, "2 or more");
    } else if (!strcmp(option, "--type")) {
        if (!(perf->type = perf_type_find(value)))
            reject(option, value, perf_type_names());
    } else if (!strcmp(option, "--op")) {
        if (!(perf->op = perf_op_find(value)))
            reject(option, value, perf_op_names());
        perf->op_name = value;
    } else if (!strcmp(option, "--mode")) {
        parse_mode(perf, value);
    } else if (!strcmp(option, "--format")) {
        parse_format(perf, value);
    } else if (!strcmp(option, "--memory")) {
        parse_memory(perf, value);
    } else {
        fprintf(stderr, "comm-perf: unknown option '%s'; comm-perf --help lists them\n", option);
        exit(2);
    }
}

static void parse_collective(struct perf *perf, const char *name)
{
    if (perf->collective) {
        fprintf(stderr, "comm-perf: a second collective '%s' behind '%s'; expected one\n", name, perf->collective->name);
        exit(2);
    }
    if (perf_is_comparison(name)) {
        perf_compare_check(name);
        perf->sides = name;
        name = "allreduce"; /* a placeholder, since the checks below need a collective */
    }
    perf->collective = perf_collective_find(name);
    if (!perf->collective)
        reject("COLLECTIVE", name, perf_collective_names());
}

void perf_parse(struct perf *perf, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            printf(usage, perf_collective_names(), perf_type_names(), perf_op_names());
            exit(perf_end(0));
        } else if (!strcmp(argv[i], "--version")) {
            uint32_t version = comm_version();
            printf("comm-perf (commstream) %u.%u.%u\n", version >> 16, version >> 8 & 255, version & 255);
            exit(perf_end(0));
        } else if (!strcmp(argv[i], "--touch")) {
            perf->touch = true;
        } else if (!strcmp(argv[i], "--check")) {
            perf->check = true;
        } else if (argv[i][0] != '-') {
            parse_collective(perf, argv[i]);
        } else if (i + 1 < argc) {
            parse_value(perf, argv[i], argv[i + 1]);
            i++;
        } else {
            fprintf(stderr, "comm-perf: option '%s' is unknown or lacks its value; comm-perf --help lists them\n", argv[i]);
            exit(2);
        }
    }
    if (!perf->collective) {
        fprintf(stderr, usage, perf_collective_names(), perf_type_names(), perf_op_names());
        exit(2);
    }
    bool messages = !perf->collective->is_work;
    perf->min = perf->min ? perf->min : messages ? 64 : 8;
    perf->max = perf->max ? perf->max : messages ? perf->min : 16u << 20;
    if (perf->max < perf->min) {
        fprintf(stderr, "comm-perf: --max is %zu; expected at least --min, which is %zu\n", perf->max, perf->min);
        exit(2);
    }
    if (perf->sides && (perf->mode != MODE_REQUEST || perf->touch)) {
        fprintf(stderr, "comm-perf: '%s' is a comparison; expected --mode request and no --touch\n", perf->sides);
        exit(2);
    }
    if (perf->touch && perf->memory == PERF_DEVICE) {
        fprintf(stderr, "comm-perf: --touch reads and writes in the host's memory; expected --memory malloc or comm\n");
        exit(2);
    }
    if (!perf_op_fits(perf->op, perf->type)) {
        fprintf(stderr, "comm-perf: --op is '%s' with --type %s; expected no avg of integers, and no bits of fractions\n", perf->op_name,
                perf->type->name);
        exit(2);
    }
}
