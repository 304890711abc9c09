/*
 * Buffers in device memory that end before the last byte that a call uses: refused by name on every way that device buffers go, before
 * anything of the call is on a stream. A buffer that ends just there is taken. What the driver is asked for that is counted.
 */
#include "sides.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* `in` and `out` of each rank have room for a block of so many words from each. */
enum { BLOCK = 64, WORDS = SIDES * BLOCK };

static struct comm_config config_of(const char *backend)
{
    return (struct comm_config){
        .size = sizeof(struct comm_config), .backend = backend, .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 20 * RIG_S};
}

static void open_on(const char *backend)
{
    struct comm_config config = config_of(backend);

    sides_open(&(struct mock_options){.seed = 1, .queues = 32}, &config, WORDS);
}

static void close_and_end(void)
{
    for (int r = 0; r < SIDES; r++)
        (void)!comm_sync(sides[r].comm, COMM_FOREVER); /* reports the refused calls, once */
    sides_close(false);
}

typedef enum comm_result call_fn(struct side *s, int rank, size_t more, struct comm_request *q);

/* The call with `more` than fits is refused on each rank, which names the argument; then the one that fits is done. */
static void bound(call_fn *call, int rank, size_t more, const char *argument)
{
    struct comm_request q[SIDES];
    char text[64];

    for (int r = 0; r < SIDES; r++) {
        if (rank < 0 || r == rank) {
            sides_refused(&sides[r], call(&sides[r], r, more, &q[r]), COMM_ERR_ARGUMENT, argument);
            snprintf(text, sizeof text, "bytes of memory of cuda:%d: it ends after ", r);
            sides_refused(&sides[r], call(&sides[r], r, more, &q[r]), COMM_ERR_ARGUMENT, text);
        }
    }
    for (int r = 0; r < SIDES && rank < 0; r++)
        MUST(call(&sides[r], r, 0, &q[r]));
    if (rank < 0)
        rig_wait_all(q, SIDES);
}

/* ------------------------------------------------------------------------------------------------------------ calls */
static enum comm_result allreduce_in(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in + more, s->out, WORDS, COMM_U32, COMM_SUM, q);
}

static enum comm_result allreduce_out(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out + more, WORDS, COMM_U32, COMM_SUM, q);
}

static enum comm_result allreduce_in_place(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, COMM_IN_PLACE, s->out, WORDS + more, COMM_U32, COMM_SUM, q);
}

static enum comm_result broadcast(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_broadcast(s->comm, s->in, WORDS + more, COMM_U32, 1, q);
}

static enum comm_result allgather(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_allgather(s->comm, s->in, s->out, BLOCK + more, COMM_U32, q);
}

static enum comm_result allgather_in_place(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_allgather(s->comm, COMM_IN_PLACE, s->out, BLOCK + more, COMM_U32, q);
}

static enum comm_result reduce_scatter(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_reduce_scatter(s->comm, s->in, s->out, BLOCK + more, COMM_U32, COMM_SUM, q);
}

static enum comm_result reduce(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_reduce(s->comm, s->in, s->out + more, WORDS, COMM_U32, COMM_SUM, 1, q);
}

static enum comm_result exclusive(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_exscan(s->comm, s->in, s->out + more, WORDS, COMM_U32, COMM_SUM, q);
}

static enum comm_result gather(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_gather(s->comm, s->in, s->out, BLOCK + more, COMM_U32, 1, q);
}

static enum comm_result scatter_in_place(struct side *s, int rank, size_t more, struct comm_request *q)
{
    return comm_scatter(s->comm, s->in, rank == 1 ? COMM_IN_PLACE : s->out, BLOCK + more, COMM_U32, 1, q);
}

static enum comm_result alltoall(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_alltoall(s->comm, s->in, s->out, BLOCK + more, COMM_U32, q);
}

/* The last block ends the buffer. */
static enum comm_result allgather_v(struct side *s, int rank, size_t more, struct comm_request *q)
{
    static const size_t counts[SIDES] = {1, 2, 3};
    size_t displs[SIDES] = {0, 5, WORDS - 3 + more};

    (void)rank;
    return comm_allgather_v(s->comm, s->in, s->out, counts, displs, COMM_U32, q);
}

static enum comm_result alltoall_v(struct side *s, int rank, size_t more, struct comm_request *q)
{
    static const size_t counts[SIDES] = {1, 1, 1};
    static const size_t to[SIDES] = {4, 2, 0};
    size_t from[SIDES] = {WORDS - 1 + more, 0, 9};

    (void)rank;
    return comm_alltoall_v(s->comm, s->in, counts, from, s->out, counts, to, COMM_U32, q);
}

static enum comm_result root_gets_nothing_of_its_own(struct side *s, int rank, size_t more, struct comm_request *q)
{
    static const size_t counts[SIDES] = {1, 0, 3};
    size_t displs[SIDES] = {0, 1, WORDS - 3 + more};

    return comm_gather_v(s->comm, s->in, counts[rank], s->out, counts, displs, COMM_U32, 1, q);
}

/* The host's kernel reduces it. */
static enum comm_result bits(struct side *s, int rank, size_t more, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(s->comm, s->in, s->out + more, WORDS, COMM_U32, COMM_BXOR, q);
}

/* ------------------------------------------------------------------------------------------------------------ on each way */
static void what_every_stream_has(void)
{
    bound(allreduce_in, -1, 1, "in=0x");
    bound(allreduce_out, -1, 1, "out=0x");
    bound(allreduce_in_place, -1, 1, "out=0x");
    bound(broadcast, -1, 1, "buf=0x");
    bound(allgather, -1, 1, "out=0x");
    bound(allgather_in_place, -1, 1, "out=0x");
    bound(reduce_scatter, -1, 1, "in=0x");
}

RIG_TEST(nccl_refuses_what_ends_too_early)
{
    open_on("nccl");
    what_every_stream_has();
    bound(alltoall, -1, 1, "in=0x");
    bound(allgather_v, -1, 1, "out=0x");
    bound(alltoall_v, -1, 1, "in=0x");
    bound(bits, -1, 1, "out=0x");
    close_and_end();
}

/* Only the root, or only some ranks, have such a buffer. The other ranks do not make the refused calls. */
RIG_TEST(nccl_refuses_it_at_the_root_alone)
{
    open_on("nccl");
    bound(reduce, 1, 1, "out=0x");
    bound(gather, 1, 1, "out=0x");
    bound(scatter_in_place, 1, 1, "in=0x");
    bound(root_gets_nothing_of_its_own, 1, 1, "out=0x");
    bound(exclusive, 2, 1, "out=0x");
    for (int r = 0; r < SIDES; r++)
        (void)!comm_revoke(sides[r].comm);
    sides_close(true);
}

/* Nothing of these buffers is used there, so their ends are not asked about. */
RIG_TEST(what_is_not_used_may_end_anywhere)
{
    struct comm_request q[SIDES];

    open_on("nccl");
    for (int r = 0; r < SIDES; r++)
        MUST(comm_exscan(sides[r].comm, sides[r].in, sides[r].out + (r == 0 ? WORDS - 1 : 0), WORDS, COMM_U32, COMM_SUM, &q[r]));
    rig_wait_all(q, SIDES);
    for (int r = 0; r < SIDES; r++)
        MUST(comm_reduce(sides[r].comm, sides[r].in, sides[r].out + (r == 1 ? 0 : WORDS - 1), WORDS, COMM_U32, COMM_SUM, 1, &q[r]));
    rig_wait_all(q, SIDES);
    for (int r = 0; r < SIDES; r++)
        MUST(root_gets_nothing_of_its_own(&sides[r], r, 0, &q[r]));
    rig_wait_all(q, SIDES);
    close_and_end();
}

RIG_TEST(nccl_refuses_messages)
{
    struct comm_request q[SIDES];

    open_on("nccl");
    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        IS(comm_send(s->comm, s->in + 1, WORDS, COMM_U32, (r + 1) % SIDES, 0, &q[r]), COMM_ERR_ARGUMENT);
        IS(comm_recv(s->comm, s->out + 1, WORDS, COMM_U32, (r + 1) % SIDES, 0, NULL, &q[r]), COMM_ERR_ARGUMENT);
    }
    MUST(comm_send(sides[0].comm, sides[0].in, WORDS, COMM_U32, 1, 0, &q[0]));
    MUST(comm_recv(sides[1].comm, sides[1].out, WORDS, COMM_U32, 0, 0, NULL, &q[1]));
    rig_wait_all(q, 2);
    for (int r = 0; r < SIDES; r++) { /* in a group none of them is sent */
        struct comm_communicator *group;
        MUST(comm_group_begin(sides[r].comm, &group));
        MUST(comm_send(group, sides[r].in, BLOCK, COMM_U32, (r + 1) % SIDES, 0, NULL));
        MUST(comm_recv(group, sides[r].out + BLOCK + 1, WORDS - BLOCK, COMM_U32, (r + SIDES - 1) % SIDES, 0, NULL, NULL));
        MUST(comm_group_end(group, &q[r]));
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_ARGUMENT);
    }
    close_and_end();
}

/* comm_error_detail says as much about a message as about a collective. */
static void is_reported(struct side *s, const char *operation, bool has_number)
{
    struct comm_error error = {.size = sizeof error};

    MUST(comm_error_detail(s->comm, &error));
    IS(error.result, COMM_ERR_ARGUMENT);
    EQUAL(error.rank, 0);
    EQUAL(error.peer, -1);
    EQUAL(error.sequence != 0, has_number);
    CHECK(strcmp(error.operation, operation) == 0 && strcmp(error.cause, "refused at the call") == 0);
    CHECK(strstr(error.text, "it ends after") != NULL);
}

RIG_TEST(nccl_reports_refused_messages_as_collectives)
{
    struct comm_communicator *group;
    struct comm_request q;

    open_on("nccl");
    struct side *s = &sides[0];
    IS(comm_send(s->comm, s->in + 1, WORDS, COMM_U32, 1, 0, &q), COMM_ERR_ARGUMENT);
    is_reported(s, "send", false);
    IS(allreduce_out(s, 0, 1, &q), COMM_ERR_ARGUMENT);
    is_reported(s, "allreduce", true);
    IS(comm_recv(s->comm, s->out + 1, WORDS, COMM_U32, 1, 0, NULL, &q), COMM_ERR_ARGUMENT);
    is_reported(s, "recv", false);
    MUST(comm_group_begin(s->comm, &group));
    MUST(comm_send(group, s->in, BLOCK, COMM_U32, 1, 0, NULL));
    MUST(comm_recv(group, s->out + BLOCK + 1, WORDS - BLOCK, COMM_U32, 1, 0, NULL, NULL));
    MUST(comm_group_end(group, &q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_ARGUMENT);
    is_reported(s, "group", false);
    for (int r = 1; r < SIDES; r++)
        IS(allreduce_out(&sides[r], r, 1, &q), COMM_ERR_ARGUMENT);
    close_and_end();
}

#if HAS_KERNELS
RIG_TEST(cuda_refuses_it_in_a_stream)
{
    open_on("cuda");
    what_every_stream_has();
    close_and_end();
}

static enum comm_result of_the_world(struct side *s, int rank, size_t words, size_t more, struct comm_request *q)
{
    return comm_allreduce(sides_rig.world[rank], s->in + more, s->out, words, COMM_U32, COMM_SUM, q);
}

/* In the library's own streams: the kernel for short sums, and the pipeline. */
RIG_TEST(cuda_refuses_it_outside_of_streams)
{
    static const size_t lengths[] = {BLOCK, 1 << 18};
    struct comm_config config = config_of("cuda");
    struct comm_error error = {.size = sizeof error};
    struct comm_request q[SIDES];

    for (size_t i = 0; i < 2; i++) {
        sides_open(&(struct mock_options){.seed = 1, .queues = 32}, &config, lengths[i]);
        for (int r = 0; r < SIDES; r++) {
            IS(of_the_world(&sides[r], r, lengths[i], 1, &q[r]), COMM_ERR_ARGUMENT);
            MUST(comm_error_detail(sides_rig.world[r], &error));
            CHECK(strstr(error.text, "in=0x") && strstr(error.text, "it ends before"));
        }
        for (int r = 0; r < SIDES; r++)
            MUST(of_the_world(&sides[r], r, lengths[i], 0, &q[r]));
        rig_wait_all(q, SIDES);
        for (int r = 0; r < SIDES; r++)
            (void)!comm_sync(sides_rig.world[r], COMM_FOREVER);
        sides_close(false);
    }
}
#endif

/* ------------------------------------------------------------------------------------------------------------ what that costs */
static void count_one(void *count)
{
    ++*(int *)count;
}

static int calls_of(const char *name, call_fn *call)
{
    struct comm_request q[SIDES];
    int count = 0;

    mock_at(name, count_one, &count);
    for (int r = 0; r < SIDES; r++) {
        bench_enter(&sides[r].bench); /* as in a program that uses the device: its context is the thread's */
        MUST(call(&sides[r], r, 0, &q[r]));
        bench_leave(&sides[r].bench);
    }
    mock_at(NULL, NULL, NULL);
    rig_wait_all(q, SIDES);
    return count;
}

/* The driver is asked once about a buffer, and the context is entered once: where the call is put on the stream. */
static void counts(const char *backend)
{
    open_on(backend);
    EQUAL(calls_of("cuPointerGetAttributes", allreduce_in), 2 * SIDES);
    EQUAL(calls_of("cuPointerGetAttributes", allreduce_in_place), SIDES);
    EQUAL(calls_of("cuPointerGetAttributes", allgather_in_place), SIDES);
    EQUAL(calls_of("cuPointerGetAttributes", broadcast), SIDES);
    EQUAL(calls_of("cuCtxPushCurrent", allreduce_in), 2 * SIDES); /* one is this test's */
    close_and_end();
}

RIG_TEST(one_question_for_a_buffer)
{
    counts("nccl");
#if HAS_KERNELS
    counts("cuda");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nccl_refuses_what_ends_too_early),
        cmocka_unit_test(nccl_refuses_it_at_the_root_alone),
        cmocka_unit_test(what_is_not_used_may_end_anywhere),
        cmocka_unit_test(nccl_refuses_messages),
        cmocka_unit_test(nccl_reports_refused_messages_as_collectives),
#if HAS_KERNELS
        cmocka_unit_test(cuda_refuses_it_in_a_stream),
        cmocka_unit_test(cuda_refuses_it_outside_of_streams),
#endif
        cmocka_unit_test(one_question_for_a_buffer),
    };
    return cmocka_run_group_tests_name("cuda_bounds", tests, NULL, NULL);
}
