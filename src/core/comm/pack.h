/*
 * pack: several small allreduces of a group as one exchange. Their inputs are laid side by side, each in its accumulator, and travel as one
 * block; where the block is reduced, each part is by its own kernel, and the last step writes each result to its own place. A pack never
 * changes once it is made, so a plan can start it again while it runs. Private to this room.
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

/* Whether a call may be part of one, from facts that are equal on every rank; *bytes is what it takes of the block. */
bool pack_fits(const struct comm_state *b, const struct engine_call *call, size_t *bytes);
struct pack *pack_make(struct comm_state *b, const struct engine_call *const *calls, uint32_t count); /* one reference; NULL: no memory */
struct pack *pack_hold(struct pack *pack);
/* This entry stands for the pack: it holds a reference, and conflicts as the parts do. */
void pack_stand(struct entry *entry, struct pack *pack);
void pack_drop(struct pack *pack);
/* The call that it is issued as. */
struct engine_call pack_call(const struct pack *pack, uint32_t flags);
/* Lays the inputs side by side; `to` has room for pack->bytes. */
void pack_gather(const struct pack *pack, char *to);
struct run_element pack_element(const struct pack *pack);

#endif
