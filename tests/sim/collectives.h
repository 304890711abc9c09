/* A workload: one sequence of collectives on the world, many of them in flight, with known data and results. */
#ifndef TESTS_SIM_COLLECTIVES_H
#define TESTS_SIM_COLLECTIVES_H

#include "sim/sim.h"

enum deed_kind {
    DEED_BARRIER,
    DEED_BROADCAST,
    DEED_REDUCE,
    DEED_ALLREDUCE,
    DEED_ALLGATHER,
    DEED_ALLGATHER_V,
    DEED_REDUCE_SCATTER,
    DEED_FIRST_KINDS, /* kinds of the first workloads, so that their seeds keep their meaning */
    DEED_SCAN = DEED_FIRST_KINDS,
    DEED_EXSCAN,
    DEED_GATHER,
    DEED_GATHER_V,
    DEED_SCATTER,
    DEED_SCATTER_V,
    DEED_ALLTOALL,
    DEED_ALLTOALL_V,
    DEED_REDUCE_SCATTER_V,
    DEED_BROADCAST_BYTES,
    DEED_KINDS,
};
extern const char *const deed_names[DEED_KINDS];
enum deed_kind deed_of(uint32_t collective); /* DEED_KINDS: none of them */

struct deed {
    enum deed_kind kind;
    enum comm_type type;
    comm_op op;
    int32_t root;
    size_t n;
    uint64_t seed;
};

enum { DEEDS_MAX = 128 };
struct deeds {
    uint64_t seed;
    int32_t ranks, hosts;
    uint32_t count, depth; /* number of calls, and how many of them at most are in flight on a rank */
    struct deed deed[DEEDS_MAX];
    void **input[DEEDS_MAX];  /* per rank, made when first needed in this run */
    void *reduced[DEEDS_MAX]; /* all contributions reduced, made when first needed in this run */
    bool plain;               /* no rank computes between calls, and all calls are issued before any is waited for */
    bool gates;               /* sometimes a rank's queue waits for its own last call, so that different operations run together on each
                               * rank */
    bool may_refuse;          /* UNSUPPORTED on all ranks is not a failure: an algorithm chosen by name cannot do everything */
    bool faults;              /* an error alone is not a failure */
    bool called[SIM_RANKS_MAX], opened[SIM_RANKS_MAX]; /* the first error came from the call itself; the world was open */
    /* Outcome: per rank its first error, and how many calls were right. */
    enum comm_result result[SIM_RANKS_MAX];
    uint32_t right[SIM_RANKS_MAX];
    struct comm_error error[SIM_RANKS_MAX];
    int64_t opened_ns[SIM_RANKS_MAX], ended_ns[SIM_RANKS_MAX];
};

/* deed.c: one call on one rank. */
struct deed_part {
    const struct deed *deed;
    int32_t ranks;
    void *in, *out;
    size_t in_n, out_n;
    size_t *give, *give_at, *take, *take_at; /* elements to and from each rank, and where they lie */
    size_t bytes;                            /* for a broadcast_bytes */
    struct comm_request request;
    uint64_t number;
    bool refused;
};
void deed_prepare(struct deed_part *part, const struct deed *deed, int32_t rank, int32_t ranks);
enum comm_result deed_issue(struct deed_part *part, struct comm_communicator *c, int32_t rank);
void deed_verify(struct deeds *all, const struct deed_part *part, int32_t rank);

void deeds_sample(struct deeds *deeds, uint64_t seed, int32_t ranks, uint32_t count, size_t largest, enum deed_kind kinds);
void deeds_main(int32_t rank, void *deeds); /* a sim_rank_fn */
/* After a run with faults: checks that no live rank was reported as down, and that all survivors reported the same
 * cause in time. Otherwise fails the result. */
bool deeds_judge(const struct deeds *deeds, struct sim_result *result);

#endif
