/*
 * The orders that the library puts on streams around CUDA graphs: a stream that uses what a launch computed runs after the launch, and
 * neither the next launch nor a call that is not captured comes before that. Two rounds overlap, on mock devices that are stepped by hand
 * in an order that a seed chooses. An order that is left out shows as wrong data.
 */
#include "lost_orders.h"
#include "sides.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 24, ROUNDS = 2, OWN_QUEUES = 32 /* each stream has its own */ };
/* Who waits: the stream that uses the results, or the host, after which no stream waits. */
enum way { BY_EVENTS, BY_REQUEST, BY_HOST };
struct setting {
    const char *name, *backend;
    bool no_memops;
    enum way way;
};
static struct user {
    struct CUstream_st *stream;
    uint32_t *launched[ROUNDS], *called[ROUNDS]; /* what it kept */
    struct comm_event *reached, *used;
} users[SIDES];
static uint32_t plays; /* each has values of its own */

static void step(void)
{
    mock_step();
}

static void open_user(struct side *s, struct user *u)
{
    u->stream = bench_stream(&s->bench);
    for (int i = 0; i < ROUNDS; i++) {
        u->launched[i] = bench_memory(&s->bench, WORDS);
        u->called[i] = bench_memory(&s->bench, WORDS);
    }
    MUST(comm_event_create(s->comm, &u->reached));
    MUST(comm_event_create(s->comm, &u->used));
}

static void open_all(const struct setting *is, int queues)
{
    bench_inside = mock_exempt;
    sides_open(&(struct mock_options){.seed = 1, .queues = queues, .no_memops = is->no_memops},
               COMM_CONFIG(.backend = is->backend, .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 60 * RIG_S), WORDS);
    for (int r = 0; r < SIDES; r++)
        open_user(&sides[r], &users[r]);
    sides_capture_sum(WORDS);
    mock_run(false);
    bench_step = step;
}

static void close_all(void)
{
    bench_step = NULL;
    mock_run(true);
    for (int r = 0; r < SIDES; r++) {
        comm_event_free(users[r].reached);
        comm_event_free(users[r].used);
        bench_drop_stream(&sides[r].bench, users[r].stream);
        for (int i = 0; i < ROUNDS; i++) {
            bench_free(&sides[r].bench, users[r].launched[i]);
            bench_free(&sides[r].bench, users[r].called[i]);
        }
    }
    sides_close(false);
    bench_inside = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ rounds */
static uint32_t value_of(int rank, int round)
{
    return plays * 100 + (uint32_t)(10 * round + rank) + 1;
}

static uint32_t sum_of(int round)
{
    uint32_t sum = 0;

    for (int r = 0; r < SIDES; r++)
        sum += value_of(r, round);
    return sum;
}

static void keep(int rank, uint32_t *to, const uint32_t *from)
{
    bench_copy(&sides[rank].bench, users[rank].stream, to, from, WORDS * sizeof *to);
}

/* A launch sums `in` into `out`, and stores it in `in`. The user keeps `out`. */
static void put_launch(int rank, int round, enum way way)
{
    struct side *s = &sides[rank];
    struct user *u = &users[rank];

    if (round > 0 && way != BY_HOST) {
        MUST(comm_event_record_stream(u->used, u->stream));
        MUST(comm_stream_wait_event(s->stream, u->used));
    }
    bench_fill(&s->bench, s->stream, s->in, value_of(rank, round), WORDS);
    bench_launch(&s->bench, &s->graph, s->stream);
    if (way == BY_HOST)
        return;
    MUST(comm_event_record_stream(u->reached, s->stream));
    MUST(comm_stream_wait_event(u->stream, u->reached));
    keep(rank, u->launched[round], s->out);
}

/* A call that is not captured sums `in` in place. The user keeps `in`. */
static void put_call(int rank, int round, enum way way, struct comm_request *q)
{
    struct side *s = &sides[rank];
    struct user *u = &users[rank];

    MUST(comm_allreduce(s->comm, COMM_IN_PLACE, s->in, WORDS, COMM_U32, COMM_SUM, q));
    if (way == BY_HOST)
        return;
    if (way == BY_REQUEST) {
        MUST(comm_stream_wait_request(u->stream, *q));
    } else {
        MUST(comm_event_record(u->reached, s->comm));
        MUST(comm_stream_wait_event(u->stream, u->reached));
    }
    keep(rank, u->called[round], s->in);
}

/* What a rank computed is kept when its call is complete, whatever the others have done by then. */
static void host_waits(int round, const struct comm_request *q)
{
    bool kept[SIDES] = {false};
    int64_t end = rig_now() + RIG_PATIENCE;

    for (int left = SIDES; left; orders_turn(sides[0].comm))
        for (int r = 0; r < SIDES; r++) {
            CHECK(rig_now() < end);
            if (kept[r] || comm_test(q[r]) == COMM_PENDING)
                continue;
            MUST(comm_test(q[r]));
            keep(r, users[r].launched[round], sides[r].out);
            keep(r, users[r].called[round], sides[r].in);
            kept[r] = true;
            left--;
        }
}

static bool kept_all(int rank)
{
    uint32_t got[WORDS];
    bool good = true;

    for (int kind = 0; kind < 2; kind++)
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t *at = kind ? users[rank].called[round] : users[rank].launched[round];
            bench_read(&sides[rank].bench, users[rank].stream, got, at, WORDS);
            for (int i = 0; i < WORDS; i++)
                good &= got[i] == sum_of(round) * (kind ? SIDES : 1);
            bench_fill(&sides[rank].bench, users[rank].stream, at, 0, WORDS);
        }
    return good;
}

static bool play(const void *arg, uint64_t seed, uint64_t drop)
{
    const struct setting *is = arg;
    struct comm_request q[SIDES];
    bool good = true;

    plays++;
    orders_begin(seed, drop);
    for (int round = 0; round < ROUNDS; round++) {
        for (int r = 0; r < SIDES; r++) {
            put_launch(r, round, is->way);
            put_call(r, round, is->way, &q[r]);
        }
        if (is->way != BY_HOST)
            continue;
        host_waits(round, q);
        mock_drain(); /* the program's own wait, before it writes again */
    }
    orders_finish(sides[0].comm);
    for (int r = 0; r < SIDES; r++)
        good &= kept_all(r);
    mock_drain();
    return good;
}

/* ------------------------------------------------------------------------------------------------------------ all of them */
enum { SETTINGS = 6 };
static const struct setting settings[SETTINGS] = {
    {"nccl, events", "nccl", .way = BY_EVENTS},    {"nccl, events, no words", "nccl", .way = BY_EVENTS, .no_memops = true},
    {"nccl, requests", "nccl", .way = BY_REQUEST}, {"nccl, requests, no words", "nccl", .way = BY_REQUEST, .no_memops = true},
    {"nccl, the host", "nccl", .way = BY_HOST},    {"nccl, the host, no words", "nccl", .way = BY_HOST, .no_memops = true},
};

RIG_TEST(launches_in_every_order)
{
    for (int i = 0; i < SETTINGS; i++)
        for (int queues = 1; queues <= 8; queues++) {
            open_all(&settings[i], queues);
            orders_hold_all(&(struct orders_game){play, &settings[i], settings[i].name}, selected(2000, 60, 5));
            close_all();
        }
}

/* Where streams wait, the words on the communicator's stream tell the host of each call, which asks for none. */
RIG_TEST(every_missing_order_is_found)
{
    for (int i = 0; i < SETTINGS; i++) {
        open_all(&settings[i], OWN_QUEUES);
        for (int r = 0; r < SIDES; r++)
            mock_spare_orders(sides[r].stream, settings[i].way != BY_HOST);
        CHECK(orders_find_all(&(struct orders_game){play, &settings[i], settings[i].name}) >= SIDES * ROUNDS);
        close_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_in_every_order),
        cmocka_unit_test(every_missing_order_is_found),
    };
    return cmocka_run_group_tests_name("cuda_graphs_orders", tests, NULL, NULL);
}
