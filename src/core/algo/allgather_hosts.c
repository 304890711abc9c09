/*
 * allgather/hosts: each block crosses once to each other host. There one rank receives it and exposes it to the others:
 * see hosts_gather.c. Works for any placement of ranks. Blocks may differ in length, as in allgather/pipeline.
 */
#include "algo/hosts.h"

struct comm_program *allgather_hosts(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts", spec);
    struct places places = {0};
    uint16_t peers;
    if (!b || !places_find(b, &places))
        return build_end(b);
    b->program.own_in = 1;
    b->program.chunk_unit = UNIT_BLOCK;
    build_edge(b, HOSTS_GIVE, 0); /* not used here: an edge has the same meaning in all programs over hosts */
    build_edge(b, HOSTS_PARTIAL, 0);
    uint16_t readers = hosts_gather_readers(b, &places, &peers);
    if (readers) {
        build_lane(b);
        build_loop_chunks(b);
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = HOSTS_FINISHED, .peer = peers, .npeers = readers,
                   .src = ref_block(BUF_IN, spec->rank));
        build_loop_end(b);
        build_lane_end(b);
    }
    hosts_gather(b, &(struct hosts_gather){.places = &places, .unit = UNIT_BLOCK, .counter = 1});
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, spec->rank), .src = ref_block(BUF_IN, spec->rank));
    build_lane_end(b);
    return build_end(b);
}
