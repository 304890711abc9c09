/* Packs: the inputs of several small allreduces in one block, and the kernel that reduces such a block part by part. */
#include "comm/pack.h"

bool pack_fits(const struct comm_state *b, const struct engine_call *call, size_t *bytes)
{
    struct run_element element;

    if (b->terms.unpacked || call->on_device || call->collective != COLLECTIVE_ALLREDUCE || call->n > PACK_BYTES_MAX ||
        !state_element(b, call->type, call->op, &element))
        return false;
    *bytes = (call->n * element.partial + PACK_ALIGN - 1) & ~(size_t)(PACK_ALIGN - 1);
    return true;
}

/* Reduces one part. In the last step its result goes to its own buffer; before that, back into the block. */
static void reduce_part(const struct data_reduce *whole, const struct pack_part *part)
{
    const void *from[DATA_WAYS_MAX];
    struct data_reduce reduce = *whole;

    for (uint32_t i = 0; i < whole->ways; i++)
        from[i] = (const char *)whole->from[i] + part->at;
    reduce.from = from;
    reduce.partial = UINT64_MAX;
    reduce.context = part->element.context;
    reduce.to = whole->final ? part->call.out : (char *)whole->to + part->at;
    reduce.elements = part->call.n;
    part->element.reduce(&reduce);
}

static void pack_reduce(const struct data_reduce *reduce)
{
    const struct pack *pack = reduce->context;

    BASE_DEBUG_ASSERT(reduce->elements == pack->bytes && !reduce->also);
    for (uint32_t i = 0; i < pack->parts; i++)
        if (pack->part[i].call.n)
            reduce_part(reduce, &pack->part[i]);
}

static size_t pack_bytes(uint32_t parts)
{
    return sizeof(struct pack) + parts * (sizeof(struct pack_part) + sizeof(struct timeline_part));
}

struct pack *pack_make(struct comm_state *b, const struct engine_call *const *calls, uint32_t count)
{
    const struct comm_env *env = b->unit.engine->env;
    struct pack *pack = env->take(env, pack_bytes(count), 64);
    uint64_t hash = count;

    if (!pack)
        return NULL;
    pack->env = env;
    pack->parts = count;
    pack->range = (struct timeline_part *)(void *)(pack->part + count);
    atomic_store_explicit(&pack->references, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct pack_part *part = &pack->part[i];
        size_t bytes = 0;
        bool fits = pack_fits(b, calls[i], &bytes) && state_element(b, calls[i]->type, calls[i]->op, &part->element);
        BASE_ASSERT(fits);
        part->call = *calls[i];
        part->at = pack->bytes;
        pack->bytes += bytes;
        hash = base_hash(hash, state_fingerprint(b, calls[i]));
        pack->range[i] = (struct timeline_part){calls[i]->read, calls[i]->write};
        timeline_widen(&pack->read, &calls[i]->read);
        timeline_widen(&pack->write, &calls[i]->write);
    }
    pack->fingerprint = (uint32_t)(hash ^ hash >> 32) & ~OPERATOR_USER;
    return pack;
}

struct pack *pack_hold(struct pack *pack)
{
    atomic_fetch_add_explicit(&pack->references, 1, memory_order_relaxed);
    return pack;
}

void pack_drop(struct pack *pack)
{
    if (atomic_fetch_sub_explicit(&pack->references, 1, memory_order_acq_rel) == 1)
        pack->env->give(pack->env, pack, pack_bytes(pack->parts));
}

void pack_stand(struct entry *entry, struct pack *pack)
{
    entry->pack = pack_hold(pack);
    entry->head.part = pack->range;
    entry->head.parts = (uint16_t)pack->parts;
}

/* Ranks compare the operator of a call, so here it is the fingerprint of the packed calls. */
struct engine_call pack_call(const struct pack *pack, uint32_t flags)
{
    return (struct engine_call){.collective = COLLECTIVE_GROUP,
                                .type = COMM_BYTE,
                                .op = pack->fingerprint,
                                .flags = flags,
                                .n = pack->bytes,
                                .read = pack->read,
                                .write = pack->write};
}

void pack_gather(const struct pack *pack, char *to)
{
    for (uint32_t i = 0; i < pack->parts; i++) {
        const struct pack_part *part = &pack->part[i];
        struct data_reduce widen = {
            .from = &part->call.in, .ways = 1, .context = part->element.context, .to = to + part->at, .elements = part->call.n};
        if (!part->call.n)
            continue;
        if (part->element.raw == part->element.partial)
            data_copy(widen.to, part->call.in, part->call.n * part->element.raw, false);
        else
            part->element.reduce(&widen);
    }
}

struct run_element pack_element(const struct pack *pack)
{
    return (struct run_element){.raw = 1, .partial = 1, .grain = pack->bytes, .reduce = pack_reduce, .context = pack};
}
