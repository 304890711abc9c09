/* Communicators by place and by coordinate, and the ranks in them. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>

enum { RANKS = 12, AXES = 4 };

static const int32_t shapes[][AXES] = {{12}, {3, 4}, {2, 3, 2}, {1, 12, 1, 1}, {4, 1, 3}, {6, 2}};
static const size_t lengths[] = {1, 2, 3, 4, 3, 2};

static void mesh(struct rig *rig, const int32_t *shape, size_t axes)
{
    struct comm_communicator *axis[RANKS][AXES];
    struct comm_request request[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_split_mesh(rig->world[r], shape, axes, axis[r], &request[r]));
    rig_wait_all(request, RANKS);
    for (size_t i = 0; i < axes; i++) {
        int32_t behind = 1;
        for (size_t k = i + 1; k < axes; k++)
            behind *= shape[k];
        for (int32_t r = 0; r < RANKS; r++) {
            int32_t own = r / behind % shape[i];
            EQUAL(comm_size(axis[r][i]), shape[i]);
            EQUAL(comm_rank(axis[r][i]), own);
            for (int32_t k = 0; k < shape[i]; k++)
                EQUAL(comm_translate(axis[r][i], k, rig->world[r]), r + (k - own) * behind);
        }
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_close(axis[r][i], RIG_PATIENCE));
    }
}

RIG_TEST(contract_1_1_a_mesh_is_seen_along_its_axes)
{
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        mesh(&rig, shapes[i], lengths[i]);
    rig_close(&rig);
}

/* The queue has room for some of its splits, but not for all: nothing happens, and the call may be made again. */
RIG_TEST(contract_1_9_a_mesh_without_room)
{
    enum { QUEUE = 16, HELD = 12 };
    static const int32_t shape[2] = {2, 1};
    struct rig rig;
    struct comm_event *gate;
    struct comm_communicator *axis[2][2];
    struct comm_request request[2];
    static int32_t in[QUEUE], out[QUEUE];
    rig_open_options(&rig, 2, "queue=16");
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    for (int i = 0; i < HELD - 1; i++)
        MUST(comm_allreduce(rig.world[0], &in[i], &out[i], 1, COMM_I32, COMM_SUM, NULL));
    IS(comm_split_mesh(rig.world[0], shape, 2, axis[0], &request[0]), COMM_ERR_FULL);
    IS(comm_test(request[0]), COMM_ERR_FULL);
    for (int i = HELD; i < QUEUE; i++) /* the room that was left is still there */
        MUST(comm_allreduce(rig.world[0], &in[i], &out[i], 1, COMM_I32, COMM_SUM, NULL));
    IS(comm_split_mesh(rig.world[0], shape, 2, axis[0], &request[0]), COMM_ERR_FULL);
    MUST(comm_event_set(gate));
    for (int i = 0; i < QUEUE - 1; i++)
        MUST(NOW(comm_allreduce, rig.world[1], &in[0], &out[0], 1, COMM_I32, COMM_SUM));
    MUST(comm_sync(rig.world[0], RIG_PATIENCE));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_split_mesh(rig.world[r], shape, 2, axis[r], &request[r]));
    rig_wait_all(request, 2);
    for (int32_t r = 0; r < 2; r++) {
        EQUAL(comm_size(axis[r][0]), 2);
        EQUAL(comm_size(axis[r][1]), 1);
        for (int i = 0; i < 2; i++)
            MUST(comm_close(axis[r][i], RIG_PATIENCE));
    }
    comm_event_free(gate);
    rig_close(&rig);
}

RIG_TEST(contract_1_8_a_mesh_of_another_size)
{
    static const int32_t wrong[][2] = {{3, 3}, {0, 12}, {-3, -4}, {12, 2}, {1 << 16, 1 << 16}};
    struct rig rig;
    struct comm_communicator *axis[2];
    struct comm_request request;
    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int32_t r = 0; r < RANKS; r++) {
            IS(comm_split_mesh(rig.world[r], wrong[i], 2, axis, &request), COMM_ERR_ARGUMENT);
            IS(comm_test(request), COMM_ERR_ARGUMENT);
        }
        rig_proves_alive(rig.world, RANKS);
    }
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_split_mesh(rig.world[r], wrong[0], 0, axis, &request), COMM_ERR_ARGUMENT);
    rig_proves_alive(rig.world, RANKS);
    rig_close(&rig);
}

/* How many of the first `ranks` ranks are on rank r's host: COMM_HOST gives each a host name, in turn. */
static int32_t on_host(int32_t r, int32_t ranks)
{
    const char *list = getenv("COMM_HOST");
    int32_t names = 1, count = 0;
    for (const char *c = list ? list : ""; *c; c++)
        names += *c == ',';
    for (int32_t other = 0; other < ranks; other++)
        count += !list || list[other % names * 2] == list[r % names * 2]; /* names of one letter */
    return count;
}

/* All ranks of one process are on one host, unless the process simulates several. */
RIG_TEST(contract_1_1_ranks_of_one_host)
{
    struct rig rig;
    struct comm_communicator *node[RANKS], *none;
    struct comm_request request[RANKS];
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_split_place(rig.world[r], COMM_PLACE_NODE, &node[r], &request[r]));
    rig_wait_all(request, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        EQUAL(comm_size(node[r]), on_host(r, RANKS));
        EQUAL(comm_rank(node[r]), on_host(r, r));
        IS(comm_split_place(rig.world[r], (enum comm_place)7, &none, &request[r]), COMM_ERR_ARGUMENT);
        IS(comm_split_place(rig.world[r], COMM_PLACE_DEVICE, &none, &request[r]), COMM_ERR_UNSUPPORTED);
    }
    int32_t one = 1, together[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(node[r], &one, &together[r], 1, COMM_I32, COMM_SUM, &request[r]));
    rig_wait_all(request, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        EQUAL(together[r], on_host(r, RANKS));
    rig_proves_alive(rig.world, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(node[r], RIG_PATIENCE));
    rig_close(&rig);
}

/* Ranks of one NUMA node are on one host; a rank that is not bound to a single node is refused. */
RIG_TEST(contract_1_1_ranks_of_one_numa_node)
{
    struct rig rig;
    struct comm_communicator *numa[RANKS];
    struct comm_request request[RANKS];
    cpu_set_t all, one;
    size_t cpu = 0;
    EQUAL(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    rig_open(&rig, RANKS, NULL);
    EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_split_place(rig.world[r], COMM_PLACE_NUMA, &numa[r], &request[r]));
    EQUAL(sched_setaffinity(0, sizeof all, &all), 0);
    rig_wait_all(request, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        EQUAL(comm_size(numa[r]), on_host(r, RANKS));
    rig_proves_alive(rig.world, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(numa[r], RIG_PATIENCE));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_1_a_mesh_is_seen_along_its_axes), cmocka_unit_test(contract_1_9_a_mesh_without_room),
        cmocka_unit_test(contract_1_8_a_mesh_of_another_size),        cmocka_unit_test(contract_1_1_ranks_of_one_host),
        cmocka_unit_test(contract_1_1_ranks_of_one_numa_node),
    };
    return cmocka_run_group_tests_name("contract_1_splits", tests, NULL, NULL);
}
