#ifndef COMMSTREAM_PROGRESS_H
#define COMMSTREAM_PROGRESS_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Waits until everything issued on c before this call is complete; the first error among it, also of requests nobody kept (each told once). */
COMM_MUST enum comm_result comm_sync(struct comm_communicator *c);
COMM_MUST enum comm_result comm_sync_all(struct comm_communicator *any); /* of every communicator of any's engine */
/* Bounded work for the whole engine, never blocks. COMM_PENDING: there is more to do now, call again. COMM_OK: idle. Runs callbacks. */
COMM_MUST enum comm_result comm_progress(struct comm_communicator *any);
/* One descriptor per engine, ours, the same for every communicator of a world: readable when comm_progress has work, the library's own timers
   included. Level triggered; comm_progress takes the readiness away. */
COMM_MUST enum comm_result comm_fd(struct comm_communicator *any, int *fd);
/* Before sleeping on the descriptor. COMM_OK: asleep is safe, the next event makes it readable. COMM_PENDING: do not sleep, progress first. */
COMM_MUST enum comm_result comm_arm(struct comm_communicator *any);

#ifdef __cplusplus
}
#endif

#endif
