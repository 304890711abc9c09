/*
 * Reductions on device buffers of backend nccl that NCCL lacks, by the number of ranks: more than one kernel takes inputs, where ranks of
 * this process share devices as if they lay on many hosts, and 1 to 8 ranks with vectors around the length from which an allreduce is done
 * in blocks. The results must be the oracle's, which knows neither groups nor blocks.
 */
#include "../conform/oracle.h"
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 128, DEVICES = 8, MATRIX_BYTES = 20 };
/* The least length of blocks on 3 or more ranks is HOP * ranks / (ranks - 2); and what is longer than a round has blocks on 2 ranks too. */
enum { HOP = 65536, ROUND = 524288 };

struct side {
    struct bench *bench;
    struct comm_communicator *world, *comm;
    struct CUstream_st *stream; /* of the device's bench; or its own, which is then the communicator's too */
    char *in, *out;             /* device memory */
    char *host, *got;
};
static struct {
    int ranks;
    bool given; /* the communicators have streams of the program's */
    size_t bytes;
    struct bench bench[DEVICES];
    struct CUstream_st *stream[DEVICES];
    struct side side[RANKS_MOST];
    char *want;
    uint64_t seed;
} bed;

/* ------------------------------------------------------------------------------------------------------------ the world */
static void open_world(enum comm_order order)
{
    static const char *const devices[DEVICES] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"};
    const char *named[RANKS_MOST];
    struct comm_communicator *world[RANKS_MOST];
    char text[512] = "";
    struct comm_config config = {.size = sizeof config,
                                 .backend = "nccl",
                                 .order = order,
                                 .progress = COMM_PROGRESS_CALLER,
                                 .operation_timeout_ns = 60 * RIG_S,
                                 .error_text = text,
                                 .error_text_bytes = sizeof text};

    for (int r = 0; r < bed.ranks; r++)
        named[r] = devices[r % DEVICES];
    if (comm_open_local(&config, bed.ranks, named, world) != COMM_OK)
        rig_die(__FILE__, __LINE__, "%d ranks: %s", bed.ranks, text);
    for (int r = 0; r < bed.ranks; r++)
        bed.side[r].world = bed.side[r].comm = world[r];
}

static void give_streams(void)
{
    struct comm_request q[RANKS_MOST];

    for (int r = 0; r < bed.ranks; r++) {
        struct side *s = &bed.side[r];
        s->stream = bench_stream(s->bench);
        MUST(comm_dup(s->world, &(struct comm_options){.size = sizeof(struct comm_options), .stream = s->stream}, &s->comm, &q[r]));
    }
    rig_wait_all(q, (size_t)bed.ranks);
}

static void open_all(int ranks, size_t bytes, enum comm_order order, bool given, const struct mock_options *options)
{
    mock_reset(options);
    mock_run(true);
    bed.ranks = ranks;
    bed.given = given;
    bed.bytes = bytes;
    bed.want = malloc(bytes);
    open_world(order);
    for (int d = 0; d < DEVICES; d++) {
        bench_open(&bed.bench[d], d);
        bed.stream[d] = bench_stream(&bed.bench[d]);
    }
    for (int r = 0; r < ranks; r++) {
        struct side *s = &bed.side[r];
        s->bench = &bed.bench[r % DEVICES];
        s->stream = bed.stream[r % DEVICES];
        s->in = (char *)bench_memory(s->bench, (bytes + 3) / 4);
        s->out = (char *)bench_memory(s->bench, (bytes + 3) / 4);
        s->host = malloc(bytes);
        s->got = malloc((bytes + 3) / 4 * 4);
    }
    if (given)
        give_streams();
}

static void close_all(void)
{
    for (int r = 0; r < bed.ranks; r++)
        if (bed.given)
            MUST(comm_close(bed.side[r].comm, RIG_PATIENCE));
    for (int r = 0; r < bed.ranks; r++)
        MUST(comm_close(bed.side[r].world, RIG_PATIENCE));
    for (int r = 0; r < bed.ranks; r++) {
        struct side *s = &bed.side[r];
        if (bed.given)
            bench_drop_stream(s->bench, s->stream);
        bench_free(s->bench, (uint32_t *)(void *)s->in);
        bench_free(s->bench, (uint32_t *)(void *)s->out);
        free(s->host);
        free(s->got);
    }
    for (int d = 0; d < DEVICES; d++) {
        bench_drop_stream(&bed.bench[d], bed.stream[d]);
        bench_close(&bed.bench[d]);
    }
    free(bed.want);
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ operators */
/* Products of 2x2 matrices modulo 2^32, which are associative and not commutative, and a word behind them, which is the first one's. */
static void multiply(void *inout, const void *in, size_t elements, void *arg)
{
    uint32_t *b = inout;
    const uint32_t *a = in;

    (void)arg;
    for (size_t i = 0; i < elements; i++, a += MATRIX_BYTES / 4, b += MATRIX_BYTES / 4) {
        uint32_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, a, MATRIX_BYTES);
        memcpy(b, c, sizeof c);
    }
}

/* An operator of the program's, or a number of the library's. */
enum own { BUILT_IN, MATRICES, SCALED };
struct reduction {
    enum comm_type type;
    comm_op op;
    enum own own;
};

static void make_op(const struct reduction *k, int rank, comm_op *op)
{
    static const struct comm_op_options matrix = {.size = sizeof matrix, .name = "matrix", .element_bytes = MATRIX_BYTES, .ordered = 1};
    float factor = 1.0f / (float)(rank + 3);

    *op = k->op;
    if (k->own == MATRICES)
        MUST(comm_op_create(bed.side[rank].comm, multiply, NULL, &matrix, op));
    else if (k->own == SCALED)
        MUST(comm_op_create_premul_sum(bed.side[rank].comm, k->type, &factor, op));
}

/* What the ranks below `count` make of their inputs, from `at` on. */
static void expect(const struct reduction *k, int count, size_t at, size_t n)
{
    const void *from[RANKS_MOST];
    size_t bytes = n * oracle_type_bytes(k->type);

    for (int r = 0; r < count; r++)
        from[r] = bed.side[r].host + at * oracle_type_bytes(k->type);
    if (k->own == MATRICES) {
        memcpy(bed.want, from[count - 1], bytes);
        for (int r = count - 2; r >= 0; r--)
            multiply(bed.want, from[r], bytes / MATRIX_BYTES, NULL);
        return;
    }
    for (int r = 0; r < count && k->own == SCALED; r++) {
        float *product = (float *)(void *)bed.side[r].got;
        memcpy(product, from[r], bytes);
        for (size_t i = 0; i < n; i++)
            product[i] *= 1.0f / (float)(r + 3);
        from[r] = product;
    }
    oracle_reduce(from, count, n, k->type, k->own == SCALED ? COMM_SUM : k->op, bed.want);
}

/* ------------------------------------------------------------------------------------------------------------ calls */
enum kind { ALLREDUCE, REDUCE, SCATTER, SCATTER_V, SCAN, EXSCAN, KINDS };
static const char *const names[] = {"allreduce", "reduce", "reduce_scatter", "reduce_scatter_v", "scan", "exscan"};
struct job {
    struct reduction is;
    enum kind kind;
    size_t n; /* elements, of all blocks */
    bool in_place;
    size_t counts[RANKS_MOST];
};

static enum comm_result call(const struct job *j, int rank, comm_op op, struct comm_request *q)
{
    struct side *s = &bed.side[rank];
    const void *in = j->in_place ? COMM_IN_PLACE : s->in;
    int root = bed.ranks / 2;

    switch (j->kind) {
    case ALLREDUCE:
        return comm_allreduce(s->comm, in, s->out, j->n, j->is.type, op, q);
    case REDUCE:
        return comm_reduce(s->comm, rank == root ? in : s->in, s->out, j->n, j->is.type, op, root, q);
    case SCATTER:
        return comm_reduce_scatter(s->comm, in, s->out, j->counts[0], j->is.type, op, q);
    case SCATTER_V:
        return comm_reduce_scatter_v(s->comm, in, s->out, j->counts, j->is.type, op, q);
    case SCAN:
        return comm_scan(s->comm, in, s->out, j->n, j->is.type, op, q);
    default:
        return comm_exscan(s->comm, in, s->out, j->n, j->is.type, op, q);
    }
}

/* Of the reduce_scatters all blocks have the same length, or each third one has none. */
static void cut(struct job *j)
{
    size_t unit = j->is.own == MATRICES ? MATRIX_BYTES : 1, left = j->n;

    for (int r = 0; r < bed.ranks; r++) {
        j->counts[r] = j->kind == SCATTER ? j->n / unit / (size_t)bed.ranks * unit : r % 3 ? left / unit / 5 * unit : 0;
        left -= j->counts[r];
    }
}

static void read_back(struct side *s, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += BENCH_READ_BYTES) {
        size_t some = bytes - at < BENCH_READ_BYTES ? bytes - at : BENCH_READ_BYTES;
        bench_read(s->bench, s->stream, (uint32_t *)(void *)(s->got + at), (const uint32_t *)(const void *)(from + at), (some + 3) / 4);
    }
}

static void check(const struct job *j, int rank, size_t n)
{
    struct side *s = &bed.side[rank];
    size_t element = oracle_type_bytes(j->is.type), own = 0;

    for (int r = 0; r < rank && j->kind == SCATTER_V; r++)
        own += j->counts[r];
    own = j->in_place && j->kind == SCATTER ? (size_t)rank * j->counts[0] : j->in_place ? own : 0;
    read_back(s, s->out, (own + n) * element);
    size_t differs = oracle_differ(s->got + own * element, bed.want, n, j->is.type);
    char got[64], want[64];
    if (differs < n)
        rig_die(__FILE__, __LINE__, "rank %d, element %zu of %zu: %s, expected %s", rank, differs, n,
                oracle_text(s->got + own * element, differs, j->is.type, got), oracle_text(bed.want, differs, j->is.type, want));
}

static void check_all(const struct job *j)
{
    size_t at = 0;

    if (j->kind == ALLREDUCE || j->kind == REDUCE)
        expect(&j->is, bed.ranks, 0, j->n);
    for (int r = 0; r < bed.ranks; r++) {
        bool has = j->kind == REDUCE ? r == bed.ranks / 2 : j->kind == EXSCAN ? r > 0 : true;
        size_t n = j->kind == SCATTER || j->kind == SCATTER_V ? j->counts[r] : j->n;
        if (j->kind == SCAN || (j->kind == EXSCAN && has))
            expect(&j->is, r + (j->kind == SCAN), 0, n);
        else if (j->kind == SCATTER || j->kind == SCATTER_V)
            expect(&j->is, bed.ranks, at, n);
        at += n;
        if (has && n)
            check(j, r, n);
    }
}

static void put(const struct job *j)
{
    size_t bytes = j->n * oracle_type_bytes(j->is.type);

    bed.seed++;
    for (int r = 0; r < bed.ranks; r++) {
        struct side *s = &bed.side[r];
        if (j->is.own == MATRICES)
            oracle_fill(s->host, j->n / 4, COMM_U32, COMM_SUM, bed.seed, r);
        else
            oracle_fill(s->host, j->n, j->is.type, j->is.own == SCALED ? COMM_SUM : j->is.op, bed.seed, r);
        bench_copy(s->bench, s->stream, j->in_place ? s->out : s->in, s->host, bytes);
        if (j->in_place && j->kind == REDUCE)
            bench_copy(s->bench, s->stream, s->in, s->host, bytes);
        if (!bed.given)
            MUST(comm_queue_wait_stream(s->comm, s->stream));
    }
}

static void one(struct job *j)
{
    struct comm_request q[RANKS_MOST];
    comm_op op[RANKS_MOST];

    rig_note("%s of %zu %s, %s, %d ranks%s%s", names[j->kind], j->n, oracle_type_name(j->is.type),
             j->is.own == MATRICES ? "matrices"
             : j->is.own           ? "scaled"
                                   : oracle_op_name(j->is.op),
             bed.ranks, j->in_place ? ", in place" : "", bed.given ? ", in a stream" : "");
    cut(j);
    put(j);
    for (int r = 0; r < bed.ranks; r++) {
        make_op(&j->is, r, &op[r]);
        MUST(call(j, r, op[r], &q[r]));
    }
    rig_wait_all(q, (size_t)bed.ranks);
    check_all(j);
    for (int r = 0; r < bed.ranks && j->is.own; r++)
        comm_op_free(bed.side[r].comm, op[r]);
}

/* ------------------------------------------------------------------------------------------------------------ many ranks */
static const struct reduction reductions[] = {
    {COMM_F32, COMM_MIN, BUILT_IN},    {COMM_F32, COMM_MAX, BUILT_IN},  {COMM_BF16, COMM_MAX, BUILT_IN}, {COMM_F16, COMM_SUM, BUILT_IN},
    {COMM_U32, COMM_BXOR, BUILT_IN},   {COMM_BYTE, COMM_BOR, BUILT_IN}, {COMM_BYTE, 0, MATRICES},        {COMM_F32, COMM_SUM, BUILT_IN},
    {COMM_F8E4M3, COMM_AVG, BUILT_IN}, {COMM_F32, 0, SCALED},           {COMM_F64, COMM_AVG, BUILT_IN},
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

enum { LONG = 73760, SHORT = 1040 }; /* multiples of MATRIX_BYTES; LONG has blocks on 65 ranks and more */
/* Of a rank, for this; SLACK: and a few parts of the tree. */
enum { MEMORY_MOST = 64 << 20, SLACK = 1 << 19 };

static bool is_selected(int i, int kind, int ranks)
{
    bool is_there = kind < SCAN || reductions[i].op != COMM_AVG;

    return is_there && (unsigned)(i + kind * 2 + ranks) % rig_thin(1, 4, 12) == 0;
}

/* Each kind with few elements, and an allreduce that is long enough for blocks. */
static void many_ranks(int ranks, int no_kernels)
{
    open_all(ranks, LONG, COMM_ORDER_FIXED, false,
             &(struct mock_options){.seed = (uint64_t)ranks, .queues = 32, .many_hosts = 1, .no_kernels = no_kernels});
    uint64_t held = mock_held();
    for (int i = 0; i < REDUCTIONS; i++) {
        size_t n = LONG / oracle_type_bytes(reductions[i].type);
        struct job blocks = {.is = reductions[i], .n = n, .in_place = i % 2};
        for (int kind = 0; kind < KINDS; kind++) {
            struct job j = {.is = reductions[i], .kind = (enum kind)kind, .n = SHORT, .in_place = (i + kind) % 2};
            if (kind == ALLREDUCE || is_selected(i, kind, ranks))
                one(&j);
        }
        if (is_selected(i, ALLREDUCE, ranks + 1))
            one(&blocks);
    }
    /* On the host several parts, and accumulators that are longer than elements. */
    one(&(struct job){.is = {COMM_F8E4M3, COMM_AVG, BUILT_IN}, .kind = REDUCE, .n = LONG / 5});
    uint64_t all = mock_held() - held;
    if (all > (uint64_t)ranks * (MEMORY_MOST + SLACK))
        rig_die(__FILE__, __LINE__, "%d ranks have %llu MiB each", ranks, (unsigned long long)(all / (uint64_t)ranks >> 20));
    close_all();
}

RIG_TEST(more_ranks_than_a_kernel_takes)
{
    many_ranks(65, 0);
    many_ranks(65, 1);
    if (rig_quick())
        return; /* a sanitizer takes long for so many ranks */
    many_ranks(96, 1);
    many_ranks(128, 0);
}

/* ------------------------------------------------------------------------------------------------------------ blocks */
static void count_one(void *count)
{
    atomic_fetch_add((_Atomic int *)count, 1);
}

/* Gathers tell that blocks were gathered. */
static void in_blocks(struct job *j, bool expected)
{
    static _Atomic int gathers;

    atomic_store(&gathers, 0);
    mock_at("ncclAllGather", count_one, &gathers);
    one(j);
    mock_at(NULL, NULL, NULL);
    /* Pre-multiplied sums gather their factors too. */
    EQUAL(gathers, bed.ranks * (expected + (j->is.own == SCALED)));
}

static size_t least_bytes(int ranks)
{
    size_t bytes = ranks > 2 ? ((size_t)HOP * (size_t)ranks + (size_t)ranks - 3) / (size_t)(ranks - 2) : SIZE_MAX;

    return ranks == 1 ? SIZE_MAX : bytes < ROUND ? bytes : ROUND + 1;
}

static void around(int ranks, const struct reduction *k, bool in_place)
{
    size_t element = k->own == MATRICES ? MATRIX_BYTES : oracle_type_bytes(k->type), least = least_bytes(ranks);
    size_t bound = least == SIZE_MAX ? ROUND / element : (least + element - 1) / element, scale = k->own == MATRICES ? MATRIX_BYTES : 1;

    for (size_t n = bound - 1; n <= bound + 2; n++) {
        struct job j = {.is = *k, .n = n * scale, .in_place = in_place};
        in_blocks(&j, n >= bound && ranks > 1);
    }
}

RIG_TEST(blocks_from_some_length_on)
{
    for (int ranks = 1; ranks <= DEVICES; ranks++) {
        for (int given = 0; given < 2; given++) {
            open_all(ranks, ROUND + 128, COMM_ORDER_FIXED, given,
                     &(struct mock_options){.seed = (uint64_t)ranks, .queues = 32, .no_memops = ranks == 5, .no_kernels = given});
            for (int i = 0; i < REDUCTIONS; i++)
                if (i % 3 == ranks % 3 || !rig_quick())
                    around(ranks, &reductions[i], (i + given) % 2);
            close_all();
        }
    }
}

/* Blocks of several rounds. The last one is short, or it is only of what the last rank has more. */
RIG_TEST(blocks_of_several_rounds)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        size_t block = 2 * ROUND + (ranks == 4 ? 0 : 4096), bytes = (size_t)ranks * block + 12;
        open_all(ranks, bytes, COMM_ORDER_FIXED, true, &(struct mock_options){.seed = 9, .queues = 32, .no_kernels = ranks == 3});
        for (int in_place = 0; in_place < 2; in_place++) {
            struct job f = {.is = {COMM_F32, COMM_MAX, BUILT_IN}, .n = bytes / 4, .in_place = in_place};
            struct job m = {.is = {COMM_BYTE, 0, MATRICES}, .n = bytes / MATRIX_BYTES * MATRIX_BYTES, .in_place = in_place};
            in_blocks(&f, true);
            in_blocks(&m, true);
        }
        close_all();
    }
}

#if HAS_KERNELS
/* A graph has all of it, and runs it on what the input is then. */
RIG_TEST(blocks_in_a_graph)
{
    enum { RANKS = 4, N = 2 * HOP / 4 + 1 };
    struct bench_graph graph[RANKS];
    struct comm_request q;

    open_all(RANKS, ROUND, COMM_ORDER_DEFAULT, true, &(struct mock_options){.seed = 4, .queues = 32});
    struct job j = {.is = {COMM_F32, COMM_MIN, BUILT_IN}, .n = N};
    in_blocks(&j, true);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &bed.side[r];
        bench_capture(s->bench, s->stream);
        MUST(call(&j, r, COMM_MIN, &q));
        bench_end_capture(s->bench, s->stream, &graph[r]);
    }
    for (int turn = 0; turn < 3; turn++) {
        put(&j);
        for (int r = 0; r < RANKS; r++)
            bench_launch(bed.side[r].bench, &graph[r], bed.side[r].stream);
        check_all(&j);
    }
    for (int r = 0; r < RANKS; r++)
        bench_drop_graph(bed.side[r].bench, &graph[r]);
    close_all();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_ranks_than_a_kernel_takes),
        cmocka_unit_test(blocks_from_some_length_on),
        cmocka_unit_test(blocks_of_several_rounds),
#if HAS_KERNELS
        cmocka_unit_test(blocks_in_a_graph),
#endif
    };
    return cmocka_run_group_tests_name("cuda_fold_ranks", tests, NULL, NULL);
}
