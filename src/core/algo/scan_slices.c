/*
 * scan/slices and exscan/slices: rank r computes slice r of every rank's result, chunk by chunk, and sends each rank
 * its own. For large sizes: each input is read once and each result written once, for any p. The result of exscan at
 * rank j + 1 is that of scan at rank j.
 *
 *   lane 0  for k, for d: EXPOSE in[slice r+d].k -> r+d #0
 *   lane 1  for k: VIEW v <- all #0 (own = in[slice r].k); REDUCE .. t[j] = T(v[0..j]) for each j; RELEASE v; EXPOSE t[j] -> its rank #1
 *   lane 2  for k: VIEW <- r+1, r+2, .. #1 LAND out[slice r+1].k, ..
 *
 * The prefixes are computed along T in pairs: first block totals, level by level; then for each j the totals of the
 * blocks that make up j + 1 ranks, from the right. A finished chunk stays in its scratch item until the wire has its
 * bytes; counter 1 counts completed exposures.
 *
 * In place: what others read of slice r was released before any result was exposed, and this rank's own result is
 * written last.
 */
#include "algo/algorithms.h"

enum { SCAN_PAIR = ALGO_SCAN_RANKS }; /* two view slots behind those of the inputs */

struct plan {
    int32_t size, receivers; /* number of results that belong to a rank: all for scan, all except the last for exscan */
    int32_t shift;           /* result j belongs to rank j + shift */
    struct comm_ref like;    /* this rank's slice */
    uint16_t all;            /* index in the peer table of ranks 0 .. size - 1 */
    uint16_t peer_self;
    bool waited; /* a REDUCE of this chunk already waits for the exposures of the chunk before */
};

/* Scratch items: at most size - 1 totals, a running prefix, and one item per result. total_item is the total of the
 * block of 2^level ranks that starts at `first`. Level 1 has size / 2 of them, and so on. */
static uint32_t total_item(const struct plan *p, int32_t level, int32_t first)
{
    uint32_t item = 0;
    for (int32_t l = 1; l < level; l++)
        item += (uint32_t)(p->size >> l);
    return item + (uint32_t)(first >> level);
}

static uint32_t running_item(const struct plan *p)
{
    return total_item(p, 31, 0);
}

static void reduce(struct build *b, struct plan *p, struct comm_ref dst, struct comm_ref src, bool final)
{
    int32_t each = p->receivers - (b->spec.rank >= p->shift && b->spec.rank - p->shift < p->receivers);
    bool wait = !p->waited && each > 0;

    BUILD_STEP(b, .code = STEP_REDUCE, .flags = (uint8_t)(STEP_CHUNKED | (final ? STEP_FINAL : 0)), .wait = wait ? 1 : 0,
               .need_inner = each, .dst = dst, .src = src);
    p->waited = true;
}

static void view_item(struct build *b, const struct plan *p, uint32_t slot, uint32_t item)
{
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .peer = p->peer_self, .npeers = 1, .dst = ref_views(slot, 1),
               .src = ref_partial(ref_scratch(item, p->like)));
}

/* Makes a second view of an input. */
static void view_input(struct build *b, const struct plan *p, uint32_t slot, int32_t rank)
{
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .peer = p->peer_self, .npeers = 1, .dst = ref_views(slot, 1),
               .src = ref_views((uint32_t)rank, 1));
}

static void view_total(struct build *b, const struct plan *p, uint32_t slot, int32_t level, int32_t first)
{
    if (level == 0)
        view_input(b, p, slot, first);
    else
        view_item(b, p, slot, total_item(p, level, first));
}

static void totals(struct build *b, struct plan *p)
{
    for (int32_t level = 1; 1 << level <= p->size; level++) {
        for (int32_t first = 0; first + (1 << level) <= p->size; first += 1 << level) {
            view_total(b, p, SCAN_PAIR, level - 1, first);
            view_total(b, p, SCAN_PAIR + 1, level - 1, first + (1 << (level - 1)));
            reduce(b, p, ref_partial(ref_scratch(total_item(p, level, first), p->like)), ref_views(SCAN_PAIR, 2), false);
        }
    }
}

/* Computes T over ranks 0 .. j into dst: combines the blocks that make up j + 1 ranks from the right, each on the left
 * of the result so far. */
static void prefix(struct build *b, struct plan *p, int32_t j, struct comm_ref dst)
{
    uint32_t rest = (uint32_t)j + 1, running = running_item(p);
    int32_t level = __builtin_ctz(rest), first = (int32_t)(rest & (rest - 1));

    view_total(b, p, SCAN_PAIR + 1, level, first);
    rest &= rest - 1;
    if (!rest) {
        reduce(b, p, dst, ref_views(SCAN_PAIR + 1, 1), true);
        return;
    }
    for (; rest; rest &= rest - 1) {
        bool last = !(rest & (rest - 1));
        view_total(b, p, SCAN_PAIR, __builtin_ctz(rest), (int32_t)(rest & (rest - 1)));
        reduce(b, p, last ? dst : ref_partial(ref_scratch(running, p->like)), ref_views(SCAN_PAIR, 2), last);
        if (!last)
            view_item(b, p, SCAN_PAIR + 1, running);
    }
}

static void work_lane(struct build *b, struct plan *p)
{
    int32_t rank = b->spec.rank, own = rank - p->shift;
    uint32_t results = running_item(p) + 1;

    build_lane(b);
    build_loop_chunks(b);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .edge = 0, .peer = p->all, .npeers = (uint16_t)p->size,
               .dst = ref_views(0, (uint32_t)p->size), .src = p->like);
    totals(b, p);
    for (int32_t j = 0; j < p->receivers; j++)
        if (j != own)
            prefix(b, p, j, ref_scratch(results + (uint32_t)j, p->like));
    if (own >= 0 && own < p->receivers)
        prefix(b, p, own, ref_slice(BUF_OUT, rank));
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(0, (uint32_t)p->size));
    for (int32_t d = 1; d < p->size; d++) {
        int32_t to = (rank + d) % p->size, j = to - p->shift;
        if (j >= 0)
            BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = 1, .peer = (uint16_t)(p->all + to), .npeers = 1, .bump = 1,
                       .src = ref_scratch(results + (uint32_t)j, p->like));
    }
    build_loop_end(b);
    build_lane_end(b);
}

static struct comm_program *slices(struct build *b, int32_t shift)
{
    if (!b)
        return NULL;
    int32_t size = b->spec.size, rank = b->spec.rank, next = (rank + 1) % size;
    struct plan plan = {.size = size, .receivers = size - shift, .shift = shift, .like = ref_slice(BUF_IN, rank)};

    b->program.slices = (uint16_t)size;
    b->program.chunk_unit = UNIT_SLICE;
    b->program.scratch = (uint16_t)(running_item(&plan) + 1 + (uint32_t)plan.receivers);
    build_edge(b, 0, 0);
    build_edge(b, 1, 0);
    plan.all = build_peers(b, 0, size);
    plan.peer_self = (uint16_t)(plan.all + rank);
    uint16_t others = build_peers(b, next, size - 1);
    scatter_lane(b, ref_slice(BUF_IN, next), others);
    work_lane(b, &plan);
    if (rank >= shift)
        land_lane(b, 1, ref_slice(BUF_OUT, next), others);
    return build_end(b);
}

struct comm_program *scan_slices(const struct comm_env *env, const struct program_spec *spec)
{
    return slices(build_begin(env, "slices", spec), 0);
}

struct comm_program *exscan_slices(const struct comm_env *env, const struct program_spec *spec)
{
    return slices(build_begin(env, "slices", spec), 1);
}
