/*
 * Operations on device buffers. Such an operation is an entry of the queue like any other. When it starts, it takes a stage, and its input
 * is copied there. Then it runs on the stage, as a program or in a library. Then its output is copied to the device, and it ends. So the
 * queue provides order, deadlines, failure and requests, and the code that runs the operation sees only host memory.
 */
#include "staged/staged.h"

#include "base/format.h"

/* STAGED_PART_BYTES: of the last part, which is the shortest, at least. STAGED_PARTS_MOST: an empty queue has room for this many parts,
 * whatever its length. */
enum { PIECES = 32, STAGED_PART_BYTES = 1 << 20, STAGED_PARTS_MOST = 16 };
enum { RUNNING_LEAST = 4, RUNNING_BYTES = 32 << 20 }; /* this many run at once, and more if they need no more memory than this */

/* ------------------------------------------------------------------------------------------------------------ which bytes are copied */
/* Where the blocks of a buffer are. counts NULL: the whole address range is one block. */
struct blocks {
    const size_t *counts, *displs;
};

static struct blocks blocks_read(const struct entry *e)
{
    bool in_blocks = e->record.collective == COLLECTIVE_SCATTER_V || e->record.collective == COLLECTIVE_ALLTOALL_V;

    if (!in_blocks || !e->call.counts)
        return (struct blocks){NULL, NULL};
    return e->call.in_counts ? (struct blocks){e->call.in_counts, e->call.in_displs} : (struct blocks){e->call.counts, e->call.displs};
}

static struct blocks blocks_written(const struct entry *e)
{
    bool in_blocks = e->record.collective == COLLECTIVE_ALLGATHER_V || e->record.collective == COLLECTIVE_GATHER_V ||
                     e->record.collective == COLLECTIVE_ALLTOALL_V;

    return in_blocks ? (struct blocks){e->call.counts, e->call.displs} : (struct blocks){NULL, NULL};
}

/* The range that was written: of a broadcast_bytes only the root's length; of one that did not fit, nothing. */
static struct timeline_range range_written(const struct entry *e)
{
    struct timeline_range range = e->head.write;

    if (e->spill)
        return (struct timeline_range){0, 0};
    if (BASE_LIKELY(e->record.collective != COLLECTIVE_BROADCAST_BYTES))
        return range;
    size_t bytes = e->call.n * data_type_bytes(e->call.type);
    if (range.to - range.from > bytes)
        range.to = range.from + bytes;
    return range;
}

/* ------------------------------------------------------------------------------------------------------------ copies */
struct copies {
    struct comm_state *b;
    struct entry *entry;
    enum device_way way;
    uint32_t count;
    enum comm_result result;
    uintptr_t end; /* end of the last piece, in the caller's buffer */
    struct device_piece piece[PIECES];
};

static void begin_copies(struct copies *c)
{
    if (c->count && c->result == COMM_OK)
        c->result = staging_copy(c->b->staged.pool, c->entry->stage, c->way, c->piece, c->count);
    c->count = 0;
}

static void add_piece(struct copies *c, uintptr_t from, size_t bytes)
{
    struct stage *stage = c->entry->stage;
    const struct stage_side *side = c->way == DEVICE_IN ? &stage->in : &stage->out;
    void *theirs = (void *)from, *ours = staging_at(side, theirs);

    if (!bytes || !side->at)
        return;
    if (c->count && c->end == from) {
        c->piece[c->count - 1].bytes += bytes;
        c->end += bytes;
        return;
    }
    if (c->count == PIECES)
        begin_copies(c);
    c->piece[c->count++] = c->way == DEVICE_IN ? (struct device_piece){ours, theirs, bytes} : (struct device_piece){theirs, ours, bytes};
    c->end = from + bytes;
}

/* Starts the copies of one direction. PENDING: they are in progress, or the device has no room now. All copies of one direction use one
 * stream, so the end of the last one is the end of all. */
static enum comm_result copy(struct comm_state *b, struct entry *e, enum device_way way)
{
    struct copies c; /* the pieces are not initialised, because that would take as long as the rest */
    struct timeline_range range = way == DEVICE_IN ? e->head.read : range_written(e);
    struct blocks blocks = way == DEVICE_IN ? blocks_read(e) : blocks_written(e);
    size_t element = blocks.counts ? data_type_bytes(e->call.type) : 0;

    c.b = b;
    c.entry = e;
    c.way = way;
    c.count = 0;
    c.result = COMM_OK;
    c.end = 0;
    e->stage->copy = STAGE_NONE;
    for (int32_t r = 0; blocks.counts && r < b->team.size; r++)
        add_piece(&c, range.from + blocks.displs[r] * element, blocks.counts[r] * element);
    if (!blocks.counts)
        add_piece(&c, range.from, range.to - range.from);
    begin_copies(&c);
    if (c.result == COMM_ERR_FULL)
        return COMM_PENDING;
    if (c.result == COMM_OK && !staging_reached(e->stage))
        return COMM_PENDING;
    return c.result;
}

/* The end of a copy wakes no thread, so sleepers must poll. */
static void note_copying(struct comm_state *b, struct stage *stage, bool copying)
{
    if (stage->noted == copying)
        return;
    stage->noted = copying;
    b->staged.copying += copying ? 1 : UINT32_MAX;
    engine_await_word(b->unit.engine, copying);
}

void staged_note(struct comm_state *b, struct stage *stage)
{
    note_copying(b, stage, !staging_reached(stage));
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

/* True: something moved. */
static bool move_on(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    struct stage *stage = e->stage;
    enum device_way way = stage->cause == STEP_FETCH ? DEVICE_IN : DEVICE_OUT;
    enum comm_result r = staging_reached(stage) ? COMM_OK : COMM_PENDING;

    if (stage->copy == STAGE_WAITING)
        r = copy(b, e, way);
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
    size_t bytes = (e->on_device & CALL_IN_ON_DEVICE ? e->head.read.to - e->head.read.from : 0) +
                   (e->on_device & CALL_OUT_ON_DEVICE ? e->head.write.to - e->head.write.from : 0);

    return b->staged.running >= RUNNING_LEAST && b->staged.bytes + bytes > RUNNING_BYTES;
}

static void forget(struct comm_state *b, struct entry *e)
{
    b->staged.running--;
    b->staged.bytes -= e->stage->bytes;
    b->staged.fetching -= e->by == ENTRY_BY_NATIVE && e->stage->cause == STEP_FETCH;
    staged_give(b, e->stage);
    e->stage = NULL;
}

/* The root of a scatter in place writes nothing: its `out` is a block of its input. */
static void *out_in_stage(const struct stage *stage, const void *out)
{
    bool in_input = !stage->out.at && stage->in.at && (uintptr_t)out - stage->in.from < stage->in.bytes;

    return staging_at(in_input ? &stage->in : &stage->out, out);
}

static void start(struct comm_state *b, uint64_t ticket, struct entry *e)
{
    const struct timeline_range *read = &e->head.read, *write = &e->head.write;
    struct stage_side in = {read->from, e->on_device & CALL_IN_ON_DEVICE ? read->to - read->from : 0, NULL};
    struct stage_side out = {write->from, e->on_device & CALL_OUT_ON_DEVICE ? write->to - write->from : 0, NULL};

    e->record.started_ns = state_now(b);
    e->stage = staging_take(b->staged.pool, &in, &out);
    if (!e->stage) {
        state_propose_own(b, e, COMM_ERR_MEMORY, 0);
        return;
    }
    b->staged.running++;
    b->staged.bytes += e->stage->bytes;
    b->staged.fetching += e->by == ENTRY_BY_NATIVE;
    e->call.in = staging_at(&e->stage->in, e->call.in);
    e->call.out = out_in_stage(e->stage, e->call.out);
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

/* Which of the buffers need a stage: all, except those that a library, if it does the call, can use where they are. */
static uint8_t foreign_to_doer(struct comm_state *b, const struct engine_call *call, const struct entry *e)
{
    size_t align = data_type_bytes(call->type);
    uint8_t foreign = call->on_device & CALL_ON_DEVICE;

    if (BASE_LIKELY(!(b->library_work.flags & NATIVE_DEVICE)) || e->by != ENTRY_BY_NATIVE)
        return foreign;
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

/* ------------------------------------------------------------------------------------------------------------ long operations */
/* How many elements each of several part calls has, the last one a few less; 0: it stays one call. The result is the same on all ranks with
 * a device buffer. A user-defined operator is never split, because it may use several elements together; a pre-multiplied sum is. */
static size_t part_of(const struct engine_call *call)
{
    bool by_element = call->collective == COLLECTIVE_ALLREDUCE || call->collective == COLLECTIVE_REDUCE ||
                      call->collective == COLLECTIVE_BROADCAST || call->collective == COLLECTIVE_SCAN ||
                      call->collective == COLLECTIVE_EXSCAN;
    size_t element = data_type_bytes(call->type), bytes = call->n * element, least = STAGED_PART_BYTES + STAGED_PARTS_MOST * element;

    if (!call->on_device || !by_element || bytes < 2 * least || (call->op & OPERATOR_USER && !operator_is_premul(call->op)))
        return 0;
    size_t parts = bytes / least < STAGED_PARTS_MOST ? bytes / least : STAGED_PARTS_MOST;
    return (call->n + parts - 1) / parts;
}

static struct timeline_range part_range(const struct timeline_range *whole, size_t from, size_t bytes)
{
    if (whole->from == whole->to)
        return *whole;
    return (struct timeline_range){whole->from + from, whole->from + from + bytes};
}

static struct engine_call part_call(const struct engine_call *call, size_t first, size_t n)
{
    size_t element = data_type_bytes(call->type), from = first * element;
    struct engine_call part = *call;

    part.in = call->in ? (const char *)call->in + from : NULL;
    part.out = call->out ? (char *)call->out + from : NULL;
    part.n = n;
    part.read = part_range(&call->read, from, n * element);
    part.write = part_range(&call->write, from, n * element);
    return part;
}

static enum comm_result issue_one(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    return b->recording.plan ? b->recording.calls->call(b, call) : state_issue(b, call, NULL, NULL, req);
}

/* The other ranks cannot go on without the remaining parts, so the communicator fails. */
static void lacks_rest(struct comm_state *b, const struct engine_call *call, enum comm_result r)
{
    state_propose(
        b, &(struct cause){.number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = r, .collective = call->collective});
}

enum comm_result staged_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    size_t part = part_of(call), parts = part ? (call->n + part - 1) / part : 1;
    enum comm_result r = COMM_OK;

    if (!part)
        return issue_one(b, call, req);
    if (!b->recording.plan && !timeline_reserve(&b->line, parts))
        return COMM_ERR_FULL;
    for (size_t i = 0; i < parts && r == COMM_OK && !b->failed; i++) {
        size_t first = i * part, n = call->n - first < part ? call->n - first : part;
        struct engine_call one = part_call(call, first, n);
        r = issue_one(b, &one, req);
        if (r != COMM_OK && i > 0 && !b->recording.plan)
            lacks_rest(b, call, r);
    }
    if (r == COMM_OK && !b->failed && !b->recording.plan)
        state_entry(b, b->line.next - 1)->record.bytes = call->n * data_type_bytes(call->type);
    return b->failed && !b->recording.plan ? (enum comm_result)b->failure.cause.result : r;
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
