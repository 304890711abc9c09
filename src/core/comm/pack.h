/*
 * pack: several small allreduces of a group as one exchange. Their inputs are stored one after another, in their accumulator types, and
 * travel as one block. Each part is reduced by its own kernel, and the last step writes each result to its own buffer. A pack never changes
 * after it is made, so a plan can start it again while it runs.
 */
#ifndef COMM_PACK_H
#define COMM_PACK_H

#include "comm/state.h"

enum { PACK_BYTES_MAX = 4096, PACK_ALIGN = 16, PACK_PARTS_MAX = 256 };

struct pack_part {
    struct engine_call call;
    struct run_element element;
    size_t at; /* in the block */
};
struct pack {
    const struct comm_env *env;
    _Atomic uint32_t references;
    uint32_t parts, fingerprint;
    size_t bytes; /* of the block */
    struct timeline_range read, write;
    struct timeline_part *range; /* of each part */
    struct pack_part part[];
};

/* May a call be part of a pack? The answer uses only facts that are equal on every rank. *bytes: its size in the block. */
bool pack_fits(const struct comm_state *b, const struct engine_call *call, size_t *bytes);
struct pack *pack_make(struct comm_state *b, const struct engine_call *const *calls, uint32_t count); /* one reference; NULL: no memory */
struct pack *pack_hold(struct pack *pack);
/* Makes the entry represent the pack: it holds a reference, and conflicts by the ranges of the parts. */
void pack_stand(struct entry *entry, struct pack *pack);
void pack_drop(struct pack *pack);
/* The call as which a pack is issued. */
struct engine_call pack_call(const struct pack *pack, uint32_t flags);
/* Copies the inputs into the block; `to` has room for pack->bytes. */
void pack_gather(const struct pack *pack, char *to);
struct run_element pack_element(const struct pack *pack);

#endif
