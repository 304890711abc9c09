/* The message line of a communicator: messages, markers, subsets in the making, calls on windows. Its lock is held in every call. */
#ifndef ENGINE_TALK_H
#define ENGINE_TALK_H

#include "engine/body.h"
#include "engine/window.h"

bool talk_open(struct body *b);
void talk_close(struct body *b);
bool talk_step(struct body *b); /* posts held messages, takes what finished, completes markers */
bool talk_blocks(const struct body *b, uint64_t ticket, const struct timeline_entry *e);
void talk_end_all(struct body *b, enum comm_result result);
void talk_cancel_held(struct body *b);

/* A send or a receive, posted or held back; marker: of its plan, or TALK_NONE. */
enum comm_result talk_post(struct body *b, const struct message_call *call, uint32_t marker, struct comm_request *req);
uint64_t talk_mark(struct body *b); /* the ticket of a marker behind everything so far; 0: everything is complete or no memory */
/* The marker of a plan: behind the messages that are posted for it and the work issued until it is closed. */
bool talk_reserve(struct body *b, uint32_t messages);
enum comm_result talk_open_marker(struct body *b, bool carries, uint32_t *marker); /* carries: it ends with its members' first error */
void talk_close_marker(struct body *b, uint32_t marker, enum comm_result error, struct comm_request *req);

/* Requests of this line that are no messages. */
enum comm_result talk_take_slot(struct body *b, uint32_t *index); /* pending under a new ticket, at the end of the list */
enum comm_result talk_begin(struct body *b, uint32_t *index, struct comm_request *req); /* of a subset: it stands before nothing */
void talk_end(struct body *b, const struct talk *t, enum comm_result result);
/* Of agree and shrink: a request that stands on neither line and outlives a failure. */
enum comm_result talk_begin_recovery(struct body *b, uint32_t *index, struct comm_request *req);
void talk_end_recovery(struct body *b, uint32_t index, enum comm_result result);
bool talk_meets_earlier(const struct body *b, uint32_t i); /* waits for an older one for its memory's sake */
bool talk_take_finished(struct body *b);
const char *talk_name(const struct talk *t);

/* talk_call.c: and what a program calls */
enum comm_result talk_refuse_device(struct body *b, const char *call);

/* talk_window.c */
/* COMM_OK: ended if *req is COMM_REQUEST_NONE, otherwise under way. */
enum comm_result talk_one_sided(struct body *b, const struct one_sided *one, struct comm_request *req);
enum comm_result talk_start_one(struct body *b, uint32_t i); /* moves it if it is under way or may be; OK: it has ended */
bool talk_step_ones(struct body *b);
bool talk_may_ask(struct body *b, uint32_t i); /* of a part that is apart: it may be asked for from now on */
/* Ends this rank's calls on w that have not ended; NULL: those that wait for signals, of all windows. */
void talk_forget_window(struct body *b, const struct comm_window *w, enum comm_result result);
/* Whether a call on w that was made before work `ticket` has not ended; waits for signals do not count. */
bool talk_holds_window(const struct body *b, const struct comm_window *w, uint64_t ticket);

/* subset.c */
bool subset_step(struct body *b);
bool subset_is_letter(uint32_t slot);
void subset_letter_done(struct body *b, const struct message_finished *done);
void subset_check(struct body *b, int64_t now); /* members that closed, deadlines */
void subset_end_all(struct body *b);            /* b failed */
void subset_close(struct body *b);

#endif
