/**
 * @file result.h
 * @brief Result codes of calls and requests.
 *
 * Zero is success, positive means not finished yet, negative is an error. The numbers are part of the ABI: an existing number never
 * changes its meaning, and new ones are added at the end. comm_result_name() and comm_result_text() turn a result into text;
 * comm_error_detail() returns the cause of an error.
 */
#ifndef COMMSTREAM_RESULT_H
#define COMMSTREAM_RESULT_H

#include <commstream/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The list of all results, as X(name, number, text): for tables in a program of your own. */
#define COMM_RESULTS(X)                                                                                                                    \
    X(OK, 0, "ok")                                                                                                                         \
    X(PENDING, 1, "not complete yet")                                                                                                      \
    X(ERR_ARGUMENT, -1, "an argument is wrong; the detail names it, its value and what was expected")                                      \
    X(ERR_STATE, -2, "not allowed now: inside a callback, while recording, or started twice")                                              \
    X(ERR_UNSUPPORTED, -3, "not supported by this build, backend, type and operator, or set of machines")                                  \
    X(ERR_FULL, -4, "a queue or table is full: nothing was started; make progress and call again")                                         \
    X(ERR_MEMORY, -5, "out of memory")                                                                                                     \
    X(ERR_SYSTEM, -6, "a system call failed; errno is in the detail")                                                                      \
    X(ERR_CONFIG, -7, "the configuration is missing or wrong; the detail names every wrong value")                                         \
    X(ERR_AUTH, -8, "a peer did not prove its identity: secret, job, version or rank")                                                     \
    X(ERR_TIMEOUT, -9, "the operation's own deadline passed")                                                                              \
    X(ERR_PEER, -10, "a rank died, stopped or cannot be reached")                                                                          \
    X(ERR_MISMATCH, -11, "ranks made different calls; both are named")                                                                     \
    X(ERR_TRUNCATED, -12, "a message is longer than its receive")                                                                          \
    X(ERR_CANCELLED, -13, "cancelled before it matched")                                                                                   \
    X(ERR_ABORTED, -14, "comm_abort was called, here or elsewhere, or the root of a broadcast_bytes gave up")                              \
    X(ERR_REVOKED, -15, "the communicator was revoked: agree, shrink or close it")                                                         \
    X(ERR_DEPENDENCY, -16, "something that it waited for had failed")                                                                      \
    X(ERR_BACKEND, -17, "MPI, NCCL or CUDA reported an error; its code and text are in the detail")                                        \
    X(ERR_CORRUPT, -18, "data is corrupt, or a member sent what no member may send")                                                       \
    X(ERR_CLOSED, -19, "closed: here, or by the peer that is named")                                                                       \
    X(ERR_FORKED, -20, "called in a forked child")                                                                                         \
    X(ERR_REFUSED, -21, "another rank refused its own call; it and its reason are named")                                                  \
    X(ERR_DEADLOCK, -22, "a cycle of operations and points waits for itself; the cycle is named")                                          \
    X(ERR_ABANDONED, -23, "an event was freed or recorded again while work waited for comm_event_set")

/** What a call returns and a request ends with. */
enum comm_result {
#define COMM_RESULT_ENUM(name, value, text) COMM_##name = value,
    COMM_RESULTS(COMM_RESULT_ENUM)
#undef COMM_RESULT_ENUM
        COMM_RESULT_INT = 0x7fffffff /* keeps the enum an int under -fshort-enums */
};

/** A timeout without a bound of its own: the wait ends when the operation completes or reaches its own deadline. Every operation has one;
 * a point of comm_event_reset() has none. */
#define COMM_FOREVER INT64_MAX
/** The default timeout of comm_close(), 5 s. Any other negative timeout, and this one anywhere else, is COMM_ERR_ARGUMENT. */
#define COMM_DEFAULT_TIMEOUT ((int64_t)-1)

#ifdef __cplusplus
}
#endif

#endif
