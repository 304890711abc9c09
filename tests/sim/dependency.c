/* A workload: a communicator waits in its queue for a request of another communicator that must fail. It fails too, on
 * every rank, as a dependency; what comes behind the wait never runs. */
#include "sim/dependency.h"

#include "sim/inside.h"
#include "now.h"

#define MINUTE INT64_C(60000000000)

static void must(enum comm_result r, enum comm_result want, const char *what)
{
    SIM_CHECK(r == want, "%s said %s, must be %s", what, comm_result_name(r), comm_result_name(want));
}

/* One rank calls with another operator, or another collective. */
static void fail_world(struct comm_communicator *world, uint64_t seed, int32_t rank, const int64_t *in, int64_t *out,
                       struct comm_request *request)
{
    bool culprit = rank == (int32_t)(seed % (uint64_t)sim_ranks());

    if (culprit && (seed >> 8 & 1))
        (void)!comm_barrier(world, request);
    else
        (void)!comm_allreduce(world, in, out, 1, COMM_I64, culprit ? COMM_MAX : COMM_SUM, request);
}

static void finish(int32_t rank, struct comm_communicator *world, struct comm_communicator *other)
{
    sim_doing("close", 0);
    if (other)
        (void)comm_close(other, MINUTE);
    (void)comm_close(world, MINUTE);
    SIM_CHECK(sim_memory_held(rank) == 0, "%lld bytes are not given back", (long long)sim_memory_held(rank));
}

static void dependency_main(int32_t rank, void *arg)
{
    uint64_t s = *(const uint64_t *)arg, seed = sim_draw(&s);
    struct comm_communicator *world = NULL, *other = NULL;
    struct comm_request first, second;
    int64_t in[2] = {rank + 1, rank + 2}, out[2] = {0, 0};

    sim_doing("open", 0);
    must(sim_open(NULL, &world), COMM_OK, "open");
    enum comm_result r = NOW(comm_dup, world, &(struct comm_options){.size = sizeof(struct comm_options)}, &other);
    for (uint64_t i = sim_below(&s, 4); i && r == COMM_OK; i--)
        r = comm_barrier(world, NULL);
    if (r != COMM_OK) { /* the others were faster, and their failure ends this call */
        must(r, COMM_ERR_MISMATCH, "dup or barrier");
        finish(rank, world, other);
        return;
    }
    if (sim_random() % 2)
        sim_spend((int64_t)(sim_random() % 1000000));
    sim_doing("allreduce", 1);
    fail_world(world, seed, rank, &in[0], &out[0], &first);
    enum comm_result waits = comm_queue_wait_request(other, first);
    if (waits == COMM_OK) {
        sim_doing("allreduce behind a wait", 2);
        if (comm_allreduce(other, &in[1], &out[1], 1, COMM_I64, COMM_SUM, &second) == COMM_OK) {
            enum comm_result said = comm_wait(second, MINUTE); /* if a parent fails before all ranks have the child, the child fails too */
            must(said, said == COMM_ERR_MISMATCH ? COMM_ERR_MISMATCH : COMM_ERR_DEPENDENCY, "wait");
        }
        SIM_CHECK(out[1] == 0, "what stands behind the failed wait ran");
    }
    sim_doing("allreduce", 1);
    must(comm_wait(first, MINUTE), COMM_ERR_MISMATCH, "wait");
    finish(rank, world, other);
}

bool run_dependency(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    uint64_t s = seed ^ UINT64_C(0x8ebc6af09c88c6e3);
    struct sim_config config = {.seed = seed, .ranks = options->ranks ? options->ranks : 2 + (int32_t)sim_below(&s, 4)};

    return sim_run(&config, dependency_main, &s, result);
}
