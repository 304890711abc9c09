/* Runs every order of delivery of a few frames once. */
#ifndef TESTS_SIM_ORDERS_H
#define TESTS_SIM_ORDERS_H

#include "sim/sim.h"

struct orders_tally {
    uint64_t runs, failures, events;
};
struct orders_tally orders_explore(uint64_t most); /* `most` orders of each world */

#endif
