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
 */
#include "algo/algorithms.h"

enum { SLICES = 2, QUESTIONS = 0, ANSWERS = 1 /* edges */ };

static struct comm_ref slice_of(uint8_t buf, int32_t block, int32_t slice)
{
    return ref_slice(buf, block * SLICES + slice);
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
    if (!b->program.own_in)
        BUILD_STEP(b, .code = STEP_COPY, .flags = STEP_CHUNKED, .dst = kept, .src = from);
}

static void question_lane(struct build *b, uint16_t other, struct comm_ref given, struct comm_ref kept)
{
    build_chunks_lane(b);
    expose(b, QUESTIONS, 0, other, given, kept);
    keep(b, kept);
    build_chunks_lane_end(b);
}

static void answer_lane(struct build *b, uint16_t other, struct comm_ref taken, struct comm_ref given, struct comm_ref kept)
{
    build_chunks_lane(b);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .edge = QUESTIONS, .peer = other, .npeers = 1, .dst = ref_views(0, 1),
               .src = taken);
    BUILD_STEP(b, .code = STEP_COPY, .flags = STEP_CHUNKED | STEP_ANSWER, .dst = taken, .src = ref_views(0, 1));
    expose(b, ANSWERS, STEP_TEE, other, given, kept);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(0, 1));
    keep(b, kept);
    build_chunks_lane_end(b);
}

/* given: the block of IN that the other rank gets. */
static struct comm_program *swap(struct build *b, int32_t given, bool own_in)
{
    if (!b)
        return NULL;
    int32_t rank = b->spec.rank, peer = 1 - rank;
    b->program.slices = SLICES;
    b->program.each_block = 1;
    b->program.own_in = own_in;
    b->program.chunk_unit = UNIT_SLICE;
    build_edge(b, QUESTIONS, 0);
    build_edge(b, ANSWERS, 0);
    uint16_t other = build_peers(b, peer, 1);

    land_lane(b, ANSWERS, slice_of(BUF_OUT, peer, rank), other);
    question_lane(b, other, slice_of(BUF_IN, given, rank), slice_of(BUF_OUT, rank, rank));
    answer_lane(b, other, slice_of(BUF_OUT, peer, peer), slice_of(BUF_IN, given, peer), slice_of(BUF_OUT, rank, peer));
    return build_end(b);
}

struct comm_program *allgather_swap(const struct comm_env *env, const struct program_spec *spec)
{
    return swap(build_begin(env, "swap", spec), spec->rank, true);
}

struct comm_program *alltoall_swap(const struct comm_env *env, const struct program_spec *spec)
{
    return swap(build_begin(env, "swap", spec), 1 - spec->rank, false);
}
