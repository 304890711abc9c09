/* Calls that repeat the last one of a native with other buffers, and the times of its calls. */
#define _GNU_SOURCE
#include "engine/cases.h"

#include "engine/native_calls.h"

#include <string.h>

enum { MOST = 16, LONG = 2048 };

static int32_t in[RANKS][MOST], out[RANKS][RANKS * MOST];

/* One call of each rank, with the buffers that are given for it. */
typedef enum comm_result call_fn(struct comm_communicator *c, int32_t rank, const void *from, void *to, struct comm_request *q);

static enum comm_result sum(struct comm_communicator *c, int32_t rank, const void *from, void *to, struct comm_request *q)
{
    (void)rank;
    return comm_allreduce(c, from, to, 4, COMM_I32, COMM_SUM, q);
}

static enum comm_result copy(struct comm_communicator *c, int32_t rank, const void *from, void *to, struct comm_request *q)
{
    return comm_broadcast(c, rank == 1 ? (void *)(uintptr_t)from : to, 4, COMM_I32, 1, q);
}

static enum comm_result collect(struct comm_communicator *c, int32_t rank, const void *from, void *to, struct comm_request *q)
{
    (void)rank;
    return comm_allgather(c, from, to, 4, COMM_I32, q);
}

static enum comm_result collect_counted(struct comm_communicator *c, int32_t rank, const void *from, void *to, struct comm_request *q)
{
    (void)rank;
    return comm_allgather_v(c, from, to, (const size_t[RANKS]){4, 4, 4}, NULL, COMM_I32, q);
}

/* As a good call would be, of which `at` tells the buffers. */
static void goes_well(struct rig *rig, call_fn *call, int32_t at)
{
    struct comm_request q[RANKS];
    for (int32_t r = 0; r < RANKS; r++) {
        for (int32_t i = 0; i < 4; i++)
            in[r][at + i] = 100 * r + 10 * at + i;
        MUST(call(rig->world[r], r, &in[r][at], &out[r][at], &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        const int32_t *got = &out[r][at];
        for (int32_t i = 0; i < 4; i++) {
            int32_t one = 10 * at + i;
            if (call == sum)
                EQUAL(got[i], 300 + 3 * one);
            else if (call == copy && r != 1)
                EQUAL(got[i], 100 + one);
            for (int32_t k = 0; (call == collect || call == collect_counted) && k < RANKS; k++)
                EQUAL(got[4 * k + i], 100 * k + one);
        }
    }
}

static void is_refused(struct rig *rig, call_fn *call, int32_t from, bool overlaps, void *to, const void *in_place)
{
    struct comm_request q;
    for (int32_t r = 0; r < RANKS; r++) {
        const void *read = overlaps ? (const void *)&out[r][1] : in_place ? in_place : from < 0 ? NULL : (const void *)&in[r][from];
        void *write = overlaps ? (void *)&out[r][0] : to;
        IS(call(rig->world[r], r, read, write, &q), COMM_ERR_ARGUMENT);
    }
}

RIG_CASE(a_repeated_call_checks_its_buffers)
{
    static call_fn *const calls[] = {sum, copy, collect, collect_counted};
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        uint64_t started = fake.started;
        for (int32_t at = 0; at < 6; at++) {
            goes_well(&rig, calls[i], at % 3);
            is_refused(&rig, calls[i], -1, false, NULL, NULL);
            is_refused(&rig, calls[i], 0, false, COMM_IN_PLACE, COMM_IN_PLACE);
            if (calls[i] == copy)
                continue;
            is_refused(&rig, calls[i], 0, false, NULL, NULL);
            is_refused(&rig, calls[i], 0, false, COMM_IN_PLACE, NULL);
            is_refused(&rig, calls[i], 0, true, NULL, NULL);
            is_refused(&rig, calls[i], 0, false, NULL, COMM_IN_PLACE);
        }
        EQUAL(fake.started - started, 6 * RANKS);
    }
    rig_close(&rig);
}

RIG_CASE(a_call_in_place_between_others)
{
    struct rig rig;
    struct comm_request q[RANKS];
    rig_open(&rig, RANKS, NULL);
    for (int turn = 0; turn < 12; turn++) {
        bool in_place = turn % 3 == 1;
        for (int32_t r = 0; r < RANKS; r++) {
            in[r][0] = out[r][0] = r + turn;
            MUST(comm_allreduce(rig.world[r], in_place ? COMM_IN_PLACE : &in[r][0], &out[r][0], 1, COMM_I32, COMM_SUM, &q[r]));
        }
        rig_wait_all(q, RANKS);
        for (int32_t r = 0; r < RANKS; r++)
            EQUAL(out[r][0], 3 + 3 * turn);
        for (int32_t r = 0; r < RANKS; r++) {
            out[r][4 + r] = 10 * r + turn;
            MUST(comm_allgather(rig.world[r], in_place ? COMM_IN_PLACE : &out[r][4 + r], in_place ? &out[r][4] : &out[r][8], 1, COMM_I32,
                                &q[r]));
        }
        rig_wait_all(q, RANKS);
        for (int32_t r = 0; r < RANKS * RANKS; r++)
            EQUAL(out[r / RANKS][(in_place ? 4 : 8) + r % RANKS], 10 * (r % RANKS) + turn);
    }
    rig_close(&rig);
}

/* Counts and places of a way: which of two counts, and where the blocks lie. True: no displs are passed. */
static bool layout_of(int way, size_t *counts, size_t *displs)
{
    size_t at = 0;
    for (size_t k = 0; k < RANKS; k++) {
        counts[k] = way & 1 ? 1 + k : 2;
        displs[k] = way / 2 >= 2 ? at : 4 * k + (size_t)way / 2;
        at += counts[k];
    }
    return way / 2 == 3;
}

static void collect_as(struct rig *rig, int way, int32_t first)
{
    static size_t counts[RANKS], displs[RANKS]; /* the same memory each time */
    bool none = layout_of(way, counts, displs);
    struct comm_request q[RANKS];
    int32_t want[RANKS * MOST];
    memset(out, 0xff, sizeof out);
    memset(want, 0xff, sizeof want);
    for (int32_t r = 0; r < RANKS; r++) {
        for (int32_t i = 0; i < RANKS; i++)
            in[r][i] = first + 10 * r + i;
        MUST(comm_allgather_v(rig->world[r], in[r], out[r], counts, none ? NULL : displs, COMM_I32, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (size_t k = 0; k < RANKS; k++)
        memcpy(&want[displs[k]], in[k], counts[k] * sizeof **in);
    for (size_t r = 0; r < RANKS; r++)
        CHECK(memcmp(want, out[r], sizeof want) == 0);
}

/* Each way after each other one. */
RIG_CASE(a_repeated_call_has_its_own_counts)
{
    enum { WAYS = 8 };
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    for (int way = 0; way < WAYS; way++) {
        for (int next = 0; next < WAYS; next++) {
            rig_note("way %d after %d", next, way);
            collect_as(&rig, way, 1000 * way);
            collect_as(&rig, next, 1000 * next + 100);
        }
    }
    rig_close(&rig);
}

/* The clocks of the library and of the test may differ by a few microseconds (net/posix/clock.c). */
static void times_are(struct comm_request q, int64_t from, int64_t to)
{
    enum { APART_NS = 20000 };
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    int64_t queued = (int64_t)info.queued_ns, started = (int64_t)info.started_ns, completed = (int64_t)info.completed_ns;
    if (queued + APART_NS < from || started < queued || completed < started || completed > to + APART_NS)
        rig_die(__FILE__, __LINE__, "queued %lld, started %lld, completed %lld; expected within %lld and %lld", (long long)queued,
                (long long)started, (long long)completed, (long long)from, (long long)to);
}

RIG_CASE(a_call_of_a_native_has_its_times)
{
    static int32_t vector[RANKS][LONG], sums[RANKS][LONG];
    struct rig rig;
    struct comm_request q[RANKS];
    rig_open(&rig, RANKS, NULL);
    for (int turn = 0; turn < 8; turn++) {
        size_t n = turn % 2 ? LONG : 1;
        rig_nap(RIG_MS);
        int64_t from = rig_now();
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_allreduce(rig.world[r], vector[r], sums[r], n, COMM_I32, COMM_SUM, &q[r]));
        rig_wait_all(q, RANKS);
        int64_t to = rig_now();
        rig_nap(RIG_MS);
        for (int32_t r = 0; r < RANKS; r++)
            times_are(q[r], from, to);
    }
    fake.fails = FAKE_START;
    fake.fails_at = atomic_load(&fake.calls[FAKE_START]) + 1;
    int64_t from = rig_now();
    MUST(comm_allreduce(rig.world[0], vector[0], sums[0], 1, COMM_I32, COMM_SUM, &q[0]));
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_BACKEND);
    times_are(q[0], from, rig_now());
    rig_close(&rig);
}
