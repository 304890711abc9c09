/*
 * The programs that are a single exchange, as data. Either each rank exposes at most one span, once, on edge 0; or each
 * pair has a span of its own (throttled.c, while blocks are brief). A rank that is exposed to views the span, and makes
 * its result from what it received. In scan_blocks.c a rank may first have to make what it exposes. The table lets the
 * engine do the same without the interpreter: same lines, same keys, same order of operands. Each row is a promise
 * about its builder; a test compares it with the program.
 */
#include "select/select.h"

#include "algo/algorithms.h"

/* Short names for the table. */
enum { NONE = ALGO_NONE, ALL = ALGO_ALL, ROOT = ALGO_ROOT, OTHERS = ALGO_OTHERS, ABOVE = ALGO_ABOVE };

/* clang-format off */
static const struct algo_exchange exchanges[] = {
    /*                                                     shows   looks   results own   flags */
    {COLLECTIVE_BARRIER, allreduce_read_all,               ALL,    ALL,    ALL,    ALL,  ALGO_REDUCES},
    {COLLECTIVE_ALLREDUCE, allreduce_read_all,             ALL,    ALL,    ALL,    ALL,  ALGO_REDUCES},
    {COLLECTIVE_REDUCE, reduce_read_all,                   OTHERS, ROOT,   ROOT,   ALL,  ALGO_REDUCES},
    {COLLECTIVE_SCAN, scan_read_all,                       ALL,    ABOVE,  ALL,    ALL,  ALGO_REDUCES},
    {COLLECTIVE_EXSCAN, exscan_read_all,                   ALL,    ABOVE,  ABOVE,  NONE, ALGO_REDUCES},
    {COLLECTIVE_SCAN, scan_blocks,                         ALL,    ABOVE,  ALL,    ALL,  ALGO_REDUCES | ALGO_TOTALS},
    {COLLECTIVE_EXSCAN, exscan_blocks,                     ALL,    ABOVE,  ABOVE,  NONE, ALGO_REDUCES | ALGO_TOTALS},
    {COLLECTIVE_REDUCE_SCATTER, reduce_scatter_read_all,   ALL,    ALL,    ALL,    ALL,  ALGO_UNCUT | ALGO_REDUCES},
    {COLLECTIVE_REDUCE_SCATTER_V, reduce_scatter_read_all, ALL,    ALL,    ALL,    ALL,  ALGO_UNCUT | ALGO_REDUCES},
    {COLLECTIVE_BROADCAST, broadcast_direct,               ROOT,   OTHERS, OTHERS, NONE, 0},
    {COLLECTIVE_GATHER, gather_direct,                     OTHERS, ROOT,   ROOT,   ALL,  ALGO_SPREADS},
    {COLLECTIVE_ALLGATHER, allgather_direct,               ALL,    ALL,    ALL,    ALL,  ALGO_SPREADS},
    {COLLECTIVE_ALLGATHER_V, allgather_direct,             ALL,    ALL,    ALL,    ALL,  ALGO_SPREADS},
    {COLLECTIVE_SCATTER, scatter_direct,                   ROOT,   OTHERS, ALL,    ROOT, ALGO_UNCUT},
    {COLLECTIVE_ALLTOALL, alltoall_direct,                 ALL,    ALL,    ALL,    ALL,  ALGO_UNCUT | ALGO_SPREADS},
    {COLLECTIVE_SCATTER, scatter_pairs,                    ROOT,   OTHERS, ALL,    ROOT, ALGO_PAIRS},
    {COLLECTIVE_ALLTOALL, alltoall_pairs,                  ALL,    ALL,    ALL,    ALL,  ALGO_SPREADS | ALGO_PAIRS},
    {COLLECTIVE_SCATTER, scatter_throttled,                ROOT,   OTHERS, ALL,    ROOT, ALGO_PAIRS | ALGO_STREAMS},
    {COLLECTIVE_ALLTOALL, alltoall_throttled,              ALL,    ALL,    ALL,    ALL,  ALGO_SPREADS | ALGO_PAIRS | ALGO_STREAMS},
    {COLLECTIVE_GATHER_V, gather_throttled,                OTHERS, ROOT,   ROOT,   ALL,  ALGO_SPREADS | ALGO_PAIRS | ALGO_STREAMS},
    {COLLECTIVE_SCATTER_V, scatter_throttled,              ROOT,   OTHERS, ALL,    ROOT, ALGO_PAIRS | ALGO_STREAMS},
    {COLLECTIVE_ALLTOALL_V, alltoall_throttled,            ALL,    ALL,    ALL,    ALL,  ALGO_SPREADS | ALGO_PAIRS | ALGO_STREAMS},
    {COLLECTIVE_ALLTOALL_V, alltoall_v_swap,               ALL,    ALL,    ALL,    ALL,  ALGO_SPREADS | ALGO_PAIRS | ALGO_STREAMS},
};
/* clang-format on */

const struct algo_exchange *algo_exchange_of(const struct algo_row *row)
{
    for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++)
        if (exchanges[i].collective == row->collective && exchanges[i].build == row->build)
            return &exchanges[i];
    return NULL;
}

/* ABOVE: above `other`, which is the exposer, or rank 0. */
static bool takes_part(uint8_t party, int32_t rank, int32_t root, int32_t other)
{
    switch (party) {
    case ALGO_ROOT:
        return rank == root;
    case ALGO_OTHERS:
        return rank != root;
    case ALGO_ABOVE:
        return rank > other;
    default:
        return party == ALGO_ALL;
    }
}

bool algo_exchange_shown(const struct algo_exchange *exchange, int32_t from, int32_t to, int32_t root)
{
    bool near = !(exchange->flags & ALGO_TOTALS) || to - from <= ((from + 1) & ~from); /* the lowest bit that the number lacks: the length
                                                                                        * of its block */

    return from != to && near && takes_part(exchange->shows, from, root, 0) && takes_part(exchange->looks, to, root, from);
}

bool algo_exchange_makes(const struct algo_exchange *exchange, int32_t rank, int32_t root)
{
    return takes_part(exchange->results, rank, root, 0);
}

bool algo_exchange_own(const struct algo_exchange *exchange, int32_t rank, int32_t root)
{
    return algo_exchange_makes(exchange, rank, root) && takes_part(exchange->own, rank, root, 0);
}

uint32_t algo_exchange_edge(const struct algo_exchange *exchange, int32_t from, int32_t to, int32_t size, uint8_t *kind)
{
    int32_t apart = exchange->shows == ALGO_OTHERS ? from - to : to - from; /* the distance from the root, if there is one */

    apart = (apart + size) % size;
    *kind = WIRE_ONCE | WIRE_TO_ALL;
    if (!(exchange->flags & ALGO_STREAMS))
        return pairs_edge(apart);
    if (throttled_brief_bytes(exchange->collective, size)) {
        *kind = throttled_brief_kind(exchange->collective, size);
        return throttled_brief_edge(exchange->collective, size, apart);
    }
    *kind = 0;
    return (uint32_t)(apart - 1) % ALGO_THROTTLE;
}

uint32_t algo_exchange_brief(const struct algo_exchange *exchange, int32_t size)
{
    return exchange->flags & ALGO_STREAMS ? throttled_brief_bytes(exchange->collective, size) : 0;
}
