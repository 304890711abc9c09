/*
 * A workload: memory that ranks share. Large reductions whose buffers peers read in place (with two ranks, peers also
 * write there), and windows into which all ranks put and count, with signals around a ring. In some runs a rank revokes
 * the communicator at some moment and overwrites its buffers as soon as its own requests have ended. Still, a rank
 * whose request succeeded has the right bytes, nothing is written there later, another communicator can use the buffers
 * again, and nothing hangs.
 */
#include "sim/windows.h"

#include "sim/inside.h"
#include "now.h"

#include <commstream/memory.h>
#include <commstream/window.h>

#include <string.h>

enum { ROUNDS_MOST = 6, LONG = 200000, RANKS_MOST = 5, MARK = 0x5a };
#define MINUTE INT64_C(60000000000)

struct side {
    struct comm_communicator *world, *other;
    struct comm_window *window;
    int32_t *in, *out;
    int32_t rank, ranks;
    bool may_fail, failed, revokes; /* revokes: during its next reduction */
};

/* Whether it succeeded; otherwise the error must be the revocation. */
static bool well(struct side *s, enum comm_result r, const char *what)
{
    bool ok = r == COMM_OK;

    SIM_CHECK(ok || (s->may_fail && r == COMM_ERR_REVOKED), "%s said %s", what, comm_result_name(r));
    if (!ok && !s->failed) { /* its requests have ended: this rank owns the memory again */
        s->failed = true;
        memset(s->in, MARK, LONG * sizeof *s->in);
        memset(s->out, MARK, LONG * sizeof *s->out);
    }
    return ok;
}

static bool done(struct side *s, enum comm_result r, struct comm_request request, const char *what)
{
    return well(s, r, what) && well(s, comm_wait(request, MINUTE), what);
}

/* The sum of the ranks' contributions. */
static int32_t expected(const struct side *s, size_t i, uint32_t round)
{
    return (int32_t)((uint32_t)s->ranks * ((uint32_t)i * 5u + round)) + s->ranks * (s->ranks - 1) / 2;
}

static void reduce_round(struct side *s, uint32_t round, bool in_place)
{
    struct comm_request request = {NULL, 0};
    int32_t *out = in_place ? s->in : s->out;

    for (size_t i = 0; i < LONG; i++)
        s->in[i] = (int32_t)((uint32_t)i * 5u + round) + s->rank;
    sim_doing("allreduce", round + 1);
    enum comm_result r = comm_allreduce(s->world, in_place ? COMM_IN_PLACE : s->in, out, LONG, COMM_I32, COMM_SUM, &request);
    for (uint64_t i = s->revokes ? sim_random() % 200 : 0; i && r == COMM_OK; i--)
        (void)!comm_progress(s->world);
    if (s->revokes)
        (void)well(s, comm_revoke(s->world), "revoke");
    if (!done(s, r, request, "allreduce"))
        return;
    for (size_t i = 0; i < LONG; i += 7)
        SIM_CHECK(out[i] == expected(s, i, round), "round %u: element %zu is %d, must be %d", round, i, out[i], expected(s, i, round));
}

/* All ranks add into all parts: at 0 into words, at 16 into elements that no atomic operation fits. Then around the
 * ring, each adding its rank. */
static void window_round(struct side *s, uint32_t round)
{
    struct comm_request request = {NULL, 0};
    const double one[2] = {1, 2};
    const int64_t two = 2;
    int64_t seen = 0, next = 0;
    int32_t right = (s->rank + 1) % s->ranks;
    enum comm_result r = COMM_OK;

    sim_doing("window", round + 1);
    for (int32_t p = 0; p < s->ranks && r == COMM_OK; p++) {
        r = comm_accumulate(s->window, &two, 1, COMM_I64, COMM_SUM, p, 0, NULL);
        r = r == COMM_OK ? comm_accumulate(s->window, one, 1, COMM_C128, COMM_SUM, p, 16, NULL) : r;
    }
    r = r == COMM_OK ? comm_window_flush(s->window, COMM_ANY_PEER, &request) : r;
    if (!done(s, r, request, "flush"))
        return;
    if (s->rank && !done(s, comm_window_wait_signal(s->window, 0, round + 1, &request), request, "wait_signal"))
        return;
    if (s->rank && !done(s, comm_get(s->window, &seen, 1, COMM_I64, s->rank, 8, &request), request, "get"))
        return;
    SIM_CHECK(seen == (int64_t)s->rank * (s->rank + 1) / 2 + (s->rank ? (int64_t)round * 1000 : 0), "the ring says %lld to rank %d",
              (long long)seen, s->rank);
    next = (s->rank ? seen : (int64_t)round * 1000) + s->rank + 1;
    if (!done(s, comm_put(s->window, &next, 1, COMM_I64, right, 8, &request), request, "put") ||
        !done(s, comm_window_signal(s->window, right, 0, 1, &request), request, "signal") ||
        !done(s, comm_window_fence(s->window, &request), request, "fence"))
        return;
    void *at = NULL;
    if (!well(s, comm_window_pointer(s->window, s->rank, &at, NULL), "window_pointer"))
        return;
    SIM_CHECK(((const int64_t *)at)[0] == (int64_t)(round + 1) * 2 * s->ranks && ((const double *)at)[3] == 2.0 * (round + 1) * s->ranks,
              "round %u: %lld and %g counted", round, (long long)((const int64_t *)at)[0], ((const double *)at)[3]);
    (void)done(s, comm_window_fence(s->window, &request), request, "fence");
}

static void rounds(struct side *s, uint64_t *seed)
{
    uint32_t count = 1 + (uint32_t)sim_below(seed, ROUNDS_MOST), window = 0;
    int32_t culprit = s->may_fail ? (int32_t)sim_below(seed, (uint64_t)s->ranks) : -1;
    uint32_t last = (uint32_t)sim_below(seed, count);

    for (uint32_t round = 0; round < count && !s->failed; round++) {
        uint64_t what = sim_below(seed, 3);
        if (sim_random() % 4 == 0)
            sim_spend((int64_t)(sim_random() % 300000));
        s->revokes = s->rank == culprit && round >= last;
        if (what < 2)
            reduce_round(s, round, what == 0);
        else
            window_round(s, window++);
    }
}

/* A late rank has arrived when this has ended. */
static void use_again(struct side *s)
{
    struct side last = {.world = s->other, .in = s->in, .out = s->out, .rank = s->rank, .ranks = s->ranks};
    struct comm_request request;

    sim_doing("barrier", 0);
    (void)done(&last, comm_barrier(s->other, &request), request, "barrier");
    for (size_t i = 0; s->failed && i < LONG; i++)
        SIM_CHECK(s->in[i] == MARK * 0x01010101 && s->out[i] == MARK * 0x01010101, "word %zu was written late: %x %x", i,
                  (unsigned)s->in[i], (unsigned)s->out[i]);
    reduce_round(&last, 77, s->ranks % 2 == 0);
    sim_doing("close of the other", 0);
    (void)!comm_close(s->other, MINUTE);
}

static void windows_main(int32_t rank, void *arg)
{
    uint64_t s = *(const uint64_t *)arg;
    struct side side = {.rank = rank, .ranks = sim_ranks(), .may_fail = sim_below(&s, 2)};
    struct comm_window_options options = {.size = sizeof options, .signals = 1};
    struct comm_request request = {NULL, 0};
    void *memory = NULL, *more = NULL, *all = NULL;

    sim_doing("open", 0);
    SIM_CHECK(sim_open(NULL, &side.world) == COMM_OK, "open");
    SIM_CHECK(comm_mem_alloc(side.world, LONG * sizeof(int32_t), &memory) == COMM_OK &&
                  comm_mem_alloc(side.world, LONG * sizeof(int32_t), &more) == COMM_OK,
              "mem_alloc");
    side.in = memory;
    side.out = more;
    SIM_CHECK(comm_dup(side.world, NULL, &side.other, &request) == COMM_OK && comm_wait(request, MINUTE) == COMM_OK, "dup");
    (void)well(&side, NOW(comm_window_create, side.world, 32, &options, &side.window), "window_create");
    (void)well(&side, NOW(comm_mem_alloc_symmetric, side.world, 5000, &all), "mem_alloc_symmetric");
    rounds(&side, &s);
    sim_doing("window_free", 0);
    (void)!well(&side, comm_window_free(side.window), "window_free");
    use_again(&side);
    comm_mem_free(side.world, memory);
    comm_mem_free(side.world, more);
    comm_mem_free(side.world, all);
    sim_doing("close", 0);
    (void)!comm_close(side.world, MINUTE);
    SIM_CHECK(sim_memory_held(rank) == 0, "%lld bytes are not given back", (long long)sim_memory_held(rank));
}

bool run_windows(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    uint64_t s = seed ^ UINT64_C(0x2545f4914f6cdd1d);
    struct sim_config config = {
        .seed = seed, .ranks = options->ranks ? options->ranks : 1 + (int32_t)sim_below(&s, RANKS_MOST), .wire = SIM_WIRE_LINES};
    if (!options->ranks && sim_below(&s, 3) == 0)
        config.ranks = 2;

    if (sim_below(&s, 3) == 0) /* where parts are not memory of their callers */
        config.wire = sim_below(&s, 2) ? SIM_WIRE_FRAMES : SIM_WIRE_MIXED;
    return sim_run(&config, windows_main, &s, result);
}
