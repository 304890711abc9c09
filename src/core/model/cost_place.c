/*
 * The exact form of cost: places, links and the order of events. A line belongs to an edge of a call and to its
 * exposer. A stream's place is used again, round by round, when its readers have released it. An exposure is seen one
 * latency after it was written; over the network, when its bytes have left one host's card and entered the other's.
 */
#include "model/cost_sim.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ memory, events */
void *cost_take(struct cost_sim *sim, size_t bytes)
{
    void *memory = sim->no_memory ? NULL : sim->env->take(sim->env, bytes ? bytes : 1, 64);
    sim->no_memory |= !memory;
    sim->taken += memory ? bytes : 0;
    return memory;
}

void cost_give(struct cost_sim *sim, void *memory, size_t bytes)
{
    env_give_back(sim->env, memory, bytes ? bytes : 1);
}

static bool grow(struct cost_sim *sim, void **memory, uint32_t *room, uint32_t more, size_t item)
{
    void *bigger = cost_take(sim, ((size_t)*room + more) * item);
    if (!bigger)
        return false;
    if (*memory)
        memcpy(bigger, *memory, *room * item);
    cost_give(sim, *memory, *room * item);
    sim->taken -= *room * item;
    *memory = bigger;
    *room += more;
    return true;
}

/* Events at the same time are ordered by rank, then by look, so that a run is a pure function of its case. */
static bool before(const struct cost_event *a, const struct cost_event *b)
{
    if (a->at != b->at)
        return a->at < b->at;
    return a->rank != b->rank ? a->rank < b->rank : a->look < b->look;
}

void cost_push(struct cost_sim *sim, int64_t at, uint32_t rank, uint32_t look)
{
    struct cost_event event = {at, rank, look};
    void *memory = sim->heap;
    if (sim->heap_count == sim->heap_room && !grow(sim, &memory, &sim->heap_room, sim->heap_room, sizeof *sim->heap))
        return;
    sim->heap = memory;
    uint32_t i = sim->heap_count++;
    for (uint32_t up = (i - 1) / 4; i && before(&event, &sim->heap[up]); i = up, up = (i - 1) / 4)
        sim->heap[i] = sim->heap[up];
    sim->heap[i] = event;
}

/* One such event per rank is enough: the rank then sees everything that has happened, and requests another event if
 * needed. */
void cost_again(struct cost_sim *sim, int64_t at, uint32_t rank)
{
    if (at >= sim->rank[rank].again)
        return;
    sim->rank[rank].again = at;
    cost_push(sim, at, rank, COST_NONE);
}

struct cost_event cost_pop(struct cost_sim *sim)
{
    struct cost_event top = sim->heap[0], last = sim->heap[--sim->heap_count];
    uint32_t i = 0, count = sim->heap_count;
    for (;;) {
        uint32_t first = i * 4 + 1, least = first;
        if (first >= count)
            break;
        for (uint32_t c = first + 1; c < first + 4 && c < count; c++)
            least = before(&sim->heap[c], &sim->heap[least]) ? c : least;
        if (!before(&sim->heap[least], &last))
            break;
        sim->heap[i] = sim->heap[least];
        i = least;
    }
    sim->heap[i] = last;
    return top;
}

/* ------------------------------------------------------------------------------------------------------------ where things lie */
static bool is_once(const struct cost_sim *sim, uint32_t edge)
{
    return sim->shape->edge[edge] & WIRE_ONCE;
}

static bool is_to_all(const struct cost_sim *sim, uint32_t edge)
{
    return sim->shape->edge[edge] & WIRE_TO_ALL;
}

bool cost_open_places(struct cost_sim *sim)
{
    const struct comm_program *p = sim->shape;
    size_t size = sim->size;
    for (uint32_t e = 0; e < p->edges; e++) {
        if (is_once(sim, e)) {
            sim->line_index[e] = sim->line_edges;
            sim->line_edges += is_to_all(sim, e) ? 1 : sim->size;
            continue;
        }
        sim->place_index[e] = sim->places;
        sim->places += COST_CREDITS * size * (is_to_all(sim, e) ? 1 : size);
        if (sim->places * COST_STREAM_AHEAD > COST_PLACES_MAX)
            return false;
    }
    sim->line = cost_take(sim, sim->calls * size * sim->line_edges * sizeof *sim->line);
    sim->place = cost_take(sim, sim->places * COST_STREAM_AHEAD * sizeof *sim->place);
    sim->heap_room = sim->looks = (uint32_t)size + COST_LOOKS_MORE;
    sim->heap = cost_take(sim, sim->heap_room * sizeof *sim->heap);
    sim->look = cost_take(sim, sim->looks * sizeof *sim->look);
    for (size_t i = 0; sim->line && i < sim->calls * size * sim->line_edges; i++)
        sim->line[i].waiters = COST_NONE;
    for (size_t i = 0; sim->place && i < sim->places * COST_STREAM_AHEAD; i++)
        sim->place[i].waiters = COST_NONE;
    for (uint32_t i = 0; sim->look && i < sim->looks; i++)
        sim->look[i].next = i + 1 < sim->looks ? i + 1 : COST_NONE;
    return true;
}

void cost_close_places(struct cost_sim *sim)
{
    cost_give(sim, sim->line, sim->calls * (size_t)sim->size * sim->line_edges * sizeof *sim->line);
    cost_give(sim, sim->place, sim->places * COST_STREAM_AHEAD * sizeof *sim->place);
    cost_give(sim, sim->heap, sim->heap_room * sizeof *sim->heap);
    cost_give(sim, sim->look, sim->looks * sizeof *sim->look);
}

static struct cost_line *line_of(const struct cost_sim *sim, uint32_t call, uint32_t source, uint32_t reader, uint32_t edge)
{
    size_t item = sim->line_index[edge] + (is_to_all(sim, edge) ? 0 : reader);
    return &sim->line[((size_t)call * sim->line_edges + item) * sim->size + source];
}

uint32_t cost_place_of(const struct cost_sim *sim, uint32_t call, uint32_t source, uint32_t reader, uint32_t edge, uint32_t round)
{
    size_t item = is_to_all(sim, edge) ? source : (size_t)source * sim->size + reader;
    return (uint32_t)(call % COST_STREAM_AHEAD * sim->places + sim->place_index[edge] + item * COST_CREDITS + round % COST_CREDITS);
}

static uint32_t key_of(uint32_t call, uint32_t round)
{
    return (call & 255) << 24 | (round + 1);
}

/* ------------------------------------------------------------------------------------------------------------ links */
static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t latency(const struct cost_sim *sim, uint32_t a, uint32_t b)
{
    const struct cost_machine *m = sim->rate.machine;
    return (int64_t)(cost_remote(&sim->rate, a, b) ? m->net_latency : m->shm_latency);
}

/* How many of the exposure's messages are sent before this reader's. Tries first the usual case of peers in rank order. */
static uint32_t turn_of(const struct cost_sim *sim, uint32_t source, uint32_t reader, uint16_t step)
{
    const struct comm_program *p = sim->rank[source].program;
    const struct comm_step *s = &p->step[step];
    uint32_t guess = (reader + sim->size - program_peer(p, s->peer)) % sim->size;
    if (s->npeers == 1)
        return 0;
    if (guess < s->npeers && program_peer(p, s->peer + guess) == reader)
        return guess;
    for (uint32_t j = 0; j < s->npeers; j++)
        if (program_peer(p, s->peer + j) == reader)
            return j;
    return 0;
}

static int64_t arrival(struct cost_sim *sim, uint32_t source, uint32_t reader, int64_t at, uint16_t step, size_t bytes)
{
    const struct cost_machine *m = sim->rate.machine;
    if (!cost_remote(&sim->rate, source, reader))
        return at + (int64_t)m->shm_latency;
    int64_t wire = (int64_t)cost_of_bytes(m->net_byte, bytes), *in = &sim->card_in[cost_host(&sim->rate, reader)];
    at += (int64_t)turn_of(sim, source, reader, step) * ((int64_t)m->net_gap + wire) + (int64_t)m->net_latency;
    if (!wire) /* a message that takes the card no time is not delayed by one that departs later but was requested earlier */
        return at;
    *in = larger(*in, at) + wire;
    return *in;
}

/* When readers may begin to see the exposure; over the network, when the card begins to send. */
static int64_t depart(struct cost_sim *sim, uint32_t r, const struct comm_step *s, const struct cost_lane *lane, size_t bytes)
{
    const struct cost_machine *m = sim->rate.machine;
    struct cost_rank *rank = &sim->rank[r];
    uint32_t remote = 0;
    for (uint32_t j = 0; sim->rate.host_ranks && j < s->npeers; j++)
        remote += cost_remote(&sim->rate, r, cost_peer(rank->program, s, lane, j));
    if (!remote)
        return rank->clock;
    int64_t *out = &sim->card_out[cost_host(&sim->rate, r)];
    rank->clock += (int64_t)(remote * m->net_overhead);
    int64_t start = larger(rank->clock, *out);
    *out = start + (int64_t)(remote * (m->net_gap + cost_of_bytes(m->net_byte, bytes)));
    return remote == s->npeers ? start : rank->clock;
}

/* ------------------------------------------------------------------------------------------------------------ exposures */
static bool retired_before(struct cost_sim *sim, uint32_t r, bool once, size_t bytes)
{
    struct cost_rank *rank = &sim->rank[r];
    uint32_t ahead = !once ? COST_STREAM_AHEAD : bytes <= sim->rate.inline_max ? COST_LINES_AHEAD : COST_ONCE_AHEAD;
    if (rank->call < ahead)
        return true;
    const struct cost_call *call = &sim->call[rank->call - ahead];
    int64_t seen = call->last + (int64_t)sim->rate.machine->shm_latency;
    if (call->retired < sim->size) {
        sim->waiting_retired += !rank->waits_retired;
        rank->waits_retired = true;
        return false;
    }
    if (seen > rank->clock)
        cost_again(sim, seen, r);
    return seen <= rank->clock;
}

void cost_retired(struct cost_sim *sim, uint32_t number, int64_t now)
{
    struct cost_call *call = &sim->call[number];
    call->last = larger(call->last, now);
    if (++call->retired < sim->size || !sim->waiting_retired)
        return;
    for (uint32_t r = 0; r < sim->size; r++) {
        if (sim->rank[r].waits_retired)
            cost_again(sim, call->last + (int64_t)sim->rate.machine->shm_latency, r);
        sim->rank[r].waits_retired = false;
    }
    sim->waiting_retired = 0;
}

bool cost_room(struct cost_sim *sim, uint32_t r, const struct comm_step *s, const struct cost_lane *lane, size_t bytes)
{
    struct cost_rank *rank = &sim->rank[r];
    bool once = is_once(sim, s->edge), to_all = is_to_all(sim, s->edge);
    if (!retired_before(sim, r, once, bytes))
        return false;
    uint32_t round = program_round(s, lane->k);
    if (once || round < COST_CREDITS)
        return true;
    for (uint32_t j = 0; j < (to_all ? 1 : s->npeers); j++) {
        uint32_t peer = cost_peer(rank->program, s, lane, j);
        struct cost_place *place = &sim->place[cost_place_of(sim, rank->call, r, peer, s->edge, round)];
        if (place->left) {
            place->blocked = 1;
            return false;
        }
        if (place->back > rank->clock) {
            cost_again(sim, place->back, r);
            return false;
        }
    }
    return true;
}

void cost_give_back(struct cost_sim *sim, uint32_t at, uint32_t reader, int64_t now)
{
    struct cost_place *place = &sim->place[at];
    place->back = larger(place->back, now + latency(sim, reader, place->owner));
    if (--place->left || !place->blocked)
        return;
    place->blocked = 0;
    cost_again(sim, place->back, place->owner);
}

/* Wakes the looks for this round; a reader may also wait for later rounds of the same place. */
static void wake_all(struct cost_sim *sim, uint32_t *list, uint32_t source, int64_t at, uint16_t step, uint32_t key, size_t bytes)
{
    uint32_t *link = list;
    while (*link != COST_NONE) {
        uint32_t i = *link, reader = sim->look[i].rank;
        if (key_of(sim->rank[reader].call, sim->look[i].round) != key) {
            link = &sim->look[i].next;
            continue;
        }
        *link = sim->look[i].next;
        cost_push(sim, arrival(sim, source, reader, at, step, bytes), reader, i);
    }
}

void cost_publish(struct cost_sim *sim, uint32_t r, const struct comm_step *s, const struct cost_lane *lane, size_t bytes)
{
    const struct cost_rank *rank = &sim->rank[r];
    int64_t at = depart(sim, r, s, lane, bytes);
    uint16_t step = (uint16_t)(s - rank->program->step);
    bool to_all = is_to_all(sim, s->edge);
    uint32_t round = program_round(s, lane->k), key = key_of(rank->call, round);
    sim->events++;
    if (is_once(sim, s->edge)) {
        struct cost_line *line = line_of(sim, rank->call, r, cost_peer(rank->program, s, lane, 0), s->edge);
        line->at = at + 1;
        line->step = step;
        wake_all(sim, &line->waiters, r, at, step, key, bytes);
        return;
    }
    for (uint32_t j = 0; j < (to_all ? 1 : s->npeers); j++) {
        uint32_t peer = cost_peer(rank->program, s, lane, j);
        struct cost_place *place = &sim->place[cost_place_of(sim, rank->call, r, peer, s->edge, round)];
        place->at = at;
        place->back = 0;
        place->key = key;
        place->left = to_all ? s->npeers : 1;
        place->owner = r;
        place->step = step;
        wake_all(sim, &place->waiters, r, at, step, key, bytes);
    }
}

/* ------------------------------------------------------------------------------------------------------------ looks */
static uint32_t keep_look(struct cost_sim *sim, const struct cost_look *look, uint32_t next)
{
    if (sim->look_free == COST_NONE) {
        uint32_t first = sim->looks;
        void *memory = sim->look;
        if (!grow(sim, &memory, &sim->looks, sim->looks, sizeof *sim->look))
            return COST_NONE;
        sim->look = memory;
        for (uint32_t i = first; i < sim->looks; i++)
            sim->look[i].next = i + 1 < sim->looks ? i + 1 : COST_NONE;
        sim->look_free = first;
    }
    uint32_t at = sim->look_free;
    sim->look_free = sim->look[at].next;
    sim->look[at] = *look;
    sim->look[at].next = next;
    return at;
}

bool cost_look_for(struct cost_sim *sim, const struct cost_look *look, size_t bytes)
{
    const struct cost_rank *rank = &sim->rank[look->rank];
    uint32_t edge = rank->program->step[look->step].edge, *waiters;
    int64_t at = -1;
    uint16_t step;
    if (is_once(sim, edge)) {
        struct cost_line *line = line_of(sim, rank->call, look->peer, look->rank, edge);
        at = line->at - 1;
        step = line->step;
        waiters = &line->waiters;
    } else {
        struct cost_place *place = &sim->place[cost_place_of(sim, rank->call, look->peer, look->rank, edge, look->round)];
        if (place->key == key_of(rank->call, look->round))
            at = place->at;
        step = place->step;
        waiters = &place->waiters;
    }
    if (at < 0) {
        *waiters = keep_look(sim, look, *waiters);
        return false;
    }
    int64_t seen = arrival(sim, look->peer, look->rank, at, step, bytes);
    if (seen <= rank->clock)
        return true;
    cost_push(sim, seen, look->rank, keep_look(sim, look, COST_NONE));
    return false;
}
