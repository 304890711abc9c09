/* The algorithms that exist. Adding one is its file and a row here; the checker and the tests then run on it unasked. Of one collective,
 * select takes the first that serves: see its thresholds. */
#include "algo/algo.h"

#include "algo/algorithms.h"

const struct algo_row algo_table[] = {
    {COLLECTIVE_ALLREDUCE, "read_all", 1, ALGO_GROUP, 1, allreduce_read_all,
     "everyone reads everyone's input: one exchange, for the smallest"},
    {COLLECTIVE_ALLREDUCE, "slices", 2, ALGO_TREE_RANKS, 0, allreduce_slices,
     "each rank reduces one slice of all and shows it to all, in chunks"},
};
const uint32_t algo_count = sizeof algo_table / sizeof *algo_table;
