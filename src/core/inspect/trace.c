/*
 * Writes the recorded operations of a communicator to a file for chrome://tracing and Perfetto. comm_trace_dump
 * requests it; or it is written once, when a communicator fails and option trace_dir names a folder.
 *
 * What is written is a copy, taken under the communicator's lock; no lock is held while a file system is accessed.
 * After a failure a thread of the engine writes the file, so that a hanging file system delays nobody who must learn of
 * the failure. Waits that end meanwhile give that thread up to TRACE_PATIENCE_NS, because programs often exit after the
 * error.
 */
#include "inspect/inspect.h"
#include "inspect/trace.h"

#include "base/format.h"
#include "failure/failure.h"
#include "failure/recover.h"
#include "p2p/op.h"

#include <string.h>

enum { TRACE_ROWS = 64, TRACE_TEXT_BYTES = 4096, TRACE_LINE_BYTES = 1536, TRACE_PATIENCE_NS = 200000000, TRACE_STOP_NS = 2000000000 };

struct trace {
    struct trace *next;
    size_t bytes;
    uint64_t count;
    int64_t taken_ns;
    int32_t rank, ranks, world_rank;
    uint32_t index;
    char name[32], host[64], path[512];
    struct comm_error error; /* result COMM_OK: written on request */
    struct record record[];
};

/* ------------------------------------------------------------------------------------------------------------ copying */
static void take_unfinished(const struct comm_state *b, struct trace *t, uint64_t last)
{
    for (uint64_t ticket = b->line.done + 1; ticket <= last; ticket++) {
        struct record *record = &t->record[t->count++];
        const struct entry *e = state_entry(b, ticket);
        *record = e->record;
        record->ticket = ticket;
        record->completed_ns = t->taken_ns;
        record->result = COMM_PENDING;
        record->waited = ticket <= b->line.started ? state_waits_for(b, e) : 0;
    }
    for (uint32_t i = b->p2p.first; i != P2P_NONE; i = b->p2p.ops[i].after) {
        const struct p2p_op *op = &b->p2p.ops[i];
        if (op->state != P2P_MARKER)
            t->record[t->count++] = (struct record){.ticket = op->ticket,
                                                    .bytes = op->call.bytes,
                                                    .queued_ns = op->queued_ns,
                                                    .started_ns = op->started_ns,
                                                    .completed_ns = t->taken_ns,
                                                    .algorithm = p2p_name(op),
                                                    .result = COMM_PENDING,
                                                    .waited = (uint16_t)((op->started_ns ? op->call.peer : b->team.rank) + 1)};
    }
}

/* NULL: no memory. */
static struct trace *take_trace(const struct comm_state *b, const struct comm_error *error)
{
    const struct comm_env *env = b->unit.engine->env;
    uint64_t first = b->records.count > b->records.room ? b->records.count - b->records.room : 0;
    uint64_t last = b->line.next - 1 - b->line.done > ENGINE_RECORDS ? b->line.done + ENGINE_RECORDS : b->line.next - 1;
    size_t bytes = sizeof(struct trace) +
                   (size_t)(b->records.count - first + (last - b->line.done) + b->p2p.pending + b->p2p.markers) * sizeof(struct record);
    struct trace *t = env->take(env, bytes, 64);

    if (!t)
        return NULL;
    t->bytes = bytes;
    t->taken_ns = env->now(env);
    t->rank = b->team.rank;
    t->ranks = b->team.size;
    t->world_rank = b->team.world ? b->team.world[b->team.rank] : b->team.rank;
    t->index = b->index;
    base_copy_text(t->name, sizeof t->name, b->name);
    base_copy_text(t->host, sizeof t->host, b->unit.engine->identity.host);
    if (error)
        t->error = *error;
    for (uint64_t i = first; i < b->records.count; i++)
        t->record[t->count++] = b->records.at[i & (b->records.room - 1)];
    take_unfinished(b, t, last);
    return t;
}

/* ------------------------------------------------------------------------------------------------------------ writing */
struct sheet {
    const struct comm_env *env;
    int file;
    int64_t failed;
    size_t at;
    bool more; /* not the first event */
    char text[TRACE_TEXT_BYTES];
};

static void empty_sheet(struct sheet *s)
{
    for (size_t gone = 0; gone < s->at && !s->failed;) {
        int64_t n = s->env->file.write(s->env, s->file, s->text + gone, s->at - gone);
        if (n < 0)
            s->failed = n;
        else
            gone += (size_t)n;
    }
    s->at = 0;
}

static void begin_event(struct sheet *s)
{
    if (s->at + TRACE_LINE_BYTES > sizeof s->text)
        empty_sheet(s);
    base_append(s->text, sizeof s->text, &s->at, s->more ? ",\n" : "[\n");
    s->more = true;
}

/* Texts come from programs and launchers: characters that are not valid in a JSON string are left out. */
static void put_quoted(struct sheet *s, const char *text)
{
    base_append(s->text, sizeof s->text, &s->at, "\"");
    for (; *text; text++)
        if ((unsigned char)*text >= ' ')
            base_append(s->text, sizeof s->text, &s->at, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    base_append(s->text, sizeof s->text, &s->at, "\"");
}

/* Microseconds with three decimal places. */
static void put_time(struct sheet *s, const char *key, int64_t ns)
{
    base_append(s->text, sizeof s->text, &s->at, ",\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

static void put_name(struct sheet *s, const char *what, const struct trace *t, uint32_t thread, uint32_t row)
{
    char name[160];

    begin_event(s);
    if (thread)
        base_format(name, sizeof name, row ? "%s, with %u others" : "%s", t->name, row);
    else
        base_format(name, sizeof name, "rank %d on %s", t->world_rank, t->host);
    base_append(s->text, sizeof s->text, &s->at, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u,\"args\":{\"name\":", what,
                t->world_rank, thread);
    put_quoted(s, name);
    base_append(s->text, sizeof s->text, &s->at, "}}");
}

/* Bars of one row must not overlap: chooses the first row that is free by then, or else the one that is free soonest. */
static uint32_t row_for(int64_t *busy_until, uint32_t *rows, int64_t from, int64_t to)
{
    uint32_t best = 0;

    for (uint32_t i = 0; i < *rows; i++) {
        if (busy_until[i] <= from) {
            busy_until[i] = to;
            return i;
        }
        best = busy_until[i] < busy_until[best] ? i : best;
    }
    if (*rows < TRACE_ROWS)
        best = (*rows)++;
    busy_until[best] = to;
    return best;
}

static void put_record(struct sheet *s, const struct trace *t, const struct record *k, uint32_t row)
{
    int64_t from = k->started_ns ? k->started_ns : k->queued_ns;
    const char *name = k->collective ? collective_name(k->collective) : k->algorithm;

    begin_event(s);
    base_append(s->text, sizeof s->text, &s->at, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u",
                k->ticket & TIMELINE_MESSAGE ? "message" : "work", name[0] ? name : "wait", t->world_rank, t->index * TRACE_ROWS + row + 1);
    put_time(s, "ts", from);
    put_time(s, "dur", k->completed_ns - from);
    base_append(s->text, sizeof s->text, &s->at, ",\"args\":{\"rank\":%d", t->rank);
    put_time(s, "queued", k->queued_ns);
    if (k->started_ns)
        put_time(s, "started", k->started_ns);
    if (k->result != COMM_PENDING)
        put_time(s, "done", k->completed_ns);
    if (k->sequence)
        base_append(s->text, sizeof s->text, &s->at, ",\"sequence\":%u", k->sequence);
    base_append(s->text, sizeof s->text, &s->at, ",\"bytes\":%llu,\"algorithm\":\"%s\"", (unsigned long long)k->bytes, k->algorithm);
    if (k->waited)
        base_append(s->text, sizeof s->text, &s->at, ",\"waited_for\":%d", (int)k->waited - 1);
    base_append(s->text, sizeof s->text, &s->at, ",\"result\":\"%s\"}}", base_result_name((enum comm_result)k->result));
}

static void put_error(struct sheet *s, const struct trace *t)
{
    begin_event(s);
    base_append(s->text, sizeof s->text, &s->at, "{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"failure\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u",
                base_result_name(t->error.result), t->world_rank, t->index * TRACE_ROWS + 1);
    put_time(s, "ts", t->taken_ns);
    base_append(s->text, sizeof s->text, &s->at, ",\"args\":{\"text\":");
    put_quoted(s, t->error.text);
    base_append(s->text, sizeof s->text, &s->at, "}}");
}

/* Returns 0 or -errno. */
static int64_t write_trace(const struct comm_env *env, const struct trace *t, const char *path)
{
    struct sheet s = {.env = env, .file = env->file.open(env, path)};
    int64_t busy_until[TRACE_ROWS] = {0};
    uint32_t rows = 0;

    if (s.file < 0)
        return s.file;
    put_name(&s, "process_name", t, 0, 0);
    for (uint64_t i = 0; i < t->count && !s.failed; i++) {
        const struct record *k = &t->record[i];
        uint32_t before = rows;
        uint32_t row = row_for(busy_until, &rows, k->started_ns ? k->started_ns : k->queued_ns, k->completed_ns);
        if (rows != before)
            put_name(&s, "thread_name", t, t->index * TRACE_ROWS + row + 1, row);
        put_record(&s, t, k, row);
    }
    if (t->error.result)
        put_error(&s, t);
    base_append(s.text, sizeof s.text, &s.at, "\n]\n");
    empty_sheet(&s);
    env->file.close(env, s.file);
    return s.failed;
}

/* ------------------------------------------------------------------------------------------------------------ on request */
static void tell_unwritten(struct comm_communicator *c, const char *path, int64_t failed)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return;
    b->failure.last_refused = (struct comm_error){.size = sizeof b->failure.last_refused,
                                                  .result = failed ? COMM_ERR_SYSTEM : COMM_ERR_MEMORY,
                                                  .rank = b->team.rank,
                                                  .peer = -1,
                                                  .system_errno = (int32_t)-failed,
                                                  .operation = "trace_dump"};
    if (failed)
        base_format(b->failure.last_refused.text, sizeof b->failure.last_refused.text, "path=%s cannot be written, errno=%d", path,
                    (int)-failed);
    else
        base_format(b->failure.last_refused.text, sizeof b->failure.last_refused.text, "no memory for a copy of the recorded operations");
    state_unlock(b);
}

enum comm_result engine_trace_dump(struct comm_communicator *c, const char *path)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    if (b->recording.plan) {
        state_unlock(b);
        return COMM_ERR_STATE;
    }
    const struct comm_env *env = b->unit.engine->env;
    struct trace *t = take_trace(b, NULL);
    if (t && b->failed)
        cause_describe(b, &b->failure.cause, &t->error);
    state_unlock(b);
    int before = env->cancel(env, ENV_CANCEL_OFF);
    int64_t failed = t ? write_trace(env, t, path) : 0;
    env->cancel(env, before);
    if (failed || !t)
        tell_unwritten(c, path, failed);
    if (!t)
        return COMM_ERR_MEMORY;
    env->give(env, t, t->bytes);
    return failed ? COMM_ERR_SYSTEM : COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ after a failure */
static struct trace *next_trace(struct engine *e)
{
    base_lock(&e->trace.lock, e->env);
    struct trace *t = e->trace.list;
    if (t)
        e->trace.list = t->next;
    base_unlock(&e->trace.lock, e->env);
    return t;
}

static bool stopping(const struct engine *e)
{
    return atomic_load_explicit(&e->stopping, memory_order_acquire) != 0;
}

static void trace_writer(void *arg)
{
    struct engine *e = arg;
    const struct comm_env *env = e->env;

    for (;;) {
        uint32_t given = atomic_load_explicit(&e->trace.given, memory_order_acquire);
        struct trace *t = next_trace(e);
        if (!t && stopping(e))
            return;
        if (!t) {
            env->park(env, &e->trace.given, given, ENV_FOREVER);
            continue;
        }
        int64_t failed = write_trace(env, t, t->path);
        if (failed)
            base_log(&e->log, LOG_WARNING, "comm=%s trace_dir: %s cannot be written, errno=%d", t->name, t->path, (int)-failed);
        else
            base_log(&e->log, LOG_WARNING, "comm=%s its last %llu operations are in %s", t->name, (unsigned long long)t->count, t->path);
        env->give(env, t, t->bytes);
        atomic_fetch_add_explicit(&e->trace.written, 1, memory_order_release);
        env->wake(env, &e->trace.written, UINT32_MAX);
    }
}

/* A failure is reported under locks, where no thread can be created; so the thread is started earlier. */
void trace_start(struct engine *e)
{
    base_lock(&e->trace.lock, e->env);
    if (e->options.trace_dir[0] && !e->trace.writer_runs)
        e->trace.writer_runs = e->env->spawn(e->env, trace_writer, e, &e->trace.writer) == 0;
    base_unlock(&e->trace.lock, e->env);
}

/* False: there is no thread to write it. */
static bool give_trace(struct engine *e, struct trace *t)
{
    base_lock(&e->trace.lock, e->env);
    bool runs = e->trace.writer_runs;
    struct trace **last = &e->trace.list;
    while (*last)
        last = &(*last)->next;
    if (runs) {
        *last = t;
        atomic_fetch_add_explicit(&e->trace.given, 1, memory_order_release);
    }
    base_unlock(&e->trace.lock, e->env);
    e->env->wake(e->env, &e->trace.given, 1);
    return runs;
}

static void failed(struct comm_state *b, const struct comm_error *error)
{
    struct engine *e = b->unit.engine;
    const char *folder = e->options.trace_dir;

    if (!folder[0] || b->records.dumped)
        return;
    b->records.dumped = true;
    struct trace *t = take_trace(b, error);
    if (!t) {
        base_log(&e->log, LOG_WARNING, "comm=%s trace_dir: no memory for a copy of the recorded operations", b->name);
        return;
    }
    /* The names of one world's files sort together; a rank may have several communicators, and a process several
     * worlds. */
    base_format(t->path, sizeof t->path, "%s/commstream-%08x-rank%d-%s-%u-%u.json", folder, (uint32_t)b->world->id, t->world_rank, t->host,
                e->identity.pid, b->index);
    if (give_trace(e, t))
        return;
    base_log(&e->log, LOG_WARNING, "comm=%s trace_dir: no thread to write %s", b->name, t->path);
    e->env->give(e->env, t, t->bytes);
}

static void wait_ended(struct engine *e)
{
    uint32_t given = atomic_load_explicit(&e->trace.given, memory_order_acquire), written;

    if (BASE_LIKELY(!given))
        return;
    int64_t deadline = e->env->now(e->env) + TRACE_PATIENCE_NS;
    while ((int32_t)(given - (written = atomic_load_explicit(&e->trace.written, memory_order_acquire))) > 0 &&
           e->env->now(e->env) < deadline)
        e->env->park(e->env, &e->trace.written, written, deadline);
}

static bool stop(struct engine *e)
{
    if (!e->trace.writer_runs)
        return true;
    atomic_fetch_add_explicit(&e->trace.given, 1, memory_order_seq_cst);
    e->env->wake(e->env, &e->trace.given, 1);
    return e->env->join(e->env, &e->trace.writer, e->env->now(e->env) + TRACE_STOP_NS);
}

const struct comm_part trace_part = {.name = "trace", .engine_close = stop, .wait_ended = wait_ended, .failed = failed};
