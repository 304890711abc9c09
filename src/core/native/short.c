/*
 * The short path: a collective on an idle communicator starts without the steps of the queue, which take longer than MPI needs for a few
 * bytes. The result is an ordinary entry, so the code that fails, closes, lists or waits for entries needs no special case.
 */
#include "native/short.h"

#include "native/repeat.h"
#include "native/standing.h"
#include "native/takes.h"

enum { SHORT_TURNS = 400, BRIEF_BYTES = 4096 };

/* All that a call does before the library has it, and after it has ended, delays the peers' next calls too. So for few bytes the clock is
 * read in between: when the library has the call, and after a look that found nothing. The times are exact to one call of the library. */
static bool is_brief(const struct entry *e)
{
    return e->record.bytes < BRIEF_BYTES;
}

static void read_clock(struct comm_state *b)
{
    b->now = b->unit.engine->env->now(b->unit.engine->env);
}

static bool may_go(const struct comm_state *b)
{
    const struct wire_board *board = b->channel->board;

    if (b->line.done + 1 != b->line.next || b->p2p.first != P2P_NONE || b->failed || b->failure.proposal.result ||
        b->sequence < b->failure.refused_until || (uint32_t)(b->sequence + 1) == 0 || (b->library_work.flags & NATIVE_STREAM) ||
        b->world->check)
        return false;
    return !board || !atomic_load_explicit(&board->cause, memory_order_relaxed);
}

bool native_issue_short(struct comm_state *b, const struct engine_call *call, uint32_t fingerprint, struct standing *standing,
                        struct comm_request *req)
{
    enum comm_result why;
    struct entry *e = may_go(b) ? (struct entry *)(void *)timeline_room(&b->line, &why) : NULL;

    if (!e)
        return false; /* the normal path reports why */
    state_fill_entry(e, call, fingerprint, NULL);
    if (call->counts && state_copy_vectors(b, call, e) != COMM_OK)
        return false;
    e->by = ENTRY_BY_NATIVE;
    standing_begin(standing, e);
    e->seq = e->record.sequence = (uint32_t)++b->sequence;
    e->chain = b->chain = state_chain(b->chain, fingerprint);
    e->record.algorithm = b->native->native->class->name;
    uint64_t ticket = b->library_work.alone = timeline_issue_alone(&b->line, &e->head);
    state_publish_call(b, e, call, COMM_OK);
    b->stats.operations++;
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    if (!is_brief(e))
        read_clock(b);
    native_start(b, ticket, e);
    if (is_brief(e))
        read_clock(b);
    e->record.queued_ns = e->record.started_ns = b->now;
    native_look(b);
    b->now = 0;
    if (BASE_UNLIKELY(b->failed != b->reported.failed))
        state_settle(b); /* others may wait for what has failed here */
    else if (BASE_UNLIKELY(b->library_work.alone && (!b->is_active || !b->library_work.counted)))
        state_activate(b);
    return true;
}

static bool takes_form(struct comm_state *b, const struct engine_call *call)
{
    struct call_shape *f = &b->library_work.form;

    if (BASE_LIKELY(call_is(f, call)))
        return f->fits;
    *f = call_shape_of(call, state_fingerprint(b, call));
    f->known = !call->counts; /* counts may differ in each call, so each call is checked */
    f->fits = native_takes(b, call) == COMM_OK;
    repeat_keep(b, call);
    return f->fits;
}

bool native_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    return may_go(b) && takes_form(b, call) && native_issue_short(b, call, b->library_work.form.fingerprint, NULL, req);
}

void native_retire_short(struct comm_state *b, struct entry *e)
{
    uint64_t ticket = b->library_work.alone;

    b->library_work.alone = 0;
    state_record(b, &e->record, ticket, is_brief(e) ? state_now(b) : b->unit.engine->env->now(b->unit.engine->env), COMM_OK);
    uint32_t seq = e->seq;
    state_forget_entry(b, e);
    timeline_retire_oldest(&b->line, &e->head);
    b->reported.done = ticket;
    b->wire->release(b->channel, seq, NULL);
    b->wire->flush(b->channel); /* a later flush would ring an armed loop for nothing */
    engine_wake_if_asleep(b->unit.engine);
}

/* Polls for as long as a peer that called at the same time may need. A look may take long, so not while the monitor waits for the lock. */
bool native_wait_short(struct comm_state *b, uint64_t ticket)
{
    if (!b->library_work.alone || b->library_work.alone != ticket || b->unit.engine->oversubscribed)
        return false;
    const _Atomic uint32_t *unseen = &b->unit.handle->unseen;
    for (int turn = 0; turn < SHORT_TURNS && b->library_work.alone && !atomic_load_explicit(unseen, memory_order_relaxed); turn++)
        if (!native_look(b))
            read_clock(b);
    b->now = 0;
    bool ended = b->line.done >= ticket;
    if (ended && b->line.done + 1 != b->line.next)
        state_settle(b); /* later entries may start now */
    return ended;
}
