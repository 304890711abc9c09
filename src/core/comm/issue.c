/* From a call to an entry of the queue. */
#include "comm/pack.h"
#include "comm/parts.h"

#include "base/format.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ fingerprints */
enum { ORDER_VERSION = 1 };

uint32_t state_fingerprint(const struct comm_state *b, const struct engine_call *call)
{
    bool ragged = collective_is_ragged(call->collective);
    comm_op op = BASE_UNLIKELY(call->op & OPERATOR_USER) ? operator_identity(b->world, call->op) : call->op;
    uint64_t h = base_hash((uint64_t)call->collective | (uint64_t)call->type << 8 | (uint64_t)ORDER_VERSION << 16 |
                               (uint64_t)call->flags << 24 | (uint64_t)op << 32,
                           (uint64_t)(ragged ? 0 : call->n) << 16 ^ (uint64_t)(uint32_t)call->root);

    h = call->site ? base_hash(h, call->site) : h;
    if (call->counts && !ragged)
        for (int32_t r = 0; r < b->team.size; r++)
            h = base_hash(h, call->counts[r]);
    return (uint32_t)(h ^ h >> 32);
}

/* ------------------------------------------------------------------------------------------------------------ copies of vectors */
/* Blocks of STATE_VECTORS vectors with one element per rank. Free blocks are linked through their first word and reused without
 * allocation. */
size_t *state_take_vectors(struct comm_state *b)
{
    size_t *v = b->runs.vectors;
    const struct comm_env *env = b->unit.engine->env;

    if (!v)
        return env->take(env, STATE_VECTORS * (size_t)b->team.size * sizeof *v + sizeof v, 64);
    memcpy((void *)&b->runs.vectors, (const void *)v, sizeof v);
    return v;
}

void state_give_vectors(struct comm_state *b, size_t *v)
{
    memcpy((void *)v, (const void *)&b->runs.vectors, sizeof v);
    b->runs.vectors = v;
}

enum comm_result state_copy_vectors(struct comm_state *b, const struct engine_call *call, struct entry *e)
{
    size_t size = (size_t)b->team.size;

    if (!call->counts)
        return COMM_OK;
    e->vectors = state_take_vectors(b);
    if (!e->vectors)
        return COMM_ERR_MEMORY;
    size_t *counts = e->vectors + 1, *displs = counts + size;
    memcpy(counts, call->counts, size * sizeof *counts);
    memcpy(displs, call->displs, size * sizeof *displs);
    e->call.counts = counts;
    e->call.displs = displs;
    if (call->in_counts) {
        e->call.in_counts = memcpy(displs + size, call->in_counts, size * sizeof *counts);
        e->call.in_displs = memcpy(displs + 2 * size, call->in_displs, size * sizeof *counts);
    }
    if (BASE_UNLIKELY(call->places != NULL)) {
        e->places = memcpy(displs + size, call->places, size * sizeof *counts);
        e->packed = (displs[size - 1] + counts[size - 1]) * data_type_bytes(call->type);
    }
    return COMM_OK;
}

void state_forget_entry(struct comm_state *b, struct entry *e)
{
    if (e->program)
        state_release_program(b, e->program);
    if (e->vectors) {
        state_give_vectors(b, e->vectors);
        e->places = NULL;
    }
    if (e->pack) {
        pack_drop(e->pack);
        e->head.part = NULL;
        e->head.parts = 0;
    }
    if (BASE_UNLIKELY(e->stage != NULL))
        b->staged.calls->forget(b, e);
    e->on_device = 0;
    if (e->user)
        operator_drop(e->user);
    timeline_point_drop(&e->point);
    e->program = NULL;
    e->vectors = NULL;
    e->pack = NULL;
    e->standing = NULL;
    e->head.nth = 0;
    e->user = NULL;
    e->window = NULL;
    e->spill = false;
    e->by = ENTRY_BY_PROGRAM;
    e->joining = e->parked = false;
    e->record.flags = 0;
}

/* ------------------------------------------------------------------------------------------------------------ issuing */
/* Gives the call the next number and its link in the chain. The link of a refused call does not depend on the call, so ranks that all
 * refuse stay equal. */
static void number_call(struct comm_state *b, struct entry *e, bool refused)
{
    if ((uint32_t)++b->sequence == 0) /* no key is 0 */
        b->sequence++;
    e->seq = e->record.sequence = (uint32_t)b->sequence;
    b->chain = state_chain(b->chain, refused ? 0 : e->fingerprint);
    e->chain = b->chain;
}

static bool peer_refused(const struct comm_state *b, uint64_t number, int32_t *peer, int32_t *reason)
{
    for (int32_t r = 0; r < b->team.size; r++) {
        struct made_call call;
        if (r != b->team.rank && state_read_call(b, r, (uint32_t)number, &call)) {
            *reason = call.refused;
        } else {
            *reason = state_knows_refused(b, r, number) ? b->failure.heard[r].reason : 0;
        }
        *peer = r;
        if (*reason)
            return true;
    }
    return false;
}

/* Fills an entry, without times if b is NULL. state_forget_entry has already cleared point, vectors, program and `by`. */
void state_fill_entry(struct entry *e, const struct engine_call *call, uint32_t fingerprint, struct comm_state *b)
{
    bool barrier = call->collective == COLLECTIVE_BARRIER || (call->collective == COLLECTIVE_WINDOW && call->n == 0);

    e->head = (struct timeline_entry){
        .kind = barrier ? TIMELINE_BARRIER : TIMELINE_WORK, .read = call->read, .write = call->write, .nth = call->nth};
    e->call = (struct run_call){.in = call->in, .out = call->out, .n = call->n, .type = call->type, .op = call->op};
    e->ended = NULL;
    e->root = call->root;
    e->flags = (uint8_t)call->flags;
    e->pitch = call->pitch;
    e->fingerprint = fingerprint;
    e->seq = e->chain = 0;
    e->record.bytes = call->n * data_type_bytes(call->type);
    e->record.queued_ns = b ? b->now = b->unit.engine->env->now(b->unit.engine->env) : 0;
    e->record.started_ns = 0;
    e->record.algorithm = "";
    e->record.collective = (uint16_t)call->collective;
    e->record.waited = 0;
    e->record.sequence = 0;
}

/* Publishes a call, unless it is more than a window behind. Such a call would overwrite an unfinished one, and a peer waiting for that one
 * could not learn that this rank called something else. It is published when it comes near (state_publish_more). */
static void publish(struct comm_state *b, uint64_t ticket, const struct entry *e, const struct engine_call *call, enum comm_result refused)
{
    if (BASE_LIKELY(!b->calls.unpublished && ticket - b->line.done <= b->line.window))
        state_publish_call(b, e, call, refused);
    else if (!b->calls.unpublished)
        b->calls.unpublished = ticket;
}

void state_publish_more(struct comm_state *b)
{
    BASE_ASSERT(b->calls.unpublished > b->line.done);
    for (; b->calls.unpublished < b->line.next && b->calls.unpublished - b->line.done <= b->line.window; b->calls.unpublished++) {
        const struct entry *e = state_entry(b, b->calls.unpublished);
        struct engine_call call = {.collective = e->record.collective,
                                   .type = e->call.type,
                                   .op = e->call.op,
                                   .root = e->root,
                                   .flags = e->flags,
                                   .n = e->call.n,
                                   .counts = e->call.counts,
                                   .in_counts = e->call.in_counts};
        if (e->seq)
            state_publish_call(b, e, &call, e->head.kind == TIMELINE_REFUSED ? (enum comm_result)e->head.result : COMM_OK);
    }
    if (b->calls.unpublished == b->line.next)
        b->calls.unpublished = 0;
}

uint64_t state_published(const struct comm_state *b)
{
    for (uint64_t t = b->calls.unpublished; t && t < b->line.next; t++) {
        const struct entry *e = state_entry(b, t);
        if (e->seq)
            return b->sequence - (uint32_t)((uint32_t)b->sequence - e->seq) - 1;
    }
    return b->sequence;
}

enum comm_result state_refuse(struct comm_state *b, const struct engine_call *call, enum comm_result reason)
{
    enum comm_result why;
    struct entry *e = (struct entry *)(void *)timeline_room(&b->line, &why);

    if (!e)
        return why;
    state_fill_entry(e, call, state_fingerprint(b, call), b);
    e->head.kind = TIMELINE_REFUSED;
    e->head.read = e->head.write = (struct timeline_range){0, 0};
    e->head.result = reason;
    number_call(b, e, true);
    publish(b, timeline_issue(&b->line), e, call, reason);
    state_tell_refusal(b, b->sequence, reason);
    return reason;
}

/* Stores the detail of a refusal. Its text is already there, except for results that need none. */
void state_keep_refusal(struct comm_state *b, uint32_t collective, enum comm_result reason)
{
    struct comm_error *d = &b->failure.last_refused;

    d->size = sizeof *d;
    d->result = reason;
    d->rank = b->team.rank;
    d->peer = -1;
    d->system_errno = 0;
    d->sequence = b->sequence + 1;
    base_copy_text(d->operation, sizeof d->operation, collective ? collective_name(collective) : "");
    base_copy_text(d->cause, sizeof d->cause, "refused at the call");
    if (reason == COMM_ERR_MEMORY)
        base_copy_text(d->text, sizeof d->text, base_result_text(reason));
}

static enum comm_result refuse_for_all(struct comm_state *b, const struct engine_call *call, enum comm_result reason)
{
    state_keep_refusal(b, call->collective, reason);
    return state_refuse(b, call, reason);
}

enum comm_result state_refuse_device(struct comm_state *b, const struct engine_call *call)
{
    base_format(b->failure.last_refused.text, sizeof b->failure.last_refused.text,
                "buf is device memory; expected the host's: %s goes over the wire", collective_name(call->collective));
    return refuse_for_all(b, call, COMM_ERR_ARGUMENT);
}

static enum comm_result hold_operator(struct comm_state *b, comm_op op, struct entry *e)
{
    e->user = operator_hold(b->world, op);
    if (!e->user)
        base_copy_text(b->failure.last_refused.text, sizeof b->failure.last_refused.text, base_result_text(COMM_ERR_ARGUMENT));
    return e->user ? COMM_OK : COMM_ERR_ARGUMENT;
}

/* Adds what this rank decided by itself about a call of the library: the others must have decided the same. */
static void add_ways(struct comm_state *b, struct entry *e)
{
    const struct native_class *class = b->native->native->class;
    uint32_t ways = class->ways ? class->ways(b->native) : 0;

    e->flags |= (uint8_t)(ways * ENGINE_CALL_RECORDED); /* both have them in one order */
    e->fingerprint = BASE_LIKELY(!ways) ? e->fingerprint : (uint32_t)base_hash(e->fingerprint, ways);
}

/* Chooses what executes the call, the native or a program. A stream keeps order by itself, so its buffers are not tracked here, and a
 * barrier holds back nothing. */
static enum comm_result choose_doer(struct comm_state *b, const struct engine_call *call, struct entry *e)
{
    enum comm_result r = b->library ? b->library->takes(b, call) : COMM_ERR_UNSUPPORTED;

    if (b->library_work.flags & NATIVE_STREAM) {
        e->head.kind = TIMELINE_WORK;
        if (r == COMM_OK)
            e->head.read = e->head.write = (struct timeline_range){0, 0};
    }
    if (r == COMM_OK) {
        e->by = ENTRY_BY_NATIVE;
        e->record.algorithm = b->native->native->class->name;
        add_ways(b, e);
        return COMM_OK;
    }
    if (r != COMM_ERR_UNSUPPORTED)
        return r;
    return state_program(b, &e->call, call->collective, call->root, call->n, &e->program, &e->record.algorithm);
}

/* A call for a stream starts inside the call. If programs before it in the queue hold it back, there is no room. */
enum comm_result state_held_back(struct comm_state *b, const struct engine_call *call)
{
    if (BASE_LIKELY(!(b->library_work.flags & NATIVE_STREAM)) || b->line.started + 1 == b->line.next ||
        (call && b->library->takes(b, call) == COMM_ERR_UNSUPPORTED))
        return COMM_OK;
    state_run_queue(b); /* calls just put on the stream must count as started before their end can be reported */
    if (b->line.started + 1 != b->line.next)
        state_step(b);
    if (b->failed)
        return (enum comm_result)b->failure.cause.result;
    return b->line.started + 1 == b->line.next ? COMM_OK : COMM_ERR_FULL;
}

/* Issues a collective. If it cannot be prepared (no memory, no algorithm), its number is used up too, so that all ranks stay in step. */
enum comm_result state_issue(struct comm_state *b, const struct engine_call *call, entry_ended_fn *ended, void *ended_arg,
                             struct comm_request *req)
{
    enum comm_result r = state_held_back(b, call);
    struct entry *e = r == COMM_OK ? (struct entry *)(void *)timeline_room(&b->line, &r) : NULL;

    if (!e)
        return r;
    state_fill_entry(e, call, state_fingerprint(b, call), b);
    r = state_copy_vectors(b, call, e);
    if (r == COMM_OK && BASE_UNLIKELY(call->op & OPERATOR_USER))
        r = hold_operator(b, call->op, e);
    if (r == COMM_OK)
        r = choose_doer(b, call, e);
    if (r == COMM_OK && BASE_UNLIKELY(call->on_device))
        r = b->staged.calls->prepare(b, call, e);
    if (r != COMM_OK) {
        state_forget_entry(b, e);
        return refuse_for_all(b, call, r);
    }
    e->ended = ended;
    e->ended_arg = ended_arg;
    number_call(b, e, false);
    uint64_t ticket = timeline_issue(&b->line);
    struct engine_call made;
    if (BASE_UNLIKELY(e->flags != call->flags)) {
        made = *call;
        made.flags = e->flags;
        call = &made;
    }
    publish(b, ticket, e, call, COMM_OK);
    b->stats.operations++;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (BASE_UNLIKELY(b->sequence <= b->failure.refused_until)) {
        int32_t peer, reason;
        if (peer_refused(b, b->sequence, &peer, &reason))
            state_mismatch(b, e->seq, peer);
    }
    return COMM_OK;
}

/* Returns the cause if the communicator has failed, so that the call ends at once. */
enum comm_result state_ready_for_calls(struct comm_state *b)
{
    if (b->channel->board && atomic_load_explicit(&b->channel->board->cause, memory_order_relaxed) && !b->failed)
        state_step(b);
    return b->failed ? (enum comm_result)b->failure.cause.result : COMM_OK;
}

enum comm_result engine_need_host(struct comm_communicator *c, const char *call, const char *argument, const void *at,
                                  struct comm_request *req)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return call_refused(req, r);
    bool on_device = c->env->on_device(c->env, at); /* also where the library takes a device's buffers: the CPU uses this memory */
    state_leave(b);
    return on_device ? engine_decline(c, COMM_ERR_ARGUMENT, req, "%s: %s=0x%llx; expected " CALL_FOREIGN, call, argument,
                                      (unsigned long long)(uintptr_t)at)
                     : COMM_OK;
}

/* The text of a call that is not a collective begins with its name: "window_flush: peer=7; expected ...". */
static void take_name(char *name, size_t room, const char *text)
{
    size_t length = 0;

    text += strncmp(text, "comm_", 5) == 0 ? 5 : 0;
    while ((text[length] >= 'a' && text[length] <= 'z') || text[length] == '_')
        length++;
    base_format(name, room, "%.*s", text[length] == ':' ? (int)length : 0, text);
}

/* For comm_error_detail, and on a recorder for the end of its plan. The text begins with the name of the call. */
static void keep_refusal(struct comm_state *b, enum comm_result reason, const char *format, va_list list)
{
    struct comm_error *d = &b->failure.last_refused;

    *d = (struct comm_error){.size = sizeof *d, .result = reason, .rank = b->team.rank, .peer = -1, .sequence = b->sequence};
    base_copy_text(d->cause, sizeof d->cause, "refused at the call");
    base_format_list(d->text, sizeof d->text, format, list);
    take_name(d->operation, sizeof d->operation, d->text);
    if (b->recording.plan)
        b->recording.calls->refused(b, reason);
}

enum comm_result engine_refuse(struct comm_communicator *c, uint32_t collective, enum comm_result reason, struct comm_request *req,
                               const char *format, ...)
{
    struct engine_call call = {.collective = collective};
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);
    va_list list;

    if (!b)
        return call_refused(req, r);
    r = b->recording.plan ? reason : state_ready_for_calls(b); /* a recorded call uses up no number */
    if (r == COMM_OK)
        r = state_refuse(b, &call, reason);
    if (r == reason) {
        va_start(list, format);
        keep_refusal(b, reason, format, list);
        va_end(list);
    }
    if (!b->recording.plan)
        state_settle(b);
    state_unlock(b);
    return call_refused(req, r);
}

enum comm_result engine_decline(struct comm_communicator *c, enum comm_result reason, struct comm_request *req, const char *format, ...)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);
    va_list list;

    if (!b)
        return call_refused(req, r);
    va_start(list, format);
    keep_refusal(b, reason, format, list);
    va_end(list);
    state_unlock(b);
    return call_refused(req, reason);
}

struct entry *state_room(struct comm_state *b, enum comm_result *why)
{
    *why = state_held_back(b, NULL);
    struct entry *e = *why == COMM_OK ? (struct entry *)(void *)timeline_room(&b->line, why) : NULL;

    if (e)
        state_fill_entry(e, &(struct engine_call){0}, 0, b);
    return e;
}

enum comm_result state_stream_messages(struct comm_state *b, const struct native_message *messages, uint32_t count,
                                       struct comm_request *req)
{
    enum comm_result r;
    struct entry *e = state_room(b, &r);

    if (!e)
        return r;
    for (uint32_t i = 0; i < count; i++)
        e->record.bytes += messages[i].bytes;
    r = b->library->messages(b, e, messages, count);
    if (r != COMM_OK) {
        state_forget_entry(b, e);
        return r;
    }
    uint64_t ticket = timeline_issue(&b->line);
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    return COMM_OK;
}
