/* What comm-perf puts into buffers and expects as results: small integers in every type, so that each result is exact whatever the order of
 * additions. A value depends only on its rank, its index and the operator. */
#ifndef TOOLS_PERF_DATA_H
#define TOOLS_PERF_DATA_H

#include <commstream/commstream.h>

#include <stdbool.h>

enum perf_kind { PERF_SIGNED, PERF_UNSIGNED, PERF_BRAIN16, PERF_HALF16, PERF_FLOAT };

struct perf_type {
    const char *name;
    size_t bytes;
    enum comm_type type;
    enum perf_kind kind;
};
const struct perf_type *perf_type_find(const char *name); /* NULL: none */
const char *perf_type_names(void);
comm_op perf_op_find(const char *name); /* 0: none */
const char *perf_op_names(void);
bool perf_op_fits(comm_op op, const struct perf_type *type); /* there are no averages of integers and no bit operations on floats */

/* Writes elements 0..n of the rank's contribution. */
void perf_fill(const struct perf_type *type, comm_op op, int32_t rank, void *to, size_t n);
/* Whether at[i], i < n, is element first + i of the rank's contribution, or of the reduction over all ranks. *bad: the first wrong one. */
bool perf_check_given(const struct perf_type *type, comm_op op, int32_t rank, size_t first, const void *at, size_t n, size_t *bad);
bool perf_check_reduced(const struct perf_type *type, comm_op op, int32_t ranks, size_t first, const void *at, size_t n, size_t *bad);

#endif
