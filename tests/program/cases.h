/* Cases that are in another file than the main of their program. */
#ifndef TESTS_PROGRAM_CASES_H
#define TESTS_PROGRAM_CASES_H

/* test_run_once.c */
void no_memory_for_places_ends_the_run(void **state);
void a_step_costs_little(void **state);

#endif
