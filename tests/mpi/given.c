/*
 * Makes MPI's communicators from this library's, and the reverse (commstream/mpi.h):
 *
 *   given single|funneled|serialized|multiple BACKEND | halves BACKEND | halves_single BACKEND |
 *         halves_serialized BACKEND | closed BACKEND | crossed BACKEND | crossed_launched BACKEND | refused BACKEND |
 *         unmet | exhausted | wrong | early | late
 *         finalized work|message|nothing|child BACKEND
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "leave.h"
#include "now.h"

#include <commstream/mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[640];

static enum comm_result open_of(MPI_Comm mpi, const char *backend, struct comm_communicator **world)
{
    enum comm_result r = comm_mpi_open(
        mpi, COMM_CONFIG(.backend = backend, .operation_timeout_ns = 20 * RIG_S, .error_text = text, .error_text_bytes = sizeof text),
        world);
    if (r != COMM_OK)
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
    return r;
}

/* Checks that both have the same ranks in the same order. */
static void are_alike(struct comm_communicator *c, MPI_Comm mpi)
{
    int rank, size;
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);
    EQUAL(comm_rank(c), rank);
    EQUAL(comm_size(c), size);
    for (int32_t i = 0; i < 20; i++) {
        int32_t mine[2] = {rank + 1, rank * i}, *all = calloc((size_t)size * 2, sizeof *all),
                *theirs = calloc((size_t)size * 2, sizeof *all);
        struct comm_request q;
        MUST(comm_allgather(c, mine, all, 2, COMM_I32, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        MPI_Allgather(mine, 2, MPI_INT32_T, theirs, 2, MPI_INT32_T, mpi);
        CHECK(memcmp(all, theirs, (size_t)size * 2 * sizeof *all) == 0);
        free(all);
        free(theirs);
    }
}

static void hosts_are(struct comm_communicator *world)
{
    const char *hosts = getenv("COMM_TEST_HOSTS");
    struct comm_info info = {.size = sizeof info};
    MUST(comm_describe(world, &info));
    EQUAL(info.nodes, hosts ? strtol(hosts, NULL, 10) : 1);
    printf("backend %s\n", info.backend);
}

/* A world of all ranks in reverse order, half of it, and an MPI communicator made from that half. */
static void there_and_back(const char *backend)
{
    struct comm_communicator *world, *half;
    MPI_Comm backwards, given;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &backwards);
    MUST(open_of(backwards, backend, &world));
    hosts_are(world);
    are_alike(world, backwards);
    MUST(NOW(comm_split, world, rank % 2, rank, &half));
    MUST(comm_mpi_give(half, world, backwards, 3, &given));
    are_alike(half, given);
    MPI_Comm_free(&given);
    MUST(comm_mpi_give(world, world, backwards, 4, &given));
    are_alike(world, given);
    MPI_Comm_free(&given);
    MPI_Comm_free(&backwards);
    MUST(comm_close(half, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
}

/* MPICH 4.0 over UCX, on two hosts: MPI_Finalize waits for ever in one of about fifteen runs, whatever backend the worlds had. One rank
 * waits in it for an answer to a connection's end, and the others wait for that rank in a call that answers nothing. */
static void finalize(void)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (getenv("LEAVE_MPI_OPEN"))
        leave_mpi_open(rank, size);
    MPI_Finalize();
}

static void at_level(int level, const char *backend)
{
    int provided;
    MPI_Init_thread(NULL, NULL, level, &provided);
    if (provided < level) {
        printf("skipped: MPI provides a lower thread level\n");
        exit(77);
    }
    there_and_back(backend);
    there_and_back(backend);
    finalize();
}

/* Checks whether MPI or a program of this library ran the last call. */
static void served_by(struct comm_request q, const char *want)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    if (strcmp(info.algorithm, want) != 0)
        rig_die(__FILE__, __LINE__, "served by %s, expected %s", info.algorithm, want);
}

/* A world of half the ranks, a child of it, and a world of all ranks. Each has its own MPI_Comm; below MPI_THREAD_MULTIPLE the child has
 * none. */
static void half_over_mpi(struct comm_communicator *world, MPI_Comm half, bool multiple)
{
    struct comm_communicator *child, *all;
    struct comm_request q;
    int rank, size;
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    MUST(NOW(comm_split, world, 0, size - rank, &child));
    MUST(open_of(MPI_COMM_WORLD, "mpi", &all));
    for (int32_t i = 0; i < 20; i++) {
        struct comm_communicator *const each[] = {world, child, all};
        for (int k = 0; k < 3; k++) {
            int32_t one = 1 + i, sum = 0;
            MUST(comm_allreduce(each[k], &one, &sum, 1, COMM_I32, COMM_SUM, &q));
            MUST(comm_wait(q, RIG_PATIENCE));
            EQUAL(sum, (1 + i) * comm_size(each[k]));
            served_by(q, k != 1 || multiple ? "mpi" : getenv("COMM_TEST_HOSTS") ? "hosts_once" : "read_all");
        }
    }
    MUST(comm_close(all, RIG_PATIENCE));
    MUST(comm_close(child, RIG_PATIENCE));
}

/* Two worlds at once, each with half of the ranks. */
static void halves(const char *backend, int level)
{
    struct comm_communicator *world = NULL;
    MPI_Comm half;
    int rank, provided;
    MPI_Init_thread(NULL, NULL, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    bool over_mpi = strcmp(backend, "mpi") == 0, multiple = level == MPI_THREAD_MULTIPLE;
    bool refused = strcmp(backend, "shm+mpi") == 0 && !multiple;
    if (refused) {
        IS(open_of(half, backend, &world), COMM_ERR_CONFIG);
        printf("%s\n", text);
    }
    for (int i = 0; !refused && i < 2; i++) {
        MUST(open_of(half, backend, &world));
        are_alike(world, half);
        hosts_are(world);
        if (over_mpi)
            half_over_mpi(world, half, multiple);
        MUST(comm_close(world, RIG_PATIENCE));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    finalize();
}

static void sums(struct comm_communicator *c, int32_t mine)
{
    int32_t sum = 0;
    struct comm_request q;
    MUST(comm_allreduce(c, &mine, &sum, 1, COMM_I32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(sum, mine * comm_size(c));
}

/* A communicator goes on when the world that it was made from is closed, and others can be made from it. */
static void closed(const char *backend)
{
    struct comm_communicator *world, *child, *grandchild;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
    MUST(open_of(MPI_COMM_WORLD, backend, &world));
    MUST(NOW(comm_dup, world, NULL, &child));
    MUST(comm_close(world, RIG_PATIENCE));
    MUST(NOW(comm_dup, child, NULL, &grandchild));
    sums(child, 3);
    sums(grandchild, 5);
    MUST(comm_close(child, RIG_PATIENCE));
    sums(grandchild, 7);
    MUST(comm_close(grandchild, RIG_PATIENCE));
    finalize();
}

struct opening {
    MPI_Comm mpi; /* ranks 0: the launcher says rank and ranks */
    struct comm_communicator *world;
    const char *backend;
    int32_t rank, ranks;
    int64_t late_ns;
};

/* Keeps this rank's opening behind those of its other threads. */
static int exchange_late(void *arg, const void *in, size_t bytes, void *out)
{
    struct opening *o = arg;
    int failed = MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, o->mpi) != MPI_SUCCESS;
    rig_nap(o->late_ns);
    return failed;
}

static void *open_it(void *arg)
{
    struct opening *o = arg;
    MUST(comm_open(COMM_CONFIG(.backend = o->backend, .rank = o->rank, .ranks = o->ranks, .exchange = exchange_late, .exchange_arg = o,
                               .operation_timeout_ns = 20 * RIG_S),
                   &o->world));
    return NULL;
}

/* Two threads open a world of all ranks each, in a different order on each rank. */
static void crossed(const char *backend, bool launched)
{
    struct opening o[2];
    pthread_t thread[2];
    int rank, ranks;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 2; i++) {
        o[i] =
            (struct opening){.backend = backend, .rank = rank, .ranks = launched ? 0 : ranks, .late_ns = (rank + i) % 2 ? 200 * RIG_MS : 0};
        MPI_Comm_dup(MPI_COMM_WORLD, &o[i].mpi);
    }
    for (int i = 0; i < 2; i++)
        EQUAL(pthread_create(&thread[i], NULL, open_it, &o[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++)
        sums(o[i].world, 3 + i);
    for (int i = 0; i < 2; i++) {
        MUST(comm_close(o[i].world, RIG_PATIENCE));
        MPI_Comm_free(&o[i].mpi);
    }
    finalize();
}

/* One rank cannot open, or opens with another backend than the others. No rank waits for it, and the next world opens. */
static void refused(const char *backend)
{
    struct comm_communicator *world = NULL;
    int rank;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1)
        setenv("COMM_WINDOW", "seven", 1);
    IS(open_of(MPI_COMM_WORLD, backend, &world), rank == 1 ? COMM_ERR_CONFIG : COMM_ERR_REFUSED);
    CHECK(strstr(text, rank == 1 ? "COMM_WINDOW=seven" : "failed on another rank"));
    unsetenv("COMM_WINDOW");
    IS(open_of(MPI_COMM_WORLD, rank == 1 ? "auto" : backend, &world), COMM_ERR_CONFIG);
    CHECK(strstr(text, "the same backend"));
    MUST(open_of(MPI_COMM_WORLD, backend, &world));
    sums(world, 3);
    MUST(comm_close(world, RIG_PATIENCE));
    finalize();
}

/* Rank 1 meets the others once, and they it twice. Their time is up, and MPI may go on with what they gave it. */
static void unmet(void)
{
    struct comm_mpi_meeting m;
    MPI_Comm met;
    int rank, in[2] = {0}, out[8] = {0};
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
    MUST(comm_mpi_meet(MPI_COMM_WORLD, &met, &m));
    m.until = MPI_Wtime() + 60;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    in[1] = rank;
    EQUAL(comm_mpi_exchange(&m, in, sizeof in, out), 0);
    for (int r = 0; r < m.ranks; r++)
        EQUAL(out[2 * r + 1], r);
    if (rank != 1) {
        int64_t since = rig_now();
        m.until = MPI_Wtime() + 1;
        CHECK(comm_mpi_exchange(&m, in, sizeof in, out) != 0);
        IS(m.result, COMM_ERR_TIMEOUT);
        CHECK(strstr(m.why, "open_timeout_ns") && rig_now() - since < RIG_PATIENCE);
        CHECK(comm_mpi_exchange(&m, in, sizeof in, out) != 0); /* and it does not begin again */
    } else {
        rig_nap(3 * RIG_S);
        EQUAL(comm_mpi_agree(&m, COMM_MPI_LENGTHS + sizeof in), 1); /* so that MPI can end */
    }
    finalize();
}

/* MPI has few communicators left. The creating call fails that gets none, the log has MPI's reason, and what there is goes on. */
static void exhausted(void)
{
    enum { MANY = 4000, LEFT = 5 };
    struct comm_communicator *world, *made[LEFT + 1];
    static MPI_Comm taken[MANY];
    int count = 0, have = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
    MUST(open_of(MPI_COMM_WORLD, "mpi", &world));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    while (count < MANY && MPI_Comm_dup(MPI_COMM_WORLD, &taken[count]) == MPI_SUCCESS)
        count++;
    CHECK(count > LEFT && count < MANY);
    for (int i = 0; i < LEFT; i++)
        MPI_Comm_free(&taken[--count]);
    enum comm_result r = COMM_OK;
    while (have <= LEFT && (r = NOW(comm_dup, world, NULL, &made[have])) == COMM_OK)
        have++;
    IS(r, COMM_ERR_BACKEND);
    sums(world, 3);
    sums(made[have - 1], 5);
    MUST(comm_close(made[have - 1], RIG_PATIENCE));
    MUST(NOW(comm_dup, world, NULL, &made[have - 1]));
    sums(made[have - 1], 7);
    while (have)
        MUST(comm_close(made[--have], RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    while (count)
        MPI_Comm_free(&taken[--count]);
    finalize();
}

/* What is no communicator of ranks that include this one. */
static void wrong(void)
{
    struct comm_communicator *world = NULL;
    MPI_Comm half, both;
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &both);
    IS(open_of(both, NULL, &world), COMM_ERR_ARGUMENT);
    CHECK(strstr(text, "intercommunicator"));
    IS(open_of(MPI_COMM_NULL, NULL, &world), COMM_ERR_ARGUMENT);
    CHECK(strstr(text, "MPI_COMM_NULL"));
    MUST(open_of(MPI_COMM_WORLD, NULL, &world));
    MPI_Comm made = MPI_COMM_NULL, *wrongs[] = {&both, &(MPI_Comm){MPI_COMM_NULL}, &half, &(MPI_Comm){MPI_COMM_SELF}};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        IS(comm_mpi_give(world, world, *wrongs[i], 0, &made), COMM_ERR_ARGUMENT);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    finalize();
    IS(comm_mpi_give(world, world, MPI_COMM_WORLD, 0, &made), COMM_ERR_STATE);
    CHECK(made == MPI_COMM_NULL);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* MPI is finalized while a world on the wire over MPI is open. */
static void finalized(const char *what, const char *backend)
{
    struct comm_communicator *world, *child = NULL;
    struct comm_request q;
    int32_t in = 1, out;
    enum comm_result r = COMM_ERR_STATE;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
    MUST(open_of(MPI_COMM_WORLD, backend, &world));
    sums(world, 3);
    MPI_Finalize();
    if (strcmp(what, "work") == 0)
        r = comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q);
    else if (strcmp(what, "child") == 0)
        r = comm_dup(world, NULL, &child, &q);
    else if (strcmp(what, "message") == 0 && comm_rank(world) == 0)
        r = comm_send(world, &in, 1, COMM_I32, 1, 5, &q);
    else if (strcmp(what, "message") == 0)
        r = comm_recv(world, &in, 1, COMM_I32, 0, 5, NULL, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    if (strcmp(what, "message") == 0 && r == COMM_OK) /* a send ends when its buffer is free */
        r = comm_sync(world, RIG_PATIENCE);
    struct comm_error error = {.size = sizeof error};
    if (comm_error_detail(world, &error) == COMM_OK)
        printf("%s: %s\n", comm_result_name(r), error.text);
    if (strcmp(what, "message") != 0)
        EQUAL(r, COMM_ERR_STATE);
    MUST(comm_close(world, RIG_S));
}

/* Before MPI is initialized, and after it has been finalized. */
static void out_of_time(bool early)
{
    struct comm_communicator *world = NULL;
    if (early) {
        IS(open_of(MPI_COMM_WORLD, NULL, &world), COMM_ERR_STATE);
        CHECK(strstr(text, "call MPI_Init before"));
    }
    MPI_Init(NULL, NULL);
    MUST(open_of(MPI_COMM_WORLD, NULL, &world));
    MPI_Finalize();
    struct comm_request q; /* MPI has ended, and the world does not need it */
    int32_t one = 1, sum = 0;
    MUST(comm_allreduce(world, &one, &sum, 1, COMM_I32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(sum, comm_size(world));
    MUST(comm_close(world, RIG_PATIENCE));
    IS(open_of(MPI_COMM_WORLD, NULL, &world), COMM_ERR_STATE);
    CHECK(strstr(text, "MPI_Finalize was called"));
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"single", MPI_THREAD_SINGLE},
                  {"funneled", MPI_THREAD_FUNNELED},
                  {"serialized", MPI_THREAD_SERIALIZED},
                  {"multiple", MPI_THREAD_MULTIPLE}};
    const char *what = count > 1 ? argument[1] : "", *backend = count > 2 ? argument[2] : NULL;
    rig_end_after(100);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strcmp(what, levels[i].name) == 0) {
            at_level(levels[i].level, backend);
            return 0;
        }
    if (strcmp(what, "halves") == 0)
        halves(backend, MPI_THREAD_MULTIPLE);
    else if (strcmp(what, "halves_single") == 0)
        halves(backend, MPI_THREAD_SINGLE);
    else if (strcmp(what, "halves_serialized") == 0)
        halves(backend, MPI_THREAD_SERIALIZED);
    else if (strcmp(what, "closed") == 0)
        closed(backend);
    else if (strncmp(what, "crossed", 7) == 0)
        crossed(backend, strcmp(what, "crossed_launched") == 0);
    else if (strcmp(what, "refused") == 0)
        refused(backend);
    else if (strcmp(what, "unmet") == 0)
        unmet();
    else if (strcmp(what, "exhausted") == 0)
        exhausted();
    else if (strcmp(what, "wrong") == 0)
        wrong();
    else if (strcmp(what, "finalized") == 0)
        finalized(backend, count > 3 ? argument[3] : NULL);
    else if (strcmp(what, "early") == 0 || strcmp(what, "late") == 0)
        out_of_time(strcmp(what, "early") == 0);
    else
        return 2;
    return 0;
}
