/*
 * Groups of collectives on backend nccl: they are one group of NCCL's, which the stream reports once. What NCCL cannot combine is called by
 * itself, and messages come after the collectives. Results, graphs, faults, and ranks whose groups differ. Plans and groups in which there
 * are programs too.
 */
#include "clean.h"
#include "selection.h"
#include "sides.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CONFIG COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S)

/* The memory of a side is parts of PART words. */
enum { PART = 6, PARTS = 16, WORDS = PART * PARTS };

static void count(void *arg)
{
    ++*(int *)arg;
}

static void fail_this(void *arg)
{
    (void)arg;
    mock_fail(1, false);
}

static uint32_t *part_of(uint32_t *memory, int part)
{
    return memory + part * PART;
}

static void fill_sides(uint32_t round)
{
    for (int r = 0; r < SIDES; r++) {
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, round + (uint32_t)r, WORDS);
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].out, 0, WORDS);
    }
}

static void expect(int rank, const uint32_t *memory, int part, uint32_t word, uint32_t value)
{
    uint32_t got[WORDS];

    bench_read(&sides[rank].bench, sides[rank].stream, got, memory, WORDS);
    if (got[(uint32_t)part * PART + word] != value)
        rig_die(__FILE__, __LINE__, "rank %d, part %d, word %u: %u; expected %u", rank, part, word, got[(uint32_t)part * PART + word],
                value);
}

/* ------------------------------------------------------------------------------------------------------------ what NCCL combines */
/* Each kind that is one collective of NCCL's, on parts 0 to 6 of `out`. */
static void record_five(struct comm_communicator *group, struct side *s)
{
    MUST(comm_allreduce(group, part_of(s->in, 0), part_of(s->out, 0), PART, COMM_U32, COMM_SUM, NULL));
    MUST(comm_reduce(group, part_of(s->in, 1), part_of(s->out, 1), PART, COMM_U32, COMM_MAX, 1, NULL));
    MUST(comm_broadcast(group, part_of(s->out, 2), PART, COMM_U32, 2, NULL));
    MUST(comm_allgather(group, part_of(s->in, 3), part_of(s->out, 3), PART, COMM_U32, NULL)); /* 3, 4, 5 */
    MUST(comm_reduce_scatter(group, part_of(s->in, 6), part_of(s->out, 6), PART / SIDES, COMM_U32, COMM_SUM, NULL));
}

static void expect_five(uint32_t round)
{
    for (int r = 0; r < SIDES; r++) {
        expect(r, sides[r].out, 0, PART - 1, SIDES * round + 3);
        expect(r, sides[r].out, 1, 0, r == 1 ? round + 2 : 0);
        expect(r, sides[r].out, 2, 0, 77);
        for (int k = 0; k < SIDES; k++)
            expect(r, sides[r].out, 3 + k, 1, round + (uint32_t)k);
        expect(r, sides[r].out, 6, 0, SIDES * round + 3);
    }
}

/* One round of that group on all ranks; it counts the calls of this name. */
static int calls_of_a_group(const char *name, uint32_t round)
{
    struct comm_request q[SIDES];
    int calls = 0;

    fill_sides(round);
    bench_fill(&sides[2].bench, sides[2].stream, part_of(sides[2].out, 2), 77, PART);
    mock_at(name, count, &calls);
    for (int r = 0; r < SIDES; r++) {
        struct comm_communicator *group;
        MUST(comm_group_begin(sides[r].comm, &group));
        record_five(group, &sides[r]);
        MUST(comm_group_end(group, &q[r]));
    }
    mock_at(name, NULL, NULL);
    rig_wait_all(q, SIDES);
    expect_five(round);
    return calls;
}

RIG_TEST(collectives_of_a_group_are_one_of_nccls)
{
    for (int memops = 0; memops < 2; memops++) {
        for (uint64_t seed = 1; seed <= selected(300, 60, 10); seed++) {
            sides_open(&(struct mock_options){.seed = seed, .queues = 1 + (int)seed % 8, .no_memops = !memops}, CONFIG, WORDS);
            EQUAL(calls_of_a_group("ncclGroupStart", 10), SIDES);
            EQUAL(calls_of_a_group("ncclGroupEnd", 20), SIDES);
            EQUAL(calls_of_a_group("cuStreamWriteValue64", 30), memops ? SIDES : 0);
            sides_close(false);
        }
    }
}

/* More calls than the ring of pending ones has room for, and a wait for the first of them. */
RIG_TEST(a_group_of_many)
{
    enum { MANY = 300 };
    struct comm_request q[SIDES];
    int started = 0;

    sides_open(&(struct mock_options){.seed = 2, .queues = 4}, CONFIG, WORDS);
    fill_sides(1);
    for (int r = 0; r < SIDES; r++)
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, 1, WORDS);
    mock_at("ncclGroupStart", count, &started);
    for (int r = 0; r < SIDES; r++) {
        struct comm_communicator *group;
        MUST(comm_group_begin(sides[r].comm, &group));
        for (int i = 0; i < MANY; i++)
            MUST(comm_allreduce(group, sides[r].in + i % WORDS, sides[r].out + i % WORDS, i < WORDS, COMM_U32, COMM_SUM, NULL));
        MUST(comm_group_end(group, &q[r]));
    }
    mock_at("ncclGroupStart", NULL, NULL);
    EQUAL(started, SIDES);
    rig_wait_all(q, SIDES);
    for (int r = 0; r < SIDES; r++)
        for (int i = 0; i < PARTS; i++)
            expect(r, sides[r].out, i, 0, SIDES);
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ what it cannot combine */
/* An alltoall in place, a scan and a reduction by the host, between allreduces. Ranks 0 and 1 have a message too, at different places. */
static void record_mixed(struct comm_communicator *group, int rank)
{
    struct side *s = &sides[rank];

    MUST(comm_allreduce(group, part_of(s->in, 0), part_of(s->out, 0), PART, COMM_U32, COMM_SUM, NULL));
    if (rank == 0)
        MUST(comm_send(group, part_of(s->in, 8), PART, COMM_U32, 1, 0, NULL));
    MUST(comm_alltoall(group, COMM_IN_PLACE, part_of(s->in, 1), PART / SIDES, COMM_U32, NULL));
    MUST(comm_allreduce(group, part_of(s->in, 2), part_of(s->out, 2), PART, COMM_U32, COMM_MAX, NULL));
    MUST(comm_allreduce(group, part_of(s->in, 3), part_of(s->out, 3), PART, COMM_U32, COMM_MIN, NULL));
    MUST(comm_allreduce(group, part_of(s->in, 4), part_of(s->out, 4), PART, COMM_U32, COMM_BOR, NULL));
    MUST(comm_scan(group, part_of(s->in, 5), part_of(s->out, 5), PART, COMM_U32, COMM_SUM, NULL));
    if (rank == 1)
        MUST(comm_recv(group, part_of(s->out, 8), PART, COMM_U32, 0, 0, NULL, NULL));
    MUST(comm_allreduce(group, part_of(s->in, 6), part_of(s->out, 6), PART, COMM_U32, COMM_SUM, NULL));
}

static void expect_mixed(uint32_t round)
{
    uint32_t scanned = 0;

    for (int r = 0; r < SIDES; r++) {
        uint32_t mine = round + (uint32_t)r;
        scanned += mine;
        expect(r, sides[r].out, 0, 0, SIDES * round + 3);
        for (uint32_t k = 0; k < SIDES; k++)
            expect(r, sides[r].in, 1, k * PART / SIDES, round + k);
        expect(r, sides[r].out, 2, 0, round + 2);
        expect(r, sides[r].out, 3, 0, round);
        expect(r, sides[r].out, 4, 0, round | (round + 1) | (round + 2));
        expect(r, sides[r].out, 5, 0, scanned);
        expect(r, sides[r].out, 6, 0, SIDES * round + 3);
        expect(r, sides[r].out, 8, 0, r == 1 ? round : 0);
    }
}

RIG_TEST(a_group_of_all_kinds)
{
    struct comm_request q[SIDES];

    for (uint64_t seed = 1; seed <= selected(300, 60, 10); seed++) {
        sides_open(&(struct mock_options){.seed = seed, .queues = 1 + (int)seed % 8, .no_memops = seed % 3 == 0}, CONFIG, WORDS);
        for (uint32_t round = 10; round < 40; round += 10) {
            fill_sides(round);
            for (int r = 0; r < SIDES; r++) {
                struct comm_communicator *group;
                MUST(comm_group_begin(sides[r].comm, &group));
                record_mixed(group, r);
                MUST(comm_group_end(group, &q[r]));
            }
            rig_wait_all(q, SIDES);
            expect_mixed(round);
        }
        sides_close(false);
    }
}

/* ------------------------------------------------------------------------------------------------------------ beside programs */
/* What programs do, on the host's memory, and what the stream does. Programs wait for their peers, the stream starts inside the call. */
struct beside {
    char text[8];
    size_t bytes;
    uint32_t in, out;
};

static void record_beside(struct comm_communicator *recorder, struct beside *h, int rank)
{
    struct side *s = &sides[rank];

    MUST(comm_allreduce(recorder, &h->in, &h->out, 1, COMM_U32, COMM_BXOR, NULL));
    MUST(comm_broadcast_bytes(recorder, h->text, &h->bytes, 2, NULL));
    MUST(comm_allreduce(recorder, part_of(s->in, 0), part_of(s->out, 0), PART, COMM_U32, COMM_SUM, NULL));
    if (rank == 0)
        MUST(comm_send(recorder, part_of(s->in, 1), PART, COMM_U32, 1, 0, NULL));
    if (rank == 1)
        MUST(comm_recv(recorder, part_of(s->out, 1), PART, COMM_U32, 0, 0, NULL, NULL));
    MUST(comm_allreduce(recorder, part_of(s->in, 2), part_of(s->out, 2), PART, COMM_U32, COMM_MAX, NULL));
}

static void fill_beside(struct beside h[SIDES], uint32_t round)
{
    fill_sides(round);
    for (int r = 0; r < SIDES; r++) {
        h[r] = (struct beside){.bytes = sizeof h[r].text, .in = round << r};
        if (r == 2)
            h[r].bytes = (size_t)snprintf(h[r].text, sizeof h[r].text, "%u", round);
    }
}

static void expect_beside(const struct beside h[SIDES], uint32_t round)
{
    for (int r = 0; r < SIDES; r++) {
        EQUAL(h[r].out, round ^ round << 1 ^ round << 2);
        EQUAL(h[r].bytes, strlen(h[2].text));
        EQUAL(memcmp(h[r].text, h[2].text, h[2].bytes), 0);
        expect(r, sides[r].out, 0, 0, SIDES * round + 3);
        expect(r, sides[r].out, 1, 0, r == 1 ? round : 0);
        expect(r, sides[r].out, 2, 0, round + 2);
    }
}

/* Rank r starts, or does nothing if it is FULL: then the caller makes progress and calls again. */
static void start_plan(struct comm_plan *plan, int rank, struct comm_request *q)
{
    enum comm_result r;

    while ((r = comm_plan_start(plan, q)) == COMM_ERR_FULL)
        CHECK(comm_progress(sides[rank].comm) >= COMM_OK);
    MUST(r);
}

RIG_TEST(a_plan_of_programs_and_the_stream)
{
    static struct beside h[SIDES];
    struct comm_plan *plan[SIDES];
    struct comm_request q[SIDES];

    sides_open(&(struct mock_options){.seed = 3, .queues = 4}, CONFIG, WORDS);
    for (int r = 0; r < SIDES; r++) {
        struct comm_communicator *recorder;
        MUST(comm_plan_begin(sides[r].comm, &recorder));
        record_beside(recorder, &h[r], r);
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (uint32_t round = 10; round < 60; round += 10) {
        fill_beside(h, round);
        for (int r = 0; r < SIDES; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        rig_wait_all(q, SIDES);
        expect_beside(h, round);
    }
    for (int r = 0; r < SIDES; r++)
        comm_plan_free(plan[r]);
    sides_close(false);
}

RIG_TEST(a_group_of_programs_and_the_stream)
{
    static struct beside h[SIDES];
    struct comm_request q[SIDES];

    sides_open(&(struct mock_options){.seed = 4, .queues = 4}, CONFIG, WORDS);
    for (uint32_t round = 10; round < 60; round += 10) {
        fill_beside(h, round);
        for (int r = 0; r < SIDES; r++) {
            struct comm_communicator *group;
            MUST(comm_group_begin(sides[r].comm, &group));
            record_beside(group, &h[r], r);
            MUST(comm_group_end(group, &q[r]));
        }
        rig_wait_all(q, SIDES);
        expect_beside(h, round);
    }
    sides_close(false);
}

/* On rank 1 a program that was queued before waits for the root. Until it goes on, a plan and a group are FULL, and nothing of them has
 * happened: neither one of their programs, which would be one too many, nor what the stream does. */
RIG_TEST(full_behind_a_program_takes_nothing)
{
    static struct beside h[SIDES];
    static char text[SIDES][8] = {"before"};
    size_t bytes[SIDES] = {6, 8, 8};
    struct comm_plan *plan[SIDES];
    struct comm_communicator *recorder;
    struct comm_request q[SIDES], before[SIDES];

    sides_open(&(struct mock_options){.seed = 5, .queues = 4}, CONFIG, WORDS);
    fill_beside(h, 10);
    for (int r = 0; r < SIDES; r++) {
        MUST(comm_plan_begin(sides[r].comm, &recorder));
        record_beside(recorder, &h[r], r);
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    MUST(comm_broadcast_bytes(sides[1].comm, text[1], &bytes[1], 0, &before[1]));
    for (int i = 0; i < 3; i++) {
        IS(comm_plan_start(plan[1], &q[1]), COMM_ERR_FULL);
        IS(comm_wait(q[1], RIG_S), COMM_ERR_FULL);
        MUST(comm_group_begin(sides[1].comm, &recorder));
        record_beside(recorder, &h[1], 1);
        IS(comm_group_end(recorder, &q[1]), COMM_ERR_FULL);
        IS(comm_wait(q[1], RIG_S), COMM_ERR_FULL);
    }
    for (int r = 0; r < SIDES; r += 2)
        MUST(comm_broadcast_bytes(sides[r].comm, text[r], &bytes[r], 0, &before[r]));
    for (int r = 0; r < SIDES; r++)
        start_plan(plan[r], r, &q[r]);
    rig_wait_all(before, SIDES);
    rig_wait_all(q, SIDES);
    expect_beside(h, 10);
    for (int r = 0; r < SIDES; r++)
        EQUAL(memcmp(text[r], "before", 6), 0);
    for (int r = 0; r < SIDES; r++)
        comm_plan_free(plan[r]);
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ graphs */
RIG_TEST(a_group_in_a_graph)
{
    sides_open(&(struct mock_options){.seed = 5, .queues = 3}, CONFIG, WORDS);
    fill_sides(10);
    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        struct comm_communicator *group;
        struct comm_request q;
        bench_capture(&s->bench, s->stream);
        MUST(comm_group_begin(s->comm, &group));
        record_five(group, s);
        MUST(comm_group_end(group, &q));
        MUST(comm_wait(q, RIG_S)); /* it is in the graph */
        bench_end_capture(&s->bench, s->stream, &s->graph);
    }
    for (uint32_t launch = 1; launch <= 20; launch++) {
        fill_sides(10 * launch);
        bench_fill(&sides[2].bench, sides[2].stream, part_of(sides[2].out, 2), 77, PART);
        sides_launch();
        expect_five(10 * launch);
    }
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ errors */
/* Rank 0 has both calls in one group, the others have two groups. */
RIG_TEST(groups_that_differ)
{
    struct comm_request q[SIDES];
    struct comm_error error = {.size = sizeof error};

    sides_open(&(struct mock_options){.seed = 1, .queues = 4}, CONFIG, WORDS);
    for (int r = 0; r < SIDES; r++) {
        struct comm_communicator *group = NULL;
        enum comm_result result = comm_group_begin(sides[r].comm, &group);
        for (int i = 0; i < 2 && result == COMM_OK; i++) {
            if (i == 1 && r != 0 && (result = comm_group_end(group, &q[r])) == COMM_OK)
                result = comm_group_begin(sides[r].comm, &group);
            if (result == COMM_OK)
                result = comm_allreduce(group, part_of(sides[r].in, i), part_of(sides[r].out, i), PART, COMM_U32, COMM_SUM, NULL);
        }
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
        if (result != COMM_OK || comm_group_end(group, &q[r]) != COMM_OK)
            q[r] = COMM_REQUEST_NONE;
    }
    IS(comm_wait(q[0], 10 * RIG_S), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(sides[0].comm, &error));
    if (!strstr(error.text, "together with the call before"))
        rig_die(__FILE__, __LINE__, "\"%s\" does not tell it", error.text);
    sides_close(true);
}

/* NCCL refuses each of the group's calls in turn, and the end of the group. Every rank learns it, and nothing is left open: another
 * communicator's call in the same thread goes to its stream at once. */
RIG_TEST(a_call_of_a_group_fails)
{
    static const char *const names[] = {"ncclGroupStart", "ncclAllReduce",     "ncclReduce",
                                        "ncclBroadcast",  "ncclReduceScatter", "ncclGroupEnd"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct comm_request q[SIDES];
        sides_open(&(struct mock_options){.seed = i + 1, .queues = 4}, CONFIG, WORDS);
        fill_sides(10);
        for (int r = 0; r < SIDES; r++) {
            struct comm_communicator *group;
            if (comm_group_begin(sides[r].comm, &group) != COMM_OK)
                continue;
            record_five(group, &sides[r]);
            if (r == 1)
                mock_at(names[i], fail_this, NULL);
            if (comm_group_end(group, &q[r]) != COMM_OK)
                q[r] = COMM_REQUEST_NONE;
            mock_at(names[i], NULL, NULL);
        }
        IS(comm_wait(q[0], 10 * RIG_S), COMM_ERR_BACKEND);
        for (int r = 0; r < SIDES; r++)
            MUST(comm_allreduce(sides_rig.world[r], sides[r].in, sides[r].out, PART, COMM_U32, COMM_SUM, &q[r]));
        rig_wait_all(q, SIDES);
        sides_close(true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_a_group_are_one_of_nccls),
        cmocka_unit_test(a_group_of_many),
        cmocka_unit_test(a_group_of_all_kinds),
        cmocka_unit_test(a_plan_of_programs_and_the_stream),
        cmocka_unit_test(a_group_of_programs_and_the_stream),
        cmocka_unit_test(full_behind_a_program_takes_nothing),
        cmocka_unit_test(a_group_in_a_graph),
        cmocka_unit_test(groups_that_differ),
        cmocka_unit_test(a_call_of_a_group_fails),
    };

    return cmocka_run_group_tests_name("cuda_groups", tests, NULL, NULL);
}
