/*
 * Memory of the same length on every rank, which the communicator's library registers with all of them, if it can. The call is two
 * operations of the queue, issued together. Each is an exchange, and the end of the first writes what the second sends:
 *
 *   sizes   each rank's length, and whether it has the memory; then the library registers it, which waits for all ranks
 *   ready   whether every rank could register it
 *
 * So either all ranks get memory or none does. Until the second exchange has started, the queue takes no call for the library's stream.
 */
#include "rma/memory.h"
#include "rma/queue.h"

#include "base/format.h"
#include "fastpath/wait.h"

enum { STAGE_SIZES, STAGE_READY, STAGES };

struct size_ticket {
    uint64_t bytes;
    int32_t result;
    uint32_t registers; /* this rank's library can register memory with all ranks */
};
struct symmetric {
    const struct comm_env *env;
    void **out;
    struct world_memory *memory; /* NULL: there is none, or it is the world's by now */
    struct size_ticket mine, *all;
    int32_t *all_ready;
    int32_t size, ready;     /* ready: the result that the second exchange sends */
    enum comm_result result; /* of the first exchange, then of the whole call */
    uint32_t references;     /* the call that issues the exchanges, and each exchange that has not ended */
    bool compared, registering, abandoned;
};

static size_t symmetric_bytes(int32_t size)
{
    return sizeof(struct symmetric) + (size_t)size * (sizeof(struct size_ticket) + sizeof(int32_t));
}

static void drop(struct comm_state *b, struct symmetric *s)
{
    if (--s->references)
        return;
    if (s->memory)
        memory_drop(b->world, s->memory);
    s->env->give(s->env, s, symmetric_bytes(s->size));
}

static struct symmetric *make(struct comm_state *b, size_t bytes, void **out)
{
    const struct comm_env *env = b->unit.engine->env;
    const struct native_class *library = memory_library(b);
    struct symmetric *s = env->take(env, symmetric_bytes(b->team.size), 64);

    if (!s)
        return NULL;
    *s = (struct symmetric){.env = env, .out = out, .size = b->team.size, .references = 1};
    s->all = (struct size_ticket *)(void *)(s + 1);
    s->all_ready = (int32_t *)(void *)(s->all + s->size);
    s->memory = memory_make(b, bytes);
    s->mine = (struct size_ticket){.bytes = bytes, .result = s->memory ? COMM_OK : COMM_ERR_MEMORY};
    s->mine.registers = library && library->enlist_all && library->enlist_all(b->native, NULL, 0) == COMM_OK;
    return s;
}

/* ------------------------------------------------------------------------------------------------------------ ends of exchanges */
/* Records why there is no memory; the text is the same on every rank. */
static struct comm_error *tell(struct comm_state *b, int32_t rank, enum comm_result result, const char *cause)
{
    struct comm_error *d = &b->failure.last_refused;

    *d = (struct comm_error){.size = sizeof *d, .result = result, .rank = rank, .peer = -1, .sequence = b->sequence};
    base_copy_text(d->operation, sizeof d->operation, collective_name(COLLECTIVE_MEMORY));
    base_copy_text(d->cause, sizeof d->cause, cause);
    return d;
}

/* The first rank whose result is an error, or -1. */
static int32_t first_error(const struct symmetric *s, bool ready, enum comm_result *result)
{
    for (int32_t r = 0; r < s->size; r++) {
        int32_t said = ready ? s->all_ready[r] : s->all[r].result;
        if (said == COMM_OK)
            continue;
        *result = heard_is_result(said) ? (enum comm_result)said : COMM_ERR_CORRUPT;
        return r;
    }
    return -1;
}

static enum comm_result compare(struct comm_state *b, const struct symmetric *s)
{
    enum comm_result result = COMM_OK;
    int32_t rank = first_error(s, false, &result);

    if (rank >= 0) {
        struct comm_error *d = tell(b, rank, result, "a rank has not so much memory");
        base_format(d->text, sizeof d->text, "comm_mem_alloc_symmetric: bytes=%llu: rank %d: %s", (unsigned long long)s->all[rank].bytes,
                    rank, base_result_text(result));
        return result;
    }
    for (rank = 1; rank < s->size && s->all[rank].bytes == s->all[0].bytes; rank++)
        ;
    if (rank >= s->size)
        return COMM_OK;
    struct comm_error *d = tell(b, rank, COMM_ERR_ARGUMENT, "the ranks ask for different lengths");
    base_format(d->text, sizeof d->text,
                "comm_mem_alloc_symmetric: bytes=%llu on rank %d, and %llu on rank 0; expected the same on every rank",
                (unsigned long long)s->all[rank].bytes, rank, (unsigned long long)s->all[0].bytes);
    return COMM_ERR_ARGUMENT;
}

/* If some rank's library cannot register with all ranks, each rank registers for itself. */
static void begin_register(struct comm_state *b, struct symmetric *s)
{
    const struct native_class *library = memory_library(b);
    struct world_memory *m = s->memory;
    bool all = true;

    for (int32_t r = 0; r < s->size; r++)
        all &= s->all[r].registers == 1;
    if (!library)
        return;
    m->symmetric = true;
    if (all)
        s->ready = (int32_t)library->enlist_all(b->native, m->at, m->bytes);
    else
        library->enlist(b->native, m->at, m->bytes);
    s->registering = all && s->ready == COMM_OK;
}

/* PENDING: the library has not registered it yet. */
static enum comm_result sizes_known(struct comm_state *b, struct symmetric *s)
{
    if (!s->compared) {
        s->compared = true;
        s->result = compare(b, s);
        if (s->result == COMM_OK)
            begin_register(b, s);
    }
    if (s->registering) {
        enum comm_result r = memory_library(b)->enlisted_all(b->native);
        if (r == COMM_PENDING)
            return r;
        s->registering = false;
        s->ready = (int32_t)r;
    }
    return COMM_OK;
}

static enum comm_result all_ready(struct comm_state *b, struct symmetric *s)
{
    enum comm_result result = COMM_OK;
    int32_t rank = s->result == COMM_OK ? first_error(s, true, &result) : -1;

    if (rank < 0)
        return s->result;
    s->result = result;
    struct comm_error *d = tell(b, rank, result, "a rank could not register the memory");
    base_format(d->text, sizeof d->text, "comm_mem_alloc_symmetric: rank %d could not register %llu bytes with all ranks: %s", rank,
                (unsigned long long)s->mine.bytes, base_result_text(result));
    if (s->memory->symmetric) /* this rank may have; without a library a peer lies */
        memory_library(b)->delist(b->native, s->memory->at);
    return result;
}

static enum comm_result stage_at(struct comm_state *b, enum entry_phase phase, struct symmetric *s, int stage)
{
    if (phase == ENTRY_ENDED && s->abandoned)
        return COMM_OK;
    if (phase == ENTRY_ENDED)
        return stage == STAGE_READY ? all_ready(b, s) : sizes_known(b, s);
    if (phase == ENTRY_RETIRED && stage == STAGE_READY && !s->abandoned && s->result == COMM_OK) {
        *s->out = s->memory->at;
        memory_keep(b->world, s->memory);
        s->memory = NULL;
    }
    drop(b, s);
    return COMM_OK;
}

static enum comm_result sizes_at(struct comm_state *b, enum entry_phase phase, void *arg)
{
    return stage_at(b, phase, arg, STAGE_SIZES);
}

static enum comm_result ready_at(struct comm_state *b, enum entry_phase phase, void *arg)
{
    return stage_at(b, phase, arg, STAGE_READY);
}

/* ------------------------------------------------------------------------------------------------------------ the call */
static struct timeline_range range_of(const void *at, size_t bytes)
{
    return (struct timeline_range){(uintptr_t)at, (uintptr_t)at + bytes};
}

static enum comm_result issue_stage(struct comm_state *b, struct symmetric *s, int stage, struct comm_request *req)
{
    bool first = stage == STAGE_SIZES;
    struct engine_call call = {.collective = COLLECTIVE_MEMORY, .type = COMM_BYTE, .root = -1};
    struct timeline_range sent_next = range_of(&s->ready, sizeof s->ready);

    call.in = first ? (const void *)&s->mine : &s->ready;
    call.out = first ? (void *)s->all : s->all_ready;
    call.n = first ? sizeof s->mine : sizeof s->ready;
    call.read = range_of(call.in, call.n);
    call.write = range_of(call.out, (size_t)s->size * call.n);
    if (first)
        timeline_widen(&call.write, &sent_next);
    s->references++;
    enum comm_result r = state_issue(b, &call, first ? sizes_at : ready_at, s, req);
    if (r != COMM_OK)
        s->references--;
    return r;
}

/* The first exchange has started, and the other ranks cannot go on without the second. */
static void abandon(struct comm_state *b, struct symmetric *s, enum comm_result why)
{
    s->abandoned = true;
    state_propose(
        b,
        &(struct cause){.number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = why, .collective = COLLECTIVE_MEMORY});
}

static enum comm_result issue(struct comm_state *b, size_t bytes, void **out, struct comm_request *req)
{
    if (!timeline_reserve(&b->line, STAGES)) /* both or none: FULL may be tried again */
        return COMM_ERR_FULL;
    struct symmetric *s = make(b, bytes, out);
    if (!s) /* its number is used up too */
        return state_refuse(b, &(struct engine_call){.collective = COLLECTIVE_MEMORY}, COMM_ERR_MEMORY);
    enum comm_result r = issue_stage(b, s, STAGE_SIZES, NULL);
    if (r == COMM_OK && b->failed) /* by a peer's note on this call: the first exchange has ended */
        r = (enum comm_result)b->failure.cause.result;
    else if (r == COMM_OK && (r = issue_stage(b, s, STAGE_READY, req)) != COMM_OK)
        abandon(b, s, r);
    drop(b, s);
    return r;
}

enum comm_result engine_memory_symmetric(struct comm_communicator *c, size_t bytes, void **out, struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct comm_state *b = state_lock(c, &r);

    if (b) {
        const struct comm_env *env = b->unit.engine->env;
        int before = env->cancel(env, ENV_CANCEL_OFF);
        r = b->recording.plan ? COMM_ERR_STATE : state_ready_for_calls(b);
        if (r == COMM_OK)
            r = issue(b, bytes, out, &own);
        if (!b->recording.plan)
            state_settle(b);
        env->cancel(env, before);
        state_leave(b);
    }
    return engine_answer(r, own, req);
}
