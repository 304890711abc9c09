/**
 * @file commstream.h
 * @brief The whole public interface of commstream: this header includes all others.
 *
 * These rules hold for all calls; docs/reference/contract.md has them in full.
 *
 * **Returning.** COMM_OK from a call that starts an operation means that the operation has its place in the queue. If the call returns an
 * error, its request has that error too. A collective that is refused still uses its sequence number, so that ranks stay in step.
 *
 * **Ordering.** Collectives, plans and queue waits of one communicator appear to run one after another in call order, and complete in that
 * order. Messages (send, recv) start at once, are matched in order for each pair of ranks and tag, and complete each on its own. A barrier
 * orders collectives, not messages. comm_event_record(), comm_last() and comm_sync() cover everything issued before them, messages
 * included, and hold back nothing.
 *
 * **Buffers.** They belong to the library from the call until the request completes, also with an error; after that the library does not
 * touch them. The one exception is reported as COMM_INFO_BUFFERS_HELD. Arrays of counts, displacements and ranks, options and strings are
 * copied by the call. A `status`, a `*bytes`, and the outputs of creating calls and of comm_agree() must stay valid until the request
 * completes.
 *
 * **Errors.** The first failure of a communicator is permanent, with one cause on every surviving rank: its operation and all later ones
 * end with it, and calls return it. Some errors end only one request: a truncated message, a receive or a wait for a signal that is
 * cancelled, reaches its deadline or has no peers left, a call that all ranks refuse, a creating call for which one rank lacks what it
 * needs, COMM_ROOT_FAILED, and what COMM_CHECK=buffers finds. COMM_ERR_FULL starts nothing and fails nothing. Work that waits for a failed
 * point fails with COMM_ERR_DEPENDENCY and the first cause.
 *
 * **Threads.** Any thread may make any call. Collectives of a communicator must be issued in the same order on all ranks, so one thread at
 * a time issues them: use a comm_dup() for each independent source. No call may be made in a signal handler.
 *
 * **Callbacks** may call anything that does not wait. A close in a callback returns COMM_ERR_STATE. So does a wait or sync for a request of
 * the callback's communicator, and for anything that is not complete yet.
 *
 * **Time** is in nanoseconds (int64_t). A timeout of 0 tests once. COMM_FOREVER waits until the operation's own deadline; every
 * operation has one.
 *
 * **Lifetimes.** Communicators, plans, windows, events, buckets and operators can be freed in any order. NULL may be passed to every close
 * and free.
 *
 * **Fork.** In a forked child every call returns COMM_ERR_FORKED, and nothing is freed; the parent is not affected.
 *
 * **Stability.** Before version 0.1 is released, names, structs and numbers may change; CHANGELOG.md lists what did.
 */
#ifndef COMMSTREAM_COMMSTREAM_H
#define COMMSTREAM_COMMSTREAM_H

#include <commstream/bucket.h>
#include <commstream/collective.h>
#include <commstream/cuda.h>
#include <commstream/event.h>
#include <commstream/export.h>
#include <commstream/inspect.h>
#include <commstream/memory.h>
#include <commstream/message.h>
#include <commstream/open.h>
#include <commstream/plan.h>
#include <commstream/progress.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>
#include <commstream/version.h>
#include <commstream/window.h>

#endif
