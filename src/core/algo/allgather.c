/*
 * allgather/direct: each rank exposes its block to all others at once, and they copy it. allgather/pipeline: each block
 * is a stream of chunks, and all blocks advance together: chunk k of every block before chunk k + 1 of any. With the
 * loops nested the other way and one credit there would be a deadlock: each rank would wait for its neighbour's next
 * chunk, which waits for a free place, which waits for the readers of the first chunk.
 *
 *   lane 0  for k: EXPOSE in.k -> others #0
 *   lane 1  for k: VIEW <- r+1, r+2, .. #0 LAND out[block r+1].k, ..
 *   lane 2  COPY out[block r] = in
 *
 * Blocks may differ in length: all have as many chunks as the longest one, some of them empty. In place, `in` is this
 * rank's block of `out`, and the COPY does nothing.
 */
#include "algo/algorithms.h"

static struct comm_program *allgather(struct build *b, bool stream)
{
    if (!b)
        return NULL;
    int32_t size = b->spec.size, rank = b->spec.rank, next = (rank + 1) % size;
    b->program.own_in = 1;
    b->program.chunk_unit = stream ? UNIT_BLOCK : 0;
    build_edge(b, 0, stream ? WIRE_TO_ALL : WIRE_ONCE | WIRE_TO_ALL);
    uint16_t others = build_peers(b, next, size - 1);
    if (size > 1) {
        build_lane(b);
        if (stream)
            build_loop_chunks(b);
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = stream ? STEP_CHUNKED : 0, .edge = 0, .peer = others, .npeers = (uint16_t)(size - 1),
                   .src = ref_block(BUF_IN, rank));
        if (stream)
            build_loop_end(b);
        build_lane_end(b);
        land_lane(b, 0, ref_block(BUF_OUT, next), others);
    }
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, rank), .src = ref_block(BUF_IN, rank));
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *allgather_direct(const struct comm_env *env, const struct program_spec *spec)
{
    return allgather(build_begin(env, "direct", spec), false);
}

struct comm_program *allgather_pipeline(const struct comm_env *env, const struct program_spec *spec)
{
    return allgather(build_begin(env, "pipeline", spec), true);
}
