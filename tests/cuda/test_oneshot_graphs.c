/*
 * Backend cuda in streams of the program's: allreduces on a comm_dup with options.stream, in the order of the stream, and captured in CUDA
 * graphs that are launched many times. All ranks are in this process. A launch that is missing, doubled or out of order shows as wrong
 * data.
 */
#define _GNU_SOURCE
#include "sides.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAUNCHES = 1000, WORDS = 24, LONG = 50000 };

static void open_all(const struct mock_options *options, int64_t timeout_ns)
{
    sides_open(options, COMM_CONFIG(.backend = "cuda", .operation_timeout_ns = timeout_ns), LONG);
    for (int r = 0; r < SIDES; r++) {
        struct comm_info info = {.size = sizeof info};
        MUST(comm_describe(sides[r].comm, &info));
        CHECK(info.fixed_order);
    }
}

/* ------------------------------------------------------------------------------------------------------------ launches */
static void launches(uint64_t seed, size_t words, int count)
{
    uint32_t want = 1;

    rig_note("seed %llu", (unsigned long long)seed);
    open_all(&(struct mock_options){.seed = seed, .queues = 8, .island = seed % 2}, 60 * RIG_S); /* 1: devices do not reach each other */
    sides_fill(want, LONG);
    sides_sum(words);
    want *= SIDES;
    sides_capture_sum(words);
    for (int r = 0; r < SIDES; r++) /* the capture itself has computed nothing */
        EQUAL(sides_word(r, sides[r].in), want);
    for (int i = 0; i < count; i++) {
        sides_launch();
        want *= SIDES;
        if (i % 100 == 50) {
            sides_sum(words);
            want *= SIDES;
        }
    }
    for (int r = 0; r < SIDES; r++)
        EQUAL(sides_word(r, sides[r].in), want);
    struct mock_launches launched = mock_launched();
    EQUAL(launched.by_devices, seed % 2 ? 0 : launched.all);
    sides_close(false);
}

RIG_TEST(a_graph_is_launched_a_thousand_times)
{
    launches(1, WORDS, LAUNCHES);
    for (uint64_t seed = 2; seed <= rig_thin(10, 4, 2); seed++)
        launches(seed, 2000, 60); /* two parts */
}

/* ------------------------------------------------------------------------------------------------------------ the order of the stream */
RIG_TEST(calls_are_ordered_by_the_stream)
{
    open_all(&(struct mock_options){.seed = 2, .queues = 8}, 30 * RIG_S);
    for (uint32_t round = 1; round <= 50; round++) {
        sides_fill(round, LONG);
        for (int r = 0; r < SIDES; r++)
            MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, NULL));
        for (int r = 0; r < SIDES; r++)
            EQUAL(sides_word(r, sides[r].out), SIDES * round);
    }
    sides_close(false);
}

/* Another stream waits for a request, without the host. */
RIG_TEST(another_stream_waits)
{
    struct comm_request request[SIDES];

    open_all(&(struct mock_options){.seed = 2, .queues = 32}, 30 * RIG_S);
    struct CUstream_st *other = bench_stream(&sides[0].bench);
    for (uint32_t round = 1; round <= 20; round++) {
        sides_fill(round, LONG);
        for (int r = 0; r < SIDES; r++)
            MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &request[r]));
        MUST(comm_stream_wait_request(other, request[0]));
        uint32_t word;
        bench_read(&sides[0].bench, other, &word, sides[0].out, 1);
        EQUAL(word, SIDES * round);
        rig_wait_all(request, SIDES);
    }
    bench_drop_stream(&sides[0].bench, other);
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ longer than a mailbox */
/* Every word of the inputs is another one, so that a piece at the wrong place shows. */
static uint32_t word_of(int rank, size_t at)
{
    return (uint32_t)(at * 7 + (size_t)rank * 1000003);
}

static void put_words(void)
{
    static uint32_t words[LONG];

    for (int r = 0; r < SIDES; r++) {
        for (size_t i = 0; i < LONG; i++)
            words[i] = word_of(r, i);
        bench_copy(&sides[r].bench, sides[r].stream, sides[r].in, words, sizeof words);
        (void)sides_word(r, sides[r].in); /* `words` has been read */
    }
}

/* The first `n` words are the sums, times `times`, and those behind are still the rank's own. */
static void check_words(const uint32_t *(*of)(int rank), size_t n, uint32_t times, bool in_place)
{
    static uint32_t words[LONG];

    for (int r = 0; r < SIDES; r++) {
        bench_read(&sides[r].bench, sides[r].stream, words, of(r), LONG);
        for (size_t i = 0; i < LONG; i++) {
            uint32_t sum = 0;
            for (int k = 0; k < SIDES; k++)
                sum += word_of(k, i);
            if (i < n ? words[i] != sum * times : in_place && words[i] != word_of(r, i))
                rig_die(__FILE__, __LINE__, "n=%zu: rank %d: word %zu is %u", n, r, i, words[i]);
        }
    }
}
static const uint32_t *in_of(int rank)
{
    return sides[rank].in;
}
static const uint32_t *out_of(int rank)
{
    return sides[rank].out;
}

RIG_TEST(longer_than_a_mailbox)
{
    static const size_t lengths[] = {16384, 16385, 20001, 2 * 16384, 49999, LONG};

    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        size_t n = lengths[k];
        open_all(&(struct mock_options){.seed = k + 1, .queues = 8, .island = k % 2}, 60 * RIG_S);
        put_words();
        for (int r = 0; r < SIDES; r++)
            MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, n, COMM_U32, COMM_SUM, NULL));
        check_words(out_of, n, 1, false);
        sides_sum(n);
        check_words(in_of, n, 1, true);
        sides_capture_sum(n);
        uint32_t times = 1;
        for (int i = 0; i < 10; i++, times *= SIDES)
            sides_launch();
        check_words(in_of, n, times, true);
        sides_close(false);
    }
}

/* ------------------------------------------------------------------------------------------------------------ without a reduction */
/* Bytes, so that blocks may begin anywhere. */
static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)(at * 7 + at / 251 + (size_t)rank * 91 + 1);
}

static void put_bytes(void)
{
    static unsigned char bytes[LONG * 4];

    for (int r = 0; r < SIDES; r++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = byte_of(r, i);
        bench_copy(&sides[r].bench, sides[r].stream, sides[r].in, bytes, sizeof bytes);
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].out, 0, LONG);
        (void)sides_word(r, sides[r].in); /* `bytes` has been read */
    }
}

static void check_bytes(int r, const uint32_t *memory, size_t from, size_t n, int rank, const char *what)
{
    static unsigned char bytes[LONG * 4];

    bench_read(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)bytes, memory, LONG);
    for (size_t i = 0; i < n; i++)
        if (bytes[from + i] != byte_of(rank, i))
            rig_die(__FILE__, __LINE__, "%s, n=%zu: rank %d: byte %zu of rank %d is wrong", what, n, r, i, rank);
}

/* calls: 0: allgather; 1 + r: a broadcast from rank r. */
static void move(int call, size_t n, bool in_place)
{
    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        char *out = (char *)s->out, *mine = out + (size_t)r * n;
        if (call == 0 && in_place)
            bench_copy(&s->bench, s->stream, mine, s->in, n);
        if (call == 0)
            MUST(comm_allgather(s->comm, in_place ? COMM_IN_PLACE : (void *)s->in, out, n, COMM_U8, NULL));
        else
            MUST(comm_broadcast(s->comm, s->in, n, COMM_U8, call - 1, NULL));
    }
}

static void check_moved(int call, size_t n)
{
    for (int r = 0; r < SIDES; r++) {
        for (int k = 0; k < SIDES && call == 0; k++)
            check_bytes(r, sides[r].out, (size_t)k * n, n, k, "allgather");
        if (call)
            check_bytes(r, sides[r].in, 0, n, call - 1, "broadcast");
    }
}

RIG_TEST(allgathers_and_broadcasts)
{
    static const size_t lengths[] = {1, 33, 4096, 65536, 65537};

    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        open_all(&(struct mock_options){.seed = k + 1, .queues = 8, .island = k % 2}, 60 * RIG_S);
        for (int call = 0; call <= SIDES; call++) {
            put_bytes();
            move(call, lengths[k], false);
            check_moved(call, lengths[k]);
            put_bytes();
            move(call, lengths[k], true);
            check_moved(call, lengths[k]);
        }
        sides_close(false);
    }
}

/* Three kernels for the longest. In place the result replaces this rank's block. */
RIG_TEST(reduce_scatters)
{
    static const size_t lengths[] = {1, 1025, 5460, 5461, 16001};
    static uint32_t words[LONG];

    for (size_t k = 0; k < 2 * sizeof lengths / sizeof *lengths; k++) {
        size_t n = lengths[k / 2];
        bool in_place = k % 2;
        open_all(&(struct mock_options){.seed = k + 1, .queues = 8, .island = k % 2}, 60 * RIG_S);
        put_words();
        for (int r = 0; r < SIDES; r++)
            MUST(comm_reduce_scatter(sides[r].comm, in_place ? COMM_IN_PLACE : (void *)sides[r].in, in_place ? sides[r].in : sides[r].out,
                                     n, COMM_U32, COMM_SUM, NULL));
        for (int r = 0; r < SIDES; r++) {
            bench_read(&sides[r].bench, sides[r].stream, words, in_place ? sides[r].in : sides[r].out, LONG);
            for (size_t i = 0; i < n; i++) {
                uint32_t sum = 0;
                for (int from = 0; from < SIDES; from++)
                    sum += word_of(from, (size_t)r * n + i);
                size_t at = in_place ? (size_t)r * n + i : i;
                if (words[at] != sum)
                    rig_die(__FILE__, __LINE__, "n=%zu, in place: %d, rank %d: word %zu is %u, not %u", n, in_place, r, i, words[at], sum);
            }
        }
        sides_close(false);
    }
}

RIG_TEST(allgathers_in_a_graph)
{
    struct comm_request request;

    open_all(&(struct mock_options){.seed = 9, .queues = 8}, 60 * RIG_S);
    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        bench_capture(&s->bench, s->stream);
        MUST(comm_allgather(s->comm, s->in, s->out, 16500, COMM_U32, &request));
        MUST(comm_broadcast(s->comm, s->out, 100, COMM_U32, 2, &request));
        bench_end_capture(&s->bench, s->stream, &s->graph);
    }
    for (int i = 0; i < 20; i++) {
        put_bytes();
        sides_launch();
        for (int r = 0; r < SIDES; r++)
            check_bytes(r, sides[r].out, 2 * 66000, 66000, 2, "allgather in a graph");
    }
    sides_close(false);
}

RIG_TEST(roots_that_differ)
{
    struct comm_request request[SIDES];

    open_all(&(struct mock_options){.seed = 3, .queues = 32}, 20 * RIG_S);
    for (int r = 0; r < SIDES; r++)
        (void)!comm_broadcast(sides[r].comm, sides[r].in, 100, COMM_U32, r == 1, &request[r]);
    for (int r = 0; r < SIDES; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    sides_close(true);
}

/* Both lengths need the same number of kernels. */
RIG_TEST(long_lengths_that_differ)
{
    struct comm_request request[SIDES];
    struct comm_error error = {.size = sizeof error};

    open_all(&(struct mock_options){.seed = 3, .queues = 32}, 20 * RIG_S);
    for (int r = 0; r < SIDES; r++) { /* a later rank may already be told in its call */
        size_t n = r == 1 ? 20001 : 20000;
        (void)!comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, n, COMM_U32, COMM_SUM, &request[r]);
    }
    for (int r = 0; r < SIDES; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(sides[0].comm, &error));
    CHECK(strstr(error.text, "n=20001"));
    sides_close(true);
}

/* The n-th call of the driver fails while all ranks put a sum of four kernels into their streams. Nothing hangs, and what has a result has
 * the right one. Returns false if there are fewer calls. */
static bool fault_at(uint64_t n)
{
    struct comm_request request[SIDES];
    enum comm_result result[SIDES];

    rig_note("call %llu fails", (unsigned long long)n);
    open_all(&(struct mock_options){.seed = n, .queues = 32}, 20 * RIG_S);
    sides_fill(3, LONG);
    for (int r = 0; r < SIDES; r++)
        (void)sides_word(r, sides[r].in);
    mock_fail(n, false);
    for (int r = 0; r < SIDES; r++)
        result[r] = comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, LONG, COMM_U32, COMM_SUM, &request[r]);
    for (int r = 0; r < SIDES; r++)
        result[r] = result[r] == COMM_OK ? comm_wait(request[r], RIG_PATIENCE) : result[r];
    bool failed = mock_failed() != NULL;
    mock_fail(0, false);
    for (int r = 0; r < SIDES; r++) {
        CHECK(result[r] != COMM_ERR_TIMEOUT && result[r] != COMM_PENDING);
        if (result[r] == COMM_OK)
            EQUAL(sides_word(r, sides[r].out + LONG - 1), 3 * SIDES);
    }
    sides_close(true);
    return failed;
}

RIG_TEST(a_fault_at_every_call_of_a_long_one)
{
    uint64_t n = 1, step = rig_thin(1, 1, 5);

    while (fault_at(n))
        n += step;
    CHECK(n > 3 * SIDES);
}

/* ------------------------------------------------------------------------------------------------------------ refusals, failures */
RIG_TEST(what_is_refused)
{
    static uint32_t here[WORDS];
    struct comm_request request, sums[SIDES];
    uint32_t one[SIDES] = {1, 1, 1};

    open_all(&(struct mock_options){.seed = 3, .queues = 32}, 20 * RIG_S);
    for (int r = 0; r < SIDES; r++) /* host buffers go over the wire, as ever */
        MUST(comm_allreduce(sides[r].comm, COMM_IN_PLACE, &one[r], 1, COMM_U32, COMM_SUM, &sums[r]));
    rig_wait_all(sums, SIDES);
    EQUAL(one[2], SIDES);
    struct side *s = &sides[0];
    bench_capture(&s->bench, s->stream);
    sides_refused(s, comm_allreduce(s->comm, here, here + 1, 1, COMM_U32, COMM_SUM, &request), COMM_ERR_STATE, "is being captured");
    bench_end_capture(&s->bench, s->stream, &s->graph);
    bench_drop_graph(&s->bench, &s->graph);
    sides_refused(s, comm_allreduce(s->comm, s->in, s->out, WORDS, COMM_F8E4M3, COMM_SUM, &request), COMM_ERR_ARGUMENT,
                  "in broadcast, allgather");
    sides_refused(s, comm_alltoall(s->comm, s->in, s->out, 1, COMM_U32, &request), COMM_ERR_ARGUMENT, "in broadcast, allgather");
    sides_refused(s, comm_allreduce(s->comm, s->in, sides[1].out, WORDS, COMM_U32, COMM_SUM, &request), COMM_ERR_ARGUMENT,
                  "out: expected memory of cuda:0");
    sides_refused(s, comm_broadcast(s->comm, sides[1].in, 1, COMM_U32, 0, &request), COMM_ERR_ARGUMENT, "expected memory of cuda:0");
    sides_refused(s, comm_send(s->comm, s->in, 1, COMM_U32, 1, 0, &request), COMM_ERR_UNSUPPORTED, "buf is device memory");
    for (int r = 0; r < SIDES; r++)
        (void)!comm_revoke(sides[r].comm); /* the other ranks have not made the refused calls */
    sides_close(true);
}

/* One rank's stream stands: the others' kernels wait until the deadline, then all end. */
RIG_TEST(a_rank_that_does_not_come)
{
    struct comm_request request[SIDES];

    open_all(&(struct mock_options){.seed = 3, .queues = 32}, RIG_S);
    mock_hold(sides[2].stream, true);
    for (int r = 0; r < SIDES; r++)
        MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &request[r]));
    for (int r = 0; r < SIDES; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    mock_hold(sides[2].stream, false);
    sides_close(true);
}

/* A graph that one rank launches less often: the others' streams stand until the communicator is aborted. */
RIG_TEST(an_abort_while_a_graph_waits)
{
    open_all(&(struct mock_options){.seed = 3, .queues = 32}, 20 * RIG_S);
    sides_fill(1, LONG);
    sides_capture_sum(WORDS);
    sides_launch();
    bench_launch(&sides[0].bench, &sides[0].graph, sides[0].stream);
    for (int r = 1; r < SIDES; r++)
        EQUAL(sides_word(r, sides[r].in), SIDES);
    MUST(comm_abort(sides[0].comm, 7));
    EQUAL(sides_word(0, sides[0].out), SIDES); /* its stream goes on, and the kernel has written nothing */
    sides_close(true);
}

RIG_TEST(close_with_a_live_graph)
{
    open_all(&(struct mock_options){.seed = 7, .queues = 32}, 20 * RIG_S);
    sides_fill(1, LONG);
    sides_capture_sum(WORDS);
    sides_launch();
    for (int r = 0; r < SIDES; r++)
        sides_refused(&sides[r], comm_close(sides[r].comm, 10 * RIG_S), COMM_ERR_STATE, "comm_close: 1 CUDA graphs");
    sides_launch();
    for (int r = 0; r < SIDES; r++)
        EQUAL(sides_word(r, sides[r].in), SIDES * SIDES);
    sides_close(false);
}

/* All ranks shrink a communicator that was revoked; the new one works in the same streams. */
RIG_TEST(a_shrunk_communicator_keeps_the_stream)
{
    struct comm_communicator *left[SIDES];
    struct comm_request request[SIDES];

    open_all(&(struct mock_options){.seed = 8, .queues = 32}, 20 * RIG_S);
    MUST(comm_revoke(sides[1].comm));
    for (int r = 0; r < SIDES; r++)
        MUST(comm_shrink(sides[r].comm, &left[r], &request[r]));
    rig_wait_all(request, SIDES);
    for (uint32_t round = 1; round <= 5; round++) {
        sides_fill(round, LONG);
        for (int r = 0; r < SIDES; r++)
            MUST(comm_allreduce(left[r], sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, NULL));
        for (int r = 0; r < SIDES; r++)
            EQUAL(sides_word(r, sides[r].out), SIDES * round);
    }
    for (int r = 0; r < SIDES; r++)
        MUST(comm_close(left[r], COMM_DEFAULT_TIMEOUT));
    sides_close(true);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_launched_a_thousand_times),
        cmocka_unit_test(calls_are_ordered_by_the_stream),
        cmocka_unit_test(another_stream_waits),
        cmocka_unit_test(longer_than_a_mailbox),
        cmocka_unit_test(long_lengths_that_differ),
        cmocka_unit_test(allgathers_and_broadcasts),
        cmocka_unit_test(reduce_scatters),
        cmocka_unit_test(allgathers_in_a_graph),
        cmocka_unit_test(roots_that_differ),
        cmocka_unit_test(a_fault_at_every_call_of_a_long_one),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_rank_that_does_not_come),
        cmocka_unit_test(an_abort_while_a_graph_waits),
        cmocka_unit_test(close_with_a_live_graph),
        cmocka_unit_test(a_shrunk_communicator_keeps_the_stream),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_oneshot_graphs", tests, NULL, NULL);
}
