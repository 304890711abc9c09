/* What the files of wire_shm share, and the cases that are not in the file of main. */
#ifndef TESTS_WIRE_TEST_SHM_H
#define TESTS_WIRE_TEST_SHM_H

#include "wire/scenarios.h"

/* Runs fn on each rank, in a process of its own. All must end well, but for the one that is expected to be killed (-1: none). */
void shm_processes(int32_t ranks, int32_t variant, scenario_fn *fn, int expected_killed);
/* Returns once this rank has heard that rank 1 closed its wire. */
void shm_await_close(struct rank *r);

/* Cases of test_shm_landing.c. */
void results_land_by_themselves(void **state);
void contract_4_3_a_late_store_lands_nowhere(void **state);
void contract_4_3_a_late_reader_reads_what_was_there(void **state);

void readers_write_where_it_gains(void **state);
void results_answer_in_place(void **state);

/* Cases of test_shm_slots.c. */
void short_messages_share_slots(void **state);
void a_slot_is_filled_to_its_end(void **state);

#endif
