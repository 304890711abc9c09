/* Scenarios: what one rank does, on any wire. */
#ifndef TESTS_WIRE_SCENARIOS_H
#define TESTS_WIRE_SCENARIOS_H

#include "wire/world.h"

scenario_fn scenario_once;     /* thousands of operations over lines and once places, with some ranks ahead of others */
scenario_fn scenario_ahead;    /* the same from one root, which is ahead of all others */
scenario_fn scenario_each;     /* the same for edges with a line for each reader */
scenario_fn scenario_streams;  /* private and to-all streams, many rounds, landed and not landed */
scenario_fn scenario_messages; /* of all sizes, from all to all, taken out of order, some discarded */
scenario_fn scenario_notes;
scenario_fn scenario_board;
scenario_fn scenario_mismatch;
scenario_fn scenario_reuse; /* joins and leaves again and again */

/* The same as scenario_streams, one step at a time, for ranks that one thread moves in an order of its own. */
struct stream_run;
struct stream_run *stream_start(struct rank *r, uint32_t operations);
bool stream_run_step(struct stream_run *run); /* true: all operations are done */
void stream_end(struct stream_run *run);

#endif
