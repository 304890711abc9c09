/*
 * allreduce/hosts: rank r reduces slice r of all ranks, node by node (hosts_reduce.c). Then all ranks expose their
 * results (hosts_gather.c).
 *
 * On H hosts whose ranks are subtrees of T, a host sends n (H - 1) / H bytes of partial results and as many of finished
 * ones, and receives as many: the minimum for any allreduce over H hosts. With another placement, a host sends partial
 * results of each of its subtrees, and finished results as often.
 *
 * allreduce/hosts_few: the same with one slice per host instead of one per rank, so that as many bytes cross in fewer
 * pieces. Consecutive hosts choose ranks of different numbers to finish their slices. This spreads the work on other
 * hosts' slices over all ranks.
 */
#include "algo/hosts.h"

static void deal_few(const struct build *b, struct places *p)
{
    for (int32_t r = 0; r < b->spec.size; r++) {
        int32_t host = p->host.of[r];
        p->item[r] = p->host.number[r] == host % group_ranks(&p->host, host) ? host : -1;
    }
}

static struct comm_program *allreduce(struct build *b, bool few)
{
    struct places places = {0};
    uint16_t peers;
    if (!b || !places_find(b, &places))
        return build_end(b);
    if (few)
        deal_few(b, &places);
    int32_t item = places.item[b->spec.rank];
    struct comm_ref out = ref_slice(BUF_OUT, item >= 0 ? item : 0);
    b->program.slices = (uint16_t)(few ? places.host.count : b->spec.size);
    b->program.chunk_unit = UNIT_SLICE;
    uint16_t readers = hosts_gather_readers(b, &places, &peers);
    hosts_reduce(
        b, &(struct hosts_reduce){
               .places = &places,
               .unit = UNIT_SLICE,
               .dst = out,
               .after = {.code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = HOSTS_FINISHED, .peer = peers, .npeers = readers, .src = out},
           });
    hosts_gather(b, &(struct hosts_gather){.places = &places, .unit = UNIT_SLICE, .counter = HOSTS_COUNT_MORE});
    return build_end(b);
}

struct comm_program *allreduce_hosts(const struct comm_env *env, const struct program_spec *spec)
{
    return allreduce(build_begin(env, "hosts", spec), false);
}

struct comm_program *allreduce_hosts_few(const struct comm_env *env, const struct program_spec *spec)
{
    return allreduce(build_begin(env, "hosts_few", spec), true);
}
