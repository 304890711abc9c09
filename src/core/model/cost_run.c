/*
 * The exact form of cost: steps every rank's lanes as the interpreter does; each step advances the rank's own clock. A
 * rank runs until all its lanes are blocked, and continues at the next event for it. Events are handled in the order of
 * time.
 */
#include "model/cost_sim.h"

#include "base/check.h"

#include <string.h>

enum verdict { NEXT, STAY, STAND, END };

static inline uint64_t ones(uint32_t count)
{
    return count >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1;
}

static uint32_t turn_of(const struct comm_program *p, uint32_t k)
{
    return p->depth ? k % p->depth : k;
}

static uint32_t slot_of(const struct comm_program *p, const struct comm_ref *ref, uint32_t k)
{
    return ref->inner ? (uint32_t)((int32_t)ref->first + ref->inner * (int32_t)turn_of(p, k)) : ref->first;
}

static void bump(struct cost_sim *sim, struct cost_rank *rank, const struct comm_step *s)
{
    if (s->bump) {
        sim->counter[rank->counter + s->bump]++;
        rank->bumped = true;
    }
}

static void view_is_here(struct cost_sim *sim, struct cost_rank *rank, const struct comm_step *s, uint32_t slot)
{
    rank->present |= UINT64_C(1) << slot;
    rank->bumped |= rank->program->crossing;
    bump(sim, rank, s);
}

static void charge(struct cost_rank *rank, uint64_t ps)
{
    rank->clock += (int64_t)ps;
}

/* ------------------------------------------------------------------------------------------------------------ steps */
static enum verdict step_expose(struct cost_sim *sim, uint32_t r, struct cost_lane *lane, const struct comm_step *s)
{
    struct cost_rank *rank = &sim->rank[r];
    size_t bytes;
    if (s->src.buf == BUF_VIEW) { /* the bytes of a view: as long as a whole block, or a chunk of one */
        struct comm_ref like = {.buf = BUF_IN, .unit = rank->program->chunk_unit == UNIT_SLICE ? UNIT_SLICE : UNIT_BLOCK};
        if (!(rank->present >> slot_of(rank->program, &s->src, lane->k) & 1))
            return STAND;
        bytes = cost_ref_bytes(&sim->rate, rank->program, s, &like, lane->i, lane->k, 0);
    } else {
        bytes = cost_ref_bytes(&sim->rate, rank->program, s, &s->src, lane->i, lane->k, 0);
    }
    if (!cost_room(sim, r, s, lane, bytes))
        return STAND;
    charge(rank, cost_expose(&sim->rate, s, bytes, lane->built));
    lane->built = false;
    cost_publish(sim, r, s, lane, bytes);
    bump(sim, rank, s);
    return NEXT;
}

/* The cost of a view once it has arrived; over the network, with the overhead of the host's software. */
static void charge_view(struct cost_sim *sim, uint32_t r, uint32_t peer)
{
    const struct cost_machine *m = sim->rate.machine;
    charge(&sim->rank[r], cost_remote(&sim->rate, r, peer) ? m->net_overhead : m->shm_view);
    sim->events++;
}

static uint32_t seen_place(const struct cost_sim *sim, const struct cost_rank *rank, uint32_t r, uint32_t peer, uint32_t edge, uint32_t k)
{
    return sim->shape->edge[edge] & WIRE_ONCE ? COST_NONE : cost_place_of(sim, rank->call, peer, r, edge, k);
}

static enum verdict step_view(struct cost_sim *sim, uint32_t r, uint32_t l, const struct comm_step *s)
{
    struct cost_rank *rank = &sim->rank[r];
    const struct cost_lane *lane = &sim->lane[rank->lane + l];
    const struct comm_program *p = rank->program;
    size_t bytes = cost_ref_bytes(&sim->rate, p, s, &s->src, lane->i, lane->k, 0);
    uint32_t first = slot_of(p, &s->dst, lane->k);
    rank->own &= ~(ones(s->npeers) << first);
    for (uint32_t j = 0; j < s->npeers; j++) {
        uint32_t peer = cost_peer(p, s, lane, j), slot = first + j;
        if (peer == r) {
            rank->own |= UINT64_C(1) << slot;
            view_is_here(sim, rank, s, slot);
            continue;
        }
        struct cost_look look = {.rank = r,
                                 .i = lane->i,
                                 .k = lane->k,
                                 .round = program_round(s, lane->k),
                                 .peer = peer,
                                 .step = (uint16_t)(s - p->step),
                                 .item = (uint16_t)slot};
        if (sim->view_place)
            sim->view_place[rank->view + slot] = seen_place(sim, rank, r, peer, s->edge, look.round);
        if (cost_look_for(sim, &look, bytes)) {
            charge_view(sim, r, peer);
            view_is_here(sim, rank, s, slot);
        }
    }
    return NEXT;
}

/* The bytes have arrived: copies them to their destination and releases their place. */
static void land(struct cost_sim *sim, uint32_t r, const struct comm_step *s, const struct cost_look *look, uint32_t j)
{
    struct cost_rank *rank = &sim->rank[r];
    size_t bytes = cost_ref_bytes(&sim->rate, rank->program, s, &s->dst, look->i, look->k, j);
    uint32_t place = seen_place(sim, rank, r, look->peer, s->edge, look->round);
    charge_view(sim, r, look->peer);
    charge(rank, cost_of_bytes(sim->rate.land, bytes));
    if (place != COST_NONE)
        cost_give_back(sim, place, r, rank->clock);
    bump(sim, rank, s);
}

static enum verdict step_land(struct cost_sim *sim, uint32_t r, uint32_t l, const struct comm_step *s)
{
    struct cost_rank *rank = &sim->rank[r];
    const struct cost_lane *lane = &sim->lane[rank->lane + l];
    for (uint32_t j = 0; j < s->npeers; j++) {
        struct cost_look look = {.rank = r,
                                 .i = lane->i,
                                 .k = lane->k,
                                 .round = program_round(s, lane->k),
                                 .peer = cost_peer(rank->program, s, lane, j),
                                 .step = (uint16_t)(s - rank->program->step),
                                 .item = (uint16_t)j};
        size_t bytes = cost_ref_bytes(&sim->rate, rank->program, s, &s->dst, lane->i, lane->k, j);
        if (cost_look_for(sim, &look, bytes))
            land(sim, r, s, &look, j);
        else
            rank->pending++;
    }
    return NEXT;
}

static enum verdict step_release(struct cost_sim *sim, uint32_t r, const struct cost_lane *lane, const struct comm_step *s)
{
    struct cost_rank *rank = &sim->rank[r];
    uint32_t slot = slot_of(rank->program, &s->src, lane->k);
    uint64_t mask = ones(s->src.count) << slot;
    if ((rank->present & mask) != mask)
        return STAND;
    for (uint32_t j = slot; j < slot + s->src.count; j++) {
        uint32_t place = sim->view_place && !(rank->own >> j & 1) ? sim->view_place[rank->view + j] : COST_NONE;
        if (place != COST_NONE)
            cost_give_back(sim, place, r, rank->clock);
    }
    rank->present &= ~mask;
    bump(sim, rank, s);
    return NEXT;
}

static enum verdict step_work(struct cost_sim *sim, struct cost_rank *rank, struct cost_lane *lane, const struct comm_step *s)
{
    uint32_t ways = s->code == STEP_REDUCE ? s->src.count : 1;
    if (s->src.buf == BUF_VIEW) {
        uint64_t mask = ones(s->src.count) << slot_of(rank->program, &s->src, lane->k);
        if ((rank->present & mask) != mask)
            return STAND;
    }
    size_t bytes = cost_ref_bytes(&sim->rate, rank->program, s, &s->dst, lane->i, lane->k, 0);
    bool tee = s->code == STEP_REDUCE && s->flags & STEP_TEE;
    if (s->code == STEP_COPY && s->src.buf == BUF_VIEW)
        bytes *= s->src.count; /* one copy per view */
    charge(rank, cost_reduce(&sim->rate, bytes, ways, tee));
    lane->built |= tee;
    bump(sim, rank, s);
    return NEXT;
}

static enum verdict step_end(const struct cost_sim *sim, struct cost_lane *lane, const struct comm_step *s)
{
    if (!s->aside)
        return END;
    bool chunks = s->flags & STEP_CHUNKED;
    uint32_t *turn = chunks ? &lane->k : &lane->i;
    if (++*turn < (chunks ? sim->rate.cut.chunks : s->src.count)) {
        lane->pc = s->aside;
        return STAY;
    }
    *turn = 0;
    return NEXT;
}

static enum verdict step_any(struct cost_sim *sim, uint32_t r, uint32_t l, const struct comm_step *s)
{
    struct cost_rank *rank = &sim->rank[r];
    struct cost_lane *lane = &sim->lane[rank->lane + l];
    if (cost_leaves_out(&sim->rate, rank->program, s)) {
        lane->pc = s->aside;
        return STAY;
    }
    switch (s->code) {
    case STEP_EXPOSE:
        return step_expose(sim, r, lane, s);
    case STEP_VIEW:
        return s->flags & STEP_LAND ? step_land(sim, r, l, s) : step_view(sim, r, l, s);
    case STEP_RELEASE:
        return step_release(sim, r, lane, s);
    case STEP_COPY:
    case STEP_REDUCE:
        return step_work(sim, rank, lane, s);
    case STEP_LOOP:
        return NEXT;
    default:
        return step_end(sim, lane, s);
    }
}

static bool wait_holds(const struct cost_sim *sim, const struct cost_rank *rank, const struct comm_step *s, const struct cost_lane *lane)
{
    int32_t need = s->need + s->need_outer * (int32_t)lane->i + s->need_inner * (int32_t)lane->k;
    return !s->wait || sim->counter[rank->counter + s->wait] - need >= 0;
}

static enum verdict run_lane(struct cost_sim *sim, uint32_t r, uint32_t l)
{
    struct cost_rank *rank = &sim->rank[r];
    struct cost_lane *lane = &sim->lane[rank->lane + l];
    for (;;) {
        const struct comm_step *s = &rank->program->step[lane->pc];
        enum verdict verdict = wait_holds(sim, rank, s, lane) ? step_any(sim, r, l, s) : STAND;
        if (verdict == STAND)
            return STAND;
        sim->steps++;
        charge(rank, sim->rate.machine->step);
        if (verdict == END)
            return END;
        lane->pc = (uint16_t)(lane->pc + (verdict == NEXT));
    }
}

/* ------------------------------------------------------------------------------------------------------------ running a rank */
static void begin_call(struct cost_sim *sim, uint32_t r)
{
    struct cost_rank *rank = &sim->rank[r];
    const struct comm_program *p = rank->program;
    charge(rank, sim->rate.call);
    rank->open = (uint16_t)ones(p->lanes);
    rank->present = rank->own = 0;
    rank->pending = 0;
    for (uint32_t l = 0; l < p->lanes; l++)
        sim->lane[rank->lane + l] = (struct cost_lane){.pc = p->lane[l]};
    if (p->counters)
        memset(&sim->counter[rank->counter], 0, rank->counters * sizeof *sim->counter);
    sim->events++;
}

static void run_lanes(struct cost_sim *sim, uint32_t r)
{
    struct cost_rank *rank = &sim->rank[r];
    do {
        rank->bumped = false;
        for (uint32_t open = rank->open; open; open &= open - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(open);
            if (run_lane(sim, r, l) == END)
                rank->open &= (uint16_t) ~(1u << l);
        }
    } while (rank->bumped && rank->open & (rank->open - 1));
}

static void run_rank(struct cost_sim *sim, uint32_t r)
{
    struct cost_rank *rank = &sim->rank[r];
    for (;;) {
        run_lanes(sim, r);
        if (rank->open || rank->pending)
            return;
        cost_retired(sim, rank->call, rank->clock);
        if (++rank->call == sim->calls)
            return;
        begin_call(sim, r);
    }
}

static void take_look(struct cost_sim *sim, uint32_t r, uint32_t index)
{
    struct cost_rank *rank = &sim->rank[r];
    struct cost_look look = sim->look[index];
    const struct comm_step *s = &rank->program->step[look.step];
    sim->look[index].next = sim->look_free;
    sim->look_free = index;
    if (s->flags & STEP_LAND) {
        rank->pending--;
        land(sim, r, s, &look, look.item);
    } else {
        charge_view(sim, r, look.peer);
        view_is_here(sim, rank, s, look.item);
    }
}

/* The rank's number on its host. */
static uint32_t number_of(const struct cost_sim *sim, uint32_t r)
{
    const struct program_hosts *hosts = sim->rate.hosts;
    uint32_t number = 0;

    if (!sim->rate.host_ranks || !hosts)
        return sim->rate.host_ranks ? r % (uint32_t)sim->rate.host_ranks : r;
    for (uint32_t other = 0; other < r; other++)
        number += hosts->of[other] == hosts->of[r];
    return number;
}

static uint32_t cpu_of(const struct cost_sim *sim, uint32_t r)
{
    uint32_t cpus = (uint32_t)sim->rate.machine->cpus;
    return cost_host(&sim->rate, r) * cpus + number_of(sim, r) % cpus;
}

/* Ranks stay on their CPU, as the kernel keeps them for such short times. A rank that is alone on a CPU polls all the
 * time. If there are several, all that wait poll in turn. A rank that wakes on a CPU where nobody works waits for half
 * of the others. If others have used the CPU since the bytes arrived, it waits for their work. */
static void wake(struct cost_sim *sim, struct cost_rank *rank, uint32_t r, int64_t at)
{
    const struct cost_machine *m = sim->rate.machine;
    uint32_t host = sim->rate.host_ranks ? (uint32_t)sim->rate.host_ranks : sim->size, cpus = (uint32_t)m->cpus;
    uint32_t here = (host - number_of(sim, r) % cpus + cpus - 1) / cpus;
    int64_t free = here == 1 ? 0 : sim->cpu[cpu_of(sim, r)];
    if (at <= rank->clock)
        rank->clock = free > rank->clock ? free : rank->clock;
    else if (here == 1)
        rank->clock = at + (int64_t)m->wake;
    else
        rank->clock = free > at ? free + (int64_t)m->turn : at + (int64_t)(m->turn * (here + 1) / 2);
}

static void turn(struct cost_sim *sim, const struct cost_event *event)
{
    uint32_t r = event->rank;
    struct cost_rank *rank = &sim->rank[r];
    if (rank->call == sim->calls || (event->look == COST_NONE && event->at != rank->again))
        return;
    if (event->look == COST_NONE)
        rank->again = INT64_MAX;
    wake(sim, rank, r, event->at);
    if (!rank->open && !rank->pending)
        begin_call(sim, r);
    else if (event->look != COST_NONE)
        take_look(sim, r, event->look);
    run_rank(sim, r);
    int64_t *cpu = &sim->cpu[cpu_of(sim, r)];
    *cpu = *cpu > rank->clock ? *cpu : rank->clock;
}

/* ------------------------------------------------------------------------------------------------------------ the whole */
/* Counter 0, which means none, and those up to the highest in use. */
static uint8_t counters_of(const struct comm_program *p)
{
    uint32_t most = 0;
    for (uint32_t i = 0; p->counters && i < p->steps; i++) {
        most = p->step[i].wait > most ? p->step[i].wait : most;
        most = p->step[i].bump > most ? p->step[i].bump : most;
    }
    return p->counters ? (uint8_t)(most + 1) : 0;
}

static bool open_ranks(struct cost_sim *sim, struct cost_result *result)
{
    const struct cost_case *what = sim->what;
    bool streams = false;
    sim->rank = cost_take(sim, sim->size * sizeof *sim->rank);
    for (uint32_t r = 0; sim->rank && r < sim->size; r++) {
        struct program_spec spec = {
            .collective = what->collective, .rank = (int32_t)r, .size = what->size, .root = what->root, .hosts = what->hosts};
        struct comm_program *p = what->build(sim->env, &spec);
        struct cost_rank *rank = &sim->rank[r];
        if (!p) {
            sim->no_memory = true;
            return false;
        }
        *rank = (struct cost_rank){
            .program = p, .lane = (uint32_t)sim->lanes, .counter = (uint32_t)sim->counters, .clock = -1, .again = INT64_MAX};
        rank->view = (uint32_t)sim->views;
        sim->lanes += p->lanes;
        rank->counters = counters_of(p);
        sim->counters += rank->counters;
        sim->views += p->views;
        result->program_bytes += p->bytes;
    }
    if (!sim->rank)
        return false;
    sim->shape = sim->rank[0].program;
    for (uint32_t e = 0; e < sim->shape->edges; e++)
        streams |= !(sim->shape->edge[e] & WIRE_ONCE);
    sim->views = streams ? sim->views : 0;
    sim->lane = cost_take(sim, sim->lanes * sizeof *sim->lane);
    sim->counter = cost_take(sim, sim->counters * sizeof *sim->counter);
    sim->view_place = streams ? cost_take(sim, sim->views * sizeof *sim->view_place) : NULL;
    sim->call = cost_take(sim, sim->calls * sizeof *sim->call);
    cost_rate_of(&sim->rate, what, sim->shape);
    sim->hosts = what->host_ranks ? (sim->size + (uint32_t)what->host_ranks - 1) / (uint32_t)what->host_ranks : 1;
    if (what->host_ranks && what->hosts && (uint32_t)what->hosts->count > sim->hosts)
        sim->hosts = (uint32_t)what->hosts->count;
    sim->cpu = cost_take(sim, sim->hosts * sim->what->machine->cpus * sizeof *sim->cpu);
    sim->card_out = cost_take(sim, sim->hosts * sizeof *sim->card_out);
    sim->card_in = cost_take(sim, sim->hosts * sizeof *sim->card_in);
    return !sim->no_memory;
}

static void close_ranks(struct cost_sim *sim)
{
    for (uint32_t r = 0; sim->rank && r < sim->size; r++)
        program_free(sim->env, (struct comm_program *)(uintptr_t)sim->rank[r].program);
    cost_give(sim, sim->rank, sim->size * sizeof *sim->rank);
    cost_give(sim, sim->lane, sim->lanes * sizeof *sim->lane);
    cost_give(sim, sim->counter, sim->counters * sizeof *sim->counter);
    cost_give(sim, sim->view_place, sim->views * sizeof *sim->view_place);
    cost_give(sim, sim->call, sim->calls * sizeof *sim->call);
    cost_give(sim, sim->cpu, sim->hosts * sim->what->machine->cpus * sizeof *sim->cpu);
    cost_give(sim, sim->card_out, sim->hosts * sizeof *sim->card_out);
    cost_give(sim, sim->card_in, sim->hosts * sizeof *sim->card_in);
}

static void run_all(struct cost_sim *sim, struct cost_result *result)
{
    for (uint32_t r = 0; r < sim->size; r++)
        cost_again(sim, 0, r);
    while (sim->heap_count && !sim->no_memory) {
        struct cost_event event = cost_pop(sim);
        turn(sim, &event);
    }
    const struct cost_call *last = &sim->call[sim->calls - 1];
    sim->broken = last->retired < sim->size;
    result->ps = (uint64_t)last->last;
    uint32_t row = sim->calls > 2 * COST_ROW ? COST_ROW : sim->calls / 2;
    result->each = row ? (uint64_t)(last->last - sim->call[sim->calls - 1 - row].last) / row : result->ps;
    result->events = sim->events;
    result->steps = sim->steps;
    result->table_bytes = sim->taken;
}

enum comm_result cost_run(const struct comm_env *env, const struct cost_case *what, struct cost_result *result)
{
    struct cost_sim sim = {.env = env, .what = what, .size = (uint32_t)what->size, .calls = what->calls ? what->calls : 1};
    struct cost_result made = {0};
    bool opened = open_ranks(&sim, &made), room = opened && cost_open_places(&sim);
    if (room && !sim.no_memory)
        run_all(&sim, &made);
    if (opened)
        cost_close_places(&sim);
    close_ranks(&sim);
    if (sim.no_memory)
        return COMM_ERR_MEMORY;
    if (!room)
        return COMM_ERR_UNSUPPORTED;
    if (sim.broken)
        return COMM_ERR_CORRUPT;
    *result = made;
    return COMM_OK;
}
