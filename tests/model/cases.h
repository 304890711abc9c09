/* The cases; each file describes its own. */
#ifndef MODEL_CASES_H
#define MODEL_CASES_H

#include "model/explore.h"

extern const struct model_case litmus_cases[];
extern const size_t litmus_count;

extern const struct model_case case_lock_three, case_lock_twice, case_lock_claimed, case_lock_claimed_three;
extern const struct model_case case_home, case_home_try, case_home_leaving, case_home_unclaimed, case_home_no_barrier;
extern const struct model_case case_line, case_line_pending, case_line_again, case_exchange, case_place, case_place_first;
extern const struct model_case case_each, case_each_first;
extern const struct model_case case_stream, case_stream_landing, case_stream_next, case_answers, case_stored, case_notes;
extern const struct model_case case_message, case_message_full, case_message_eager, case_message_large, case_message_chunks,
    case_message_room, case_message_accepted, case_message_eager_accepted;
extern const struct model_case case_sleep_light, case_sleep_fenced, case_sleep_twice, case_sleep_both, case_sleep_both_fenced;
extern const struct model_case case_told_home, case_told_ordinary, case_told_by_hand, case_told_posted, case_told_two, case_progress_thread;
extern const struct model_case case_leave, case_leave_both;
extern const struct model_case case_handle_failed, case_handle_failed_twice, case_handle_alone;

#endif
