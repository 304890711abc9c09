/* What must be equal on all ranks, and what may differ: limits at their minimum, with conflicts and gates that differ
 * by rank; settings that differ by rank, of which rank 0's are used. */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------------ 5.3 */
enum { RANKS_MOST = 5, OPS = 40, GATES = OPS, WORDS_MOST = 20000, ROUNDS = 6 };
enum op { OP_ALLREDUCE, OP_BROADCAST, OP_REDUCE, OP_GATHER, OP_SCATTER, OP_BARRIER, OP_KINDS };

struct plan_op {
    enum op op;
    size_t n;
    int32_t root;
};
struct mixed_rank {
    struct comm_communicator *c;
    int64_t *in, *shared, *out[OPS];
    bool checked[OPS]; /* otherwise into a place that several operations share: a conflict on this rank alone */
    struct comm_event *gate[GATES];
    int gates;
    struct comm_request request[OPS];
};

static uint64_t seed;
static uint32_t dice(uint32_t sides)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % sides;
}

static int64_t *take_words(size_t n)
{
    int64_t *at = calloc(n, sizeof *at);
    CHECK(at != NULL);
    return at;
}

/* Element i of rank r's input. */
static int64_t input(int32_t r, size_t i)
{
    return (r + 1) * ((int64_t)(i % 97) + 1);
}

static void issue(struct mixed_rank *m, const struct plan_op *p, int k, int32_t rank)
{
    int64_t *out = m->checked[k] ? m->out[k] : m->shared;
    switch (p->op) {
    case OP_ALLREDUCE:
        MUST(comm_allreduce(m->c, m->in, out, p->n, COMM_I64, COMM_SUM, &m->request[k]));
        return;
    case OP_BROADCAST:
        MUST(comm_broadcast(m->c, rank == p->root ? m->in : out, p->n, COMM_I64, p->root, &m->request[k]));
        return;
    case OP_REDUCE:
        MUST(comm_reduce(m->c, m->in, out, p->n, COMM_I64, COMM_MAX, p->root, &m->request[k]));
        return;
    case OP_GATHER:
        MUST(comm_allgather(m->c, m->in, out, p->n, COMM_I64, &m->request[k]));
        return;
    case OP_SCATTER:
        MUST(comm_reduce_scatter(m->c, m->in, out, p->n, COMM_I64, COMM_SUM, &m->request[k]));
        return;
    default:
        MUST(comm_barrier(m->c, &m->request[k]));
    }
}

static int64_t expected(const struct plan_op *p, int32_t rank, int32_t ranks, size_t i)
{
    int64_t all = (int64_t)ranks * (ranks + 1) / 2;
    switch (p->op) {
    case OP_ALLREDUCE:
        return all * input(0, i);
    case OP_BROADCAST:
        return input(p->root, i);
    case OP_REDUCE:
        return ranks * input(0, i);
    case OP_GATHER:
        return input((int32_t)(i / p->n), i % p->n);
    default:
        return all * input(0, (size_t)rank * p->n + i);
    }
}

static void check(const struct mixed_rank *m, const struct plan_op *p, int k, int32_t rank, int32_t ranks)
{
    bool here = p->op == OP_REDUCE ? rank == p->root : p->op == OP_BROADCAST ? rank != p->root : p->op != OP_BARRIER;
    size_t n = p->op == OP_GATHER ? p->n * (size_t)ranks : p->n;
    if (!here || !m->checked[k])
        return;
    for (size_t i = 0; i < n; i++)
        if (m->out[k][i] != expected(p, rank, ranks, i))
            rig_die(__FILE__, __LINE__, "rank %d, operation %d of kind %d, element %zu of %zu: %lld, expected %lld", rank, k, p->op, i, n,
                    (long long)m->out[k][i], (long long)expected(p, rank, ranks, i));
}

static void choose(struct plan_op *plan)
{
    static const size_t sizes[] = {1, 40, 3000, WORDS_MOST / RANKS_MOST};
    for (int k = 0; k < OPS; k++)
        plan[k] = (struct plan_op){.op = (enum op)dice(OP_KINDS), .n = sizes[dice(4)], .root = (int32_t)dice(2)};
}

static void open_rank(struct mixed_rank *m, struct comm_communicator *c, int32_t rank, const struct plan_op *plan, int32_t ranks)
{
    m->c = c;
    m->in = take_words(WORDS_MOST);
    m->shared = take_words(WORDS_MOST);
    for (size_t i = 0; i < WORDS_MOST; i++)
        m->in[i] = input(rank, i);
    for (int k = 0; k < OPS; k++) {
        m->checked[k] = dice(3) != 0;
        m->out[k] = take_words(plan[k].n * (size_t)ranks);
    }
}

/* A gate of the rank's own before its next call, which delays the call until the end sets it. */
static void maybe_gate(struct mixed_rank *m)
{
    if (dice(6))
        return;
    struct comm_event **gate = &m->gate[m->gates++];
    MUST(comm_event_create(m->c, gate));
    MUST(comm_event_reset(*gate));
    MUST(comm_queue_wait_event(m->c, *gate));
}

static void set_all_gates(struct mixed_rank *m, int32_t ranks)
{
    int next[RANKS_MOST] = {0};
    for (bool left = true; left;) {
        left = false;
        for (int32_t r = 0; r < ranks; r++)
            left |= next[r] < m[r].gates;
        int32_t r = (int32_t)dice((uint32_t)ranks);
        if (next[r] < m[r].gates)
            MUST(comm_event_set(m[r].gate[next[r]++]));
        for (uint32_t i = dice(4); i > 0; i--)
            rig_progress_for(m[0].c, 0);
    }
}

static void mixed(int32_t ranks, const char *options)
{
    struct rig rig;
    static struct mixed_rank m[RANKS_MOST];
    struct plan_op plan[OPS];
    memset(m, 0, sizeof m);
    rig_note("seed %llu, %d ranks, %s", (unsigned long long)seed, ranks, options);
    choose(plan);
    rig_open_options(&rig, ranks, options);
    for (int32_t r = 0; r < ranks; r++)
        open_rank(&m[r], rig.world[r], r, plan, ranks);
    for (int32_t r = 0; r < ranks; r++) {
        for (int k = 0; k < OPS; k++) {
            maybe_gate(&m[r]);
            issue(&m[r], &plan[k], k, r);
        }
    }
    set_all_gates(m, ranks);
    for (int32_t r = 0; r < ranks; r++)
        rig_wait_all(m[r].request, OPS);
    for (int32_t r = 0; r < ranks; r++) {
        for (int k = 0; k < OPS; k++) {
            check(&m[r], &plan[k], k, r, ranks);
            free(m[r].out[k]);
        }
        while (m[r].gates > 0)
            comm_event_free(m[r].gate[--m[r].gates]);
        free(m[r].in);
        free(m[r].shared);
    }
    rig_close(&rig);
}

RIG_TEST(contract_5_3_minimal_limits)
{
    int rounds = rig_quick() ? 1 : ROUNDS;
    for (int i = 0; i < rounds; i++) {
        seed = 1000 + (uint64_t)i;
        mixed(2, "minimal=1,window=4");
        mixed(3, "minimal=1,window=4,chunk=4096");
        mixed(5, "minimal=1,window=8");
        mixed(5, "minimal=1,window=4,algorithm=allreduce:slices");
        mixed(4, "minimal=1,window=4,algorithm=allreduce:doubling");
        mixed(4, "window=64");
    }
}

/* ------------------------------------------------------------------------------------------------------------ 5.4 */
static const char *const wish[3] = {"allreduce:doubling,broadcast:pipeline", "allreduce:slices", ""};

static void own_settings(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    static int64_t in[4000], out[4000];
    struct comm_request request[2];
    struct comm_request_info info = {.size = sizeof info};
    struct comm_info world_info = {.size = sizeof world_info};
    (void)none;
    setenv("COMM_ALGORITHM", wish[rank], 1);
    setenv("COMM_WINDOW", rank == 0 ? "16" : rank == 1 ? "128" : "4", 1);
    setenv("COMM_CHUNK", rank == 0 ? "8192" : "32768", 1);
    setenv("COMM_MINIMAL", rank == 2 ? "1" : "0", 1);
    setenv("COMM_ISA", rank == 1 ? "scalar" : "auto", 1);
    struct comm_communicator *world = proc_open(proc, rank);
    for (size_t i = 0; i < 4000; i++)
        in[i] = (int64_t)i + rank;
    MUST(comm_allreduce(world, in, out, 4000, COMM_I64, COMM_SUM, &request[0]));
    MUST(comm_wait(request[0], RIG_PATIENCE));
    for (size_t i = 0; i < 4000; i++)
        EQUAL(out[i], 3 * (int64_t)i + 3);
    MUST(comm_describe_request(request[0], &info));
    if (strcmp(info.algorithm, "doubling") != 0)
        rig_die(__FILE__, __LINE__, "rank %d runs %s, rank 0 asked for doubling", rank, info.algorithm);
    MUST(comm_broadcast(world, in, 10, COMM_I64, 2, &request[1]));
    MUST(comm_wait(request[1], RIG_PATIENCE));
    EQUAL(in[9], 11);
    MUST(comm_describe_request(request[1], &info));
    CHECK(strcmp(info.algorithm, "pipeline") == 0);
    MUST(comm_describe(world, &world_info));
    EQUAL(world_info.window, 16);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* Whether ranks share CPUs also affects the choice, on shared memory. */
static void own_cpus(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_request request;
    struct comm_request_info info = {.size = sizeof info};
    int64_t in = rank, out = 0;
    char first[sizeof info.algorithm] = {0};
    (void)none;
    setenv("COMM_CPUS", rank == 0 ? "2" : "64", 1);
    struct comm_communicator *world = proc_open(proc, rank);
    MUST(comm_scan(world, &in, &out, 1, COMM_I64, COMM_SUM, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    EQUAL(out, rank * (rank + 1) / 2);
    MUST(comm_describe_request(request, &info));
    memcpy(first, info.algorithm, sizeof first);
    MUST(comm_broadcast(world, first, sizeof first, COMM_BYTE, 0, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    CHECK(strcmp(info.algorithm, first) == 0);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_5_4_cpus_of_rank_0_are_all_ranks)
{
    struct proc proc = {.raw = true};
    proc_needs_shm();
    proc_start(&proc, 5, own_cpus);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

RIG_TEST(contract_5_4_settings_of_rank_0_are_all_ranks)
{
    struct proc proc = {.raw = true};
    proc_needs_shm();
    proc_start(&proc, 3, own_settings);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* A name that no algorithm has, only in rank 0's settings: all ranks report it, at the same call. */
static void wrong_name(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    int64_t in = 1, out = 0;
    struct comm_request request = COMM_REQUEST_NONE;
    (void)none;
    if (rank == 0)
        setenv("COMM_ALGORITHM", "allreduce:carrier-pigeon", 1);
    struct comm_communicator *world = proc_open(proc, rank);
    enum comm_result told = comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &request);
    if (told == COMM_OK)
        told = comm_wait(request, RIG_PATIENCE);
    atomic_store(&proc->page[rank].result, (int32_t)told);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_5_4_a_wrong_name_is_told_to_all)
{
    struct proc proc = {.raw = true};
    proc_needs_shm();
    proc_start(&proc, 3, wrong_name);
    proc_finish(&proc, -1, RIG_PATIENCE);
    for (int32_t r = 1; r < 3; r++)
        EQUAL(proc.page[r].result, proc.page[0].result);
}

/* Each rank has machine parameters of its own, by which another algorithm is the fastest; rank 2's file does not exist. */
static void own_machine(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    static const char *const costly[] = {"express", "call", "call"};
    static int64_t in[2048], out[2048];
    char text[16384], path[64];
    struct comm_communicator *alone;
    (void)none;
    MUST(comm_open_local(NULL, 1, NULL, &alone));
    MUST(comm_describe_machine(alone, text, sizeof text));
    MUST(comm_close(alone, RIG_PATIENCE));
    snprintf(path, sizeof path, "/tmp/commstream-machine-%d-%d", (int)getpid(), rank);
    FILE *file = rank == 2 ? NULL : fopen(path, "w");
    size_t key = strlen(costly[rank]);
    for (const char *line = text; file && *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, costly[rank], key) == 0 && line[key] == ' ')
            fprintf(file, "%s 1000000 ns\n", costly[rank]);
        else
            fprintf(file, "%.*s\n", (int)strcspn(line, "\n"), line);
    }
    CHECK(!file || fclose(file) == 0);
    setenv("COMM_MACHINE", path, 1);
    struct comm_communicator *world = proc_open(proc, rank);
    for (size_t n = 1; n <= 2048; n *= 2) {
        struct comm_request request;
        struct comm_request_info info = {.size = sizeof info};
        for (size_t i = 0; i < n; i++)
            in[i] = (int64_t)i + rank;
        MUST(comm_allreduce(world, in, out, n, COMM_I64, COMM_SUM, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        for (size_t i = 0; i < n; i++)
            EQUAL(out[i], 3 * (int64_t)i + 3);
        MUST(comm_describe_request(request, &info));
        if (strcmp(info.algorithm, "read_all") == 0)
            rig_die(__FILE__, __LINE__, "rank %d runs read_all, which rank 0's figures make the slowest", rank);
    }
    MUST(comm_close(world, RIG_PATIENCE));
    unlink(path);
}

RIG_TEST(contract_5_4_the_machine_is_rank_0s)
{
    struct proc proc = {.raw = true};
    proc_needs_shm();
    proc_start(&proc, 3, own_machine);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* A wrong file of rank 0: the world does not open on any rank, and all ranks name the line. */
static void wrong_machine(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)proc;
    char path[64], why[512] = "";
    struct comm_communicator *world;
    (void)none;
    snprintf(path, sizeof path, "/tmp/commstream-machine-%d", (int)getpid());
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "commstream-machine 2\n\n# nothing yet\ncall soon ns\n");
    CHECK(fclose(file) == 0);
    if (rank == 0)
        setenv("COMM_MACHINE", path, 1);
    setenv("COMM_LOG", "off", 1);
    EQUAL(comm_open(COMM_CONFIG(.backend = "shm", .error_text = why, .error_text_bytes = sizeof why), &world), COMM_ERR_CONFIG);
    unlink(path);
    if (!strstr(why, "machine=") || !strstr(why, "line 4: soon: expected a number"))
        rig_die(__FILE__, __LINE__, "rank %d is told \"%s\"", rank, why);
}

RIG_TEST(contract_5_4_a_wrong_machine_is_told_to_all)
{
    struct proc proc = {.raw = true};
    proc_needs_shm();
    proc_start(&proc, 3, wrong_machine);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_5_3_minimal_limits),
        cmocka_unit_test(contract_5_4_settings_of_rank_0_are_all_ranks),
        cmocka_unit_test(contract_5_4_cpus_of_rank_0_are_all_ranks),
        cmocka_unit_test(contract_5_4_a_wrong_name_is_told_to_all),
        cmocka_unit_test(contract_5_4_the_machine_is_rank_0s),
        cmocka_unit_test(contract_5_4_a_wrong_machine_is_told_to_all),
    };
    return cmocka_run_group_tests_name("contract_5_agreed", tests, NULL, NULL);
}
