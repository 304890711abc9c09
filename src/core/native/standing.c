/* Calls of plans that a library keeps between their starts. */
#include "native/standing.h"

#include "native/short.h"
#include "native/takes.h"

/* ------------------------------------------------------------------------------------------------------------ references */
static struct standing *make(struct comm_state *b, uint32_t plan)
{
    const struct comm_env *env = b->unit.engine->env;
    struct standing *made = env->take(env, sizeof *made, 64);

    if (!made)
        return NULL;
    *made = (struct standing){.next = b->library_work.standing, .references = 1, .plan = plan};
    b->library_work.standing = made;
    return made;
}

void standing_drop(struct comm_state *b, struct standing *standing)
{
    const struct comm_env *env = b->unit.engine->env;
    struct standing **at = &b->library_work.standing;

    if (--standing->references)
        return;
    if (standing->made)
        b->native->native->class->forget(b->native, standing->made);
    while (*at != standing)
        at = &(*at)->next;
    *at = standing->next;
    env->give(env, standing, sizeof *standing);
}

void standing_begin(struct standing *standing, struct entry *e)
{
    e->standing = standing;
    if (standing)
        standing->references++;
}

void standing_ended(struct comm_state *b, struct entry *e)
{
    if (BASE_LIKELY(!e->standing))
        return;
    e->standing->runs = false;
    standing_drop(b, e->standing);
    e->standing = NULL;
}

void standing_end(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    while (b->library_work.standing) {
        struct standing *gone = b->library_work.standing;
        b->library_work.standing = gone->next;
        env->give(env, gone, sizeof *gone);
    }
}

/* ------------------------------------------------------------------------------------------------------------ starts */
/* The call with the number of its plan in its fingerprint, as if each plan were a place of the program. */
static struct engine_call numbered(const struct engine_call *call, uint32_t plan)
{
    struct engine_call made = *call;

    made.site = (uint32_t)base_hash(call->site, plan) | 1; /* 0 would be no place */
    return made;
}

/* Asks only once, because a call of a plan does not change. */
static bool is_taken(struct comm_state *b, const struct engine_call *call, struct standing *standing)
{
    struct call_shape *f = &standing->form;

    if (BASE_UNLIKELY(!f->known)) {
        const struct engine_call as = numbered(call, standing->plan);
        *f = call_shape_of(call, state_fingerprint(b, &as));
        f->fits = native_takes(b, call) == COMM_OK;
    }
    return f->fits;
}

enum comm_result standing_issue(struct comm_state *b, const struct engine_call *call, struct standing **standing, uint32_t plan,
                                struct comm_request *req)
{
    if (!(b->library_work.flags & NATIVE_STANDS) || call->on_device) /* these are copied to other memory at each start */
        return COMM_ERR_UNSUPPORTED;
    if (BASE_UNLIKELY(!*standing && !(*standing = make(b, plan)))) {
        state_keep_refusal(b, call->collective, COMM_ERR_MEMORY);
        return state_refuse(b, call, COMM_ERR_MEMORY);
    }
    if (!is_taken(b, call, *standing))
        return COMM_ERR_UNSUPPORTED;
    if (BASE_LIKELY(native_issue_short(b, call, (*standing)->form.fingerprint, *standing, req)))
        return COMM_OK;
    const struct engine_call as = numbered(call, plan);
    enum comm_result r = state_issue(b, &as, NULL, NULL, req);
    if (r == COMM_OK && !b->failed)
        standing_begin(*standing, state_entry(b, b->line.next - 1));
    return r;
}
