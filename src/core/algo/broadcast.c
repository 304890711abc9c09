/*
 * broadcast/direct: the root exposes the whole buffer at once, and all others copy it. broadcast/pipeline: the same as
 * a stream of chunks; all ranks read from one place. The buffer is `in` at the root and `out` elsewhere.
 *
 * On a network a chain or tree of ranks would relieve the root's link. Through shared memory every byte is read where
 * it lies.
 */
#include "algo/algorithms.h"

static struct comm_program *broadcast(struct build *b, bool stream)
{
    if (!b)
        return NULL;
    int32_t size = b->spec.size, root = b->spec.root;
    uint8_t flags = stream ? STEP_CHUNKED : 0;
    b->program.chunk_unit = stream ? UNIT_BLOCK : 0;
    build_edge(b, 0, stream ? WIRE_TO_ALL : WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    if (stream)
        build_loop_chunks(b);
    if (b->spec.rank != root) {
        uint16_t from = build_peer(b, root);
        BUILD_STEP(b, .code = STEP_VIEW, .flags = flags | STEP_LAND, .edge = 0, .peer = from, .npeers = 1, .dst = ref_block(BUF_OUT, 0),
                   .src = ref_block(BUF_OUT, 0));
    } else if (size > 1) {
        uint16_t others = build_peers(b, root + 1, size - 1);
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = flags, .edge = 0, .peer = others, .npeers = (uint16_t)(size - 1),
                   .src = ref_block(BUF_IN, 0));
    }
    if (stream)
        build_loop_end(b);
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *broadcast_direct(const struct comm_env *env, const struct program_spec *spec)
{
    return broadcast(build_begin(env, "direct", spec), false);
}

struct comm_program *broadcast_pipeline(const struct comm_env *env, const struct program_spec *spec)
{
    return broadcast(build_begin(env, "pipeline", spec), true);
}
