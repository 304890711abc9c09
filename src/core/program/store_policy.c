/*
 * Which way a result goes into a peer's memory, where either may be the faster by half: past the cache, or as any store. Between two CPUs
 * that share a cache the ordinary store finds the peer's lines near and leaves them near; between two that do not it must have each of them
 * sent over first. Nothing tells a rank which it is, and on a virtual machine it changes while a program runs. So it is found out: what one
 * piece in some operations took tells of the way that they went, and every now and then two operations in a row go the other way, of which
 * the second tells. A time falls at once and rises slowly, since what comes between only ever makes it longer.
 *
 * An ordinary store may take half as long again: what it brings is that the caller finds the results in a cache when it reads them, which
 * is not measured. It took 0.8 to 1.3 times as long with a shared cache, and more than twice as long without. Only for results so short
 * that they are still there then: longer ones go past the cache.
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
