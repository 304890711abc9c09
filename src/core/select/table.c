/* The table of algorithms, from the rows in algo/rows.def. */
#include "select/select.h"

#include "algo/algorithms.h"

#define ROW(collective, name, ranks_min, ranks_max, bound, build, flags, help)                                                             \
    {COLLECTIVE_##collective, name, ranks_min, ranks_max, bound, build, help, flags},
const struct algo_row algo_table[] = {
#include "algo/rows.def"
};
#undef ROW
const uint32_t algo_count = sizeof algo_table / sizeof *algo_table;
