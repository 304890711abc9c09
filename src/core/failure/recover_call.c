/* comm_agree and comm_shrink as the program calls them: checks, the start, and how comm_close() withdraws their outputs. */
#include "failure/recover.h"

#include "base/format.h"
#include "fastpath/wait.h"
#include "p2p/op.h"

#include <string.h>

static enum comm_result refuse(struct comm_state *b, const char *call, enum comm_result result, const char *text)
{
    struct comm_error *error = b->recovery.state ? &b->recovery.state->error : &b->failure.last_refused;

    *error = (struct comm_error){.size = sizeof *error, .result = result, .rank = b->team.rank, .peer = -1};
    base_copy_text(error->operation, sizeof error->operation, call);
    base_copy_text(error->text, sizeof error->text, text);
    return result;
}

/* The call takes a slot of the message line. If a message in that slot was ended by the failure, only the slot holds its result. So record
 * the result by its number first. */
static void keep_last(struct comm_state *b)
{
    enum comm_result result;
    uint64_t ticket = b->failed && b->p2p.free != P2P_NONE ? timeline_slot_error(b->unit.handle, b->p2p.free, &result) : 0;

    if (ticket)
        timeline_except(b->unit.handle, ticket, result, false);
}

static enum comm_result begin(struct comm_state *b, const char *call, struct comm_request *req)
{
    struct recovery *v = b->recovery.state;

    if (b->recording.plan)
        return COMM_ERR_STATE;
    if (!v)
        return refuse(b, call, COMM_ERR_UNSUPPORTED, "agree, shrink: more than 1024 ranks; expected fewer, since a note holds no more");
    if (v->stage != RECOVERY_IDLE)
        return refuse(b, call, COMM_ERR_STATE,
                      "agree, shrink: another one of this communicator is under way; expected one after the other");
    if (v->over != COMM_OK)
        return v->over;
    if (state_is_aborted(b))
        return refuse(b, call, COMM_ERR_ABORTED, "agree, shrink: the world was aborted; use comm_revoke instead if ranks are to go on");
    memset(&v->error, 0, sizeof v->error);
    keep_last(b);
    enum comm_result r = p2p_begin_recovery(b, &v->op, req);
    v->since_ns = b->unit.engine->env->now(b->unit.engine->env);
    v->late_step = 0;
    return r;
}

static void go(struct comm_state *b, enum recovery_stage kind, uint64_t flags)
{
    b->recovery.running = true;
    recovery_enter(b, kind, flags);
    state_activate(b);
    (void)state_step(b); /* the notes of the others may already be enough */
}

static enum comm_result start(struct comm_communicator *c, enum recovery_stage kind, uint64_t *flags, struct comm_communicator **survivors,
                              struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct comm_state *b = state_lock(c, &r);

    if (b) {
        r = begin(b, kind == RECOVERY_AGREE ? "agree" : "shrink", &own);
        if (r == COMM_OK) {
            b->recovery.state->flags = flags;
            b->recovery.state->shrinking.out = survivors;
            go(b, kind, flags ? *flags : UINT64_MAX);
        }
        state_unlock(b);
    }
    return engine_answer(r, own, req);
}

enum comm_result engine_agree(struct comm_communicator *c, uint64_t *flags, struct comm_request *req)
{
    return start(c, RECOVERY_AGREE, flags, NULL, req);
}

enum comm_result engine_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req)
{
    return start(c, RECOVERY_SET, NULL, survivors, req);
}

/* This rank still takes part in a running agreement, for the others. A new communicator without a receiver is closed. */
void recovery_withdraw(struct comm_state *b)
{
    if (!b->recovery.state)
        return;
    b->recovery.state->flags = NULL;
    b->recovery.state->shrinking.out = NULL;
}
