/*
 * Every algorithm by name, over the wire that this run has. The library's own description says which there are and how
 * many ranks they serve, so that a new one is run here unasked. Each is forced in duplicates of worlds. It must do a
 * short call in every world, and a long one too if its blocks are not bounded. Of all shapes it does a selection.
 * Algorithms for several hosts run on one host as well, because a user may name them there; where worlds have several
 * hosts, each of them must have run over these.
 */
#define _GNU_SOURCE
#include "conform/rows.h"

#include "conform/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 256, SHORT = 97, LONG = 40009, LONG_MINIMAL = 5003, FEW_RANKS = 4 };

/* What is called of a collective that has no kind of job. It compares the results; rank 0's request goes to *first. */
struct caller {
    const char *collective;
    void (*call)(struct comm_communicator *const *c, int32_t ranks, struct comm_request *first);
};

/* One algorithm, and what it did in worlds of two and more ranks. */
struct row {
    struct comm_algorithm_info info;
    int kind;                    /* of job; -1: none */
    const struct caller *caller; /* of the others */
    size_t calls, calls_over_hosts, long_calls;
    bool apart; /* this world takes its calls apart (goes_apart), so that it cannot run */
};

struct table {
    struct row row[ROWS_MOST];
    size_t rows;
    const char *options; /* of the worlds */
    unsigned thin;
    bool minimal, several_hosts;
};

/* ------------------------------------------------------------------------------------------------------------ other collectives */
/* Small allreduces, which are packed into one exchange. */
static void call_group(struct comm_communicator *const *c, int32_t ranks, struct comm_request *first)
{
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    int64_t most_in[RIG_RANKS_MAX], most[RIG_RANKS_MAX];
    float in[RIG_RANKS_MAX][SHORT], out[RIG_RANKS_MAX][SHORT];

    for (int32_t r = 0; r < ranks; r++) {
        struct comm_communicator *recorder;
        most_in[r] = -1 - (r + 1) % ranks;
        for (int32_t i = 0; i < SHORT; i++)
            in[r][i] = (float)(r + i);
        MUST(comm_group_begin(c[r], &recorder));
        MUST(comm_allreduce(recorder, in[r], out[r], SHORT, COMM_F32, COMM_SUM, NULL));
        MUST(comm_allreduce(recorder, &most_in[r], &most[r], 1, COMM_I64, COMM_MAX, NULL));
        MUST(comm_group_end(recorder, &request[r]));
    }
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        EQUAL(most[r], -1);
        for (int32_t i = 0; i < SHORT; i++)
            EQUAL(out[r][i], ranks * (ranks - 1) / 2 + ranks * i);
    }
    *first = request[0];
}

static void call_broadcast_bytes(struct comm_communicator *const *c, int32_t ranks, struct comm_request *first)
{
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    char text[RIG_RANKS_MAX][SHORT + 1] = {""};
    size_t bytes[RIG_RANKS_MAX];

    for (int32_t r = 0; r < ranks; r++) {
        bytes[r] = r < ranks - 1 ? sizeof text[r] : SHORT;
        memset(text[r], r < ranks - 1 ? 0 : 'x', SHORT);
        MUST(comm_broadcast_bytes(c[r], text[r], &bytes[r], ranks - 1, &request[r]));
    }
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        EQUAL(bytes[r], SHORT);
        EQUAL(strspn(text[r], "x"), SHORT);
    }
    *first = request[0];
}

/* All ranks in one communicator, in the reverse order; its sum shows that it works. */
static void call_split(struct comm_communicator *const *c, int32_t ranks, struct comm_request *first)
{
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    struct comm_communicator *made[RIG_RANKS_MAX], *ordered[RIG_RANKS_MAX];

    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_split(c[r], 7, -r, &made[r], &request[r]));
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        EQUAL(comm_size(made[r]), ranks);
        EQUAL(comm_rank(made[r]), ranks - 1 - r);
        ordered[ranks - 1 - r] = made[r];
    }
    rig_proves_alive(ordered, ranks);
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_close(made[r], RIG_PATIENCE));
    *first = request[0];
}

static void call_dup(struct comm_communicator *const *c, int32_t ranks, struct comm_request *first)
{
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    struct comm_communicator *made[RIG_RANKS_MAX];

    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_dup(c[r], NULL, &made[r], &request[r]));
    rig_wait_all(request, (size_t)ranks);
    rig_proves_alive(made, ranks);
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_close(made[r], RIG_PATIENCE));
    *first = request[0];
}

static void free_window(void *arg, int32_t rank)
{
    MUST(comm_window_free(((struct comm_window **)arg)[rank]));
}

/* Each rank signals the next one: no buffer, because a put takes none of a device. */
static void call_window(struct comm_communicator *const *c, int32_t ranks, struct comm_request *first)
{
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}}, signal[RIG_RANKS_MAX] = {{NULL, 0}};
    struct comm_window *window[RIG_RANKS_MAX];
    struct comm_window_options options = {.size = sizeof options, .signals = 1};

    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_window_create(c[r], SHORT, &options, &window[r], &request[r]));
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        MUST(comm_window_signal(window[r], (r + 1) % ranks, 0, 5, NULL));
        MUST(comm_window_wait_signal(window[r], 0, 5, &signal[r]));
    }
    rig_wait_all(signal, (size_t)ranks);
    rig_threads(ranks, free_window, window);
    *first = request[0];
}

static void call_memory(struct comm_communicator *const *c, int32_t ranks, struct comm_request *first)
{
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    void *memory[RIG_RANKS_MAX] = {NULL};

    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_mem_alloc_symmetric(c[r], SHORT, &memory[r], &request[r]));
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        CHECK(memory[r] != NULL);
        memset(memory[r], r, SHORT);
        comm_mem_free(c[r], memory[r]);
    }
    *first = request[0];
}

static const struct caller callers[] = {
    {"group", call_group},   {"broadcast_bytes", call_broadcast_bytes}, {"split", call_split}, {"dup", call_dup},
    {"window", call_window}, {"mem_alloc_symmetric", call_memory},
};
enum { CALLERS = sizeof callers / sizeof *callers };

/* The calls of a group go one by one, each by an algorithm of its own collective: into the stream that a native is, and from buffers of a
 * device. */
static bool goes_apart(const struct row *row, const struct comm_request_info *info)
{
    const char *native = getenv("FAKE_NATIVE");
    return strcmp(row->info.collective, "group") == 0 && (info->flags & COMM_INFO_STAGED || (native && strstr(native, "stream")));
}

static size_t call_other(struct row *row, struct comm_communicator *const *c, int32_t ranks)
{
    struct comm_request request;
    struct comm_request_info info = {.size = sizeof info};

    row->caller->call(c, ranks, &request);
    MUST(comm_describe_request(request, &info));
    row->apart |= goes_apart(row, &info);
    if (!row->apart && strcmp(info.algorithm, row->info.name) != 0)
        rig_die(__FILE__, __LINE__, "%s was done by \"%s\", but \"%s\" was forced", row->info.collective, info.algorithm, row->info.name);
    return !row->apart;
}

/* ------------------------------------------------------------------------------------------------------------ the table */
static void read_row(struct row *row)
{
    row->kind = -1;
    for (int kind = 0; kind < JOB_KINDS; kind++)
        row->kind = strcmp(row->info.collective, job_kind_names[kind]) == 0 ? kind : row->kind;
    for (size_t i = 0; i < CALLERS; i++)
        row->caller = strcmp(row->info.collective, callers[i].collective) == 0 ? &callers[i] : row->caller;
    if (row->kind < 0 && !row->caller)
        rig_die(__FILE__, __LINE__, "%s:%s: this suite has no call of that collective", row->info.collective, row->info.name);
}

static void read_table(struct table *table)
{
    for (;; table->rows++) {
        CHECK(table->rows < ROWS_MOST);
        struct row *row = &table->row[table->rows];
        row->info.size = sizeof row->info;
        if (comm_describe_algorithm(table->rows, &row->info) != COMM_OK)
            return;
        read_row(row);
    }
}

/* Of 1 to SWEEP_RANKS ranks, or the fewest that the algorithm serves; of few selections one number in three, another
 * one for the next algorithm. */
static bool runs_on(const struct table *table, size_t i, int32_t ranks)
{
    const struct comm_algorithm_info *info = &table->row[i].info;
    int32_t least = info->ranks_min, most = least > SWEEP_RANKS ? least : SWEEP_RANKS, step = (int32_t)selected(1, 1, 3);

    most = most > info->ranks_max ? info->ranks_max : most;
    step = step > most - least + 1 ? most - least + 1 : step;
    return ranks >= least && ranks <= most && (ranks - least) % step == (int32_t)i % step;
}

/* ------------------------------------------------------------------------------------------------------------ forcing */
/* Long calls take most of the time: of few selections one for each algorithm, on four or more ranks if it serves so many. */
static bool takes_long(const struct row *row, int32_t ranks)
{
    int32_t least = row->info.ranks_max < FEW_RANKS ? row->info.ranks_max : FEW_RANKS;
    return !row->info.bounded && (!rig_quick() || (ranks >= least && !row->long_calls));
}

static size_t call_jobs(const struct table *table, struct row *row, struct comm_communicator *const *c, int32_t ranks)
{
    enum job_kind kind = (enum job_kind)row->kind;
    uint64_t seed = (uint64_t)(row - table->row) * 100 + (uint64_t)ranks;
    struct job_shape shape = {.kind = kind, .type = COMM_F32, .op = COMM_SUM, .root = ranks / 2, .n = SHORT, .seed = seed};
    size_t calls = sweep_one(c, ranks, &shape, row->info.name);
    struct sweep_plan plan = {.thin = table->thin, .kind = row->kind, .algorithm = row->info.name};

    if (takes_long(row, ranks)) {
        shape.n = (table->minimal ? LONG_MINIMAL : LONG) / (kind < JOB_ALLGATHER || ranks < 2 ? 1 : (size_t)ranks / 2);
        shape.in_place = job_kind_in_place(kind) && ranks % 2;
        row->long_calls += sweep_one(c, ranks, &shape, row->info.name);
        calls++;
    }
    if (!job_kind_reduces(kind))
        plan.thin = 1 + table->thin / 20;
    return calls + sweep_over(c, ranks, &plan);
}

static void force(struct table *table, struct row *row, const struct rig *rig)
{
    char options[96];
    struct comm_request request[RIG_RANKS_MAX] = {{NULL, 0}};
    struct comm_communicator *c[RIG_RANKS_MAX];
    struct comm_info info = {.size = sizeof info};

    rig_note("%s:%s on %d ranks, options \"%s\"", row->info.collective, row->info.name, rig->ranks, table->options);
    snprintf(options, sizeof options, "algorithm=%s:%s", row->info.collective, row->info.name);
    for (int32_t r = 0; r < rig->ranks; r++)
        MUST(comm_dup(rig->world[r], &(struct comm_options){.size = sizeof(struct comm_options), .options = options}, &c[r], &request[r]));
    rig_wait_all(request, (size_t)rig->ranks);
    MUST(comm_describe(c[0], &info));
    size_t calls = row->caller ? call_other(row, c, rig->ranks) : call_jobs(table, row, c, rig->ranks);
    for (int32_t r = 0; r < rig->ranks; r++)
        MUST(comm_close(c[r], RIG_PATIENCE));
    table->several_hosts |= info.nodes > 1;
    row->calls += rig->ranks > 1 ? calls : 0;
    row->calls_over_hosts += info.nodes > 1 ? calls : 0;
}

static void force_on(struct table *table, int32_t ranks)
{
    struct rig rig = {.ranks = 0};

    for (size_t i = 0; i < table->rows; i++) {
        if (!runs_on(table, i, ranks))
            continue;
        if (!rig.ranks)
            rig_open_options(&rig, ranks, table->options);
        force(table, &table->row[i], &rig);
    }
    rig_close(&rig);
}

/* Nothing was left out: neither an algorithm, nor a collective of this suite. */
static void check_all_ran(const struct table *table)
{
    const char *hosts = getenv("COMM_HOST");
    size_t calls = 0, of_kind[JOB_KINDS] = {0}, of_caller[CALLERS] = {0};

    for (size_t i = 0; i < table->rows; i++) {
        const struct row *row = &table->row[i];
        calls += row->calls;
        *(row->caller ? &of_caller[row->caller - callers] : &of_kind[row->kind]) += row->calls + row->apart;
        if (row->apart)
            continue;
        if (!row->calls)
            rig_die(__FILE__, __LINE__, "%s:%s never ran", row->info.collective, row->info.name);
        if (row->kind >= 0 && !row->info.bounded && !row->long_calls)
            rig_die(__FILE__, __LINE__, "%s:%s never did a long call", row->info.collective, row->info.name);
        if (table->several_hosts && row->info.over_hosts && !row->calls_over_hosts)
            rig_die(__FILE__, __LINE__, "%s:%s never ran over several hosts", row->info.collective, row->info.name);
    }
    for (int kind = 0; kind < JOB_KINDS; kind++)
        CHECK(of_kind[kind] > 0);
    for (size_t i = 0; i < CALLERS; i++)
        CHECK(of_caller[i] > 0);
    CHECK(table->several_hosts == (hosts && strchr(hosts, ',')));
    fprintf(stderr, "    %zu calls compared, of %zu algorithms\n", calls, table->rows);
}

static void force_all(const char *options, unsigned thin)
{
    static struct table table;

    table.options = options;
    table.thin = thin;
    table.minimal = strstr(options, "minimal") != NULL;
    read_table(&table);
    for (int32_t ranks = 1; ranks <= RIG_RANKS_MAX; ranks++)
        force_on(&table, ranks);
    check_all_ran(&table);
}

/* ------------------------------------------------------------------------------------------------------------ tests */
RIG_CASE(collectives_forced_algorithms)
{
    force_all("", 97);
}

RIG_CASE(collectives_forced_algorithms_minimal)
{
    force_all("minimal=1", 239);
}
