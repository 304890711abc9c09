/*
 * One rank of a world over MPI, started by MPI's own launcher (run.sh). It prints what it finds wrong, and exits with 1. The program does
 * not use MPI itself: the library's module loads it.
 *
 *   ranks suite | fixed | cells | large | short | long | edge | killed | cut | idle | leave
 */
#define _GNU_SOURCE
#include "conform/job.h"
#include "now.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

static int32_t rank, ranks;
static char library[64]; /* MPI's name and version */
static bool programs;    /* backend shm+mpi: the library's own programs run the collectives, and MPI is only their wire */

/* Describing the backends must not choose an MPI other than the launcher's. */
static void ask_backends(void)
{
    struct comm_backend_info b;
    for (size_t i = 0; b = (struct comm_backend_info){.size = sizeof b}, comm_describe_backend(i, &b) == COMM_OK; i++)
        if (strcmp(b.name, "mpi") == 0) {
            CHECK(b.available && strstr(b.version, "MPI"));
            snprintf(library, sizeof library, "%s", b.version);
        }
}

static struct comm_communicator *open_world(const char *options)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    struct comm_info info = {.size = sizeof info};
    struct comm_config config = *COMM_CONFIG(.backend = "mpi", .options = options, .operation_timeout_ns = 20 * RIG_S, .error_text = text,
                                             .error_text_bytes = sizeof text);
    const char *address = getenv("OWN_ADDRESS"); /* the program gives the rank and the meeting address itself */
    if (address) {
        config.rank = (int32_t)strtol(getenv("OMPI_COMM_WORLD_RANK"), NULL, 10);
        config.ranks = (int32_t)strtol(getenv("OMPI_COMM_WORLD_SIZE"), NULL, 10);
        config.address = address;
    }
    ask_backends();
    enum comm_result r = comm_open(&config, &world);
    if (r != COMM_OK) {
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
        exit(3);
    }
    rank = comm_rank(world);
    ranks = comm_size(world);
    MUST(comm_describe(world, &info));
    programs = strcmp(info.backend, "shm+mpi") == 0;
    CHECK(programs || strcmp(info.backend, "mpi") == 0);
    EQUAL(info.nodes, getenv("COMM_TEST_HOSTS") ? strtol(getenv("COMM_TEST_HOSTS"), NULL, 10) : 1);
    return world;
}

static void served_by(struct comm_request q, const char *want)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    if (strcmp(info.algorithm, want) != 0)
        rig_die(__FILE__, __LINE__, "served by %s, expected %s", info.algorithm, want);
}

/* ------------------------------------------------------------------------------------------------------------ the suite */
enum { BATCH = 12 };

/* MPI may sum in another order. So results are compared only where the order does not matter: two ranks, or no floats. */
static bool exact(const struct job_shape *s, bool fixed)
{
    bool floats = s->type >= COMM_F8E4M3;
    return fixed || ranks <= 2 || !job_kind_reduces(s->kind) || !floats;
}

static struct job_shape random_shape(uint64_t *chance, bool fixed)
{
    static const size_t lengths[] = {0, 1, 2, 7, 97, 1000, 5000, 70001};
    for (;;) {
        struct job_shape s = {.kind = (enum job_kind)(oracle_random(chance) % JOB_KINDS),
                              .type = oracle_types[oracle_random(chance) % ORACLE_TYPES],
                              .op = oracle_ops[oracle_random(chance) % ORACLE_OPS],
                              .root = (int32_t)(oracle_random(chance) % (uint64_t)ranks),
                              .n = lengths[oracle_random(chance) % (sizeof lengths / sizeof *lengths)],
                              .in_place = oracle_random(chance) % 3 == 0,
                              .seed = oracle_random(chance)};
        s.in_place &= s.kind != JOB_BROADCAST && s.kind != JOB_BARRIER;
        if (s.kind == JOB_BARRIER)
            s.type = COMM_BYTE;
        bool averages = s.op != COMM_AVG || (s.kind != JOB_SCAN && s.kind != JOB_EXSCAN); /* a scan has no average */
        if ((!job_kind_reduces(s.kind) || (oracle_pair(s.type, s.op) && averages)) && exact(&s, fixed))
            return s;
    }
}

static void sweep(struct comm_communicator *c, uint64_t seed, int batches, bool fixed)
{
    static struct job job[BATCH];
    uint64_t chance = seed;
    int32_t me = comm_rank(c);
    char text[160];
    for (int b = 0; b < batches; b++) {
        for (int i = 0; i < BATCH; i++) {
            struct job_shape shape = random_shape(&chance, fixed);
            job_prepare(&job[i], &shape, ranks);
            enum comm_result r = job_issue(&job[i], me, c);
            if (r != COMM_OK)
                rig_die(__FILE__, __LINE__, "rank %d: %s: %s", me, job_text(&job[i], text), comm_result_name(r));
        }
        for (int i = BATCH; i-- > 0;) {
            enum comm_result r = comm_wait(job[i].request[me], RIG_PATIENCE);
            struct comm_error error = {.size = sizeof error};
            if (r == COMM_OK)
                continue;
            (void)!comm_error_detail(c, &error);
            rig_die(__FILE__, __LINE__, "rank %d: %s: %s: %s", me, job_text(&job[i], text), comm_result_name(r), error.text);
        }
        for (int i = 0; i < BATCH; i++) {
            job_verify(&job[i], me);
            job_free(&job[i]);
        }
    }
}

static void plans(struct comm_communicator *c)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    struct comm_request q;
    int64_t in = rank + 1, sum = 0, all = 0;
    MUST(comm_plan_begin(c, &recorder));
    MUST(comm_allreduce(recorder, &in, &sum, 1, COMM_I64, COMM_SUM, NULL));
    MUST(comm_allreduce(recorder, &sum, &all, 1, COMM_I64, COMM_MAX, NULL));
    MUST(comm_barrier(recorder, NULL));
    MUST(comm_plan_end(recorder, &plan));
    for (int i = 0; i < 50; i++) {
        in = rank + i;
        MUST(comm_plan_start(plan, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(all, ranks * (ranks - 1) / 2 + i * ranks);
    }
    comm_plan_free(plan);
}

/* Messages, and calls that create communicators. They use the wire that runs beside MPI. */
static void the_rest(struct comm_communicator *c)
{
    struct comm_communicator *half = NULL, *copy = NULL;
    struct comm_request q[2];
    int32_t out = 100 + rank, in = -1;
    MUST(comm_send(c, &out, 1, COMM_I32, (rank + 1) % ranks, 7, &q[0]));
    MUST(comm_recv(c, &in, 1, COMM_I32, COMM_ANY_PEER, 7, NULL, &q[1]));
    MUST(comm_wait_all(q, 2, RIG_PATIENCE));
    EQUAL(in, 100 + (rank + ranks - 1) % ranks);
    MUST(NOW(comm_split, c, rank % 2, rank, &half));
    MUST(NOW(comm_dup, c, NULL, &copy));
    for (int i = 0; i < 20; i++) {
        int32_t mine = rank, sum = -1, want = 0;
        for (int32_t r = rank % 2; r < ranks; r += 2)
            want += r;
        MUST(comm_allreduce(half, &mine, &sum, 1, COMM_I32, COMM_SUM, &q[0]));
        MUST(comm_barrier(copy, &q[1]));
        MUST(comm_wait_all(q, 2, RIG_PATIENCE));
        EQUAL(sum, want);
    }
    const char *threads = getenv("COMM_MPI_THREADS");
    if (comm_size(half) > 1 && !programs)
        served_by(q[1], !threads ? "mpi" : ranks > 16 ? "doubling" : "read_all");
    sweep(copy, 99, 4, programs);
    MUST(comm_close(half, RIG_PATIENCE));
    MUST(comm_close(copy, RIG_PATIENCE));
}

/* More calls than a window holds, each with counts. The last ones are published when the first have completed. */
static void long_queue(struct comm_communicator *c)
{
    enum { CALLS = 200 };
    static int32_t in[CALLS][RIG_RANKS_MAX], out[CALLS][RIG_RANKS_MAX];
    struct comm_request q[CALLS];
    size_t ones[RIG_RANKS_MAX];
    for (int32_t r = 0; r < ranks; r++)
        ones[r] = 1;
    if (rank == 0)
        rig_nap(50 * RIG_MS); /* no call can complete before this rank takes part */
    for (int i = 0; i < CALLS; i++) {
        for (int32_t r = 0; r < ranks; r++)
            in[i][r] = i * 100 + rank * 10 + r;
        MUST(comm_alltoall_v(c, in[i], ones, NULL, out[i], ones, NULL, COMM_I32, &q[i]));
    }
    MUST(comm_wait_all(q, CALLS, RIG_PATIENCE));
    for (int i = 0; i < CALLS; i++)
        for (int32_t r = 0; r < ranks; r++)
            EQUAL(out[i][r], i * 100 + r * 10 + rank);
}

static void suite(const char *options, bool fixed)
{
    struct comm_communicator *world = open_world(options);
    struct comm_request q;
    float in = 1, out = 0;
    MUST(comm_allreduce(world, &in, &out, 1, COMM_F32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    fixed |= programs;
    if (!programs)
        served_by(q, fixed ? "read_all" : "mpi");
    sweep(world, 1, rig_quick() ? 10 : 60, fixed);
    plans(world);
    long_queue(world);
    the_rest(world);
    MUST(comm_sync(world, COMM_FOREVER));
    MUST(comm_close(world, RIG_PATIENCE));
    world = open_world(options); /* the second world while MPI is running */
    sweep(world, 2, 3, fixed);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ what runs each reduction */
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
    {"Open MPI v", COMM_I8, COMM_I16, OP(COMM_SUM) | OP(COMM_PROD), NULL, "saturates where the CPU has AVX"},
    {"Open MPI v", COMM_U8, COMM_U16, OP(COMM_SUM) | OP(COMM_PROD), NULL, "saturates where the CPU has AVX"},
    {"MPICH Version: 4.0", COMM_U8, COMM_U64, OP(COMM_MIN) | OP(COMM_MAX), "program", "compares as signed"},
    {NULL, COMM_I8, COMM_U64, ARITHMETIC | BITS | TRUTH, "mpi", ""},
    {NULL, COMM_BYTE, COMM_BYTE, BITS, "mpi", ""},
    {NULL, COMM_BOOL, COMM_BOOL, TRUTH, "mpi", ""},
    {NULL, COMM_F32, COMM_F64, OP(COMM_SUM) | OP(COMM_PROD), "mpi", ""},
    {NULL, COMM_F32, COMM_F64, OP(COMM_MIN) | OP(COMM_MAX), "program", "a NaN gets lost"},
    {NULL, COMM_C64, COMM_C128, OP(COMM_SUM), "mpi", ""},
    {NULL, COMM_C64, COMM_C128, OP(COMM_PROD), "program", "infinities as C has them"},
    {NULL, COMM_F32_INDEX, COMM_F32_INDEX, LOCATED, "program", "a NaN gets lost"},
    {NULL, COMM_I32_INDEX, COMM_I32_INDEX, LOCATED, "mpi", ""},
};

static const struct cell_row *row_of(const struct job_shape *s)
{
    static const struct cell_row any = {NULL, COMM_BYTE, COMM_I64_INDEX, ~0u, "mpi", ""}, none = {NULL, 0, 0, 0, "program", "MPI has none"};
    for (size_t i = 0; job_kind_reduces(s->kind) && i < sizeof cell_rows / sizeof *cell_rows; i++) {
        const struct cell_row *row = &cell_rows[i];
        bool here = !row->library || strncmp(library, row->library, strlen(row->library)) == 0;
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
        job_prepare(job, shape, ranks);
        for (int32_t r = 0; r < ranks; r++)
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
    MUST(job_issue(&job, rank, c));
    MUST(comm_wait(job.request[rank], RIG_PATIENCE));
    if (exact(shape, programs))
        job_verify(&job, rank);
    MUST(comm_describe_request(job.request[rank], &info));
    MUST(comm_explain(c, &call, explained, sizeof explained));
    bool mpi = strcmp(info.algorithm, "mpi") == 0, says = strstr(explained, ": mpi itself") != NULL;
    if (mpi != says)
        rig_die(__FILE__, __LINE__, "%s: served by %s, but explained as %s", job_text(&job, text), info.algorithm, explained);
    if (programs ? mpi : row->by && mpi != (strcmp(row->by, "mpi") == 0))
        rig_die(__FILE__, __LINE__, "%s: served by %s, expected %s (%s) of %s", job_text(&job, text), info.algorithm, row->by, row->why,
                library);
    job_free(&job);
}

/* For each collective, type and operator, the way that the table gives is taken, and explain reports the same. */
static void cells(void)
{
    struct comm_communicator *world = open_world(NULL);
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
    printf("cells of %s\n", library);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* More elements than an int can count. MPI runs the call if it has calls for this, otherwise a program of the library does. */
static void large(void)
{
    enum { STEP = 4093 };
    struct comm_communicator *world = open_world(NULL);
    size_t n = ((size_t)1 << 31) + 17;
    unsigned char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct comm_request q;
    CHECK(at != MAP_FAILED);
    (void)madvise(at, n, MADV_HUGEPAGE); /* avoids half a million page faults */
    for (size_t i = 0; i < n; i += STEP)
        at[i] = rank == 0 ? (unsigned char)(i / STEP) : 0xee;
    at[n - 1] = rank == 0 ? 77 : 0;
    MUST(comm_broadcast(world, at, n, COMM_BYTE, 0, &q));
    MUST(comm_wait(q, 60 * RIG_S));
    for (size_t i = 0; i + 1 < n; i += STEP)
        CHECK(at[i] == (unsigned char)(i / STEP));
    EQUAL(at[n - 1], 77);
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    bool counts_with_int = strncmp(library, "Open MPI v4", 11) == 0 || strncmp(library, "Open MPI v5.0", 13) == 0;
    bool fails = strncmp(library, "MPICH Version: 4.0", 18) == 0 ||
                 strncmp(library, "Intel(R) MPI", 12) == 0; /* from 2 GiB on, with int and with MPI_Count */
    EQUAL(strcmp(info.algorithm, "mpi") == 0, !counts_with_int && !fails);
    munmap(at, n);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void need_memory(size_t mib)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    size_t kib = 0;
    while (f && !kib && fgets(line, sizeof line, f))
        (void)!sscanf(line, "MemAvailable: %zu kB", &kib);
    if (f)
        fclose(f);
    if (kib / 1024 < mib) {
        printf("skipped: less than %zu MiB of memory are free\n", mib);
        exit(77);
    }
}

/* ------------------------------------------------------------------------------------------------------------ what goes wrong */
static void print_cause(struct comm_communicator *world, enum comm_result r, int64_t since)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    printf("rank %d: %s after %lld ms: %s\n", rank, comm_result_name(r), (long long)((rig_now() - since) / RIG_MS), error.text);
    fflush(stdout);
}

static void differ(size_t n)
{
    struct comm_communicator *world = open_world(NULL);
    static int32_t in[100000], out[100000];
    struct comm_request q;
    MUST(comm_barrier(world, &q));
    enum comm_result r = comm_wait(q, RIG_PATIENCE); /* other ranks may have left the barrier and caused the mismatch already */
    int64_t start = rig_now();
    if (r == COMM_OK)
        r = comm_allreduce(world, in, out, rank == 1 ? n : n + 1, COMM_I32, COMM_SUM, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    if (r == COMM_OK) /* MPI did not notice it on this rank, but the comparison of published calls does */
        r = comm_wait(comm_last(world), RIG_PATIENCE);
    for (int64_t end = rig_now() + 3 * RIG_S; r == COMM_OK && rig_now() < end; rig_nap(RIG_MS)) {
        struct comm_error error = {.size = sizeof error};
        (void)!comm_progress(world);
        MUST(comm_error_detail(world, &error));
        r = error.result;
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_MISMATCH && rig_now() - start < 3 * RIG_S);
    r = comm_close(world, RIG_S / 5); /* MPI keeps the buffers of a call that it has started */
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

/* Rank 1 sends the root more than the root receives. MPI may report an error at the root, or truncate the data. The published calls show
 * the mismatch to all ranks. With option check, and over a wire, programs compare both ends of the edge. */
static void edge(void)
{
    struct comm_communicator *world = open_world(NULL);
    static int32_t in[40], out[400];
    size_t counts[RIG_RANKS_MAX];
    struct comm_request q;
    int64_t start = rig_now();
    for (int32_t r = 0; r < ranks; r++)
        counts[r] = 10;
    enum comm_result r = comm_gather_v(world, in, rank == 1 ? 40 : 10, out, counts, NULL, COMM_I32, 0, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    for (int64_t end = rig_now() + 3 * RIG_S; r == COMM_OK && rig_now() < end; rig_nap(RIG_MS)) { /* a leaf completes before the root */
        struct comm_error error = {.size = sizeof error};
        (void)!comm_progress(world);
        MUST(comm_error_detail(world, &error));
        r = error.result;
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_MISMATCH && rig_now() - start < 3 * RIG_S);
    r = comm_close(world, RIG_S / 5);
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

static void killed(void)
{
    struct comm_communicator *world = open_world(NULL);
    int64_t in = 1, out = 0, start = 0;
    enum comm_result r = COMM_OK;
    struct comm_request q;
    for (int i = 0; r == COMM_OK; i++) {
        start = rig_now(); /* another rank may fail in the call before the one that the killed rank misses */
        if (i == 200 && rank == 1)
            kill(getpid(), SIGKILL);
        r = comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_PEER && rig_now() - start < RIG_S);
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    enum comm_result closed = comm_close(world, RIG_S / 5);
    rig_note("flags %x, closed %s", info.flags, comm_result_name(closed));
    CHECK(closed == COMM_OK || (info.flags & COMM_INFO_BUFFERS_HELD && closed == COMM_ERR_TIMEOUT)); /* MPI may release them meanwhile */
    fflush(NULL);
}

/* Rank 0 has the cable of the second host unplugged (in_hosts.c). The ranks of each host must get an error about the other host's. */
static void cut(void)
{
    struct comm_communicator *world = open_world(NULL);
    int64_t in = 1, out = 0, start = 0;
    enum comm_result r = COMM_OK;
    struct comm_request q;
    for (int i = 0; r == COMM_OK; i++) {
        start = rig_now();
        FILE *flag = i == 200 && rank == 0 ? fopen(getenv("CUT"), "w") : NULL;
        if (flag)
            CHECK(fputs("now", flag) >= 0 && fclose(flag) == 0);
        r = comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_PEER && rig_now() - start < 5 * RIG_S);
    (void)comm_close(world, RIG_S / 5);
    fflush(NULL);
    _exit(0); /* skips MPI's exit handlers, which wait for the other host */
}

/* With nothing pending, MPI is not polled. */
static void idle(void)
{
    struct comm_communicator *world = open_world("spin=0us,yield=0us");
    struct comm_event *gate;
    struct rusage before, after;
    sweep(world, 5, 1, false);
    MUST(comm_event_create(world, &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_sync(world, COMM_FOREVER));
    getrusage(RUSAGE_SELF, &before);
    IS(comm_event_sync(gate, RIG_S), COMM_PENDING);
    getrusage(RUSAGE_SELF, &after);
    long us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000L +
              after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    if (us > 20000)
        rig_die(__FILE__, __LINE__, "%ld us of CPU in an idle second", us);
    printf("rank %d: %ld us of CPU in an idle second\n", rank, us);
    comm_event_free(gate);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* Exits while its world is open. No rank may wait for it in MPI_Finalize, and the launcher must see its exit status. */
static void leave(void)
{
    struct comm_communicator *world = open_world(NULL);
    int32_t in = 1, out;
    struct comm_request q;
    MUST(comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q));
    enum comm_result r = comm_wait(q, RIG_PATIENCE);
    CHECK(r == COMM_OK || r == COMM_ERR_PEER); /* another rank may have left before this rank checks */
    exit(9);
}

int main(int count, char **argument)
{
    const char *what = count > 1 ? argument[1] : "suite", *file = getenv("SAY_TO");
    alarm(100);
    if (file && !freopen(file, "a", stdout))
        return 3;
    if (strcmp(what, "suite") == 0)
        suite(NULL, false);
    else if (strcmp(what, "fixed") == 0)
        suite("order=fixed", true);
    else if (strcmp(what, "cells") == 0)
        cells();
    else if (strcmp(what, "large") == 0)
        need_memory(8192), large();
    else if (strcmp(what, "short") == 0)
        differ(2);
    else if (strcmp(what, "long") == 0)
        differ(99990);
    else if (strcmp(what, "edge") == 0)
        edge();
    else if (strcmp(what, "killed") == 0)
        killed();
    else if (strcmp(what, "cut") == 0)
        cut();
    else if (strcmp(what, "idle") == 0)
        idle();
    else if (strcmp(what, "leave") == 0)
        leave();
    else
        return 2;
    return 0;
}
