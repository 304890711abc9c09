/* Stochastic dual dynamic programming of one reservoir: in each stage of the backward pass every rank makes the cuts of its own trial
 * points and gives them to all while it makes the next ones. Receivers find each cut's place by its trial, so the pool of cuts, and with it
 * the result, has the same bits on any number of ranks. (Pereira and Pinto, "Multi-stage stochastic optimization applied to energy
 * planning", 1991.) */
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

/* The cost to come is at least value + slope * volume. */
struct cut {
    double value, slope;
};
static struct cut pool[STAGES + 1][CUTS]; /* nothing comes after the last stage */
static double volume[STAGES + 1][TRIALS];

/* ------------------------------------------------------------------------------------------------------------ one stage */
/* The one that binds in an empty reservoir. */
static struct cut steepest(const struct cut *cuts, int count)
{
    struct cut best = {0, 0};
    for (int i = 0; i < count; i++)
        if (cuts[i].value > best.value || (cuts[i].value >= best.value && cuts[i].slope > best.slope))
            best = cuts[i];
    return best;
}

/* Up to which volume one binds, and which does then. */
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
    double cost, stays, value, slope; /* of this stage; in the reservoir; with all that comes; its change with the water there is */
};

/* Water is given where a unit of it saves most: to the turbines while it replaces thermal plants, or to the stages to come. */
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

/* Which inflow comes in this trial and stage: by their numbers, whoever asks. */
static double inflow(int iteration, int trial, int stage)
{
    uint64_t x = (uint64_t)((iteration * TRIALS + trial) * STAGES + stage + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return INFLOW[(x >> 40) % OPENINGS];
}

/* The cost of a trial; it leaves behind which volumes it came by. */
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

/* Chunk i of every rank's cuts to all, each to its place; ranks with fewer trials give none in the last ones. */
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

/* A stage needs all cuts of the next one; those of this one travel while it makes more of them. */
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

/* What the policy costs in trials of its own, every rank's in their order: the mean, and how far off that may be. */
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
