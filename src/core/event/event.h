/* Events, and the streams of a device. */
#ifndef EVENT_EVENT_H
#define EVENT_EVENT_H

#include "comm/call.h"

enum comm_result engine_event_create(struct comm_communicator *c, struct comm_event **event);
void engine_event_destroy(struct comm_event *event);
enum comm_result engine_event_record(struct comm_event *event, struct comm_communicator *c);
enum comm_result engine_event_reset(struct comm_event *event);
enum comm_result engine_event_set(struct comm_event *event);
enum comm_result engine_event_query(struct comm_event *event);
enum comm_result engine_event_sync(struct comm_event *event, int64_t timeout_ns);
enum comm_result engine_queue_wait_event(struct comm_communicator *c, struct comm_event *event);
enum comm_result engine_queue_wait_request(struct comm_communicator *c, struct comm_request request);

enum comm_result engine_event_record_stream(struct comm_event *event, struct CUstream_st *stream);
enum comm_result engine_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream);
enum comm_result engine_stream_wait_event(struct CUstream_st *stream, struct comm_event *event);
enum comm_result engine_stream_wait_request(struct CUstream_st *stream, struct comm_request request);
bool engine_can_work_in_streams(struct comm_communicator *c); /* whether comm_dup of c may have options.stream */
enum comm_result engine_stream_of(struct comm_communicator *c, struct CUstream_st **stream);
enum comm_result engine_stream_sync(struct comm_communicator *c, int64_t timeout_ns);

/* The number of this rank's device, as device.h's where; otherwise text says what is missing. */
enum comm_result engine_hardware(struct comm_communicator *c, uint64_t *hardware, char *text, size_t bytes);
/* Shared by event.c and stream.c. */
/* The engine of c; with a request, the one of its communicator, which has issued it. NULL: *r says why: CLOSED, or ARGUMENT. */
struct engine *event_engine_of(struct comm_communicator *c, const struct comm_request *request, enum comm_result *r);
struct engine *event_engine(const struct comm_event *event);
void event_replace(struct comm_event *event, struct timeline_point point);
/* A copy of its current point. If that is a request, the close of its communicator waits until event_let_go. */
struct timeline_point event_hold(struct comm_event *event);
void event_let_go(const struct timeline_point *point);
void event_keep_open(const struct timeline_point *point);                /* the same for a point that is no event's */
void events_settle(struct engine *e, const struct comm_communicator *c); /* timeline_point_settle for all events */
/* A queue wait for the point. The first is for callers that hold the lock. */
enum comm_result queue_wait_issue(struct comm_state *b, const struct timeline_point *point, struct comm_request *req);
enum comm_result queue_wait_call(struct comm_communicator *c, const struct timeline_point *point);
/* keep_waits of the native, if it has a stream that needs it (wire/native.h). */
enum comm_result queue_wait_keep(struct comm_state *b, uint32_t count);
/* Adds to a recorded point of a communicator with a stream a place on that stream. */
void stream_place(struct comm_communicator *c, struct timeline_point *point);
/* For a queue wait of `c`. If the point is an operation of another stream, makes that stream wait on the device at
 * once, and marks *point as done. */
enum comm_result stream_join(struct comm_communicator *c, struct timeline_point *point);

extern const struct comm_part stream_part;

#endif
