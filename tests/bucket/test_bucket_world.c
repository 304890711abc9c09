/* Buckets over the library itself: four ranks in this process, each making its gradients ready in an order of its own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <commstream/comm.h>

enum { RANKS = 4, GRADIENTS = 12, ELEMENTS = 3000, STEPS = 20 };

struct member {
    struct comm_communicator *world;
    struct comm_buckets *buckets;
    struct comm_gradient gradients[GRADIENTS];
    float f[GRADIENTS][ELEMENTS];
    double d[GRADIENTS][ELEMENTS];
};

/* Every third gradient is of doubles; sizes differ, so that buckets hold one or several. */
static size_t elements(size_t i)
{
    return 1 + i * 251 % ELEMENTS;
}

static double value(int rank, size_t i, int step)
{
    return (double)(rank * 16 + (int)i + step);
}

static struct member *members_open(size_t bytes)
{
    struct comm_communicator *worlds[RANKS];
    struct member *members = calloc(RANKS, sizeof *members);
    assert_non_null(members);
    assert_int_equal(comm_open_local(NULL, RANKS, NULL, worlds), COMM_OK);
    for (int r = 0; r < RANKS; r++) {
        struct member *me = &members[r];
        me->world = worlds[r];
        for (size_t i = 0; i < GRADIENTS; i++)
            me->gradients[i] =
                (struct comm_gradient){i % 3 == 0 ? (void *)me->d[i] : (void *)me->f[i], elements(i), i % 3 == 0 ? COMM_F64 : COMM_F32, 0};
        struct comm_bucket_options options = {.size = sizeof options, .bytes = bytes};
        options.first_bytes = bytes / 2;
        assert_int_equal(comm_buckets_create(me->world, me->gradients, GRADIENTS, &options, &me->buckets), COMM_OK);
    }
    return members;
}

/* Half of them give up the communicator before the buckets: any closing order is fine. */
static void members_close(struct member *members)
{
    for (int r = 0; r < RANKS; r++) {
        if (r % 2 == 0)
            comm_buckets_free(members[r].buckets);
        assert_int_equal(comm_close(members[r].world, COMM_DEFAULT_TIMEOUT), COMM_OK);
        if (r % 2 != 0)
            comm_buckets_free(members[r].buckets);
    }
    free(members);
}

static void fill(struct member *me, int rank, int step)
{
    for (size_t i = 0; i < GRADIENTS; i++) {
        for (size_t k = 0; k < elements(i); k++) {
            me->f[i][k] = (float)value(rank, i, step);
            me->d[i][k] = value(rank, i, step);
        }
    }
}

static void expect_all(const struct member *me, size_t i, double wanted)
{
    for (size_t k = 0; k < elements(i); k++)
        assert_true((i % 3 == 0 ? me->d[i][k] : (double)me->f[i][k]) == wanted);
}

/* In each step one rank leaves one gradient out, which then counts as zeros there and gets the result all the same. */
static void test_averages_whatever_the_order(void **state)
{
    (void)state;
    const size_t strides[RANKS] = {1, 5, 7, 11}; /* without a common divisor with GRADIENTS: orders of all gradients */
    const size_t bytes[] = {64, 8000, 1 << 20};
    for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++) {
        struct member *members = members_open(bytes[b]);
        for (int step = 0; step < STEPS; step++) {
            int lazy = step % RANKS;
            size_t left = (size_t)step % GRADIENTS;
            for (int r = 0; r < RANKS; r++)
                fill(&members[r], r, step);
            for (size_t n = 0; n < GRADIENTS; n++) {
                for (int r = 0; r < RANKS; r++) {
                    size_t i = (n * strides[r] + (size_t)step) % GRADIENTS;
                    if (r != lazy || i != left)
                        assert_int_equal(comm_buckets_ready(members[r].buckets, i), COMM_OK);
                }
            }
            /* The rank that left one out gives its zeros when it waits, so nobody else can be done before. */
            enum comm_result late = comm_buckets_wait(members[lazy].buckets, 0);
            for (int r = 0; r < RANKS; r++)
                if (r != lazy)
                    assert_int_equal(comm_buckets_wait(members[r].buckets, COMM_FOREVER), COMM_OK);
            if (late == COMM_PENDING)
                late = comm_buckets_wait(members[lazy].buckets, COMM_FOREVER);
            assert_int_equal(late, COMM_OK);
            for (size_t i = 0; i < GRADIENTS; i++) {
                double sum = 0;
                for (int r = 0; r < RANKS; r++)
                    sum += r == lazy && i == left ? 0 : value(r, i, step);
                for (int r = 0; r < RANKS; r++)
                    expect_all(&members[r], i, sum / RANKS);
            }
        }
        members_close(members);
    }
}

static void test_a_refused_pair_is_told_by_wait(void **state)
{
    (void)state;
    struct comm_communicator *world;
    struct comm_buckets *buckets;
    int32_t data[4] = {1, 2, 3, 4};
    struct comm_gradient gradient = {data, 4, COMM_I32, 0};
    assert_int_equal(comm_open_local(NULL, 1, NULL, &world), COMM_OK);
    assert_int_equal(comm_buckets_create(world, &gradient, 1, NULL, &buckets), COMM_OK);
    assert_int_equal(comm_buckets_ready(buckets, 0), COMM_OK);
    assert_int_equal(comm_buckets_wait(buckets, COMM_FOREVER), COMM_ERR_UNSUPPORTED); /* no average of integers */
    comm_buckets_free(buckets);
    assert_int_equal(comm_close(world, COMM_DEFAULT_TIMEOUT), COMM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_averages_whatever_the_order),
        cmocka_unit_test(test_a_refused_pair_is_told_by_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
