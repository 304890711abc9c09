/*
 * scan/blocks and exscan/blocks: along T, with the least total work, and no rank waits for a higher rank. Aligned
 * blocks of 2^l ranks meet in pairs. The last rank of the left block has that block's total and exposes it to every
 * rank of the right block. Each of these combines it, on the left, with what it has. A rank is the last of a left block
 * at one level only: it exposes one thing, its input or its total, and receives as many totals as its number has set
 * bits. scan/pipeline and exscan/pipeline: the same chunk by chunk.
 *
 *   for k: VIEW v_l <- the last rank of the left block #0, for each bit l of the rank
 *          last of its block, 2^l > 1:  REDUCE t = T(v_l-1, .. T(v_0, in)) TEE;  EXPOSE t -> the right block #0
 *          last of its block, 2^l = 1:  EXPOSE in -> the next rank #0
 *          REDUCE out = T(.., T(v_m, what there is)) for the bits m that are left, FINAL
 *
 * The totals come first, because other ranks wait for them. Counter 1 counts completed exposures: all earlier ones must
 * have completed before the scratch item of the total, or in place the input, is written again.
 *
 * A rank may expose to half of all ranks: through shared memory that is one place that they all read, over a network as
 * many sends.
 */
#include "algo/algorithms.h"

enum { ITEM_TOTAL = 0, ITEM_RUNNING = 1 };

struct plan {
    struct build *b;
    struct comm_ref in;
    uint16_t peer_self;
    uint8_t flags; /* STEP_CHUNKED, or 0 */
    bool shows;    /* there is a right block that reads from this rank */
    bool raw;      /* this rank exposes its input rather than a total */
};

/* The first of a level's two view slots: the left block's total, and then what this rank has. The latter is always a
 * view of own memory, so it is never released. */
static uint32_t left_of(uint32_t level)
{
    return 2 * level;
}

static void view_own(const struct plan *p, uint32_t slot, struct comm_ref what)
{
    BUILD_STEP(p->b, .code = STEP_VIEW, .flags = p->flags, .peer = p->peer_self, .npeers = 1, .dst = ref_views(slot, 1), .src = what);
}

static void view_left(const struct plan *p, uint32_t level)
{
    int32_t last = (p->b->spec.rank >> level << level) - 1; /* the level's bit of the rank is set: the block on the left ends here */

    BUILD_STEP(p->b, .code = STEP_VIEW, .flags = p->flags, .edge = 0, .peer = build_peer(p->b, last), .npeers = 1,
               .dst = ref_views(left_of(level), 1), .src = level ? ref_partial(p->in) : p->in);
}

static void release(const struct plan *p, uint32_t slot)
{
    BUILD_STEP(p->b, .code = STEP_RELEASE, .flags = p->flags, .src = ref_views(slot, 1));
}

/* A REDUCE into the exposed item waits for all earlier exposures. */
static struct comm_ref reduce_total(const struct plan *p, uint32_t slot, bool last)
{
    struct comm_ref to = ref_partial(ref_scratch(last ? ITEM_TOTAL : ITEM_RUNNING, p->in));

    BUILD_STEP(p->b, .code = STEP_REDUCE, .flags = (uint8_t)(p->flags | (last ? STEP_TEE : 0)), .wait = last ? 1 : 0, .need_inner = 1,
               .dst = to, .src = ref_views(slot, 2));
    return to;
}

/* If the input was exposed, a REDUCE into `out` waits for that exposure too. */
static struct comm_ref reduce_prefix(const struct plan *p, uint32_t slot, uint32_t count, bool last)
{
    struct comm_ref to = last ? ref_block(BUF_OUT, 0) : ref_partial(ref_scratch(ITEM_RUNNING, p->in));

    BUILD_STEP(p->b, .code = STEP_REDUCE, .flags = (uint8_t)(p->flags | (last ? STEP_FINAL : 0)), .wait = last && p->raw ? 1 : 0, .need = 1,
               .need_inner = 1, .dst = to, .src = ref_views(slot, count));
    return to;
}

/* Computes and exposes the total of the block of 2^levels ranks that ends with this rank. */
static struct comm_ref total(const struct plan *p, uint32_t levels, bool keep)
{
    struct build *b = p->b;
    int32_t next = b->spec.rank + 1, right = 1 << levels;
    struct comm_ref has = p->in;

    for (uint32_t level = 0; level < levels; level++) {
        view_own(p, left_of(level) + 1, has);
        has = reduce_total(p, left_of(level), level + 1 == levels);
        if (!keep)
            release(p, left_of(level));
    }
    right = right < b->spec.size - next ? right : b->spec.size - next;
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = (uint8_t)(p->flags | (levels ? STEP_TEE : 0)), .edge = 0,
               .peer = build_peers(b, next, right), .npeers = (uint16_t)right, .bump = 1, .src = has);
    return has;
}

/* Computes T over the left blocks of these levels and what this rank has (`empty`: nothing) into `out`. */
static void prefix(const struct plan *p, uint32_t levels, struct comm_ref has, bool empty)
{
    for (; levels; levels &= levels - 1) {
        uint32_t level = (uint32_t)__builtin_ctz(levels), slot = left_of(level);
        bool last = !(levels & (levels - 1));
        if (!empty)
            view_own(p, slot + 1, has);
        has = empty && !last ? ref_views(slot, 1) : reduce_prefix(p, slot, empty ? 1 : 2, last);
        empty = false;
    }
}

/* All steps, for the whole buffer or for one chunk of a stream. A scan begins with this rank's own input; if there is
 * nothing else, that is the result. */
static void steps(const struct plan *p, bool inclusive)
{
    struct build *b = p->b;
    uint32_t levels = (uint32_t)b->spec.rank, trailing = (uint32_t)__builtin_ctz(~levels);
    struct comm_ref has = p->in;

    for (uint32_t rest = levels; rest; rest &= rest - 1)
        view_left(p, (uint32_t)__builtin_ctz(rest));
    if (p->shows) {
        struct comm_ref whole = total(p, trailing, !inclusive);
        if (inclusive) {
            has = whole;
            levels = levels >> trailing << trailing;
        }
    }
    if (inclusive && !levels) {
        view_own(p, left_of(0) + 1, has);
        reduce_prefix(p, left_of(0) + 1, 1, true);
    }
    prefix(p, levels, has, !inclusive);
    for (; levels; levels &= levels - 1)
        release(p, left_of((uint32_t)__builtin_ctz(levels)));
}

static struct comm_program *blocks(struct build *b, bool inclusive, bool stream)
{
    if (!b)
        return NULL;
    struct plan plan = {.b = b, .in = ref_block(BUF_IN, 0), .shows = b->spec.rank + 1 < b->spec.size};

    plan.raw = plan.shows && !(b->spec.rank & 1);
    plan.peer_self = build_peer(b, b->spec.rank);
    plan.flags = stream ? STEP_CHUNKED : 0;
    b->program.chunk_unit = stream ? UNIT_BLOCK : 0;
    b->program.wide = stream && b->spec.size > 2;
    b->program.scratch = 2;
    build_edge(b, 0, stream ? WIRE_TO_ALL : WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    if (stream)
        build_loop_chunks(b);
    steps(&plan, inclusive);
    if (stream)
        build_loop_end(b);
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *scan_blocks(const struct comm_env *env, const struct program_spec *spec)
{
    return blocks(build_begin(env, "blocks", spec), true, false);
}

struct comm_program *scan_pipeline(const struct comm_env *env, const struct program_spec *spec)
{
    return blocks(build_begin(env, "pipeline", spec), true, true);
}

struct comm_program *exscan_blocks(const struct comm_env *env, const struct program_spec *spec)
{
    return blocks(build_begin(env, "blocks", spec), false, false);
}

struct comm_program *exscan_pipeline(const struct comm_env *env, const struct program_spec *spec)
{
    return blocks(build_begin(env, "pipeline", spec), false, true);
}
