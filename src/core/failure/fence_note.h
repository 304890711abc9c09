/* The notes about open queue waits (fence_note.c). Private to this room; deadlock.c explains what is in a note. */
#ifndef FAILURE_FENCE_NOTE_H
#define FAILURE_FENCE_NOTE_H

#include "comm/state.h"

/* Does the wait wait for a message, rather than for a collective or another queue wait? */
static inline bool fence_note_is_message(const struct fence_note *note)
{
    return note->collective >= FENCE_RECEIVE;
}

/* Sends a note to all members of the communicator. */
void fence_note_send(struct comm_state *b, const struct fence_note *note);

#endif
