/* Programs over hosts that this machine plays: the bits of one host, and no more bytes between hosts than any program must send. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 8, COUNT = 1 << 19, ROUNDS = 3 };

static float in[RANKS_MOST][COUNT], out[RANKS_MOST][COUNT], want[COUNT];

/* Sums whose every order gives other bits. */
static void fill(int32_t ranks)
{
    uint64_t s = 1;
    for (int32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < COUNT; i++) {
            s = s * UINT64_C(6364136223846793005) + 1442695040888963407;
            in[r][i] = ((float)(s >> 40) - 8388608.0f) * (s & 1 ? 1e-3f : 1e3f);
        }
}

static void sum(struct rig *rig, int32_t ranks, const char *algorithm)
{
    struct comm_request request[RANKS_MOST];
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_allreduce(rig->world[r], in[r], out[r], COUNT, COMM_F32, COMM_SUM, &request[r]));
    MUST(comm_wait_all(request, (size_t)ranks, RIG_PATIENCE));
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(request[0], &info));
    CHECK(!algorithm || !strcmp(info.algorithm, algorithm));
}

/* Of the ranks of one host together, between two looks. */
static void look(struct rig *rig, int32_t ranks, int32_t each, uint64_t *sent, uint64_t *received)
{
    for (int32_t r = 0; r < ranks; r++) {
        struct comm_stats stats = {.size = sizeof stats};
        MUST(comm_statistics(rig->world[r], &stats));
        sent[r / each] = (r % each ? sent[r / each] : 0) + stats.network_out;
        received[r / each] = (r % each ? received[r / each] : 0) + stats.network_in;
    }
}

static void over(const char *list, int32_t hosts, int32_t each)
{
    uint64_t sent[2][RANKS_MOST], received[2][RANKS_MOST], bytes = COUNT * sizeof(float);
    int32_t ranks = hosts * each;
    struct rig rig;

    fill(ranks);
    setenv("COMM_BACKEND", "local", 1);
    unsetenv("COMM_HOST");
    rig_open(&rig, ranks, NULL);
    sum(&rig, ranks, NULL);
    memcpy(want, out[0], sizeof want);
    rig_close(&rig);
    setenv("COMM_BACKEND", "shm+tcp", 1);
    setenv("COMM_HOST", list, 1);
    rig_open(&rig, ranks, NULL);
    look(&rig, ranks, each, sent[0], received[0]);
    for (int i = 0; i < ROUNDS; i++) {
        memset(out, 0, sizeof out);
        sum(&rig, ranks, "hosts");
        for (int32_t r = 0; r < ranks; r++)
            CHECK(memcmp(out[r], want, sizeof want) == 0);
    }
    look(&rig, ranks, each, sent[1], received[1]);
    for (int32_t h = 0; h < hosts; h++) {
        uint64_t least = ROUNDS * 2 * bytes * (uint64_t)(hosts - 1) / (uint64_t)hosts;
        CHECK(sent[1][h] - sent[0][h] >= least && (sent[1][h] - sent[0][h]) * 100 <= least * 105);
        CHECK(received[1][h] - received[0][h] >= least && (received[1][h] - received[0][h]) * 100 <= least * 105);
    }
    rig_close(&rig);
}

RIG_TEST(hosts_two_of_two)
{
    over("a,a,b,b", 2, 2);
}

RIG_TEST(hosts_four_of_two)
{
    over("a,a,b,b,c,c,d,d", 4, 2);
}

RIG_TEST(hosts_two_of_four)
{
    over("a,a,a,a,b,b,b,b", 2, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_two_of_two),
        cmocka_unit_test(hosts_four_of_two),
        cmocka_unit_test(hosts_two_of_four),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
