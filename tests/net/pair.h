/* Two ranks of one process over the tcp wire, without an engine: nobody looks but who is told to. */
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

/* hear: what is logged as an error; NULL: nobody. A test fails where they cannot be connected. */
void pair_open(struct pair *pair, uint32_t window, void (*hear)(void *arg, int level, const char *line));
void pair_close(struct pair *pair);

/* Bytes that say of which operation and edge they are. */
void pair_fill(unsigned char *to, uint32_t seq, uint32_t edge, size_t bytes);
/* 0 .. sides - 1; the same throws after each pair_open. (Marsaglia, "Xorshift RNGs", 2003.) */
uint32_t pair_dice(uint32_t sides);

#endif
