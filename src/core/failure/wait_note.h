/* The notes about open queue waits (wait_note.c). Private to this room; deadlock.c explains what is in a note. */
#ifndef FAILURE_WAIT_NOTE_H
#define FAILURE_WAIT_NOTE_H

#include "comm/state.h"

/* Does the wait wait for a message, rather than for a collective or another queue wait? */
static inline bool wait_note_is_message(const struct wait_note *note)
{
    return note->collective >= WAIT_RECEIVE;
}

/* Sends a note to all members of the communicator. */
void wait_note_send(struct comm_state *b, const struct wait_note *note);

#endif
