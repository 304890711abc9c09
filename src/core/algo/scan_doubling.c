/*
 * scan/doubling and exscan/doubling: along T, in ceil(log2 p) exchanges for any p. At level l a rank knows two results:
 * that of its aligned block of 2^l ranks (its total), and that of the block's ranks before it, with or without itself
 * (its prefix). The upper half of a block combines the lower half's total, on the left, with both of its own. So every
 * prefix consists of whole subtrees.
 *
 *   for each level, lower:  EXPOSE total -> partner #l;  VIEW theirs;  REDUCE total = T(total, theirs)
 *                   upper:  VIEW theirs;  EXPOSE total -> partner #l;  REDUCE total = T(theirs, total);  REDUCE prefix = T(theirs, prefix)
 *
 * Totals are computed only if a rank behind the block needs them. Each level has its own scratch items. In place, the
 * last REDUCE waits until nobody reads this rank's input any more; the input is exposed only at level 0.
 */
#include "algo/algorithms.h"

#include <stddef.h>

/* What a rank knows at a level: total and prefix, each in the input or in scratch. `empty`: there is no prefix yet. */
struct known {
    struct comm_ref total, prefix;
    bool empty;
    bool exposed; /* the input was exposed */
};

enum { SLOT_LEFT = 0, SLOT_RIGHT = 1 };

static void view_own(struct build *b, uint32_t slot, struct comm_ref ref)
{
    BUILD_STEP(b, .code = STEP_VIEW, .edge = 0, .peer = build_peer(b, b->spec.rank), .npeers = 1, .dst = ref_views(slot, 1), .src = ref);
}

static void view_theirs(struct build *b, uint16_t level, int32_t rank, uint32_t slot)
{
    struct comm_ref like = level ? ref_partial(ref_block(BUF_IN, 0)) : ref_block(BUF_IN, 0);

    BUILD_STEP(b, .code = STEP_VIEW, .edge = level, .peer = build_peer(b, rank), .npeers = 1, .dst = ref_views(slot, 1), .src = like);
}

static void expose_total(struct build *b, uint16_t level, int32_t rank, struct known *known)
{
    BUILD_STEP(b, .code = STEP_EXPOSE, .edge = level, .peer = build_peer(b, rank), .npeers = 1, .bump = level ? 0 : 1, .src = known->total);
    known->exposed |= level == 0;
}

/* REDUCEs the views into a scratch item or, if it is the last that this rank's result needs, into `out`. */
static struct comm_ref reduce(struct build *b, uint32_t item, uint32_t first, uint32_t count, bool last, bool exposed)
{
    struct comm_ref to = last ? ref_block(BUF_OUT, 0) : ref_partial(ref_scratch(item, ref_block(BUF_IN, 0)));

    BUILD_STEP(b, .code = STEP_REDUCE, .flags = last ? STEP_FINAL : 0, .wait = last && exposed ? 1 : 0, .need = 1, .dst = to,
               .src = ref_views(first, count));
    return to;
}

static void release(struct build *b, uint32_t first, uint32_t count)
{
    BUILD_STEP(b, .code = STEP_RELEASE, .src = ref_views(first, count));
}

static void lower_level(struct build *b, uint16_t level, struct known *known, bool needed)
{
    int32_t partner = b->spec.rank + (1 << level);

    if (partner >= b->spec.size)
        return;
    expose_total(b, level, partner, known);
    if (!needed)
        return;
    view_own(b, SLOT_LEFT, known->total);
    view_theirs(b, level, partner, SLOT_RIGHT);
    known->total = reduce(b, 2u * level, SLOT_LEFT, 2, false, false);
    release(b, SLOT_LEFT, 2);
}

/* `last`: the prefix is complete after this level. The total is computed first, because in place the complete prefix
 * overwrites its inputs. */
static void upper_level(struct build *b, uint16_t level, struct known *known, bool needed, bool last)
{
    int32_t partner = b->spec.rank - (1 << level);
    struct comm_ref prefix = known->prefix;

    if (needed)
        expose_total(b, level, partner, known);
    view_theirs(b, level, partner, SLOT_LEFT);
    if (needed) {
        view_own(b, SLOT_RIGHT, known->total);
        known->total = reduce(b, 2u * level, SLOT_LEFT, 2, false, false);
    }
    if (!known->empty)
        view_own(b, SLOT_RIGHT, prefix);
    known->prefix = reduce(b, 2u * level + 1, SLOT_LEFT, known->empty ? 1 : 2, last, known->exposed);
    release(b, SLOT_LEFT, needed || !known->empty ? 2 : 1);
    known->empty = false;
}

static void scan_lane(struct build *b, bool inclusive)
{
    int32_t size = b->spec.size, rank = b->spec.rank;
    struct comm_ref in = ref_block(BUF_IN, 0);
    struct known known = {.total = in, .prefix = in, .empty = !inclusive};
    uint16_t level = 0;

    for (int32_t width = 1; width < size; width *= 2, level++) {
        int32_t end = (rank & ~(2 * width - 1)) + 2 * width; /* end of the block of both halves */
        build_edge(b, level, WIRE_ONCE | WIRE_TO_ALL);
        if (rank & width)
            upper_level(b, level, &known, end < size, rank < 2 * width);
        else
            lower_level(b, level, &known, end < size);
    }
    if (rank == 0 && inclusive) {
        view_own(b, SLOT_LEFT, in);
        reduce(b, 0, SLOT_LEFT, 1, true, known.exposed);
    }
}

static struct comm_program *doubling(struct build *b, bool inclusive)
{
    if (!b)
        return NULL;
    for (int32_t width = 1; width < b->spec.size; width *= 2)
        b->program.scratch = (uint16_t)(b->program.scratch + 2);
    build_lane(b);
    scan_lane(b, inclusive);
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *scan_doubling(const struct comm_env *env, const struct program_spec *spec)
{
    return doubling(build_begin(env, "doubling", spec), true);
}

struct comm_program *exscan_doubling(const struct comm_env *env, const struct program_spec *spec)
{
    return doubling(build_begin(env, "doubling", spec), false);
}
