/*
 * The orders that this library puts on streams for device buffers: a sum uses what a stream has written before it, a stream that waits for
 * the sum reads the sum, and no sum is written over one that is still read. Two ranks, of this process or each with one of its own, on mock
 * devices that are stepped by hand in an order that a seed chooses. Two rounds overlap. An order that is left out shows as wrong data.
 */
#ifndef ORDERS_H
#define ORDERS_H

#include "../conform/rig.h"

/* How the streams and the queue wait for each other. BY_HOST: the program waits for each sum itself, so no stream waits for the host.
 * BY_HOST_ALONE: it waits for its streams too, so the queue waits for none. */
enum orders_way { BY_EVENTS, BY_REQUEST, BY_HOST, BY_HOST_ALONE };
struct orders_config {
    const char *backend; /* NULL: the default */
    size_t words;        /* of a sum of u32 */
    int queues, devices; /* a host backend takes streams of the first device alone */
    bool no_memops, is_staged, no_kernels;
    bool by_xor;                          /* the elements are combined by xor, not summed */
    const char *algorithm;                /* what a request says that is not staged; NULL: cuda */
    const struct orders_process *process; /* NULL: both ranks are of this process */
};
/* A rank that has a process of its own, which reset the mock and opened the world. */
struct orders_process {
    struct comm_communicator *world;
    int rank;
    void (*start)(enum orders_way way, uint64_t seed); /* makes the other process call orders_play; NULL: it is the other one's turn to */
    bool (*was_right)(void);                           /* waits for the end of that play */
};

void orders_open(const struct orders_config *config);
void orders_close(void);
/* One play; whether this process's sums are right. */
bool orders_play(enum orders_way way, uint64_t seed);
/* With each seed up to this one all sums are right. */
void orders_hold(enum orders_way way, uint64_t seeds);
/* Each order, left out alone, is found within 1,000 seeds. */
void orders_find_each(enum orders_way way);

#endif
