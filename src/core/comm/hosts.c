/* Finds which members share a host, for selection and for programs. It is computed once, from data that are the same on all ranks. */
#include "comm/state.h"

#include "algo/algorithms.h"

bool state_find_hosts(struct comm_state *b)
{
    struct program_hosts *hosts = &b->hosts.all;
    int32_t *of = b->unit.engine->env->take(b->unit.engine->env, (size_t)b->team.size * sizeof *of, 64);

    if (!of)
        return false;
    hosts->of = of;
    for (int32_t r = 0; r < b->team.size; r++) {
        int32_t lower = 0;
        while (lower < r && state_host(b, lower) != state_host(b, r))
            lower++;
        of[r] = lower < r ? of[lower] : hosts->count++;
    }
    for (int32_t h = 0; h < hosts->count; h++) {
        int32_t ranks = 0;
        for (int32_t r = 0; r < b->team.size; r++)
            ranks += of[r] == h;
        hosts->longest = ranks > hosts->longest ? ranks : hosts->longest;
    }
    algo_hosts_survey(hosts, b->team.size, b->world->order_block);
    b->hosts.several = hosts->count > 1 ? hosts : NULL;
    return true;
}

void state_free_hosts(struct comm_state *b)
{
    if (b->hosts.all.of)
        b->unit.engine->env->give(b->unit.engine->env, (void *)(uintptr_t)b->hosts.all.of, (size_t)b->team.size * sizeof *b->hosts.all.of);
}

int32_t state_host_ranks(const struct comm_state *b)
{
    return b->hosts.all.count > 1 ? (b->team.size + b->hosts.all.count - 1) / b->hosts.all.count : 0;
}
