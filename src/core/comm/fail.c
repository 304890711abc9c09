/*
 * Failure has three steps. Proposed: this rank's note holds the cause, and all members see it. Adopted: one compare-and-swap on the board
 * chooses the cause of one member. Ended: nothing retires any more.
 *
 * Across hosts there is no board. There the lowest live member chooses the first proposal that it made or received. Each member that
 * receives the choice repeats it once, so that all survivors get it even if the chooser dies. If a member receives no choice for CHOICE_NS
 * times the number of members below it, it chooses itself. A rank that aborts, revokes or closes waits for no choice. A choice may come
 * before the calls that its text names: a mismatch is passed on at once, and ends the communicator when they are here, or after NAME_NS.
 */
#include "comm/parts.h"

#include "base/format.h"
#include "message/message.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ step 3: ended */
/* A rank that has not made the call of this operation, otherwise the rank that died. */
uint16_t state_waits_for(const struct comm_state *b, const struct entry *e)
{
    for (int32_t r = 0; e->seq && b->channel && r < b->team.size; r++) {
        const struct wire_call *ring = b->channel->peer_calls[r];
        uint32_t seq = ring ? atomic_load_explicit(&ring[e->seq & b->calls.mask].seq, memory_order_acquire) : e->seq;
        if (r != b->team.rank && (!seq || (int32_t)(seq - e->seq) < 0))
            return (uint16_t)(r + 1);
    }
    return b->failure.cause.result == COMM_ERR_PEER ? (uint16_t)(b->failure.cause.rank + 1) : 0;
}

/* Drops all entries. A device copy that is in progress ends by itself, and until then the device accesses the caller's buffers. */
static void drop_entries(struct comm_state *b)
{
    int64_t now = b->unit.engine->env->now(b->unit.engine->env);
    uint32_t held = 0; /* the program has the request of a call's last part, and earlier parts may hold its buffers */

    for (uint64_t t = b->line.done + 1; t < b->line.next; t++) {
        struct entry *e = state_entry(b, t);
        if (e->ended)
            (void)e->ended(b, ENTRY_DROPPED, e->ended_arg);
        e = state_entry(b, t);
        e->ended = NULL;
        held = (e->head.nth ? held : 0) | (e->stage ? b->staged.calls->held(e->stage) : 0);
        e->record.flags |= held;
        e->record.waited = t <= b->line.started ? state_waits_for(b, e) : 0;
        state_record(b, &e->record, t, now, (enum comm_result)b->failure.cause.result);
        state_forget_entry(b, e);
    }
}

/* The monitor must fail the other communicators of the world, including those that the caller of comm_abort is not a member of: this thread
 * holds a lock and may take no other. */
void state_mark_abort(struct comm_state *b, const struct cause *cause)
{
    struct world *w = b->world;
    uint64_t none = 0, who = cause->rank >= 0 ? 1 + (uint64_t)b->team.world[cause->rank] : UINT32_MAX;

    if (!atomic_compare_exchange_strong_explicit(&w->aborted, &none, (uint64_t)(uint32_t)cause->code << 32 | who, memory_order_acq_rel,
                                                 memory_order_acquire))
        return;
    atomic_store_explicit(&b->unit.engine->monitor.heard_abort, 1, memory_order_release);
    b->unit.engine->env->bell_ring(b->unit.engine->env, &b->unit.engine->monitor.bell);
}

/* Also ends agree and shrink on a failed communicator, whatever its cause of failure was. */
void state_end_recovery(struct comm_state *b)
{
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->aborted)
            (*part)->aborted(b);
}

bool state_is_aborted(const struct comm_state *b)
{
    return atomic_load_explicit(&b->world->aborted, memory_order_acquire) != 0;
}

void state_hear_abort(struct comm_state *b)
{
    uint64_t aborted = atomic_load_explicit(&b->world->aborted, memory_order_acquire);
    uint32_t who = (uint32_t)aborted;
    struct cause cause = {.number = b->sequence, .result = COMM_ERR_ABORTED, .code = (int32_t)(aborted >> 32)};

    if (!aborted)
        return;
    cause.rank = cause.peer = who == UINT32_MAX ? -1 : team_find(&b->team, (int32_t)who - 1);
    state_propose(b, &cause);
    state_end_recovery(b);
}

static void end_all(struct comm_state *b, const struct cause *cause)
{
    /* the cause is on the board before any rank writes memory that peers may still read: see may_be_torn */
    atomic_thread_fence(memory_order_seq_cst);
    b->failure.cause = *cause;
    b->failed = true;
    if (cause->result == COMM_ERR_PEER)
        atomic_store_explicit(&b->world->lost, true, memory_order_relaxed);
    if (cause->result == COMM_ERR_ABORTED) {
        state_mark_abort(b, cause);
        state_end_recovery(b);
    }
    b->queue_wait.ticket = 0;
    b->calls.unpublished = 0;
    state_end_nap(b);
    state_count_joining(b, -(int32_t)b->library_work.joining);
    memset(b->runs.ready, 0, sizeof b->runs.ready);
    b->runs.any_ready = false;
    b->failure.proposal = (struct cause){0};
    int before = b->unit.engine->env->cancel(b->unit.engine->env, ENV_CANCEL_OFF);
    b->wire->leave(b->channel, WIRE_ABORT);
    b->unit.engine->env->cancel(b->unit.engine->env, before);
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->failing)
            (*part)->failing(b, (enum comm_result)cause->result);
    message_fail(b->messages, (enum comm_result)cause->result);
    timeline_fail(&b->line, (enum comm_result)cause->result);
    drop_entries(b);
    b->line.started = b->line.done;
    b->line.next = b->line.done + 1;
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->ended)
            (*part)->ended(b, (enum comm_result)cause->result);
    struct comm_error error = {.size = sizeof error};
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->describe)
            (*part)->describe(b, cause, &error);
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->failed)
            (*part)->failed(b, &error);
    base_log(&b->unit.engine->log, cause->result == COMM_ERR_ABORTED || cause->result == COMM_ERR_REVOKED ? LOG_INFO : LOG_ERROR, "%s",
             error.text);
}

/* ------------------------------------------------------------------------------------------------------------ step 2: adopted */
enum { CHOICE_NS = 200000000, NAME_NS = 500000000 };
enum { ROUND_PROPOSED = 0, ROUND_CHOSEN = 1 }; /* in the round of a note's key */

static void send_cause(struct comm_state *b, const struct cause *cause, uint32_t round)
{
    struct wire_span span = {cause, sizeof *cause};
    struct wire_expose note = {
        .key = wire_key_of((uint32_t)b->sequence, round, NOTE_FAILED), .flags = WIRE_NOTE, .nspans = 1, .spans = &span};

    if (b->team.size > 1)
        b->wire->expose(b->channel, &note);
}

/* How many live members are below this rank. Each of them chooses before it. */
static int64_t members_below(const struct comm_state *b)
{
    const struct cause *p = &b->failure.proposal;
    int64_t below = 0;

    for (int32_t r = 0; r < b->team.rank; r++)
        below += !b->failure.closed_at[r] && !(p->rank == r && (p->result == COMM_ERR_PEER || p->result == COMM_ERR_CLOSED));
    return below;
}

static bool may_choose(const struct comm_state *b)
{
    int32_t result = b->failure.proposal.result;
    bool mine = b->failure.proposal.rank == b->team.rank;

    if (b->unit.closing || (mine && (result == COMM_ERR_ABORTED || result == COMM_ERR_REVOKED || result == COMM_ERR_CLOSED)))
        return true;
    int64_t below = members_below(b);
    return !below || b->unit.engine->env->now(b->unit.engine->env) - b->failure.proposed_ns >= below * CHOICE_NS;
}

static bool can_name(struct comm_state *b, const struct cause *cause)
{
    return cause->result != COMM_ERR_MISMATCH || b->unit.closing ||
           (state_has_published(b, cause->rank, cause->number) && state_has_published(b, cause->peer, cause->number)) ||
           b->unit.engine->env->now(b->unit.engine->env) - b->failure.proposed_ns >= NAME_NS;
}

static void choose(struct comm_state *b, const struct cause *chosen)
{
    struct cause cause = *chosen;

    if (!b->failure.chosen) {
        send_cause(b, &cause, ROUND_CHOSEN);
        b->failure.chosen = true;
        b->failure.proposal = cause;
        b->failure.proposed_ns = b->unit.engine->env->now(b->unit.engine->env);
    }
    if (can_name(b, &cause))
        end_all(b, &cause);
}

/* Only without a board. */
static void hear_cause(struct comm_state *b, const struct cause *cause, uint32_t round)
{
    if (round == ROUND_CHOSEN && !b->failure.chosen) {
        choose(b, cause);
        return;
    }
    if (!b->failure.proposal.result) {
        b->failure.proposal = *cause;
        b->failure.proposed_ns = b->unit.engine->env->now(b->unit.engine->env);
    }
    state_attend(b);
}

void state_attend(struct comm_state *b)
{
    struct wire_board *board = b->channel->board;
    uint64_t chosen = 0;

    if (b->failed)
        return;
    if (!board) {
        if (b->failure.proposal.result && (b->failure.chosen || may_choose(b)))
            choose(b, &b->failure.proposal);
        return;
    }
    if (b->failure.proposal.result)
        atomic_compare_exchange_strong_explicit(&board->cause, &chosen, (uint64_t)b->team.rank + 1, memory_order_acq_rel,
                                                memory_order_acquire);
    if (!b->failure.proposal.result)
        return;
    /* If another rank chose, its note has the cause. It wrote the note before its compare-and-swap. */
    if (chosen == 0 || chosen == (uint64_t)b->team.rank + 1) {
        struct cause cause = b->failure.proposal;
        end_all(b, &cause);
    }
}

void state_send_note(struct comm_state *b, uint32_t sort, const void *bytes, size_t count)
{
    struct wire_span span = {bytes, count};
    struct wire_expose note = {.key = wire_key_of((uint32_t)b->sequence, 0, sort), .flags = WIRE_NOTE, .nspans = 1, .spans = &span};

    if (b->team.size > 1)
        b->wire->expose(b->channel, &note);
}

void state_propose(struct comm_state *b, const struct cause *cause)
{
    if (b->failed || b->failure.proposal.result)
        return;
    b->failure.proposal = *cause;
    b->failure.proposed_ns = b->unit.engine->env->now(b->unit.engine->env);
    send_cause(b, cause, ROUND_PROPOSED);
    if (b->team.size > 1) /* before the choice, so that the others need not wait for a rank that chose and then died */
        b->wire->flush(b->channel);
    state_attend(b);
    if (b->team.size > 1)
        b->wire->flush(b->channel);
}

void state_propose_own(struct comm_state *b, const struct entry *e, enum comm_result result, int32_t code)
{
    struct cause cause = {
        .number = e->seq, .rank = b->team.rank, .peer = b->team.rank, .result = result, .collective = e->record.collective, .code = code};

    state_propose(b, &cause);
}

/* `number` is this rank's newest call. */
void state_tell_refusal(struct comm_state *b, uint64_t number, enum comm_result reason)
{
    struct refusals *mine = &b->failure.refusals;
    uint64_t since = mine->last ? number - mine->last : 33;

    mine->before = since > 32 ? 0 : (uint32_t)((uint64_t)mine->before << since) | UINT32_C(1) << (since - 1);
    mine->last = number;
    mine->reason = reason;
    struct cause note = {.number = number, .rank = b->team.rank, .code = reason, .result = COMM_ERR_REFUSED, .point = mine->before};

    state_send_note(b, NOTE_REFUSED, &note, sizeof note);
}

void state_tell_close(struct comm_state *b)
{
    struct cause note = {.number = b->sequence, .rank = b->team.rank, .result = COMM_ERR_CLOSED};

    state_send_note(b, NOTE_CLOSED, &note, sizeof note);
}

/* ------------------------------------------------------------------------------------------------------------ notes from peers */
/* With a board, the rank that chose sends nothing but its note. If that note is invalid, no cause would ever come. */
static void end_without_choice(struct comm_state *b, int32_t peer)
{
    struct wire_board *board = b->channel->board;

    if (b->failed || !board || atomic_load_explicit(&board->cause, memory_order_acquire) != (uint64_t)peer + 1)
        return;
    struct cause cause = {.number = b->sequence, .rank = peer, .peer = b->team.rank, .result = COMM_ERR_CORRUPT};
    end_all(b, &cause);
}

void state_peer_is_wrong(struct comm_state *b, int32_t peer, const char *what)
{
    if (b->failed || b->failure.proposal.result)
        return;
    base_log(&b->unit.engine->log, LOG_ERROR, "comm=%s: rank %d sent %s", b->name, peer, what);
    state_propose(b, &(struct cause){.number = b->sequence, .rank = peer, .peer = b->team.rank, .result = COMM_ERR_CORRUPT});
}

void state_note(struct comm_state *b, const struct wire_event *event)
{
    struct cause note;
    struct heard_by by = {b->team.id, b->sequence, b->team.size, b->world->ranks, b->recovery.state != NULL};
    const char *why = heard_note_fault(&by, event);

    if (why) {
        state_peer_is_wrong(b, event->peer, why);
        end_without_choice(b, event->peer);
        return;
    }
    if (parts_note(b, event))
        return;
    memcpy(&note, event->note, sizeof note);
    switch (wire_key_edge(event->key)) {
    case NOTE_FAILED: {
        uint64_t chosen = 0;
        struct wire_board *board = b->channel->board;
        if (b->failed)
            return;
        if (!board) {
            hear_cause(b, &note, wire_key_round(event->key));
            return;
        }
        /* The proposer may have died before it chose, so choose for it. */
        atomic_compare_exchange_strong_explicit(&board->cause, &chosen, (uint64_t)event->peer + 1, memory_order_acq_rel,
                                                memory_order_acquire);
        if (chosen == 0 || chosen == (uint64_t)event->peer + 1)
            end_all(b, &note);
        return;
    }
    case NOTE_REFUSED:
        state_hear_refusal(b, event->peer, &note);
        return;
    case NOTE_CLOSED:
        b->failure.closed_at[event->peer] = note.number + 1;
        b->failure.closed_ns = b->unit.engine->env->now(b->unit.engine->env);
        return;
    default:
        return;
    }
}
