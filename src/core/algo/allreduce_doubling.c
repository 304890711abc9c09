/*
 * allreduce/doubling: recursive doubling along T, in ceil(log2 p) exchanges for any p. At level l a rank holds the
 * result of its aligned block of 2^l ranks. It exposes that to the neighbouring block and combines the two results, the
 * lower block on the left. With no elements this is a barrier.
 *
 *   for each level:  EXPOSE mine -> served #l;  VIEW mine, theirs;  REDUCE t[l] = T(lower, upper)      the last: out, FINAL
 *
 * The topmost block may be short. Then each of its ranks serves several ranks of the lower block: lower rank i reads
 * the upper rank with number i modulo the upper block's length. A block without a neighbour waits for the next level. A
 * block of one rank exposes its input as it is; a longer one exposes a partial result in the accumulator type.
 *
 * In place, the last REDUCE waits until nobody reads this rank's input any more. Each level has its own scratch item,
 * so nothing else is overwritten.
 */
#include "algo/algorithms.h"

/* What a rank holds before a level: the result of ranks first .. first + count - 1. */
struct held {
    struct comm_ref ref;
    int32_t first, count;
};

/* Adds this rank's readers in the neighbouring block to the peer table; *source is the rank that this rank reads. */
static uint16_t add_served(struct build *b, const struct held *held, int32_t first, int32_t count, int32_t *source)
{
    int32_t number = b->spec.rank - held->first;
    uint16_t at = b->program.peers;
    if (first < held->first) { /* upper block: serves the lower ranks with this number modulo its own length */
        for (int32_t i = number; i < count; i += held->count)
            build_peer(b, first + i);
        *source = first + number;
    } else {
        if (number < count)
            build_peer(b, first + number);
        *source = first + number % count;
    }
    return at;
}

static void view_one(struct build *b, uint16_t edge, int32_t rank, uint32_t slot, struct comm_ref like)
{
    uint16_t peer = build_peer(b, rank);
    BUILD_STEP(b, .code = STEP_VIEW, .edge = edge, .peer = peer, .npeers = 1, .dst = ref_views(slot, 1), .src = like);
}

/* Views this rank's value and the neighbour's in rank order; in one step if both are of one kind. */
static void view_both(struct build *b, uint16_t edge, bool upper, int32_t source, uint32_t slot, struct comm_ref mine,
                      struct comm_ref theirs)
{
    if ((mine.unit ^ theirs.unit) & UNIT_PARTIAL) {
        view_one(b, edge, b->spec.rank, slot + upper, mine);
        view_one(b, edge, source, slot + !upper, theirs);
        return;
    }
    uint16_t peers = build_peer(b, upper ? source : b->spec.rank);
    build_peer(b, upper ? b->spec.rank : source);
    BUILD_STEP(b, .code = STEP_VIEW, .edge = edge, .peer = peers, .npeers = 2, .dst = ref_views(slot, 2), .src = mine);
}

/* One level with a neighbour. Returns how many exposures of the input there are so far. */
static int32_t level_steps(struct build *b, uint16_t level, struct held *held, int32_t first, int32_t count, int32_t inputs)
{
    int32_t source, size = b->spec.size;
    bool upper = first < held->first, last = held->count + count == size, input = held->count == 1;
    uint16_t at = add_served(b, held, first, count, &source), served = (uint16_t)(b->program.peers - at);
    uint32_t slot = level * 2u;
    struct comm_ref theirs = count == 1 ? ref_block(BUF_IN, 0) : ref_partial(ref_block(BUF_IN, 0));
    struct comm_ref to = ref_partial(ref_scratch(level, ref_block(BUF_IN, 0)));
    if (served) {
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = level, .peer = at, .npeers = served, .bump = input ? 1 : 0, .src = held->ref);
        inputs += input;
    }
    view_both(b, level, upper, source, slot, held->ref, theirs);
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = last ? STEP_FINAL : 0, .wait = last && inputs ? 1 : 0, .need = inputs,
               .dst = last ? ref_block(BUF_OUT, 0) : to, .src = ref_views(slot, 2));
    *held = (struct held){.ref = to, .first = upper ? first : held->first, .count = held->count + count};
    return inputs;
}

static void doubling_lane(struct build *b)
{
    int32_t size = b->spec.size, inputs = 0;
    struct held held = {.ref = ref_block(BUF_IN, 0), .first = b->spec.rank, .count = 1};
    uint16_t level = 0;
    for (int32_t width = 1; width < size; width *= 2, level++) {
        int32_t first = held.first ^ width, count = size - first < width ? size - first : width;
        build_edge(b, level, WIRE_ONCE | WIRE_TO_ALL);
        if (first < size)
            inputs = level_steps(b, level, &held, first, count, inputs);
    }
    if (size == 1) {
        view_one(b, 0, 0, 0, held.ref);
        BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_FINAL, .dst = ref_block(BUF_OUT, 0), .src = ref_views(0, 1));
    }
}

struct comm_program *allreduce_doubling(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "doubling", spec);
    if (!b)
        return NULL;
    for (int32_t width = 1; width < spec->size; width *= 2)
        b->program.scratch++;
    build_lane(b);
    doubling_lane(b);
    build_lane_end(b);
    return build_end(b);
}
