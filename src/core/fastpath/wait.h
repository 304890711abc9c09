/* Blocking calls, each bounded, and the calls for event loops. */
#ifndef FASTPATH_WAIT_H
#define FASTPATH_WAIT_H

#include "comm/call.h"

enum comm_result engine_test(struct comm_request request);
enum comm_result engine_wait(struct comm_request request, int64_t timeout_ns);
enum comm_result engine_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns);
enum comm_result engine_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t most, size_t *indices,
                                  enum comm_result *results, size_t *done);
/* Returns `issued`, the result of a call that was issued as `own`, and stores the request or the refusal in *req. */
enum comm_result engine_answer(enum comm_result issued, struct comm_request own, struct comm_request *req);
/* Waits until the point is reached, as event_sync does. */
enum comm_result engine_wait_on(struct engine *e, const struct timeline_point *point, int64_t timeout_ns);
/* The state of a point, as timeline_point_test; BACKEND also if it waits for a device that has stopped (engine_ask_device). */
enum comm_result wait_point(const struct engine *e, const struct timeline_point *point, int64_t *asked_ns);
struct comm_request engine_last(struct comm_communicator *c);
enum comm_result engine_sync(struct comm_communicator *c, int64_t timeout_ns);
enum comm_result engine_sync_all(struct comm_communicator *c, int64_t timeout_ns);
enum comm_result engine_progress(struct comm_communicator *c);
enum comm_result engine_arm(struct comm_communicator *c);
enum comm_result engine_fd(struct comm_communicator *c, int *fd);

#endif
