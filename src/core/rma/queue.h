/* Calls on windows as requests that stand among the messages (p2p/op.h). */
#ifndef RMA_QUEUE_H
#define RMA_QUEUE_H

#include "p2p/op.h"
#include "rma/window.h"

/* COMM_OK: ended if *req is COMM_REQUEST_NONE, otherwise under way. */
enum comm_result p2p_one_sided(struct comm_state *b, const struct one_sided *one, struct comm_request *req);
enum comm_result p2p_start_one(struct comm_state *b, uint32_t i); /* moves it if it is under way or may be; OK: it has ended */
bool p2p_may_ask(struct comm_state *b, uint32_t i);               /* of a part that is apart: it may be asked for from now on */
/* Ends this rank's calls on w that have not ended; NULL: those that wait for signals, of all windows. */
void p2p_forget_window(struct comm_state *b, const struct comm_window *w, enum comm_result result);
/* Whether a call on w that was made before work `ticket` has not ended; waits for signals do not count. */
bool p2p_holds_window(const struct comm_state *b, const struct comm_window *w, uint64_t ticket);
void memory_close(struct world *w);

extern const struct comm_part rma_part;

#endif
