/*
 * Which algorithm serves a call, decided from what is equal on every rank and from nothing else. With the figures of a measured machine,
 * which all ranks have from rank 0, the least predicted time decides. Without them, preferences: per collective they stand in order, and
 * the first whose row serves this team and length is taken. Thresholds are bytes of the accumulator: T travels in it.
 */
#include "select/select.h"

#include "algo/algorithms.h"

#include "base/format.h"

#include <string.h>

struct preference {
    uint32_t collective;
    const char *name;
    uint64_t bytes_max; /* of the longest block; UINT64_MAX: any that the row serves */
};

/* 64 KiB is where one exposure per rank stops being cheaper than slices in chunks. Of a whole buffer in one exposure most is read by nobody
 * but one: only what is small pays. So is it where the last of a scan reads everybody. */
enum { SELECT_ONCE_BYTES_MAX = 65536, SELECT_WHOLE_BYTES_MAX = 4096, SELECT_BELOW_BYTES_MAX = 8192 };

/* Up to there a small team's whole buffer is a few lines, and one exposure is cheaper than one for each. */
enum { SELECT_TOGETHER_BYTES_MAX = 256 };

/* On several hosts these are asked first, as far as their rows serve the placement. */
enum { SELECT_NEAR_BYTES_MAX = 16384, SELECT_SPREAD_BYTES_MIN = 4096, SELECT_HOST_BYTES_MAX = 131072 };
static const struct preference over_hosts[] = {
    {COLLECTIVE_BARRIER, "hosts_once", UINT64_MAX},
    {COLLECTIVE_BROADCAST, "direct", SELECT_SPREAD_BYTES_MIN},
    {COLLECTIVE_BROADCAST, "hosts", UINT64_MAX},
    {COLLECTIVE_REDUCE, "read_all", SELECT_SPREAD_BYTES_MIN},
    {COLLECTIVE_REDUCE, "hosts", UINT64_MAX},
    {COLLECTIVE_ALLREDUCE, "hosts_once", SELECT_NEAR_BYTES_MAX},
    {COLLECTIVE_ALLREDUCE, "hosts_few", SELECT_HOST_BYTES_MAX},
    {COLLECTIVE_ALLREDUCE, "hosts", UINT64_MAX},
    {COLLECTIVE_GROUP, "hosts_once", SELECT_NEAR_BYTES_MAX},
    {COLLECTIVE_ALLGATHER, "direct", SELECT_SPREAD_BYTES_MIN},
    {COLLECTIVE_ALLGATHER, "hosts", UINT64_MAX},
    {COLLECTIVE_ALLGATHER_V, "direct", SELECT_SPREAD_BYTES_MIN},
    {COLLECTIVE_ALLGATHER_V, "hosts", UINT64_MAX},
    {COLLECTIVE_REDUCE_SCATTER, "read_all", SELECT_WHOLE_BYTES_MAX / 4},
    {COLLECTIVE_REDUCE_SCATTER, "hosts", UINT64_MAX},
    {COLLECTIVE_REDUCE_SCATTER_V, "read_all", SELECT_WHOLE_BYTES_MAX / 4},
    {COLLECTIVE_REDUCE_SCATTER_V, "hosts", UINT64_MAX},
    {COLLECTIVE_SCAN, "read_all", SELECT_BELOW_BYTES_MAX},
    {COLLECTIVE_SCAN, "doubling", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_SCAN, "slices", UINT64_MAX},
    {COLLECTIVE_EXSCAN, "read_all", SELECT_BELOW_BYTES_MAX},
    {COLLECTIVE_EXSCAN, "doubling", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_EXSCAN, "slices", UINT64_MAX},
};

/* Of two alike, that each finishes everything sends no more, and saves a way across. Behind that the sums, which both work out, are felt.
 */
enum { SELECT_EACH_BYTES_MAX = 524288 };
static const struct preference between_two_hosts[] = {
    {COLLECTIVE_ALLREDUCE, "hosts_once", SELECT_NEAR_BYTES_MAX},
    {COLLECTIVE_ALLREDUCE, "hosts_each", SELECT_EACH_BYTES_MAX},
};

/* Among few ranks of one host these are: to read what is below costs each of them less than to pass it on. */
enum { SELECT_FEW_RANKS = 4 };
static const struct preference among_few[] = {
    {COLLECTIVE_SCAN, "read_all", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_EXSCAN, "read_all", SELECT_ONCE_BYTES_MAX},
};

/* Where ranks share CPUs the work of all of them counts, not how many wait for one another: along the tree each shows one thing and takes
 * as many as its number has bits. */
static const struct preference where_crowded[] = {
    {COLLECTIVE_SCAN, "blocks", SELECT_BELOW_BYTES_MAX},
    {COLLECTIVE_EXSCAN, "blocks", SELECT_BELOW_BYTES_MAX},
};

/* Where short pieces cost little, on one host, to share the work pays the sooner the more ranks there are: that each reads all is p times
 * the bytes on p ranks. These bounds are of all blocks together. */
enum { SELECT_SHARED_BYTES_MIN = 131072 };
static const struct preference by_all[] = {
    {COLLECTIVE_ALLREDUCE, "read_all", SELECT_SHARED_BYTES_MIN},
    {COLLECTIVE_ALLREDUCE, "doubling", SELECT_SHARED_BYTES_MIN},
    {COLLECTIVE_ALLREDUCE, "slices", UINT64_MAX},
};

/* Between two ranks the same bytes go either way, in one exchange or in two. Where short pieces cost much, as over a network, so does the
 * second one: more than to do the other's half of the work as well. */
enum { SELECT_PAIR_BYTES_MAX = 524288 };
static const struct preference between_two[] = {
    {COLLECTIVE_REDUCE, "read_all", SELECT_PAIR_BYTES_MAX},
    {COLLECTIVE_ALLREDUCE, "read_all", SELECT_PAIR_BYTES_MAX},
};

/* A root of two shows something to one other: that one's block alone, where its whole buffer would be no fewer lines. */
static const struct preference of_two[] = {
    {COLLECTIVE_SCATTER, "pairs", SELECT_ONCE_BYTES_MAX},
};

/* Three or four read their blocks out of one exposure that all of them share sooner than the root makes one for each. */
enum { SELECT_SHARE_BYTES_MAX = 512 };
static const struct preference of_few[] = {
    {COLLECTIVE_SCATTER, "direct", SELECT_SHARE_BYTES_MAX},
};

static const struct preference preferences[] = {
    {COLLECTIVE_BARRIER, "read_all", UINT64_MAX},
    {COLLECTIVE_BARRIER, "doubling", UINT64_MAX},
    {COLLECTIVE_BROADCAST, "direct", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_BROADCAST, "pipeline", UINT64_MAX},
    {COLLECTIVE_REDUCE, "read_all", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_REDUCE, "slices", UINT64_MAX},
    {COLLECTIVE_ALLREDUCE, "read_all", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_ALLREDUCE, "doubling", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_ALLREDUCE, "slices", UINT64_MAX},
    {COLLECTIVE_ALLREDUCE, "tree", UINT64_MAX},
    {COLLECTIVE_GROUP, "read_all", UINT64_MAX},
    {COLLECTIVE_GROUP, "doubling", UINT64_MAX},
    {COLLECTIVE_ALLGATHER, "direct", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_ALLGATHER, "pipeline", UINT64_MAX},
    {COLLECTIVE_ALLGATHER_V, "direct", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_ALLGATHER_V, "pipeline", UINT64_MAX},
    {COLLECTIVE_REDUCE_SCATTER, "read_all", SELECT_WHOLE_BYTES_MAX},
    {COLLECTIVE_REDUCE_SCATTER, "direct", UINT64_MAX},
    {COLLECTIVE_REDUCE_SCATTER_V, "read_all", SELECT_WHOLE_BYTES_MAX},
    {COLLECTIVE_REDUCE_SCATTER_V, "direct", UINT64_MAX},
    {COLLECTIVE_SCAN, "read_all", SELECT_BELOW_BYTES_MAX},
    {COLLECTIVE_SCAN, "blocks", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_SCAN, "pipeline", UINT64_MAX},
    {COLLECTIVE_EXSCAN, "read_all", SELECT_BELOW_BYTES_MAX},
    {COLLECTIVE_EXSCAN, "blocks", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_EXSCAN, "pipeline", UINT64_MAX},
    {COLLECTIVE_GATHER, "direct", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_GATHER, "throttled", UINT64_MAX},
    {COLLECTIVE_GATHER_V, "throttled", UINT64_MAX},
    {COLLECTIVE_SCATTER, "direct", SELECT_TOGETHER_BYTES_MAX},
    {COLLECTIVE_SCATTER, "pairs", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_SCATTER, "direct", SELECT_WHOLE_BYTES_MAX},
    {COLLECTIVE_SCATTER, "throttled", UINT64_MAX},
    {COLLECTIVE_SCATTER_V, "throttled", UINT64_MAX},
    {COLLECTIVE_ALLTOALL, "direct", SELECT_TOGETHER_BYTES_MAX},
    {COLLECTIVE_ALLTOALL, "pairs", SELECT_ONCE_BYTES_MAX},
    {COLLECTIVE_ALLTOALL, "direct", SELECT_WHOLE_BYTES_MAX},
    {COLLECTIVE_ALLTOALL, "throttled", UINT64_MAX},
    {COLLECTIVE_ALLTOALL_V, "throttled", UINT64_MAX},
    {COLLECTIVE_BROADCAST_BYTES, "direct", UINT64_MAX},
    {COLLECTIVE_SPLIT, "direct", UINT64_MAX},
    {COLLECTIVE_DUP, "direct", UINT64_MAX},
    {COLLECTIVE_WINDOW, "direct", UINT64_MAX},
};

static const struct algo_row *find_row(uint32_t collective, const char *name, size_t length)
{
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_row *row = &algo_table[i];
        if (row->collective == collective && strlen(row->name) == length && !strncmp(row->name, name, length))
            return row;
    }
    return NULL;
}

/* One rank exposes nothing. */
static uint64_t bytes_of(const struct algo_query *query)
{
    return query->size == 1 ? 0 : query->block_bytes;
}

static bool is_reduction(uint32_t collective)
{
    static const uint32_t reductions[] = {COLLECTIVE_REDUCE, COLLECTIVE_ALLREDUCE, COLLECTIVE_GROUP,           COLLECTIVE_REDUCE_SCATTER,
                                          COLLECTIVE_SCAN,   COLLECTIVE_EXSCAN,    COLLECTIVE_REDUCE_SCATTER_V};
    bool reduces = false;

    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        reduces |= collective == reductions[i];
    return reduces;
}

/* What is reduced must be few enough subtrees; a barrier needs a view slot for each rank of its host and each other host. On one host rows
 * that are made of several are right too, for who asks for them by name. */
static bool serves_hosts(const struct algo_row *row, const struct algo_query *query)
{
    const struct program_hosts *hosts = query->hosts;

    if (!hosts)
        return !query->order_block || !is_reduction(row->collective);
    if (row->collective == COLLECTIVE_BARRIER)
        return hosts->count + hosts->longest <= PROGRAM_VIEWS_MAX;
    return !is_reduction(row->collective) || hosts->reduces;
}

/* T over blocks: moves have no order, and of the reductions these know how, with as many blocks as there are view slots for. */
static bool serves_blocks(const struct algo_row *row, const struct algo_query *query)
{
    static program_build_fn *const by_blocks[] = {allreduce_read_all, allreduce_slices, reduce_read_all, reduce_slices,
                                                  reduce_scatter_direct};
    bool reduces = is_reduction(row->collective), knows = false;

    for (size_t i = 0; i < sizeof by_blocks / sizeof *by_blocks; i++)
        knows |= row->build == by_blocks[i];
    return row->over_hosts || !reduces || (knows && query->size <= ALGO_BLOCKS_MAX * query->order_block);
}

bool algo_serves(const struct algo_row *row, const struct algo_query *query)
{
    uint64_t ranks = row->once_bytes == ALGO_WHOLE ? (uint64_t)query->size : 1;

    if (query->order_block && !serves_blocks(row, query))
        return false;
    if (row->over_hosts && !serves_hosts(row, query))
        return false;
    return query->size >= row->ranks_min && query->size <= row->ranks_max &&
           (!row->once_bytes || bytes_of(query) <= query->once_max / ranks);
}

bool algo_considers(const struct algo_row *row, const struct algo_query *query)
{
    return algo_serves(row, query) && (query->hosts || !row->over_hosts);
}

/* Everything there is for a collective, with the bounds of each. */
static void append_rows(const struct algo_query *query, char *why, size_t why_bytes, size_t *at)
{
    const char *between = "";
    base_append(why, why_bytes, at, "; %s has: ", collective_name(query->collective));
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_row *row = &algo_table[i];
        if (row->collective != query->collective)
            continue;
        base_append(why, why_bytes, at, "%s%s (%d to %d ranks", between, row->name, row->ranks_min, row->ranks_max);
        if (row->once_bytes)
            base_append(why, why_bytes, at, ", blocks up to %llu bytes", (unsigned long long)query->once_max);
        base_append(why, why_bytes, at, ")");
        between = ", ";
    }
}

static void append_query(const struct algo_query *query, char *why, size_t why_bytes, size_t *at)
{
    base_append(why, why_bytes, at, "%s, %d ranks", collective_name(query->collective), query->size);
    if (query->hosts)
        base_append(why, why_bytes, at, " on %d hosts", query->hosts->count);
    base_append(why, why_bytes, at, ", blocks of %zu accumulator bytes", query->block_bytes);
}

/* ------------------------------------------------------------------------------------------------------------ by name */
static bool is_collective(const char *text, size_t length, uint32_t collective)
{
    const char *name = collective_name(collective);
    return strlen(name) == length && !strncmp(name, text, length);
}

static size_t span_until(const char *text, char stop)
{
    size_t length = 0;
    while (text[length] && text[length] != ',' && text[length] != stop)
        length++;
    return length;
}

/* The name that the option gives this collective, or NULL. */
static const char *forced_name(const struct algo_query *query, size_t *length)
{
    const char *at = query->forced;
    while (at && *at) {
        size_t collective = span_until(at, ':'), whole = span_until(at, ',');
        if (collective < whole && is_collective(at, collective, query->collective)) {
            *length = whole - collective - 1;
            return at + collective + 1;
        }
        at += whole + (at[whole] == ',');
    }
    return NULL;
}

bool algo_is_forced(const char *forced, uint32_t collective)
{
    size_t length;

    return forced_name(&(struct algo_query){.collective = collective, .forced = forced}, &length) != NULL;
}

/* An entry of the option that names no collective would never be obeyed, so it is refused at the first call. */
static bool forced_is_sound(const struct algo_query *query, char *why, size_t why_bytes, size_t *at)
{
    const char *entry = query->forced;
    while (entry && *entry) {
        size_t collective = span_until(entry, ':'), whole = span_until(entry, ',');
        bool known = false;
        for (uint32_t i = 0; i < algo_count; i++)
            known |= collective < whole && is_collective(entry, collective, algo_table[i].collective);
        if (!known) {
            base_append(why, why_bytes, at, "option algorithm: \"%.*s\" is not collective:name", (int)whole, entry);
            append_rows(query, why, why_bytes, at);
            return false;
        }
        entry += whole + (entry[whole] == ',');
    }
    return true;
}

static const struct algo_row *select_forced(const struct algo_query *query, const char *name, size_t length, char *why, size_t why_bytes,
                                            size_t *at)
{
    const struct algo_row *row = find_row(query->collective, name, length);
    if (row && algo_serves(row, query)) {
        append_query(query, why, why_bytes, at);
        base_append(why, why_bytes, at, ": %s, by option algorithm", row->name);
        return row;
    }
    base_append(why, why_bytes, at, "option algorithm: \"%.*s\" %s ", (int)length, name, row ? "cannot serve" : "does not exist for");
    append_query(query, why, why_bytes, at);
    append_rows(query, why, why_bytes, at);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ by price */
static bool goes_by_hand(const struct algo_row *row, const struct algo_query *query)
{
    const struct algo_exchange *exchange = query->size <= ALGO_EXPRESS_RANKS ? algo_exchange_of(row) : NULL;

    return exchange && (!(exchange->flags & ALGO_TOTALS) || query->block_bytes <= ALGO_EXPRESS_TOTAL_BYTES);
}

struct cost_case algo_case(const struct algo_row *row, const struct algo_query *query)
{
    return (struct cost_case){.machine = query->prices->machine,
                              .caps = query->prices->caps,
                              .build = row->build,
                              .collective = query->collective,
                              .size = query->size,
                              .root = query->root,
                              .host_ranks = query->host_ranks,
                              .hosts = query->hosts,
                              .n = query->block_bytes,
                              .raw = 1,
                              .partial = 1,
                              .calls = row->once_bytes ? 26 : 8, /* twice what one rank may be ahead, and the beginning */
                              .climbs = row->build == allreduce_tree,
                              .express = goes_by_hand(row, query)};
}

/* The quick form: it is asked while an operation is issued. Want of memory is this rank's own, so it must not make another row the best:
   nothing is chosen then. */
static const struct algo_row *select_priced(const struct algo_query *query, char *why, size_t why_bytes, size_t *at)
{
    const struct algo_row *best = NULL;
    uint64_t least = UINT64_MAX, ps;
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_row *row = &algo_table[i];
        if (row->collective != query->collective || !algo_considers(row, query))
            continue;
        struct cost_case what = algo_case(row, query);
        if (cost_estimate_all(query->prices->env, &what, &ps) != COMM_OK) {
            if (query->prices->no_memory)
                *query->prices->no_memory = true;
            return NULL;
        }
        if (ps < least) {
            least = ps;
            best = row;
        }
    }
    if (best)
        base_append(why, why_bytes, at, ": %s, by the machine's figures the fastest", best->name);
    return best;
}

/* ------------------------------------------------------------------------------------------------------------ by threshold */
/* The first of a list that serves and is preferred for so many bytes, of a block or of all of them. */
static const struct algo_row *first_of(const struct preference *list, size_t count, const struct algo_query *query, char *why,
                                       size_t why_bytes, size_t *at)
{
    uint64_t blocks = list == by_all ? (uint64_t)query->size : 1;

    for (size_t i = 0; i < count; i++) {
        const struct preference *choice = &list[i];
        if (choice->collective != query->collective)
            continue;
        const struct algo_row *row = find_row(choice->collective, choice->name, strlen(choice->name));
        if (!row || bytes_of(query) > choice->bytes_max / blocks || !algo_serves(row, query))
            continue;
        base_append(why, why_bytes, at, ": %s (%d to %d ranks", row->name, row->ranks_min, row->ranks_max);
        if (choice->bytes_max != UINT64_MAX)
            base_append(why, why_bytes, at, ", preferred up to %llu bytes", (unsigned long long)(choice->bytes_max / blocks));
        base_append(why, why_bytes, at, ")");
        return row;
    }
    return NULL;
}

static const struct algo_row *select_preferred(const struct algo_query *query, char *why, size_t why_bytes, size_t *at)
{
    const struct {
        const struct preference *list;
        size_t count;
        bool asked;
    } lists[] = {
        {between_two_hosts, sizeof between_two_hosts / sizeof *between_two_hosts,
         query->hosts && query->hosts->count == 2 && query->hosts->even},
        {over_hosts, sizeof over_hosts / sizeof *over_hosts, query->hosts},
        {among_few, sizeof among_few / sizeof *among_few, !query->hosts && query->size <= SELECT_FEW_RANKS},
        {where_crowded, sizeof where_crowded / sizeof *where_crowded, query->crowded && !query->chunk_least},
        {by_all, sizeof by_all / sizeof *by_all, !query->hosts && !query->chunk_least},
        {between_two, sizeof between_two / sizeof *between_two, !query->hosts && query->chunk_least && query->size == 2},
        {of_two, sizeof of_two / sizeof *of_two, query->size == 2},
        {of_few, sizeof of_few / sizeof *of_few, query->size > 2 && query->size <= SELECT_FEW_RANKS && !query->chunk_least},
        {preferences, sizeof preferences / sizeof *preferences, true},
    };
    const struct algo_row *row = NULL;

    for (size_t i = 0; !row && i < sizeof lists / sizeof *lists; i++)
        if (lists[i].asked)
            row = first_of(lists[i].list, lists[i].count, query, why, why_bytes, at);
    return row;
}

const struct algo_row *algo_select(const struct algo_query *query, char *why, size_t why_bytes)
{
    size_t at = 0, length = 0;
    if (why_bytes)
        why[0] = 0;
    if (!forced_is_sound(query, why, why_bytes, &at))
        return NULL;
    const char *forced = forced_name(query, &length);
    if (forced)
        return select_forced(query, forced, length, why, why_bytes, &at);
    append_query(query, why, why_bytes, &at);
    bool priced = query->prices && query->prices->measured && query->size > 1;
    const struct algo_row *row = priced ? select_priced(query, why, why_bytes, &at) : select_preferred(query, why, why_bytes, &at);
    if (!row) {
        base_append(why, why_bytes, &at, ": none serves");
        append_rows(query, why, why_bytes, &at);
    }
    return row;
}
