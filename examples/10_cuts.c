/*
 * Stochastic dual dynamic programming of one reservoir. In each stage of the backward pass every rank computes the cuts of its own trial
 * points, and sends them to all ranks while it computes the next ones. The index of a trial determines the place of its cut, so the pool of
 * cuts, and with it the result, has the same bits on any number of ranks. (Pereira and Pinto, "Multi-stage stochastic optimization applied
 * to energy planning", 1991.)
 */
#include "must.h"

#include <math.h>

enum {
    STAGES = 12,
    TRIALS = 24,
    OPENINGS = 5,
    ITERATIONS = 8,
    CUTS = TRIALS * ITERATIONS,
    CHUNK = 2,
    CHUNKS = TRIALS / CHUNK,
    ROUNDS = 100,
    RANKS_MAX = 64
};
static const double DEMAND = 40, TURBINES = 60, CAPACITY = 100, THERMAL_COST = 25, FIRST_VOLUME = 30;
static const double INFLOW[OPENINGS] = {2, 14, 27, 41, 66};

/* The future cost is at least value + slope * volume. */
struct cut {
    double value, slope;
};
static struct cut pool[STAGES + 1][CUTS]; /* nothing follows the last stage */
static double volume[STAGES + 1][TRIALS];

/* ------------------------------------------------------------------------------------------------------------ one stage */
/* The cut that binds when the reservoir is empty. */
static struct cut steepest(const struct cut *cuts, int count)
{
    struct cut best = {0, 0};
    for (int i = 0; i < count; i++)
        if (cuts[i].value > best.value || (cuts[i].value >= best.value && cuts[i].slope > best.slope))
            best = cuts[i];
    return best;
}

/* Up to which volume a cut binds, and which cut binds after it. */
static double corner(const struct cut *cuts, int count, struct cut binds, struct cut *next)
{
    double end = CAPACITY;
    *next = binds;
    for (int i = 0; i <= count; i++) {
        const struct cut other = i < count ? cuts[i] : (struct cut){0, 0};
        double cross = other.slope > binds.slope ? (binds.value - other.value) / (other.slope - binds.slope) : CAPACITY;
        if (cross < end || (cross <= end && other.slope > next->slope)) {
            end = cross;
            *next = other;
        }
    }
    return end;
}

struct decision {
    double cost, stays, value, slope; /* of this stage; volume that stays in the reservoir; cost including the future; its derivative with
                                         respect to the available water */
};

/* Water is used where a unit of it saves most: in the turbines while they replace thermal plants, or in later stages. */
static struct decision decide(const struct cut *cuts, int count, double water)
{
    double released = 0, stays = 0, left = water, most = DEMAND < TURBINES ? DEMAND : TURBINES, slope = 0;
    struct cut ahead = steepest(cuts, count), next = ahead;
    while (left > 0 && (released < most || stays < CAPACITY)) {
        int release = released < most && (stays >= CAPACITY || -THERMAL_COST <= ahead.slope);
        double end = release ? most : corner(cuts, count, ahead, &next), *to = release ? &released : &stays;
        slope = release ? -THERMAL_COST : ahead.slope;
        if (left < end - *to) {
            *to += left;
            left = 0;
        } else {
            left -= end > *to ? end - *to : 0;
            *to = end > *to ? end : *to;
            ahead = next;
        }
    }
    double cost = THERMAL_COST * (DEMAND - released);
    return (struct decision){cost, stays, cost + ahead.value + ahead.slope * stays, left > 0 ? 0 : slope};
}

/* The mean over the openings, as a cut. */
static struct cut cut_at(const struct cut *next, int count, double v)
{
    struct cut mean = {0, 0};
    for (int o = 0; o < OPENINGS; o++) {
        struct decision d = decide(next, count, v + INFLOW[o]);
        mean.value += (d.value - d.slope * v) / OPENINGS;
        mean.slope += d.slope / OPENINGS;
    }
    return mean;
}

/* ------------------------------------------------------------------------------------------------------------ all ranks */
static int32_t rank, ranks;
static int first_trial(int32_t r)
{
    return (int)((int64_t)TRIALS * r / ranks);
}

/* The inflow of a trial and stage. It depends only on their numbers, not on the rank. */
static double inflow(int iteration, int trial, int stage)
{
    uint64_t x = (uint64_t)((iteration * TRIALS + trial) * STAGES + stage + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return INFLOW[(x >> 40) % OPENINGS];
}

/* Returns the cost of a trial, and stores its volumes. */
static double forward(int iteration, int trial, int cuts)
{
    double cost = 0, v = FIRST_VOLUME;
    for (int t = 0; t < STAGES; t++) {
        volume[t][trial] = v;
        struct decision d = decide(pool[t + 1], t + 1 < STAGES ? cuts : 0, v + inflow(iteration, trial, t));
        cost += d.cost;
        v = d.stays;
    }
    return cost;
}

/* Sends chunk i of every rank's cuts to all ranks, each cut to its place. Ranks with fewer trials send nothing in the last chunks. */
static void give(struct comm_communicator *world, struct cut *cuts, int chunk, struct comm_request *request)
{
    size_t counts[RANKS_MAX], displs[RANKS_MAX];
    for (int32_t r = 0; r < ranks; r++) {
        int from = first_trial(r) + chunk * CHUNK, to = from + CHUNK < first_trial(r + 1) ? from + CHUNK : first_trial(r + 1);
        counts[r] = from < to ? (size_t)(to - from) * 2 : 0;
        displs[r] = (size_t)from * 2;
    }
    must(comm_allgather_v(world, COMM_IN_PLACE, cuts, counts, displs, COMM_F64, request), "allgather_v");
}

/* A stage needs all cuts of the next stage. Its own cuts are sent while it computes more of them. */
static void backward(struct comm_communicator *world, int iteration)
{
    int mine = first_trial(rank + 1) - first_trial(rank), longest = (TRIALS + ranks - 1) / ranks;
    for (int t = STAGES - 1; t > 0; t--) {
        struct comm_request requests[CHUNKS];
        int chunks = (longest + CHUNK - 1) / CHUNK;
        struct cut *made = &pool[t][iteration * TRIALS];
        for (int i = 0; i < chunks; i++) {
            for (int k = i * CHUNK; k < mine && k < (i + 1) * CHUNK; k++) {
                int trial = first_trial(rank) + k;
                made[trial] = cut_at(pool[t + 1], t + 1 < STAGES ? (iteration + 1) * TRIALS : 0, volume[t][trial]);
            }
            give(world, made, i, &requests[i]);
        }
        must(comm_wait_all(requests, (size_t)chunks, COMM_FOREVER), "wait");
    }
}

/* The cost of the policy in separate trials, summed in the order of the trials: the mean, and its standard error. */
static double simulate(struct comm_communicator *world, double *error)
{
    static double cost[ROUNDS][TRIALS];
    size_t counts[RANKS_MAX], displs[RANKS_MAX];
    struct comm_request requests[ROUNDS];
    double sum = 0, squares = 0, count = ROUNDS * TRIALS;
    for (int32_t r = 0; r < ranks; r++) {
        displs[r] = (size_t)first_trial(r);
        counts[r] = (size_t)(first_trial(r + 1) - first_trial(r));
    }
    for (int i = 0; i < ROUNDS; i++) {
        for (int m = first_trial(rank); m < first_trial(rank + 1); m++)
            cost[i][m] = forward(ITERATIONS + i, m, CUTS);
        must(comm_allgather_v(world, COMM_IN_PLACE, cost[i], counts, displs, COMM_F64, &requests[i]), "allgather_v");
    }
    must(comm_wait_all(requests, ROUNDS, COMM_FOREVER), "wait");
    for (int i = 0; i < ROUNDS * TRIALS; i++) {
        double one = cost[i / TRIALS][i % TRIALS];
        sum += one;
        squares += one * one;
    }
    *error = sqrt((squares / count - sum / count * (sum / count)) / count);
    return sum / count;
}

int main(void)
{
    struct comm_communicator *world;
    must(comm_open(NULL, &world), "open");
    rank = comm_rank(world);
    ranks = comm_size(world);
    expect(ranks <= RANKS_MAX, "at most 64 ranks");

    double bound = 0, error;
    for (int i = 0; i < ITERATIONS; i++) {
        for (int m = first_trial(rank); m < first_trial(rank + 1); m++)
            (void)forward(i, m, i * TRIALS);
        backward(world, i);
        struct cut first = cut_at(pool[1], (i + 1) * TRIALS, FIRST_VOLUME);
        double now = first.value + first.slope * FIRST_VOLUME;
        expect(now > 0 && now >= bound - 1e-6, "more cuts never lower the bound");
        bound = now;
    }
    double mean = simulate(world, &error);
    expect(mean > bound - 4 * error, "no policy costs less than the bound");
    if (rank == 0)
        printf("cuts: costs at least %.10f; in trials %.10f +- %.1f\n", bound, mean, error);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
