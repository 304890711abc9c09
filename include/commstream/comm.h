/*
 * The whole public face of commstream: this header includes all others, one per concept. docs/contract.md has every rule in full.
 * May change until 0.1: names, structs and numbers are meant to stay, and are not promised before that release.
 *
 * THE CONTRACT, once for all calls
 *   Returning.  COMM_OK from an issuing call means: it has its place in the queue. An error from the call itself is also what its request
 *               then tests as. A collective refused at the call still uses up its sequence number, so ranks cannot fall out of step.
 *   Ordering.   Collectives, plans and queue waits of one communicator appear to run one after another, in call order, and complete in that
 *               order. Messages (send, recv) start at once, match in order per (peer, tag), and complete each on its own: an
 *               unanswered receive holds back nothing. A barrier orders work, not messages. An event record, comm_last and comm_sync
 *               stand for everything issued before them, messages too, and hold back nothing.
 *   Buffers.    They are the library's from the call until the request is complete. Complete, also with an error, means: it will
 *               never touch them again (the one exception, mpi and nccl natives after a failure, is COMM_INFO_BUFFERS_HELD).
 *               Count, displacement and peer arrays, options and strings are copied by the call.
 *   Errors.     The first failure on a communicator is sticky, with one cause on every survivor: its ticket and all later ones end
 *               with it; calls on it then return that cause at once. Truncated and cancelled calls, and those that all ranks
 *               refuse, are not failures of the communicator: they end one request.
 *               A wait on a failed point fails the waiter with COMM_ERR_DEPENDENCY and the first cause; never garbage.
 *   Threads.    Any call from any thread. Collectives of one communicator must be issued in the same order on all ranks, so by one thread
 *               at a time or in an order of the program's own: one communicator (a dup) per independent source of calls.
 *   Callbacks   may call anything that does not wait (a wait, sync, close or blocking create there is COMM_ERR_STATE).
 *   Time.       int64_t nanoseconds: 0 polls once, COMM_FOREVER leaves it to the operation's own deadline, which always exists.
 *   Lifetimes.  Communicators, plans, windows, events, buckets, operators and memory each hold the engine: any closing order is
 *               fine. Passing NULL to a close or free is fine.
 *   Fork.       In a forked child every call is COMM_ERR_FORKED; the parent is unaffected.
 */
#ifndef COMMSTREAM_COMM_H
#define COMMSTREAM_COMM_H

#include <commstream/export.h>
#include <commstream/result.h>
#include <commstream/type.h>
#include <commstream/request.h>
#include <commstream/open.h>
#include <commstream/collective.h>
#include <commstream/message.h>
#include <commstream/progress.h>
#include <commstream/event.h>
#include <commstream/plan.h>
#include <commstream/memory.h>
#include <commstream/window.h>
#include <commstream/bucket.h>
#include <commstream/inspect.h>
#include <commstream/cuda.h>

#endif
