/* Programs over hosts that this machine simulates: the same bits as on one host, and no more bytes between hosts than
 * necessary. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 8, COUNT = 5 << 16, ROUNDS = 2 };
enum what { BROADCAST, REDUCE, ALLREDUCE, ALLGATHER, REDUCE_SCATTER, KINDS };

/* `count` elements in all; a rank's own block is a part of them, if there are blocks. */
static float in[RANKS_MOST][COUNT], out[RANKS_MOST][COUNT], want[KINDS][RANKS_MOST][COUNT];

/* Sums that have different bits in every order. */
static void fill(int32_t ranks)
{
    uint64_t s = 1;
    for (int32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < COUNT; i++) {
            s = s * UINT64_C(6364136223846793005) + 1442695040888963407;
            in[r][i] = ((float)(s >> 40) - 8388608.0f) * (s & 1 ? 1e-3f : 1e3f);
        }
}

/* ------------------------------------------------------------------------------------------------------------ placements */
struct places {
    const char *list; /* COMM_HOST */
    int32_t ranks, hosts;
    bool subtrees; /* each host's ranks are a subtree of T, so that partial results cover whole hosts */
};

static int32_t host_of(const struct places *p, int32_t rank)
{
    return p->list[2 * rank] - 'a';
}

static int32_t ranks_of(const struct places *p, int32_t host)
{
    int32_t count = 0;
    for (int32_t r = 0; r < p->ranks; r++)
        count += host_of(p, r) == host;
    return count;
}

static int32_t root_of(const struct places *p)
{
    return p->ranks / 2;
}

/* ------------------------------------------------------------------------------------------------------------ necessary bytes */
/* The least traffic into and out of a host, in elements, for n elements in all. */
static void least_of(const struct places *p, enum what what, int32_t host, double *incoming, double *outgoing)
{
    double here = ranks_of(p, host), ranks = p->ranks, others = p->hosts - 1, share = COUNT / ranks;
    bool home = host_of(p, root_of(p)) == host;

    switch (what) {
    case BROADCAST: /* a share for each of the other hosts, which pass it on */
        *incoming = home ? 0 : COUNT;
        *outgoing = home ? COUNT : COUNT * (others - 1) / others;
        break;
    case REDUCE: /* with two hosts the root's finishes everything; with more all the others do */
        *incoming = !home && others == 1 ? 0 : COUNT;
        *outgoing = home && others == 1 ? 0 : COUNT;
        break;
    case ALLREDUCE:
        *incoming = *outgoing = share * (here * others + ranks - here);
        break;
    case ALLGATHER:
        *incoming = share * (ranks - here);
        *outgoing = share * here * others;
        break;
    default:
        *incoming = share * here * others;
        *outgoing = share * (ranks - here);
    }
}

/* ------------------------------------------------------------------------------------------------------------ calls */
static enum comm_result issue(struct comm_communicator *c, enum what what, int32_t r, int32_t ranks, int32_t root, struct comm_request *q)
{
    size_t block = COUNT / (size_t)ranks;

    switch (what) {
    case BROADCAST:
        memcpy(out[r], in[r], sizeof out[r]);
        return comm_broadcast(c, out[r], COUNT, COMM_F32, root, q);
    case REDUCE:
        return comm_reduce(c, in[r], out[r], COUNT, COMM_F32, COMM_SUM, root, q);
    case ALLREDUCE:
        return comm_allreduce(c, in[r], out[r], COUNT, COMM_F32, COMM_SUM, q);
    case ALLGATHER:
        return comm_allgather(c, in[r], out[r], block, COMM_F32, q);
    default:
        return comm_reduce_scatter(c, in[r], out[r], block, COMM_F32, COMM_SUM, q);
    }
}

static void perform(struct rig *rig, enum what what, int32_t root, const char *algorithm)
{
    struct comm_request request[RANKS_MOST];
    struct comm_request_info info = {.size = sizeof info};

    memset(out, 0, sizeof out);
    for (int32_t r = 0; r < rig->ranks; r++)
        MUST(issue(rig->world[r], what, r, rig->ranks, root, &request[r]));
    MUST(comm_wait_all(request, (size_t)rig->ranks, RIG_PATIENCE));
    MUST(comm_describe_request(request[0], &info));
    CHECK(!algorithm || !strcmp(info.algorithm, algorithm));
}

/* The traffic of all ranks of one host together. */
static void look(struct rig *rig, const struct places *p, int32_t host, uint64_t *sent, uint64_t *received)
{
    *sent = *received = 0;
    for (int32_t r = 0; r < rig->ranks; r++) {
        struct comm_stats stats = {.size = sizeof stats};
        MUST(comm_statistics(rig->world[r], &stats));
        *sent += host_of(p, r) == host ? stats.network_out : 0;
        *received += host_of(p, r) == host ? stats.network_in : 0;
    }
}

static void within(const char *side, enum what what, int32_t host, uint64_t bytes, double least)
{
    rig_note("%s of host %d in collective %d: %llu bytes for %.0f", side, host, (int)what, (unsigned long long)bytes, least);
    CHECK((double)bytes >= least && (double)bytes <= least * 1.05 + 4096 * ROUNDS);
    rig_note("%s", "");
}

static void measured(struct rig *rig, const struct places *p, enum what what, const char *algorithm)
{
    uint64_t sent[2][RANKS_MOST], received[2][RANKS_MOST];

    for (int32_t h = 0; h < p->hosts; h++)
        look(rig, p, h, &sent[0][h], &received[0][h]);
    for (int i = 0; i < ROUNDS; i++) {
        perform(rig, what, root_of(p), algorithm);
        for (int32_t r = 0; r < p->ranks; r++)
            CHECK(memcmp(out[r], want[what][r], sizeof out[r]) == 0);
    }
    for (int32_t h = 0; h < p->hosts; h++)
        look(rig, p, h, &sent[1][h], &received[1][h]);
    for (int32_t h = 0; h < p->hosts && (p->subtrees || what == BROADCAST || what == ALLGATHER); h++) {
        double incoming, outgoing, bytes = ROUNDS * sizeof(float);
        least_of(p, what, h, &incoming, &outgoing);
        within("out", what, h, sent[1][h] - sent[0][h], outgoing * bytes);
        within("in", what, h, received[1][h] - received[0][h], incoming * bytes);
    }
}

/* The allreduces that are meant for shorter lengths send no more. */
static void by_name(const struct places *p, const char *algorithm)
{
    struct rig rig;
    char option[64];

    snprintf(option, sizeof option, "allreduce:%s", algorithm);
    setenv("COMM_ALGORITHM", option, 1);
    rig_open(&rig, p->ranks, NULL);
    measured(&rig, p, ALLREDUCE, algorithm);
    rig_close(&rig);
    unsetenv("COMM_ALGORITHM");
}

static void over(const struct places *p)
{
    struct rig rig;

    fill(p->ranks);
    setenv("COMM_BACKEND", "local", 1);
    unsetenv("COMM_HOST");
    rig_open(&rig, p->ranks, NULL);
    for (enum what what = BROADCAST; what < KINDS; what++) {
        perform(&rig, what, root_of(p), NULL);
        memcpy(want[what], out, sizeof out);
    }
    rig_close(&rig);
    setenv("COMM_BACKEND", "shm+tcp", 1);
    setenv("COMM_HOST", p->list, 1);
    rig_open(&rig, p->ranks, NULL);
    for (enum what what = BROADCAST; what < KINDS; what++)
        measured(&rig, p, what, "hosts");
    rig_close(&rig);
    by_name(p, "hosts_few");
    if (p->hosts == 2 && p->subtrees)
        by_name(p, "hosts_each");
}

RIG_TEST(hosts_two_of_two)
{
    over(&(struct places){"a,a,b,b", 4, 2, true});
}

RIG_TEST(hosts_four_of_two)
{
    over(&(struct places){"a,a,b,b,c,c,d,d", 8, 4, true});
}

RIG_TEST(hosts_two_of_four)
{
    over(&(struct places){"a,a,a,a,b,b,b,b", 8, 2, true});
}

RIG_TEST(hosts_in_turns)
{
    over(&(struct places){"a,b,a,b", 4, 2, false});
}

RIG_TEST(hosts_uneven)
{
    over(&(struct places){"a,b,b,b,c", 5, 3, false});
}

/* Every rank learns its place among the hosts, and whether all hosts have equally many ranks. */
static void told(const struct places *p, bool homogeneous)
{
    struct rig rig;

    setenv("COMM_BACKEND", "shm+tcp", 1);
    setenv("COMM_HOST", p->list, 1);
    rig_open(&rig, p->ranks, NULL);
    for (int32_t r = 0; r < p->ranks; r++) {
        struct comm_info info = {.size = sizeof info};
        MUST(comm_describe(rig.world[r], &info));
        EQUAL(info.nodes, p->hosts);
        EQUAL(info.node, host_of(p, r));
        EQUAL(info.local_ranks, ranks_of(p, info.node));
        EQUAL(info.homogeneous, homogeneous);
    }
    rig_close(&rig);
}

RIG_TEST(hosts_are_told)
{
    told(&(struct places){"a,a,b,b", 4, 2, true}, true);
    told(&(struct places){"a,b,c,b,c,a", 6, 3, false}, true);
    told(&(struct places){"a,b,b,b,c", 5, 3, false}, false);
    told(&(struct places){"a,a,b", 3, 2, false}, false);
    told(&(struct places){"a,a", 2, 1, true}, true);
}

/* Small calls: from each rank of a host one line to each other host. */
RIG_TEST(hosts_of_the_small)
{
    static const struct places places = {"a,a,b,b", 4, 2, true};
    struct rig rig;
    struct comm_request request[RANKS_MOST];
    struct comm_request_info info = {.size = sizeof info};

    setenv("COMM_BACKEND", "shm+tcp", 1);
    setenv("COMM_HOST", places.list, 1);
    fill(places.ranks);
    rig_open(&rig, places.ranks, NULL);
    for (int i = 0; i < 100; i++) {
        for (int32_t r = 0; r < places.ranks; r++)
            MUST(i % 2 ? comm_barrier(rig.world[r], &request[r])
                       : comm_allreduce(rig.world[r], in[r], out[r], 3, COMM_F32, COMM_SUM, &request[r]));
        MUST(comm_wait_all(request, (size_t)places.ranks, RIG_PATIENCE));
        MUST(comm_describe_request(request[0], &info));
        CHECK(!strcmp(info.algorithm, "hosts_once"));
        for (size_t e = 0; e < 3; e++)
            CHECK(out[3][e] == (in[0][e] + in[1][e]) + (in[2][e] + in[3][e]));
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_two_of_two), cmocka_unit_test(hosts_four_of_two), cmocka_unit_test(hosts_two_of_four),
        cmocka_unit_test(hosts_in_turns),   cmocka_unit_test(hosts_uneven),      cmocka_unit_test(hosts_of_the_small),
        cmocka_unit_test(hosts_are_told),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
