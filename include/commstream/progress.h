/**
 * @file progress.h
 * @brief Synchronisation of a whole communicator, and progress for event loops.
 *
 * In the default mode (COMM_PROGRESS_AUTO) a progress thread moves work while no caller is inside the library, if the host has CPUs to
 * spare. Programs then need these functions only to learn what completed.
 *
 * **Event loops.** Call comm_progress() until it returns COMM_OK, call comm_arm(), test your own requests once more, and sleep on comm_fd()
 * only if comm_arm() returned COMM_OK.
 *
 * Any thread may call. comm_sync() and comm_sync_all() block, and return COMM_ERR_STATE inside a callback.
 */
#ifndef COMMSTREAM_PROGRESS_H
#define COMMSTREAM_PROGRESS_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Waits until everything issued on c before this call is complete, messages included.
 *
 * It also waits for operations whose request was not wanted (req NULL). It reports each error of a single operation that nobody has seen
 * yet, once, and one error a call: the next call reports the next one. Local: other ranks need not call it. Like cudaStreamSynchronize.
 *
 * @param c           communicator
 * @param timeout_ns  how long to wait; COMM_FOREVER: until the operations complete or reach their own deadlines; 0: look once
 * @return COMM_OK; COMM_PENDING if timeout_ns passed first; the first error of the operations; what the communicator failed with;
 *         COMM_ERR_FULL (make progress and call again); COMM_ERR_STATE inside a callback and on a recorder; COMM_ERR_CLOSED or
 *         COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_sync(struct comm_communicator *c, int64_t timeout_ns);

/**
 * Calls comm_sync() for every communicator of an engine: those of the same world, and of worlds that joined it (config.engine_of).
 *
 * Like cudaDeviceSynchronize.
 *
 * @param any         any communicator of the engine
 * @param timeout_ns  how long to wait for all of them together, as in comm_sync()
 * @return as comm_sync(): the first error; otherwise COMM_PENDING if any of them was not done in time
 */
COMM_MUST enum comm_result comm_sync_all(struct comm_communicator *any, int64_t timeout_ns);

/**
 * Does a bounded amount of work for the whole engine, and runs callbacks. Never blocks.
 *
 * @param any  any communicator of the engine
 * @return COMM_PENDING if there is more to do now: call again; COMM_OK if the engine is idle. Inside a callback it does nothing and
 *         returns COMM_PENDING. COMM_ERR_ARGUMENT, COMM_ERR_CLOSED or COMM_ERR_FORKED. A failed communicator is no error here: its requests
 *         have it.
 */
COMM_MUST enum comm_result comm_progress(struct comm_communicator *any);

/**
 * Gets a file descriptor for poll, select or epoll that becomes readable when comm_progress() has work, timers included.
 *
 * There is one per engine. It is level-triggered; comm_progress() makes it unreadable again. It belongs to the library: do not read or
 * close it. It is valid until the last communicator of the engine is closed.
 *
 * @param any  any communicator of the engine
 * @param fd   receives the descriptor
 * @return COMM_OK, COMM_ERR_ARGUMENT, COMM_ERR_CLOSED, or COMM_ERR_UNSUPPORTED if the system gave none
 */
COMM_MUST enum comm_result comm_fd(struct comm_communicator *any, int *fd);

/**
 * Prepares the descriptor of comm_fd() for sleep. Call it before every sleep; it holds until the next comm_progress().
 *
 * @param any  any communicator of the engine
 * @return COMM_OK if it is safe to sleep: the next event makes the descriptor readable; COMM_PENDING if there is work: call
 *         comm_progress() first. Inside a callback it does nothing and returns COMM_PENDING. COMM_ERR_ARGUMENT, COMM_ERR_CLOSED or
 *         COMM_ERR_FORKED
 */
COMM_MUST enum comm_result comm_arm(struct comm_communicator *any);

#ifdef __cplusplus
}
#endif

#endif
