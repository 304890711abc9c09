/*
 * staging: pinned host memory for operations on device buffers, and the copies between the two. A communicator has one pool. A stage
 * belongs to one operation: it is taken when the operation starts, filled from the device, used by the code that runs the operation, copied
 * back, and returned. This room knows the device only by its class (wire/device.h), and nothing of operations.
 *
 * The pool only grows, up to the most that was in use at once. After that, nothing is allocated and nothing is pinned. A stage with
 * unfinished copies cannot be given to another operation; it waits in the busy list.
 */
#ifndef STAGING_STAGING_H
#define STAGING_STAGING_H

#include "progress/engine.h"
#include "wire/device.h"

enum { STAGING_CLASSES = 4 * 64, STAGING_LEAST_BYTES = 4096, STAGE_PIECES = 8 };

/* The part of a caller's buffer that an operation reads or writes, and its place in the stage. */
struct stage_side {
    uintptr_t from; /* the caller's address */
    size_t bytes;
    char *at; /* in the stage; NULL: the caller's own memory is used */
};

/* Of a message: how far its copies are. Several pieces of a long one are copied at once, while others travel. */
struct stage_pieces {
    _Atomic uint64_t moved; /* bytes that are in the stage, from the first on: from the device, or from the peer */
    size_t begun;           /* bytes whose copies have begun */
    uint32_t slot;          /* of the message, for its owner */
    uint32_t first, next;   /* pieces that are in the stage; pieces whose copies have begun */
    struct device_place place[STAGE_PIECES];
};

/* WAITING: the device has not taken the copy yet. COPYING: until the place is reached. */
enum stage_copy { STAGE_NONE = 0, STAGE_WAITING, STAGE_COPYING };
struct stage {
    struct stage *next; /* in a list of the pool, or of its owner */
    char *memory;
    size_t bytes;
    struct device_place place; /* reached when the copies are done */
    struct stage_side in, out;
    uint8_t copy;  /* enum stage_copy */
    uint8_t cause; /* the step that the operation is at; used by the owner */
    bool is_long;  /* of a message: it is copied in pieces */
    bool noted;    /* the owner counts it among the stages that copy */
    bool lost;     /* nothing will report the end of its copy, so its memory is never used again */
    struct stage_pieces pieces;
};

struct staging {
    struct engine *engine;
    struct device *device;
    struct stage *free[STAGING_CLASSES]; /* by class of length: quarters of an octave */
    struct stage *busy;                  /* returned while copies were in progress */
    int64_t asked_ns;                    /* when it was asked whether the device still runs, for the busy ones */
    bool stopped;                        /* a fault has stopped the device: no copy in progress will end */
};

/* The engine's device, opened at the first use. NULL: *why and the text say what is missing. Any thread. */
struct device *staging_device(struct engine *e, enum comm_result *why, char *text, size_t bytes);
bool staging_close_device(struct engine *e);

/* On COMM_OK, *staging is the communicator's pool, which the first call creates. */
enum comm_result staging_open(struct staging **staging, struct engine *e, char *text, size_t bytes);
/* Returns how many stages were not freed because the device may still touch them. */
uint32_t staging_close(struct staging *staging);
bool staging_is_busy(struct staging *staging); /* true: copies of ended operations still touch buffers, and will end */

/* Is this device memory, as the engine's device says? The device must be open. */
bool staging_is_device(struct engine *e, const void *at);
/* The same. On true *all says whether all these bytes are. */
bool staging_is_extent(struct engine *e, const void *at, size_t bytes, bool *all);
/* Are all these bytes device memory? */
bool staging_spans(const struct staging *staging, const void *at, size_t bytes);

/* A stage with room for both sides; a side of 0 bytes gets none. Sides that overlap share one place. NULL: no memory that can be pinned. */
struct stage *staging_take(struct staging *staging, const struct stage_side *in, const struct stage_side *out);
void staging_give(struct staging *staging, struct stage *stage);
static inline void *staging_at(const struct stage_side *side, const void *pointer)
{
    return side->at ? side->at + ((uintptr_t)pointer - side->from) : (void *)(uintptr_t)pointer;
}
/* Starts the copies. FULL: the device takes no more now, and nothing happened; try again. Otherwise the device's result. */
enum comm_result staging_copy(struct staging *staging, struct stage *stage, enum device_way way, const struct device_piece *pieces,
                              uint32_t count);
static inline bool staging_is_there(const struct device_place *place)
{
    return !place->word || atomic_load_explicit(place->word, memory_order_acquire) >= place->value;
}
/* Of a stage with a copy in progress: whether it will not end, because the device has stopped. Asks as engine_ask_device does. */
bool staging_has_stopped(struct staging *staging, const struct stage *stage, int64_t *asked_ns);
/* True if no copy of this stage is in progress. */
static inline bool staging_rests(const struct stage *stage)
{
    return !stage->lost && staging_is_there(&stage->place);
}
static inline bool staging_reached(const struct stage *stage)
{
    return stage->copy == STAGE_NONE || (stage->copy == STAGE_COPYING && staging_rests(stage));
}

#endif
