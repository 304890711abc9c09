/*
 * Moving work, for programs that do not simply wait: synchronising a whole communicator, bounded progress, and one descriptor for an event
 * loop. In the default mode a helper thread moves work while no caller is inside, where there are CPUs to spare; these calls are then only
 * needed to learn, not to move. Any thread may call. comm_sync and comm_sync_all block, and are COMM_ERR_STATE inside a callback.
 *
 * An event loop: comm_progress until it says OK, comm_arm, test your own requests once more, and sleep on comm_fd only if comm_arm said OK.
 * May change until 0.1.
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

/*
 * Blocks until everything issued on c before this call is complete, messages too, and returns the first error among it, also of requests
 * that nobody kept; each of those is told once. Bounded by the operations' own deadlines. Local. cudaStreamSynchronize is its relative.
 */
COMM_MUST enum comm_result comm_sync(struct comm_communicator *c);
/*
 * comm_sync for every communicator of any's engine, children and further worlds too. Local. cudaDeviceSynchronize is its relative.
 */
COMM_MUST enum comm_result comm_sync_all(struct comm_communicator *any);
/*
 * One bounded pass of work for the whole engine that any belongs to; never blocks; runs callbacks. PENDING: there is more to do now, call
 * again. OK: idle, nothing retired, was released, called back or became due. Inside a callback it does nothing and says PENDING.
 */
COMM_MUST enum comm_result comm_progress(struct comm_communicator *any);
/*
 * One descriptor per engine, the same for every communicator of it, for poll, select or epoll: readable when comm_progress has work, the
 * library's own timers included. Level triggered; comm_progress takes the readiness away. It stays the library's: do not read or close it.
 */
COMM_MUST enum comm_result comm_fd(struct comm_communicator *any, int *fd);
/*
 * To be called before sleeping on the descriptor. OK: asleep is safe, the next event makes it readable. PENDING: do not sleep, make
 * progress first. Armed until the next comm_progress.
 */
COMM_MUST enum comm_result comm_arm(struct comm_communicator *any);

#ifdef __cplusplus
}
#endif

#endif
