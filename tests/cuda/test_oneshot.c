/*
 * Backend cuda: a short allreduce of device buffers in one kernel. Its results must have the bits of the same call on host buffers; all
 * else must be staged as on shm, also where ranks share a device or have no kernel.
 */
#define _GNU_SOURCE
#include "oneshot.h"

#include "../conform/oracle.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ------------------------------------------------------------------------------------------------------------ results */
/* Every type and operator that the kernel has, on 1 to 8 ranks; lengths around the ends of parts, and the longest. */
RIG_TEST(every_pair_has_the_hosts_bits)
{
    unsigned thin = rig_thin(1, 6, 20), pair = 0;

    for (int32_t n = 1; n <= RANKS; n++) {
        open_all(n, &(struct mock_options){.seed = (uint64_t)n, .queues = n % 2 ? 32 : 2, .island = n % 3 != 0});
        for (int type = 0; type < 64; type++) {
            for (comm_op op = COMM_SUM; op <= COMM_LXOR; op++) {
                if (!fold_has((enum comm_type)type, op) || ++pair % thin)
                    continue;
                size_t part = ONESHOT_PART_BYTES / fold_bytes((uint32_t)type), lengths[] = {1, part - 1, part, part + 1, 2 * part + 5};
                struct sum s = {.type = (enum comm_type)type,
                                .op = op,
                                .n = lengths[pair % 5],
                                .shift = pair % 2 ? fold_bytes((uint32_t)type) : 0,
                                .in_place = pair % 3 == 0};
                sum_and_compare(&s, pair, false);
            }
        }
        sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_AVG, .n = ONESHOT_BYTES / 4}, 7, false);
        close_all();
    }
}

/* What the kernel does not serve is staged: longer vectors, other types, pairs that it lacks, odd addresses stay right. */
RIG_TEST(all_else_is_staged)
{
    open_all(3, &(struct mock_options){.seed = 5, .queues = 4});
    sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = ONESHOT_BYTES / 4 + 1}, 1, true);
    sum_and_compare(&(struct sum){.type = COMM_U8, .op = COMM_SUM, .n = ONESHOT_BYTES}, 2, false);
    for (int32_t r = 0; r < ranks; r++) {
        struct comm_info info = {.size = sizeof info};
        MUST(comm_describe(device.world[r], &info));
        CHECK(info.fixed_order && info.device_buffers && !info.device_order);
    }
    struct comm_request q[RANKS];
    put_inputs(&(struct sum){.type = COMM_I32, .op = COMM_SUM, .n = 100}, 3);
    for (int32_t r = 0; r < ranks; r++) {
        MUST(comm_queue_wait_stream(device.world[r], sides[r].stream));
        MUST(comm_allgather(device.world[r], sides[r].in, sides[r].out, 100, COMM_I32, &q[r]));
    }
    rig_wait_all(q, 3);
    for (int32_t r = 0; r < ranks; r++) {
        EQUAL(describe(q[r]).flags, COMM_INFO_STAGED);
        bench_read(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)sides[r].got, (uint32_t *)(void *)sides[r].out, 300);
        for (int32_t k = 0; k < ranks; k++)
            CHECK(memcmp(sides[r].got + k * 400, sides[k].host_in, 400) == 0);
    }
    close_all();
}

/* Host buffers go as on shm, beside the kernels. */
RIG_TEST(host_buffers_beside_device_buffers)
{
    struct comm_request q[RANKS];
    uint32_t one[RANKS], all[RANKS];

    open_all(4, &(struct mock_options){.seed = 6, .queues = 32});
    for (uint32_t round = 0; round < 20; round++) {
        sum_and_compare(&(struct sum){.type = COMM_F64, .op = COMM_SUM, .n = 1 + round * 97}, round, false);
        for (int32_t r = 0; r < ranks; r++) {
            one[r] = round + (uint32_t)r;
            MUST(comm_allreduce(device.world[r], &one[r], &all[r], 1, COMM_U32, COMM_SUM, &q[r]));
        }
        rig_wait_all(q, 4);
        for (int32_t r = 0; r < ranks; r++)
            EQUAL(all[r], 4 * round + 6);
        EQUAL(describe(q[0]).flags, 0);
    }
    close_all();
}

/* Many at once, on two communicators, which the ranks give in different orders. */
RIG_TEST(two_communicators_in_different_orders)
{
    enum { AT_ONCE = 12, WORDS = 64 };
    struct comm_communicator *dup[RANKS];
    static struct comm_request q[2][AT_ONCE][RANKS];

    for (uint64_t seed = 1; seed <= rig_thin(20, 10, 3); seed++) {
        open_all(3, &(struct mock_options){.seed = seed, .queues = 1 + (int)(seed % 4)});
        rig_dup(device.world, 3, dup);
        put_inputs(&(struct sum){.type = COMM_U32, .op = COMM_SUM, .n = 2 * AT_ONCE * WORDS}, seed);
        for (int32_t r = 0; r < ranks; r++) {
            uint32_t *in = (uint32_t *)(void *)sides[r].in, *out = (uint32_t *)(void *)sides[r].out;
            MUST(comm_queue_wait_stream(device.world[r], sides[r].stream));
            MUST(comm_queue_wait_stream(dup[r], sides[r].stream));
            for (int turn = 0; turn < 2; turn++) {
                int which = (turn + r) % 2;
                for (size_t i = 0; i < AT_ONCE; i++) {
                    size_t at = (i * 2 + (size_t)which) * WORDS;
                    MUST(comm_allreduce(which ? dup[r] : device.world[r], in + at, out + at, WORDS, COMM_U32, COMM_SUM, &q[which][i][r]));
                }
            }
        }
        for (int which = 0; which < 2; which++)
            for (size_t i = 0; i < AT_ONCE; i++)
                rig_wait_all(q[which][i], 3);
        for (int32_t r = 0; r < ranks; r++)
            bench_read(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)sides[r].got, (uint32_t *)(void *)sides[r].out,
                       2 * AT_ONCE * WORDS);
        for (size_t i = 0; i < 2 * AT_ONCE * WORDS; i++) {
            uint32_t want = 0;
            for (int32_t r = 0; r < ranks; r++)
                want += ((uint32_t *)(void *)sides[r].host_in)[i];
            for (int32_t r = 0; r < ranks; r++)
                EQUAL(((uint32_t *)(void *)sides[r].got)[i], want);
        }
        for (int32_t r = 0; r < ranks; r++)
            MUST(comm_close(dup[r], COMM_DEFAULT_TIMEOUT));
        close_all();
    }
}

/* Communicators come and go; each of them uses a mailbox that others had before. */
RIG_TEST(mailboxes_are_used_again)
{
    open_all(4, &(struct mock_options){.seed = 9, .queues = 8});
    sum_on_dups(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = 3000}, 12);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ staging instead */
static int said;
static char last_said[512];

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    if (level != COMM_LOG_WARNING || !strstr(line, "are staged"))
        return;
    said++;
    snprintf(last_said, sizeof last_said, "%s", line);
}

static void open_that_stages(const struct mock_options *options, const char *const *names, const int *devices)
{
    mock_reset(options);
    mock_run(true);
    said = 0;
    MUST(comm_open_local(COMM_CONFIG(.backend = "cuda", .operation_timeout_ns = 20 * RIG_S, .log = hear), 3, names, device.world));
    device.ranks = 3;
    rig_open(&host, 3, COMM_CONFIG(.engine_of = device.world[0], .backend = "local"));
    open_sides(3, devices);
}

RIG_TEST(ranks_that_share_a_device_stage)
{
    static const char *const names[] = {"cuda:0", "cuda:1", "cuda:0"};
    static const int devices[] = {0, 1, 0};
    struct comm_communicator *part[RANKS];
    struct comm_request q[RANKS];
    struct sum s = {.type = COMM_F32, .op = COMM_SUM, .n = 500};

    open_that_stages(&(struct mock_options){.seed = 1}, names, devices);
    EQUAL(said, 1);
    CHECK(strstr(last_said, "ranks 0 and 2 have one device"));
    sum_and_compare(&s, 1, true);
    for (int32_t r = 0; r < 3; r++) /* ranks 0 and 1 have a device each, so the kernel serves them */
        MUST(comm_split(device.world[r], r == 2, r, &part[r], &q[r]));
    rig_wait_all(q, 3);
    ranks = 2;
    put_inputs(&s, 2);
    issue(&s, part, q);
    rig_wait_all(q, 2);
    check_way(q[0], false);
    for (int32_t r = 0; r < 3; r++)
        MUST(comm_close(part[r], COMM_DEFAULT_TIMEOUT));
    ranks = 3;
    close_all();
}

RIG_TEST(devices_without_the_kernel_stage)
{
    open_that_stages(&(struct mock_options){.seed = 1, .no_kernels = 1}, NULL, NULL);
    EQUAL(said, 1);
    CHECK(strstr(last_said, "no kernel"));
    sum_and_compare(&(struct sum){.type = COMM_F32, .op = COMM_SUM, .n = 500}, 1, true);
    close_all();
}

static void sum_on_host(const struct sum *s, uint64_t seed)
{
    struct comm_request h[RANKS];

    put_inputs(s, seed);
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_allreduce(host.world[r], sides[r].host_in, sides[r].host_out, s->n, s->type, s->op, &h[r]));
    rig_wait_all(h, (size_t)ranks);
}

/* Buffers of another rank's device, which the own device cannot access, are staged, and the kernel reads the stage. A later call, whose
 * buffers need no stage, does not overtake: all ranks count the calls alike. */
RIG_TEST(memory_of_another_device)
{
    const struct sum first = {.type = COMM_F32, .op = COMM_SUM, .n = 700},
                     later = {.type = COMM_F32, .op = COMM_SUM, .n = 700, .shift = 8192};
    struct comm_request q[RANKS], p[RANKS];

    for (int turn = 0; turn < 6; turn++) {
        open_all(3, &(struct mock_options){.seed = (uint64_t)turn, .queues = 3});
        put_inputs(&later, 5);
        for (int32_t r = 0; r < ranks; r++)
            bench_read(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)sides[r].got, (const uint32_t *)(const void *)sides[r].in, 1);
        put_inputs(&first, 4);
        for (int32_t r = 0; r < ranks; r++)
            for (int k = 0; k < ranks; k++)
                MUST(comm_queue_wait_stream(device.world[r], sides[k].stream));
        for (int32_t r = 0; r < ranks; r++) { /* ranks 0 and 1 change places */
            struct side *side = &sides[r == 2 ? 2 : 1 - r], *own = &sides[r];
            MUST(comm_allreduce(device.world[r], side->in, side->out, first.n, first.type, first.op, &q[r]));
            MUST(comm_allreduce(device.world[r], own->in + later.shift, own->out + later.shift, later.n, later.type, later.op, &p[r]));
        }
        rig_wait_all(p, 3);
        rig_wait_all(q, 3);
        EQUAL(describe(q[0]).flags, COMM_INFO_STAGED);
        CHECK(strcmp(describe(q[0]).algorithm, "cuda") == 0);
        check_way(q[2], false);
        check_way(p[0], false);
        sum_on_host(&first, 4);
        compare(&first);
        sum_on_host(&later, 5);
        compare(&later);
        close_all();
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_has_the_hosts_bits),      cmocka_unit_test(all_else_is_staged),
        cmocka_unit_test(host_buffers_beside_device_buffers), cmocka_unit_test(two_communicators_in_different_orders),
        cmocka_unit_test(mailboxes_are_used_again),           cmocka_unit_test(ranks_that_share_a_device_stage),
        cmocka_unit_test(devices_without_the_kernel_stage),   cmocka_unit_test(memory_of_another_device),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_oneshot", tests, NULL, NULL);
}
