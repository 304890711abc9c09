/*
 * The parameters of a machine: their names, their file, and the values if nothing was measured. The file is text with
 * one line per parameter, "key value unit", in any order; # begins a comment. Every key must occur once: a file that
 * lacks one is of another version.
 */
#include "model/cost_rate.h"

#include "base/format.h"

#include <string.h>

#define FIGURE(field) .offset = (uint32_t)offsetof(struct cost_machine, field)
#define KNOTS(name, what)                                                                                                                  \
    {#name ".32K", "ps/B", FIGURE(name[0]), what ", where a rank's buffers have 32 KiB together"},                                         \
        {#name ".256K", "ps/B", FIGURE(name[1]), "where they have 256 KiB"}, {#name ".2M", "ps/B", FIGURE(name[2]), "2 MiB"},              \
    {                                                                                                                                      \
#        name ".16M", "ps/B", FIGURE(name[3]), "16 MiB"                                                                                    \
    }

const struct cost_figure cost_figures[] = {
    {"cpus", "cpus", FIGURE(cpus), "of a host; more ranks than that take turns"},
    {"call", "ns", FIGURE(call), "a call through the queue and the interpreter, without its steps"},
    {"express", "ns", FIGURE(fastpath), "a call that is served by hand"},
    {"step", "ns", FIGURE(step), "a step of a lane"},
    {"wake", "ns", FIGURE(wake), "going on with lanes that stood"},
    {"turn", "ns", FIGURE(turn), "getting a CPU, where ranks take turns"},
    {"crowd", "ns", FIGURE(crowd), "more for a call, where ranks take turns"},
    {"reduce.call", "ns", FIGURE(reduce_call), "a reduction or copy, without its bytes"},
    {"shm.latency", "ns", FIGURE(shm_latency), "from written to seen by another rank of the host"},
    {"shm.expose", "ns", FIGURE(shm_expose), "overhead of an exposure"},
    {"shm.view", "ns", FIGURE(shm_view), "overhead of a view"},
    {"shm.place", "ns", FIGURE(shm_place), "more, where the bytes do not fit in a line"},
    {"shm.read", "ns", FIGURE(shm_read), "writing to a line that another rank has read since"},
    {"shm.dirtied", "ns", FIGURE(shm_dirtied),
     "writing to one that it has read and then written to; if this is less, ranks write to what they read"},
    {"net.latency", "ns", FIGURE(net_latency), "from card to card"},
    {"net.overhead", "ns", FIGURE(net_overhead), "of a message, for each side's CPU"},
    {"net.gap", "ns", FIGURE(net_gap), "between two messages of a host"},
    {"net.byte", "ps/B", FIGURE(net_byte), "of a host's link"},
    KNOTS(copy, "from the caller's buffer into a place"),
    KNOTS(land, "from a place into the caller's buffer"),
    KNOTS(reduce, "of a reduction, its first input and its result"),
    {"fold", "ps/B", FIGURE(fold), "of each further input, which another rank wrote"},
};
const uint32_t cost_figure_count = sizeof cost_figures / sizeof *cost_figures;
static const char magic[] = "commstream-machine";

const struct cost_machine cost_machine_default = {
    .cpus = 2,
    .call = 150000,
    .fastpath = 90000,
    .step = 5000,
    .wake = 30000,
    .turn = 900000,
    .crowd = 60000,
    .reduce_call = 15000,
    .fold = 40000,
    .shm_latency = 80000,
    .shm_expose = 15000,
    .shm_view = 15000,
    .shm_place = 60000,
    .shm_read = 8000,
    .shm_dirtied = 1000,
    .net_latency = 8000000,
    .net_overhead = 1200000,
    .net_gap = 200000,
    .net_byte = 80000,
    .copy = {30000, 40000, 60000, 90000},
    .land = {40000, 50000, 70000, 100000},
    .reduce = {30000, 40000, 60000, 100000},
};

static uint64_t *field_of(struct cost_machine *machine, const struct cost_figure *figure)
{
    return (uint64_t *)(void *)((char *)machine + figure->offset);
}

/* The factor of a parameter's value: a thousandth of a unit is kept for all except CPUs. */
static uint64_t scale_of(const struct cost_figure *figure)
{
    return base_equal(figure->unit, "cpus") ? 1 : 1000;
}

/* ------------------------------------------------------------------------------------------------------------ reading */
enum { WORDS = 3, WORD_BYTES = 32, VALUE_MOST = 1000000000 };
struct reader {
    struct cost_machine machine;
    uint64_t seen; /* parameters, one bit each */
    uint32_t line;
    bool headed, failed;
    char *text;
    size_t text_bytes;
};

static void complain(struct reader *reader, const char *what, const char *expected, const char *more)
{
    if (!reader->failed)
        base_format(reader->text, reader->text_bytes, "line %u: %s: expected %s%s", reader->line, what, expected, more);
    reader->failed = true;
}

/* Parses "212.5": digits, and at most three after the point; *value is times 1000. */
static bool parse_thousandths(const char *text, uint64_t *value)
{
    uint64_t whole = 0, part = 0, digits = 0;
    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9' && whole <= VALUE_MOST; text++)
        whole = whole * 10 + (uint64_t)(*text - '0');
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9' && digits < 3; text++, digits++)
            part = part * 10 + (uint64_t)(*text - '0');
        if (!digits)
            return false;
        for (; digits < 3; digits++)
            part *= 10;
    }
    *value = whole * 1000 + part;
    return !*text && whole <= VALUE_MOST;
}

/* Cuts a line into words. A fourth word, or one that is too long, makes the count WORDS + 1. The first word is always
 * set, for error texts. */
static uint32_t cut(const char *line, size_t length, char word[WORDS][WORD_BYTES])
{
    uint32_t count = 0;
    for (size_t at = 0; at < length && line[at] != '#';) {
        size_t end = at;
        while (end < length && line[end] != ' ' && line[end] != '\t' && line[end] != '\r' && line[end] != '#')
            end++;
        if (end == at) {
            at++;
            continue;
        }
        if (count == WORDS)
            return WORDS + 1;
        size_t kept = end - at < WORD_BYTES ? end - at : WORD_BYTES - 1;
        memcpy(word[count], line + at, kept);
        word[count++][kept] = 0;
        if (kept < end - at)
            return WORDS + 1;
        at = end;
    }
    return count;
}

static void read_head(struct reader *reader, uint32_t words, char word[WORDS][WORD_BYTES])
{
    uint64_t version;
    if (words != 2 || !base_equal(word[0], magic))
        complain(reader, words ? word[0] : "nothing", "the first line to be ", "commstream-machine 2");
    else if (!base_parse_u64(word[1], &version) || version != COST_MACHINE_VERSION)
        complain(reader, word[1], "version 2 of the file: ", "write it again with comm-perf --fit");
    reader->headed = true;
}

static void read_figure(struct reader *reader, char word[WORDS][WORD_BYTES], uint32_t words)
{
    const struct cost_figure *figure = NULL;
    uint64_t value, bit = 0;
    for (uint32_t i = 0; i < cost_figure_count; i++) {
        if (base_equal(cost_figures[i].key, word[0])) {
            figure = &cost_figures[i];
            bit = UINT64_C(1) << i;
        }
    }
    if (!figure) {
        complain(reader, word[0], "a figure that this library knows, like ", cost_figures[1].key);
    } else if (words != WORDS || !base_equal(word[2], figure->unit)) {
        complain(reader, word[0], "a number, and then its unit: ", figure->unit);
    } else if (!parse_thousandths(word[1], &value) || (scale_of(figure) == 1 && (value % 1000 || !value || value > 65536000))) {
        complain(reader, word[1], scale_of(figure) == 1 ? "a whole number from 1 to 65536" : "a number from 0 to 1000000000",
                 scale_of(figure) == 1 ? "" : " with at most three places behind the point");
    } else if (reader->seen & bit) {
        complain(reader, word[0], "each figure once", "");
    } else {
        reader->seen |= bit;
        *field_of(&reader->machine, figure) = value * scale_of(figure) / 1000;
    }
}

bool cost_machine_parse(const char *file, size_t bytes, struct cost_machine *machine, char *text, size_t text_bytes)
{
    struct reader reader = {.machine = {0}, .text = text, .text_bytes = text_bytes};
    char word[WORDS][WORD_BYTES];
    _Static_assert(sizeof cost_figures / sizeof *cost_figures <= 64, "a bit for each figure");
    for (size_t at = 0; at < bytes && !reader.failed;) {
        size_t end = at;
        while (end < bytes && file[end] != '\n')
            end++;
        reader.line++;
        uint32_t words = cut(file + at, end - at, word);
        at = end + 1;
        if (!words)
            continue;
        if (!reader.headed)
            read_head(&reader, words, word);
        else
            read_figure(&reader, word, words);
    }
    for (uint32_t i = 0; i < cost_figure_count && !reader.failed; i++) {
        if (!(reader.seen >> i & 1))
            complain(&reader, "end of the file", "also ", reader.headed ? cost_figures[i].key : magic);
    }
    if (!reader.failed)
        *machine = reader.machine;
    return !reader.failed;
}

size_t cost_machine_print(const struct cost_machine *machine, char *to, size_t room)
{
    size_t at = 0;
    if (room)
        to[0] = 0;
    base_append(to, room, &at, "%s %d\n", magic, COST_MACHINE_VERSION);
    for (uint32_t i = 0; i < cost_figure_count; i++) {
        const struct cost_figure *figure = &cost_figures[i];
        struct cost_machine copy = *machine;
        uint64_t value = *field_of(&copy, figure) * 1000 / scale_of(figure);
        base_append(to, room, &at, "%s %llu", figure->key, (unsigned long long)(value / 1000));
        if (value % 1000)
            base_append(to, room, &at, ".%03llu", (unsigned long long)(value % 1000));
        base_append(to, room, &at, " %s # %s\n", figure->unit, figure->help);
    }
    return at;
}

/* ------------------------------------------------------------------------------------------------------------ rates of a call */
/* log2 of a number in 1/256ths, linear in the mantissa: whole numbers, so the result is the same everywhere. */
static uint64_t log_of(uint64_t value)
{
    uint32_t bits = 63u - (uint32_t)__builtin_clzll(value | 1);
    uint64_t mantissa = bits >= 8 ? value >> (bits - 8) : value << (8 - bits);
    return (uint64_t)bits * 256 + mantissa - 256;
}

static uint64_t rate_at(const uint64_t *cycle, uint64_t footprint)
{
    uint64_t at = log_of(footprint), first = log_of(COST_KNOT_FIRST), each = log_of(COST_KNOT_FACTOR);
    if (at <= first)
        return cycle[0];
    uint64_t k = (at - first) / each, part = (at - first) % each;
    if (k >= COST_KNOTS - 1)
        return cycle[COST_KNOTS - 1];
    return (cycle[k] * (each - part) + cycle[k + 1] * part) / each;
}

/* Bytes of all buffers of one rank. */
static uint64_t footprint_of(const struct cost_case *what)
{
    uint64_t block = what->n * what->raw, all = block * (uint64_t)what->size;
    switch (what->collective) {
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_BROADCAST_BYTES:
        return block;
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_GROUP:
    case COLLECTIVE_SCAN:
    case COLLECTIVE_EXSCAN:
    case COLLECTIVE_BARRIER:
        return 2 * block;
    default: /* gathers and scatters: one block on one side, all blocks on the other */
        return block + all;
    }
}

void cost_rate_of(struct cost_rate *rate, const struct cost_case *what, const struct comm_program *program)
{
    const struct cost_machine *m = what->machine;
    uint64_t ranks = (uint64_t)(what->host_ranks && what->host_ranks < what->size ? what->host_ranks : what->size);
    /* Ranks that share a CPU share its caches. */
    uint64_t turns = (ranks + m->cpus - 1) / m->cpus, footprint = footprint_of(what) * turns;
    *rate = (struct cost_rate){
        .machine = m,
        .cut = run_cut_of(program, what->caps, what->size, what->n, what->raw, what->partial),
        .copy = rate_at(m->copy, footprint),
        .land = rate_at(m->land, footprint),
        .reduce = rate_at(m->reduce, footprint),
        .n = what->n,
        .raw = what->raw,
        .partial = what->partial,
        .inline_max = what->caps->inline_max,
        .size = what->size,
        .host_ranks = what->host_ranks && what->host_ranks < what->size ? what->host_ranks : 0,
        .hosts = what->hosts,
    };
    rate->turns = turns;
    rate->call = (what->fastpath ? m->fastpath : m->call) + (turns > 1 ? m->crowd : 0);
}
