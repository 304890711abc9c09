/*
 * The builder. Steps and peers grow in memory of their own while an algorithm appends; build_end checks the form of the
 * program and packs it into one block. It checks only form. The verifier of the tests checks meaning.
 */
#include "program/build.h"

#include "base/check.h"

#include <string.h>

enum { BUILD_STEPS_FIRST = 32, BUILD_PEERS_FIRST = 64, BUILD_STEPS_MAX = 16384, BUILD_PEERS_MAX = 65535 };

struct build *build_begin(const struct comm_env *env, const char *algorithm, const struct program_spec *spec)
{
    struct build *b = env->take(env, sizeof *b, 64);
    if (!b)
        return NULL;
    b->env = env;
    b->spec = *spec;
    b->program.algorithm = algorithm;
    return b;
}

void *build_notes(struct build *b, size_t bytes)
{
    BASE_ASSERT(!b->notes);
    b->notes = b->env->take(b->env, bytes, 64);
    b->notes_bytes = bytes;
    b->failed |= !b->notes;
    return b->notes;
}

/* Doubles the room. False: no memory, or the limit is reached; then the builder has failed. */
static bool grow(struct build *b, void **memory, uint32_t *room, uint32_t first, uint32_t most, size_t item)
{
    uint32_t more = *room ? *room * 2 : first;
    void *bigger = *room < most && !b->failed ? b->env->take(b->env, more * item, 64) : NULL;
    if (!bigger) {
        b->failed = true;
        return false;
    }
    if (*room) {
        memcpy(bigger, *memory, *room * item);
        b->env->give(b->env, *memory, *room * item);
    }
    *memory = bigger;
    *room = more;
    return true;
}

uint16_t build_peer(struct build *b, int32_t rank)
{
    uint16_t at = b->program.peers;
    void *memory = b->peer;
    if (rank < 0 || rank >= b->spec.size || at == BUILD_PEERS_MAX) {
        b->failed = true;
        return 0;
    }
    if (at == b->peer_room && !grow(b, &memory, &b->peer_room, BUILD_PEERS_FIRST, BUILD_PEERS_MAX, sizeof *b->peer))
        return 0;
    b->peer = memory;
    b->peer[b->program.peers++] = (uint32_t)rank;
    return at;
}

uint16_t build_peers(struct build *b, int32_t first, int32_t count)
{
    uint16_t at = b->program.peers;
    for (int32_t j = 0; j < count; j++)
        build_peer(b, (first + j) % b->spec.size);
    return at;
}

void build_edge(struct build *b, uint16_t edge, uint8_t kind)
{
    bool stream = !(kind & WIRE_ONCE), second = false;

    for (uint16_t e = 0; kind == WIRE_ONCE && e < b->program.edges; e++)
        second |= e != edge && b->program.edge[e] == WIRE_ONCE;
    if (edge >= PROGRAM_EDGES_MAX || second || (stream && (edge >= WIRE_STREAM_EDGES || !b->program.chunk_unit))) {
        b->failed = true;
        return;
    }
    b->program.edge[edge] = kind;
    if (b->program.edges <= edge)
        b->program.edges = (uint16_t)(edge + 1);
}

void build_step(struct build *b, struct comm_step step)
{
    void *memory = b->step;
    if (!b->in_lane)
        b->failed = true;
    if (b->program.steps == b->step_room && !grow(b, &memory, &b->step_room, BUILD_STEPS_FIRST, BUILD_STEPS_MAX, sizeof *b->step))
        return;
    b->step = memory;
    b->step[b->program.steps++] = step;
}

void build_lane(struct build *b)
{
    if (b->in_lane || b->program.lanes == PROGRAM_LANES_MAX) {
        b->failed = true;
        return;
    }
    b->in_lane = true;
    b->program.lane[b->program.lanes++] = b->program.steps;
}

void build_lane_end(struct build *b)
{
    BUILD_STEP(b, .code = STEP_END);
    if (b->loops)
        b->failed = true;
    b->in_lane = false;
}

static void open_loop(struct build *b, struct comm_step step)
{
    if (b->loops == BUILD_LOOPS_MAX) {
        b->failed = true;
        return;
    }
    b->loop[b->loops++] = b->program.steps;
    build_step(b, step);
}

void build_loop_over(struct build *b, struct comm_ref ref)
{
    if (!b->program.chunk_unit || !b->program.ragged)
        b->failed = true;
    open_loop(b, (struct comm_step){.code = STEP_LOOP, .flags = STEP_CHUNKED, .src = ref});
}

void build_loop_chunks(struct build *b)
{
    if (!b->program.chunk_unit || b->program.ragged)
        b->failed = true;
    open_loop(b, (struct comm_step){.code = STEP_LOOP, .flags = STEP_CHUNKED});
}

void build_loop(struct build *b, uint32_t trips)
{
    if (!trips)
        b->failed = true;
    open_loop(b, (struct comm_step){.code = STEP_LOOP, .src = {.count = trips}});
}

void build_loop_end(struct build *b)
{
    if (!b->loops || b->failed) {
        b->failed = true;
        return;
    }
    uint16_t at = b->loop[--b->loops];
    struct comm_step end = b->step[at];
    end.code = STEP_END;
    end.aside = (uint16_t)(at + 1);
    build_step(b, end);
    if (!b->failed)
        b->step[at].aside = b->program.steps;
}

void build_chunks_lane(struct build *b)
{
    build_lane(b);
    build_loop_chunks(b);
}

void build_chunks_lane_end(struct build *b)
{
    build_loop_end(b);
    build_lane_end(b);
}

/* ------------------------------------------------------------------------------------------------------------ checking the form */
/* How far a ref's index moves beyond its first as k advances. */
static uint32_t reach_of(const struct build *b, const struct comm_ref *ref)
{
    uint32_t turns = b->program.depth ? b->program.depth - 1u : 0;
    return ref->inner > 0 ? turns * (uint16_t)ref->inner : 0;
}

static bool ref_fits(const struct build *b, const struct comm_ref *ref, bool chunked)
{
    uint32_t unit = ref->unit & (UNIT_PARTIAL - 1u), last = ref->first + reach_of(b, ref);
    switch (ref->buf) {
    case BUF_IN:
    case BUF_OUT:
        if (unit == UNIT_SLICE && ref->first >= (uint32_t)b->program.slices * (b->program.each_block ? (uint32_t)b->spec.size : 1))
            return false;
        if (unit == UNIT_WHOLE)
            return ref->buf == BUF_IN && ref->count == 1 && !chunked;
        if (unit == UNIT_BRIEF)
            return b->program.brief && b->program.ragged && ref->count == 1 && !ref->inner && !chunked;
        if (chunked && unit != b->program.chunk_unit && !(b->program.swaps && unit == UNIT_BLOCK))
            return false;
        return (unit == UNIT_SLICE || unit == UNIT_BLOCK) && ref->count == 1 && !ref->inner;
    case BUF_SCRATCH:
        return (unit == UNIT_SLICE || unit == UNIT_BLOCK) && last < b->program.scratch && !ref->outer &&
               (chunked || !b->program.chunk_unit);
    case BUF_VIEW:
        return ref->count && last + ref->count <= PROGRAM_VIEWS_MAX && !ref->outer && !(unit == UNIT_BLOCK && chunked);
    default:
        return false;
    }
}

static bool peers_fit(const struct build *b, const struct comm_step *s)
{
    bool own = s->code == STEP_VIEW && !(s->flags & STEP_LAND);
    if (!s->npeers || s->peer + s->npeers > b->program.peers || s->edge >= PROGRAM_EDGES_MAX)
        return false;
    for (uint32_t j = 0; j < s->npeers; j++) {
        bool self = b->peer[s->peer + j] == (uint32_t)b->spec.rank;
        if (self ? !own : s->edge >= b->program.edges)
            return false;
    }
    return true;
}

/* A rank can keep what it exposes of IN, at a place of OUT that is cut in the same way. */
static bool keep_fits(const struct build *b, const struct comm_step *s, bool chunked)
{
    return s->dst.buf == BUF_OUT && s->src.buf == BUF_IN && s->dst.unit == s->src.unit && ref_fits(b, &s->dst, chunked);
}

static bool step_fits(const struct build *b, const struct comm_step *s)
{
    bool chunked = s->flags & STEP_CHUNKED;
    if (s->wait >= PROGRAM_COUNTERS || s->bump >= PROGRAM_COUNTERS)
        return false;
    if (s->flags & STEP_EACH && s->turn >= s->turns)
        return false;
    switch (s->code) {
    case STEP_EXPOSE:
        /* A stream consists of chunks; partial results travel on it only if chunks are cut for the accumulator. */
        if (!(b->program.edge[s->edge % PROGRAM_EDGES_MAX] & WIRE_ONCE) && (!chunked || (s->src.unit & UNIT_PARTIAL && !b->program.wide)))
            return false;
        return peers_fit(b, s) && ref_fits(b, &s->src, chunked) && (!s->dst.buf || keep_fits(b, s, chunked));
    case STEP_VIEW:
        if (s->flags & STEP_LAND && s->dst.buf == BUF_SCRATCH &&
            (s->dst.step < 0 || s->dst.first + reach_of(b, &s->dst) + (uint16_t)s->dst.step * (s->npeers - 1u) >= b->program.scratch))
            return false;
        if (s->flags & STEP_LAND)
            return peers_fit(b, s) && (s->dst.buf == BUF_OUT || s->dst.buf == BUF_SCRATCH) && ref_fits(b, &s->dst, chunked);
        if (s->src.buf == BUF_VIEW && (s->npeers != 1 || s->src.count != 1 || b->peer[s->peer] != (uint32_t)b->spec.rank))
            return false; /* a second name for one view, on this rank */
        return peers_fit(b, s) && s->dst.buf == BUF_VIEW && s->dst.count == s->npeers && ref_fits(b, &s->dst, chunked) &&
               ref_fits(b, &s->src, chunked);
    case STEP_RELEASE:
        return s->src.buf == BUF_VIEW && ref_fits(b, &s->src, chunked);
    case STEP_COPY:
        return s->dst.buf != BUF_VIEW && ref_fits(b, &s->dst, chunked) && ref_fits(b, &s->src, chunked);
    case STEP_REDUCE:
        return s->src.buf == BUF_VIEW && s->dst.buf != BUF_VIEW && ref_fits(b, &s->src, chunked) && ref_fits(b, &s->dst, chunked) &&
               !(s->flags & STEP_FINAL && s->dst.unit & UNIT_PARTIAL) && (s->flags & STEP_FINAL || s->dst.unit & UNIT_PARTIAL);
    case STEP_LOOP:
    case STEP_END:
        return true;
    default:
        return false;
    }
}

/* An answer replaces what the other rank of two exposed on the edge before, a private stream, and what is then released: one of the two
 * views that a REDUCE has used up, or the view that a COPY has taken and that the next EXPOSE answers with other bytes. */
static bool may_answer(const struct build *b, uint32_t at)
{
    const struct comm_step *s = &b->step[at], *next = s + 1, *answer = s->code == STEP_COPY ? next : &b->step[s->aside];

    if (b->spec.size != 2 || at + 2 >= b->program.steps || !answer->edge || b->program.edge[answer->edge - 1])
        return false;
    if (s->code == STEP_COPY)
        return s->src.buf == BUF_VIEW && s->src.count == 1 && next->code == STEP_EXPOSE && next->flags & STEP_TEE && next->npeers == 1 &&
               next->src.buf != BUF_VIEW && next[1].code == STEP_RELEASE && next[1].src.first == s->src.first;
    return next->code == STEP_RELEASE && s->flags & STEP_TEE && s->flags & STEP_FINAL && s->src.count == 2;
}

/* A REDUCE with TEE feeds the next EXPOSE of its lane, which must have TEE too and name the same bytes. */
static bool join_tee(struct build *b, uint32_t at)
{
    uint32_t next = at + 1;
    while (next < b->program.steps && b->step[next].code == STEP_RELEASE)
        next++;
    if (next == b->program.steps || b->step[next].code != STEP_EXPOSE || !(b->step[next].flags & STEP_TEE))
        return false;
    b->step[at].aside = (uint16_t)next;
    return !memcmp(&b->step[at].dst, &b->step[next].src, sizeof b->step[at].dst);
}

/* Bits of the view slots that a ref names in all turns. */
static uint64_t slots_of(const struct build *b, const struct comm_ref *ref)
{
    uint64_t slots = 0;
    uint32_t turns = b->program.depth ? b->program.depth : 1;
    for (uint32_t turn = 0; ref->buf == BUF_VIEW && turn < turns; turn++) {
        for (uint32_t j = 0; j < ref->count; j++)
            slots |= UINT64_C(1) << (((int32_t)(ref->first + j) + ref->inner * (int32_t)turn) & (PROGRAM_VIEWS_MAX - 1));
    }
    return slots;
}

static bool lanes_cross(const struct build *b)
{
    for (uint32_t l = 0; l < b->program.lanes; l++) {
        uint32_t end = l + 1u < b->program.lanes ? b->program.lane[l + 1] : b->program.steps;
        uint64_t asked = 0, read = 0;
        for (uint32_t at = b->program.lane[l]; at < end; at++) {
            asked |= slots_of(b, &b->step[at].dst);
            read |= slots_of(b, &b->step[at].src);
        }
        if (read & ~asked)
            return true;
    }
    return false;
}

static bool check_form(struct build *b)
{
    uint32_t views = 0;
    if (b->failed || b->in_lane || b->loops || !b->program.lanes)
        return false;
    for (uint32_t at = 0; at < b->program.steps; at++) {
        const struct comm_step *s = &b->step[at];
        if (!step_fits(b, s) || (s->code == STEP_REDUCE && s->flags & STEP_TEE && !join_tee(b, at)) ||
            (s->flags & STEP_ANSWER && !may_answer(b, at)))
            return false;
        if (s->wait || s->bump)
            b->program.counters = 1;
        if (s->code == STEP_VIEW && s->dst.buf == BUF_VIEW) {
            uint32_t end = s->dst.first + s->dst.count + reach_of(b, &s->dst);
            views = end > views ? end : views;
        }
    }
    b->program.views = (uint16_t)views;
    b->program.crossing = lanes_cross(b);
    return true;
}

/* Packs peers as 16 bits each if ranks fit. */
static void pack_peers(const struct build *b, struct comm_program *program, void *to, bool wide)
{
    uint16_t *narrow = to;
    if (wide) {
        memcpy(to, b->peer, b->program.peers * sizeof *b->peer);
        program->peer_wide = to;
        return;
    }
    for (uint32_t i = 0; i < b->program.peers; i++)
        narrow[i] = (uint16_t)b->peer[i];
    program->peer = narrow;
}

static struct comm_program *pack(const struct build *b)
{
    size_t head = (sizeof(struct comm_program) + 63) & ~(size_t)63;
    bool wide = b->spec.size > UINT16_MAX + 1;
    size_t steps = b->program.steps * sizeof(struct comm_step), peers = b->program.peers * (wide ? sizeof(uint32_t) : sizeof(uint16_t));
    struct comm_program *program = b->env->take(b->env, head + steps + peers, 64);
    if (!program)
        return NULL;
    char *memory = (char *)program;
    *program = b->program;
    program->bytes = (uint32_t)(head + steps + peers);
    program->references = 1;
    memcpy(memory + head, b->step, steps);
    program->step = (const struct comm_step *)(const void *)(memory + head);
    pack_peers(b, program, memory + head + steps, wide && b->program.peers);
    return program;
}

struct comm_program *build_end(struct build *b)
{
    if (!b)
        return NULL;
    const struct comm_env *env = b->env;
    struct comm_program *program = check_form(b) ? pack(b) : NULL;
    if (b->step_room)
        env->give(env, b->step, b->step_room * sizeof *b->step);
    if (b->peer_room)
        env->give(env, b->peer, b->peer_room * sizeof *b->peer);
    env_give_back(env, b->notes, b->notes_bytes);
    env->give(env, b, sizeof *b);
    return program;
}

void program_free(const struct comm_env *env, struct comm_program *program)
{
    if (program)
        env->give(env, program, program->bytes);
}
