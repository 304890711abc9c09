/*
 * allreduce/slices: rank r reduces slice r of everybody and shows the result to everybody, chunk by chunk; each byte is read once and
 * written once per rank that needs it. For the large.
 *
 *   lane 0  for k, for d: EXPOSE in[slice r+d].k -> r+d #0
 *   lane 1  for k: VIEW v <- all #0 (own = in[slice r].k); REDUCE out[slice r].k = T(v) FINAL TEE; RELEASE v; EXPOSE out[slice r].k ->
 * others #1 lane 2  for k: VIEW <- r+1, r+2, .. #1 LAND out[slice r+1].k, out[slice r+2].k, ..
 *
 * In place: what lands in slice s of out was reduced from what others read of slice s of in, so nobody reads there any more.
 * Peers are taken in an order that begins behind one's own rank, so that not all ask the same rank at once.
 */
#include "algo/algorithms.h"

static void slices_lanes(struct build *b, uint16_t all, uint16_t others)
{
    int32_t rank = b->spec.rank;
    uint16_t count = (uint16_t)(b->spec.size - 1);

    build_lane(b);
    build_loop_chunks(b);
    build_loop(b, count);
    struct comm_ref next = ref_slice(BUF_IN, (rank + 1) % b->spec.size);
    next.outer = 1;
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = 0, .peer = others, .npeers = 1, .peer_outer = 1, .src = next);
    build_loop_end(b);
    build_loop_end(b);
    build_lane_end(b);

    build_lane(b);
    build_loop_chunks(b);
    tree_reduce(b, &(struct tree){
                       .edge = 0,
                       .peers = all,
                       .flags = STEP_CHUNKED,
                       .tee = STEP_TEE,
                       .own = ref_slice(BUF_IN, rank),
                       .dst = ref_slice(BUF_OUT, rank),
                       .release = true,
                   });
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | STEP_TEE, .edge = 1, .peer = others, .npeers = count,
               .src = ref_slice(BUF_OUT, rank));
    build_loop_end(b);
    build_lane_end(b);

    build_lane(b);
    build_loop_chunks(b);
    struct comm_ref land = ref_slice(BUF_OUT, (rank + 1) % b->spec.size);
    land.step = 1;
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = 1, .peer = others, .npeers = count, .dst = land,
               .src = land);
    build_loop_end(b);
    build_lane_end(b);
}

struct comm_program *allreduce_slices(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "slices", spec);
    if (!b)
        return NULL;
    b->program.slices = (uint16_t)spec->size;
    b->program.chunk_unit = UNIT_SLICE;
    b->program.scratch = tree_scratch(spec->size);
    build_edge(b, 0, 0);
    build_edge(b, 1, WIRE_TO_ALL);
    uint16_t all = build_peers(b, 0, spec->size), others = build_peers(b, spec->rank + 1, spec->size - 1);
    slices_lanes(b, all, others);
    return build_end(b);
}
