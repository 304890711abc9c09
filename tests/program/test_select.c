/* Selection: thresholds, bounds, names by option, and its texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "algo/algorithms.h"
#include "select/select.h"

#include <string.h>

enum { ONCE_MAX = 65536 };

static char why[1024];

static const char *chosen(uint32_t collective, int32_t size, size_t bytes, const char *forced)
{
    struct algo_query query = {.collective = collective, .size = size, .block_bytes = bytes, .once_max = ONCE_MAX, .forced = forced};
    const struct algo_row *row = algo_select(&query, why, sizeof why);
    assert_true(strlen(why) > 0);
    assert_true(!row || row->collective == collective);
    return row ? row->name : "none";
}

static void thresholds(void **state)
{
    (void)state;
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 2, 49152, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 2, 49153, NULL), "slices");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 3, 43690, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 3, 43691, NULL), "slices");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 16, 8192, NULL), "read_all");
    assert_non_null(strstr(why, "preferred up to 8192 bytes"));
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 16, 8193, NULL), "slices");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 32, 4096, NULL), "doubling");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 32, 4097, NULL), "slices");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 256, 1 << 20, NULL), "slices");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 257, 1 << 20, NULL), "tree");
    assert_string_equal(chosen(COLLECTIVE_REDUCE, 257, 1 << 20, NULL), "none");
    assert_non_null(strstr(why, "read_all (1 to 256 ranks, blocks up to 65536 bytes)"));
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 1, 1 << 30, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_BARRIER, 16, 0, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_BARRIER, 17, 0, NULL), "doubling");
    assert_string_equal(chosen(COLLECTIVE_BROADCAST, 4, 1 << 20, NULL), "pipeline");
    assert_string_equal(chosen(COLLECTIVE_REDUCE, 4, 100, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_REDUCE, 4, 1 << 20, NULL), "slices");
    assert_string_equal(chosen(COLLECTIVE_ALLGATHER_V, 4, 100, NULL), "direct");
    assert_string_equal(chosen(COLLECTIVE_ALLGATHER, 2, 16384, NULL), "direct");
    assert_string_equal(chosen(COLLECTIVE_ALLGATHER, 2, 16385, NULL), "swap");
    assert_string_equal(chosen(COLLECTIVE_ALLTOALL, 2, 16384, NULL), "pairs");
    assert_string_equal(chosen(COLLECTIVE_ALLTOALL, 2, 16385, NULL), "swap");
    assert_string_equal(chosen(COLLECTIVE_ALLTOALL, 2, (2 << 20) + 1, NULL), "swap");
    assert_string_equal(chosen(COLLECTIVE_ALLGATHER_V, 2, 16385, NULL), "swap");
    assert_string_equal(chosen(COLLECTIVE_REDUCE_SCATTER, 2, 16384, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_REDUCE_SCATTER_V, 2, 16384, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_REDUCE_SCATTER, 2, 16385, NULL), "direct");
    assert_string_equal(chosen(COLLECTIVE_REDUCE_SCATTER, 4, 100, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_REDUCE_SCATTER, 4, 5000, NULL), "direct");
    assert_string_equal(chosen(COLLECTIVE_REDUCE_SCATTER, 64, 1024, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_REDUCE_SCATTER, 64, 1025, NULL), "direct"); /* all blocks together are one exposure */
    assert_string_equal(chosen(COLLECTIVE_SCAN, 16, 8192, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_SCAN, 16, 8193, NULL), "blocks");
    assert_string_equal(chosen(COLLECTIVE_SCAN, 4, 65536, NULL), "read_all");
    assert_string_equal(chosen(COLLECTIVE_SCAN, 40, 8, NULL), "blocks");
    assert_string_equal(chosen(COLLECTIVE_EXSCAN, 4, 65537, NULL), "pipeline");
    assert_string_equal(chosen(COLLECTIVE_EXSCAN, 1000, 1 << 20, NULL), "pipeline");
    assert_string_equal(chosen(COLLECTIVE_SCATTER, 2, 8, NULL), "pairs");
    assert_string_equal(chosen(COLLECTIVE_SCATTER, 2, 65537, NULL), "throttled");
    assert_string_equal(chosen(COLLECTIVE_SCATTER, 4, 512, NULL), "direct");
    assert_string_equal(chosen(COLLECTIVE_SCATTER, 4, 513, NULL), "pairs");
    assert_string_equal(chosen(COLLECTIVE_SCATTER, 3, 512, NULL), "direct");
    assert_string_equal(chosen(COLLECTIVE_SCATTER, 4, 65536, NULL), "pairs");
    assert_string_equal(chosen(COLLECTIVE_SCATTER, 5, 4096, NULL), "direct"); /* too many ranks for an edge each */
    assert_string_equal(chosen(COLLECTIVE_ALLTOALL, 2, 257, NULL), "pairs");
    assert_string_equal(chosen(COLLECTIVE_ALLTOALL, 4, 65537, NULL), "throttled");
    assert_string_equal(chosen(COLLECTIVE_ALLTOALL_V, 4, 0, NULL), "throttled");
    assert_string_equal(chosen(COLLECTIVE_ALLTOALL_V, 2, 0, NULL), "swap");
    assert_string_equal(chosen(COLLECTIVE_SPLIT, 40, 300, NULL), "direct");
}

/* A wire on which short pieces cost more than their overlap gains: there a single exposure is not cut. */
static void short_pieces_that_cost(void **state)
{
    struct algo_query query = {.collective = COLLECTIVE_ALLREDUCE, .size = 16, .once_max = ONCE_MAX, .chunk_least = 131072};

    (void)state;
    query.block_bytes = 65536;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "read_all");
    query.size = 17;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "doubling");
    query.block_bytes = 65537;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "slices");
}

/* Few ranks that share CPUs, or a wire on which a rank would have to send to half of all. */
static void scatters_of_few(void **state)
{
    struct algo_query query = {.collective = COLLECTIVE_SCATTER, .size = 4, .once_max = ONCE_MAX, .block_bytes = 512};

    (void)state;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "direct");
    query.chunk_least = 131072; /* direct would send each rank the other ranks' blocks too */
    assert_string_equal(algo_select(&query, NULL, 0)->name, "pairs");
}

/* Ranks that share CPUs and exchange over a network, and the choice if they do not share them, or exchange in memory. */
static void crowds_over_a_network(void **state)
{
    static const struct {
        uint32_t collective;
        int32_t size;
        size_t bytes;
        const char *shared, *alone;
    } choices[] = {
        {COLLECTIVE_BARRIER, 4, 0, "read_all", "read_all"},    {COLLECTIVE_BARRIER, 5, 0, "doubling", "read_all"},
        {COLLECTIVE_GROUP, 8, 8, "doubling", "read_all"},      {COLLECTIVE_ALLREDUCE, 2, 8, "read_all", "read_all"},
        {COLLECTIVE_ALLREDUCE, 3, 8, "doubling", "read_all"},  {COLLECTIVE_ALLREDUCE, 4, 65536, "doubling", "read_all"},
        {COLLECTIVE_ALLREDUCE, 4, 65537, "slices", "slices"},  {COLLECTIVE_ALLREDUCE, 5, 8, "tree", "read_all"},
        {COLLECTIVE_ALLREDUCE, 16, 131072, "tree", "slices"},  {COLLECTIVE_ALLREDUCE, 16, 131073, "slices", "slices"},
        {COLLECTIVE_ALLREDUCE, 17, 1 << 20, "tree", "slices"}, {COLLECTIVE_ALLREDUCE, 32, (1 << 20) + 1, "slices", "slices"},
        {COLLECTIVE_BROADCAST, 7, 16384, "direct", "direct"},  {COLLECTIVE_BROADCAST, 8, 8192, "direct", "direct"},
        {COLLECTIVE_BROADCAST, 8, 8193, "tree", "direct"},     {COLLECTIVE_BROADCAST, 8, 1 << 20, "tree", "pipeline"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        struct algo_query query = {.collective = choices[i].collective,
                                   .size = choices[i].size,
                                   .once_max = ONCE_MAX,
                                   .block_bytes = choices[i].bytes,
                                   .chunk_least = 131072,
                                   .oversubscribed = true};
        assert_string_equal(algo_select(&query, NULL, 0)->name, choices[i].shared);
        query.oversubscribed = false;
        assert_string_equal(algo_select(&query, NULL, 0)->name, choices[i].alone);
        query.oversubscribed = true;
        query.chunk_least = 0;
        const char *in_memory = algo_select(&query, NULL, 0)->name;
        query.oversubscribed = false;
        assert_string_equal(algo_select(&query, NULL, 0)->name, in_memory);
    }
}

static void oversubscribed_scans(void **state)
{
    struct algo_query query = {.collective = COLLECTIVE_SCAN, .size = 5, .once_max = ONCE_MAX, .block_bytes = 8, .oversubscribed = true};

    (void)state;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "blocks");
    query.oversubscribed = false;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "read_all");
    query.oversubscribed = true;
    query.chunk_least = 131072;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "read_all");
    query.chunk_least = 0;
    query.size = 4;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "read_all");
    query.size = 16;
    query.collective = COLLECTIVE_EXSCAN;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "blocks");
    query.collective = COLLECTIVE_ALLREDUCE;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "read_all");
}

/* There two ranks wait once instead of sharing the work. On a wire with cheap pieces, or with three ranks, they share
 * it. */
static void two_ranks_where_pieces_cost(void **state)
{
    struct algo_query query = {.collective = COLLECTIVE_ALLREDUCE, .size = 2, .once_max = 1 << 20, .chunk_least = 131072};

    (void)state;
    query.block_bytes = 262144;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "read_all");
    query.block_bytes = 262145;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "slices");
    query.collective = COLLECTIVE_REDUCE;
    query.block_bytes = 524288;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "read_all");
    query.block_bytes = 524289;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "slices");
    query.collective = COLLECTIVE_ALLREDUCE;
    query.block_bytes = 262144;
    query.once_max = 262143;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "slices");
    query.once_max = 1 << 20;
    query.size = 3;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "slices");
    query.size = 2;
    query.chunk_least = 0;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "slices");
}

/* Scans have no row over hosts: with several hosts each rank sends to few others. */
static void scans_over_hosts(void **state)
{
    static const int32_t of[] = {0, 0, 1, 1};
    const struct program_hosts hosts = {.of = of, .count = 2, .longest = 2};
    struct algo_query query = {.collective = COLLECTIVE_SCAN, .size = 4, .once_max = ONCE_MAX, .hosts = &hosts};

    (void)state;
    query.block_bytes = 65536;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "doubling");
    query.block_bytes = 65537;
    assert_string_equal(algo_select(&query, NULL, 0)->name, "slices");
}

/* With two equal hosts each computes the whole result, if that is not long. With more hosts there are fewer pieces
 * where they would be short. */
static void allreduces_over_hosts(void **state)
{
    static const int32_t two[] = {0, 0, 1, 1}, turns[] = {0, 1, 0, 1}, four[] = {0, 0, 1, 1, 2, 2, 3, 3};
    static const struct {
        const int32_t *of;
        int32_t count, size;
        size_t bytes;
        const char *name;
    } cases[] = {
        {two, 2, 4, 16384, "hosts_once"},  {two, 2, 4, 16385, "hosts_each"},  {two, 2, 4, 262144, "hosts_each"},
        {two, 2, 4, 262145, "hosts"},      {turns, 2, 4, 16385, "hosts_few"}, {turns, 2, 4, 131073, "hosts"},
        {four, 4, 8, 16384, "hosts_once"}, {four, 4, 8, 131072, "hosts_few"}, {four, 4, 8, 131073, "hosts"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program_hosts hosts = {.of = cases[i].of, .count = cases[i].count, .longest = 2};
        algo_hosts_survey(&hosts, cases[i].size, 0);
        struct algo_query query = {.collective = COLLECTIVE_ALLREDUCE, .size = cases[i].size, .once_max = ONCE_MAX, .hosts = &hosts};
        query.block_bytes = cases[i].bytes;
        assert_string_equal(algo_select(&query, NULL, 0)->name, cases[i].name);
    }
}

static void by_name(void **state)
{
    (void)state;
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, "allreduce:slices"), "slices");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, "broadcast:pipeline,allreduce:doubling"), "doubling");
    assert_string_equal(chosen(COLLECTIVE_BROADCAST, 4, 8, "broadcast:pipeline,allreduce:doubling"), "pipeline");
    assert_string_equal(chosen(COLLECTIVE_REDUCE, 4, 8, "broadcast:pipeline,allreduce:doubling"), "read_all");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, "allreduce:ring"), "none");
    assert_non_null(strstr(why, "\"ring\" does not exist for allreduce"));
    assert_non_null(strstr(why, "read_all (1 to 16 ranks"));
    assert_non_null(strstr(why, "slices"));
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 17, 8, "allreduce:read_all"), "none");
    assert_non_null(strstr(why, "\"read_all\" cannot serve allreduce, 17 ranks"));
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, ONCE_MAX + 1, "allreduce:doubling"), "none");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, "allreduc:slices"), "none");
    assert_non_null(strstr(why, "allreduc:slices"));
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, "slices"), "none");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, "allreduce:"), "none");
    assert_string_equal(chosen(COLLECTIVE_ALLREDUCE, 4, 8, ""), "read_all");
}

static void no_room_for_words(void **state)
{
    struct algo_query query = {.collective = COLLECTIVE_ALLREDUCE, .size = 4, .block_bytes = 8, .once_max = ONCE_MAX};
    char small[4] = {1, 1, 1, 7};
    (void)state;
    assert_non_null(algo_select(&query, small, 3));
    assert_int_equal(small[3], 7);
    assert_non_null(algo_select(&query, NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thresholds),           cmocka_unit_test(scatters_of_few),        cmocka_unit_test(crowds_over_a_network),
        cmocka_unit_test(oversubscribed_scans), cmocka_unit_test(short_pieces_that_cost), cmocka_unit_test(two_ranks_where_pieces_cost),
        cmocka_unit_test(scans_over_hosts),     cmocka_unit_test(allreduces_over_hosts),  cmocka_unit_test(by_name),
        cmocka_unit_test(no_room_for_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
