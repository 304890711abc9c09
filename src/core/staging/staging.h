/*
 * staging: pinned memory of the host beside buffers of a device, and the copies between the two. A communicator has one pool of it. A stage
 * is one operation's: taken when the operation starts, filled from the device, used by whoever runs the operation, stored back, and given.
 * The device is known by its class alone (wire/device.h). What an operation is, is not known here.
 *
 * The pool only grows, up to what was in use at once: after that nothing is allocated and nothing is made on the device. A stage whose
 * copies are not over cannot be given to another operation: it waits among the busy ones.
 */
#ifndef STAGING_STAGING_H
#define STAGING_STAGING_H

#include "progress/engine.h"
#include "wire/device.h"

enum { STAGING_CLASSES = 4 * 64, STAGING_LEAST_BYTES = 4096 };

/* The part of a caller's buffer that an operation reads or writes, and where it stands in the stage. */
struct stage_side {
    uintptr_t from; /* the caller's address */
    size_t bytes;
    char *at; /* in the stage; NULL: the caller's own memory serves */
};

/* WAITING: for the device to take the copy. COPYING: until the place is reached. */
enum stage_copy { STAGE_NONE = 0, STAGE_WAITING, STAGE_COPYING };
struct stage {
    struct stage *next; /* in a list of the pool */
    char *memory;
    size_t bytes;
    struct device_place place; /* behind the copies under way */
    struct stage_side in, out;
    uint8_t copy;  /* enum stage_copy */
    uint8_t cause; /* which step the operation is at: its owner's */
    bool noted;    /* its owner counts it among those that copy */
    bool lost;     /* a copy was begun whose end nobody will see: the memory is never used again */
};

struct staging {
    struct engine *engine;
    struct device *device;
    struct stage *free[STAGING_CLASSES]; /* by length, in quarters of an octave */
    struct stage *busy;                  /* given back while copies were under way */
};

/* The engine's device, opened at the first use. NULL: *why, and the text names what is missing. Any thread. */
struct device *staging_device(struct engine *e, enum comm_result *why, char *text, size_t bytes);
bool staging_close_device(struct engine *e);

/* COMM_OK, and the communicator's pool, which is made at the first call. */
enum comm_result staging_open(struct staging **staging, struct engine *e, char *text, size_t bytes);
/* Returns how many stages were left behind, since the device may still touch them. */
uint32_t staging_close(struct staging *staging);
bool staging_is_busy(struct staging *staging); /* copies of operations that are over still touch buffers, and will end */

/* Whether it is a device's, as the engine's device says, which is open. */
bool staging_is_device(struct engine *e, const void *at);
/* Whether all those bytes are memory of devices. */
bool staging_spans(const struct staging *staging, const void *at, size_t bytes);

/* Room for both sides, a side of no bytes being none; one place serves both where they meet. NULL: no memory that can be pinned. */
struct stage *staging_take(struct staging *staging, const struct stage_side *in, const struct stage_side *out);
void staging_give(struct staging *staging, struct stage *stage);
static inline void *staging_at(const struct stage_side *side, const void *pointer)
{
    return side->at ? side->at + ((uintptr_t)pointer - side->from) : (void *)(uintptr_t)pointer;
}
/* Begins the copies. FULL: the device takes no more now, nothing happened, ask again; otherwise what the device said. */
enum comm_result staging_copy(struct staging *staging, struct stage *stage, enum device_way way, const struct device_piece *pieces,
                              uint32_t count);
/* No copy that was begun is under way. */
static inline bool staging_rests(const struct stage *stage)
{
    const _Atomic uint64_t *word = stage->place.word;

    return !stage->lost && (!word || atomic_load_explicit(word, memory_order_acquire) >= stage->place.value);
}
static inline bool staging_reached(const struct stage *stage)
{
    return stage->copy == STAGE_NONE || (stage->copy == STAGE_COPYING && staging_rests(stage));
}

#endif
