/*
 * Operations on device buffers. Such an operation is an entry of the queue like any other. When it starts, it takes a stage, and its input
 * is copied there (copies.c). Then it runs on the stage, as a program or in a library. Then its output is copied to the device, and it
 * ends. So the queue provides order, deadlines, failure and requests, and the code that runs the operation sees only host memory.
 */
#include "staged/copies.h"

#include "base/format.h"

enum { RUNNING_LEAST = 4, RUNNING_BYTES = 32 << 20 }; /* this many run at once, and more if they need no more memory than this */

/* ------------------------------------------------------------------------------------------------------------ copies */
/* The end of a copy wakes no thread, so sleepers must poll. */
static void note_copying(struct comm_state *b, struct stage *stage, bool copying)
{
    if (stage->noted == copying)
        return;
    stage->noted = copying;
    b->staged.copying += copying ? 1 : UINT32_MAX;
    b->staged.asked_ns = b->staged.copying ? b->staged.asked_ns : 0;
    engine_need_polls(b->unit.engine, copying);
}

/* A device that a fault has stopped tells nothing, so it is asked. */
static bool has_stopped(struct comm_state *b, const struct stage *stage)
{
    return !staging_rests(stage) && staging_has_stopped(b->staged.pool, stage, &b->staged.asked_ns);
}

enum comm_result staged_note(struct comm_state *b, struct stage *stage)
{
    note_copying(b, stage, !staging_reached(stage));
    if (!has_stopped(b, stage))
        return COMM_OK;
    staged_failed(b, NULL, COMM_ERR_BACKEND);
    return COMM_ERR_BACKEND;
}

/* ------------------------------------------------------------------------------------------------------------ one operation */
enum step { STEP_FETCH, STEP_RUN, STEP_STORE, STEP_OVER };

void staged_failed(struct comm_state *b, const struct entry *e, enum comm_result result)
{
    state_propose(b, &(struct cause){.number = e ? e->seq : b->sequence,
                                     .rank = b->team.rank,
                                     .peer = b->team.rank,
                                     .result = result,
                                     .collective = e ? e->record.collective : 0,
                                     .point = 1});
}

/* A library takes operations in order. True: it has not got an earlier one yet, which is still fetched. */
static bool is_behind(const struct comm_state *b, uint64_t ticket, const struct entry *e)
{
    if (e->by != ENTRY_BY_NATIVE || e->stage->cause != STEP_FETCH || b->staged.fetching < 2)
        return false;
    for (uint64_t t = b->line.done + 1; t < ticket; t++) {
        const struct entry *earlier = state_entry(b, t);
        if (earlier->by == ENTRY_BY_NATIVE && earlier->stage && earlier->stage->cause == STEP_FETCH)
            return true;
    }
    return false;
}

/* True: something moved. */
static bool move_on(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    struct stage *stage = e->stage;
    enum device_way way = stage->cause == STEP_FETCH ? DEVICE_IN : DEVICE_OUT;
    enum comm_result r = staging_reached(stage) ? COMM_OK : COMM_PENDING;

    if (stage->copy == STAGE_WAITING)
        r = copies_begin(b, e, way);
    if (r == COMM_PENDING && has_stopped(b, stage))
        r = COMM_ERR_BACKEND;
    if (r == COMM_OK && is_behind(b, ticket, e))
        r = COMM_PENDING;
    note_copying(b, stage, r == COMM_PENDING);
    if (r == COMM_PENDING)
        return false;
    if (r == COMM_OK)
        stage->copy = STAGE_NONE;
    if (r != COMM_OK) {
        staged_failed(b, e, r);
        return true;
    }
    stage->cause++;
    if (stage->cause == STEP_RUN && e->by == ENTRY_BY_NATIVE)
        b->staged.fetching--;
    if (stage->cause == STEP_RUN)
        state_begin_work(b, ticket, e);
    else
        state_end_work(b, ticket, e);
    return true;
}

/* Limits the operations that run at once: a few are enough to overlap fetch, exchange and store, and more would only take memory. They end
 * in order, so the oldest one never waits for another. */
static bool may_not_start(const struct comm_state *b, const struct entry *e)
{
    if (BASE_LIKELY(b->staged.running < RUNNING_LEAST))
        return false;
    size_t bytes = (e->on_device & CALL_IN_ON_DEVICE ? entry_bytes(e, &e->head.read) : 0) +
                   (e->on_device & CALL_OUT_ON_DEVICE ? entry_bytes(e, &e->head.write) : 0);
    return b->staged.bytes + bytes > RUNNING_BYTES;
}

static void forget(struct comm_state *b, struct entry *e)
{
    b->staged.running--;
    b->staged.bytes -= e->stage->bytes;
    b->staged.fetching -= e->by == ENTRY_BY_NATIVE && e->stage->cause == STEP_FETCH;
    staged_give(b, e->stage);
    e->stage = NULL;
}

/* With places. If the buffer is not within the other one, it is behind it: blocks that overlap need more room dense than apart. */
static uintptr_t dense_block(const struct comm_state *b, const struct entry *e, uintptr_t at)
{
    const struct timeline_range *all = entry_blocks(e);
    bool within = at - all->from < all->to - all->from;

    return all->from + (within ? e->call.displs[b->team.rank] * data_type_bytes(e->call.type) : e->packed);
}

/* Where an address of the caller's buffers, in this range, would be if the blocks of a part were dense. A buffer within the other one, as
 * in an operation in place, is a block of it. */
static uintptr_t dense_in_part(const struct comm_state *b, const struct entry *e, const struct timeline_range *range, uintptr_t at)
{
    const struct timeline_range *read = &e->head.read, *write = &e->head.write;
    const struct timeline_range *all = read->to - read->from > write->to - write->from ? read : write;
    uintptr_t within = at - all->from;

    if (e->places)
        return range == entry_blocks(e) ? at : dense_block(b, e, at);
    if (within >= all->to - all->from)
        return at;
    return all->from + within / e->pitch * (e->call.n * data_type_bytes(e->call.type));
}

static inline uintptr_t dense(const struct comm_state *b, const struct entry *e, const struct timeline_range *range, uintptr_t at)
{
    return BASE_LIKELY(!entry_in_blocks(e)) ? at : dense_in_part(b, e, range, at);
}

static struct stage_side side_of(const struct comm_state *b, const struct entry *e, const struct timeline_range *range, uint8_t staged)
{
    return (struct stage_side){dense(b, e, range, range->from), e->on_device & staged ? entry_bytes(e, range) : 0, NULL};
}

static void *in_in_stage(const struct comm_state *b, const struct entry *e)
{
    const struct stage_side *side = &e->stage->in;
    uintptr_t in = (uintptr_t)e->call.in;

    return side->at ? staging_at(side, (const void *)dense(b, e, &e->head.read, in)) : (void *)in;
}

/* The root of a scatter in place writes nothing: its `out` is a block of its input. */
static void *out_in_stage(const struct comm_state *b, const struct entry *e)
{
    const struct stage *stage = e->stage;
    uintptr_t out = dense(b, e, &e->head.write, (uintptr_t)e->call.out);
    const struct stage_side *side = !stage->out.at && out - stage->in.from < stage->in.bytes ? &stage->in : &stage->out;

    return side->at ? staging_at(side, (const void *)out) : e->call.out;
}

static void start(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    struct stage_side in = side_of(b, e, &e->head.read, CALL_IN_ON_DEVICE), out = side_of(b, e, &e->head.write, CALL_OUT_ON_DEVICE);

    e->record.started_ns = state_now(b);
    e->stage = staging_take(b->staged.pool, &in, &out);
    if (!e->stage) {
        state_propose_own(b, e, COMM_ERR_MEMORY, 0);
        return;
    }
    b->staged.running++;
    b->staged.bytes += e->stage->bytes;
    b->staged.fetching += e->by == ENTRY_BY_NATIVE;
    e->call.in = in_in_stage(b, e);
    e->call.out = out_in_stage(b, e);
    e->stage->cause = STEP_FETCH;
    e->stage->copy = STAGE_WAITING;
    (void)move_on(b, ticket, e);
}

static bool stored(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    if (e->stage->cause == STEP_OVER)
        return true;
    e->stage->cause = STEP_STORE;
    e->stage->copy = STAGE_WAITING;
    (void)move_on(b, ticket, e);
    return false;
}

static bool step(struct comm_state *b)
{
    bool moved = false;

    for (uint64_t t = b->line.done + 1; t <= b->line.started && b->staged.copying && !b->failed && !b->failure.proposal.result; t++) {
        struct entry *e = state_entry(b, t);
        if (e->stage && e->stage->noted)
            moved |= move_on(b, t, e);
    }
    return moved;
}

/* ------------------------------------------------------------------------------------------------------------ before issuing */
/* Does the device own all of the range that the call touches? */
static bool within(const struct comm_state *b, const struct timeline_range *range)
{
    return staging_spans(b->staged.pool, (const void *)range->from, range->to - range->from);
}

/* Which buffers of a part have several blocks, as CALL_*_ON_DEVICE. What does the operation expects them dense, so they need a stage
 * wherever they are. */
static uint8_t has_gaps(const struct entry *e)
{
    const struct timeline_range *read = &e->head.read, *write = &e->head.write;

    if (BASE_LIKELY(!entry_in_blocks(e)))
        return 0;
    if (e->places)
        return entry_blocks(e) == read ? CALL_IN_ON_DEVICE : CALL_OUT_ON_DEVICE;
    return (uint8_t)((entry_bytes(e, read) != read->to - read->from ? CALL_IN_ON_DEVICE : 0) |
                     (entry_bytes(e, write) != write->to - write->from ? CALL_OUT_ON_DEVICE : 0));
}

/* Which of the buffers need a stage: all, except those that a library, if it does the call, can use where they are. */
static uint8_t foreign_to_doer(struct comm_state *b, const struct engine_call *call, const struct entry *e)
{
    uint8_t foreign = call->on_device & CALL_ON_DEVICE, gaps = has_gaps(e), hosts = gaps & (uint8_t)~foreign;

    if (BASE_LIKELY(!(b->library_work.flags & NATIVE_DEVICE)) || e->by != ENTRY_BY_NATIVE || gaps)
        return (uint8_t)(foreign | gaps | hosts * CALL_IN_BY_CPU);
    size_t align = data_type_bytes(call->type);
    if (b->native->native->class->reaches(b->native, call->in, align))
        foreign &= (uint8_t)~CALL_IN_ON_DEVICE;
    if (b->native->native->class->reaches(b->native, call->out, align))
        foreign &= (uint8_t)~CALL_OUT_ON_DEVICE;
    return foreign;
}

static enum comm_result prepare(struct comm_state *b, const struct engine_call *call, struct entry *e)
{
    char *text = b->failure.last_refused.text;
    size_t room = sizeof b->failure.last_refused.text;
    enum comm_result r = staging_open(&b->staged.pool, b->unit.engine, text, room);

    if (r != COMM_OK)
        return r;
    bool in_sound = call->on_device & CALL_IN_WHOLE || !(call->on_device & CALL_IN_ON_DEVICE) || within(b, &call->read);
    bool out_sound = call->on_device & CALL_OUT_WHOLE || !(call->on_device & CALL_OUT_ON_DEVICE) || within(b, &call->write);
    if (!in_sound || !out_sound) {
        const struct timeline_range *range = in_sound ? &call->write : &call->read;
        base_format(text, room, "%s: %s=0x%llx; expected %llu bytes of a device's memory: it ends before",
                    collective_name(call->collective), in_sound ? "out" : "in", (unsigned long long)range->from,
                    (unsigned long long)(range->to - range->from));
        return COMM_ERR_ARGUMENT;
    }
    e->on_device = foreign_to_doer(b, call, e);
    if (e->on_device)
        e->record.flags |= COMM_INFO_STAGED;
    return COMM_OK;
}

struct comm_state *staged_open(struct comm_state *b, enum comm_result *r, char *text, size_t bytes)
{
    struct comm_communicator *c = b->unit.handle;
    struct engine *e = b->unit.engine;

    if (atomic_load_explicit(&e->streams.device, memory_order_acquire))
        return b;
    engine_hold(e);
    state_unlock(b);
    struct device *d = staging_device(e, r, text, bytes);
    engine_drop(e);
    return d ? state_lock(c, r) : NULL;
}

/* ------------------------------------------------------------------------------------------------------------ giving stages back */
bool staged_is_device(const struct comm_state *b, const void *at)
{
    return staging_is_device(b->unit.engine, at);
}

/* As CALL_IN_*. If the range begins behind `at`, `prepare` looks at it. */
static uint8_t ask(const struct comm_state *b, const void *at, const struct timeline_range *range)
{
    bool whole, empty = range->from == range->to, begins = (uintptr_t)at == range->from;
    bool is = staging_is_extent(b->unit.engine, at, empty || !begins ? 1 : range->to - range->from, &whole);

    return (uint8_t)(!is ? 0 : whole && (empty || begins) ? CALL_IN_ON_DEVICE | CALL_IN_WHOLE : CALL_IN_ON_DEVICE);
}

uint8_t staged_ask(const struct comm_state *b, const struct engine_call *call, uint8_t of)
{
    const struct timeline_range *read = &call->read, *write = &call->write;
    bool one = call->in == call->out && (read->from == read->to || write->from == write->to || read->from == write->from);
    uint8_t in, out;

    if (one) { /* in place, or only one of the two is used */
        in = out = ask(b, call->in, read->to - read->from > write->to - write->from ? read : write);
    } else {
        in = of & CALL_IN_ON_DEVICE ? ask(b, call->in, read) : 0;
        out = of & CALL_OUT_ON_DEVICE ? ask(b, call->out, write) : 0;
    }
    return (uint8_t)(in | out << 1);
}

void staged_give(struct comm_state *b, struct stage *stage)
{
    note_copying(b, stage, false);
    staging_give(b->staged.pool, stage);
}

uint32_t staged_held(const struct stage *stage)
{
    return stage && !staging_rests(stage) ? COMM_INFO_BUFFERS_HELD : 0;
}

bool staged_holds(struct comm_state *b)
{
    return b->staged.pool && staging_is_busy(b->staged.pool);
}

/* A library that has not ended may still use any stage, so then none is freed. */
static void close(struct comm_state *b)
{
    uint32_t left = b->staged.pool && !b->library_work.held ? staging_close(b->staged.pool) : 0;

    b->staged.pool = NULL;
    if (left)
        base_log(&b->unit.engine->log, LOG_WARNING,
                 "comm=%s closed while a device may still use the memory of %u operations: kept on purpose", b->name, left);
}

/* ------------------------------------------------------------------------------------------------------------ the part */
static const struct staged_calls calls = {
    .prepare = prepare,
    .may_not_start = may_not_start,
    .start = start,
    .stored = stored,
    .step = step,
    .forget = forget,
    .held = staged_held,
};

static enum comm_result open(struct comm_state *b, struct team_offer *offer)
{
    (void)offer;
    b->staged.calls = &calls;
    return COMM_OK;
}

const struct comm_part staged_part = {.name = "staged", .open = open, .close = close};
