/* The pages of a pipeline: taken and pinned at its first call, and then kept with the rank's mailbox for those that have it later. */
#include "cuda/pipeline/pipeline.h"

static void tell(struct pipeline *p, uint64_t where)
{
    atomic_store_explicit(&p->is.words[p->is.rank]->where, where, memory_order_release);
}

static void take(struct pipeline *p)
{
    const struct pipeline_config *is = &p->is;
    struct pipeline_pages *own = is->own;

    if (!own->at) {
        own->at = is->memory->take(is->wire, PIPELINE_AREA_BYTES, WIRE_PLACE_DEFAULT);
        if (own->at && !is->memory->where(is->wire, own->at, PIPELINE_AREA_BYTES, &own->where)) {
            is->memory->give(is->wire, own->at, false);
            own->at = NULL;
        }
    }
    p->pages[is->rank] = own->at;
    tell(p, own->at ? own->where | PIPELINE_HAS_PAGES : PIPELINE_HAS_NONE);
}

static bool pin(struct pipeline *p, uint32_t rank)
{
    p->there[rank] = p->is.pin(p->is.owner, p->is.d, p->pages[rank], PIPELINE_AREA_BYTES);
    if (p->there[rank])
        return true;
    if (p->is.log)
        base_log(p->is.log, LOG_ERROR, "cuda rank=%u: %d MiB of rank %u's pages cannot be pinned; backend shm needs none", p->is.rank,
                 PIPELINE_AREA_BYTES >> 20, rank);
    tell(p, PIPELINE_HAS_NONE);
    p->wrong = PIPELINE_NO_MEMORY;
    return false;
}

/* A place is a multiple of the length of a page, so the lower bits are free. */
static bool reach(struct pipeline *p, uint32_t rank)
{
    uint64_t where = atomic_load_explicit(&p->is.words[rank]->where, memory_order_acquire);

    if (where == PIPELINE_HAS_NONE)
        p->wrong = PIPELINE_NO_MEMORY;
    if (!(where & PIPELINE_HAS_PAGES))
        return false;
    if (rank != p->is.rank)
        p->pages[rank] = p->is.memory->reach(p->is.channel, (int32_t)rank, where & ~(uint64_t)PIPELINE_HAS_PAGES);
    return pin(p, rank);
}

bool pipeline_find_pages(struct pipeline *p)
{
    bool all = true;

    if (p->has_pages)
        return true;
    if (p->is.ranks > 1 && !p->pages[p->is.rank])
        take(p);
    for (uint32_t r = 0; r < p->is.ranks && p->is.ranks > 1 && !p->wrong; r++)
        if (!p->there[r])
            all = reach(p, r) && all;
    p->has_pages = all && !p->wrong;
    return p->has_pages;
}
