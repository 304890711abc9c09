/* What runs each reduction, MPI's operators and the caller's, and how many elements MPI can count. */
#define _GNU_SOURCE
#include "mpi/rank.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OP(x) (1u << (x))
#define ARITHMETIC (OP(COMM_SUM) | OP(COMM_PROD) | OP(COMM_MIN) | OP(COMM_MAX))
#define BITS (OP(COMM_BAND) | OP(COMM_BOR) | OP(COMM_BXOR))
#define TRUTH (OP(COMM_LAND) | OP(COMM_LOR) | OP(COMM_LXOR))
#define LOCATED (OP(COMM_MINLOC) | OP(COMM_MAXLOC))

/* Which reductions MPI runs, and where one library differs from the others. The first row that matches counts. The library's own programs
 * run what no row names, because MPI has no such type or operator. */
static const struct cell_row {
    const char *library; /* prefix of its version; NULL: any library */
    enum comm_type first, last;
    uint32_t ops;
    const char *by, *why; /* by: mpi, program, or NULL: either, depending on the CPU */
} cell_rows[] = {
    {NULL, COMM_I8, COMM_U64, ARITHMETIC | BITS | TRUTH, "mpi", ""},
    {NULL, COMM_BYTE, COMM_BYTE, BITS, "mpi", ""},
    {NULL, COMM_BOOL, COMM_BOOL, TRUTH, "mpi", ""},
    {NULL, COMM_F32, COMM_F64, ARITHMETIC | OP(COMM_AVG), "mpi", ""},
    {NULL, COMM_C64, COMM_C128, OP(COMM_SUM) | OP(COMM_PROD), "mpi", ""},
    {NULL, COMM_F32_INDEX, COMM_F32_INDEX, LOCATED, "mpi", ""},
    {NULL, COMM_I32_INDEX, COMM_I32_INDEX, LOCATED, "mpi", ""},
};

static bool library_is(const char *prefix)
{
    return strncmp(me.library, prefix, strlen(prefix)) == 0;
}

static const struct cell_row *row_of(const struct job_shape *s)
{
    static const struct cell_row stalls = {NULL, 0, 0, 0, "program", "never ends if one rank gives next to nothing"};
    static const struct cell_row any = {NULL, COMM_BYTE, COMM_I64_INDEX, ~0u, "mpi", ""}, none = {NULL, 0, 0, 0, "program", "MPI has none"};
    if (s->kind == JOB_ALLGATHER_V && library_is("Intel(R) MPI"))
        return &stalls;
    for (size_t i = 0; job_kind_reduces(s->kind) && i < sizeof cell_rows / sizeof *cell_rows; i++) {
        const struct cell_row *row = &cell_rows[i];
        bool here = !row->library || library_is(row->library);
        if (here && s->type >= row->first && s->type <= row->last && row->ops & OP(s->op))
            return row;
    }
    return job_kind_reduces(s->kind) ? &none : &any;
}

/* If all blocks are empty, MPI does not run the call. */
static void prepare_some(struct job *job, struct job_shape *shape)
{
    size_t all = 0;
    for (;; shape->seed++) {
        job_prepare(job, shape, me.ranks);
        for (int32_t r = 0; r < me.ranks; r++)
            all += shape->kind == JOB_ALLGATHER_V ? job->pair[r][0] : job->pair[0][r];
        if (all || shape->kind == JOB_BARRIER)
            return;
        job_free(job);
    }
}

static void cell(struct comm_communicator *c, struct job_shape *shape)
{
    static struct job job;
    struct comm_request_info info = {.size = sizeof info};
    struct comm_call call = {
        .size = sizeof call, .collective = job_kind_names[shape->kind], .n = shape->n, .type = shape->type, .op = shape->op};
    char text[160], explained[512];
    const struct cell_row *row = row_of(shape);
    prepare_some(&job, shape);
    MUST(job_issue(&job, me.rank, c));
    MUST(comm_wait(job.request[me.rank], RIG_PATIENCE));
    if (rank_exact(shape, me.programs))
        job_verify(&job, me.rank);
    MUST(comm_describe_request(job.request[me.rank], &info));
    MUST(comm_explain(c, &call, explained, sizeof explained));
    bool mpi = strcmp(info.algorithm, "mpi") == 0, says = strstr(explained, ": mpi itself") != NULL;
    if (mpi != says)
        rig_die(__FILE__, __LINE__, "%s: served by %s, but explained as %s", job_text(&job, text), info.algorithm, explained);
    if (me.programs ? mpi : row->by && mpi != (strcmp(row->by, "mpi") == 0))
        rig_die(__FILE__, __LINE__, "%s: served by %s, expected %s (%s) of %s", job_text(&job, text), info.algorithm, row->by, row->why,
                me.library);
    job_free(&job);
}

/* One rank gives much and the others nothing or next to nothing, and each rests between its looks: so Intel MPI's own call never ends. */
static void gather_uneven(struct comm_communicator *c)
{
    enum { MUCH = 70001 };
    size_t counts[RIG_RANKS_MAX] = {MUCH, 1}, displs[RIG_RANKS_MAX];
    for (int32_t r = 0; r < RIG_RANKS_MAX; r++)
        displs[r] = r == 0 ? 0 : displs[r - 1] + counts[r - 1];
    int64_t *in = calloc(MUCH, sizeof *in), *out = calloc(MUCH + 1, sizeof *out);
    CHECK(in && out);
    for (int turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < counts[me.rank]; i++)
            in[i] = me.rank ? -1 - turn : (int64_t)i + turn;
        struct comm_request q;
        MUST(comm_allgather_v(c, in, out, counts, displs, COMM_I64, &q));
        int64_t end = rig_now() + RIG_PATIENCE;
        enum comm_result r;
        while ((r = comm_test(q)) == COMM_PENDING && rig_now() < end)
            rig_nap(RIG_MS / 20);
        MUST(r);
        for (int64_t i = 0; i < MUCH; i++)
            EQUAL(out[i], i + turn);
        EQUAL(out[MUCH], me.ranks > 1 ? -1 - turn : 0);
    }
    free(in);
    free(out);
}

/* The caller's own operator: x -> a x + b, one line after the other. It is not commutative, so the order of ranks shows. */
struct line {
    uint32_t a, b;
};

static void compose(void *inout, const void *in, size_t elements, void *arg)
{
    const struct line *first = in;
    struct line *then = inout;
    (void)arg;
    for (size_t i = 0; i < elements; i++)
        then[i] = (struct line){first[i].a * then[i].a, then[i].a * first[i].b + then[i].b};
}

static struct line line_of(int32_t rank, size_t i)
{
    return (struct line){2 * (uint32_t)rank + 3, (uint32_t)i + (uint32_t)rank * 17 + 1};
}

/* Of the ranks before `end`. */
static struct line line_up_to(int32_t end, size_t i)
{
    struct line all = line_of(0, i);
    for (int32_t r = 1; r < end; r++) {
        struct line next = line_of(r, i);
        compose(&next, &all, 1, NULL);
        all = next;
    }
    return all;
}

static void expect_lines(const struct line *out, size_t count, int32_t end, size_t first)
{
    for (size_t i = 0; i < count; i++) {
        struct line want = line_up_to(end, first + i);
        if (out[i].a != want.a || out[i].b != want.b)
            rig_die(__FILE__, __LINE__, "element %zu: %u %u; expected %u %u", i, out[i].a, out[i].b, want.a, want.b);
    }
}

/* MPI's own operators are given to MPI; one of the caller's is for the library's programs, also in a world of backend mpi. */
static void own_operator(struct comm_communicator *c)
{
    enum { MOST = 3000, CALLS = 5 };
    static struct line in[MOST * RIG_RANKS_MAX], out[CALLS][MOST * RIG_RANKS_MAX];
    comm_op op = 0;
    MUST(comm_op_create(
        c, compose, NULL,
        &(struct comm_op_options){.size = sizeof(struct comm_op_options), .name = "lines", .element_bytes = sizeof *in, .ordered = 1},
        &op));
    for (size_t n = 1; n <= MOST; n = n * 7 + 1) {
        struct comm_request q[CALLS];
        size_t bytes = n * sizeof *in;
        for (size_t i = 0; i < n * (size_t)me.ranks; i++)
            in[i] = line_of(me.rank, i);
        MUST(comm_allreduce(c, in, out[0], bytes, COMM_BYTE, op, &q[0]));
        MUST(comm_reduce(c, in, out[1], bytes, COMM_BYTE, op, me.ranks - 1, &q[1]));
        MUST(comm_scan(c, in, out[2], bytes, COMM_BYTE, op, &q[2]));
        MUST(comm_exscan(c, in, out[3], bytes, COMM_BYTE, op, &q[3]));
        MUST(comm_reduce_scatter(c, in, out[4], bytes, COMM_BYTE, op, &q[4]));
        MUST(comm_wait_all(q, CALLS, RIG_PATIENCE));
        expect_lines(out[0], n, me.ranks, 0);
        expect_lines(out[1], me.rank == me.ranks - 1 ? n : 0, me.ranks, 0);
        expect_lines(out[2], n, me.rank + 1, 0);
        expect_lines(out[3], me.rank ? n : 0, me.rank, 0);
        expect_lines(out[4], n, me.ranks, n * (size_t)me.rank);
        for (int i = 0; i < CALLS; i++) {
            struct comm_request_info info = {.size = sizeof info};
            MUST(comm_describe_request(q[i], &info));
            CHECK(strcmp(info.algorithm, "mpi") != 0);
        }
    }
    comm_op_free(c, op);
}

/* MPI has no pre-multiplied sums, so the library's programs run them. */
static void pre_multiplied_sum(struct comm_communicator *c)
{
    enum { MOST = 3000 };
    static double in[MOST], out[MOST];
    double factor = me.rank + 1, all = 0, below = 0;
    comm_op op = 0;
    MUST(comm_op_create_premul_sum(c, COMM_F64, &factor, &op));
    for (int r = 0; r < me.ranks; r++) {
        all += (r + 1) * (r + 2);
        below += r <= me.rank ? (r + 1) * (r + 2) : 0;
    }
    for (size_t n = 1; n <= MOST; n = n * 7 + 1) {
        struct comm_request_info info = {.size = sizeof info};
        struct comm_request q;
        for (size_t i = 0; i < n; i++)
            in[i] = (double)i * (me.rank + 2);
        for (int scans = 0; scans < 2; scans++) {
            MUST(scans ? comm_scan(c, in, out, n, COMM_F64, op, &q) : comm_allreduce(c, in, out, n, COMM_F64, op, &q));
            MUST(comm_wait(q, RIG_PATIENCE));
            for (size_t i = 0; i < n; i++)
                CHECK(out[i] == (double)i * (scans ? below : all));
            MUST(comm_describe_request(q, &info));
            CHECK(strcmp(info.algorithm, "mpi") != 0);
        }
    }
    comm_op_free(c, op);
}

/* MPI counts for an operator of this library's with an int, whatever else it counts with: a NaN in a minimum needs such an operator in each
 * MPI that was tested, and a sum of integers of 32 bits in none. */
static void count_for_own_operators(struct comm_communicator *c)
{
    struct comm_call call = {.size = sizeof call, .collective = "allreduce", .n = INT_MAX, .type = COMM_F32, .op = COMM_MIN};
    bool long_calls = !library_is("MPICH Version: 4.0") && !library_is("Intel(R) MPI"), by_mpi[3];
    char text[512];
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            call.n++;
        else if (i == 2)
            call.type = COMM_I32, call.op = COMM_SUM;
        MUST(comm_explain(c, &call, text, sizeof text));
        by_mpi[i] = strstr(text, ": mpi itself") != NULL;
        rig_note("%zu elements: %s", call.n, text);
    }
    CHECK(!by_mpi[1]);
    EQUAL(by_mpi[0], long_calls && !me.programs);
    EQUAL(by_mpi[2], library_is("MPICH Version: 5") && !me.programs);
}

void rank_cells(void)
{
    struct comm_communicator *world = rank_open(NULL);
    uint64_t chance = 7;
    for (int kind = 0; kind < JOB_KINDS; kind++) {
        for (int t = 0; t < ORACLE_TYPES; t++) {
            for (int o = 0; o < ORACLE_OPS; o++) {
                struct job_shape s = {
                    .kind = (enum job_kind)kind, .type = oracle_types[t], .op = oracle_ops[o], .n = 5, .seed = oracle_random(&chance)};
                bool scan = s.kind == JOB_SCAN || s.kind == JOB_EXSCAN;
                if (s.kind == JOB_BARRIER)
                    s.type = COMM_BYTE;
                if (job_kind_reduces(s.kind) ? oracle_pair(s.type, s.op) && !(scan && s.op == COMM_AVG) : o == 0)
                    cell(world, &s);
            }
        }
    }
    count_for_own_operators(world);
    pre_multiplied_sum(world); /* not last: behind a scan MPICH 4.0 over two hosts hangs in MPI_Finalize in half of the runs */
    gather_uneven(world);
    own_operator(world);
    printf("cells of %s\n", me.library);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* More elements than an int can count, in little memory: all of it but the end is the same pages again and again. */
enum { TURN = 2 << 20, TURNS = 1024, END = 17 };

static unsigned char *map_large(void)
{
    int fd = memfd_create("large", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, TURN) == 0);
    unsigned char *at = mmap(NULL, (size_t)TURN * (TURNS + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t i = 0; i < TURNS; i++)
        CHECK(mmap(at + i * TURN, TURN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    close(fd);
    return at;
}

/* MPI runs the call if it has calls for this, otherwise a program of the library does; over the wire always a program. */
void rank_large(void)
{
    struct comm_communicator *world = rank_open("operation_timeout=80s"); /* 2 GiB beside other tests */
    size_t n = (size_t)TURN * TURNS + END;
    unsigned char *at = map_large(), *end = at + (size_t)TURN * TURNS;
    struct comm_request q;
    for (size_t i = 0; i < TURN; i++)
        at[i] = me.rank == 0 ? (unsigned char)(i / 4093) : 0xee;
    memset(end, me.rank == 0 ? 77 : 0, END);
    MUST(comm_broadcast(world, at, n, COMM_BYTE, 0, &q));
    MUST(comm_wait(q, 80 * RIG_S));
    for (size_t i = 0; i < TURN; i++)
        CHECK(at[i] == (unsigned char)(i / 4093));
    for (size_t i = 0; i < END; i++)
        EQUAL(end[i], 77);
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    bool counts_with_int = library_is("Open MPI v4") || library_is("Open MPI v5.0");
    bool fails = library_is("MPICH Version: 4.0") || library_is("Intel(R) MPI"); /* from 2 GiB on, with int and with MPI_Count */
    const char *backend = getenv("COMM_BACKEND");
    bool wire = backend && strcmp(backend, "shm+mpi") == 0;
    EQUAL(strcmp(info.algorithm, "mpi") == 0, !counts_with_int && !fails && !wire);
    munmap(at, (size_t)TURN * (TURNS + 1));
    MUST(comm_close(world, RIG_PATIENCE));
}
