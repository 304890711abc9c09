/*
 * Selects the algorithm for a call, only from what is equal on every rank. With the parameters of a measured machine,
 * which all ranks get from rank 0, the shortest predicted time decides. Without them, a list of preferences decides:
 * the first entry whose condition and bound hold and whose row can serve the call is taken.
 */
#include "select/select.h"

#include "base/format.h"

#include <string.h>

enum {
    SELECT_TOGETHER_BYTES_MAX = 256, /* a small team's whole buffer is a few lines: one exposure is cheaper than one for each rank */
    SELECT_SHARE_BYTES_MAX = 512,
    SELECT_WHOLE_BYTES_MAX = 4096,
    SELECT_TWO_WHOLE_BYTES_MAX = 16384, /* of two ranks: half of what each copies is in vain, which costs less than a stream */
    SELECT_SPREAD_BYTES_MIN = 4096,
    SELECT_BELOW_BYTES_MAX = 8192,
    SELECT_NEAR_BYTES_MAX = 16384,
    SELECT_SWAP_BYTES_MIN = 16384,
    SELECT_ANSWER_BYTES_MIN = 49152,
    SELECT_ONCE_BYTES_MAX = 65536,
    SELECT_HOST_BYTES_MAX = 131072,
    SELECT_SHARED_BYTES_MIN = 131072,
    SELECT_EACH_BYTES_MAX = 262144,
    SELECT_PAIR_BYTES_MAX = 524288,
    SELECT_PAIR_BOTH_BYTES_MAX = 262144, /* where both need the sum: what read_all copies leaves a smaller cache of a CPU above that */
    SELECT_TREE_BYTES_MAX = 131072,
    SELECT_CROWD_TREE_BYTES_MAX = 1048576,
    SELECT_FEW_RANKS = 4,
    SELECT_CROWD_RANKS = 8,
    SELECT_LARGE_CROWD_RANKS = 17
};

/* ------------------------------------------------------------------------------------------------------------ conditions */
static bool always(const struct algo_query *query)
{
    (void)query;
    return true;
}

/* With two hosts of equal shape, computing the whole result on each sends no more bytes and saves one trip. Above the
 * bound the additional reductions cost more. */
static bool two_even_hosts(const struct algo_query *query)
{
    return query->hosts && query->hosts->count == 2 && query->hosts->even;
}

static bool several_hosts(const struct algo_query *query)
{
    return query->hosts != NULL;
}

/* With few ranks, reading all inputs below costs each rank less than passing partial results on. */
static bool few_on_one_host(const struct algo_query *query)
{
    return !query->hosts && query->size <= SELECT_FEW_RANKS;
}

/* If ranks share CPUs, the total work counts, not the number of waits. Along the tree each rank exposes one thing and
 * receives as many as its number has set bits. */
static bool oversubscribed(const struct algo_query *query)
{
    return query->oversubscribed && !query->chunk_least;
}

/* If ranks that share CPUs exchange over a network, each message costs CPU time of all. An allreduce of p ranks takes p (p - 1) messages if
 * each reads all, p log p by doubling, and 2 (p - 1) along a tree, whose trips are longer. Also the work of a broadcast's root is shared.
 */
static bool shares_cpus_over_a_network(const struct algo_query *query)
{
    return !query->hosts && query->oversubscribed && query->chunk_least;
}
static bool few_share_cpus_over_a_network(const struct algo_query *query)
{
    return shares_cpus_over_a_network(query) && query->size > 2 && query->size <= SELECT_FEW_RANKS;
}
static bool more_share_cpus_over_a_network(const struct algo_query *query)
{
    return shares_cpus_over_a_network(query) && query->size > SELECT_FEW_RANKS;
}
static bool large_crowd_over_a_network(const struct algo_query *query)
{
    return shares_cpus_over_a_network(query) && query->size >= SELECT_LARGE_CROWD_RANKS;
}
static bool crowded_over_a_network(const struct algo_query *query)
{
    return shares_cpus_over_a_network(query) && query->size >= SELECT_CROWD_RANKS;
}

/* If short pieces cost little, sharing the work pays earlier with more ranks: if each rank reads everything, that is p
 * times the bytes on p ranks. So these bounds apply to all blocks together. */
static bool short_pieces_are_cheap(const struct algo_query *query)
{
    return !query->hosts && !query->chunk_least;
}

/* A result lies where the other rank's bytes were, so half as many bytes move as if each rank reads everything. */
static bool two_in_memory(const struct algo_query *query)
{
    return short_pieces_are_cheap(query) && query->size == 2;
}

/* Two ranks move the same bytes either way, in one exchange or in two. If short pieces are expensive, as over a
 * network, the second exchange costs more than doing the other rank's half of the work as well. */
static bool two_over_a_network(const struct algo_query *query)
{
    return !query->hosts && query->chunk_least && query->size == 2;
}

/* With two ranks the root exposes to one other rank: its block alone, because the whole buffer would take no fewer
 * lines. */
static bool two_ranks(const struct algo_query *query)
{
    return query->size == 2;
}

/* With three or four ranks, reading blocks out of one shared exposure is faster than one exposure for each rank. */
static bool three_or_four(const struct algo_query *query)
{
    return query->size > 2 && query->size <= SELECT_FEW_RANKS && !query->chunk_least;
}

/* ------------------------------------------------------------------------------------------------------------ the list */
/* Bytes in the accumulator type, of the longest block, or of all blocks together (ALL). Above 64 KiB one exposure per
 * rank is no longer cheaper than slices in chunks. If a whole buffer is one exposure, most of it is read by only one
 * rank, so that pays only for small sizes. The same holds for a scan whose last rank reads all others. */
#define ANY UINT64_MAX
enum unit { BLOCK, ALL };
static const struct preference {
    uint32_t collective;
    const char *name;
    uint64_t bytes_max;
    enum unit unit;
    bool (*when)(const struct algo_query *query);
} preferences[] = {
    {COLLECTIVE_BARRIER, "hosts_once", ANY, BLOCK, several_hosts},
    {COLLECTIVE_BARRIER, "doubling", ANY, BLOCK, more_share_cpus_over_a_network},
    {COLLECTIVE_BARRIER, "read_all", ANY, BLOCK, always},
    {COLLECTIVE_BARRIER, "doubling", ANY, BLOCK, always},
    {COLLECTIVE_BROADCAST, "direct", SELECT_SPREAD_BYTES_MIN, BLOCK, several_hosts},
    {COLLECTIVE_BROADCAST, "hosts", ANY, BLOCK, several_hosts},
    {COLLECTIVE_BROADCAST, "direct", SELECT_BELOW_BYTES_MAX, BLOCK, crowded_over_a_network},
    {COLLECTIVE_BROADCAST, "tree", ANY, BLOCK, crowded_over_a_network},
    {COLLECTIVE_BROADCAST, "direct", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_BROADCAST, "pipeline", ANY, BLOCK, always},
    {COLLECTIVE_REDUCE, "read_all", SELECT_SPREAD_BYTES_MIN, BLOCK, several_hosts},
    {COLLECTIVE_REDUCE, "hosts", ANY, BLOCK, several_hosts},
    {COLLECTIVE_REDUCE, "read_all", SELECT_PAIR_BYTES_MAX, BLOCK, two_over_a_network},
    {COLLECTIVE_REDUCE, "read_all", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_REDUCE, "slices", ANY, BLOCK, always},
    {COLLECTIVE_ALLREDUCE, "hosts_once", SELECT_NEAR_BYTES_MAX, BLOCK, two_even_hosts},
    {COLLECTIVE_ALLREDUCE, "hosts_each", SELECT_EACH_BYTES_MAX, BLOCK, two_even_hosts},
    {COLLECTIVE_ALLREDUCE, "hosts_once", SELECT_NEAR_BYTES_MAX, BLOCK, several_hosts},
    {COLLECTIVE_ALLREDUCE, "hosts_few", SELECT_HOST_BYTES_MAX, BLOCK, several_hosts},
    {COLLECTIVE_ALLREDUCE, "hosts", ANY, BLOCK, several_hosts},
    {COLLECTIVE_ALLREDUCE, "read_all", SELECT_ANSWER_BYTES_MIN, BLOCK, two_in_memory},
    {COLLECTIVE_ALLREDUCE, "slices", ANY, BLOCK, two_in_memory},
    {COLLECTIVE_ALLREDUCE, "read_all", SELECT_SHARED_BYTES_MIN, ALL, short_pieces_are_cheap},
    {COLLECTIVE_ALLREDUCE, "doubling", SELECT_SHARED_BYTES_MIN, ALL, short_pieces_are_cheap},
    {COLLECTIVE_ALLREDUCE, "slices", ANY, ALL, short_pieces_are_cheap},
    {COLLECTIVE_ALLREDUCE, "read_all", SELECT_PAIR_BOTH_BYTES_MAX, BLOCK, two_over_a_network},
    {COLLECTIVE_ALLREDUCE, "doubling", SELECT_ONCE_BYTES_MAX, BLOCK, few_share_cpus_over_a_network},
    {COLLECTIVE_ALLREDUCE, "tree", SELECT_TREE_BYTES_MAX, BLOCK, more_share_cpus_over_a_network},
    {COLLECTIVE_ALLREDUCE, "tree", SELECT_CROWD_TREE_BYTES_MAX, BLOCK, large_crowd_over_a_network},
    {COLLECTIVE_ALLREDUCE, "read_all", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_ALLREDUCE, "doubling", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_ALLREDUCE, "slices", ANY, BLOCK, always},
    {COLLECTIVE_ALLREDUCE, "tree", ANY, BLOCK, always},
    {COLLECTIVE_GROUP, "hosts_once", SELECT_NEAR_BYTES_MAX, BLOCK, several_hosts},
    {COLLECTIVE_GROUP, "doubling", ANY, BLOCK, more_share_cpus_over_a_network},
    {COLLECTIVE_GROUP, "read_all", ANY, BLOCK, always},
    {COLLECTIVE_GROUP, "doubling", ANY, BLOCK, always},
    {COLLECTIVE_ALLGATHER, "direct", SELECT_SPREAD_BYTES_MIN, BLOCK, several_hosts},
    {COLLECTIVE_ALLGATHER, "hosts", ANY, BLOCK, several_hosts},
    {COLLECTIVE_ALLGATHER, "direct", SELECT_SWAP_BYTES_MIN, BLOCK, two_in_memory},
    {COLLECTIVE_ALLGATHER, "swap", ANY, BLOCK, two_in_memory},
    {COLLECTIVE_ALLGATHER, "direct", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_ALLGATHER, "pipeline", ANY, BLOCK, always},
    {COLLECTIVE_ALLGATHER_V, "direct", SELECT_SPREAD_BYTES_MIN, BLOCK, several_hosts},
    {COLLECTIVE_ALLGATHER_V, "hosts", ANY, BLOCK, several_hosts},
    {COLLECTIVE_ALLGATHER_V, "direct", SELECT_SWAP_BYTES_MIN, BLOCK, two_in_memory},
    {COLLECTIVE_ALLGATHER_V, "swap", ANY, BLOCK, two_in_memory},
    {COLLECTIVE_ALLGATHER_V, "direct", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_ALLGATHER_V, "pipeline", ANY, BLOCK, always},
    {COLLECTIVE_REDUCE_SCATTER, "read_all", SELECT_WHOLE_BYTES_MAX / 4, BLOCK, several_hosts},
    {COLLECTIVE_REDUCE_SCATTER, "hosts", ANY, BLOCK, several_hosts},
    {COLLECTIVE_REDUCE_SCATTER, "read_all", SELECT_TWO_WHOLE_BYTES_MAX, BLOCK, two_in_memory},
    {COLLECTIVE_REDUCE_SCATTER, "read_all", SELECT_WHOLE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_REDUCE_SCATTER, "direct", ANY, BLOCK, always},
    {COLLECTIVE_REDUCE_SCATTER_V, "read_all", SELECT_WHOLE_BYTES_MAX / 4, BLOCK, several_hosts},
    {COLLECTIVE_REDUCE_SCATTER_V, "hosts", ANY, BLOCK, several_hosts},
    {COLLECTIVE_REDUCE_SCATTER_V, "read_all", SELECT_TWO_WHOLE_BYTES_MAX, BLOCK, two_in_memory},
    {COLLECTIVE_REDUCE_SCATTER_V, "read_all", SELECT_WHOLE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_REDUCE_SCATTER_V, "direct", ANY, BLOCK, always},
    {COLLECTIVE_SCAN, "read_all", SELECT_BELOW_BYTES_MAX, BLOCK, several_hosts},
    {COLLECTIVE_SCAN, "doubling", SELECT_ONCE_BYTES_MAX, BLOCK, several_hosts},
    {COLLECTIVE_SCAN, "slices", ANY, BLOCK, several_hosts},
    {COLLECTIVE_SCAN, "read_all", SELECT_ONCE_BYTES_MAX, BLOCK, few_on_one_host},
    {COLLECTIVE_SCAN, "blocks", SELECT_BELOW_BYTES_MAX, BLOCK, oversubscribed},
    {COLLECTIVE_SCAN, "read_all", SELECT_BELOW_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_SCAN, "blocks", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_SCAN, "pipeline", ANY, BLOCK, always},
    {COLLECTIVE_EXSCAN, "read_all", SELECT_BELOW_BYTES_MAX, BLOCK, several_hosts},
    {COLLECTIVE_EXSCAN, "doubling", SELECT_ONCE_BYTES_MAX, BLOCK, several_hosts},
    {COLLECTIVE_EXSCAN, "slices", ANY, BLOCK, several_hosts},
    {COLLECTIVE_EXSCAN, "read_all", SELECT_ONCE_BYTES_MAX, BLOCK, few_on_one_host},
    {COLLECTIVE_EXSCAN, "blocks", SELECT_BELOW_BYTES_MAX, BLOCK, oversubscribed},
    {COLLECTIVE_EXSCAN, "read_all", SELECT_BELOW_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_EXSCAN, "blocks", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_EXSCAN, "pipeline", ANY, BLOCK, always},
    {COLLECTIVE_GATHER, "direct", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_GATHER, "throttled", ANY, BLOCK, always},
    {COLLECTIVE_GATHER_V, "throttled", ANY, BLOCK, always},
    {COLLECTIVE_SCATTER, "pairs", SELECT_ONCE_BYTES_MAX, BLOCK, two_ranks},
    {COLLECTIVE_SCATTER, "direct", SELECT_SHARE_BYTES_MAX, BLOCK, three_or_four},
    {COLLECTIVE_SCATTER, "direct", SELECT_TOGETHER_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_SCATTER, "pairs", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_SCATTER, "direct", SELECT_WHOLE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_SCATTER, "throttled", ANY, BLOCK, always},
    {COLLECTIVE_SCATTER_V, "throttled", ANY, BLOCK, always},
    {COLLECTIVE_ALLTOALL, "direct", SELECT_TOGETHER_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_ALLTOALL, "pairs", SELECT_SWAP_BYTES_MIN, BLOCK, two_in_memory},
    {COLLECTIVE_ALLTOALL, "swap", ANY, BLOCK, two_in_memory},
    {COLLECTIVE_ALLTOALL, "pairs", SELECT_ONCE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_ALLTOALL, "direct", SELECT_WHOLE_BYTES_MAX, BLOCK, always},
    {COLLECTIVE_ALLTOALL, "throttled", ANY, BLOCK, always},
    {COLLECTIVE_ALLTOALL_V, "swap", ANY, BLOCK, two_in_memory},
    {COLLECTIVE_ALLTOALL_V, "throttled", ANY, BLOCK, always},
    {COLLECTIVE_BROADCAST_BYTES, "direct", ANY, BLOCK, always},
    {COLLECTIVE_SPLIT, "direct", ANY, BLOCK, always},
    {COLLECTIVE_DUP, "direct", ANY, BLOCK, always},
    {COLLECTIVE_WINDOW, "direct", ANY, BLOCK, always},
    {COLLECTIVE_MEMORY, "direct", ANY, BLOCK, always},
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

/* A single rank exposes nothing. */
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

/* A reduction must consist of few enough subtrees. A barrier needs a view slot for each rank of its host and for each
 * other host. On one host, rows over hosts work too, if they are requested by name. */
static bool serves_hosts(const struct algo_row *row, const struct algo_query *query)
{
    const struct program_hosts *hosts = query->hosts;

    if (!hosts)
        return !query->order_block || !is_reduction(row->collective);
    if (row->collective == COLLECTIVE_BARRIER)
        return hosts->count + hosts->longest <= PROGRAM_VIEWS_MAX;
    return !is_reduction(row->collective) || hosts->reduces;
}

/* T over blocks: moves have no order, and reductions need one view slot per block. */
static bool serves_blocks(const struct algo_row *row, const struct algo_query *query)
{
    return row->flags & ALGO_OVER_HOSTS || !is_reduction(row->collective) ||
           (row->flags & ALGO_ORDER_BLOCKS && query->size <= ALGO_BLOCKS_MAX * query->order_block);
}

bool algo_serves(const struct algo_row *row, const struct algo_query *query)
{
    uint64_t ranks = row->once_bytes == ALGO_WHOLE ? (uint64_t)query->size : 1;

    if (query->order_block && !serves_blocks(row, query))
        return false;
    if (row->flags & ALGO_OVER_HOSTS && !serves_hosts(row, query))
        return false;
    return query->size >= row->ranks_min && query->size <= row->ranks_max &&
           (!row->once_bytes || bytes_of(query) <= query->once_max / ranks);
}

bool algo_considers(const struct algo_row *row, const struct algo_query *query)
{
    return algo_serves(row, query) && (query->hosts || !(row->flags & ALGO_OVER_HOSTS));
}

/* Appends all algorithms of a collective, with their bounds. */
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
    base_append(why, why_bytes, at, ", blocks of %zu bytes as they are summed", query->block_bytes);
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

/* The name that option algorithm has for this collective, or NULL. */
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

/* An entry of the option that names no collective would have no effect, so it is refused at the first call. */
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
                              .calls = row->once_bytes ? 26 : 8, /* twice the calls that a rank may be ahead, and a few more */
                              .climbs = (row->flags & ALGO_CLIMBS) != 0,
                              .fastpath = goes_by_hand(row, query)};
}

/* Uses the quick form, because it runs while an operation is issued. Lack of memory concerns this rank alone, so it
 * must not change the choice: then nothing is chosen. */
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

/* ------------------------------------------------------------------------------------------------------------ by preference */
/* Takes the first entry whose condition and bound hold and whose row can serve the call. */
static const struct algo_row *select_preferred(const struct algo_query *query, char *why, size_t why_bytes, size_t *at)
{
    for (size_t i = 0; i < sizeof preferences / sizeof *preferences; i++) {
        const struct preference *choice = &preferences[i];
        if (choice->collective != query->collective || !choice->when(query))
            continue;
        uint64_t bytes_max = choice->unit == ALL ? choice->bytes_max / (uint64_t)query->size : choice->bytes_max;
        const struct algo_row *row = find_row(choice->collective, choice->name, strlen(choice->name));
        if (!row || bytes_of(query) > bytes_max || !algo_serves(row, query))
            continue;
        base_append(why, why_bytes, at, ": %s (%d to %d ranks", row->name, row->ranks_min, row->ranks_max);
        if (choice->bytes_max != ANY)
            base_append(why, why_bytes, at, ", preferred up to %llu bytes", (unsigned long long)bytes_max);
        base_append(why, why_bytes, at, ")");
        return row;
    }
    return NULL;
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
    /* Of a ragged call no length is known that is equal on every rank, so there is nothing to price. */
    bool priced = query->prices && query->prices->measured && query->size > 1 && !collective_is_ragged(query->collective);
    const struct algo_row *row = priced ? select_priced(query, why, why_bytes, &at) : select_preferred(query, why, why_bytes, &at);
    if (!row) {
        base_append(why, why_bytes, &at, ": none serves");
        append_rows(query, why, why_bytes, &at);
    }
    return row;
}
