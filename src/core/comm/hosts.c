/* Finds which members share a host, for selection and for programs. It is computed once, from data that are the same on all ranks. */
#include "comm/state.h"

#include "algo/algorithms.h"

/* Hosts of the world have numbers, so one table from a number of the world's to one of this communicator's is enough. */
bool state_find_hosts(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;
    struct program_hosts *hosts = &b->hosts.all;
    size_t size = (size_t)b->team.size, known = (size_t)b->world->hosts.count;
    int32_t *of = env->take(env, size * sizeof *of, 64);
    struct counted {
        int32_t number, ranks; /* number: from 1; 0: none of its ranks was seen yet */
    } *counted = of ? env->take(env, known * sizeof *counted, 64) : NULL;

    hosts->of = of;
    for (int32_t r = 0; counted && r < b->team.size; r++) {
        struct counted *host = &counted[state_host(b, r)];
        if (!host->number)
            host->number = ++hosts->count;
        of[r] = host->number - 1;
        hosts->longest = ++host->ranks > hosts->longest ? host->ranks : hosts->longest;
    }
    if (!counted)
        return false;
    env->give(env, counted, known * sizeof *counted);
    algo_hosts_survey(hosts, b->team.size, b->world->order_block);
    b->hosts.several = hosts->count > 1 ? hosts : NULL;
    return true;
}

void state_free_hosts(struct comm_state *b)
{
    env_give_back(b->unit.engine->env, (void *)(uintptr_t)b->hosts.all.of, (size_t)b->team.size * sizeof *b->hosts.all.of);
}

int32_t state_host_ranks(const struct comm_state *b)
{
    return b->hosts.all.count > 1 ? (b->team.size + b->hosts.all.count - 1) / b->hosts.all.count : 0;
}
