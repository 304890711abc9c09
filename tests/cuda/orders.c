#include "orders.h"

#include "bench.h"
#include "clean.h"
#include "lost_orders.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, ROUNDS = 2, HOLD_NS = 5000000 /* so long the other process may not get a CPU */ };
struct side {
    struct bench bench;
    struct CUstream_st *compute, *consume;
    uint32_t *in[ROUNDS], *out, *kept[ROUNDS];
    struct comm_event *ready, *reduced;
};
static struct orders_config is;
static struct rig rig;
static struct comm_communicator *world[RANKS];
static struct side sides[RANKS];
static int here, end_here; /* the ranks of this process: here .. end_here - 1 */
static uint32_t plays;     /* each has values of its own: what an earlier one left in the library's memory is wrong */
static uint32_t *got;
static struct CUstream_st *held; /* no operation of this stream runs; NULL: all run */

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

static void open_both(void)
{
    mock_reset(&(struct mock_options){
        .seed = 1, .devices = is.devices, .queues = is.queues, .no_memops = is.no_memops, .no_kernels = is.no_kernels});
    mock_run(true);
    rig_open(&rig, RANKS, COMM_CONFIG(.backend = is.backend, .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 60 * RIG_S));
    memcpy(world, rig.world, sizeof world);
    end_here = RANKS;
}

void orders_open(const struct orders_config *config)
{
    is = *config;
    here = is.process ? is.process->rank : 0;
    end_here = here + 1;
    bench_inside = mock_exempt;
    if (is.process)
        world[here] = is.process->world;
    else
        open_both();
    for (int r = here; r < end_here; r++)
        open_side(&sides[r], r % is.devices, world[r]);
    got = malloc(is.words * sizeof *got);
    CHECK(got);
    mock_run(false);
    bench_step = step;
}

/* Of NCCL's stream: its words tell the host alone, and only these ways ask it for none. */
static void spare_nccl(enum orders_way way)
{
    for (int r = here; r < end_here && is.backend && strcmp(is.backend, "nccl") == 0; r++) {
        struct CUstream_st *stream;
        MUST(comm_stream_of(world[r], &stream));
        mock_spare_orders(stream, way != BY_HOST_ALONE);
    }
}

void orders_close(void)
{
    bench_step = NULL;
    mock_run(true);
    for (int r = here; r < end_here; r++) {
        comm_event_free(sides[r].ready);
        comm_event_free(sides[r].reduced);
    }
    if (is.process)
        MUST(comm_close(is.process->world, COMM_DEFAULT_TIMEOUT));
    else
        rig_close(&rig);
    for (int r = here; r < end_here; r++)
        close_side(&sides[r]);
    free(got);
    bench_inside = NULL;
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ moving */
static void turn_before(int64_t end)
{
    if (rig_now() > end)
        mock_list_live();
    CHECK(rig_now() <= end);
    orders_turn(world[here]);
}

static void hold(struct CUstream_st *stream)
{
    if (held)
        mock_hold(held, false);
    held = stream;
    if (held)
        mock_hold(held, true);
}

/* A stream is held for a while, or until the request is done although it should wait for that stream. */
static void drive(struct comm_request q)
{
    int64_t begin = rig_now();

    while (comm_test(q) == COMM_PENDING) {
        if (held && rig_now() > begin + HOLD_NS)
            hold(NULL);
        turn_before(begin + RIG_PATIENCE);
    }
    MUST(comm_test(q));
}

/* ------------------------------------------------------------------------------------------------------------ rounds */
static uint32_t value_of(int rank, int round)
{
    return (plays * 10 + (uint32_t)(3 * round + rank) + 1) * (uint32_t)(24690 * rank + 1);
}

static uint32_t sum_of(int round)
{
    uint32_t sum = 0;

    for (int r = 0; r < RANKS; r++)
        sum = is.by_xor ? sum ^ value_of(r, round) : sum + value_of(r, round);
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
    struct comm_communicator *c = world[r];

    bench_fill(&s->bench, s->compute, s->in[round], value_of(r, round), is.words);
    if (way == BY_HOST_ALONE) {
        mock_drain();
    } else {
        queue_waits(s, c, s->compute, way);
        if (round > 0)
            queue_waits(s, c, s->consume, way);
    }
    MUST(comm_allreduce(c, s->in[round], s->out, is.words, COMM_U32, is.by_xor ? COMM_BXOR : COMM_SUM, q));
}

/* `consume` keeps the sum. */
static void put_use(int r, enum orders_way way, int round, struct comm_request q)
{
    struct side *s = &sides[r];

    if (way == BY_EVENTS) {
        MUST(comm_event_record(s->reduced, world[r]));
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
    EQUAL(strcmp(info.algorithm, is.algorithm ? is.algorithm : "cuda") == 0, !is.is_staged);
}

static bool leads(void)
{
    return is.process && is.process->start;
}

/* Before a round. The other process does not wait for this one's chance steps, so some seeds hold one stream back until the sum would have
 * come if it did not wait for that stream. */
static void hold_by(uint64_t seed, int round, struct comm_request before)
{
    enum { NONE, CONSUME, COMPUTE, COMPUTE_LATER, WAYS };
    struct side *s = &sides[here];

    if (round == 0) {
        hold(seed % WAYS == CONSUME ? s->consume : seed % WAYS == COMPUTE ? s->compute : NULL);
    } else if (seed % WAYS == COMPUTE_LATER) {
        drive(before);
        hold(s->compute);
    }
}

/* With some seeds this process is late, with others the other one: on a busy machine the same one may be first again and again. The later
 * the seed, the more it is late. */
static void be_late(uint64_t seed)
{
    enum { FIRST, SECOND, WAYS = 5, SEEDS_A_STEP = 50, STEPS = 6 };
    uint64_t step = seed / SEEDS_A_STEP;

    if (is.process && seed % WAYS == (leads() ? FIRST : SECOND))
        rig_nap(RIG_MS / 5 << (step < STEPS ? step : STEPS));
}

static bool play(const void *arg, uint64_t seed, uint64_t drop)
{
    enum orders_way way = *(const enum orders_way *)arg;
    struct comm_request q[RANKS];
    bool good = true;

    plays++;
    if (leads())
        is.process->start(way, seed);
    be_late(seed);
    orders_begin(seed, drop);
    for (int round = 0; round < ROUNDS; round++) {
        if (leads() && way != BY_HOST_ALONE)
            hold_by(seed, round, q[here]);
        for (int r = here; r < end_here; r++)
            put_sum(r, way, round, &q[r]);
        for (int r = here; r < end_here; r++) {
            if (way >= BY_HOST)
                drive(q[r]);
            put_use(r, way, round, q[r]);
        }
    }
    for (int r = here; r < end_here; r++)
        drive(q[r]);
    hold(NULL);
    check_way(q[here]);
    orders_finish(world[here]);
    for (int r = here; r < end_here; r++)
        good &= kept_all(&sides[r]);
    return leads() ? is.process->was_right() && good : good;
}

bool orders_play(enum orders_way way, uint64_t seed)
{
    return play(&way, seed, 0);
}

/* ------------------------------------------------------------------------------------------------------------ seeds, faults */
static const char *name_of(enum orders_way way)
{
    static char name[80];

    snprintf(name, sizeof name, "%s, way %d, %d queues%s",
             is.algorithm   ? is.algorithm
             : is.is_staged ? "staged"
                            : "cuda",
             (int)way, is.queues, is.no_memops ? ", no words" : "");
    return name;
}

void orders_hold(enum orders_way way, uint64_t seeds)
{
    orders_hold_all(&(struct orders_game){play, &way, name_of(way)}, seeds);
}

void orders_find_each(enum orders_way way)
{
    spare_nccl(way);
    orders_find_all(&(struct orders_game){play, &way, name_of(way)});
}
