/*
 * The orders that this library puts on streams for device buffers: a sum uses what a stream has written before it, a stream that waits for
 * the sum reads the sum, and no sum is written over one that is still read. Two ranks of this process, on mock devices that are stepped by
 * hand in an order that a seed chooses. Two rounds overlap. An order that is left out shows as wrong data.
 */
#ifndef ORDERS_H
#define ORDERS_H

#include "../conform/rig.h"

/* How the streams and the queue wait for each other. BY_HOST: the program waits for each sum itself, so no stream waits for the host. */
enum orders_way { BY_EVENTS, BY_REQUEST, BY_HOST };
struct orders_config {
    const char *backend; /* NULL: the default */
    size_t words;        /* of a sum of u32 */
    int queues, devices; /* a host backend takes streams of the first device alone */
    bool no_memops, is_staged;
};

void orders_open(const struct orders_config *config);
void orders_close(void);
/* Returns true if every rank kept the right sum of every round. drop: the order that is left out; 0: none. */
bool orders_play(enum orders_way way, uint64_t seed, uint64_t drop);
/* With each seed up to this one all sums are right. */
void orders_hold(enum orders_way way, uint64_t seeds);
/* Each order, left out alone, is found within 1,000 seeds. */
void orders_find_each(enum orders_way way);

#endif
