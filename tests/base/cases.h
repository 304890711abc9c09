/* Cases that are in another file than the main of their program. */
#ifndef TESTS_BASE_CASES_H
#define TESTS_BASE_CASES_H

/* test_env_bell.c */
void bell_rings(void **state);
void bell_waits_until_its_deadline(void **state);
void bell_wakes_a_sleeper(void **state);
void bell_watches_descriptors(void **state);
void bell_says_why_it_cannot_open(void **state);

/* test_log_function.c */
void log_lines_of_many_threads_keep_their_order(void **state);
void log_forgets_a_function_that_does_not_return(void **state);
void log_forgets_nothing_that_is_told_in_time(void **state);

#endif
