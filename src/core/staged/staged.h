/* Operations on device buffers; see staged.c. The communicator's lock is held in every call. */
#ifndef STAGED_STAGED_H
#define STAGED_STAGED_H

#include "comm/state.h"
#include "staging/staging.h"

/* Opens the device if it is not open yet. This releases the lock and takes it again. NULL: *r and the text say why, and the lock is not
 * held. */
struct comm_state *staged_open(struct comm_state *b, enum comm_result *r, char *text, size_t bytes);
/* Needs the open device. It knows more than the driver does on a thread without a context. */
bool staged_is_device(const struct comm_state *b, const void *at);
/* Asks the device, which is open, about the buffers `of` (CALL_*_ON_DEVICE): once about each, in most calls. The answer is CALL_*. */
uint8_t staged_ask(const struct comm_state *b, const struct engine_call *call, uint8_t of);
/* Issues one call, or several concurrent calls for parts of the elements. Then *req is the request of the last one. */
enum comm_result staged_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req);

/* Also used for messages. */
/* A copy is in progress, which may need polling, or has ended. BACKEND: it will not end, because the device has stopped, and the
 * communicator has failed. */
enum comm_result staged_note(struct comm_state *b, struct stage *stage);
void staged_failed(struct comm_state *b, const struct entry *e, enum comm_result result); /* e: NULL for a message */
void staged_give(struct comm_state *b, struct stage *stage);
uint32_t staged_held(const struct stage *stage); /* COMM_INFO_BUFFERS_HELD while a copy is in progress, otherwise 0; also 0 for NULL */

bool staged_holds(struct comm_state *b); /* true: copies of ended operations may still touch buffers */

extern const struct comm_part staged_part;

#endif
