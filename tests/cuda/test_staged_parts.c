/*
 * Long operations in blocks on device buffers of a host backend, in parts: every kind against the oracle, with buffers on the device or on
 * the host, the order of operations that touch each other's memory, plans and groups. How many parts an operation has is seen by its
 * ticket. All ranks are in this process, on one mock device.
 */
#include "selection.h"

#include "mock_everywhere.h"
#include "staged_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 5, MIB = 1 << 20 };
static const enum job_kind kinds[] = {JOB_ALLGATHER, JOB_GATHER, JOB_SCATTER, JOB_ALLTOALL, JOB_REDUCE_SCATTER};
enum { KINDS = sizeof kinds / sizeof *kinds };
static struct rig rig;

/* ------------------------------------------------------------------------------------------------------------ every kind */
static uint64_t run(struct job_shape shape, int sides)
{
    return staged_job_run(&rig, &shape, sides);
}

/* The shortest block that goes in so many parts. */
static size_t elements_of(uint64_t parts, size_t element)
{
    size_t least = MIB + 16 * element * (size_t)rig.ranks, all = element * (size_t)rig.ranks;

    return (parts * least + all - 1) / all;
}

/* In place or not: in a shorter selection by turns of the kinds, and of the numbers of ranks. */
static void every_kind_of(int32_t ranks, uint64_t parts)
{
    uint64_t seed = 1000 * (uint64_t)ranks + parts;

    for (int i = 0; i < KINDS; i++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            if (!selection_all() && (i + ranks + in_place) % 2)
                continue;
            struct job_shape shape = {
                .kind = kinds[i], .type = COMM_F32, .op = COMM_SUM, .root = ranks - 1, .in_place = in_place, .seed = seed++};
            shape.n = elements_of(parts, sizeof(float));
            EQUAL(run(shape, ON_DEVICE), parts);
            shape.n--;
            EQUAL(run(shape, ON_DEVICE), parts - 1);
        }
    }
}

RIG_TEST(every_kind_in_two_parts)
{
    for (int32_t ranks = 1; ranks <= RANKS_MOST; ranks += rig_quick() ? 3 : 1) {
        rig_open(&rig, ranks, NULL);
        every_kind_of(ranks, 2);
        rig_close(&rig);
    }
}

RIG_TEST(every_kind_in_more_parts_than_run_at_once)
{
    for (int32_t ranks = rig_quick() ? 4 : 2; ranks <= 4; ranks++) {
        rig_open(&rig, ranks, NULL);
        every_kind_of(ranks, 6);
        rig_close(&rig);
    }
}

RIG_TEST(every_kind_on_a_device_that_is_late)
{
    mock_late(3);
    rig_open(&rig, 3, NULL);
    every_kind_of(3, 3);
    rig_close(&rig);
}

/* Elements of 2 to 16 bytes, with results that depend on the order of operands: the oracle has the bits. */
RIG_TEST(sums_in_parts_have_the_bits_of_the_host)
{
    static const char *const orders[] = {"order=default", "order=fixed", "order=free"};
    static const struct {
        enum comm_type type;
        comm_op op;
    } sums[] = {{COMM_F16, COMM_SUM}, {COMM_BF16, COMM_AVG}, {COMM_F64, COMM_PROD}, {COMM_C128, COMM_SUM}};

    for (size_t o = 0; o < (rig_quick() ? 1 : sizeof orders / sizeof *orders); o++) {
        rig_open_options(&rig, 5, orders[o]);
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
            for (int in_place = 0; in_place < 2; in_place++) {
                struct job_shape shape = {
                    .kind = JOB_REDUCE_SCATTER, .type = sums[i].type, .op = sums[i].op, .in_place = in_place, .seed = i + 1};
                shape.n = elements_of(3, oracle_type_bytes(shape.type)) + 7;
                CHECK((!selection_all() && (i + o + (size_t)in_place) % 2) || run(shape, ON_DEVICE) == 3);
            }
        rig_close(&rig);
    }
}

/* Each rank has a buffer of the device: the other one may be the host's. Its blocks are copied too. */
RIG_TEST(buffers_of_the_host_beside_those_of_the_device)
{
    static const enum job_kind with_both[] = {JOB_ALLGATHER, JOB_ALLTOALL, JOB_REDUCE_SCATTER};

    rig_open(&rig, 3, NULL);
    for (size_t i = 0; i < sizeof with_both / sizeof *with_both; i++)
        for (int sides = IN_ON_DEVICE; sides <= OUT_ON_DEVICE; sides++)
            EQUAL(run((struct job_shape){.kind = with_both[i], .type = COMM_I32, .op = COMM_SUM, .n = elements_of(3, 4), .seed = 7}, sides),
                  3);
    /* The root's blocks are the host's; the others have one buffer. */
    EQUAL(run((struct job_shape){.kind = JOB_GATHER, .type = COMM_I32, .n = elements_of(3, 4), .seed = 8}, IN_ON_DEVICE), 3);
    EQUAL(run((struct job_shape){.kind = JOB_SCATTER, .type = COMM_I32, .n = elements_of(3, 4), .seed = 9}, OUT_ON_DEVICE), 3);
    rig_close(&rig);
}

/* Blocks of less than 64 KiB are not cut, however many there are. */
RIG_TEST(many_short_blocks)
{
    enum { MANY = 34 };
    struct comm_communicator *world[MANY];
    struct comm_request before[MANY], q[MANY];
    char *in[MANY], *out;

    out = mock_take(MANY * (size_t)70000);
    MUST(comm_open_local(NULL, MANY, NULL, world));
    for (int r = 0; r < MANY; r++) {
        in[r] = mock_take(70000);
        memset(mock_peek(in[r]), r + 1, 70000);
    }
    for (size_t bytes = 65535; bytes <= 65536; bytes++) {
        rig_note("%zu bytes of %d ranks", bytes, MANY);
        for (int r = 0; r < MANY; r++)
            MUST(comm_barrier(world[r], &before[r]));
        rig_wait_all(before, MANY);
        for (int r = 0; r < MANY; r++)
            MUST(comm_gather(world[r], in[r], r ? NULL : out, bytes, COMM_BYTE, 0, &q[r]));
        rig_wait_all(q, MANY);
        EQUAL(q[0].ticket - before[0].ticket, bytes < 65536 ? 1 : 2);
        for (int r = 0; r < MANY; r++)
            CHECK(memcmp((char *)mock_peek(out) + (size_t)r * bytes, mock_peek(in[r]), bytes) == 0);
    }
    for (int r = 0; r < MANY; r++) {
        MUST(comm_close(world[r], RIG_PATIENCE));
        mock_give(in[r]);
    }
    mock_give(out);
}

/* ------------------------------------------------------------------------------------------------------------ order */
/* Four buffers of three blocks on each rank, on the device and, for what is expected, on the host. */
enum { RANKS = 3, BUFFERS = 4, BLOCK = 290000, WORDS = RANKS * BLOCK };
static uint32_t *there[RANKS][BUFFERS], *here[RANKS][BUFFERS];

static void take_buffers(void)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < BUFFERS; i++) {
            there[r][i] = mock_take(WORDS * sizeof(uint32_t));
            here[r][i] = malloc(WORDS * sizeof(uint32_t));
            CHECK(here[r][i] != NULL);
        }
}

static void fill_buffers(uint64_t seed)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < BUFFERS; i++) {
            for (uint32_t k = 0; k < WORDS; k++)
                here[r][i][k] = (uint32_t)seed * 2654435761u + 16777619u * (uint32_t)(r * BUFFERS + i) + k;
            memcpy(mock_peek(there[r][i]), here[r][i], WORDS * sizeof(uint32_t));
        }
}

static void compare_buffers(void)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < BUFFERS; i++)
            CHECK(memcmp(mock_peek(there[r][i]), here[r][i], WORDS * sizeof(uint32_t)) == 0);
}

static void give_buffers(void)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < BUFFERS; i++) {
            mock_give(there[r][i]);
            free(here[r][i]);
        }
}

/* One operation of a program: a long one from one buffer to another, or in place, or a short one on some words at `at`. */
enum what { ALLGATHER, GATHER, SCATTER, ALLTOALL, REDUCE_SCATTER, ALLGATHER_V, REDUCE_SCATTER_V, BROADCAST, ALLREDUCE, MESSAGE, WHATS };
struct move {
    enum what what;
    int from, to, root;
    size_t at;
};

static struct move draw(uint64_t *chance)
{
    static const size_t edges[] = {0, BLOCK - 3, BLOCK, 2 * BLOCK - 3, 2 * BLOCK, WORDS - 3};
    uint64_t bits = oracle_random(chance);

    return (struct move){.what = (enum what)(bits % WHATS),
                         .from = (int)(bits >> 8 & 3),
                         .to = (int)(bits >> 10 & 3),
                         .root = (int)((bits >> 12) % RANKS),
                         .at = bits >> 20 & 1 ? edges[(bits >> 21) % 6] : (bits >> 24) % (WORDS - 3)};
}

/* Blocks of other lengths, which fill the same words: the last rank's is the first one in an allgather_v, behind a hole. */
static const size_t counts[RANKS] = {BLOCK / 2 + 5, BLOCK / 3, WORDS - BLOCK / 2 - 5 - BLOCK / 3 - 1};
static const size_t displs[RANKS] = {WORDS - BLOCK / 2 - 5, WORDS - BLOCK / 2 - 5 - BLOCK / 3, 1};

static void issue_message(const struct move *m, int r, struct comm_communicator *c, uint32_t *const *buffer, struct comm_request *q)
{
    if (r == m->root)
        MUST(comm_send(c, buffer[m->from] + m->at, 3, COMM_U32, (r + 1) % RANKS, 1, q));
    else if (r == (m->root + 1) % RANKS)
        MUST(comm_recv(c, buffer[m->to] + m->at, 3, COMM_U32, m->root, 1, NULL, q));
    else
        *q = COMM_REQUEST_NONE;
}

static void issue_move(const struct move *m, int r, struct comm_communicator *c, uint32_t *const *buffer, struct comm_request *q)
{
    bool in_place = m->from == m->to;
    const void *in = in_place ? COMM_IN_PLACE : buffer[m->from];
    uint32_t *out = buffer[m->to];

    switch (m->what) {
    case ALLGATHER:
        MUST(comm_allgather(c, in, out, BLOCK, COMM_U32, q));
        break;
    case GATHER:
        MUST(comm_gather(c, in_place && r != m->root ? out : in, out, BLOCK, COMM_U32, m->root, q));
        break;
    case SCATTER:
        MUST(comm_scatter(c, buffer[m->from], in_place && r == m->root ? COMM_IN_PLACE : out, BLOCK, COMM_U32, m->root, q));
        break;
    case ALLTOALL:
        MUST(comm_alltoall(c, in, out, BLOCK, COMM_U32, q));
        break;
    case REDUCE_SCATTER:
        MUST(comm_reduce_scatter(c, in, out, BLOCK, COMM_U32, COMM_SUM, q));
        break;
    case ALLGATHER_V:
        MUST(comm_allgather_v(c, in, out, counts, displs, COMM_U32, q));
        break;
    case REDUCE_SCATTER_V:
        MUST(comm_reduce_scatter_v(c, in, out, counts, COMM_U32, COMM_SUM, q));
        break;
    case BROADCAST:
        MUST(comm_broadcast(c, out + m->at, 3, COMM_U32, m->root, q));
        break;
    case ALLREDUCE:
        MUST(comm_allreduce(c, in_place ? COMM_IN_PLACE : buffer[m->from] + m->at, out + m->at, 3, COMM_U32, COMM_SUM, q));
        break;
    case MESSAGE:
    case WHATS:
        issue_message(m, r, c, buffer, q);
    }
}

/* All of a program's operations are in flight on the device at once; those on the host wait for each other. */
static void run_program(uint64_t seed, int length)
{
    struct comm_request q[16 * RANKS], alone[RANKS];
    uint64_t chance = seed;
    size_t count = 0;

    rig_note("program %llu", (unsigned long long)seed);
    fill_buffers(seed);
    for (int i = 0; i < length; i++) {
        struct move m = draw(&chance);
        for (int r = 0; r < RANKS; r++)
            issue_move(&m, r, rig.world[r], there[r], &q[count++]);
    }
    rig_wait_all(q, count);
    chance = seed;
    for (int i = 0; i < length; i++) {
        struct move m = draw(&chance);
        for (int r = 0; r < RANKS; r++)
            issue_move(&m, r, rig.world[r], here[r], &alone[r]);
        rig_wait_all(alone, RANKS);
    }
    compare_buffers();
}

static void programs(long late, uint64_t seeds)
{
    mock_late(late);
    take_buffers();
    rig_open(&rig, RANKS, NULL);
    for (uint64_t seed = 1; seed <= seeds; seed++)
        run_program(seed + 1000 * (uint64_t)late, 8);
    rig_close(&rig);
    give_buffers();
}

RIG_TEST(programs_keep_their_order)
{
    programs(0, rig_thin(40, 10, 3));
}

RIG_TEST(programs_keep_their_order_on_a_device_that_is_late)
{
    programs(4, rig_thin(40, 10, 3));
}

/* Parts of one operation run beside each other, also where all its ranges meet. */
RIG_TEST(parts_run_beside_each_other)
{
    struct comm_request before[RANKS], q[RANKS];

    mock_late(5);
    take_buffers();
    fill_buffers(1);
    rig_open(&rig, RANKS, NULL);
    for (int kind = ALLGATHER; kind <= REDUCE_SCATTER_V; kind++) {
        rig_note("kind %d", kind);
        staged_job_mark(&rig, before);
        for (int r = 0; r < RANKS; r++)
            issue_move(&(struct move){.what = (enum what)kind, .from = 1, .to = kind == SCATTER ? 2 : 1}, r, rig.world[r], there[r], &q[r]);
        rig_wait_all(q, RANKS);
        EQUAL(staged_job_parts(&rig, before, q), 3);
        for (uint64_t part = 1; part < 3; part++) {
            struct comm_request_info first = {.size = sizeof first}, next = {.size = sizeof next};
            MUST(comm_describe_request((struct comm_request){q[0].comm, before[0].ticket + part}, &first));
            MUST(comm_describe_request((struct comm_request){q[0].comm, before[0].ticket + part + 1}, &next));
            CHECK(next.started_ns < first.completed_ns);
        }
    }
    rig_close(&rig);
    give_buffers();
}

/* ------------------------------------------------------------------------------------------------------------ plans, groups */
static const struct move planned[] = {{ALLGATHER, 0, 1, 0, 0},
                                      {ALLTOALL, 1, 2, 0, 0},
                                      {REDUCE_SCATTER, 2, 2, 0, 0},
                                      {ALLGATHER_V, 2, 3, 0, 0},
                                      {REDUCE_SCATTER_V, 3, 1, 0, 0}};
enum { PLANNED = sizeof planned / sizeof *planned };

static void record(struct comm_communicator *recorder, int r)
{
    struct comm_communicator *group;

    for (int i = 0; i < PLANNED; i++)
        issue_move(&planned[i], r, recorder, there[r], NULL);
    MUST(comm_group_begin(recorder, &group)); /* its members do not conflict, their parts neither */
    MUST(comm_allgather(group, COMM_IN_PLACE, there[r][0], BLOCK, COMM_U32, NULL));
    MUST(comm_scatter(group, there[r][2], there[r][3], BLOCK, COMM_U32, 1, NULL));
    MUST(comm_group_end(group, NULL));
}

static void expect_recorded(void)
{
    struct comm_request q[RANKS];

    for (int i = 0; i < PLANNED; i++) {
        for (int r = 0; r < RANKS; r++)
            issue_move(&planned[i], r, rig.world[r], here[r], &q[r]);
        rig_wait_all(q, RANKS);
    }
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allgather(rig.world[r], COMM_IN_PLACE, here[r][0], BLOCK, COMM_U32, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_scatter(rig.world[r], here[r][2], here[r][3], BLOCK, COMM_U32, 1, &q[r]));
    rig_wait_all(q, RANKS);
}

RIG_TEST(plans_and_groups_in_parts)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan[RANKS];
    struct comm_request before[RANKS], q[RANKS];

    mock_late(2);
    take_buffers();
    fill_buffers(1);
    rig_open(&rig, RANKS, NULL);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_plan_begin(rig.world[r], &recorder));
        record(recorder, r);
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int round = 0; round < 2; round++) {
        staged_job_mark(&rig, before);
        for (int r = 0; r < RANKS; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        rig_wait_all(q, RANKS);
        if (round == 0)
            EQUAL(staged_job_parts(&rig, before, q), 7 * 3);
        expect_recorded();
        compare_buffers();
    }
    for (int r = 0; r < RANKS; r++)
        comm_plan_free(plan[r]);
    rig_close(&rig);
    give_buffers();
}

/* The parts of two members conflict, if the members do. */
RIG_TEST(members_that_conflict_with_parts)
{
    struct comm_communicator *group;

    take_buffers();
    rig_open(&rig, RANKS, NULL);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_group_begin(rig.world[r], &group));
        MUST(comm_allgather(group, there[r][0], there[r][1], BLOCK, COMM_U32, NULL));
        MUST(comm_broadcast(group, there[r][1] + WORDS - 1, 1, COMM_U32, 0, NULL));
        IS(comm_group_end(group, NULL), COMM_ERR_ARGUMENT);
        MUST(comm_group_begin(rig.world[r], &group));
        MUST(comm_allgather(group, there[r][0], there[r][1], BLOCK, COMM_U32, NULL));
        MUST(comm_alltoall(group, there[r][1], there[r][2], BLOCK, COMM_U32, NULL));
        IS(comm_group_end(group, NULL), COMM_ERR_ARGUMENT);
    }
    rig_proves_alive(rig.world, RANKS);
    rig_close(&rig);
    give_buffers();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_in_two_parts),
        cmocka_unit_test(every_kind_in_more_parts_than_run_at_once),
        cmocka_unit_test(every_kind_on_a_device_that_is_late),
        cmocka_unit_test(sums_in_parts_have_the_bits_of_the_host),
        cmocka_unit_test(buffers_of_the_host_beside_those_of_the_device),
        cmocka_unit_test(many_short_blocks),
        cmocka_unit_test(programs_keep_their_order),
        cmocka_unit_test(programs_keep_their_order_on_a_device_that_is_late),
        cmocka_unit_test(parts_run_beside_each_other),
        cmocka_unit_test(plans_and_groups_in_parts),
        cmocka_unit_test(members_that_conflict_with_parts),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_staged_parts", tests, NULL, NULL);
}
