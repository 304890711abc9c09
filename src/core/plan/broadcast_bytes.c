/*
 * broadcast_bytes: two entries of the queue that are issued together. The first one carries the length. Its end sets the length of the
 * second one and chooses its program, which cannot be known earlier. If the buffer is too short, the data goes to memory of the library and
 * is dropped, so that the others never wait for a rank with a short buffer.
 */
#include "plan/plan.h"
#include "plan/recording.h"

#include "staged/staged.h"

#include <commstream/collective.h>

struct bytes_call {
    const struct comm_env *env;
    uint64_t length; /* carried by the first entry; COMM_ROOT_FAILED: the root gave up */
    size_t capacity;
    size_t *bytes;   /* the caller's length */
    uint64_t second; /* ticket of the second entry */
    bool root, orphan;
    enum comm_result result;
};

static void bytes_free(struct bytes_call *n)
{
    n->env->give(n->env, n, sizeof *n);
}

/* The second entry conflicts with the first over the length, so it has not started yet. */
static enum comm_result set_length(struct comm_state *b, struct bytes_call *n)
{
    struct entry *e = state_entry(b, n->second);
    struct comm_program *program;
    size_t length = n->length == COMM_ROOT_FAILED ? 0 : (size_t)n->length;
    enum comm_result r = state_program(b, &e->call, COLLECTIVE_BROADCAST, e->root, length, &program, &e->record.algorithm);

    if (r != COMM_OK) {
        state_propose(
            b, &(struct cause){
                   .number = e->seq, .rank = b->team.rank, .peer = b->team.rank, .result = r, .collective = COLLECTIVE_BROADCAST_BYTES});
        return r;
    }
    state_release_program(b, e->program);
    e->program = program;
    e->call.n = length;
    e->record.bytes = length;
    e->spill = !n->root && length > n->capacity;
    n->result = n->length == COMM_ROOT_FAILED ? COMM_ERR_ABORTED : e->spill ? COMM_ERR_TRUNCATED : COMM_OK;
    if (!n->root && n->length != COMM_ROOT_FAILED)
        *n->bytes = length;
    return COMM_OK;
}

static enum comm_result length_known(struct comm_state *b, enum entry_phase phase, void *arg)
{
    struct bytes_call *n = arg;

    if (phase == ENTRY_ENDED && !n->orphan)
        (void)set_length(b, n);
    else if (phase != ENTRY_ENDED && n->orphan)
        bytes_free(n);
    return COMM_OK;
}

static enum comm_result bytes_came(struct comm_state *b, enum entry_phase phase, void *arg)
{
    struct bytes_call *n = arg;

    (void)b;
    if (phase == ENTRY_ENDED)
        return n->result;
    bytes_free(n);
    return COMM_OK;
}

static struct timeline_range range_of(const void *at, size_t bytes)
{
    return (struct timeline_range){(uintptr_t)at, (uintptr_t)at + bytes};
}

static enum comm_result issue_both(struct comm_state *b, const struct engine_call *how, struct bytes_call *n, struct comm_request *req)
{
    struct engine_call length = {.collective = COLLECTIVE_BROADCAST_BYTES,
                                 .type = COMM_BYTE,
                                 .root = how->root,
                                 .flags = how->flags,
                                 .site = how->site,
                                 .in = &n->length,
                                 .out = &n->length,
                                 .n = sizeof n->length};
    struct engine_call bytes = {.collective = COLLECTIVE_BROADCAST_BYTES,
                                .type = COMM_BYTE,
                                .root = how->root,
                                .flags = how->flags,
                                .site = how->site,
                                .on_device = how->on_device,
                                .in = how->out,
                                .out = how->out};
    struct timeline_range own = range_of(&n->length, sizeof n->length), buf = range_of(how->out, n->capacity);

    *(n->root ? &length.read : &length.write) = own;
    *(n->root ? &bytes.write : &bytes.read) = own;
    *(n->root ? &bytes.read : &bytes.write) = buf;
    enum comm_result r = state_issue(b, &length, length_known, n, NULL);
    if (r != COMM_OK || b->failed) { /* a peer's note failed the communicator: the first entry has ended, and nothing is queued after it */
        bytes_free(n);
        return r != COMM_OK ? r : (enum comm_result)b->failure.cause.result;
    }
    n->second = b->line.next;
    r = state_issue(b, &bytes, bytes_came, n, req); /* if a peer refused this number, the communicator has failed and n is gone */
    if (r != COMM_OK) { /* the first entry has started and writes into n: the other ranks cannot go on without this one */
        n->orphan = true;
        state_propose(
            b,
            &(struct cause){
                .number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = r, .collective = COLLECTIVE_BROADCAST_BYTES});
    }
    return r;
}

enum comm_result bytes_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    const struct comm_env *env = b->unit.engine->env;
    size_t *bytes = (size_t *)(uintptr_t)call->in;
    struct bytes_call *n = env->take(env, sizeof *n, 64);

    if (!n)
        return state_refuse(b, call, COMM_ERR_MEMORY);
    n->env = env;
    if (!timeline_reserve(&b->line, 2)) {
        bytes_free(n);
        return COMM_ERR_FULL;
    }
    if (state_is_device_memory(b, call->out)) {
        bytes_free(n);
        return state_refuse_device(b, call);
    }
    *n = (struct bytes_call){.env = env, .bytes = bytes, .root = b->team.rank == call->root, .capacity = *bytes};
    if (n->root)
        n->length = *bytes;
    if (n->capacity == COMM_ROOT_FAILED)
        n->capacity = 0;
    return issue_both(b, call, n, req);
}

static enum comm_result refuse_foreign(struct comm_communicator *c, const void *buf, enum comm_result r, const char *why,
                                       struct comm_request *req)
{
    if (r == COMM_ERR_CLOSED || r == COMM_ERR_FORKED)
        return call_refused(req, r);
    if (r == COMM_ERR_MEMORY)
        return engine_refuse(c, COLLECTIVE_BROADCAST_BYTES, r, req, "broadcast_bytes: out of memory while the device of buf was opened");
    return engine_refuse(c, COLLECTIVE_BROADCAST_BYTES, COMM_ERR_ARGUMENT, req,
                         "broadcast_bytes: buf=0x%llx; expected " CALL_FOREIGN "; no device: %s", (unsigned long long)(uintptr_t)buf, why);
}

enum comm_result engine_broadcast_bytes(struct comm_communicator *c, void *buf, size_t *bytes, int32_t root, struct comm_request *req,
                                        const void *site)
{
    struct engine_call call = {.collective = COLLECTIVE_BROADCAST_BYTES, .type = COMM_BYTE, .root = root, .in = bytes, .out = buf};
    enum comm_result r;
    char why[192] = "";
    struct comm_state *b = state_lock(c, &r);

    if (req)
        *req = COMM_REQUEST_NONE;
    if (b && BASE_UNLIKELY(state_is_foreign(b, buf))) {
        call.on_device = CALL_ON_DEVICE;
        b = staged_open(b, &r, why, sizeof why);
        if (!b)
            return refuse_foreign(c, buf, r, why, req);
        if (!staged_is_device(b, buf))
            call.on_device = 0;
    }
    if (b && (b->world->check & CHECK_CALLS))
        call.site = check_site(site);
    if (b && b->recording.plan) {
        r = b->recording.calls->call(b, &call);
        state_unlock(b);
    } else if (b) {
        r = state_ready_for_calls(b);
        if (r == COMM_OK)
            r = bytes_issue(b, &call, req);
        state_settle(b);
        state_unlock(b);
    }
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r;
}
