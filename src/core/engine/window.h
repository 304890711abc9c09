/* Windows: what the files of this room know of them. A window is touched under its communicator's lock; where its parts lie never changes.
 */
#ifndef ENGINE_WINDOW_H
#define ENGINE_WINDOW_H

#include "engine/body.h"

/* In the owner's memory, in front of its counters. lock: 0, or 1 + the rank that updates elements which no atomic fits. */
struct window_control {
    _Alignas(64) _Atomic uint64_t lock;
    _Alignas(64) _Atomic uint64_t signal[];
};
struct window_part {
    char *at;
    size_t bytes;
    struct window_control *control;
    uint32_t signals;
};

/* What each rank tells when a window is made. */
struct window_ticket {
    uint64_t part, bytes, control;
    uint32_t signals;
    int32_t result; /* of making its part */
};

struct comm_window {
    struct comm_communicator *comm;
    const struct comm_env *env;
    _Atomic(struct body *) body; /* NULL: the communicator was closed */
    struct comm_window *next;
    void *memory, *control; /* of ours, or NULL */
    size_t memory_bytes, control_bytes;
    uint64_t number; /* equal on all ranks: of the creating call */
    uint64_t fence;  /* ticket of the last fence */
    uint32_t held;   /* this rank's unfinished calls */
    int32_t size;
    struct window_ticket mine, *all;
    struct window_part *part;
    struct comm_window **out;
};

/* One bounded step: OK: done; PENDING: not yet. Its window is whole, and its arguments are sound. */
enum comm_result one_sided_step(struct body *b, struct one_sided *one);
/* The communicator is closed: its windows lose their memory and stay as handles. */
void windows_close(struct body *b);

#endif
