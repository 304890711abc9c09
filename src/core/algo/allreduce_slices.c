/*
 * allreduce/slices: rank r reduces slice r of all ranks and exposes the result to all, chunk by chunk. Each byte is
 * read once and written once per rank that needs it. For large sizes.
 *
 *   lane 0  for k, for d: EXPOSE in[slice r+d].k -> r+d #0
 *   lane 1  for k: VIEW v <- all #0 (own = in[slice r].k); REDUCE out[slice r].k = T(v) FINAL TEE; RELEASE v;
 *                  EXPOSE out[slice r].k -> others #1
 *   lane 2  for k: VIEW <- r+1, r+2, .. #1 LAND out[slice r+1].k, out[slice r+2].k, ..
 *
 * In place: a result that arrives in slice s of `out` was reduced from slice s of every `in`, so nobody reads that
 * slice any more. Each rank begins with the peer behind itself, so that not all ranks read from the same one at once.
 *
 * With two ranks, each posts its views of results first, some chunks ahead. Where the wire can announce the place of a
 * view, the other rank may store its results there directly, and must know the place before it reduces. Otherwise each
 * may store its results where it read the other's slice (ANSWER), which halves what moves between the two CPUs.
 */
#include "algo/algorithms.h"

static void reduce_lane(struct build *b, uint16_t all, uint16_t others)
{
    struct comm_ref own = ref_slice(BUF_OUT, b->spec.rank);
    bool alone = b->spec.size == 1;
    build_lane(b);
    build_loop_chunks(b);
    tree_reduce(b, &(struct tree){
                       .edge = 0,
                       .peers = all,
                       .flags = STEP_CHUNKED,
                       .tee = alone ? 0 : tree_tee(b),
                       .own = ref_slice(BUF_IN, b->spec.rank),
                       .dst = own,
                       .release = true,
                   });
    if (!alone)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | STEP_TEE, .edge = 1, .peer = others,
                   .npeers = (uint16_t)(b->spec.size - 1), .src = own);
    build_loop_end(b);
    build_lane_end(b);
}

enum { LANDS = 1 /* counter */, LANDS_AHEAD = 32 };

static void early_land_lane(struct build *b, struct comm_ref next, uint16_t other)
{
    build_lane(b);
    build_loop_chunks(b);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = 1, .peer = other, .npeers = 1, .wait = LANDS,
               .need = 1 - LANDS_AHEAD, .need_inner = 1, .bump = LANDS, .dst = next, .src = next);
    build_loop_end(b);
    build_lane_end(b);
}

struct comm_program *allreduce_slices(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "slices", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size, next = (spec->rank + 1) % size;
    b->program.slices = (uint16_t)size;
    b->program.chunk_unit = UNIT_SLICE;
    b->program.scratch = tree_scratch(spec);
    build_edge(b, 0, 0);
    build_edge(b, 1, WIRE_TO_ALL);
    uint16_t all = build_peers(b, 0, size), others = build_peers(b, next, size - 1);
    if (size == 2)
        early_land_lane(b, ref_slice(BUF_OUT, next), others);
    scatter_lane(b, ref_slice(BUF_IN, next), others);
    reduce_lane(b, all, others);
    if (size != 2)
        land_lane(b, 1, ref_slice(BUF_OUT, next), others);
    return build_end(b);
}
