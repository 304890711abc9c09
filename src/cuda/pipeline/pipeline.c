/* The steps of a pipeline: what each may wait for, what it puts on the device, and the ends of calls. */
#include "cuda/pipeline/pipeline.h"

#include "base/hash.h"
#include "cuda/kernels.h"
#include "cuda/ring.h"

enum { BLOCK_ALIGN = 256 };

/* ------------------------------------------------------------------------------------------------------------ making and freeing */
static bool make_stream(struct pipeline *p)
{
    struct cuda_inside inside;

    if (!cuda_begin(p->is.d, &inside))
        return false;
    unsigned result = cuda_make_stream(p->is.d, 1, &p->stream);
    cuda_end(p->is.d, &inside);
    return result == CUDA_OK;
}

struct pipeline *pipeline_make(const struct pipeline_config *config)
{
    struct pipeline *p = config->env->take(config->env, sizeof *p, 64);

    if (!p)
        return NULL;
    *p = (struct pipeline){.is = *config};
    if (make_stream(p))
        return p;
    config->env->give(config->env, p, sizeof *p);
    return NULL;
}

void pipeline_free(struct pipeline *p)
{
    const struct comm_env *env = p->is.env;
    struct cuda_inside inside;

    if (cuda_begin(p->is.d, &inside)) {
        p->is.d->calls->cuStreamDestroy(p->stream);
        cuda_end(p->is.d, &inside);
    }
    env_give_back(env, p->calls, p->room * sizeof *p->calls);
    env->give(env, p, sizeof *p);
}

/* ------------------------------------------------------------------------------------------------------------ calls */
static bool kind_of(uint32_t collective, uint32_t *kind)
{
    *kind = collective == COLLECTIVE_ALLREDUCE ? PIPELINE_SUM : collective == COLLECTIVE_ALLGATHER ? PIPELINE_GATHER : PIPELINE_SCATTER;
    return *kind != PIPELINE_SCATTER || collective == COLLECTIVE_REDUCE_SCATTER;
}

bool pipeline_serves(const struct native_call *call, uint32_t ranks, size_t least_bytes)
{
    size_t blocks = call->collective == COLLECTIVE_ALLREDUCE ? 1 : ranks;
    uint32_t kind;

    return kind_of(call->collective, &kind) && (kind == PIPELINE_GATHER || fold_has(call->type, call->op)) &&
           call->n >= (least_bytes + call->element_bytes * blocks - 1) / (call->element_bytes * blocks);
}

static struct pipeline_call *call_at(const struct pipeline *p, uint64_t number)
{
    return &p->calls[number & (p->room - 1)];
}

/* Chunks of one call have the same length, except for the last one; all ranks cut alike. */
static void cut(const struct pipeline *p, struct pipeline_call *call)
{
    uint64_t ranks = p->is.ranks, together = call->kind == PIPELINE_SUM ? ranks : 1; /* blocks that `bytes` are cut into, of a chunk */
    uint64_t most = PIPELINE_CHUNK_BYTES / (ranks > 1 ? ranks : 2) / BLOCK_ALIGN * BLOCK_ALIGN * together;
    uint64_t chunks = (call->bytes + most - 1) / most, each = (call->bytes + chunks - 1) / chunks;

    call->chunks = (uint32_t)chunks;
    call->block = ((each + together - 1) / together + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    call->end = (p->issued ? call_at(p, p->issued - 1)->end : 0) + chunks;
}

static struct pipeline_call call_of(const struct pipeline *p, const struct native_call *call)
{
    struct pipeline_call made = {.in = call->in,
                                 .out = call->out,
                                 .bytes = (uint64_t)call->n * call->element_bytes,
                                 .cookie = call->cookie,
                                 .type = call->type,
                                 .op = call->op};

    (void)kind_of(call->collective, &made.kind);
    made.stride = made.kind == PIPELINE_SUM ? 0 : made.bytes;
    made.fingerprint = (uint32_t)base_hash(base_hash(made.bytes, made.type), (uint64_t)made.kind << 32 | made.op);
    cut(p, &made);
    return made;
}

enum comm_result pipeline_start(struct pipeline *p, const struct native_call *call)
{
    uint64_t oldest = p->told ? p->told - 1 : 0; /* the one before the next is read by call_of */

    if (p->issued - oldest >= p->room) {
        struct pipeline_call *more = cuda_ring_grow(p->is.env, p->calls, &p->room, sizeof *more, oldest, p->issued);
        if (!more)
            return COMM_ERR_MEMORY;
        p->calls = more;
    }
    struct pipeline_call made = call_of(p, call);
    *call_at(p, p->issued++) = made;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ blocks */
/* Bytes from `at` on. */
struct span {
    uint64_t at, bytes;
};

/* What a chunk has of a rank: in the longer buffer, if one is longer. */
static struct span block_of(const struct pipeline *p, const struct pipeline_call *call, uint64_t chunk, uint32_t rank)
{
    uint64_t index = chunk - (call->end - call->chunks);
    uint64_t at = call->kind == PIPELINE_SUM ? (index * p->is.ranks + rank) * call->block : index * call->block;
    uint64_t left = at < call->bytes ? call->bytes - at : 0;

    return (struct span){rank * call->stride + at, left < call->block ? left : call->block};
}

/* Where the own block is in the shorter one. */
static uint64_t own_at(const struct pipeline *p, const struct pipeline_call *call, uint64_t chunk)
{
    return block_of(p, call, chunk, p->is.rank).at - p->is.rank * call->stride;
}

/* Where a rank's pages have a block that it sends, and one that it has reduced. */
static uint64_t sent_at(const struct pipeline_call *call, uint64_t chunk, uint32_t block)
{
    return chunk % PIPELINE_SLOTS * PIPELINE_CHUNK_BYTES + block * call->block;
}

static uint64_t sum_at(uint64_t chunk)
{
    return PIPELINE_SLOTS * (uint64_t)PIPELINE_CHUNK_BYTES + chunk % PIPELINE_SLOTS * PIPELINE_SUM_BYTES;
}

/* ------------------------------------------------------------------------------------------------------------ what a step waits for */
static uint64_t done(const struct pipeline *p, uint32_t rank, enum pipeline_step step)
{
    return atomic_load_explicit(&p->is.words[rank]->done[step], memory_order_acquire);
}

/* All ranks, this one too, have done the step for all chunks before `least`. */
static bool all_done(const struct pipeline *p, enum pipeline_step step, uint64_t least)
{
    for (uint32_t r = 0; r < p->is.ranks; r++)
        if (done(p, r, step) < least)
            return false;
    return true;
}

static bool has_slot(const struct pipeline *p, enum pipeline_step frees, uint64_t chunk)
{
    return chunk < PIPELINE_SLOTS || all_done(p, frees, chunk + 1 - PIPELINE_SLOTS);
}

/* A slot that is free on all ranks is free on this one: so is its place. */
static bool may_begin(const struct pipeline *p, enum pipeline_step step, uint64_t chunk)
{
    if (step == PIPELINE_SEND)
        return has_slot(p, PIPELINE_REDUCE, chunk);
    if (step == PIPELINE_REDUCE)
        return all_done(p, PIPELINE_SEND, chunk + 1) && has_slot(p, PIPELINE_TAKE, chunk);
    return all_done(p, PIPELINE_REDUCE, chunk + 1);
}

/* ------------------------------------------------------------------------------------------------------------ calls that differ */
static uint64_t mark_of(const struct pipeline_call *call, uint64_t number)
{
    return (number + 1) << 32 | call->fingerprint;
}

/* Before the first chunk is sent. */
static void mark(struct pipeline *p, uint64_t number)
{
    atomic_store_explicit(&p->is.words[p->is.rank]->mark[number % PIPELINE_MARKS], mark_of(call_at(p, number), number),
                          memory_order_release);
}

/* All calls before this one were the same on all ranks. So its first chunk is the first of the same call of each peer. */
static bool all_marked(const struct pipeline *p, uint64_t number)
{
    uint64_t mine = mark_of(call_at(p, number), number);

    for (uint32_t r = 0; r < p->is.ranks; r++)
        if (atomic_load_explicit(&p->is.words[r]->mark[number % PIPELINE_MARKS], memory_order_acquire) != mine)
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ steps */
struct moves {
    struct device_piece piece[ONESHOT_RANKS];
    uint32_t count;
};

/* Neighbours are one piece. */
static void add(struct moves *m, char *to, const char *from, size_t bytes)
{
    struct device_piece *last = m->count ? &m->piece[m->count - 1] : NULL;

    if (last && (char *)last->to + last->bytes == to && (const char *)last->from + last->bytes == from)
        last->bytes += bytes;
    else if (bytes)
        m->piece[m->count++] = (struct device_piece){to, from, bytes};
}

static enum comm_result move(struct pipeline *p, enum device_way way, const struct moves *m, struct device_place *place)
{
    *place = (struct device_place){NULL, 0};
    return m->count ? cuda_move_whole(&p->is.d->head, way, m->piece, m->count, place) : COMM_OK;
}

static enum comm_result send(struct pipeline *p, const struct pipeline_call *call, uint64_t chunk, struct device_place *place)
{
    struct moves m;

    m.count = 0;
    for (uint32_t r = 0; r < p->is.ranks && call->kind != PIPELINE_GATHER; r++) {
        struct span theirs = block_of(p, call, chunk, r);
        if (r != p->is.rank)
            add(&m, p->is.pages[p->is.rank] + sent_at(call, chunk, r), call->in + theirs.at, theirs.bytes);
    }
    return move(p, DEVICE_IN, &m, place);
}

/* Of an allgather: the own block goes to the own pages, and to the output. */
static enum comm_result show(struct pipeline *p, const struct pipeline_call *call, uint64_t chunk, struct device_place *place)
{
    struct span own = block_of(p, call, chunk, p->is.rank);
    const char *from = call->in + own_at(p, call, chunk);
    struct moves m;

    m.count = 0;
    if (p->is.ranks > 1)
        add(&m, p->is.pages[p->is.rank] + sum_at(chunk), from, own.bytes);
    if (from != call->out + own.at)
        add(&m, call->out + own.at, from, own.bytes);
    return move(p, DEVICE_IN, &m, place);
}

static struct combine_args combine_of(const struct pipeline *p, const struct pipeline_call *call, uint64_t chunk)
{
    struct span own = block_of(p, call, chunk, p->is.rank);
    struct combine_args a = {.to = call->out + own_at(p, call, chunk),
                             .elements = own.bytes / fold_bytes(call->type),
                             .type = call->type,
                             .op = call->op,
                             .ranks = p->is.ranks};
    uintptr_t all = (uintptr_t)a.to;

    for (uint32_t r = 0; r < p->is.ranks; r++) {
        uintptr_t there = r == p->is.rank ? (uintptr_t)(call->in + own.at) : p->is.there[r] + sent_at(call, chunk, p->is.rank);
        a.from[r] = (const char *)there;
        all |= there;
    }
    if (p->is.ranks > 1 && call->kind == PIPELINE_SUM)
        a.copy = (char *)(uintptr_t)(p->is.there[p->is.rank] + sum_at(chunk));
    a.in_pieces = p->is.ranks <= COMBINE_RANKS && !(all % ONESHOT_PIECE_BYTES);
    return a;
}

static enum comm_result launch(struct pipeline *p, const struct combine_args *a, struct device_place *place)
{
    if (!cuda_has_place(p->is.d))
        return COMM_ERR_FULL;
    unsigned result = cuda_combine(p->is.d, a, p->stream);
    if (result != CUDA_OK)
        return cuda_result(result);
    place->word = NULL;
    return cuda_place(p->is.d, p->stream, place);
}

static enum comm_result reduce(struct pipeline *p, const struct pipeline_call *call, uint64_t chunk, struct device_place *place)
{
    static _Atomic uint64_t nothing;
    struct cuda_inside inside;

    if (call->kind == PIPELINE_GATHER)
        return show(p, call, chunk, place);
    struct combine_args a = combine_of(p, call, chunk);
    *place = (struct device_place){&nothing, 0};
    if (!a.elements)
        return COMM_OK;
    if (!cuda_begin(p->is.d, &inside))
        return COMM_ERR_BACKEND;
    enum comm_result r = launch(p, &a, place);
    cuda_end(p->is.d, &inside);
    return r;
}

static enum comm_result take(struct pipeline *p, const struct pipeline_call *call, uint64_t chunk, struct device_place *place)
{
    struct moves m;

    m.count = 0;
    for (uint32_t r = 0; r < p->is.ranks && call->kind != PIPELINE_SCATTER; r++) {
        struct span theirs = block_of(p, call, chunk, r);
        if (r != p->is.rank)
            add(&m, call->out + theirs.at, p->is.pages[r] + sum_at(chunk), theirs.bytes);
    }
    return move(p, DEVICE_OUT, &m, place);
}

/* True: the next chunk of this step has begun. */
static bool begin(struct pipeline *p, enum pipeline_step step)
{
    static enum comm_result (*const begins[])(struct pipeline *, const struct pipeline_call *, uint64_t,
                                              struct device_place *) = {send, reduce, take};
    uint64_t number = p->at[step].call, chunk = p->at[step].chunk;

    if (number == p->issued || !may_begin(p, step, chunk))
        return false;
    const struct pipeline_call *call = call_at(p, number);
    bool is_first = chunk == call->end - call->chunks;
    if (step == PIPELINE_SEND && is_first)
        mark(p, number);
    if (step == PIPELINE_REDUCE && is_first && !all_marked(p, number)) {
        p->wrong = ONESHOT_DIFFERS;
        return false;
    }
    struct device_place *place = &p->at[step].place[chunk % PIPELINE_SLOTS];
    enum comm_result r = begins[step](p, call, chunk, place);
    if (r == COMM_ERR_FULL)
        return false;
    if (r != COMM_OK)
        p->wrong = PIPELINE_REFUSED;
    p->is_lost = p->is_lost || (r != COMM_OK && !place->word);
    p->at[step].chunk++;
    p->at[step].call += p->at[step].chunk == call->end;
    return true;
}

static bool is_reached(const struct device_place *place)
{
    return !place->word || atomic_load_explicit(place->word, memory_order_acquire) >= place->value;
}

/* Tells the peers of what the device has done. Of a chunk that CUDA refused in part, the place is reached too. */
static bool publish(struct pipeline *p, enum pipeline_step step)
{
    uint64_t before = done(p, p->is.rank, step), now = before;

    while (!p->wrong && now < p->at[step].chunk && is_reached(&p->at[step].place[now % PIPELINE_SLOTS]))
        now++;
    if (now != before)
        atomic_store_explicit(&p->is.words[p->is.rank]->done[step], now, memory_order_release);
    return now != before;
}

/* ------------------------------------------------------------------------------------------------------------ moving */
static bool move_step(struct pipeline *p, enum pipeline_step step)
{
    bool moved = publish(p, step);

    while (!p->wrong && begin(p, step))
        moved = true;
    return moved;
}

/* If streams cannot write words, the host asks for events, which takes longer than a look may. */
static void poll_device(const struct pipeline *p)
{
    if (p->is.d->head.polled && p->is.env->now(p->is.env) >= atomic_load_explicit(&p->is.d->rest_until, memory_order_relaxed))
        (void)device_cuda.poll(&p->is.d->head);
}

static void move_all(struct pipeline *p)
{
    if (p->has_stopped)
        return;
    poll_device(p);
    for (int turn = 0; turn < PIPELINE_STEPS; turn++) {
        bool moved = false;
        for (enum pipeline_step step = PIPELINE_SEND; step < PIPELINE_STEPS; step++)
            moved |= move_step(p, step);
        if (!moved)
            break;
    }
}

static bool has_ended(const struct pipeline *p, const struct pipeline_call *call)
{
    for (enum pipeline_step step = PIPELINE_SEND; step < PIPELINE_STEPS; step++)
        if (done(p, p->is.rank, step) < call->end)
            return false;
    return true;
}

uint32_t pipeline_advance(struct pipeline *p, struct native_event *events, uint32_t max)
{
    uint32_t count = 0;

    if (p->told == p->issued)
        return 0;
    move_all(p);
    for (; count < max && p->told < p->issued; p->told++) {
        const struct pipeline_call *call = call_at(p, p->told);
        bool is_over = has_ended(p, call);
        if (!is_over && !p->wrong)
            break;
        events[count++] =
            (struct native_event){.cookie = call->cookie, .result = is_over ? COMM_OK : COMM_ERR_BACKEND, .code = is_over ? 0 : p->wrong};
    }
    return count;
}

/* ------------------------------------------------------------------------------------------------------------ ending early */
void pipeline_break(struct pipeline *p, int32_t code)
{
    p->wrong = code;
}

void pipeline_stop(struct pipeline *p)
{
    p->has_stopped = true;
}

static bool runs(const struct pipeline *p, enum pipeline_step step)
{
    for (uint64_t chunk = done(p, p->is.rank, step); chunk < p->at[step].chunk; chunk++)
        if (!is_reached(&p->at[step].place[chunk % PIPELINE_SLOTS]))
            return true;
    return false;
}

/* No word says when it ends, so CUDA is asked whether the streams have come to their ends. */
static bool still_lost(const struct pipeline *p)
{
    const struct cuda_device *d = p->is.d;
    struct CUstream_st *const streams[] = {p->stream, d->copies[DEVICE_IN].stream, d->copies[DEVICE_OUT].stream};
    bool rest = true;
    struct cuda_inside inside;

    if (!cuda_enter(p->is.d, &inside))
        return true;
    for (size_t i = 0; i < sizeof streams / sizeof *streams && rest; i++)
        rest = !streams[i] || d->calls->cuStreamQuery(streams[i]) == CUDA_OK;
    cuda_leave(p->is.d, &inside);
    return !rest;
}

bool pipeline_runs(struct pipeline *p)
{
    poll_device(p);
    p->is_lost = p->is_lost && still_lost(p);
    return p->is_lost || runs(p, PIPELINE_SEND) || runs(p, PIPELINE_REDUCE) || runs(p, PIPELINE_TAKE);
}
