/* The worlds of the tests of backend cuda: its ranks with a mock device each, and the same ranks on host buffers, all in this process. */
#ifndef ONESHOT_TEST_H
#define ONESHOT_TEST_H

#include "../conform/rig.h"
#include "bench.h"
#include "cuda/oneshot_kernel.h"
#include "mock.h"

enum { RANKS = 8, RANKS_MOST = 17, ROOM = 3 * ONESHOT_BYTES }; /* more than RANKS share devices */
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    char *in, *out; /* of the device */
    char *host_in, *host_out, *got;
};
extern struct side sides[RANKS_MOST];
extern struct rig device, host;
extern int32_t ranks;
extern size_t room; /* bytes of a buffer; a test may change it before it opens the sides */

/* devices: by rank; NULL: each rank has the device of its number. */
void open_sides(int32_t n, const int *devices);
void close_sides(void);
/* Both worlds and the sides. */
void open_all(int32_t n, const struct mock_options *options);
void open_sharing(int32_t n, int count, const struct mock_options *options); /* rank r has the device r % count */
void close_all(void);
/* The ranks with devices alone. They close within their bound, whatever the result is. */
void open_failing(int32_t n, int64_t timeout_ns);
void close_failed(void);
void call_on(int32_t r, size_t n, struct comm_request *q); /* a sum of f32 */
void is_mismatch(const struct comm_request *q, const char *text);
uint32_t first_word(int32_t r, const char *at); /* in memory of the rank's device */
void fill(int32_t r, uint32_t value, size_t words);
/* The n-th call of the driver fails, in two sums of two ranks. Nothing hangs, whatever has a result has the right one, and nothing is left.
 * Returns false if there are fewer calls. */
bool sums_with_a_fault(uint64_t n, size_t words);
void count_one(void *count); /* for mock_at; an _Atomic int */

struct sum {
    enum comm_type type;
    comm_op op;
    size_t n, shift; /* shift: bytes by which the buffers are behind an aligned address */
    bool in_place;
};
void put_inputs(const struct sum *s, uint64_t seed);
void issue(const struct sum *s, struct comm_communicator *const *c, struct comm_request *q);
/* The results must have the host's bits. */
void compare(const struct sum *s);
void sum_and_compare(const struct sum *s, uint64_t seed, bool is_staged);
/* So many times: a dup of all ranks is made, does the sum, and is closed. From the third on nothing is pinned. */
void sum_on_dups(const struct sum *s, int turns);
struct comm_request_info describe(struct comm_request q);
/* The request says which way it went. */
void check_way(struct comm_request q, bool is_staged);

#endif
