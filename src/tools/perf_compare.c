/*
 * comm-perf A,B+C*ranks,..: compares a collective with others that together have the same effect. A side is one call, or several calls that
 * are made and waited for in turn, as a program would that replaced the one call by the others.
 *
 * Batches of all sides alternate in one process, with equally many calls on the same buffers, so that a disturbance of some milliseconds
 * affects all sides alike. The result is the ratio of two batches of the same round, so rounds may differ from each other. A batch begins
 * with untimed calls, since the previous side has filled the caches with its own data.
 */
#define _GNU_SOURCE
#include "tools/perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES = 6, PARTS = 3, ROUNDS_LEAST = 11, ROUNDS_MOST = 61, CALLS_LEAST = 4, CALLS_MOST = 2000, LEAD = 4 };
static const double BATCH_SECONDS = 0.001, SIZE_SECONDS = 0.3;

struct part {
    struct perf perf;
    enum { AS_GIVEN, TIMES_RANKS, BY_RANKS } bytes;
};
struct side {
    char name[64], algorithms[64];
    struct part part[PARTS];
    int parts;
    double us[ROUNDS_MOST], ratio[ROUNDS_MOST];
};
struct comparison {
    struct side side[SIDES];
    int sides, rounds;
    size_t calls; /* in a batch */
};

/* ------------------------------------------------------------------------------------------------------------ parsing */
bool perf_is_comparison(const char *text)
{
    return strpbrk(text, ",+*/") != NULL;
}

static void reject(const char *sides, const char *expected)
{
    fprintf(stderr, "comm-perf: '%s' is no comparison; expected %s\n", sides, expected);
    exit(2);
}

static void parse_part(struct part *part, char *name, const char *sides)
{
    char *scale = strpbrk(name, "*/");
    part->bytes = !scale ? AS_GIVEN : *scale == '*' ? TIMES_RANKS : BY_RANKS;
    if (scale && strcmp(scale + 1, "ranks"))
        reject(sides, "*ranks or /ranks");
    if (scale)
        *scale = 0;
    part->perf.collective = perf_collective_find(name);
    if (!part->perf.collective || !part->perf.collective->is_work)
        reject(sides, perf_collective_names());
}

static void parse_side(struct side *side, const char *sides)
{
    char text[sizeof side->name], *next = text;
    memcpy(text, side->name, sizeof text);
    for (char *name = strsep(&next, "+"); name; name = strsep(&next, "+")) {
        if (side->parts == PARTS)
            reject(sides, "at most 3 calls on a side");
        parse_part(&side->part[side->parts++], name, sides);
    }
}

static void parse(struct comparison *all, const char *sides)
{
    for (const char *at = sides; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (all->sides == SIDES || length >= sizeof all->side[0].name)
            reject(sides, "at most 6 sides of at most 63 letters");
        struct side *side = &all->side[all->sides++];
        memcpy(side->name, at, length);
        parse_side(side, sides);
        at += length;
    }
    if (all->sides < 2)
        reject(sides, "two sides or more, with a comma between them");
}

static struct comparison *make(const char *sides)
{
    struct comparison *all = calloc(1, sizeof *all);
    if (!all) {
        fprintf(stderr, "comm-perf: no memory for %zu bytes\n", sizeof *all);
        exit(1);
    }
    parse(all, sides);
    return all;
}

void perf_compare_check(const char *sides)
{
    free(make(sides));
}

/* ------------------------------------------------------------------------------------------------------------ one size */
static size_t part_bytes(const struct part *part, size_t bytes, size_t ranks)
{
    return part->bytes == TIMES_RANKS ? bytes * ranks : part->bytes == BY_RANKS ? bytes / ranks : bytes;
}

/* All parts use the same memory, which is as long as the longest needs. */
static void open_size(struct comparison *all, struct perf *asked, size_t bytes)
{
    size_t in = 1, out = 1;
    for (int s = 0; s < all->sides; s++) {
        for (int p = 0; p < all->side[s].parts; p++) {
            struct part *part = &all->side[s].part[p];
            const struct perf_collective *collective = part->perf.collective;
            part->perf = *asked;
            part->perf.collective = collective;
            perf_set_size(&part->perf, part_bytes(part, bytes, (size_t)asked->ranks));
            size_t part_in = part->perf.slots * part->perf.in_bytes, part_out = part->perf.slots * part->perf.out_bytes;
            in = part_in > in ? part_in : in;
            out = part_out > out ? part_out : out;
        }
    }
    asked->in = perf_take_buffers(asked, in);
    asked->out = perf_take_buffers(asked, out);
    perf_zero_buffer(asked, asked->in, in);
    perf_zero_buffer(asked, asked->out, out);
    for (int s = 0; s < all->sides; s++) {
        for (int p = 0; p < all->side[s].parts; p++) {
            all->side[s].part[p].perf.in = asked->in;
            all->side[s].part[p].perf.out = asked->out;
        }
    }
}

static void close_size(struct comparison *all, struct perf *asked)
{
    for (int s = 0; s < all->sides; s++)
        for (int p = 0; p < all->side[s].parts; p++)
            free(all->side[s].part[p].perf.counts);
    perf_give_buffers(asked, asked->in);
    perf_give_buffers(asked, asked->out);
}

static void call(const struct perf *perf, size_t number, struct comm_request *req)
{
    perf_start(perf, number, req);
    perf_must(perf, comm_wait(*req, COMM_FOREVER), perf->collective->name);
}

/* Runs once with the inputs that comm-perf gives each collective, to check the result. Later runs use whatever data is there. */
static void try_once(struct side *side, size_t bytes)
{
    side->algorithms[0] = 0;
    for (int p = 0; p < side->parts; p++) {
        struct comm_request req;
        struct perf *perf = &side->part[p].perf;
        size_t length = strlen(side->algorithms);
        perf_fill(perf->type, perf->op, perf->rank, perf_buffers_at(perf, 0).in, perf->n);
        call(perf, 0, &req);
        perf_check(perf, 0, part_bytes(&side->part[p], bytes, (size_t)perf->ranks));
        perf_ask_algorithm(perf, req);
        snprintf(side->algorithms + length, sizeof side->algorithms - length, "%s%s", p ? "+" : "", perf->algorithm);
    }
}

static void run(const struct side *side, size_t calls)
{
    struct comm_request req;
    for (size_t i = 0; i < calls; i++)
        for (int p = 0; p < side->parts; p++)
            call(&side->part[p].perf, i, &req);
}

/* Seconds per call, on the slowest rank. */
static double batch(const struct perf *asked, const struct side *side, size_t calls)
{
    run(side, calls / LEAD + 1);
    perf_barrier(asked);
    double begin = perf_now();
    run(side, calls);
    return perf_slowest(asked, (perf_now() - begin) / (double)calls);
}

/* As many calls as the slowest side makes in the time of a batch. The times compared here and below are the same on all ranks. */
static size_t calls_for(const struct perf *asked, const struct comparison *all)
{
    double slowest = 0;
    for (int s = 0; s < all->sides; s++) {
        double seconds = batch(asked, &all->side[s], CALLS_LEAST);
        slowest = seconds > slowest ? seconds : slowest;
    }
    size_t calls = (size_t)(BATCH_SECONDS / (slowest + 1e-9));
    return calls < CALLS_LEAST ? CALLS_LEAST : calls > CALLS_MOST ? CALLS_MOST : calls;
}

/* Each round begins with another side. */
static double round_of(const struct perf *asked, struct comparison *all)
{
    int number = all->rounds++;
    double sum = 0;
    for (int i = 0; i < all->sides; i++) {
        struct side *side = &all->side[(i + number) % all->sides];
        double seconds = batch(asked, side, all->calls);
        side->us[number] = seconds * 1e6;
        sum += seconds * (double)all->calls;
    }
    for (int s = 0; s < all->sides; s++)
        all->side[s].ratio[number] = all->side[0].us[number] / all->side[s].us[number];
    return sum;
}

/* ------------------------------------------------------------------------------------------------------------ results */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_header(const struct perf *asked)
{
    if (asked->format == FORMAT_CSV)
        printf("first,side,backend,ranks,type,bytes,median_us,ratio,quarter,three_quarters,rounds,algorithm\n");
    else if (asked->format == FORMAT_TABLE)
        printf("# %s over %s, %d ranks, %s; ratio: the first's time to that of this side, its median and quarters\n"
               "%12s %11s %7s %7s %7s  %s\n",
               asked->sides, asked->backend_name, asked->ranks, asked->type->name, "bytes", "median us", "ratio", "1/4", "3/4", "side");
}

static void print_side(const struct perf *asked, const struct comparison *all, struct side *side, size_t bytes)
{
    size_t rounds = (size_t)all->rounds;
    qsort(side->us, rounds, sizeof *side->us, by_value);
    qsort(side->ratio, rounds, sizeof *side->ratio, by_value);
    double us = side->us[rounds / 2], ratio = side->ratio[rounds / 2];
    double quarter = side->ratio[rounds / 4], three = side->ratio[rounds * 3 / 4];
    if (asked->format == FORMAT_JSON)
        printf("{\"first\":\"%s\",\"side\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,\"type\":\"%s\",\"bytes\":%zu,\"median_us\":%.3f,"
               "\"ratio\":%.3f,\"quarter\":%.3f,\"three_quarters\":%.3f,\"rounds\":%d,\"algorithm\":\"%s\"}\n",
               all->side[0].name, side->name, asked->backend_name, asked->ranks, asked->type->name, bytes, us, ratio, quarter, three,
               all->rounds, side->algorithms);
    else if (asked->format == FORMAT_CSV)
        printf("%s,%s,%s,%d,%s,%zu,%.3f,%.3f,%.3f,%.3f,%d,%s\n", all->side[0].name, side->name, asked->backend_name, asked->ranks,
               asked->type->name, bytes, us, ratio, quarter, three, all->rounds, side->algorithms);
    else
        printf("%12zu %11.3f %7.2f %7.2f %7.2f  %s: %s\n", bytes, us, ratio, quarter, three, side->name, side->algorithms);
}

static void compare_size(struct comparison *all, struct perf *asked, size_t bytes)
{
    double spent = 0;
    open_size(all, asked, bytes);
    for (int s = 0; s < all->sides; s++)
        try_once(&all->side[s], bytes);
    all->calls = calls_for(asked, all);
    for (all->rounds = 0; all->rounds < ROUNDS_LEAST || (spent < SIZE_SECONDS && all->rounds < ROUNDS_MOST);)
        spent += round_of(asked, all);
    for (int s = 0; s < all->sides && asked->rank == 0; s++)
        print_side(asked, all, &all->side[s], bytes);
    fflush(stdout);
    close_size(all, asked);
}

void perf_compare(const struct perf *asked)
{
    struct perf perf = *asked;
    struct comparison *all = make(perf.sides);
    if (perf.rank == 0)
        print_header(&perf);
    for (size_t bytes = perf.min; bytes <= perf.max; bytes *= perf.factor) {
        compare_size(all, &perf, bytes);
        if (bytes > SIZE_MAX / perf.factor)
            break;
    }
    free(all);
}
