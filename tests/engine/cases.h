/* Cases that are in another file than the main of their program. */
#ifndef TESTS_ENGINE_CASES_H
#define TESTS_ENGINE_CASES_H

/* native_failures.c */
void an_opening_that_fails_leaves_nothing(void **state);
void a_native_that_never_connects(void **state);
void a_native_that_connects_late(void **state);
void an_operation_that_fails(void **state);
void a_failure_that_the_monitor_notices(void **state);
void a_call_that_a_native_refuses(void **state);
void contract_4_5_calls_that_differ(void **state);
void contract_4_3_buffers_are_held_until_close(void **state);
void contract_4_3_a_native_is_told_that_a_rank_is_gone(void **state);
void contract_2_3_a_native_has_the_deadline_too(void **state);

/* native_repeat.c */
void a_repeated_call_checks_its_buffers(void **state);
void a_call_in_place_between_others(void **state);
void a_repeated_call_has_its_own_counts(void **state);
void a_call_of_a_native_has_its_times(void **state);

/* native_plans.c */
void plans_match_plans(void **state);
void plans_whose_calls_are_kept(void **state);
void a_kept_call_never_runs_twice_at_once(void **state);
void a_plan_is_freed_while_its_kept_calls_wait(void **state);
void a_kept_plan_outlives_its_communicator(void **state);
void a_kept_plan_of_a_failed_communicator(void **state);
void plans_of_messages_are_not_counted(void **state);
void contract_4_5_plans_that_differ(void **state);
void a_kept_call_that_finds_no_memory(void **state);

#endif
