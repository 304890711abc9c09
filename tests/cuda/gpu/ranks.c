/*
 * One rank of the conformance suite on device buffers, a process per rank: comm-run or mpirun starts them, on the mock devices or on real
 * ones, which several ranks may share. Every collective, type and operator in a share of its shapes, operations in parts, messages in
 * groups, operators of the program's own, and what calls.c has. Results and the memory around them must be the oracle's. Each request must
 * say that its buffers went the way that docs/guide/cuda.md gives for such a call: staged, by NCCL, or by the kernels of backend cuda.
 * Prints how many went which way.
 *
 * NCCL and MPI add floats in an order of their own, so there the inputs are numbers of which every order makes the same result.
 * All ranks draw the same shapes, so each knows what the others do. COMM_BACKEND chooses the backend, COMM_ORDER its order of operands.
 */
#define _GNU_SOURCE
#include "conform/job.h"

#include "bench.h"
#include "calls.h"
#include "played.h"
#include "selection.h"

#include <commstream/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, PIECE = BENCH_READ_BYTES, PARTS_BYTES = (5 << 19) + 40 };
enum way { HOST, STAGED, BY_NCCL, BY_KERNELS, ANY_WAY };
static const char *const way_names[] = {"on host memory", "staged", "by NCCL", "by kernels of backend cuda", "any way"};
static struct {
    struct comm_communicator *world;
    struct bench bench;
    struct CUstream_st *stream;
    int32_t rank, ranks;
    int devices; /* of this host */
    bool nccl, mpi, cuda, fixed;
    uint64_t chance;
    unsigned thin;
    size_t compared, exact, went[ANY_WAY]; /* exact: with inputs of which every order makes the same result */
} my;
static struct job jobs[BATCH];
static size_t batch;

/* ------------------------------------------------------------------------------------------------------------ memory */
static size_t padded(size_t bytes)
{
    return (bytes + 3) / 4;
}

/* Returns device memory with these bytes; they must stay until the stream has copied them. */
static void *put(const void *from, size_t bytes)
{
    void *at = bench_memory(&my.bench, padded(bytes) + 1);

    bench_copy(&my.bench, my.stream, at, from, bytes);
    return at;
}

/* Copies device memory back, and frees it. */
static void get(void *to, void *device, size_t bytes)
{
    static uint32_t piece[PIECE / 4];

    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t some = bytes - at < PIECE ? bytes - at : PIECE;
        bench_read(&my.bench, my.stream, piece, (const uint32_t *)(const void *)((char *)device + at), padded(some));
        memcpy((char *)to + at, piece, some);
    }
    bench_free(&my.bench, device);
}

static void region_put(struct job_region *region, unsigned char **host)
{
    *host = region->at;
    if (region->at)
        region->at = put(region->at, region->total);
}

static void region_get(struct job_region *region, unsigned char *host)
{
    if (region->at)
        get(host, region->at, region->total);
    region->at = host;
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
/* The pairs that the devices can reduce. */
static bool devices_reduce(enum comm_type type, comm_op op)
{
    switch (type) {
    case COMM_I8:
    case COMM_I16:
    case COMM_I32:
    case COMM_I64:
    case COMM_U8:
    case COMM_U16:
    case COMM_U32:
    case COMM_U64:
        return op != COMM_AVG && op != COMM_MINLOC && op != COMM_MAXLOC;
    case COMM_F16:
    case COMM_BF16:
    case COMM_F32:
    case COMM_F64:
        return op == COMM_SUM || op == COMM_PROD || op == COMM_MIN || op == COMM_MAX || op == COMM_AVG;
    default:
        return false;
    }
}

/* Staged operations that go in parts are described by the last part, which is no shorter than 1 MiB. Returns how long it is at least. */
static size_t last_part(size_t bytes)
{
    enum { PART = 1 << 20 };

    return bytes < 2 * PART + 1024 ? bytes : PART;
}

/* Backend cuda: short allreduces by one kernel if no ranks share a device, long operations chunk by chunk. */
static bool kernels_serve(const struct job_shape *s)
{
    enum { SHORT_MOST = 64 << 10, LONG_LEAST = 256 << 10, LONG_LEAST_SHARED = 1 << 20 };
    bool is_shared = my.ranks > my.devices;
    size_t bytes = s->n * oracle_type_bytes(s->type), all = s->kind == JOB_ALLREDUCE ? last_part(bytes) : bytes * (size_t)my.ranks;

    if (s->kind != JOB_ALLREDUCE && s->kind != JOB_REDUCE_SCATTER && s->kind != JOB_ALLGATHER)
        return false;
    if (s->kind != JOB_ALLGATHER && !devices_reduce(s->type, s->op))
        return false;
    if (s->kind == JOB_ALLREDUCE && !is_shared && all && all <= SHORT_MOST)
        return true;
    return all >= (is_shared ? LONG_LEAST_SHARED : LONG_LEAST);
}

/* Does it have no elements on any rank? */
static bool is_empty(const struct job *job)
{
    size_t elements = job->shape.kind == JOB_REDUCE_SCATTER_V ? 0 : job->shape.n;

    for (int32_t r = 0; job->shape.kind == JOB_REDUCE_SCATTER_V && r < my.ranks; r++)
        elements += job->pair[0][r];
    return elements == 0;
}

/* A reduction of no elements moves nothing: it is NCCL's if NCCL has the type and the operator, and otherwise the host's. */
static enum way expected_way(const struct job *job)
{
    const struct job_shape *s = &job->shape;

    if (my.nccl)
        return job_kind_reduces(s->kind) && is_empty(job) ? ANY_WAY : BY_NCCL;
    if (s->kind == JOB_BARRIER)
        return HOST;
    return my.cuda && kernels_serve(s) ? BY_KERNELS : STAGED;
}

static enum way way_of(const struct comm_request_info *info)
{
    bool by_nccl = strncmp(info->algorithm, "nccl", 4) == 0, by_kernels = strcmp(info->algorithm, "cuda") == 0;

    if (info->flags & COMM_INFO_STAGED)
        return by_nccl || by_kernels ? ANY_WAY : STAGED; /* all buffers are the device's own, so neither needs a stage */
    return by_nccl ? BY_NCCL : by_kernels ? BY_KERNELS : HOST;
}

static void check_way(struct comm_request q, enum way expected, const char *what)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    enum way way = way_of(&info);
    if (way == ANY_WAY || (way != expected && expected != ANY_WAY))
        rig_die(__FILE__, __LINE__, "%s: it went %s, algorithm \"%s\", flags %u; expected %s", what, way_names[way], info.algorithm,
                info.flags, way_names[expected]);
    my.went[way]++;
    my.compared++;
}

/* comm_explain predicts what the request says. Of a reduction of no elements it speaks as of one that has some. */
static void check_predicted(const struct job *job, const char *what)
{
    const struct job_shape *s = &job->shape;
    struct comm_request_info info = {.size = sizeof info};
    struct comm_call call = {
        .size = sizeof call, .collective = job_kind_names[s->kind], .n = s->n, .type = s->type, .op = s->op, .root = s->root};
    char text[2048], predicted[64] = ": nccl itself";

    if (!my.nccl || (job_kind_reduces(s->kind) && is_empty(job)))
        return;
    MUST(comm_describe_request(job->request[my.rank], &info));
    MUST(comm_explain(my.world, &call, text, sizeof text));
    if (strcmp(info.algorithm, "nccl") != 0)
        snprintf(predicted, sizeof predicted, "device buffers: %s,", info.algorithm);
    if (!strstr(text, predicted))
        rig_die(__FILE__, __LINE__, "%s: \"%s\" ran, and comm_explain says: %s", what, info.algorithm, text);
}

static void flush(void)
{
    unsigned char *in[BATCH], *out[BATCH];
    char text[160];

    for (size_t i = 0; i < batch; i++) {
        region_put(&jobs[i].in[my.rank], &in[i]);
        region_put(&jobs[i].out[my.rank], &out[i]);
    }
    MUST(comm_queue_wait_stream(my.world, my.stream));
    for (size_t i = 0; i < batch; i++) {
        enum comm_result r = job_issue(&jobs[i], my.rank, my.world);
        if (r != COMM_OK)
            rig_die(__FILE__, __LINE__, "%s: the call said %s", job_text(&jobs[i], text), comm_result_name(r));
    }
    for (size_t i = batch; i-- > 0;) {
        rig_note("%s", job_text(&jobs[i], text));
        MUST(comm_wait(jobs[i].request[my.rank], RIG_PATIENCE));
        check_way(jobs[i].request[my.rank], expected_way(&jobs[i]), job_text(&jobs[i], text));
        check_predicted(&jobs[i], text);
        region_get(&jobs[i].in[my.rank], in[i]);
        region_get(&jobs[i].out[my.rank], out[i]);
        job_verify(&jobs[i], my.rank);
        job_free(&jobs[i]);
    }
    batch = 0;
}

/* NCCL and MPI add and multiply in an order of their own, unless the order is fixed, and round at each step. */
static bool has_order_of_its_own(const struct job_shape *s)
{
    bool rounds = s->op == COMM_SUM || s->op == COMM_PROD || s->op == COMM_AVG;

    return (my.nccl || my.mpi) && !my.fixed && job_kind_reduces(s->kind) && rounds && oracle_is_float(s->type);
}

static void add(struct job_shape shape)
{
    shape.seed = oracle_random(&my.chance);
    job_prepare(&jobs[batch++], &shape, my.ranks);
    if (batch == BATCH)
        flush();
}

/* One shape of a kind, a type and an operator. */
static void draw(struct job_shape shape)
{
    size_t p = (size_t)my.ranks, counts[] = {0, 1, p - 1, p, p + 1, 97, 5000};

    shape.exact = has_order_of_its_own(&shape);
    if (oracle_random(&my.chance) % my.thin || (shape.exact && !oracle_has_exact(shape.type, shape.op, my.ranks)))
        return;
    my.exact += shape.exact;
    shape.n = counts[oracle_random(&my.chance) % 7];
    shape.root = job_kind_has_root(shape.kind) ? (int32_t)(oracle_random(&my.chance) % p) : 0;
    shape.in_place = job_kind_in_place(shape.kind) && oracle_random(&my.chance) % 2;
    add(shape);
}

/* Every kind x type x operator, or a share of them. */
static void collectives(void)
{
    for (int kind = 0; kind < JOB_KINDS; kind++) {
        bool reduces = job_kind_reduces((enum job_kind)kind), scans = kind == JOB_SCAN || kind == JOB_EXSCAN;
        for (int t = 0; t < ORACLE_TYPES; t++) {
            for (int o = 0; o < (reduces ? ORACLE_OPS : 1); o++) {
                struct job_shape shape = {.kind = (enum job_kind)kind, .type = oracle_types[t], .op = reduces ? oracle_ops[o] : COMM_SUM};
                if (kind == JOB_BARRIER)
                    shape.type = COMM_BYTE;
                if (!reduces || (oracle_pair(shape.type, shape.op) && !(scans && shape.op == COMM_AVG)))
                    draw(shape);
            }
        }
    }
    flush();
}

/* Each entry of the queue has a ticket. */
static uint64_t next_ticket(void)
{
    struct comm_request q;

    MUST(comm_barrier(my.world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    return q.ticket;
}

/* Of several ranks backend cuda's kernels take calls in blocks whole, and MPI takes a reduce_scatter whole, since its order of operands may
 * depend on the length. */
static uint64_t expected_parts(enum job_kind kind)
{
    bool kernels = my.cuda && (kind == JOB_ALLGATHER || kind == JOB_REDUCE_SCATTER),
         scatters = kind == JOB_REDUCE_SCATTER || kind == JOB_REDUCE_SCATTER_V;
    bool whole = my.nccl || kind == JOB_ALLTOALL_V || (my.ranks > 1 && (kernels || (my.mpi && scatters)));

    return whole ? 1 : 2;
}

static void operations_in_parts(void)
{
    static const enum job_kind kinds[] = {JOB_ALLREDUCE,      JOB_REDUCE,      JOB_BROADCAST,       JOB_SCAN,     JOB_EXSCAN,
                                          JOB_ALLGATHER,      JOB_GATHER,      JOB_SCATTER,         JOB_ALLTOALL, JOB_ALLTOALL_V,
                                          JOB_REDUCE_SCATTER, JOB_ALLGATHER_V, JOB_REDUCE_SCATTER_V};
    static size_t counts[RIG_RANKS_MAX]; /* a third is the first rank's, the rest the last one's */

    counts[0] = PARTS_BYTES / 12;
    counts[my.ranks - 1] += PARTS_BYTES / 4 - counts[0];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool uneven = kinds[i] == JOB_ALLGATHER_V || kinds[i] == JOB_REDUCE_SCATTER_V;
        bool has_blocks = kinds[i] >= JOB_GATHER || kinds[i] == JOB_ALLGATHER || kinds[i] == JOB_REDUCE_SCATTER;
        size_t n = (size_t)PARTS_BYTES / 4 / (has_blocks ? (size_t)my.ranks : 1);
        for (int in_place = 0; in_place < (job_kind_in_place(kinds[i]) ? 2 : 1); in_place++) {
            if (selection_few() && job_kind_in_place(kinds[i]) && (i + (size_t)in_place) % 2) /* each by turns */
                continue;
            uint64_t before = next_ticket();
            add((struct job_shape){
                .kind = kinds[i], .type = COMM_I32, .op = COMM_SUM, .n = n, .in_place = in_place, .counts = uneven ? counts : NULL});
            flush();
            EQUAL(next_ticket() - before - 2, expected_parts(kinds[i])); /* the wait for the stream is another one */
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ messages, operators */
/* Around the ring, each way, in one group: with NCCL a send ends when its receive is issued. */
static void messages(void)
{
    enum { LONGEST = 700001 }; /* copied in pieces */
    static uint32_t sent[LONGEST], got[LONGEST];
    static const size_t lengths[] = {1, 30, 9000, LONGEST};
    int32_t up = (my.rank + 1) % my.ranks, down = (my.rank + my.ranks - 1) % my.ranks;

    for (uint32_t round = 0; round < 8; round++) {
        size_t n = lengths[round / 2];
        struct comm_communicator *group;
        struct comm_status status = {0};
        struct comm_request q;
        int32_t to = round % 2 ? up : down, from = round % 2 ? down : up;
        rig_note("messages, round %u", round);
        for (size_t i = 0; i < n; i++)
            sent[i] = (uint32_t)i * 7 + 1000 * round + (uint32_t)my.rank;
        uint32_t *out = put(sent, n * 4), *in = put(got, n * 4);
        MUST(comm_queue_wait_stream(my.world, my.stream));
        MUST(comm_group_begin(my.world, &group));
        MUST(comm_send(group, out, n, COMM_U32, to, 0, NULL));
        MUST(comm_recv(group, in, n, COMM_U32, from, 0, &status, NULL));
        MUST(comm_group_end(group, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(status.bytes, n * 4);
        get(got, in, n * 4);
        bench_free(&my.bench, out);
        for (size_t i = 0; i < n; i++)
            EQUAL(got[i], (uint32_t)i * 7 + 1000 * round + (uint32_t)from);
    }
}

/* x -> a x + b modulo 2^32: such maps do not commute. */
static void after(void *inout, const void *in, size_t elements, void *arg)
{
    uint32_t *right = inout;
    const uint32_t *left = in;

    (void)arg;
    for (size_t i = 0; i < elements; i++, left += 2, right += 2) {
        right[1] = left[0] * right[1] + left[1];
        right[0] = left[0] * right[0];
    }
}

static void own_operators(void)
{
    enum { MAPS = 500 };
    static uint32_t mine[2 * MAPS], want[2 * MAPS], got[2 * MAPS];
    const struct comm_op_options options = {.size = sizeof options, .name = "after", .element_bytes = 8, .ordered = 1};
    struct comm_request q;
    comm_op op;

    MUST(comm_op_create(my.world, after, NULL, &options, &op));
    for (int32_t r = my.ranks; r-- > 0;) {
        for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
            mine[i] = (uint32_t)(2654435761u * i) + 40503u * (uint32_t)r + 3;
        if (r == my.ranks - 1)
            memcpy(want, mine, sizeof want);
        else
            after(want, mine, MAPS, NULL);
        if (r == my.rank)
            memcpy(got, mine, sizeof got);
    }
    rig_note("an operator of the program's own");
    uint32_t *in = put(got, sizeof got), *out = put(got, sizeof got);
    MUST(comm_queue_wait_stream(my.world, my.stream));
    MUST(comm_allreduce(my.world, in, out, sizeof got, COMM_BYTE, op, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    check_way(q, my.nccl ? BY_NCCL : STAGED, "an operator of the program's own");
    get(got, out, sizeof got);
    bench_free(&my.bench, in);
    CHECK(memcmp(got, want, sizeof got) == 0);
    comm_op_free(my.world, op);
}

/* Of a type that NCCL has, and of one that it lacks. Rank r multiplies i by r + 2. */
static void pre_multiplied_sums(void)
{
    enum { MOST = 1000 };
    static float single[MOST];
    static int16_t two[MOST];
    int16_t factor = (int16_t)(my.rank + 2), all = 0, below = 0;

    for (int32_t r = 0; r < my.ranks; r++) {
        all = (int16_t)(all + r + 2);
        below = (int16_t)(below + (r < my.rank ? r + 2 : 0));
    }
    for (int t = 0; t < 2; t++) {
        struct comm_request q[2];
        enum comm_type type = t ? COMM_I16 : COMM_F32;
        void *host = t ? (void *)two : (void *)single;
        size_t n = t ? 100 : MOST, bytes = n * comm_type_size(type);
        comm_op op;
        rig_note("a pre-multiplied sum of type %d", (int)type);
        for (size_t i = 0; i < n; i++) {
            two[i] = (int16_t)i;
            single[i] = (float)i;
        }
        MUST(comm_op_create_premul_sum(my.world, type, t ? (void *)&factor : (void *)&(float){(float)factor}, &op));
        uint32_t *in = put(host, bytes), *out = put(host, bytes), *prefix = put(host, bytes);
        MUST(comm_queue_wait_stream(my.world, my.stream));
        MUST(comm_allreduce(my.world, in, out, n, type, op, &q[0]));
        MUST(comm_exscan(my.world, in, prefix, n, type, op, &q[1]));
        comm_op_free(my.world, op);
        MUST(comm_wait_all(q, 2, RIG_PATIENCE));
        bool by_kernel = my.cuda && kernels_serve(&(struct job_shape){.kind = JOB_ALLREDUCE, .type = type, .op = COMM_SUM, .n = n});
        check_way(q[0], my.nccl ? BY_NCCL : by_kernel ? BY_KERNELS : STAGED, "a pre-multiplied sum");
        for (int scans = 0; scans < 2; scans++) {
            get(host, scans ? prefix : out, bytes);
            for (size_t i = 0; i < n && (!scans || my.rank); i++)
                CHECK(t ? two[i] == (int16_t)((scans ? below : all) * (int)i) : single[i] == (float)((scans ? below : all) * (int)i));
        }
        bench_free(&my.bench, in);
    }
}

/* ------------------------------------------------------------------------------------------------------------ main */
/* The world opens on a device that depends on it. */
static int32_t launched_rank(void)
{
    static const char *const names[] = {"COMM_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return (int32_t)strtol(getenv(names[i]), NULL, 10);
    fprintf(stderr, "ranks: expected to be started by comm-run, or by mpirun of Open MPI or MPICH\n");
    exit(2);
}

static void open_world(void)
{
    char text[512] = "", device[24];
    struct comm_info info = {.size = sizeof info};
    const char *order = getenv("COMM_ORDER");

    my.rank = launched_rank();
    played_begin((uint64_t)my.rank + 1);
    my.devices = bench_devices();
    snprintf(device, sizeof device, "cuda:%d", my.rank % my.devices);
    if (comm_open(COMM_CONFIG(.device = device, .operation_timeout_ns = 60 * RIG_S, .error_text = text, .error_text_bytes = sizeof text),
                  &my.world) != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", text);
    MUST(comm_describe(my.world, &info));
    my.ranks = comm_size(my.world);
    my.thin = rig_thin(1, 3, 6);
    my.nccl = strcmp(info.backend, "nccl") == 0;
    my.mpi = strcmp(info.backend, "mpi") == 0;
    my.cuda = strcmp(info.backend, "cuda") == 0;
    my.fixed = order && strcmp(order, "fixed") == 0;
    bench_open(&my.bench, my.rank % my.devices);
    my.stream = bench_stream(&my.bench);
}

static void close_world(void)
{
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    bench_drop_stream(&my.bench, my.stream);
    bench_close(&my.bench);
    played_end();
}

int main(void)
{
    open_world();
    collectives();
    operations_in_parts();
    messages();
    own_operators();
    pre_multiplied_sums();
    calls_run(my.world, &my.bench, my.stream);
    if (my.rank == 0)
        printf("%zu operations compared, %zu of them with exact inputs: %zu staged, %zu by NCCL, %zu by kernels, %zu on host memory\n",
               my.compared, my.exact, my.went[STAGED], my.went[BY_NCCL], my.went[BY_KERNELS], my.went[HOST]);
    CHECK((my.exact > 0) == ((my.nccl || my.mpi) && !my.fixed));
    CHECK((my.went[BY_KERNELS] > 0) == my.cuda); /* also where ranks share a device: long sums */
    CHECK((my.went[BY_NCCL] > 0) == my.nccl);
    CHECK((my.went[STAGED] > 0) == !my.nccl);
    close_world();
    return 0;
}
