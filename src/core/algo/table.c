/* The algorithms that exist. Adding one is its file and a row here; the checker and the tests then run on it unasked. Which row serves a
 * call is select's. */
#include "algo/algo.h"

#include "algo/algorithms.h"

const struct algo_row algo_table[] = {
    {COLLECTIVE_BARRIER, "read_all", 1, ALGO_GROUP, 1, allreduce_read_all, "everyone sees everyone's line: one exchange"},
    {COLLECTIVE_BARRIER, "doubling", 1, ALGO_RANKS_WIDE, 1, allreduce_doubling, "log2 p exchanges with one neighbour each"},
    {COLLECTIVE_BROADCAST, "direct", 1, ALGO_RANKS_MAX, 1, broadcast_direct, "everyone reads the root's buffer at once"},
    {COLLECTIVE_BROADCAST, "pipeline", 1, ALGO_RANKS_MAX, 0, broadcast_pipeline, "everyone reads the root's chunks as they come"},
    {COLLECTIVE_BROADCAST, "tree", 1, ALGO_RANKS_WIDE, 0, broadcast_tree,
     "each rank shows what it has to at most log2 p others, in chunks"},
    {COLLECTIVE_REDUCE, "read_all", 1, ALGO_TREE_RANKS, 1, reduce_read_all, "the root reads everyone's input at once"},
    {COLLECTIVE_REDUCE, "slices", 1, ALGO_TREE_RANKS, 0, reduce_slices,
     "each rank reduces one slice of all, the root collects them in chunks"},
    {COLLECTIVE_ALLREDUCE, "read_all", 1, ALGO_GROUP, 1, allreduce_read_all,
     "everyone reads everyone's input: one exchange, for the smallest"},
    {COLLECTIVE_ALLREDUCE, "doubling", 1, ALGO_RANKS_WIDE, 1, allreduce_doubling, "log2 p exchanges of whole results, for the small"},
    {COLLECTIVE_ALLREDUCE, "slices", 1, ALGO_TREE_RANKS, 0, allreduce_slices,
     "each rank reduces one slice of all and shows it to all, in chunks"},
    {COLLECTIVE_ALLREDUCE, "tree", 1, ALGO_RANKS_WIDE, 0, allreduce_tree, "up a binomial tree and down again, in chunks: for many ranks"},
    {COLLECTIVE_GROUP, "read_all", 1, ALGO_GROUP, 1, allreduce_read_all, "everyone reads what everyone packed: one exchange"},
    {COLLECTIVE_GROUP, "doubling", 1, ALGO_RANKS_MAX, 1, allreduce_doubling, "log2 p exchanges of what was packed"},
    {COLLECTIVE_ALLGATHER, "direct", 1, ALGO_RANKS_MAX, 1, allgather_direct, "everyone reads everyone's block at once"},
    {COLLECTIVE_ALLGATHER, "pipeline", 1, ALGO_RANKS_MAX, 0, allgather_pipeline, "everyone reads everyone's chunks as they come"},
    {COLLECTIVE_ALLGATHER_V, "direct", 1, ALGO_RANKS_MAX, 1, allgather_direct, "everyone reads everyone's block at once"},
    {COLLECTIVE_ALLGATHER_V, "pipeline", 1, ALGO_RANKS_MAX, 0, allgather_pipeline, "everyone reads everyone's chunks as they come"},
    {COLLECTIVE_REDUCE_SCATTER, "direct", 1, ALGO_TREE_RANKS, 0, reduce_scatter_direct, "each rank reads its block of everyone in chunks"},
    {COLLECTIVE_REDUCE_SCATTER, "read_all", 1, ALGO_WHOLE_RANKS, ALGO_WHOLE, reduce_scatter_read_all,
     "everyone reads everyone's whole input: one exchange, for the smallest"},
    {COLLECTIVE_REDUCE_SCATTER_V, "direct", 1, ALGO_TREE_RANKS, 0, reduce_scatter_direct,
     "each rank reads its block of everyone in chunks"},
    {COLLECTIVE_REDUCE_SCATTER_V, "read_all", 1, ALGO_WHOLE_RANKS, ALGO_WHOLE, reduce_scatter_read_all,
     "everyone reads everyone's whole input: one exchange, for the smallest"},
    {COLLECTIVE_SCAN, "doubling", 1, ALGO_RANKS_MAX, ALGO_ONCE, scan_doubling, "log2 p exchanges of totals and prefixes, for the small"},
    {COLLECTIVE_SCAN, "slices", 1, ALGO_SCAN_RANKS, 0, scan_slices, "each rank works out one slice of every rank's result, in chunks"},
    {COLLECTIVE_EXSCAN, "doubling", 1, ALGO_RANKS_MAX, ALGO_ONCE, exscan_doubling,
     "log2 p exchanges of totals and prefixes, for the small"},
    {COLLECTIVE_EXSCAN, "slices", 1, ALGO_SCAN_RANKS, 0, exscan_slices, "each rank works out one slice of every rank's result, in chunks"},
    {COLLECTIVE_GATHER, "direct", 1, ALGO_RANKS_MAX, ALGO_ONCE, gather_direct, "the root reads everyone's block at once"},
    {COLLECTIVE_GATHER, "throttled", 1, ALGO_RANKS_MAX, 0, gather_throttled, "the root reads a few ranks' chunks at a time"},
    {COLLECTIVE_GATHER_V, "throttled", 1, ALGO_RANKS_MAX, 0, gather_throttled, "the root reads a few ranks' chunks at a time"},
    {COLLECTIVE_SCATTER, "direct", 1, ALGO_RANKS_MAX, ALGO_WHOLE, scatter_direct, "everyone reads its block in the root's buffer at once"},
    {COLLECTIVE_SCATTER, "throttled", 1, ALGO_RANKS_MAX, 0, scatter_throttled, "the root shows chunks to a few ranks at a time"},
    {COLLECTIVE_SCATTER_V, "throttled", 1, ALGO_RANKS_MAX, 0, scatter_throttled, "the root shows chunks to a few ranks at a time"},
    {COLLECTIVE_ALLTOALL, "direct", 1, ALGO_WHOLE_RANKS, ALGO_WHOLE, alltoall_direct,
     "everyone reads its block in everyone's buffer at once, for the small"},
    {COLLECTIVE_ALLTOALL, "throttled", 1, ALGO_RANKS_MAX, 0, alltoall_throttled, "chunks between pairs, a few pairs at a time"},
    {COLLECTIVE_ALLTOALL_V, "throttled", 1, ALGO_RANKS_MAX, 0, alltoall_throttled, "chunks between pairs, a few pairs at a time"},
    {COLLECTIVE_BROADCAST_BYTES, "direct", 1, ALGO_RANKS_MAX, ALGO_ONCE, broadcast_direct,
     "everyone reads the length; then a broadcast of it"},
    {COLLECTIVE_SPLIT, "direct", 1, ALGO_RANKS_MAX, 1, allgather_direct, "everyone reads everyone's ticket at once"},
    {COLLECTIVE_DUP, "direct", 1, ALGO_RANKS_MAX, 1, allgather_direct, "everyone reads everyone's ticket at once"},
    {COLLECTIVE_WINDOW, "direct", 1, ALGO_RANKS_MAX, 1, allgather_direct, "everyone reads everyone's ticket at once, or that it is there"},
};
const uint32_t algo_count = sizeof algo_table / sizeof *algo_table;

program_build_fn *const algo_read_all = allreduce_read_all;
