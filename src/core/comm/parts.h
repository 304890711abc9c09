/* Calls the parts of a communicator (progress/part.h). Each loop calls one slot of every part. */
#ifndef COMM_PARTS_H
#define COMM_PARTS_H

#include "comm/state.h"

/* How progress moves a communicator (step.c). */
extern const struct progress_class state_progress;

#define PARTS_EACH(part, engine) for (const struct comm_part *const *part = (engine)->parts; *part; part++)

static inline bool parts_step(struct comm_state *b)
{
    bool moved = false;

    for (bool (*const *step)(struct comm_state *) = b->unit.engine->calls.step; *step; step++)
        moved |= (*step)(b);
    return moved;
}
static inline bool parts_step_beside(struct comm_state *b)
{
    bool moved = false;

    for (bool (*const *step)(struct comm_state *) = b->unit.engine->calls.step_beside; *step; step++)
        moved |= (*step)(b);
    return moved;
}
static inline bool parts_step_last(struct comm_state *b)
{
    bool moved = false;

    PARTS_EACH (part, b->unit.engine)
        if ((*part)->step_last)
            moved |= (*part)->step_last(b);
    return moved;
}
static inline bool parts_block(const struct comm_state *b, uint64_t ticket, const struct timeline_entry *entry)
{
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->blocks && (*part)->blocks(b, ticket, entry))
            return true;
    return false;
}
static inline bool parts_event(struct comm_state *b, const struct wire_event *event)
{
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->event && (*part)->event(b, event))
            return true;
    return false;
}
static inline bool parts_note(struct comm_state *b, const struct wire_event *event)
{
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->note && (*part)->note(b, event))
            return true;
    return false;
}

#endif
