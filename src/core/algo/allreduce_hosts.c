/*
 * allreduce/hosts: rank r finishes slice r of everybody, node by node (hosts_reduce.c), and all show what they finished (hosts_gather.c).
 *
 * On H hosts whose ranks are subtrees of T, a host sends n (H - 1) / H of partial results and as much of finished ones, and receives as
 * much: what any allreduce of H hosts must. Elsewhere it sends partial results of each of its subtrees, and finished ones as few times.
 */
#include "algo/hosts.h"

struct comm_program *allreduce_hosts(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts", spec);
    struct places places = {0};
    struct comm_ref out = ref_slice(BUF_OUT, spec->rank);
    uint16_t peers;
    if (!b || !places_find(b, &places))
        return build_end(b);
    b->program.slices = (uint16_t)spec->size;
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
