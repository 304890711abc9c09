/* The short path of a library's calls (short.c), and the two steps of every call that it shares (native_part.c). Private to this room. */
#ifndef NATIVE_SHORT_H
#define NATIVE_SHORT_H

#include "comm/state.h"

/* Starts a call of this form, which the library takes, if the communicator is idle. standing: of its plan, or NULL. False: nothing
 * happened. */
bool native_issue_short(struct comm_state *b, const struct engine_call *call, uint32_t fingerprint, struct standing *standing,
                        struct comm_request *req);
/* As issue and wait_short of struct collective_library. */
bool native_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req);
bool native_wait_short(struct comm_state *b, uint64_t ticket);
/* Retires the oldest entry, which was issued by the short path and succeeded. */
void native_retire_short(struct comm_state *b, struct entry *e);

/* Gives an entry to the library. The caller sets the time of its start, before or after. */
void native_start(struct comm_state *b, uint64_t ticket, struct entry *e);
/* Takes what has ended in the library. True: something moved. */
bool native_look(struct comm_state *b);

#endif
