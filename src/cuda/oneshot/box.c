/* Mailboxes: taken from the wire's shared memory, pinned, and used again. They go back when the world closes. */
#include "cuda/oneshot/oneshot.h"

#include <string.h>

enum { PAGES_MOST = 8 }; /* communicators of a rank that may have a pipeline at once: they are some memory */

/* Have all members of its last communicator left theirs? A member that died never does. */
static bool rests(const struct oneshot_box *box)
{
    for (int32_t i = 0; i < box->peers; i++)
        if (atomic_load_explicit(&box->peer[i].head->life, memory_order_acquire) == box->peer[i].then)
            return false;
    return !box->taken;
}

static struct oneshot_box *make(struct oneshot *n, const struct wire_channel *wire, int32_t rank)
{
    const struct comm_env *env = n->env;
    struct oneshot_box *box = env->take(env, sizeof *box, 64);

    if (!box)
        return NULL;
    *box = (struct oneshot_box){.memory = wire->memory, .wire = wire->wire, .rank = rank};
    box->at = box->memory->take(box->wire, ONESHOT_BOX_BYTES, WIRE_PLACE_DEFAULT);
    if (box->at && box->memory->where(box->wire, box->at, ONESHOT_BOX_BYTES, &box->where))
        return box;
    if (box->at)
        box->memory->give(box->wire, box->at, false);
    env->give(env, box, sizeof *box);
    return NULL;
}

struct oneshot_box *oneshot_take_box(struct oneshot *n, const struct wire_channel *wire, int32_t rank)
{
    base_lock(&n->lock, n->env);
    struct oneshot_box *box = n->boxes;
    while (box && (box->rank != rank || !rests(box)))
        box = box->next;
    if (box)
        box->taken = true;
    base_unlock(&n->lock, n->env);
    if (!box) {
        box = make(n, wire, rank);
        if (!box)
            return NULL;
        box->slots = oneshot_take_slots(n, rank);
        box->taken = true;
        base_lock(&n->lock, n->env);
        box->next = n->boxes;
        n->boxes = box;
        base_unlock(&n->lock, n->env);
    }
    box->peers = 0;
    memset(box->at + ONESHOT_FLAGS_AT, 0, ONESHOT_SLOTS_AT - ONESHOT_FLAGS_AT);
    atomic_store_explicit(&oneshot_head_of(box->at)->vote, 0, memory_order_relaxed);
    atomic_store_explicit(&oneshot_head_of(box->at)->life, ++box->life, memory_order_release);
    return box;
}

void oneshot_leave_box(struct oneshot *n, struct oneshot_box *box)
{
    base_lock(&n->lock, n->env);
    atomic_store_explicit(&oneshot_head_of(box->at)->life, ++box->life, memory_order_release);
    box->taken = false;
    base_unlock(&n->lock, n->env);
}

static bool has_enough_pages(struct oneshot *n, int32_t rank)
{
    uint32_t count = 0;

    base_lock(&n->lock, n->env);
    for (const struct oneshot_box *box = n->boxes; box; box = box->next)
        count += box->rank == rank && box->pages;
    base_unlock(&n->lock, n->env);
    return count >= PAGES_MOST;
}

bool oneshot_take_pages(struct oneshot *n, struct oneshot_box *box)
{
    if (box->pages)
        return true;
    if (has_enough_pages(n, box->rank))
        return false;
    box->pages = box->memory->take(box->wire, PIPELINE_AREA_BYTES, WIRE_PLACE_DEFAULT);
    if (!box->pages)
        return false;
    if (box->memory->where(box->wire, box->pages, PIPELINE_AREA_BYTES, &box->pages_where))
        return true;
    box->memory->give(box->wire, box->pages, false);
    box->pages = NULL;
    return false;
}

static unsigned pin(struct cuda_device *d, char *at, size_t bytes, cuda_address *there)
{
    struct cuda_inside inside;

    if (!cuda_enter(d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = d->calls->cuMemHostRegister(at, bytes, CUDA_REGISTER_PORTABLE | CUDA_REGISTER_MAPPED);
    if (result == CUDA_OK) {
        result = d->calls->cuMemHostGetDevicePointer(there, at, 0);
        if (result != CUDA_OK)
            d->calls->cuMemHostUnregister(at);
    }
    cuda_leave(d, &inside);
    return result;
}

/* The lock is held while the driver pins, since two ranks of this process may want the same mailbox. */
cuda_address oneshot_pin(struct oneshot *n, struct cuda_device *d, char *at, size_t bytes)
{
    cuda_address there = 0;

    base_lock(&n->pinning, n->env);
    struct oneshot_pin *p = n->pins;
    while (p && p->at != at)
        p = p->next;
    if (!p && (p = n->env->take(n->env, sizeof *p, 64))) {
        unsigned result = pin(d, at, bytes, &there);
        *p = (struct oneshot_pin){.next = n->pins, .at = at, .there = there, .by = d};
        if (result == CUDA_OK) {
            n->pins = p;
        } else {
            n->env->give(n->env, p, sizeof *p);
            p = NULL;
        }
    }
    there = p ? p->there : 0;
    base_unlock(&n->pinning, n->env);
    return there;
}

/* No kernel of this process runs. Those of other processes may still read, so the memory is kept until the wire closes. */
void oneshot_free_boxes(struct oneshot *n)
{
    for (struct oneshot_pin *p = n->pins, *next; p; p = next) {
        struct cuda_inside inside;
        next = p->next;
        if (cuda_enter(p->by, &inside)) {
            p->by->calls->cuMemHostUnregister(p->at);
            cuda_leave(p->by, &inside);
        }
        n->env->give(n->env, p, sizeof *p);
    }
    for (struct oneshot_box *box = n->boxes, *next; box; box = next) {
        next = box->next;
        box->memory->give(box->wire, box->at, true);
        if (box->pages)
            box->memory->give(box->wire, box->pages, true);
        n->env->give(n->env, box, sizeof *box);
    }
    n->pins = NULL;
    n->boxes = NULL;
}
