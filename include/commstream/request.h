/*
 * A request is a point on the work queue of its communicator, as a value of sixteen bytes: copied freely, stored anywhere, waited on by any
 * thread, any number of times; never freed and never leaked. Testing one is a load and a compare.
 *
 * {NULL, 0} (COMM_REQUEST_NONE) is complete. {NULL, e} is the error e of a refused call. Any other names a ticket that is unique in the
 * life of the process: after comm_close it still answers, with its result or COMM_ERR_CLOSED, and never touches freed memory.
 *
 * All calls here may be made from any thread. Those that block (wait, wait_all, wait_any, wait_some) are COMM_ERR_STATE inside a callback,
 * and not to be relied on there even for what is complete already: comm_test is for that.
 * May change until 0.1.
 */
#ifndef COMMSTREAM_REQUEST_H
#define COMMSTREAM_REQUEST_H

#include <commstream/export.h>
#include <commstream/result.h>

#ifdef __cplusplus
extern "C" {
#endif

struct comm_request {
    struct comm_communicator *comm;
    uint64_t ticket;
};
#ifdef __cplusplus
#    define COMM_REQUEST_NONE (comm_request{nullptr, 0})
#else
#    define COMM_REQUEST_NONE ((struct comm_request){NULL, 0})
#endif
#define COMM_NO_INDEX ((size_t)-1)

/* What a receive got. Written before its request completes; the caller keeps it in place until then. */
struct comm_status {
    int32_t peer;
    uint32_t tag;
    uint64_t bytes;
};

/* Failed on a native that cannot cancel: keep the buffers until comm_close returned COMM_OK. */
#define COMM_INFO_BUFFERS_HELD 1u

struct comm_request_info {
    size_t size; /* sizeof(struct comm_request_info) */
    enum comm_result result;
    uint32_t flags;                               /* COMM_INFO_* */
    uint64_t sequence, bytes;                     /* collective sequence number; bytes this rank contributed */
    uint64_t queued_ns, started_ns, completed_ns; /* CLOCK_MONOTONIC; 0: not yet */
    char algorithm[32];
    int32_t waited_for; /* the rank whose part came last of what was not there when it was looked for; -1: nobody's, not known */
    int32_t reserved;
};

/*
 * COMM_OK, COMM_PENDING, or the request's error. Makes progress when it is pending, so polling in a loop is enough; inside a callback it
 * only looks. Once it said anything but PENDING the buffers are the caller's again. Any thread. MPI_Test.
 */
COMM_MUST enum comm_result comm_test(struct comm_request request);
/*
 * Blocks until the request is complete, at most timeout_ns (0 polls once), moving all communicators of its engine meanwhile. PENDING means
 * that the caller's time is up and the operation goes on; TIMEOUT that the operation's own deadline passed. Any thread, several at once.
 * MPI_Wait.
 */
COMM_MUST enum comm_result comm_wait(struct comm_request request, int64_t timeout_ns);
/*
 * Waits until all `count` requests are complete: OK, or the first error by index, told after all of them ended. PENDING when timeout_ns
 * passed first; timeout 0 tests them all. The array is not changed and may mix communicators and engines. Any thread. MPI_Waitall,
 * MPI_Testall.
 */
COMM_MUST enum comm_result comm_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns);
/*
 * Waits for one of `count` requests: its index, its result, and its slot is set to COMM_REQUEST_NONE, so that the next call finds another.
 * Nothing left: *index is COMM_NO_INDEX and the answer COMM_OK. PENDING when timeout_ns passed first; timeout 0 tests. Any thread, each on
 * an array of its own. MPI_Waitany, MPI_Testany.
 */
COMM_MUST enum comm_result comm_wait_any(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *index);
/*
 * Waits until at least one of `count` requests is complete and takes all that are: indices[0 .. *done) name them, their slots are set to
 * COMM_REQUEST_NONE, and results[i], where results is not NULL, belongs to indices[i]. Both arrays have room for `count`. The answer is OK
 * or the first error among them; PENDING when timeout_ns passed first, with *done 0. Any thread, each on an array of its own. MPI_Waitsome.
 */
COMM_MUST enum comm_result comm_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *indices,
                                          enum comm_result *results, size_t *done);
/*
 * The point behind everything issued on c so far, messages too; it holds nothing back. comm_sync(c) is comm_wait(comm_last(c)) and the
 * errors of requests that nobody kept. With nothing outstanding it is complete at once. Any thread. cudaEventRecord on a stream is its
 * relative.
 */
COMM_MUST struct comm_request comm_last(struct comm_communicator *c);

typedef void comm_notify_fn(struct comm_request request, enum comm_result result, void *arg);
/*
 * Has fn called once when the request ends, with its result, also when it ended before this call. fn runs from a later progress (test,
 * wait, sync, progress, close, the helper thread; with COMM_NOTIFY_PROGRESS inside comm_progress and comm_close alone), never from inside
 * this call; those of one communicator run one at a time, of its work in the order of tickets, of its messages as they end. It may issue,
 * not wait. Several per request are fine. ARGUMENT: fn is NULL, or request is {NULL, ...}, which belongs to no communicator; CLOSED: its
 * communicator was closed. Any thread. MPIX_Continue, aio callbacks.
 */
COMM_MUST enum comm_result comm_notify(struct comm_request request, comm_notify_fn *fn, void *arg);
/*
 * Ends a receive that has matched nothing: it completes with COMM_ERR_CANCELLED and its buffer is the caller's once that is seen. Anything
 * else (matched, complete, a send, a collective) is COMM_ERR_STATE and goes on undisturbed. Any thread. MPI_Cancel.
 */
COMM_MUST enum comm_result comm_cancel(struct comm_request request);
/*
 * What became of an operation: result, sequence number, bytes, times and the algorithm that ran. Kept for the last 2,000 operations of each
 * communicator, messages among them; of older ones, and after comm_close, the answer is COMM_ERR_CLOSED. The caller sets info->size. Any
 * thread.
 */
COMM_MUST enum comm_result comm_describe_request(struct comm_request request, struct comm_request_info *info);

#ifdef __cplusplus
}
#endif

#endif
