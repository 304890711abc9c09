#ifndef COMMSTREAM_REQUEST_H
#define COMMSTREAM_REQUEST_H

#include <commstream/export.h>
#include <commstream/result.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A request is a value: copy it, store it, wait on it from anywhere, any number of times; nothing is freed.
 * {NULL, 0} (COMM_REQUEST_NONE) is complete. {NULL, e} is the error e of a refused call. Otherwise it names a ticket that is unique
 * in the life of the process: after comm_close a request still answers, its result or COMM_ERR_CLOSED, and never touches freed memory.
 */
struct comm_request {
    struct comm_communicator *comm;
    uint64_t ticket;
};
#ifdef __cplusplus
#define COMM_REQUEST_NONE (comm_request{nullptr, 0})
#else
#define COMM_REQUEST_NONE ((struct comm_request){NULL, 0})
#endif
#define COMM_NO_INDEX ((size_t)-1)

/* What a receive got. Written before its request completes; the caller keeps it in place until then. */
struct comm_status {
    int32_t peer;
    uint32_t tag;
    uint64_t bytes;
};
#define COMM_INFO_BUFFERS_HELD 1u /* failed on a native that cannot cancel: keep the buffers until comm_close returned COMM_OK */
struct comm_request_info {
    size_t size;
    enum comm_result result;
    uint32_t flags;
    uint64_t sequence, bytes;                    /* collective sequence number; bytes this rank contributed   */
    uint64_t queued_ns, started_ns, completed_ns; /* CLOCK_MONOTONIC; 0 = not yet                              */
    char algorithm[32];
};

/* COMM_OK, COMM_PENDING or its error. Makes progress when pending, so polling in a loop is enough. */
COMM_MUST enum comm_result comm_test(struct comm_request request);
/* Blocks at most timeout_ns; COMM_PENDING then, and the operation goes on. COMM_ERR_TIMEOUT is the operation's deadline, not yours. */
COMM_MUST enum comm_result comm_wait(struct comm_request request, int64_t timeout_ns);
/* All complete: COMM_OK or the first error by index, after all are complete. timeout 0 is "test all". */
COMM_MUST enum comm_result comm_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns);
/* The first complete one: its index, its result, and its slot set to COMM_REQUEST_NONE so that the next call finds another.
   Nothing left: index = COMM_NO_INDEX, COMM_OK. timeout 0 is "test any". */
COMM_MUST enum comm_result comm_wait_any(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *index);
/* All that are complete, at least one: indices[0..*done), slots set to COMM_REQUEST_NONE; results[i] (may be NULL) beside indices[i]. */
COMM_MUST enum comm_result comm_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *indices,
                                          enum comm_result *results, size_t *done);
/* The point behind everything issued on c so far. comm_sync(c) is comm_wait(comm_last(c)) plus the errors of requests nobody kept. */
COMM_MUST struct comm_request comm_last(struct comm_communicator *c);
/* fn runs once, from progress, never from inside this call, also when the request is already complete. Several per request are fine. */
typedef void comm_notify_fn(struct comm_request request, enum comm_result result, void *arg);
COMM_MUST enum comm_result comm_notify(struct comm_request request, comm_notify_fn *fn, void *arg);
/* A receive not matched yet ends with COMM_ERR_CANCELLED; anything else is COMM_ERR_STATE and goes on. */
COMM_MUST enum comm_result comm_cancel(struct comm_request request);
/* Kept for the last 2,000 operations of each communicator; older ones are COMM_ERR_CLOSED. */
COMM_MUST enum comm_result comm_describe_request(struct comm_request request, struct comm_request_info *info);

#ifdef __cplusplus
}
#endif

#endif
