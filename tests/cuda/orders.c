#include "orders.h"

#include "bench.h"
#include "clean.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, ROUNDS = 2, SEEDS_MOST = 1000 };
struct side {
    struct bench bench;
    struct CUstream_st *compute, *consume;
    uint32_t *in[ROUNDS], *out, *kept[ROUNDS];
    struct comm_event *ready, *reduced;
};
static struct orders_config is;
static struct rig rig;
static struct side sides[RANKS];
static uint64_t chance;
static uint32_t pace;  /* so many operations of the devices, less one, at most between two looks of the host */
static uint32_t plays; /* each has values of its own: what an earlier one left in the library's memory is wrong */
static uint32_t *got;

/* ------------------------------------------------------------------------------------------------------------ the world */
static void step(void)
{
    mock_step();
}

static void open_side(struct side *s, int device, struct comm_communicator *c)
{
    bench_open(&s->bench, device);
    s->compute = bench_stream(&s->bench);
    s->consume = bench_stream(&s->bench);
    s->out = bench_memory(&s->bench, is.words);
    for (int i = 0; i < ROUNDS; i++) {
        s->in[i] = bench_memory(&s->bench, is.words);
        s->kept[i] = bench_memory(&s->bench, is.words);
    }
    MUST(comm_event_create(c, &s->ready));
    MUST(comm_event_create(c, &s->reduced));
}

static void close_side(struct side *s)
{
    bench_free(&s->bench, s->out);
    for (int i = 0; i < ROUNDS; i++) {
        bench_free(&s->bench, s->in[i]);
        bench_free(&s->bench, s->kept[i]);
    }
    bench_drop_stream(&s->bench, s->compute);
    bench_drop_stream(&s->bench, s->consume);
    bench_close(&s->bench);
}

void orders_open(const struct orders_config *config)
{
    is = *config;
    mock_reset(&(struct mock_options){.seed = 1, .devices = is.devices, .queues = is.queues, .no_memops = is.no_memops});
    mock_run(true);
    bench_inside = mock_exempt;
    rig_open(&rig, RANKS, COMM_CONFIG(.backend = is.backend, .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 60 * RIG_S));
    for (int r = 0; r < RANKS; r++)
        open_side(&sides[r], r % is.devices, rig.world[r]);
    got = malloc(is.words * sizeof *got);
    CHECK(got);
    mock_run(false);
    bench_step = step;
}

void orders_close(void)
{
    bench_step = NULL;
    mock_run(true);
    for (int r = 0; r < RANKS; r++) {
        comm_event_free(sides[r].ready);
        comm_event_free(sides[r].reduced);
    }
    rig_close(&rig);
    for (int r = 0; r < RANKS; r++)
        close_side(&sides[r]);
    free(got);
    bench_inside = NULL;
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ moving */
static uint32_t draw(uint32_t below)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (uint32_t)(chance % below);
}

static void turn(void)
{
    for (uint32_t steps = draw(pace); steps; steps--)
        mock_step();
    enum comm_result moved = comm_progress(rig.world[0]);
    CHECK(moved == COMM_OK || moved == COMM_PENDING);
}

static void turn_before(int64_t end)
{
    if (rig_now() > end)
        mock_list_live();
    CHECK(rig_now() <= end);
    turn();
}

static void drive(struct comm_request q)
{
    int64_t end = rig_now() + RIG_PATIENCE;

    while (comm_test(q) == COMM_PENDING)
        turn_before(end);
    MUST(comm_test(q));
}

/* ------------------------------------------------------------------------------------------------------------ rounds */
static uint32_t value_of(int rank, int round)
{
    return plays * 10 + (uint32_t)(3 * round + rank) + 1;
}

static uint32_t sum_of(int round)
{
    uint32_t sum = 0;

    for (int r = 0; r < RANKS; r++)
        sum += value_of(r, round);
    return sum;
}

static void queue_waits(struct side *s, struct comm_communicator *c, struct CUstream_st *stream, enum orders_way way)
{
    if (way == BY_EVENTS) {
        MUST(comm_event_record_stream(s->ready, stream));
        MUST(comm_queue_wait_event(c, s->ready));
    } else {
        MUST(comm_queue_wait_stream(c, stream));
    }
}

/* `compute` writes `in`, and the queue sums it, when `consume` has kept the sum before. A device has room for four streams that wait. */
static void put_sum(int r, enum orders_way way, int round, struct comm_request *q)
{
    struct side *s = &sides[r];
    struct comm_communicator *c = rig.world[r];

    bench_fill(&s->bench, s->compute, s->in[round], value_of(r, round), is.words);
    queue_waits(s, c, s->compute, way);
    if (round > 0)
        queue_waits(s, c, s->consume, way);
    MUST(comm_allreduce(c, s->in[round], s->out, is.words, COMM_U32, COMM_SUM, q));
}

/* `consume` keeps the sum. */
static void put_use(int r, enum orders_way way, int round, struct comm_request q)
{
    struct side *s = &sides[r];

    if (way == BY_EVENTS) {
        MUST(comm_event_record(s->reduced, rig.world[r]));
        MUST(comm_stream_wait_event(s->consume, s->reduced));
    } else if (way == BY_REQUEST) {
        MUST(comm_stream_wait_request(s->consume, q));
    }
    bench_copy(&s->bench, s->consume, s->kept[round], s->out, is.words * sizeof *s->out);
}

static bool kept_all(struct side *s)
{
    bool good = true;

    for (int round = 0; round < ROUNDS; round++) {
        bench_read(&s->bench, s->consume, got, s->kept[round], is.words);
        for (size_t i = 0; i < is.words; i++)
            good &= got[i] == sum_of(round);
        bench_fill(&s->bench, s->consume, s->kept[round], 0, is.words);
    }
    bench_fill(&s->bench, s->compute, s->out, 0, is.words);
    mock_drain();
    return good;
}

static void check_way(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    EQUAL(info.flags, is.is_staged ? COMM_INFO_STAGED : 0);
    EQUAL(strcmp(info.algorithm, "cuda") == 0, !is.is_staged);
}

bool orders_play(enum orders_way way, uint64_t seed, uint64_t drop)
{
    struct comm_request q[RANKS];
    bool good = true;

    plays++;
    pace = 2u << seed % 3;
    mock_seed(seed);
    mock_drop_order(drop);
    chance = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    for (int round = 0; round < ROUNDS; round++) {
        for (int r = 0; r < RANKS; r++)
            put_sum(r, way, round, &q[r]);
        for (int r = 0; r < RANKS; r++) {
            if (way == BY_HOST)
                drive(q[r]);
            put_use(r, way, round, q[r]);
        }
    }
    for (int r = 0; r < RANKS; r++)
        drive(q[r]);
    check_way(q[0]);
    for (int64_t end = rig_now() + RIG_PATIENCE; !mock_idle();)
        turn_before(end);
    for (int r = 0; r < RANKS; r++)
        good &= kept_all(&sides[r]);
    return good;
}

/* ------------------------------------------------------------------------------------------------------------ seeds, faults */
void orders_hold(enum orders_way way, uint64_t seeds)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        rig_note("way %d, %d queues%s, seed %llu", (int)way, is.queues, is.no_memops ? ", no words" : "", (unsigned long long)seed);
        CHECK(orders_play(way, seed, 0));
    }
}

/* Each seed has the same orders, so a number means the same one. */
static uint64_t orders_of(enum orders_way way)
{
    uint64_t before = mock_orders(), orders;

    CHECK(orders_play(way, 1, 0));
    orders = mock_orders() - before;
    for (uint64_t seed = 2; seed <= 20; seed++) {
        before = mock_orders();
        CHECK(orders_play(way, seed, 0));
        EQUAL(mock_orders() - before, orders);
    }
    return orders;
}

void orders_find_each(enum orders_way way)
{
#if defined(__SANITIZE_THREAD__)
    rig_skip("what is left out is a race, which ThreadSanitizer finds by itself");
#endif
    uint64_t orders = orders_of(way), most = 0;

    for (uint64_t order = 1; order <= orders; order++) {
        uint64_t seed = 1;
        rig_note("way %d%s, order %llu", (int)way, is.no_memops ? ", no words" : "", (unsigned long long)order);
        while (seed <= SEEDS_MOST && orders_play(way, seed, order))
            seed++;
        if (seed > SEEDS_MOST)
            rig_die(__FILE__, __LINE__, "way %d: order %llu of %llu was lost and not found", (int)way, (unsigned long long)order,
                    (unsigned long long)orders);
        most = seed > most ? seed : most;
    }
    printf("way %d%s: each of %llu orders found, the last after %llu seeds\n", (int)way, is.no_memops ? ", no words" : "",
           (unsigned long long)orders, (unsigned long long)most);
}
