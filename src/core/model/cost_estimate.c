/*
 * The quick form of cost: adds up one rank's program without the others. A rank is one thread, so the work of all its
 * lanes adds up. In addition it waits once for each exchange that needs the previous one; not again for each chunk,
 * because chunks follow each other closely. If ranks share CPUs, the work of all of them adds up, and each wait costs a
 * turn.
 */
#include "model/cost_rate.h"

struct sum {
    uint64_t busy, sent, waits, far; /* busy: ps; sent: ps on this host's card; waits, far: exchanges waited for, on this host and over the
                                      * network */
    uint64_t lane_waits, lane_far;   /* of the current lane, once per exchange */
    uint64_t trips_i, trips_k;       /* how often the current step runs */
    uint64_t longest;                /* bytes of the longest exposure or view */
    uint64_t ahead;                  /* calls between two waits */
    bool built, asked, asked_far;    /* built: the next EXPOSE needs no copy; asked: views were requested that no step has read yet */
    bool exposes, views, streams;
};

static uint32_t peer_at(const struct comm_program *p, const struct comm_step *s, uint32_t j)
{
    return program_peer(p, s->peer + j);
}

/* In a loop over peers the first one represents all. */
static void add_expose(struct sum *sum, const struct cost_rate *rate, const struct comm_program *p, const struct comm_step *s, uint32_t r,
                       uint64_t bytes, uint64_t trips)
{
    const struct cost_machine *m = rate->machine;
    uint64_t remote = 0;
    sum->exposes = true;
    sum->longest = bytes > sum->longest ? bytes : sum->longest;
    sum->streams |= !(p->edge[s->edge] & WIRE_ONCE);
    for (uint32_t j = 0; rate->host_ranks && j < s->npeers; j++)
        remote += cost_remote(rate, r, peer_at(p, s, j));
    sum->busy += (cost_expose(rate, s, bytes, sum->built) + remote * m->net_overhead) * trips;
    sum->sent += remote * (m->net_gap + cost_of_bytes(m->net_byte, bytes)) * trips;
    sum->built = false;
}

static void add_view(struct sum *sum, const struct cost_rate *rate, const struct comm_program *p, const struct comm_step *s, uint32_t r,
                     uint64_t bytes, uint64_t trips)
{
    const struct cost_machine *m = rate->machine;
    bool lands = s->flags & STEP_LAND;
    for (uint32_t j = 0; j < s->npeers; j++) {
        uint32_t peer = peer_at(p, s, j);
        if (peer == r)
            continue;
        bool far = cost_remote(rate, r, peer);
        sum->views = true;
        sum->longest = bytes > sum->longest ? bytes : sum->longest;
        sum->streams |= !(p->edge[s->edge] & WIRE_ONCE);
        sum->busy += ((far ? m->net_overhead : m->shm_view) + (lands ? cost_of_bytes(rate->land, bytes) : 0)) * trips;
        sum->asked = true;
        sum->asked_far |= far;
    }
    if (lands && sum->asked) { /* no step of this lane reads it */
        sum->lane_waits += !sum->asked_far;
        sum->lane_far += sum->asked_far;
        sum->asked = sum->asked_far = false;
    }
}

static void add_work(struct sum *sum, const struct cost_rate *rate, const struct comm_step *s, uint64_t bytes, uint64_t trips)
{
    bool tee = s->code == STEP_REDUCE && s->flags & STEP_TEE;
    sum->busy += cost_reduce(rate, bytes, s->code == STEP_REDUCE ? s->src.count : 1, tee) * trips;
    sum->built |= tee;
    sum->lane_waits += sum->asked && !sum->asked_far;
    sum->lane_far += sum->asked && sum->asked_far;
    sum->asked = sum->asked_far = false;
}

static void add_loop(struct sum *sum, const struct cost_rate *rate, const struct comm_step *s, bool opens)
{
    uint64_t *trips = s->flags & STEP_CHUNKED ? &sum->trips_k : &sum->trips_i;
    *trips = opens ? (s->flags & STEP_CHUNKED ? rate->cut.chunks : s->src.count) : 1;
}

/* The average over the chunks of a loop, because the last one may be short. */
static uint64_t bytes_each(const struct cost_rate *rate, const struct comm_program *p, const struct comm_step *s,
                           const struct comm_ref *ref)
{
    if (!(s->flags & STEP_CHUNKED))
        return cost_ref_bytes(rate, p, s, ref, 0, 0, 0);
    struct comm_step whole = *s;
    whole.flags &= (uint8_t)~STEP_CHUNKED;
    return cost_ref_bytes(rate, p, &whole, ref, 0, 0, 0) / rate->cut.chunks;
}

static void add_step(struct sum *sum, const struct cost_rate *rate, const struct comm_program *p, const struct comm_step *s, uint32_t r)
{
    static const struct comm_ref seen = {.buf = BUF_IN, .unit = UNIT_BLOCK};
    uint64_t trips = sum->trips_i * sum->trips_k;
    const struct comm_ref *of = s->code == STEP_EXPOSE || (s->code == STEP_VIEW && !(s->flags & STEP_LAND)) ? &s->src : &s->dst;
    sum->busy += rate->machine->step * trips;
    switch (s->code) {
    case STEP_EXPOSE:
        add_expose(sum, rate, p, s, r, bytes_each(rate, p, s, of->buf == BUF_VIEW ? &seen : of), trips);
        break;
    case STEP_VIEW:
        add_view(sum, rate, p, s, r, bytes_each(rate, p, s, of), trips);
        break;
    case STEP_COPY:
    case STEP_REDUCE:
        add_work(sum, rate, s, bytes_each(rate, p, s, of), trips);
        break;
    case STEP_LOOP:
        add_loop(sum, rate, s, true);
        break;
    case STEP_END:
        if (s->aside)
            add_loop(sum, rate, s, false);
        break;
    default:
        break;
    }
}

/* A rank that only exposes, or only views, need not wait for the others in every call of a row: an exposer can be as
 * many calls ahead as there are places. */
static uint64_t ahead_of(const struct cost_rate *rate, const struct sum *sum)
{
    if (sum->exposes && sum->views)
        return 1;
    return sum->streams ? COST_STREAM_AHEAD : sum->longest <= rate->inline_max ? COST_LINES_AHEAD : COST_ONCE_AHEAD;
}

static struct sum add_up(const struct cost_rate *rate, const struct comm_program *p, uint32_t r)
{
    struct sum sum = {.busy = rate->call};
    for (uint32_t l = 0; l < p->lanes; l++) {
        uint32_t end = l + 1u < p->lanes ? p->lane[l + 1] : p->steps;
        sum.trips_i = sum.trips_k = 1;
        sum.built = sum.asked = sum.asked_far = false;
        sum.lane_waits = sum.lane_far = 0;
        for (uint32_t at = p->lane[l]; at < end; at++) {
            add_step(&sum, rate, p, &p->step[at], r);
            if (cost_leaves_out(rate, p, &p->step[at])) {
                at = p->step[at].aside - 1u;
                sum.trips_k = 1;
            }
        }
        sum.waits += sum.lane_waits;
        sum.far += sum.lane_far;
    }
    sum.ahead = ahead_of(rate, &sum);
    return sum;
}

static uint64_t waited(const struct cost_rate *rate, const struct sum *sum)
{
    const struct cost_machine *m = rate->machine;
    return (sum->waits * (m->shm_latency + m->wake) + sum->far * (m->net_latency + m->wake)) / sum->ahead;
}

uint64_t cost_estimate(const struct cost_case *what, const struct comm_program *program, int32_t rank)
{
    struct cost_rate rate;
    cost_rate_of(&rate, what, program);
    struct sum sum = add_up(&rate, program, (uint32_t)rank);
    uint64_t sent = sum.sent * (rate.host_ranks ? (uint64_t)rate.host_ranks : 1);
    return (sum.busy > sent ? sum.busy : sent) + waited(&rate, &sum);
}

/* If ranks share CPUs: the work of all ranks on one CPU, and a turn for every wait of each. Up a tree and down again,
 * each hop waits for one rank only, which gets its CPU after half of the other ranks there. */
static uint64_t in_turns(const struct cost_case *what, const struct cost_rate *rate, const struct sum *root, const struct sum *other)
{
    const struct cost_machine *m = rate->machine;
    uint64_t rest = rate->turns - 1, busy = root->busy + rest * other->busy;
    uint64_t waits = (root->waits + root->far) * m->turn / root->ahead + rest * ((other->waits + other->far) * m->turn / other->ahead);
    uint64_t hops = what->climbs ? 2 * (uint64_t)(32 - __builtin_clz(((uint32_t)what->size - 1) | 1)) : 0,
             climb = hops * m->turn * (rest + 2) / 2;
    return busy + (waits > climb ? waits : climb);
}

/* The rank that represents the ranks other than the root. In a tree it is one with a child, because half of the ranks
 * are leaves and do less than most. */
static int32_t other_of(const struct cost_case *what)
{
    if (what->climbs && what->size > 3)
        return 2;
    return what->size - 1 == what->root && what->size > 1 ? what->size - 2 : what->size - 1;
}

/* The rank whose exposures this rank views; the rank itself if there is none. */
static uint32_t parent_of(const struct comm_program *p, uint32_t r)
{
    for (uint32_t at = 0; at < p->steps; at++)
        for (uint32_t j = 0; p->step[at].code == STEP_VIEW && j < p->step[at].npeers; j++)
            if (peer_at(p, &p->step[at], j) != r)
                return peer_at(p, &p->step[at], j);
    return r;
}

/* A rank that only views may have its data from a rank that had to wait for it too, and so on up to the root. This
 * depth of a tree is not visible in any one rank's program. False: no memory. */
enum { HOPS_MOST = 64 };
static bool add_hops(const struct comm_env *env, const struct cost_case *what, const struct cost_rate *rate, const struct comm_program *p,
                     uint32_t r, uint64_t ahead, uint64_t *ps)
{
    uint64_t sum = 0;
    struct comm_program *mine = NULL;
    uint32_t parent = parent_of(p, r);
    for (int hops = 0; hops < HOPS_MOST && parent != r && parent != (uint32_t)what->root; hops++) {
        struct program_spec spec = {what->collective, (int32_t)parent, what->size, what->root, 0, what->hosts};
        struct comm_program *above = what->build(env, &spec);
        program_free(env, mine);
        mine = above;
        if (!above)
            return false;
        struct sum there = add_up(rate, above, parent);
        sum += (there.busy - rate->call) / rate->cut.chunks + waited(rate, &there) * there.ahead;
        uint32_t next = parent_of(above, parent);
        if (next == r) /* they view each other: not a tree */
            break;
        r = parent;
        parent = next;
    }
    program_free(env, mine);
    *ps += sum / ahead;
    return true;
}

enum comm_result cost_estimate_all(const struct comm_env *env, const struct cost_case *what, uint64_t *ps)
{
    int32_t other = other_of(what);
    struct program_spec spec = {
        .collective = what->collective, .rank = what->root, .size = what->size, .root = what->root, .hosts = what->hosts};
    struct comm_program *a = what->build(env, &spec), *b = NULL;
    spec.rank = other;
    b = a && other != what->root ? what->build(env, &spec) : NULL;
    enum comm_result result = a && (b || other == what->root) ? COMM_OK : COMM_ERR_MEMORY;
    if (result == COMM_OK) {
        struct cost_rate rate;
        cost_rate_of(&rate, what, a);
        struct sum root = add_up(&rate, a, (uint32_t)what->root), rest = b ? add_up(&rate, b, (uint32_t)other) : root;
        uint64_t one = cost_estimate(what, a, what->root), two = b ? cost_estimate(what, b, other) : one;
        *ps = one > two ? one : two;
        uint64_t turns = rate.turns > 1 ? in_turns(what, &rate, &root, &rest) : 0;
        *ps = turns > *ps ? turns : *ps;
        if (b && rest.views && !rest.exposes && !add_hops(env, what, &rate, b, (uint32_t)other, rest.ahead, ps))
            result = COMM_ERR_MEMORY;
    }
    program_free(env, a);
    program_free(env, b);
    return result;
}
