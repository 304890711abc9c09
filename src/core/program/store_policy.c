/*
 * Chooses how a result is stored in a peer's memory: past the cache, or with ordinary stores. Either way may be faster
 * by half. If the two CPUs share a cache, an ordinary store finds the peer's lines near and leaves them near. If they
 * do not, each line must first be transferred. A rank cannot find out which case it is in, and on a virtual machine it
 * changes while the program runs. So both ways are measured. Some operations time one piece, which tells the cost of
 * their way. From time to time two operations in a row use the other way, and the second one is timed. A measured cost
 * falls at once and rises slowly, because disturbances only make it longer.
 *
 * An ordinary store is chosen even if it takes up to 1.5 times as long: the caller then finds the results in a cache
 * when it reads them, which is not measured. It took 0.8 to 1.3 times as long with a shared cache, and more than twice
 * as long without one. This applies only to results short enough to be still in the cache then; longer ones go past the
 * cache.
 */
#include "program/store_policy.h"

enum { WAYS_PERIOD = 256, WAYS_TRIED = 2, WAYS_SAMPLE = 4, WAYS_RISE = 8 };

enum store_way store_policy_choose(struct store_policy *policy, bool *timed)
{
    uint32_t turn = policy->turn++ % WAYS_PERIOD;
    bool near = (uint64_t)policy->cost[RUN_WAY_NEAR] * 2 < (uint64_t)policy->cost[RUN_WAY_PAST] * 3;

    *timed = turn % WAYS_SAMPLE == 1;
    if (turn < WAYS_TRIED)
        near = !near;
    return near ? RUN_WAY_NEAR : RUN_WAY_PAST;
}

void store_policy_tell(struct store_policy *policy, enum store_way way, int64_t ns, size_t bytes)
{
    uint64_t cost = ((uint64_t)(ns > 0 ? ns : 0) << WAYS_SCALE) / bytes, known = policy->cost[way], most = known + known / WAYS_RISE + 1;

    cost = cost < UINT32_MAX / 2 ? cost : UINT32_MAX / 2;
    policy->cost[way] = (uint32_t)(known && cost > most ? most : cost);
}
