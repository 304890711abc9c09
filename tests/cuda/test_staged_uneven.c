/*
 * Long allgather_v and reduce_scatter_v on device buffers of a host backend, in parts: blocks of every proportion, against the oracle, on
 * the device or on the host, and what ranks must decide alike. All ranks are in this process, on one mock device.
 */
#include "mock_everywhere.h"
#include "staged_job.h"
#include "selection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 5, MIB = 1 << 20, ROW = 32 << 10, PARTS_MOST = 16 };
static const enum job_kind kinds[] = {JOB_ALLGATHER_V, JOB_REDUCE_SCATTER_V};
static struct rig rig;

/* ------------------------------------------------------------------------------------------------------------ every layout */
/* How the elements are distributed to the ranks. */
enum pattern { EVEN, STAIRS, EVERY_SECOND, FIRST_HAS_ALL, LAST_HAS_ALL, ONE_ELEMENT_BESIDE, PATTERNS };

static size_t weight(enum pattern pattern, int32_t ranks, int32_t r)
{
    switch (pattern) {
    case EVEN:
        return 1;
    case STAIRS:
        return (size_t)r + 1;
    case EVERY_SECOND:
        return (size_t)((r + ranks) % 2);
    case FIRST_HAS_ALL:
        return r == 0;
    default:
        return r == ranks - 1;
    }
}

static void distribute(enum pattern pattern, int32_t ranks, size_t elements, size_t *counts)
{
    size_t all = 0;

    for (int32_t r = 0; r < ranks; r++)
        all += weight(pattern, ranks, r);
    for (int32_t r = 0; r < ranks; r++)
        counts[r] = elements * weight(pattern, ranks, r) / all + (pattern == ONE_ELEMENT_BESIDE);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* So many parts, each with 1 MiB and 32 KiB of each block on average. */
static uint64_t parts_expected(const size_t *counts, int32_t ranks, size_t element)
{
    size_t bytes = 0, blocks = 0;

    for (int32_t r = 0; r < ranks; r++) {
        bytes += counts[r] * element;
        blocks += counts[r] != 0;
    }
    size_t parts = smaller(smaller(bytes / (MIB + PARTS_MOST * blocks * element), bytes / (blocks * ROW)), PARTS_MOST);
    return parts > 1 ? parts : 1;
}

static void run(struct job_shape shape, const size_t *counts, uint64_t parts)
{
    shape.counts = counts;
    EQUAL(staged_job_run(&rig, &shape, ON_DEVICE), parts);
}

static void every_layout_of(int32_t ranks, size_t bytes)
{
    uint64_t seed = 1000 * (uint64_t)ranks;
    size_t counts[RANKS_MOST];

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            for (int in_place = 0; in_place < 2; in_place++) {
                seed++;
                if (!selection_all() && (pattern + ranks + in_place + (int)k) % (rig_quick() ? 4 : 2))
                    continue;
                distribute((enum pattern)pattern, ranks, bytes / sizeof(float) + 77, counts);
                run((struct job_shape){.kind = kinds[k], .type = COMM_F32, .op = COMM_SUM, .in_place = in_place, .seed = seed}, counts,
                    parts_expected(counts, ranks, sizeof(float)));
            }
}

RIG_TEST(every_layout_in_a_few_parts)
{
    for (int32_t ranks = 1; ranks <= RANKS_MOST; ranks++) {
        rig_open(&rig, ranks, NULL);
        every_layout_of(ranks, 3 * MIB + MIB / 2);
        rig_close(&rig);
    }
}

RIG_TEST(every_layout_in_more_parts_than_run_at_once)
{
    for (int32_t ranks = rig_quick() ? 3 : 2; ranks <= 3; ranks++) {
        rig_open(&rig, ranks, NULL);
        every_layout_of(ranks, 7 * MIB);
        rig_close(&rig);
    }
}

RIG_TEST(every_layout_on_a_device_that_is_late)
{
    mock_late(3);
    rig_open(&rig, 4, NULL);
    every_layout_of(4, 3 * MIB);
    rig_close(&rig);
}

/* Elements of 1 to 16 bytes, with results that depend on the order of operands: the oracle has the bits. */
RIG_TEST(every_type_has_the_bits_of_the_host)
{
    static const struct {
        enum comm_type type;
        comm_op op;
    } sums[] = {{COMM_F16, COMM_SUM}, {COMM_BF16, COMM_AVG}, {COMM_F64, COMM_PROD}, {COMM_C128, COMM_SUM}, {COMM_U8, COMM_MAX}};
    size_t counts[RANKS_MOST];

    rig_open(&rig, RANKS_MOST, NULL);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            size_t element = oracle_type_bytes(sums[i].type);
            distribute(i % 2 ? STAIRS : EVERY_SECOND, RANKS_MOST, (3 * MIB + MIB / 4) / element, counts);
            run((struct job_shape){.kind = kinds[k], .type = sums[i].type, .op = sums[i].op, .in_place = i % 2 == k, .seed = i + 1}, counts,
                parts_expected(counts, RANKS_MOST, element));
        }
    rig_close(&rig);
}

/* One rank has all, so the bytes of its blocks are those of the parts. */
RIG_TEST(parts_are_equally_long)
{
    enum { RANKS = 3, PARTS = 5 };
    size_t n = (size_t)PARTS * (MIB + PARTS_MOST) + 3;
    const size_t counts[RANKS] = {0, n, 0};
    struct comm_request before[RANKS], q[RANKS];
    char *in = mock_take(n), *out[RANKS];

    rig_open(&rig, RANKS, NULL);
    staged_job_mark(&rig, before);
    for (int r = 0; r < RANKS; r++) {
        out[r] = mock_take(n);
        MUST(comm_allgather_v(rig.world[r], r == 1 ? in : NULL, out[r], counts, NULL, COMM_BYTE, &q[r]));
    }
    rig_wait_all(q, RANKS);
    EQUAL(staged_job_parts(&rig, before, q), PARTS);
    for (uint64_t i = 1; i < PARTS; i++) {
        struct comm_request_info info = {.size = sizeof info};
        MUST(comm_describe_request((struct comm_request){q[0].comm, before[0].ticket + i}, &info));
        EQUAL(info.bytes, (n + PARTS - 1) / PARTS);
    }
    rig_close(&rig);
    mock_give(in);
    for (int r = 0; r < RANKS; r++)
        mock_give(out[r]);
}

/* ------------------------------------------------------------------------------------------------------------ which buffers */
/* If no block is empty, each rank has both buffers, and one on the device is enough. */
RIG_TEST(buffers_of_the_host_beside_those_of_the_device)
{
    const size_t counts[] = {MIB / 4, MIB / 2 + 7, 77777};

    rig_open(&rig, 3, NULL);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int sides = IN_ON_DEVICE; sides <= OUT_ON_DEVICE; sides++) {
            struct job_shape shape = {.kind = kinds[k], .type = COMM_I32, .op = COMM_SUM, .counts = counts};
            for (shape.seed = 1; shape.seed <= 3; shape.seed++)
                EQUAL(staged_job_run(&rig, &shape, sides), parts_expected(counts, 3, 4));
        }
    rig_close(&rig);
}

/* A rank that gives nothing has no input, and so none on the device. */
RIG_TEST(a_rank_without_a_block)
{
    const size_t counts[] = {MIB / 2, 0, MIB / 4}, all = MIB / 2 + MIB / 4;
    struct comm_request before[3], q[3];
    int32_t *device = mock_take(all * sizeof(int32_t)), *host[3];

    rig_open(&rig, 3, NULL);
    for (size_t i = 0; i < all; i++)
        ((int32_t *)mock_peek(device))[i] = (int32_t)i;
    for (int r = 0; r < 3; r++) {
        host[r] = calloc(all, sizeof **host);
        CHECK(host[r]);
    }
    staged_job_mark(&rig, before);
    for (int r = 0; r < 3; r++)
        MUST(comm_allgather_v(rig.world[r], r == 1 ? NULL : device + (r == 2 ? MIB / 2 : 0), host[r], counts, NULL, COMM_I32, &q[r]));
    rig_wait_all(q, 3);
    EQUAL(staged_job_parts(&rig, before, q), 1);
    for (int r = 0; r < 3; r++)
        CHECK(memcmp(host[r], mock_peek(device), all * sizeof(int32_t)) == 0);
    staged_job_mark(&rig, before);
    for (int r = 0; r < 3; r++)
        MUST(comm_reduce_scatter_v(rig.world[r], host[r], r == 1 ? NULL : device + (r == 2 ? MIB / 2 : 0), counts, COMM_I32, COMM_SUM,
                                   &q[r]));
    rig_wait_all(q, 3);
    EQUAL(staged_job_parts(&rig, before, q), 1);
    for (size_t i = 0; i < all; i++)
        CHECK(((int32_t *)mock_peek(device))[i] == 3 * (int32_t)i);
    rig_close(&rig);
    for (int r = 0; r < 3; r++)
        free(host[r]);
    mock_give(device);
}

/* Blocks that overlap need more room in a stage than in the caller's buffer, right behind which the input is. All ranks give the same bytes
 * for the same place. */
RIG_TEST(blocks_that_overlap)
{
    enum { RANKS = 3, N = MIB };
    const size_t counts[RANKS] = {N, N / 4 * 3, N / 4 * 3}, displs[RANKS] = {0, N / 4, N / 4};
    struct comm_request before[RANKS], q[RANKS];
    char *out[RANKS];

    rig_open(&rig, RANKS, NULL);
    staged_job_mark(&rig, before);
    for (int r = 0; r < RANKS; r++) {
        out[r] = mock_take(2 * N);
        for (size_t i = 0; i < N; i++)
            ((char *)mock_peek(out[r]))[N + i] = (char)(i * 7 + i / 251);
        MUST(comm_allgather_v(rig.world[r], out[r] + N + displs[r], out[r], counts, displs, COMM_BYTE, &q[r]));
    }
    rig_wait_all(q, RANKS);
    EQUAL(staged_job_parts(&rig, before, q), 2);
    for (int r = 0; r < RANKS; r++) {
        CHECK(memcmp(mock_peek(out[r]), (char *)mock_peek(out[r]) + N, N) == 0);
        mock_give(out[r]);
    }
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ what differs */
/* Rank 1 has its buffers on the host, or other counts. All ranks get MISMATCH; nothing hangs. */
static void differs(enum job_kind kind, bool on_host)
{
    enum { RANKS = 3 };
    size_t n = MIB, counts[RANKS] = {n / 2, n / 2, n}, others[RANKS] = {n / 2, n, n / 2};
    struct comm_request q[RANKS];
    struct comm_error error = {.size = sizeof error};
    int32_t *host = calloc(4 * n, sizeof *host), *device[RANKS];

    CHECK(host);
    rig_open(&rig, RANKS, NULL);
    for (int r = 0; r < RANKS; r++) { /* a later rank may get the error here */
        device[r] = mock_take(4 * n * sizeof(int32_t));
        int32_t *in = r == 1 && on_host ? host : device[r];
        const size_t *mine = r == 1 && !on_host ? others : counts;
        if (kind == JOB_ALLGATHER_V)
            (void)!comm_allgather_v(rig.world[r], in, in + 2 * n, mine, NULL, COMM_I32, &q[r]);
        else
            (void)!comm_reduce_scatter_v(rig.world[r], in, in + 2 * n, mine, COMM_I32, COMM_SUM, &q[r]);
    }
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, job_kind_names[kind]));
    for (int r = 0; r < RANKS; r++) {
        (void)!comm_close(rig.world[r], RIG_PATIENCE);
        mock_give(device[r]);
    }
    free(host);
}

RIG_TEST(one_rank_with_buffers_of_the_host)
{
    differs(JOB_ALLGATHER_V, true);
    differs(JOB_REDUCE_SCATTER_V, true);
}

RIG_TEST(one_rank_with_other_counts)
{
    differs(JOB_ALLGATHER_V, false);
    differs(JOB_REDUCE_SCATTER_V, false);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_in_a_few_parts),
        cmocka_unit_test(every_layout_in_more_parts_than_run_at_once),
        cmocka_unit_test(every_layout_on_a_device_that_is_late),
        cmocka_unit_test(every_type_has_the_bits_of_the_host),
        cmocka_unit_test(parts_are_equally_long),
        cmocka_unit_test(buffers_of_the_host_beside_those_of_the_device),
        cmocka_unit_test(a_rank_without_a_block),
        cmocka_unit_test(blocks_that_overlap),
        cmocka_unit_test(one_rank_with_buffers_of_the_host),
        cmocka_unit_test(one_rank_with_other_counts),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_staged_uneven", tests, NULL, NULL);
}
