/* The bucket room against mock public calls (mock_library.h). */
#define _GNU_SOURCE
#include "mock_library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

static int begin(void **state)
{
    (void)state;
    mock_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    return mock.taken != 0;
}

enum { SIZE = 4 };
struct model {
    float data[8][64];
    struct comm_gradient gradients[8];
    size_t count;
    struct comm_buckets *buckets;
};

/* Gradient i holds i + 1 throughout. */
static void model_fill(struct model *m)
{
    for (size_t i = 0; i < m->count; i++)
        for (size_t k = 0; k < m->gradients[i].count; k++)
            m->data[i][k] = (float)(i + 1);
}

static void model_make(struct model *m, const size_t *counts, size_t count, size_t bytes, size_t first_bytes)
{
    memset(m, 0, sizeof *m);
    m->count = count;
    for (size_t i = 0; i < count; i++)
        m->gradients[i] = (struct comm_gradient){m->data[i], counts[i], COMM_F32, 0};
    struct comm_bucket_options options = {.size = sizeof options, .bytes = bytes, .first_bytes = first_bytes};
    assert_int_equal(comm_buckets_create(mock_world, m->gradients, count, &options, &m->buckets), COMM_OK);
    model_fill(m);
}

static void model_expect(const struct model *m, size_t zeroed)
{
    for (size_t i = 0; i < m->count; i++)
        for (size_t k = 0; k < m->gradients[i].count; k++)
            assert_true(m->data[i][k] == (i == zeroed ? 0.0f : (float)(i + 1) / 2));
}

static void ready(struct model *m, size_t i)
{
    assert_int_equal(comm_buckets_ready(m->buckets, i), COMM_OK);
}

static void test_split_by_size_from_the_last(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){10, 64, 20, 5, 7, 3}, 6, 25 * SIZE, 10 * SIZE);
    for (size_t i = 6; i-- > 0;)
        ready(&m, i);
    /* {5,4} fill the small first bucket exactly; {3,2} the next; 1 is larger than a bucket; 0 is left. */
    size_t expected[] = {10, 25, 64, 10};
    assert_int_equal(mock.count, 4);
    for (size_t j = 0; j < 4; j++) {
        assert_int_equal(mock.calls[j].n, expected[j]);
        assert_int_equal(mock.calls[j].op, COMM_AVG);
    }
    assert_ptr_equal(mock.calls[2].at, m.data[1]); /* alone: reduced where it lies */
    assert_ptr_equal(mock.calls[3].at, m.data[0]);
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
    model_expect(&m, SIZE_MAX);
    comm_buckets_free(m.buckets);
}

static void test_order_is_the_models_not_the_callers(void **state)
{
    (void)state;
    const size_t orders[3][4] = {{0, 1, 2, 3}, {2, 0, 3, 1}, {3, 2, 1, 0}};
    for (size_t o = 0; o < 3; o++) {
        struct model m;
        model_make(&m, (size_t[]){11, 12, 13, 14}, 4, SIZE, SIZE);
        atomic_store(&mock.count, 0);
        for (size_t i = 0; i < 4; i++)
            ready(&m, orders[o][i]);
        assert_int_equal(mock.count, 4);
        for (size_t j = 0; j < 4; j++)
            assert_int_equal(mock.calls[j].n, 14 - j);
        comm_buckets_free(m.buckets);
    }
}

static void test_types_have_buckets_of_their_own(void **state)
{
    (void)state;
    float f[4] = {2, 2, 2, 2};
    double d[4] = {0};
    struct comm_gradient gradients[] = {
        {&f[0], 1, COMM_F32, 0}, {&d[0], 1, COMM_F64, 0}, {NULL, 0, COMM_F64, 0}, {&d[1], 1, COMM_F64, 0}, {&f[2], 2, COMM_F32, 0}};
    struct comm_buckets *b;
    assert_int_equal(comm_buckets_create(mock_world, gradients, 5, NULL, &b), COMM_OK);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(comm_buckets_ready(b, i), COMM_OK);
    /* The f32 bucket opened first, but the f64 one has its last member earlier in the backward pass. */
    assert_int_equal(mock.count, 2);
    assert_int_equal(mock.calls[0].type, COMM_F64);
    assert_int_equal(mock.calls[0].n, 2);
    assert_int_equal(mock.calls[1].type, COMM_F32);
    assert_int_equal(mock.calls[1].n, 3);
    assert_int_equal(comm_buckets_wait(b, 0), COMM_OK);
    assert_true(f[0] == 1 && f[1] == 2 && f[2] == 1 && f[3] == 1);
    comm_buckets_free(b);
}

static void test_twice_is_an_error_and_steps_repeat(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){1, 2, 3}, 3, 3 * SIZE, 3 * SIZE);
    for (int step = 0; step < 3; step++) {
        model_fill(&m);
        ready(&m, 1);
        assert_int_equal(comm_buckets_ready(m.buckets, 1), COMM_ERR_STATE);
        ready(&m, 2);
        ready(&m, 0);
        assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
        model_expect(&m, SIZE_MAX);
    }
    comm_buckets_free(m.buckets);
}

static void test_a_missing_gradient_counts_as_zeros(void **state)
{
    (void)state;
    for (size_t missing = 0; missing < 4; missing++) {
        struct model m;
        model_make(&m, (size_t[]){3, 4, 5, 30}, 4, 8 * SIZE, 8 * SIZE);
        for (size_t i = 0; i < 4; i++)
            if (i != missing)
                ready(&m, i);
        assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
        model_expect(&m, missing);
        comm_buckets_free(m.buckets);
    }
}

static void test_a_late_wait_goes_on(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){3, 4}, 2, 100 * SIZE, 100 * SIZE);
    mock.late = true;
    ready(&m, 1);
    assert_int_equal(comm_buckets_wait(m.buckets, 1000), COMM_PENDING);
    assert_int_equal(comm_buckets_ready(m.buckets, 0), COMM_ERR_STATE); /* its zeros are on their way */
    assert_int_equal(comm_buckets_wait(m.buckets, 0), COMM_PENDING);
    mock.in_callback = true;
    assert_int_equal(comm_buckets_wait(m.buckets, 1000), COMM_ERR_STATE);
    mock.in_callback = false;
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
    model_expect(&m, 0);
    assert_int_equal(mock.count, 1);
    comm_buckets_free(m.buckets);
}

static void test_a_full_queue_is_tried_again(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){1, 2, 3}, 3, SIZE, SIZE);
    mock.full_after = 1;
    for (size_t i = 3; i-- > 0;)
        ready(&m, i);
    assert_int_equal(mock.count, 1);
    assert_int_equal(comm_buckets_wait(m.buckets, 0), COMM_PENDING);
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
    assert_int_equal(mock.count, 3);
    model_expect(&m, SIZE_MAX);
    comm_buckets_free(m.buckets);
}

/* There is not even a marker to wait for: whoever waits moves what fills the queue himself, or says that it is full. */
static void test_a_full_queue_without_a_marker_is_no_endless_loop(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){1, 2, 3}, 3, SIZE, SIZE);
    mock.full_after = 1;
    mock.no_marker = true;
    for (size_t i = 3; i-- > 0;)
        ready(&m, i);
    assert_int_equal(comm_buckets_wait(m.buckets, 0), COMM_PENDING);
    assert_int_equal(comm_buckets_wait(m.buckets, 1000), COMM_ERR_FULL);
    assert_int_equal(comm_buckets_ready(m.buckets, 0), COMM_ERR_STATE); /* the step is still under way */
    mock.progress_left = 10;
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
    assert_int_equal(mock.count, 3);
    model_expect(&m, SIZE_MAX);
    comm_buckets_free(m.buckets);
}

static void test_a_refusal_is_the_result_of_wait(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){1, 2, 3}, 3, SIZE, SIZE);
    mock.refuse_at = 2;
    for (size_t i = 3; i-- > 0;)
        ready(&m, i);
    assert_int_equal(mock.count, 3); /* the order goes on behind it, as on the other ranks */
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_ERR_UNSUPPORTED);
    model_fill(&m);
    mock.refuse_at = 0;
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK); /* the next step is a clean one */
    comm_buckets_free(m.buckets);
}

static void test_arguments(void **state)
{
    (void)state;
    struct {
        struct comm_bucket_options known;
        uint64_t tail;
    } newer = {{.size = sizeof newer}, 0};
    float data[2] = {0};
    struct comm_gradient good = {data, 2, COMM_F32, 0}, bad = good;
    struct comm_buckets *b = NULL;
    assert_int_equal(comm_buckets_create(NULL, &good, 1, NULL, &b), COMM_ERR_ARGUMENT);
    assert_int_equal(comm_buckets_create(mock_world, NULL, 1, NULL, &b), COMM_ERR_ARGUMENT);
    bad.type = (enum comm_type)3;
    assert_int_equal(comm_buckets_create(mock_world, &bad, 1, NULL, &b), COMM_ERR_ARGUMENT);
    bad = good;
    bad.data = NULL;
    assert_int_equal(comm_buckets_create(mock_world, &bad, 1, NULL, &b), COMM_ERR_ARGUMENT);
    bad = good;
    bad.count = SIZE_MAX / 2;
    assert_int_equal(comm_buckets_create(mock_world, &bad, 1, NULL, &b), COMM_ERR_ARGUMENT);
    bad.count = PTRDIFF_MAX / 4;
    assert_int_equal(comm_buckets_create(mock_world, &bad, 1, NULL, &b), COMM_ERR_MEMORY);
    newer.tail = 1;
    assert_int_equal(comm_buckets_create(mock_world, &good, 1, &newer.known, &b), COMM_ERR_UNSUPPORTED);
    newer.tail = 0;
    newer.known.adopt = 3;
    assert_int_equal(comm_buckets_create(mock_world, &good, 1, &newer.known, &b), COMM_ERR_ARGUMENT);
    assert_null(b);
    newer.known.adopt = 0;
    assert_int_equal(comm_buckets_create(mock_world, &good, 1, &newer.known, &b), COMM_OK);
    void *at;
    assert_int_equal(comm_buckets_ready(b, 1), COMM_ERR_ARGUMENT);
    assert_int_equal(comm_buckets_wait(b, -1), COMM_ERR_ARGUMENT);
    assert_int_equal(comm_buckets_data(b, 1, &at), COMM_ERR_ARGUMENT);
    assert_int_equal(comm_buckets_data(b, 0, NULL), COMM_ERR_ARGUMENT);
    assert_int_equal(comm_buckets_data(b, 0, &at), COMM_OK);
    assert_ptr_equal(at, data);
    assert_int_equal(comm_buckets_hold(b, 2), COMM_ERR_ARGUMENT);
    assert_int_equal(comm_buckets_hold(NULL, 1), COMM_ERR_ARGUMENT);
    comm_buckets_free(b);
    comm_buckets_free(NULL);
    assert_int_equal(comm_buckets_create(mock_world, NULL, 0, NULL, &b), COMM_OK);
    assert_int_equal(comm_buckets_wait(b, 0), COMM_OK);
    comm_buckets_free(b);
}

/* Adopted gradients are the buckets' own memory, also the one that is alone in its bucket: reduced where they lie, zeros when not made. */
static void test_adopted_gradients_live_in_the_buckets(void **state)
{
    (void)state;
    struct comm_gradient gradients[4] = {{NULL, 3, COMM_F32, 0}, {NULL, 5, COMM_F32, 0}, {NULL, 0, COMM_F32, 0}, {NULL, 64, COMM_F32, 0}};
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 40 * SIZE, .first_bytes = 40 * SIZE, .adopt = 1};
    struct comm_buckets *b;
    float *at[4];
    assert_int_equal(comm_buckets_create(mock_world, gradients, 4, &options, &b), COMM_OK);
    for (size_t i = 0; i < 4; i++) {
        void *data;
        assert_int_equal(comm_buckets_data(b, i, &data), COMM_OK);
        at[i] = data;
        for (size_t k = 0; k < gradients[i].count; k++)
            assert_true(at[i][k] == 0.0f);
    }
    assert_null(at[2]);
    for (int step = 1; step < 4; step++) {
        atomic_store(&mock.count, 0);
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < gradients[i].count; k++)
                at[i][k] = (float)(step * 8 + (int)i);
        assert_int_equal(comm_buckets_ready(b, 3), COMM_OK);
        assert_int_equal(comm_buckets_ready(b, 0), COMM_OK);
        assert_int_equal(comm_buckets_wait(b, COMM_FOREVER), COMM_OK);
        assert_int_equal(mock.count, 2);
        assert_ptr_equal(mock.calls[0].at, at[3]);
        for (size_t k = 0; k < 3; k++)
            assert_true(at[0][k] == (float)(step * 8) / 2 && at[1][k] == 0.0f);
        assert_true(at[3][63] == (float)(step * 8 + 3) / 2);
    }
    comm_buckets_free(b);
}

/* Held steps reduce nothing and lose nothing: what was ready in one of them counts when steps are reduced again. */
static void test_held_steps_accumulate(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){3, 4, 50, 6}, 4, 20 * SIZE, 20 * SIZE);
    assert_int_equal(comm_buckets_hold(m.buckets, 1), COMM_OK);
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < 3; i++)
            ready(&m, i);
        assert_int_equal(comm_buckets_ready(m.buckets, 0), COMM_ERR_STATE);
        assert_int_equal(comm_buckets_hold(m.buckets, 0), COMM_ERR_STATE); /* in the middle of a step */
        assert_int_equal(comm_buckets_wait(m.buckets, 0), COMM_OK);
        assert_int_equal(mock.count, 0);
        for (size_t i = 0; i < 4; i++)
            assert_true(m.data[i][0] == (float)(i + 1));
    }
    assert_int_equal(comm_buckets_hold(m.buckets, 0), COMM_OK);
    ready(&m, 0);
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
    model_expect(&m, 3); /* never ready */
    model_fill(&m);
    ready(&m, 0);
    ready(&m, 2);
    ready(&m, 3);
    assert_int_equal(comm_buckets_wait(m.buckets, COMM_FOREVER), COMM_OK);
    model_expect(&m, 1); /* what was held has been used up */
    comm_buckets_free(m.buckets);
}

static void test_free_waits_for_a_step_under_way(void **state)
{
    (void)state;
    struct model m;
    model_make(&m, (size_t[]){3, 4}, 2, SIZE, SIZE);
    mock.late = true;
    ready(&m, 1);
    comm_buckets_free(m.buckets);
    assert_false(mock.late);
}

enum { THREADS = 4, MANY = 256, STEPS = 200 };
struct crowd {
    struct comm_buckets *buckets;
    pthread_barrier_t barrier;
    float data[MANY];
    _Atomic uint32_t failures;
};
struct crowd_member {
    struct crowd *crowd;
    size_t number;
};

/* Every thread makes its share ready, each in another order; member 0 then waits for all. */
static void *crowd_run(void *arg)
{
    struct crowd_member *me = arg;
    struct crowd *crowd = me->crowd;
    for (int step = 0; step < STEPS; step++) {
        for (size_t k = 0; k < MANY / THREADS; k++) {
            size_t at = (k * 37 + (size_t)step) % (MANY / THREADS) * THREADS + me->number;
            crowd->data[at] = (float)(at + 1);
            if (comm_buckets_ready(crowd->buckets, at) != COMM_OK)
                crowd->failures++;
        }
        pthread_barrier_wait(&crowd->barrier);
        if (me->number == 0) {
            atomic_store(&mock.count, 0);
            if (comm_buckets_wait(crowd->buckets, COMM_FOREVER) != COMM_OK || mock.count != 0)
                crowd->failures++;
            for (size_t i = 0; i < MANY; i++)
                crowd->failures += crowd->data[i] != (float)(i + 1) / 2;
        }
        pthread_barrier_wait(&crowd->barrier);
    }
    return NULL;
}

static void test_any_thread_may_say_ready(void **state)
{
    (void)state;
    static struct crowd crowd;
    struct comm_gradient gradients[MANY];
    struct crowd_member members[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < MANY; i++)
        gradients[i] = (struct comm_gradient){&crowd.data[i], 1, COMM_F32, 0};
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 5 * SIZE};
    options.first_bytes = 2 * SIZE;
    assert_int_equal(comm_buckets_create(mock_world, gradients, MANY, &options, &crowd.buckets), COMM_OK);
    pthread_barrier_init(&crowd.barrier, NULL, THREADS);
    for (size_t t = 0; t < THREADS; t++) {
        members[t] = (struct crowd_member){&crowd, t};
        assert_int_equal(pthread_create(&threads[t], NULL, crowd_run, &members[t]), 0);
    }
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(crowd.failures, 0);
    comm_buckets_free(crowd.buckets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_split_by_size_from_the_last, begin, end),
        cmocka_unit_test_setup_teardown(test_order_is_the_models_not_the_callers, begin, end),
        cmocka_unit_test_setup_teardown(test_types_have_buckets_of_their_own, begin, end),
        cmocka_unit_test_setup_teardown(test_twice_is_an_error_and_steps_repeat, begin, end),
        cmocka_unit_test_setup_teardown(test_a_missing_gradient_counts_as_zeros, begin, end),
        cmocka_unit_test_setup_teardown(test_a_late_wait_goes_on, begin, end),
        cmocka_unit_test_setup_teardown(test_a_full_queue_is_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(test_a_full_queue_without_a_marker_is_no_endless_loop, begin, end),
        cmocka_unit_test_setup_teardown(test_a_refusal_is_the_result_of_wait, begin, end),
        cmocka_unit_test_setup_teardown(test_arguments, begin, end),
        cmocka_unit_test_setup_teardown(test_adopted_gradients_live_in_the_buckets, begin, end),
        cmocka_unit_test_setup_teardown(test_held_steps_accumulate, begin, end),
        cmocka_unit_test_setup_teardown(test_free_waits_for_a_step_under_way, begin, end),
        cmocka_unit_test_setup_teardown(test_any_thread_may_say_ready, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
