/*
 * A workload: windows whose parts only their owners can access, and owners that make no progress. Each rank's part is
 * its own heap. Each rank makes random requests to others, and spends the time between without progress: it computes,
 * polls its own part or another window of its own with calls that complete at once, or sleeps. Without faults each
 * request is done soon, whatever its owner does; in the end everything is counted.
 */
#include "sim/owners.h"

#include "sim/inside.h"
#include "now.h"

#include <commstream/window.h>

#include <string.h>

enum { RANKS_MOST = 4, PART = 80000, ASKS_MOST = 8, WORDS = 4, SLEEP_NS = 20000000 };
#define MINUTE INT64_C(60000000000)
#define SOON INT64_C(200000000) /* less than the monitor's tick, which would find all of it without being rung */
enum pastime { COMPUTES, SWAPS, GETS, TESTS, SLEEPS, PASTIMES };

struct shared {
    uint64_t seed;
    bool calm;
    int32_t finished; /* ranks that make no more requests */
};
struct owner {
    struct comm_communicator *world;
    struct comm_window *asked, *own;
    struct comm_request complete;
    char *part, *bytes;
    int32_t rank, ranks;
    struct shared *shared;
};

static void must(enum comm_result r, const char *what)
{
    SIM_CHECK(r == COMM_OK, "%s said %s", what, comm_result_name(r));
}

/* A little of its pastime. */
static void pass_time(struct owner *o, enum pastime pastime)
{
    struct comm_request request = o->complete;
    int64_t zero = 0, old;

    if (pastime == COMPUTES)
        sim_spend((int64_t)(sim_random() % 3000000));
    else if (pastime == SLEEPS)
        sim_spend((int64_t)(sim_random() % SLEEP_NS));
    else if (pastime == SWAPS)
        must(comm_compare_swap(o->own, &zero, &zero, &old, COMM_I64, o->rank, 0, &request), "compare_swap");
    else if (pastime == GETS)
        must(comm_get(o->own, &old, 1, COMM_I64, o->rank, 0, &request), "get");
    if (pastime != COMPUTES && pastime != SLEEPS) {
        must(comm_test(request), "test");
        sim_spend((int64_t)(sim_random() % 40000));
    }
}

/* Makes a request of a peer and waits for it. Without faults it must be done soon, whatever the owner of the memory
 * does. */
static void ask(struct owner *o, int32_t peer)
{
    struct comm_request request = {NULL, 0};
    int64_t one = 1, from = sim_now();
    size_t bytes = sim_random() % 3 ? 8 : PART / (size_t)o->ranks / 2 / 8 * 8, mine = PART / (size_t)o->ranks / 8 * 8;

    if (sim_random() % 2) {
        must(comm_accumulate(o->asked, &one, 1, COMM_I64, COMM_SUM, peer, PART + 8 * (sim_random() % WORDS), NULL), "accumulate");
    } else {
        memset(o->bytes, o->rank + 1, bytes);
        must(comm_put(o->asked, o->bytes, bytes, COMM_BYTE, peer, (size_t)o->rank * mine, NULL), "put");
        must(comm_accumulate(o->asked, &one, 1, COMM_I64, COMM_SUM, peer, PART, NULL), "accumulate");
    }
    must(comm_window_flush(o->asked, peer, &request), "flush");
    must(comm_wait(request, MINUTE), "wait");
    SIM_CHECK(!o->shared->calm || sim_now() - from < SOON, "an ask of rank %d took %lld us", peer, (long long)(sim_now() - from) / 1000);
}

static void owners_main(int32_t rank, void *arg)
{
    struct shared *shared = arg;
    uint64_t s = shared->seed + (uint64_t)rank * UINT64_C(0x9e3779b97f4a7c15);
    struct owner o = {.rank = rank, .ranks = sim_ranks(), .shared = shared, .part = sim_take(PART + 8 * WORDS), .bytes = sim_take(PART)};
    struct comm_window_options options = {.size = sizeof options, .base = o.part};
    struct comm_request request = {NULL, 0};
    int64_t asks = (int64_t)sim_below(&s, ASKS_MOST), sum = 0, total = 0;
    enum pastime pastime = (enum pastime)sim_below(&s, PASTIMES);

    sim_doing("open", 0);
    must(sim_open(NULL, &o.world), "open");
    must(NOW(comm_window_create, o.world, PART + 8 * WORDS, &options, &o.asked), "window_create");
    must(NOW(comm_window_create, o.world, 64, NULL, &o.own), "window_create");
    must(comm_barrier(o.world, &o.complete), "barrier");
    must(comm_wait(o.complete, MINUTE), "barrier");
    for (int64_t i = 0; i < asks; i++) {
        sim_doing("ask", (uint64_t)i + 1);
        ask(&o, (rank + 1 + (int32_t)(sim_random() % (uint64_t)(o.ranks - 1))) % o.ranks);
        for (int64_t turns = (int64_t)(sim_random() % 4); turns; turns--)
            pass_time(&o, pastime);
    }
    shared->finished++;
    sim_doing("its pastime", (uint64_t)pastime);
    while (shared->finished < o.ranks)
        pass_time(&o, pastime);
    sim_doing("fence", 0);
    must(comm_window_fence(o.asked, &request), "fence");
    must(comm_wait(request, MINUTE), "fence");
    for (int i = 0; i < WORDS; i++)
        sum += ((const int64_t *)(const void *)(o.part + PART))[i];
    must(comm_allreduce(o.world, COMM_IN_PLACE, &sum, 1, COMM_I64, COMM_SUM, &request), "allreduce");
    must(comm_wait(request, MINUTE), "allreduce");
    must(comm_allreduce(o.world, &asks, &total, 1, COMM_I64, COMM_SUM, &request), "allreduce");
    must(comm_wait(request, MINUTE), "allreduce");
    SIM_CHECK(sum == total, "%lld were counted of %lld", (long long)sum, (long long)total);
    sim_doing("close", 0);
    must(comm_window_free(o.own), "window_free");
    must(comm_window_free(o.asked), "window_free");
    must(comm_close(o.world, MINUTE), "close");
    SIM_CHECK(sim_memory_held(rank) == 0, "%lld bytes are not given back", (long long)sim_memory_held(rank));
}

/* On one host in half of the runs, because what lines find there frames find elsewhere. */
bool run_owners(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    uint64_t s = seed ^ UINT64_C(0x94d049bb133111eb);
    static const enum sim_wire wires[] = {SIM_WIRE_LINES, SIM_WIRE_LINES, SIM_WIRE_FRAMES, SIM_WIRE_MIXED};
    struct shared shared = {.seed = s};
    struct sim_config config = {.seed = seed,
                                .ranks = options->ranks > 1 ? options->ranks : 2 + (int32_t)sim_below(&s, RANKS_MOST - 1),
                                .wire = wires[sim_below(&s, 4)]};

    config.hosts = config.wire == SIM_WIRE_MIXED ? 2 : 1;
    shared.calm = !options->faults || sim_below(&s, 2);
    config.calm = shared.calm;
    config.swarm = shared.calm ? 0 : SIM_FAULTS_HARMLESS;
    return sim_run(&config, owners_main, &shared, result);
}
