/*
 * allgather/swap and alltoall/swap: two ranks that exchange blocks, so data goes both ways through the same memory. Rank r exposes slice r
 * of the block that it gives; the other rank copies it out and answers with the same slice of its own block, which may be stored in place
 * of what it has read. So each line goes to the other CPU once and comes back once, with both directions' data. For large sizes.
 *
 *   lane 0  for k: VIEW <- q #1 LAND out[q][slice r].k
 *   lane 1  for k: EXPOSE in[slice r].k -> q #0, keep out[r][slice r].k
 *   lane 2  for k: VIEW v <- q #0; COPY out[q][slice q].k = v (ANSWER); EXPOSE in[slice q].k -> q #1, keep out[r][slice q].k; RELEASE v
 *
 * An alltoall keeps another block than it gives, which it copies by itself after each EXPOSE. Lane 0 is the first one, because the answers
 * that it takes make room for what lane 1 exposes. Blocks may differ in length: all have as many chunks as the longest one.
 *
 * alltoall_v/swap: only the two ranks know the lengths, so the program has all ways in it. What both blocks have is swapped if it is long
 * (program.swaps): the same lanes, over the edges behind #0. What the longer one has behind that, or a block that is not swapped, is a
 * stream on #3. A brief block goes at once on #0, which also announces the length of any other one, as in throttled.c.
 *
 *   lane 3  EXPOSE in[q], brief -> q #0; for k: EXPOSE in[q].k -> q #3
 *   lane 4  VIEW <- q #0 LAND out[q], brief; for k: VIEW <- q #3 LAND out[q].k
 *   lane 5  COPY out[r] = in[r]
 */
#include "algo/algorithms.h"

enum { SLICES = 2 };

/* The other rank, and the edges. */
struct swap {
    uint16_t other, questions, answers, rest;
};

static struct comm_ref slice_of(uint8_t buf, int32_t block, int32_t slice)
{
    return ref_slice(buf, block * SLICES + slice);
}

static void begin_lane(struct build *b, struct comm_ref slice)
{
    build_lane(b);
    if (b->program.ragged)
        build_loop_over(b, slice);
    else
        build_loop_chunks(b);
}

/* An allgather keeps the bytes that it gives. */
static void expose(struct build *b, uint16_t edge, uint8_t flags, uint16_t other, struct comm_ref given, struct comm_ref kept)
{
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | flags, .edge = edge, .peer = other, .npeers = 1, .src = given,
               .dst = b->program.own_in ? kept : (struct comm_ref){0});
}

static void keep(struct build *b, struct comm_ref kept)
{
    struct comm_ref from = kept;

    from.buf = BUF_IN;
    if (!b->program.own_in && !b->program.ragged)
        BUILD_STEP(b, .code = STEP_COPY, .flags = STEP_CHUNKED, .dst = kept, .src = from);
}

static void take_lane(struct build *b, const struct swap *swap, struct comm_ref taken)
{
    begin_lane(b, taken);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = swap->answers, .peer = swap->other, .npeers = 1,
               .dst = taken, .src = taken);
    build_chunks_lane_end(b);
}

static void question_lane(struct build *b, const struct swap *swap, struct comm_ref given, struct comm_ref kept)
{
    begin_lane(b, given);
    expose(b, swap->questions, 0, swap->other, given, kept);
    keep(b, kept);
    build_chunks_lane_end(b);
}

static void answer_lane(struct build *b, const struct swap *swap, struct comm_ref taken, struct comm_ref given, struct comm_ref kept)
{
    begin_lane(b, taken);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .edge = swap->questions, .peer = swap->other, .npeers = 1,
               .dst = ref_views(0, 1), .src = taken);
    BUILD_STEP(b, .code = STEP_COPY, .flags = STEP_CHUNKED | STEP_ANSWER, .dst = taken, .src = ref_views(0, 1));
    expose(b, swap->answers, STEP_TEE, swap->other, given, kept);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(0, 1));
    keep(b, kept);
    build_chunks_lane_end(b);
}

/* given: the block of IN that the other rank gets. */
static struct swap swap_lanes(struct build *b, int32_t given, uint16_t first_edge)
{
    int32_t rank = b->spec.rank, peer = 1 - rank;
    struct swap swap = {build_peers(b, peer, 1), first_edge, first_edge + 1, first_edge + 2};

    b->program.slices = SLICES;
    b->program.each_block = 1;
    b->program.chunk_unit = UNIT_SLICE;
    build_edge(b, swap.questions, 0);
    build_edge(b, swap.answers, 0);
    take_lane(b, &swap, slice_of(BUF_OUT, peer, rank));
    question_lane(b, &swap, slice_of(BUF_IN, given, rank), slice_of(BUF_OUT, rank, rank));
    answer_lane(b, &swap, slice_of(BUF_OUT, peer, peer), slice_of(BUF_IN, given, peer), slice_of(BUF_OUT, rank, peer));
    return swap;
}

struct comm_program *allgather_swap(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "swap", spec);
    if (!b)
        return NULL;
    b->program.own_in = true;
    swap_lanes(b, spec->rank, 0);
    return build_end(b);
}

struct comm_program *alltoall_swap(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "swap", spec);
    if (!b)
        return NULL;
    swap_lanes(b, 1 - spec->rank, 0);
    return build_end(b);
}

/* What is not swapped, in one direction: at once, or in chunks. */
static void rest_lane(struct build *b, const struct swap *swap, struct comm_ref block)
{
    struct comm_ref brief = block;
    bool gives = block.buf == BUF_IN;

    brief.unit = UNIT_BRIEF;
    build_lane(b);
    BUILD_STEP(b, .code = gives ? STEP_EXPOSE : STEP_VIEW, .flags = gives ? 0 : STEP_LAND, .edge = 0, .peer = swap->other, .npeers = 1,
               .dst = gives ? (struct comm_ref){0} : brief, .src = brief);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = gives ? STEP_EXPOSE : STEP_VIEW, .flags = STEP_CHUNKED | (gives ? 0 : STEP_LAND), .edge = swap->rest,
               .peer = swap->other, .npeers = 1, .dst = gives ? (struct comm_ref){0} : block, .src = block);
    build_chunks_lane_end(b);
}

struct comm_program *alltoall_v_swap(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "swap", spec);
    if (!b)
        return NULL;
    int32_t peer = 1 - spec->rank;
    b->program.ragged = 1;
    b->program.brief = throttled_brief_bytes(spec->collective, spec->size);
    b->program.swaps = b->program.brief;
    struct swap swap = swap_lanes(b, peer, 1);
    build_edge(b, 0, throttled_brief_kind(spec->collective, spec->size));
    build_edge(b, swap.rest, 0);
    rest_lane(b, &swap, ref_block(BUF_IN, peer));
    rest_lane(b, &swap, ref_block(BUF_OUT, peer));
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, spec->rank), .src = ref_block(BUF_IN, spec->rank));
    build_lane_end(b);
    return build_end(b);
}
