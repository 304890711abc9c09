/* Two ranks of one process over the tcp wire, without an engine: they make progress only when the test calls them. */
#ifndef TESTS_NET_PAIR_H
#define TESTS_NET_PAIR_H

#include "net/lane/lane.h"

enum { PAIR_RANKS = 2 };

struct pair {
    struct env_bell bell;
    struct base_log log;
    const struct wire_class *class;
    struct tcp_wire *wire;
    struct wire_channel *channel[PAIR_RANKS];
    struct wire_team team[PAIR_RANKS];
};

/* hear: gets the logged errors; may be NULL. The test fails if the ranks cannot be connected. */
void pair_open(struct pair *pair, uint32_t window, void (*hear)(void *arg, int level, const char *line));
void pair_close(struct pair *pair);

/* Fills bytes with a pattern of the operation and edge. */
void pair_fill(unsigned char *to, uint32_t seq, uint32_t edge, size_t bytes);
/* A random number 0 .. sides - 1; the sequence restarts at each pair_open. (Marsaglia, "Xorshift RNGs", 2003.) */
uint32_t pair_dice(uint32_t sides);

#endif
