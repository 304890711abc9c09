/* Calls on windows as requests that are queued among the messages (p2p/op.h). */
#ifndef RMA_QUEUE_H
#define RMA_QUEUE_H

#include "p2p/op.h"
#include "rma/window.h"

/* COMM_OK: if *req is COMM_REQUEST_NONE, the call has ended; otherwise it is in progress. */
enum comm_result p2p_one_sided(struct comm_state *b, const struct one_sided *one, struct comm_request *req);
enum comm_result p2p_start_one(struct comm_state *b, uint32_t i); /* starts or continues it; OK: it has ended */
bool p2p_may_ask(struct comm_state *b, uint32_t i); /* for a part that this rank cannot address: true if it may be requested now */
/* Ends this rank's unfinished calls on w. NULL: its waits for signals, on all windows. */
void p2p_forget_window(struct comm_state *b, const struct comm_window *w, enum comm_result result);
/* Is a call on w, made before work `ticket`, unfinished? Waits for signals do not count. */
bool p2p_holds_window(const struct comm_state *b, const struct comm_window *w, uint64_t ticket);
void memory_close(struct world *w);

extern const struct comm_part rma_part;

#endif
