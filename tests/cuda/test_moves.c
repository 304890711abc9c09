/*
 * Compares every collective on device buffers byte by byte with the same call on host buffers, in a host world on the same engine. Covers 1
 * to 8 ranks, types of each size, in place and not, blocks of different sizes with gaps and empty ones, and 1 to 8 hardware queues.
 */
#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 8, ELEMENTS = 128, BYTES = ELEMENTS * 8, WORDS = BYTES / 4 };
enum kind {
    BROADCAST,
    REDUCE,
    ALLREDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    ALLTOALL,
    GATHER,
    SCATTER,
    SCAN,
    EXSCAN,
    ALLGATHER_V,
    REDUCE_SCATTER_V,
    GATHER_V,
    SCATTER_V,
    ALLTOALL_V,
    KINDS
};
static const char *const names[] = {"broadcast",   "reduce",           "allreduce", "reduce_scatter", "allgather",
                                    "alltoall",    "gather",           "scatter",   "scan",           "exscan",
                                    "allgather_v", "reduce_scatter_v", "gather_v",  "scatter_v",      "alltoall_v"};
static const struct {
    enum comm_type type;
    size_t bytes;
    uint64_t one, two, third; /* third: of floats a NaN */
} types[] = {{COMM_U8, 1, 1, 2, 3},
             {COMM_F8E4M3, 1, 0x38, 0x40, 0x7f},
             {COMM_F16, 2, 0x3c00, 0x4000, 0x7e01},
             {COMM_BF16, 2, 0x3f80, 0x4000, 0x7fc1},
             {COMM_I32, 4, 1, 2, 3},
             {COMM_F32, 4, 0x3f800000, 0x40000000, 0x7fc00001},
             {COMM_I64, 8, 1, 2, 3},
             {COMM_F64, 8, 0x3ff0000000000000, 0x4000000000000000, 0x7ff8000000000001}};
enum { TYPES = sizeof types / sizeof *types };

struct call {
    enum kind kind;
    int type, root, ranks;
    comm_op op;
    bool in_place;
    size_t n;
    size_t counts[RANKS_MOST][RANKS_MOST], displs[RANKS_MOST][RANKS_MOST]; /* [from][to] for alltoall_v; the others use only [0] */
};
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    unsigned char *in, *out;                                   /* device memory */
    unsigned char host_in[BYTES], host_out[BYTES], got[BYTES]; /* host_*: the buffers of the call on host memory */
    unsigned char first_in[BYTES], first_out[BYTES];
};
struct bed {
    int ranks;
    struct rig device, host;
    struct side side[RANKS_MOST];
};
static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

/* Sums and products of NaNs are not tested: their bits depend on the order of the operands. */
static void fill(unsigned char *to, const struct call *k)
{
    const uint64_t values[] = {types[k->type].one, types[k->type].two, types[k->type].third};
    uint64_t most = k->op == COMM_SUM || k->op == COMM_PROD ? 2 : 3;

    for (size_t i = 0; i < BYTES / types[k->type].bytes; i++)
        memcpy(to + i * types[k->type].bytes, &values[draw(most)], types[k->type].bytes);
}

static enum comm_result issue(struct comm_communicator *c, const struct call *k, int rank, void *in, void *out, struct comm_request *q)
{
    enum comm_type type = types[k->type].type;
    void *from = k->in_place ? COMM_IN_PLACE : in, *root_from = k->in_place && rank == k->root ? COMM_IN_PLACE : in;
    void *root_to = k->in_place && rank == k->root ? COMM_IN_PLACE : out;
    const size_t *counts = k->counts[0], *displs = k->displs[0];
    bool root = rank == k->root;
    size_t to[RANKS_MOST], at[RANKS_MOST], next = 0;

    for (int r = 0; r < k->ranks; r++) { /* the blocks from each rank, with a gap after each */
        to[r] = k->counts[r][rank];
        at[r] = next;
        next += to[r] + 1;
    }
    switch (k->kind) {
    case BROADCAST:
        return comm_broadcast(c, out, k->n, type, k->root, q);
    case REDUCE:
        return comm_reduce(c, root_from, out, k->n, type, k->op, k->root, q);
    case ALLREDUCE:
        return comm_allreduce(c, from, out, k->n, type, k->op, q);
    case REDUCE_SCATTER:
        return comm_reduce_scatter(c, from, out, k->n, type, k->op, q);
    case ALLGATHER:
        return comm_allgather(c, from, out, k->n, type, q);
    case ALLTOALL:
        return comm_alltoall(c, from, out, k->n, type, q);
    case GATHER:
        return comm_gather(c, root_from, out, k->n, type, k->root, q);
    case SCATTER:
        return comm_scatter(c, in, root_to, k->n, type, k->root, q);
    case SCAN:
        return comm_scan(c, from, out, k->n, type, k->op, q);
    case EXSCAN:
        return comm_exscan(c, from, out, k->n, type, k->op, q);
    case ALLGATHER_V:
        return comm_allgather_v(c, from, out, counts, displs, type, q);
    case REDUCE_SCATTER_V:
        return comm_reduce_scatter_v(c, from, out, counts, type, k->op, q);
    case GATHER_V:
        return comm_gather_v(c, root_from, counts[rank], out, root ? counts : NULL, root ? displs : NULL, type, k->root, q);
    case SCATTER_V:
        return comm_scatter_v(c, in, root ? counts : NULL, root ? displs : NULL, root_to, counts[rank], type, k->root, q);
    default:
        if (k->in_place) /* equal counts to and from each rank */
            return comm_alltoall_v(c, COMM_IN_PLACE, NULL, NULL, out, k->counts[rank], k->displs[rank], type, q);
        return comm_alltoall_v(c, in, k->counts[rank], k->displs[rank], out, to, at, type, q);
    }
}

static struct call draw_call(int ranks, enum kind kind)
{
    static const comm_op ops[] = {COMM_SUM, COMM_PROD, COMM_MAX, COMM_MIN, COMM_BAND, COMM_BOR, COMM_BXOR};
    struct call k = {
        .kind = kind, .ranks = ranks, .type = (int)draw(TYPES), .root = (int)draw((uint64_t)ranks), .n = draw(12), .in_place = draw(2)};

    k.op = ops[draw(types[k.type].type == COMM_U8 || types[k.type].type == COMM_I32 || types[k.type].type == COMM_I64 ? 7 : 4)];
    for (int r = 0; r < ranks; r++) {
        size_t at = draw(3);
        for (int to = 0; to < ranks; to++) {
            k.counts[r][to] = kind == ALLTOALL_V && k.in_place && to < r ? k.counts[to][r] : draw(4) ? draw(9) : 0;
            k.displs[r][to] = at;
            at += k.counts[r][to] + draw(3);
        }
    }
    return k;
}

static void put(struct bed *bed, const struct call *k)
{
    for (int r = 0; r < bed->ranks; r++) {
        struct side *s = &bed->side[r];
        fill(s->host_in, k);
        fill(s->host_out, k);
        memcpy(s->first_in, s->host_in, BYTES);
        memcpy(s->first_out, s->host_out, BYTES);
        bench_copy(&s->bench, s->stream, s->in, s->first_in, BYTES);
        bench_copy(&s->bench, s->stream, s->out, s->first_out, BYTES);
    }
}

/* After an in-place reduce_scatter only the rank's own block is defined. */
static void compare(const struct side *s, const struct call *k, int rank)
{
    size_t from = 0, bytes = BYTES, element = types[k->type].bytes;

    if (k->in_place && k->kind == REDUCE_SCATTER) {
        from = (size_t)rank * k->n * element;
        bytes = k->n * element;
    }
    for (int r = 0; k->in_place && k->kind == REDUCE_SCATTER_V && r <= rank; r++) {
        bytes = k->counts[0][r] * element;
        from += r < rank ? bytes : 0;
    }
    if (memcmp(s->got + from, s->host_out + from, bytes) != 0)
        rig_die(__FILE__, __LINE__, "rank %d has another result", rank);
}

static void one(struct bed *bed, const struct call *k)
{
    struct comm_request q[RANKS_MOST], host[RANKS_MOST];

    put(bed, k);
    for (int r = 0; r < bed->ranks; r++) {
        struct side *s = &bed->side[r];
        MUST(comm_queue_wait_stream(bed->device.world[r], s->stream));
        MUST(issue(bed->device.world[r], k, r, s->in, s->out, &q[r]));
        MUST(issue(bed->host.world[r], k, r, s->host_in, s->host_out, &host[r]));
    }
    rig_wait_all(host, (size_t)bed->ranks);
    rig_wait_all(q, (size_t)bed->ranks);
    for (int r = 0; r < bed->ranks; r++) {
        struct side *s = &bed->side[r];
        bench_read(&s->bench, s->stream, (uint32_t *)(void *)s->got, (const uint32_t *)(void *)s->out, WORDS);
        compare(s, k, r);
    }
}

static int64_t patience = 30 * RIG_S;

static void open_bed(struct bed *bed, int ranks, const struct mock_options *options)
{
    mock_reset(options);
    mock_run(true);
    bed->ranks = ranks;
    rig_open(&bed->device, ranks, COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = patience));
    rig_open(&bed->host, ranks, COMM_CONFIG(.engine_of = bed->device.world[0], .backend = "local"));
    for (int r = 0; r < ranks; r++) {
        struct side *s = &bed->side[r];
        bench_open(&s->bench, r);
        s->stream = bench_stream(&s->bench);
        s->in = (unsigned char *)bench_memory(&s->bench, WORDS);
        s->out = (unsigned char *)bench_memory(&s->bench, WORDS);
    }
}

static void close_bed(struct bed *bed)
{
    rig_close(&bed->host);
    rig_close(&bed->device);
    for (int r = 0; r < bed->ranks; r++) {
        struct side *s = &bed->side[r];
        bench_free(&s->bench, (uint32_t *)(void *)s->in);
        bench_free(&s->bench, (uint32_t *)(void *)s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
    }
    mock_run(false);
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

RIG_TEST(every_collective_as_on_the_host)
{
    static struct bed bed;
    int rounds = rig_quick() ? 4 : 25;

    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        open_bed(&bed, ranks, &(struct mock_options){.seed = (uint64_t)ranks, .queues = ranks, .no_memops = ranks == 5});
        for (int kind = 0; kind < KINDS; kind++) {
            for (int round = 0; round < rounds; round++) {
                random_state = (uint64_t)(kind * 1000 + round + 100000 * ranks);
                struct call k = draw_call(ranks, (enum kind)kind);
                rig_note("%s, %d ranks, type %d, op %u, %s, round %d", names[kind], ranks, (int)types[k.type].type, k.op,
                         k.in_place ? "in place" : "not in place", round);
                one(&bed, &k);
            }
        }
        close_bed(&bed);
    }
}

/* Many calls in one stream without a wait between them. They use the spare memory one after another. */
RIG_TEST(one_after_another_in_a_stream)
{
    enum { RANKS = 3, MANY = 40 };
    static struct bed bed;
    struct comm_request q[RANKS], last[RANKS];

    open_bed(&bed, RANKS, &(struct mock_options){.seed = 3, .queues = 1});
    struct call k = {.kind = ALLTOALL, .ranks = RANKS, .type = 4, .n = 9, .in_place = true};
    put(&bed, &k);
    mock_run(false);
    for (int i = 0; i < MANY; i++) {
        k.kind = i % 2 ? SCAN : ALLTOALL;
        k.op = COMM_SUM;
        for (int r = 0; r < RANKS; r++) {
            struct side *s = &bed.side[r];
            if (i == 0)
                MUST(comm_queue_wait_stream(bed.device.world[r], s->stream));
            MUST(issue(bed.device.world[r], &k, r, s->in, s->out, &last[r]));
            MUST(issue(bed.host.world[r], &k, r, s->host_in, s->host_out, &q[r]));
        }
    }
    mock_run(true);
    rig_wait_all(q, RANKS);
    rig_wait_all(last, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &bed.side[r];
        bench_read(&s->bench, s->stream, (uint32_t *)(void *)s->got, (const uint32_t *)(void *)s->out, WORDS);
        compare(s, &k, r);
    }
    close_bed(&bed);
}

/* ------------------------------------------------------------------------------------------------------------ messages */
static void expect(struct side *s, const unsigned char *memory, uint32_t value)
{
    uint32_t got[WORDS];

    bench_read(&s->bench, s->stream, got, (const uint32_t *)(const void *)memory, WORDS);
    for (int i = 0; i < WORDS; i++)
        EQUAL(got[i], value);
}

static void mark(struct bed *bed, uint32_t round)
{
    for (int r = 0; r < bed->ranks; r++) {
        struct side *s = &bed->side[r];
        bench_fill(&s->bench, s->stream, (uint32_t *)(void *)s->in, 100 * round + (uint32_t)r, WORDS);
        MUST(comm_queue_wait_stream(bed->device.world[r], s->stream));
    }
}

RIG_TEST(contract_8_1_messages_are_matched_in_order)
{
    static struct bed bed;
    struct comm_status status = {0};
    struct comm_request q[2];

    for (int memops = 0; memops < 2; memops++) {
        open_bed(&bed, 2, &(struct mock_options){.seed = 1, .no_memops = !memops});
        for (uint32_t round = 0; round < 10; round++) {
            int from = (int)round % 2;
            mark(&bed, round);
            MUST(comm_send(bed.device.world[from], bed.side[from].in, WORDS, COMM_F32, 1 - from, 0, &q[0]));
            IS(comm_wait(q[0], RIG_MS), COMM_PENDING); /* until its other end is issued */
            MUST(comm_recv(bed.device.world[1 - from], bed.side[1 - from].out, WORDS, COMM_F32, from, round & 2 ? 0 : COMM_ANY_TAG, &status,
                           &q[1]));
            rig_wait_all(q, 2);
            EQUAL(status.peer, from);
            EQUAL(status.bytes, BYTES);
            expect(&bed.side[1 - from], bed.side[1 - from].out, 100 * round + (uint32_t)from);
        }
        close_bed(&bed);
    }
}

/* All ranks send before they receive. In a group the sends do not wait for the receives. Also with an allreduce in the group, and in plans
 * of groups. */
RIG_TEST(groups_of_messages)
{
    static struct bed bed;
    struct comm_request q[RANKS_MOST];

    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        open_bed(&bed, ranks, &(struct mock_options){.seed = (uint64_t)ranks, .queues = ranks});
        for (uint32_t round = 1; round < 6; round++) {
            mark(&bed, round);
            for (int r = 0; r < ranks; r++) {
                struct comm_communicator *group, *world = bed.device.world[r];
                MUST(comm_group_begin(world, &group));
                MUST(comm_send(group, bed.side[r].in, WORDS, COMM_U32, (r + 1) % ranks, 0, NULL));
                MUST(comm_recv(group, bed.side[r].out, WORDS, COMM_U32, (r + ranks - 1) % ranks, 0, NULL, NULL));
                MUST(comm_group_end(group, &q[r]));
            }
            rig_wait_all(q, (size_t)ranks);
            for (int r = 0; r < ranks; r++)
                expect(&bed.side[r], bed.side[r].out, 100 * round + (uint32_t)((r + ranks - 1) % ranks));
        }
        close_bed(&bed);
    }
}

RIG_TEST(a_plan_of_messages)
{
    static struct bed bed;
    struct comm_plan *plan[2];
    struct comm_request q[2];

    open_bed(&bed, 2, &(struct mock_options){.seed = 1});
    for (int r = 0; r < 2; r++) {
        struct comm_communicator *recorder;
        MUST(comm_plan_begin(bed.device.world[r], &recorder));
        if (r == 0)
            MUST(comm_send(recorder, bed.side[0].in, WORDS, COMM_U32, 1, 0, NULL));
        MUST(comm_recv(recorder, bed.side[r].out, WORDS, COMM_U32, 1 - r, 0, NULL, NULL));
        if (r == 1)
            MUST(comm_send(recorder, bed.side[1].out, WORDS, COMM_U32, 0, 0, NULL)); /* sends back what it received */
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (uint32_t round = 1; round < 300; round++) { /* some rounds end between two members of the plan */
        mark(&bed, round);
        for (int r = 0; r < 2; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        rig_wait_all(q, 2);
        expect(&bed.side[0], bed.side[0].out, 100 * round);
    }
    for (int r = 0; r < 2; r++)
        comm_plan_free(plan[r]);
    close_bed(&bed);
}

RIG_TEST(messages_that_are_refused)
{
    static struct bed bed;
    struct comm_error error = {.size = sizeof error};

    open_bed(&bed, 2, &(struct mock_options){.seed = 1});
    struct comm_communicator *c = bed.device.world[0];
    IS(comm_recv(c, bed.side[0].in, WORDS, COMM_U32, COMM_ANY_PEER, 0, NULL, NULL), COMM_ERR_UNSUPPORTED);
    MUST(comm_error_detail(c, &error));
    CHECK(strstr(error.text, "COMM_ANY_PEER"));
    IS(comm_send(c, bed.side[1].in, WORDS, COMM_U32, 1, 0, NULL), COMM_ERR_ARGUMENT);
    MUST(comm_error_detail(c, &error));
    CHECK(strstr(error.text, "buf is memory of cuda:1; expected memory of cuda:0"));
    close_bed(&bed);
}

/* No rank receives the message. The deadline ends the send, and closing is bounded. */
RIG_TEST(a_message_without_a_peer_has_a_deadline)
{
    static struct bed bed;
    struct comm_request q;

    patience = 300 * RIG_MS;
    open_bed(&bed, 2, &(struct mock_options){.seed = 1});
    MUST(comm_send(bed.device.world[0], bed.side[0].in, WORDS, COMM_U32, 1, 0, &q));
    int64_t start = rig_now();
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < (rig_quick() ? 15 : 3) * RIG_S); /* a sanitizer takes longer */
    for (int r = 0; r < 2; r++) {
        (void)!comm_close(bed.device.world[r], COMM_DEFAULT_TIMEOUT);
        (void)!comm_close(bed.host.world[r], COMM_DEFAULT_TIMEOUT);
    }
    mock_run(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_as_on_the_host),
        cmocka_unit_test(one_after_another_in_a_stream),
        cmocka_unit_test(contract_8_1_messages_are_matched_in_order),
        cmocka_unit_test(groups_of_messages),
        cmocka_unit_test(a_plan_of_messages),
        cmocka_unit_test(messages_that_are_refused),
        cmocka_unit_test(a_message_without_a_peer_has_a_deadline),
    };
    return cmocka_run_group_tests_name("cuda_moves", tests, NULL, NULL);
}
