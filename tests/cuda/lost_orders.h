/*
 * Orders that the library puts on streams: with every seed a play ends well, and where one order is left out some seed shows it. A play is
 * a program on mock devices that are stepped by hand (mock.h), in an order that its seed chooses.
 */
#ifndef LOST_ORDERS_H
#define LOST_ORDERS_H

#include "../conform/rig.h"

struct orders_game {
    /* Returns true if all results are right. drop: the order that is left out, for mock_drop_order; 0: none. */
    bool (*play)(const void *arg, uint64_t seed, uint64_t drop);
    const void *arg;
    const char *name;
};

/* A play looks at the library this often: it runs up to `pace` - 1 operations of the devices, and then the engine of `c` once. */
void orders_begin(uint64_t seed, uint64_t drop);
void orders_turn(struct comm_communicator *c);
/* Until no operation is on a stream. */
void orders_finish(struct comm_communicator *c);

/* Every seed up to this one ends well. */
void orders_hold_all(const struct orders_game *game, uint64_t seeds);
/* Each order, left out alone, is found within 1,000 seeds. Returns how many there are. */
uint64_t orders_find_all(const struct orders_game *game);

#endif
