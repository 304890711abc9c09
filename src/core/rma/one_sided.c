/*
 * Executes calls on windows, one bounded piece at a time. Nothing here waits. If another rank holds the lock, if a signal has not come, or
 * if more than one piece remains, a later pass tries again.
 */
#include "rma/queue.h"
#include "rma/window.h"

#include <string.h>

enum { PIECE_BYTES = 1 << 20, PIECE_ELEMENTS = 4096 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static enum comm_result move(struct one_sided *one, const struct window_part *part)
{
    size_t bytes = smaller(one->n - one->done, PIECE_BYTES);
    char *there = part->at + one->offset + one->done;

    if (bytes && one->kind == ONE_PUT)
        memmove(there, (const char *)one->from + one->done, bytes);
    else if (bytes)
        memmove((char *)one->to + one->done, there, bytes);
    one->done += bytes;
    return one->done == one->n ? COMM_OK : COMM_PENDING;
}

/* The lock is taken and released within one step, so it is never held long unless its holder was stopped or killed. The monitor reports
 * that case. */
static bool try_lock(const struct comm_state *b, struct window_control *control)
{
    uint64_t nobody = 0;

    return atomic_compare_exchange_strong_explicit(&control->lock, &nobody, (uint64_t)b->team.rank + 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void unlock(struct window_control *control)
{
    atomic_store_explicit(&control->lock, 0, memory_order_release);
}

static enum comm_result update(const struct comm_state *b, struct one_sided *one, const struct window_part *part)
{
    size_t skip = one->done * one->element;
    char *there = part->at + one->offset + skip;
    struct data_update u = {.at = there,
                            .from = one->from ? (const char *)one->from + skip : NULL,
                            .old = one->to ? (char *)one->to + skip : NULL,
                            .n = smaller(one->n - one->done, PIECE_ELEMENTS),
                            .element = one->element,
                            .op = one->op,
                            .locked = !data_update_is_atomic(there, one->element)};

    if (one->op != COMM_REPLACE && one->op != COMM_NOOP)
        u.reduce = data_reducer(one->type, one->op, DATA_SCALAR);
    if (u.locked && !try_lock(b, part->control))
        return COMM_PENDING;
    data_update(&u);
    if (u.locked)
        unlock(part->control);
    one->done += u.n;
    return one->done == one->n ? COMM_OK : COMM_PENDING;
}

static enum comm_result swap(const struct comm_state *b, struct one_sided *one, const struct window_part *part)
{
    char *there = part->at + one->offset;
    bool locked = !data_update_is_atomic(there, one->element);

    if (locked && !try_lock(b, part->control))
        return COMM_PENDING;
    data_compare_swap(there, &one->expected_value, &one->desired_value, one->to, one->element, locked);
    if (locked)
        unlock(part->control);
    return COMM_OK;
}

enum comm_result one_sided_step(struct comm_state *b, struct one_sided *one)
{
    const struct window_part *part = one->peer >= 0 ? &one->window->part[one->peer] : NULL;

    if (!one->n && one->kind <= ONE_UPDATE)
        return COMM_OK;
    switch (one->kind) {
    case ONE_PUT:
    case ONE_GET:
        return move(one, part);
    case ONE_UPDATE:
        return update(b, one, part);
    case ONE_SWAP:
        return swap(b, one, part);
    case ONE_SIGNAL: /* release: a rank that sees the count also sees the data that was put before */
        atomic_fetch_add_explicit(&part->control->signal[one->slot], one->amount, memory_order_acq_rel);
        if (b->channel->memory)
            b->channel->memory->wrote(b->channel);
        engine_wake(b->unit.engine);
        return COMM_OK;
    case ONE_WAIT:
        return atomic_load_explicit(&part->control->signal[one->slot], memory_order_acquire) >= one->amount ? COMM_OK : COMM_PENDING;
    default: /* flush: all earlier calls have ended, otherwise it would not have started */
        atomic_thread_fence(memory_order_seq_cst);
        return COMM_OK;
    }
}
