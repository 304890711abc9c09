/* Messages in device memory. A send is first copied to a stage. A receive arrives in a stage and is then copied to the device. */
#include "p2p/op.h"

#include "base/format.h"

/* Opens the pool, and checks that all of the buffer is memory of the device. */
enum comm_result p2p_reach_device(struct comm_state *b, const struct message_call *call)
{
    struct comm_error *reported = &b->failure.last_refused;
    char text[192] = "";
    enum comm_result r = staging_open(&b->staged.pool, b->unit.engine, text, sizeof text);

    if (r == COMM_OK && staging_spans(b->staged.pool, call->buf, call->bytes))
        return COMM_OK;
    *reported = (struct comm_error){.size = sizeof *reported, .result = r, .rank = b->team.rank, .peer = call->peer};
    if (r == COMM_OK) {
        reported->result = r = COMM_ERR_ARGUMENT;
        base_format(text, sizeof text, "expected %zu bytes of a device's memory: it ends before", call->bytes);
    }
    base_copy_text(reported->operation, sizeof reported->operation, call->is_send ? "send" : "recv");
    base_copy_text(reported->cause, sizeof reported->cause, "refused at the call");
    base_format(reported->text, sizeof reported->text, "%s: buf=0x%llx; %s", reported->operation, (unsigned long long)(uintptr_t)call->buf,
                text);
    return r;
}

static bool take(struct comm_state *b, struct p2p_op *t)
{
    struct stage_side none = {0, 0, NULL}, whole = {t->buf.from, t->buf.to - t->buf.from, NULL};

    t->stage = staging_take(b->staged.pool, t->is_send ? &whole : &none, t->is_send ? &none : &whole);
    if (!t->stage)
        return false;
    t->call.buf = t->is_send ? t->stage->in.at : t->stage->out.at;
    if (t->is_send)
        t->stage->copy = STAGE_WAITING;
    return true;
}

/* Starts a copy, or retries one that the device had no room for. PENDING: the copy is in progress, or there is still no room. */
static enum comm_result copy(struct comm_state *b, struct p2p_op *t, enum device_way way, size_t bytes)
{
    void *theirs = (void *)t->buf.from;
    struct device_piece piece =
        way == DEVICE_IN ? (struct device_piece){t->call.buf, theirs, bytes} : (struct device_piece){theirs, t->call.buf, bytes};
    enum comm_result r = COMM_OK;

    if (t->stage->copy == STAGE_WAITING)
        r = staging_copy(b->staged.pool, t->stage, way, &piece, 1);
    if (r != COMM_OK && r != COMM_ERR_FULL) {
        staged_failed(b, NULL, r);
        return r;
    }
    staged_note(b, t->stage);
    return staging_reached(t->stage) ? COMM_OK : COMM_PENDING;
}

enum comm_result p2p_stage(struct comm_state *b, struct p2p_op *t)
{
    if (!t->stage && !take(b, t))
        return COMM_ERR_MEMORY;
    return t->is_send ? copy(b, t, DEVICE_IN, t->call.bytes) : COMM_OK;
}

bool p2p_store(struct comm_state *b, struct p2p_op *t, const struct message_finished *done)
{
    if (t->is_send || done->result != COMM_OK || !done->bytes || b->failed)
        return false;
    t->call.bytes = done->bytes;
    t->state = P2P_STORING;
    t->stage->copy = STAGE_WAITING;
    return !p2p_stored(b, t);
}

bool p2p_stored(struct comm_state *b, struct p2p_op *t)
{
    return copy(b, t, DEVICE_OUT, t->call.bytes) == COMM_OK;
}
