/* What notices failures and what members of a failed communicator can still do: the monitor, circles of waits, agree and shrink. */
#ifndef FAILURE_FAILURE_H
#define FAILURE_FAILURE_H

#include "comm/call.h"

/* Calls of the program. */
enum comm_result engine_abort(struct comm_communicator *c, int32_t code);
enum comm_result engine_revoke(struct comm_communicator *c);
/* cause.c: a cause as the program is told it. */
void cause_describe(const struct comm_state *b, const struct cause *cause, struct comm_error *error);

enum comm_result engine_agree(struct comm_communicator *c, uint64_t *flags, struct comm_request *req);
enum comm_result engine_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req);

void engine_monitor(void *arg); /* its thread; arg: the engine */
void engine_poll(struct engine *e);
void recovery_withdraw(struct comm_state *b); /* the communicator begins to close: the caller's memory is not written any more */
void recovery_leave(struct comm_state *b);    /* the communicator closes: nobody waits for this rank any more */
/* deadlock.c */
bool deadlock_tell(struct comm_state *b);
void deadlock_look(struct engine *e);

extern const struct comm_part recovery_part, deadlock_part;

#endif
