/*
 * The interpreter. The next step of a lane issues when its counter allows, the views that it reads are present and the
 * wire has room. A lane runs until it is blocked. A bump makes the other lanes run again in the same pass.
 *
 * The lower half of a cookie says what completes: two bits of kind, the step (for its bump), and the view slot.
 *
 * Nothing here knows which wire it uses, allocates, or blocks.
 */
#include "program/run_expose.h"

#include "base/check.h"
#include "base/env.h"
#include "program/store_policy.h"

#include <string.h>

enum { RUN_STEP_BYTES = 1 << 16 };

/* ------------------------------------------------------------------------------------------------------------ steps */
/* Makes a second name for a present view; the bytes' owner stays the same. */
static enum verdict step_alias(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    uint32_t from = slot_of(run, &s->src, lane), to = slot_of(run, &s->dst, lane);
    uint64_t bit = UINT64_C(1) << to;
    if (!views_present(run, from, 1))
        return VERDICT_STAND;
    run->view[to].at = run->view[from].at;
    run->view[to].bytes = run->view[from].bytes;
    run->view_own |= bit;
    run->view_partial = run->view_partial >> from & 1 ? run->view_partial | bit : run->view_partial & ~bit;
    view_is_here(run, s, to);
    return VERDICT_NEXT;
}

/* A view of this rank's own memory, without the wire. */
static inline void view_own(struct run *run, const struct comm_step *s, uint32_t slot, const struct run_range *place)
{
    run->view[slot].at = place->at;
    run->view[slot].bytes = place->bytes;
    run->view_own |= UINT64_C(1) << slot;
    view_is_here(run, s, slot);
}

/* Requests one peer's view from the wire. NEXT: it is here, or will be. */
static inline enum verdict view_peer(struct run *run, const struct comm_step *s, struct wire_look *look, uint16_t peer, uint32_t slot)
{
    look->peer = peer;
    look->view = &run->view[slot];
    look->view->exclusive = false;
    look->cookie = cookie_of(run, RUN_COOKIE_VIEW, s, slot);
    switch (run->channel->class->view(run->channel, look)) {
    case WIRE_DONE:
        view_is_here(run, s, slot);
        break;
    case WIRE_PENDING:
        break;
    case WIRE_MISMATCH:
        run->mismatch_peer = peer;
        return VERDICT_MISMATCH;
    default:
        return VERDICT_STAND;
    }
    run->bytes_in += look->bytes;
    return VERDICT_NEXT;
}

static enum verdict step_view(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    const uint16_t *peer = peers_of(run, s, lane);
    if (BASE_UNLIKELY(s->src.buf == BUF_VIEW))
        return step_alias(run, lane, s);
    struct run_range place = place_of(run, s, &s->src, lane, 0);
    uint32_t first = slot_of(run, &s->dst, lane);
    uint64_t mask = ones(s->npeers) << first;
    struct wire_look look = {
        .key = key_of(run, s, lane),
        .fingerprint = fingerprint_of(run, &place),
        .edge = run->program->edge[s->edge],
        .rounds = rounds_left(run, s, lane),
        .bytes = place.bytes,
    };
    if (!lane->asked) {
        run->view_own &= ~mask;
        run->view_partial = s->src.unit & UNIT_PARTIAL ? run->view_partial | mask : run->view_partial & ~mask;
    }
    for (uint32_t j = lane->asked; j < s->npeers; j++) {
        if (peer[j] == run->rank) {
            view_own(run, s, first + j, &place);
            continue;
        }
        enum verdict verdict = view_peer(run, s, &look, peer[j], first + j);
        if (BASE_LIKELY(verdict == VERDICT_NEXT))
            continue;
        if (verdict == VERDICT_STAND) { /* the wire has no more room */
            lane->asked = (uint16_t)j;
            run->again = true;
        }
        return verdict;
    }
    lane->asked = 0;
    return VERDICT_NEXT;
}

static enum verdict step_land(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    const uint16_t *peer = peers_of(run, s, lane);
    struct wire_look look = {
        .key = key_of(run, s, lane),
        .edge = run->program->edge[s->edge],
        .rounds = rounds_left(run, s, lane),
        .flags = run->nontemporal && s->dst.buf == BUF_OUT ? WIRE_NONTEMPORAL : 0,
        .cookie = cookie_of(run, RUN_COOKIE_LAND, s, 0),
    };
    for (uint32_t j = lane->asked; j < s->npeers; j++) {
        struct run_range place = place_of(run, s, &s->dst, lane, j);
        look.peer = peer[j];
        look.land = place.at ? place.at : (void *)run; /* nothing is landed there: without a place the wire gives a view */
        look.bytes = place.bytes;
        look.fingerprint = fingerprint_of(run, &place);
        switch (run->channel->class->view(run->channel, &look)) {
        case WIRE_DONE:
            bump(run, s);
            break;
        case WIRE_PENDING:
            run->pending++;
            break;
        case WIRE_MISMATCH:
            run->mismatch_peer = peer[j];
            return VERDICT_MISMATCH;
        default:
            lane->asked = (uint16_t)j;
            run->again = true;
            return VERDICT_STAND;
        }
        run->bytes_in += look.bytes;
    }
    lane->asked = 0;
    return VERDICT_NEXT;
}

static enum verdict step_release(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    uint32_t slot = slot_of(run, &s->src, lane);
    if (!views_present(run, slot, s->src.count))
        return VERDICT_STAND;
    for (uint32_t j = slot; j < slot + s->src.count; j++) {
        if (!(run->view_own >> j & 1))
            run->channel->class->release(run->channel, run->seq, &run->view[j]);
    }
    run->present &= ~(ones(s->src.count) << slot);
    bump(run, s);
    return VERDICT_NEXT;
}

/* A COPY of a view which the next EXPOSE answers: the view's bytes, and those that answer it, are moved together. Their lengths differ if
 * the two ranks' blocks do. */
static enum verdict step_swap(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    const struct comm_step *answer = s + 1;
    struct run_range taken = place_of(run, s, &s->dst, lane, 0), given = place_of(run, answer, &answer->src, lane, 0);
    struct wire_view *view = &run->view[slot_of(run, &s->src, lane)];
    void *pad = NULL;

    if (!reserve_pad(run, lane, answer, &given, view, &pad))
        return VERDICT_STAND;
    bool away = lane->built & WIRE_DEPOSIT;
    struct data_swap take = {.taken = taken.at, .view = view->at, .bytes = taken.bytes, .nontemporal = run->nontemporal};
    struct data_swap give = {.place = away ? NULL : pad,
                             .kept = kept_at(run, lane, answer, &given),
                             .given = given.at,
                             .bytes = given.bytes,
                             .nontemporal = run->nontemporal};
    if (taken.bytes == given.bytes) {
        give.taken = take.taken;
        give.view = take.view;
    } else {
        data_swap(&take);
    }
    data_swap(&give);
    if (away)
        data_copy(pad, given.at, given.bytes, true);
    bump(run, s);
    return VERDICT_NEXT;
}

static enum verdict step_copy(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    bool viewed = s->src.buf == BUF_VIEW;
    uint32_t slot = viewed ? slot_of(run, &s->src, lane) : 0, count = viewed ? s->src.count : 1;
    if (viewed && !views_present(run, slot, count))
        return VERDICT_STAND;
    if (BASE_UNLIKELY(s->flags & STEP_ANSWER))
        return step_swap(run, lane, s);
    for (uint32_t j = 0; j < count; j++) {
        struct run_range to = place_of(run, s, &s->dst, lane, j);
        const char *from = viewed ? view_at(run, &s->src, slot + j) : place_of(run, s, &s->src, lane, 0).at;
        if (from != to.at && to.bytes)
            data_copy(to.at, from, to.bytes, run->nontemporal && s->dst.buf == BUF_OUT);
    }
    bump(run, s);
    return VERDICT_NEXT;
}

/* Whether results in a peer's memory are stored past the cache. */
static bool goes_past(struct run *run)
{
    if (!run->store_policy || run->slice * run->raw > WAYS_SLICE_BYTES)
        return true;
    if (run->way == RUN_WAY_UNDECIDED)
        run->way = (uint8_t)store_policy_choose(run->store_policy, &run->timed);
    return run->way == RUN_WAY_PAST;
}

static void reduce_timed(struct run *run, const struct data_reduce *reduce, size_t bytes)
{
    const struct comm_env *env = run->store_policy->env;
    int64_t since = env->now(env);

    run->reduce(reduce);
    store_policy_tell(run->store_policy, (enum store_way)run->way, env->now(env) - since, bytes);
    run->timed = false;
}

/* One pass of the kernel over all views of the step, into `to`, and also into `also` if that is not NULL. */
static inline void reduce_views(struct run *run, const struct run_lane *lane, const struct comm_step *s, const struct run_range *to,
                                void *also)
{
    uint32_t slot = slot_of(run, &s->src, lane), ways = s->src.count;
    const void *from[PROGRAM_VIEWS_MAX];
    /* Store into a peer's memory past the cache; an ordinary store would first have to fetch the lines from the peer. */
    bool away = (lane->built & WIRE_DEPOSIT) && goes_past(run);

    for (uint32_t j = 0; j < ways; j++)
        from[j] = view_at(run, &s->src, slot + j);
    struct data_reduce reduce = {
        .from = from,
        .partial = run->view_partial >> slot & ones(ways),
        .ways = ways,
        .divisor = (uint32_t)run->size,
        .context = run->context,
        .to = away ? also : to->at,
        .also = away ? to->at : also,
        .elements = to->elements,
        .final = s->flags & STEP_FINAL,
        /* Do not write past the cache what peers will read in place. */
        .nontemporal = away || (run->nontemporal && s->dst.buf == BUF_OUT && (also || !(s->flags & STEP_TEE))),
    };
    if (BASE_UNLIKELY(run->timed) && (lane->built & WIRE_DEPOSIT))
        reduce_timed(run, &reduce, to->bytes);
    else
        run->reduce(&reduce);
}

/* For the EXPOSE that this REDUCE feeds. */
static bool reserve_for(struct run *run, struct run_lane *lane, const struct comm_step *s, const struct run_range *to, void **pad)
{
    struct wire_view *answers = s->flags & STEP_ANSWER ? other_view(run, lane, s) : NULL;

    return reserve_pad(run, lane, &run->program->step[s->aside], to, answers, pad);
}

static enum verdict step_reduce(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    if (!views_present(run, slot_of(run, &s->src, lane), s->src.count))
        return VERDICT_STAND;
    /* A rank whose results are stored directly in its memory only reads its peer's data. So the lanes take turns;
     * otherwise that rank would wait until this one has finished all of them. A peer that must copy the data is busy
     * meanwhile, and still finds it in the cache. */
    if (BASE_UNLIKELY(lane->turn == run->turn)) {
        run->gave_way = true;
        return VERDICT_STAND;
    }
    struct run_range to = place_of(run, s, &s->dst, lane, 0);
    void *also = NULL;
    if (s->flags & STEP_TEE && !reserve_for(run, lane, s, &to, &also))
        return VERDICT_STAND;
    if (to.elements)
        reduce_views(run, lane, s, &to, also);
    if (BASE_UNLIKELY(lane->built & WIRE_DEPOSIT)) {
        lane->turn = run->turn;
        run->deposited += to.bytes;
    }
    bump(run, s);
    return VERDICT_NEXT;
}

/* In a program with brief blocks, a loop over no chunks is left out. */
static enum verdict step_loop(const struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    if (!(s->flags & STEP_CHUNKED) || !run->program->brief || place_of(run, s, &s->src, lane, 0).elements)
        return VERDICT_NEXT;
    lane->pc = s->aside;
    return VERDICT_STAY;
}

static enum verdict step_end(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    if (!s->aside)
        return VERDICT_END;
    bool chunks = s->flags & STEP_CHUNKED;
    uint32_t *turn = chunks ? &lane->k : &lane->i;
    bool more = ++*turn < (chunks ? run->chunks : s->src.count);
    if (chunks && BASE_UNLIKELY(run->program->ragged))
        more = place_of(run, s, &s->src, lane, 0).elements != 0;
    if (more) {
        lane->pc = s->aside;
        return VERDICT_STAY;
    }
    *turn = 0;
    return VERDICT_NEXT;
}

static inline enum verdict step_any(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    switch (s->code) {
    case STEP_EXPOSE:
        return step_expose(run, lane, s);
    case STEP_VIEW:
        return s->flags & STEP_LAND ? step_land(run, lane, s) : step_view(run, lane, s);
    case STEP_RELEASE:
        return step_release(run, lane, s);
    case STEP_COPY:
        return step_copy(run, lane, s);
    case STEP_REDUCE:
        return step_reduce(run, lane, s);
    case STEP_LOOP:
        return step_loop(run, lane, s);
    default:
        return step_end(run, lane, s);
    }
}

static inline bool wait_holds(const struct run *run, const struct comm_step *s, const struct run_lane *lane)
{
    int32_t need = s->need + s->need_outer * (int32_t)lane->i + s->need_inner * (int32_t)lane->k;
    return run->counter[s->wait] - need >= 0;
}

/* Runs one lane until it is blocked. */
static enum verdict run_lane(struct run *run, struct run_lane *lane)
{
    const struct comm_step *step = run->program->step;
    for (;;) {
        const struct comm_step *s = &step[lane->pc];
        if (s->wait && !wait_holds(run, s, lane))
            return VERDICT_STAND;
        enum verdict verdict = step_any(run, lane, s);
        if (BASE_LIKELY(verdict == VERDICT_NEXT))
            lane->pc++;
        else if (verdict != VERDICT_STAY)
            return verdict;
    }
}

/* ------------------------------------------------------------------------------------------------------------ the handle */
/* Releases views that the program need not release, because their edge has no acknowledgements. */
static void give_back(struct run *run)
{
    for (uint64_t left = run->present & ~run->view_own; left; left &= left - 1) {
        struct wire_view *view = &run->view[__builtin_ctzll(left)];
        if (view->exclusive)
            run->channel->class->release(run->channel, run->seq, view);
    }
    run->present = 0;
}

enum run_result run_step(struct run *run)
{
    run->again = false;
    run->deposited = 0;
    do {
        run->bumped = run->gave_way = false;
        run->turn++;
        for (uint32_t open = run->mismatch_peer < 0 ? run->open : 0; open; open &= open - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(open);
            enum verdict verdict = run_lane(run, &run->lane[l]);
            if (verdict == VERDICT_END)
                run->open &= (uint16_t) ~(1u << l);
            else if (BASE_UNLIKELY(verdict == VERDICT_FAILED))
                return RUN_FAILED;
            else if (BASE_UNLIKELY(verdict == VERDICT_MISMATCH))
                break;
        }
        /* If only one lane is open, it has seen every bump already. */
    } while (((run->bumped && run->open & (run->open - 1)) || run->gave_way) && run->deposited < RUN_STEP_BYTES && run->mismatch_peer < 0);
    if (BASE_UNLIKELY(run->mismatch_peer >= 0))
        return RUN_MISMATCH;
    if (BASE_UNLIKELY(run->deposited >= RUN_STEP_BYTES) && (run->gave_way || run->bumped) && run->open) {
        run->again = true;
        return RUN_GAVE_WAY;
    }
    if (run->open || run->pending)
        return RUN_STANDS;
    give_back(run);
    return RUN_ENDED;
}

void run_event(struct run *run, const struct wire_event *event)
{
    uint32_t what = (uint32_t)event->cookie;
    const struct comm_step *s = &run->program->step[what >> 8 & 0xffff];
    run->again = true;
    if (event->peer >= 0)
        run->waited = (uint16_t)(event->peer + 1);
    if (BASE_UNLIKELY(event->result != WIRE_DONE)) {
        run->mismatch_peer = event->peer;
        return;
    }
    if (what >> 30 == RUN_COOKIE_VIEW)
        run->present |= UINT64_C(1) << (what & 63);
    else
        run->pending--;
    bump(run, s);
}
