/* Memory of a world, for the files of this room. The communicator's lock is held in every call. */
#ifndef RMA_MEMORY_H
#define RMA_MEMORY_H

#include "comm/state.h"

enum memory_kind { MEMORY_REACHED, MEMORY_HEAP, MEMORY_DEVICE, MEMORY_REGISTERED };
struct world_memory {
    struct world_memory *next;
    void *at;
    size_t bytes;
    enum memory_kind kind;
    bool symmetric; /* of comm_mem_alloc_symmetric, and the library knows it */
};

/* The library next to b's wire, if it has memory of its own; otherwise NULL. */
static inline const struct native_class *memory_library(const struct comm_state *b)
{
    return b->native && b->native->native->class->take ? b->native->native->class : NULL;
}

/* Allocates it, and lists it nowhere yet. NULL: there is not so much. */
struct world_memory *memory_make(struct comm_state *b, size_t bytes);
void memory_keep(struct world *w, struct world_memory *m); /* from now on it is the world's, and comm_mem_free finds it */
void memory_drop(struct world *w, struct world_memory *m); /* the opposite of memory_make */

#endif
