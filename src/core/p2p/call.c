/* The calls of the program on the message line: send, receive, cancelling a receive, and probe. op.c handles a message after its call. */
#include "p2p/op.h"

#include "base/format.h"

/* ------------------------------------------------------------------------------------------------------------ device memory */
static enum comm_result refuse_device(struct comm_state *b, const struct message_call *call, const char *what)
{
    struct comm_error *d = &b->failure.last_refused;

    *d = (struct comm_error){.size = sizeof *d, .result = COMM_ERR_UNSUPPORTED, .rank = b->team.rank, .peer = -1};
    base_copy_text(d->operation, sizeof d->operation, call->is_send ? "send" : "recv");
    base_copy_text(d->cause, sizeof d->cause, "refused at the call");
    base_format(d->text, sizeof d->text, "buf is device memory, whose messages of tag 0 are matched in the order of the calls alone: %s",
                what);
    return COMM_ERR_UNSUPPORTED;
}

/* A stream library knows no tags and must know the peer of each receive. */
enum comm_result p2p_of_device(struct comm_state *b, const struct message_call *call, struct native_message *message)
{
    if (call->peer < 0)
        return refuse_device(b, call, "peer is COMM_ANY_PEER; expected a rank, or a tag other than 0");
    *message = (struct native_message){.at = call->buf, .bytes = call->bytes, .peer = call->peer, .is_send = call->is_send};
    if (call->status)
        *call->status = (struct comm_status){.peer = call->peer, .tag = 0, .bytes = call->bytes};
    return COMM_OK;
}

static enum comm_result post_device(struct comm_state *b, const struct message_call *call, struct comm_request *req)
{
    struct native_message message;
    struct timeline_range none = {0, 0}, buf = {(uintptr_t)call->buf, (uintptr_t)call->buf + call->bytes};
    enum comm_result r = p2p_of_device(b, call, &message);

    if (r == COMM_OK)
        r = p2p_precede_stream(b, call->is_send ? &buf : &none, call->is_send ? &none : &buf);
    return r == COMM_OK ? state_stream_messages(b, &message, 1, req) : r;
}

/* ------------------------------------------------------------------------------------------------------------ sending, receiving */
/* A message in device memory. It is an ordinary message once the device is open. */
static __attribute__((noinline)) enum comm_result stage_message(struct comm_state *b, struct comm_communicator *c,
                                                                struct message_call *call, struct comm_request *req)
{
    const char *name = call->is_send ? "send" : "recv";
    enum comm_result r = COMM_OK;
    char why[192] = "";

    b = staged_open(b, &r, why, sizeof why);
    if (!b && r != COMM_ERR_CLOSED && r != COMM_ERR_FORKED)
        r = engine_decline(c, COMM_ERR_ARGUMENT, req, "%s: buf=0x%llx; expected " CALL_FOREIGN "; no device: %s", name,
                           (unsigned long long)(uintptr_t)call->buf, why);
    if (!b)
        return r;
    call->on_device = staged_is_device(b, call->buf);
    if (b->recording.plan)
        r = b->recording.calls->message(b, call);
    else
        r = b->failed ? (enum comm_result)b->failure.cause.result : p2p_post(b, call, P2P_NONE, req);
    if (b->recording.plan && req)
        *req = COMM_REQUEST_NONE;
    if (!b->recording.plan)
        state_settle(b);
    state_leave(b);
    return r;
}

/* Nothing that was pending has changed, so only what the wire wrote is due. */
static void leave_quietly(struct comm_state *b)
{
    b->wire->flush(b->channel);
    b->now = 0;
    state_leave(b);
}

/* After a message that was posted: has nothing else changed? */
static bool is_quiet(const struct comm_state *b)
{
    return b->is_active && !b->line.waits_issued && !b->p2p.finished && !b->failed && !b->wire->system_calls && !b->library &&
           !b->recovery.running;
}

static enum comm_result post_in_host_memory(struct comm_state *b, const struct message_call *call, struct comm_request *req)
{
    if (call->is_send ? p2p_send_whole(b, call, req) : p2p_receive_whole(b, call, req)) {
        leave_quietly(b);
        return COMM_OK;
    }
    enum comm_result r = p2p_post_pending(b, call, P2P_NONE, req);
    if (is_quiet(b)) {
        leave_quietly(b);
    } else {
        state_settle(b);
        state_leave(b);
    }
    return r;
}

/* A step of a plan, a message in memory of the library's device, or a call after the failure. */
static enum comm_result post_otherwise(struct comm_state *b, const struct message_call *call, struct comm_request *req)
{
    enum comm_result r;

    if (b->recording.plan) {
        r = b->recording.calls->message(b, call);
        if (req)
            *req = COMM_REQUEST_NONE;
    } else {
        r = b->failed ? (enum comm_result)b->failure.cause.result : post_device(b, call, req);
        state_settle(b);
    }
    state_leave(b);
    return r;
}

enum comm_result engine_message(struct comm_communicator *c, bool is_send, void *buf, size_t bytes, int32_t peer, uint32_t tag,
                                struct comm_status *status, struct comm_request *req)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);
    struct message_call call = {.buf = buf, .bytes = bytes, .peer = peer, .tag = tag, .status = status, .is_send = is_send};

    if (b && BASE_UNLIKELY(bytes && (state_is_foreign(b, buf) || (!b->failed && p2p_is_beside_stream(b, &call)))))
        r = stage_message(b, c, &call, req);
    else if (b && BASE_UNLIKELY(b->recording.plan || b->failed || (b->library_work.flags && p2p_is_in_stream(b, &call))))
        r = post_otherwise(b, &call, req);
    else if (b)
        r = post_in_host_memory(b, &call, req);
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ cancelling */
enum comm_result engine_cancel(struct comm_request request)
{
    enum comm_result r;

    if (!request.comm)
        return request.ticket ? timeline_test(request) : COMM_ERR_STATE;
    struct comm_state *b = state_lock(request.comm, &r);
    if (!b)
        return r;
    r = timeline_belongs(request);
    if (r == COMM_OK)
        r = COMM_ERR_STATE;
    uint32_t i = timeline_slot_index(request.ticket);
    if ((request.ticket & TIMELINE_MESSAGE) && i < b->p2p.room && b->p2p.ops[i].ticket == request.ticket && !b->p2p.ops[i].is_send) {
        uint8_t state = b->p2p.ops[i].state;
        if (state == P2P_POSTED) {
            r = message_cancel(b->messages, i, COMM_ERR_CANCELLED);
        } else if (state == P2P_HELD || state == P2P_ONE) { /* ONE: a wait for a signal */
            p2p_end(b, &b->p2p.ops[i], COMM_ERR_CANCELLED);
            r = COMM_OK;
        }
        p2p_step(b);
        state_settle(b);
    }
    state_unlock(b);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ probing */
struct probe {
    struct comm_communicator *c;
    uint64_t life; /* of c: after a close another communicator may have its handle */
    int32_t peer;
    uint32_t tag;
    struct comm_status *status;
    enum comm_result result;
};

static bool probe_done(void *arg)
{
    struct probe *p = arg;
    enum comm_result r;
    struct comm_state *b = state_lock(p->c, &r);

    p->result = r;
    if (!b)
        return true;
    if (p->c->life != p->life)
        p->result = COMM_ERR_CLOSED;
    else if (b->failed)
        p->result = (enum comm_result)b->failure.cause.result;
    else {
        state_step(b);
        p->result = message_probe(b->messages, p->peer, p->tag, p->status) ? COMM_OK : COMM_PENDING;
    }
    state_unlock(b);
    return p->result != COMM_PENDING;
}

enum comm_result engine_probe(struct comm_communicator *c, int32_t peer, uint32_t tag, int64_t timeout_ns, struct comm_status *status)
{
    struct probe p = {.c = c, .peer = peer, .tag = tag, .status = status};
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    struct engine *e = b->unit.engine;
    int64_t most = b->timeout_ns;
    p.life = c->life;
    bool usable = !b->recording.plan && (timeout_ns == 0 || !engine_in_callback(e));
    engine_hold(e);
    state_unlock(b);
    if (!usable)
        p.result = COMM_ERR_STATE;
    else if (!probe_done(&p) && timeout_ns != 0)
        (void)engine_move_until(e, NULL, probe_done, &p, engine_deadline(e, timeout_ns < most ? timeout_ns : most));
    engine_drop(e);
    return p.result;
}
