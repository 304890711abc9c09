/* Memory for modules that use only the public calls (base/heap.h). It comes from the engine's env, and each block holds a reference to the
 * engine. */
#include "progress/engine.h"

#include "base/heap.h"

struct heap_block {
    _Alignas(64) struct engine *engine;
};

void *base_heap_take(struct comm_communicator *c, size_t bytes)
{
    enum comm_result r;
    struct progress_unit *unit = bytes ? unit_lock(c, &r) : NULL;

    if (!unit)
        return NULL;
    struct heap_block *block = unit->engine->env->take(unit->engine->env, bytes + sizeof *block, 64);
    if (block) {
        block->engine = unit->engine;
        engine_hold(block->engine);
    }
    unit_unlock(unit);
    return block ? block + 1 : NULL;
}

bool base_heap_is_own(const void *memory)
{
    return engine_is_own(((const struct heap_block *)memory - 1)->engine);
}

void base_heap_give(struct comm_communicator *c, void *memory, size_t bytes)
{
    struct heap_block *block = memory ? (struct heap_block *)memory - 1 : NULL;

    (void)c;
    if (!block)
        return;
    struct engine *e = block->engine;
    e->env->give(e->env, block, bytes + sizeof *block);
    engine_drop(e);
}
