/* Cases that are in another file than the main of their program. */
#ifndef TESTS_CONTRACT_CASES_H
#define TESTS_CONTRACT_CASES_H

/* section1_conflicts.c */
void contract_1_4_conflicting_work_is_ordered(void **state);
void contract_1_4_work_and_messages_conflict(void **state);
void contract_1_4_a_receive_waits_for_the_send_before_it(void **state);
void contract_1_4_a_send_waits_for_the_receive_before_it(void **state);

/* section4_mismatch.c */
void contract_4_5_mismatch_of_operator(void **state);
void contract_4_5_mismatch_of_count(void **state);
void contract_4_5_mismatch_of_type(void **state);
void contract_4_5_mismatch_of_root(void **state);
void contract_4_5_mismatch_of_collective(void **state);
void contract_4_5_mismatch_of_order(void **state);
void contract_4_5_mismatch_of_counts(void **state);
void contract_4_5_mismatch_of_large_count(void **state);
void contract_4_5_the_text_names_both_calls(void **state);
void contract_4_5_a_missing_call_is_known_at_the_close(void **state);
void contract_4_5_a_call_after_a_peer_closed(void **state);

/* section6_callbacks.c */
void contract_6_6_when_callbacks_run(void **state);
void contract_6_6_what_a_callback_may_not_do(void **state);
void contract_6_6_a_callback_may_issue(void **state);
void contract_6_6_notify_progress(void **state);
void contract_6_6_callbacks_of_a_failed_communicator(void **state);

/* section6_fork.c */
void contract_6_8_fork(void **state);
void contract_6_8_a_child_that_frees_moves_nothing(void **state);
void contract_6_8_a_fork_in_a_callback(void **state);
void contract_6_8_the_last_free_in_a_child(void **state);
void contract_6_8_a_window_in_a_child(void **state);

#endif
