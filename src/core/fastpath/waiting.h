/* What the files of waits share. Private to this room. */
#ifndef FASTPATH_WAITING_H
#define FASTPATH_WAITING_H

#include "fastpath/fastpath.h"
#include "fastpath/wait.h"

/* Returns the engine of the communicator, with a reference, and keeps the communicator open until wait_leave. NULL: it is closed. */
struct engine *wait_enter(struct comm_communicator *handle);
void wait_leave(struct comm_communicator *handle, struct engine *e);
void wait_ended(struct engine *e); /* before a call that has waited returns */
/* A call of the program returns the result of this request, so comm_sync need not report its error again. Programs often exit after an
 * error, so give the log a moment to write what it has. */
enum comm_result wait_tell(struct comm_request request, enum comm_result result);
enum comm_result wait_long(struct comm_request request, int64_t timeout_ns, bool inside, bool told); /* told: the program gets the result */

/* The result of a request for a thread that waits. A close in another thread, which has ended all work, also ends the wait. The close is
 * looked for first: what is pending after it never ends, but what was pending before it may have ended well. */
static inline enum comm_result wait_result(struct comm_request request)
{
    bool closing = request.comm && atomic_load_explicit(&request.comm->closing, memory_order_acquire);
    enum comm_result r = timeline_peek(request);

    return r == COMM_PENDING && closing ? COMM_ERR_CLOSED : r;
}

/* A forked child is not inside: the callback is the parent's. */
static inline bool wait_in_callback(struct comm_request request)
{
    return request.comm && atomic_load_explicit(&request.comm->notifying, memory_order_relaxed) && engine_alive(request.comm) == COMM_OK;
}

/* A brief wait, for operations that end at once. True: the request is complete, a message without an error. */
static inline bool wait_short(struct comm_request request, bool inside)
{
    if (inside || engine_alive(request.comm) != COMM_OK) /* a forked child must not even poll: it would take what belongs to its parent */
        return false;
    if (request.ticket & TIMELINE_MESSAGE)
        return fastpath_wait_message(request);
    return request.ticket > atomic_load_explicit(&request.comm->done, memory_order_acquire) && fastpath_wait(request);
}

#endif
