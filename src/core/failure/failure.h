/* Detects failures, and provides the calls that still work on a failed communicator: the monitor, cycles of waits, agree and shrink. */
#ifndef FAILURE_FAILURE_H
#define FAILURE_FAILURE_H

#include "comm/call.h"

/* abort.c, recover_call.c: calls of the program */
enum comm_result engine_abort(struct comm_communicator *c, int32_t code);
enum comm_result engine_revoke(struct comm_communicator *c);
void abort_spread(struct engine *e); /* fails every communicator of a world in which comm_abort was called */
/* describe.c: describes a cause for the program */
void cause_describe(const struct comm_state *b, const struct cause *cause, struct comm_error *error);

enum comm_result engine_agree(struct comm_communicator *c, uint64_t *flags, struct comm_request *req);
enum comm_result engine_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req);

void engine_monitor(void *arg); /* the monitor's thread function; arg: the engine */
/* its checks of one communicator, under the lock; true: the monitor must look at it soon */
bool engine_monitor_check(struct progress_unit *unit, int64_t now);
void engine_poll(struct engine *e);
void recovery_withdraw(struct comm_state *b); /* waits end: the caller's memory is no longer written */
void recovery_leave(struct comm_state *b);    /* the communicator closes: the other ranks no longer wait for this one */
/* wait_note.c, deadlock.c */
bool deadlock_tell(struct comm_state *b);
void deadlock_look(struct engine *e);

extern const struct comm_part recovery_part, deadlock_part;

#endif
