/*
 * What a stream of the device does besides single collectives: it waits for a point of another queue, sends messages between devices, and
 * starts the collectives of a group together. Entries of waits and messages belong to this rank alone: they have no number, and no peer
 * has one for them.
 */
#include "native/stream.h"

#include "base/format.h"
#include "comm/state.h"

/* Called before the entry is issued under the next ticket. UNSUPPORTED: the stream cannot wait for such a point. */
enum comm_result native_stream_wait(struct comm_state *b, struct entry *e, const struct timeline_point *point)
{
    struct native_point given = {point->word, point->value};
    enum comm_result r;

    if (timeline_point_test(point) != COMM_PENDING)
        return COMM_OK; /* an ordinary queue wait, which ends at once */
    if (!given.word && (r = engine_need_progress_thread(b->unit.engine)) != COMM_OK)
        return r;
    r = b->native->native->class->wait(b->native, &given, b->line.next);
    if (r != COMM_OK)
        return r;
    e->head.kind = TIMELINE_WORK; /* later calls go into the stream behind it, so the queue itself waits for nothing */
    e->by = ENTRY_BY_STREAM;
    /* The device may wait for the point by itself, but a request can fail, so its result is still watched. A word cannot fail. */
    e->parked = point->kind != POINT_WORD;
    b->library_work.parked += e->parked;
    return COMM_OK;
}

/* Stores the detail of messages that were refused, for comm_error_detail. They use up no number. */
static enum comm_result refuse(struct comm_state *b, const struct native_message *messages, uint32_t count, enum comm_result reason,
                               const char *why)
{
    struct comm_error *d = &b->failure.last_refused;

    state_keep_refusal(b, COLLECTIVE_GROUP, reason);
    d->sequence = 0;
    if (count == 1)
        base_copy_text(d->operation, sizeof d->operation, messages->is_send ? "send" : "recv");
    base_copy_text(d->text, sizeof d->text, why);
    return reason;
}

/* Messages between devices. Like a wait, such an entry belongs to this rank alone. */
enum comm_result native_stream_messages(struct comm_state *b, struct entry *e, const struct native_message *messages, uint32_t count)
{
    const struct native_class *class = b->native->native->class;
    char why[256] = "";
    int32_t code = 0;

    if (!class->messages)
        return refuse(b, messages, count, COMM_ERR_UNSUPPORTED, "buf is device memory; expected the host's: messages go over the wire");
    enum comm_result r = class->messages(b->native, messages, count, b->line.next, &code, why, sizeof why);
    if (r == COMM_ERR_ARGUMENT || (!count && r == COMM_ERR_MEMORY)) /* count 0: no message, only a mark on the stream */
        return refuse(b, messages, count, r, why);
    if (r != COMM_OK) {
        state_propose_own(b, e, r, code);
        return r;
    }
    e->head.kind = TIMELINE_WORK;
    e->by = ENTRY_BY_STREAM;
    e->parked = false;
    e->record.algorithm = class->name;
    return COMM_OK;
}

/* An entry is started after it was issued. So at the end of a group the queue runs first. */
void native_stream_group(struct comm_state *b, bool open)
{
    const struct native_class *class = b->native ? b->native->native->class : NULL;
    int32_t code = 0;

    if (!class || !class->group)
        return;
    if (!open && !b->failed)
        state_run_queue(b);
    enum comm_result r = class->group(b->native, open, &code);
    if (r != COMM_OK && !b->failed)
        state_propose_own(b, state_entry(b, b->line.next - 1), r, code);
}

bool native_release_parked(struct comm_state *b)
{
    bool moved = false;

    for (uint64_t t = b->line.done + 1; t <= b->line.started && b->library_work.parked && !b->failed; t++) {
        struct entry *e = state_entry(b, t);
        enum comm_result r = e->by == ENTRY_BY_STREAM && e->parked ? timeline_point_test(&e->point) : COMM_PENDING;
        if (r == COMM_PENDING)
            continue;
        e->parked = false;
        b->library_work.parked--;
        moved = true;
        if (r == COMM_OK)
            b->native->native->class->reach(b->native, t);
        else
            state_propose(b, &(struct cause){.rank = b->team.rank,
                                             .peer = b->team.rank,
                                             .result = r == COMM_ERR_ABANDONED ? COMM_ERR_ABANDONED : COMM_ERR_DEPENDENCY,
                                             .point = (uint32_t)r});
    }
    return moved;
}

/* `turn` is the oldest call that has not ended. At the first check that finds it the oldest, the last end that was seen is that of the call
 * before it, or a later one. Ends that are seen after that check change nothing: calls may run beside others, as the long ones of backend
 * cuda do, and must not keep alive one that hangs. */
int64_t native_since(struct comm_state *b, uint64_t ticket, const struct entry *e)
{
    struct library_work *w = &b->library_work;

    if (!(w->flags & NATIVE_IN_ORDER))
        return e->record.started_ns;
    if (w->turn > b->line.done && w->turn < ticket && state_entry(b, w->turn)->head.state == TIMELINE_STARTED)
        return INT64_MAX;
    if (w->turn != ticket) {
        w->turn = ticket;
        w->turn_ns = w->ended_ns;
    }
    return e->record.started_ns > w->turn_ns ? e->record.started_ns : w->turn_ns;
}
