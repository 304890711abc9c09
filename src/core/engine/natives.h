/*
 * Collectives of a library beside the wire (native.c): when one takes a call, and how its ends are noticed.
 */
#ifndef ENGINE_NATIVES_H
#define ENGINE_NATIVES_H

#include "engine/entry.h"
#include "timeline/timeline.h"

struct body;
struct engine;
struct team_offer;

enum comm_result native_join(struct body *b, struct team_offer *offer);
enum comm_result native_connect(struct body *b, const struct team_offer *offers);
/* OK: the native does it. UNSUPPORTED: a program does. Anything else refuses the call; the text is in last_refused. */
enum comm_result native_takes(struct body *b, const struct engine_call *call);
bool native_is_device_memory(struct body *b, const void *memory);
bool native_issue(struct body *b, const struct engine_call *call, struct comm_request *req); /* the short way; false: not taken */
bool native_wait_short(struct comm_request request);
void native_start(struct body *b, uint64_t ticket, struct entry *e);
bool native_may_not_start(const struct body *b, uint64_t ticket);
bool native_look(struct body *b); /* what ended; true: something did */
void native_count(struct body *b, bool pending);
bool native_step(struct body *b); /* what ended, and stream waits whose points were reached; true: something did */
enum comm_result native_wait(struct body *b, struct entry *e, const struct timeline_point *point);
void native_fail(struct body *b);  /* the communicator failed */
bool native_holds(struct body *b); /* failed, and buffers are still in use */
void native_leave(struct body *b);
void native_nap(struct engine *e, int64_t now, int64_t *until); /* natives wake nobody: lowers `until` while something is pending there */

#endif
