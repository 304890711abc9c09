/* Operations on buffers of a device: see staged.c. The communicator's lock is held in every call. */
#ifndef STAGED_STAGED_H
#define STAGED_STAGED_H

#include "comm/state.h"
#include "staging/staging.h"

/* Opens the device, if it is not open, without the lock, which is taken again. NULL: *r, and the text says why; the lock is not held. */
struct comm_state *staged_open(struct comm_state *b, enum comm_result *r, char *text, size_t bytes);
/* With the device open, which knows better than the driver on a thread without a context. */
bool staged_is_device(const struct comm_state *b, const void *at);
/* As one call, or as several that run beside each other, each of a part of the elements: then *req is the last one's. */
enum comm_result staged_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req);

/* For messages too. */
void staged_note(struct comm_state *b, struct stage *stage); /* a copy was begun: it may have to be looked at */
void staged_failed(struct comm_state *b, const struct entry *e, enum comm_result result); /* e: NULL for a message */
void staged_give(struct comm_state *b, struct stage *stage);
uint32_t staged_held(const struct stage *stage); /* COMM_INFO_BUFFERS_HELD while a copy is under way, else 0; NULL: 0 */

bool staged_holds(struct comm_state *b); /* copies of operations that are over may still touch buffers */

extern const struct comm_part staged_part;

#endif
