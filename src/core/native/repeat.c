/*
 * A program often repeats its last call with other buffers. Then all that must be checked are the buffers, and with counts whether they are
 * the same. So the call skips the checks of the arguments, the question whether the library takes it, and its fingerprint.
 */
#include "native/repeat.h"

#include "native/short.h"

#include <string.h>

struct repeated {
    struct engine_call call; /* its buffers are those of the last time */
    bool usable, dense;      /* dense: its displs are as if none were given */
    size_t vectors[];        /* its counts, then its displs */
};

static size_t bytes_of(const struct comm_state *b)
{
    return sizeof(struct repeated) + 2 * (size_t)b->team.size * sizeof(size_t);
}

void repeat_forget(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    env_give_back(env, b->library_work.repeated, bytes_of(b));
    b->library_work.repeated = NULL;
}

/* A rank that gives or gets nothing may pass any buffer there, and such calls take the long way. */
static bool is_usable(const struct engine_call *call)
{
    bool both = call->read.from != call->read.to && call->write.from != call->write.to;

    return call->collective == COLLECTIVE_BARRIER || call->collective == COLLECTIVE_BROADCAST || (both && !call->in_counts);
}

static void keep_vectors(struct repeated *x, const struct engine_call *call, size_t size)
{
    size_t at = 0;

    x->call.counts = memcpy(x->vectors, call->counts, size * sizeof *x->vectors);
    x->call.displs = memcpy(x->vectors + size, call->displs, size * sizeof *x->vectors);
    x->dense = true;
    for (size_t r = 0; r < size; at += call->counts[r++])
        x->dense &= call->displs[r] == at;
}

void repeat_keep(struct comm_state *b, const struct engine_call *call)
{
    const struct comm_env *env = b->unit.engine->env;
    bool usable = b->library_work.form.fits && is_usable(call);

    if (usable && !b->library_work.repeated)
        b->library_work.repeated = env->take(env, bytes_of(b), 64);
    struct repeated *x = b->library_work.repeated;
    if (x)
        x->usable = usable;
    if (!x || !usable)
        return;
    x->call = *call;
    if (call->counts)
        keep_vectors(x, call, (size_t)b->team.size);
}

static bool has_same_vectors(const struct repeated *x, const size_t *counts, const size_t *displs, size_t size)
{
    size_t bytes = size * sizeof *counts;

    if (!counts || !x->call.counts)
        return !counts && !x->call.counts;
    if (memcmp(counts, x->call.counts, bytes) != 0)
        return false;
    return displs ? memcmp(displs, x->call.displs, bytes) == 0 : x->dense;
}

/* Gives the call these buffers, as the program passed them. False: something is wrong with them. */
static bool take_buffers(struct engine_call *call, const void *in, void *out)
{
    bool in_place = in == COMM_IN_PLACE && call->collective == COLLECTIVE_ALLREDUCE;
    size_t reads = call->read.to - call->read.from, writes = call->write.to - call->write.from;
    uintptr_t nowhere = (uintptr_t)COMM_IN_PLACE, to = (uintptr_t)out, from = in_place ? to : (uintptr_t)in;
    bool apart = in_place || from + reads <= to || to + writes <= from;

    if ((reads && (!from || from == nowhere)) || (writes && (!to || to == nowhere)) || !apart)
        return false;
    call->in = (const void *)from;
    call->out = out;
    call->read = (struct timeline_range){from, from + reads};
    call->write = (struct timeline_range){to, to + writes};
    return true;
}

bool native_repeat(struct comm_state *b, const void *in, void *out, size_t n, uint64_t what, uint64_t where, const size_t *counts,
                   const size_t *displs, struct comm_request *req)
{
    const struct call_shape *f = &b->library_work.form;
    struct repeated *x = b->library_work.repeated;

    if (!x || !x->usable || f->what != what || f->where != where || (f->n != n && !counts))
        return false;
    if (!has_same_vectors(x, counts, displs, (size_t)b->team.size) || !take_buffers(&x->call, in, out))
        return false;
    return native_issue_short(b, &x->call, f->fingerprint, NULL, req);
}
