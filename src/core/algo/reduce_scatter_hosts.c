/*
 * reduce_scatter/hosts: rank r reduces block r of all ranks, node by node: see hosts_reduce.c. On H hosts whose ranks
 * are subtrees of T, a host receives one partial result of its ranks' blocks from each other host, which is the
 * minimum. Blocks may differ in length (reduce_scatter_v).
 */
#include "algo/hosts.h"

struct comm_program *reduce_scatter_hosts(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts", spec);
    struct places places = {0};
    if (!b || !places_find(b, &places))
        return build_end(b);
    b->program.chunk_unit = UNIT_BLOCK;
    b->program.own_out = 1;
    hosts_reduce(b, &(struct hosts_reduce){.places = &places, .unit = UNIT_BLOCK, .dst = ref_block(BUF_OUT, spec->rank)});
    return build_end(b);
}
