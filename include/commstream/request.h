/**
 * @file request.h
 * @brief Requests: test, wait, notify, cancel.
 *
 * A request is a value of 16 bytes that names one operation of a communicator. It can be copied, stored anywhere, and waited for by any
 * thread, any number of times. It is never freed. Testing a complete one costs a load and a compare.
 *
 * {NULL, 0} (COMM_REQUEST_NONE) is complete. {NULL, e} is the error e of a refused call. Any other value names a ticket that is unique
 * in the process: after comm_close() it still returns its result or COMM_ERR_CLOSED, and never touches freed memory.
 *
 * **How long results are kept.** Of requests that ended alone with an error (cancelled, truncated, refused by all ranks), a
 * communicator keeps the last 2,000 errors. It knows which of the last 65,000 messages, and of the last 65,000 collectives, succeeded,
 * even if nobody has waited for them. Once more than 2,000 requests have ended with an error, an older request may return
 * COMM_ERR_CLOSED, also if it succeeded. It never returns a wrong result.
 *
 * **req NULL** has one meaning for all calls except comm_agree() and comm_shrink(), which need a request: the operation is started, no
 * request is returned, and comm_sync() waits for it and reports its error.
 *
 * **Lifetimes.** Buffers, `status`, `*bytes` and the outputs of creating calls must stay valid until the request completes.
 *
 * Any thread may call. The functions that block (comm_wait(), comm_wait_all(), comm_wait_any(), comm_wait_some()) may return
 * COMM_ERR_STATE inside a callback; use comm_test() there. A request that no call returned is COMM_ERR_ARGUMENT.
 */
#ifndef COMMSTREAM_REQUEST_H
#define COMMSTREAM_REQUEST_H

#include <commstream/export.h>
#include <commstream/result.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An operation of a communicator, or an error. Treat both fields as private. */
struct comm_request {
    struct comm_communicator *comm; /**< NULL: complete, or an error */
    uint64_t ticket;                /**< the operation; with comm NULL an enum comm_result */
};
#ifdef __cplusplus
#    define COMM_REQUEST_NONE (comm_request{nullptr, 0})
#else
/** A request that is complete. */
#    define COMM_REQUEST_NONE ((struct comm_request){NULL, 0})
#endif
/** The index that comm_wait_any() reports when no request is left. */
#define COMM_NO_INDEX ((size_t)-1)

/** What a receive got. It is written before the request completes, and must stay valid until then. */
struct comm_status {
    int32_t peer;   /**< sending rank */
    uint32_t tag;   /**< tag of the message */
    uint64_t bytes; /**< length of the message */
};

/** A flag of struct comm_request_info: the operation failed while a library that cannot cancel, or a copy of a device, was at work; keep
 * its buffers until comm_close() returned COMM_OK. */
#define COMM_INFO_BUFFERS_HELD 1u
/** A flag of struct comm_request_info: a buffer was a device's; its bytes went through pinned memory of the host. */
#define COMM_INFO_STAGED 2u

/** What comm_describe_request() tells of an operation. */
struct comm_request_info {
    size_t size;             /**< sizeof(struct comm_request_info) */
    enum comm_result result; /**< as comm_test() */
    uint32_t flags;          /**< COMM_INFO_BUFFERS_HELD and COMM_INFO_STAGED, or 0 */
    uint64_t sequence;       /**< sequence number among the collectives; 0: it has none, such as a message or a queue wait */
    uint64_t bytes;          /**< a collective: n * element size, so one block; with counts: the longest block, but this rank's own in
                              * gather_v and scatter_v; broadcast_bytes: the length, once it is known. A message: its buffer's length */
    uint64_t queued_ns;      /**< when it was queued, in ns of CLOCK_MONOTONIC */
    uint64_t started_ns;     /**< when it started; 0: not yet */
    uint64_t completed_ns;   /**< when it completed; 0: not yet */
    char algorithm[32];      /**< the algorithm that ran; or mpi, nccl or cuda, which did it; nccl+kernel, nccl+host: NCCL moved the
                              * inputs, and a kernel of the device or the host's reduced them. A message: what it is, such as send */
    int32_t waited_for;      /**< the last rank that it had to wait for; -1: none or unknown. A message: its peer, or, while earlier
                              * work of this rank holds it back (because both use the same memory, say), this rank */
    int32_t reserved;        /**< 0 */
};

/**
 * Tests whether an operation is complete, and makes progress if it is not.
 *
 * Polling in a loop is therefore enough to complete an operation. Inside a callback it makes no progress. Like MPI_Test.
 *
 * @param request  the request
 * @return COMM_PENDING if it is not complete; otherwise COMM_OK or the operation's error, and the buffers are the caller's again
 */
COMM_MUST enum comm_result comm_test(struct comm_request request);

/**
 * Waits until an operation is complete. Meanwhile it makes progress on all communicators of the engine. Like MPI_Wait.
 *
 * @param request     the request
 * @param timeout_ns  how long to wait; COMM_FOREVER: until the operation completes or reaches its own deadline; 0: test once
 * @return COMM_OK or the operation's error; COMM_PENDING if timeout_ns passed first (the operation goes on); COMM_ERR_TIMEOUT if the
 *         operation's own deadline passed; COMM_ERR_STATE inside a callback; COMM_ERR_ARGUMENT if timeout_ns is negative
 */
COMM_MUST enum comm_result comm_wait(struct comm_request request, int64_t timeout_ns);

/**
 * Waits until all requests are complete. They may belong to different communicators and engines. Like MPI_Waitall and MPI_Testall.
 *
 * @param requests    the requests; not changed
 * @param count       their number
 * @param timeout_ns  how long to wait, as in comm_wait()
 * @return COMM_OK; the first error by index, once all are complete (comm_sync() reports the others); COMM_PENDING if timeout_ns passed
 *         first; COMM_ERR_STATE inside a callback; COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns);

/**
 * Waits until one of the requests is complete, and sets it to COMM_REQUEST_NONE so that the next call finds another one.
 *
 * Like MPI_Waitany and MPI_Testany. Several threads may call, each with an array of its own.
 *
 * @param requests    the requests
 * @param count       their number
 * @param timeout_ns  how long to wait, as in comm_wait()
 * @param index       receives the index of the complete request; COMM_NO_INDEX: none was taken. If the result is COMM_OK too, all are
 *                    COMM_REQUEST_NONE
 * @return the result of that request; with COMM_NO_INDEX: COMM_PENDING if timeout_ns passed first; COMM_ERR_STATE inside a callback. A
 *         wrong argument is COMM_ERR_ARGUMENT, and *index is not changed.
 */
COMM_MUST enum comm_result comm_wait_any(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *index);

/**
 * Waits until at least one of the requests is complete, and takes all that are: each is set to COMM_REQUEST_NONE.
 *
 * Like MPI_Waitsome. Several threads may call, each with arrays of its own.
 *
 * @param requests    the requests
 * @param count       their number
 * @param timeout_ns  how long to wait, as in comm_wait()
 * @param indices     room for `count` indices; receives those of the complete requests
 * @param results     room for `count` results; results[i] belongs to indices[i]; NULL: not wanted
 * @param done        receives how many were taken; 0 if all are COMM_REQUEST_NONE, where the result is COMM_OK
 * @return COMM_OK or the first error among them; with `results` NULL comm_sync() reports the others. With *done 0: COMM_PENDING if
 *         timeout_ns passed first; COMM_ERR_STATE inside a callback. A wrong argument is COMM_ERR_ARGUMENT, and *done is not changed.
 */
COMM_MUST enum comm_result comm_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *indices,
                                          enum comm_result *results, size_t *done);

/**
 * Returns a request that completes when everything issued on c so far is complete, messages included.
 *
 * It holds nothing back. If nothing is outstanding, it is complete at once. Similar to cudaEventRecord on a stream.
 *
 * @param c  communicator
 * @return the request; {NULL, e} if there is none: what c failed with, COMM_ERR_FULL (make progress and call again), COMM_ERR_STATE on a
 *         recorder, COMM_ERR_CLOSED or COMM_ERR_ARGUMENT
 */
COMM_MUST struct comm_request comm_last(struct comm_communicator *c);

/**
 * A callback of comm_notify(). It may start operations, and must not wait.
 *
 * @param request  the request that completed
 * @param result   its result
 * @param arg      the argument of comm_notify()
 */
typedef void comm_notify_fn(struct comm_request request, enum comm_result result, void *arg);

/**
 * Has a function called once when a request completes, also if it is complete already.
 *
 * The function is called by a later call that makes progress (test, wait, sync, progress, close) or by the progress thread, never by this
 * call. A test, wait or sync that finds its work complete at once makes no progress; comm_progress() always does. With COMM_NOTIFY_PROGRESS
 * it is called only inside comm_progress() and comm_close(). Callbacks of one communicator run one at a time: those of collectives in queue
 * order, those of messages as they complete. Several callbacks for one request are allowed. Similar to MPIX_Continue.
 *
 * @param request  the request
 * @param fn       the function
 * @param arg      passed to it
 * @return COMM_OK; COMM_ERR_ARGUMENT if fn is NULL or the request is {NULL, ...}; COMM_ERR_CLOSED if its communicator was closed;
 *         COMM_ERR_MEMORY
 */
COMM_MUST enum comm_result comm_notify(struct comm_request request, comm_notify_fn *fn, void *arg);

/**
 * Cancels a receive, or a wait for a signal, that has not matched yet. Like MPI_Cancel.
 *
 * The request then completes with COMM_ERR_CANCELLED, and the buffer is the caller's once that is seen.
 *
 * @param request  the request
 * @return COMM_OK; COMM_ERR_STATE for anything else (matched or complete, a send, a collective), which goes on undisturbed; COMM_ERR_CLOSED
 *         after comm_close(); e for the request {NULL, e} of a refused call
 */
COMM_MUST enum comm_result comm_cancel(struct comm_request request);

/**
 * Describes an operation: result, sequence number, bytes, times and the algorithm that ran.
 *
 * The last 2,000 operations of each communicator are remembered, messages among them. Of a request {NULL, e} only the result is known.
 *
 * @param request  the request
 * @param info     receives the description; the caller sets info->size
 * @return COMM_OK; COMM_ERR_CLOSED for an older operation or after comm_close(); COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_describe_request(struct comm_request request, struct comm_request_info *info);

#ifdef __cplusplus
}
#endif

#endif
