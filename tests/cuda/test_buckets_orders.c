/*
 * The orders that gradient buckets in device memory put on streams, over nccl and staged: a bucket is reduced when its gradients are in it,
 * results are copied out when it is reduced, and no gradient of the next step comes before that. All ranks are in this process, and two
 * steps overlap, on mock devices that are stepped by hand in an order that a seed chooses. An order that is left out shows as wrong data.
 */
#include "bench.h"
#include "clean.h"
#include "lost_orders.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 8, STEPS = 2, GRADIENTS = 5, LONGEST = 70, OWN_QUEUES = 32 /* each stream has its own */ };
/* From the last on: a bucket that one stream writes, a gradient that is reduced in place, and a bucket that two streams write. */
static const size_t counts[GRADIENTS] = {30, 30, LONGEST, 20, 40};
static const bool by_other[GRADIENTS] = {true, false, true, false, false};

/* Who waits for a step: the stream that uses its results, or the host, after which no stream waits. */
enum way { BY_STREAM, BY_HOST };
struct setting {
    const char *name;
    bool staged, no_memops, adopt;
    enum way way;
};
struct side {
    struct bench bench;
    struct CUstream_st *compute, *other, *use;
    uint32_t *data[GRADIENTS], *kept[STEPS][GRADIENTS];
    struct comm_buckets *buckets;
    struct comm_event *used;
};
static struct side sides[RANKS_MOST];
static int ranks;
static struct rig rig;
static uint32_t plays; /* each has values of its own: what an earlier one left in the library's memory is wrong */

/* ------------------------------------------------------------------------------------------------------------ the world */
static void step(void)
{
    mock_step();
}

static void make_side(struct side *s, int device, struct comm_communicator *c, bool adopt)
{
    struct comm_gradient list[GRADIENTS];
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 300, .first_bytes = 260, .op = COMM_SUM, .adopt = adopt ? 2 : 0};

    *s = (struct side){0};
    bench_open(&s->bench, device);
    s->compute = bench_stream(&s->bench);
    s->other = bench_stream(&s->bench);
    s->use = bench_stream(&s->bench);
    for (size_t i = 0; i < GRADIENTS; i++) {
        if (!adopt)
            s->data[i] = bench_memory(&s->bench, counts[i]);
        for (int at = 0; at < STEPS; at++)
            s->kept[at][i] = bench_memory(&s->bench, counts[i]);
        list[i] = (struct comm_gradient){.data = s->data[i], .count = counts[i], .type = COMM_U32};
    }
    MUST(comm_buckets_create(c, list, GRADIENTS, &options, &s->buckets));
    for (size_t i = 0; adopt && i < GRADIENTS; i++) {
        void *at;
        MUST(comm_buckets_data(s->buckets, i, &at));
        s->data[i] = at;
    }
    MUST(comm_event_create(c, &s->used));
}

static void drop_side(struct side *s, bool adopt)
{
    for (size_t i = 0; i < GRADIENTS; i++) {
        if (!adopt)
            bench_free(&s->bench, s->data[i]);
        for (int at = 0; at < STEPS; at++)
            bench_free(&s->bench, s->kept[at][i]);
    }
    bench_drop_stream(&s->bench, s->compute);
    bench_drop_stream(&s->bench, s->other);
    bench_drop_stream(&s->bench, s->use);
    bench_close(&s->bench);
}

static void open_all(const struct setting *is, int size, int queues)
{
    ranks = size;
    mock_reset(&(struct mock_options){.seed = 1, .devices = is->staged ? 1 : RANKS_MOST, .queues = queues, .no_memops = is->no_memops});
    mock_run(true);
    bench_inside = mock_exempt;
    for (int r = 0; r < ranks; r++) /* the driver is loaded before the communicators are created */
        bench_open(&sides[r].bench, is->staged ? 0 : r);
    rig_open(&rig, ranks,
             COMM_CONFIG(.backend = is->staged ? NULL : "nccl", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 60 * RIG_S));
    for (int r = 0; r < ranks; r++)
        bench_close(&sides[r].bench);
    for (int r = 0; r < ranks; r++)
        make_side(&sides[r], is->staged ? 0 : r, rig.world[r], is->adopt);
    mock_run(false);
    bench_step = step;
}

static void close_all(const struct setting *is)
{
    bench_step = NULL;
    mock_run(true);
    for (int r = 0; r < ranks; r++) {
        comm_event_free(sides[r].used);
        comm_buckets_free(sides[r].buckets);
    }
    rig_close(&rig);
    for (int r = 0; r < ranks; r++)
        drop_side(&sides[r], is->adopt);
    bench_inside = NULL;
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ steps */
/* In the second step rank 1 does not report the second gradient. */
static bool reports(int rank, int at, size_t i)
{
    return !(rank == 1 && at == 1 && i == 1);
}

static uint32_t value_of(int rank, int at, size_t i)
{
    return plays * 100 + (uint32_t)at * 40 + (uint32_t)rank * 20 + (uint32_t)i + 1;
}

static uint32_t sum_of(int at, size_t i)
{
    uint32_t sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += reports(r, at, i) ? value_of(r, at, i) : 0;
    return sum;
}

static void again(enum comm_result r)
{
    CHECK(r == COMM_ERR_FULL || r == COMM_PENDING);
    orders_turn(rig.world[0]);
}

/* The streams write the gradients of a step when the results of the one before are used. */
static void put_gradients(int rank, int at, enum way way)
{
    struct side *s = &sides[rank];
    enum comm_result r;

    if (at > 0 && way == BY_STREAM) {
        MUST(comm_event_record_stream(s->used, s->use));
        MUST(comm_stream_wait_event(s->compute, s->used));
        MUST(comm_stream_wait_event(s->other, s->used));
    }
    for (size_t i = GRADIENTS; i-- > 0;) {
        struct CUstream_st *stream = by_other[i] ? s->other : s->compute;
        if (!reports(rank, at, i))
            continue;
        bench_fill(&s->bench, stream, s->data[i], value_of(rank, at, i), counts[i]);
        while ((r = comm_buckets_ready_stream(s->buckets, i, stream)) != COMM_OK)
            again(r);
    }
}

static void put_use(int rank, int at)
{
    struct side *s = &sides[rank];

    for (size_t i = 0; i < GRADIENTS; i++)
        bench_copy(&s->bench, s->use, s->kept[at][i], s->data[i], counts[i] * sizeof(uint32_t));
}

static void host_waits(void)
{
    bool done[RANKS_MOST] = {false};
    int64_t end = rig_now() + RIG_PATIENCE;

    for (int left = ranks; left; orders_turn(rig.world[0]))
        for (int r = 0; r < ranks; r++) {
            enum comm_result one = done[r] ? COMM_PENDING : comm_buckets_wait(sides[r].buckets, 0);
            CHECK(one == COMM_OK || one == COMM_PENDING || one == COMM_ERR_FULL);
            CHECK(rig_now() < end);
            done[r] |= one == COMM_OK;
            left -= one == COMM_OK;
        }
}

static void put_step(int at, enum way way)
{
    enum comm_result one;

    for (int r = 0; r < ranks; r++) {
        put_gradients(r, at, way);
        while (way == BY_STREAM && (one = comm_buckets_wait_stream(sides[r].buckets, sides[r].use)) != COMM_OK)
            again(one);
        if (way == BY_STREAM)
            put_use(r, at);
    }
    if (way == BY_STREAM)
        return;
    host_waits();
    for (int r = 0; r < ranks; r++)
        put_use(r, at);
    if (at + 1 < STEPS) /* the program's own wait, before it writes gradients again */
        mock_drain();
}

static bool kept_all(struct side *s)
{
    uint32_t got[LONGEST];
    bool good = true;

    for (int at = 0; at < STEPS; at++)
        for (size_t i = 0; i < GRADIENTS; i++) {
            bench_read(&s->bench, s->use, got, s->kept[at][i], counts[i]);
            for (size_t k = 0; k < counts[i]; k++)
                good &= got[k] == sum_of(at, i);
            bench_fill(&s->bench, s->use, s->kept[at][i], 0, counts[i]);
        }
    return good;
}

static bool play(const void *arg, uint64_t seed, uint64_t drop)
{
    const struct setting *is = arg;
    bool good = true;

    plays++;
    orders_begin(seed, drop);
    for (int at = 0; at < STEPS; at++)
        put_step(at, is->way);
    orders_finish(rig.world[0]);
    for (int r = 0; r < ranks; r++)
        good &= kept_all(&sides[r]);
    mock_drain();
    return good;
}

/* ------------------------------------------------------------------------------------------------------------ all of them */
enum { SETTINGS = 9 };
static const struct setting settings[SETTINGS] = {
    {"nccl, streams wait", .way = BY_STREAM},
    {"nccl, streams wait, no words", .way = BY_STREAM, .no_memops = true},
    {"nccl, streams wait, in the buckets", .way = BY_STREAM, .adopt = true},
    {"nccl, the host waits", .way = BY_HOST},
    {"nccl, the host waits, no words", .way = BY_HOST, .no_memops = true},
    {"staged, streams wait", .staged = true, .way = BY_STREAM},
    {"staged, streams wait, in the buckets", .staged = true, .way = BY_STREAM, .adopt = true},
    {"staged, the host waits", .staged = true, .way = BY_HOST},
    {"staged, the host waits, no words", .staged = true, .way = BY_HOST, .no_memops = true},
};

/* A staged step whose streams wait for the host needs a hardware queue for each of them, and a device has room for four such streams
 * (docs/guide/cuda.md). */
static bool fits(const struct setting *is, int queues)
{
    return queues == OWN_QUEUES || !(is->staged && is->way == BY_STREAM);
}

RIG_TEST(steps_in_every_order)
{
    static const struct {
        int ranks, queues;
    } worlds[] = {{2, 1}, {3, 2}, {4, 3}, {5, 4}, {6, 5}, {7, 6}, {8, 7}, {1, 8}, {2, OWN_QUEUES}};

    for (size_t i = 0; i < SETTINGS; i++)
        for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
            if (!fits(&settings[i], worlds[k].queues))
                continue;
            open_all(&settings[i], worlds[k].ranks, worlds[k].queues);
            orders_hold_all(&(struct orders_game){play, &settings[i], settings[i].name}, selected(2000, 30, 3));
            close_all(&settings[i]);
        }
}

/* The words on NCCL's stream tell the host of each call, which asks for none; of a step only the last one counts. */
static void spare_words_of_nccl(void)
{
    for (int r = 0; r < ranks; r++) {
        struct CUstream_st *stream;
        MUST(comm_stream_of(rig.world[r], &stream));
        mock_spare_orders(stream, true);
    }
}

RIG_TEST(every_missing_order_is_found)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        open_all(&settings[i], 2, OWN_QUEUES);
        if (!settings[i].staged)
            spare_words_of_nccl();
        CHECK(orders_find_all(&(struct orders_game){play, &settings[i], settings[i].name}) >= 32);
        close_all(&settings[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_in_every_order),
        cmocka_unit_test(every_missing_order_is_found),
    };
    return cmocka_run_group_tests_name("cuda_buckets_orders", tests, NULL, NULL);
}
