/* A wire for tests: all ranks in one process and one thread. It does at random everything that a wire may do: no room,
 * late events, bytes copied at once or read in place, pads to build in, events in any order. */
#ifndef TESTS_PROGRAM_WIRE_H
#define TESTS_PROGRAM_WIRE_H

#include "program/program.h"

enum { TEST_RANKS_MAX = 32, TEST_CREDITS = 2 };

struct test_exposure {
    struct test_exposure *next;
    wire_key key;
    uint32_t fingerprint, left;
    uint16_t edge;
    const void *kept; /* NULL: the bytes were copied */
    char *bytes;
    size_t count;
    uint64_t cookie;
    bool pending;
    uint8_t reader[TEST_RANKS_MAX]; /* 1 waits, 2 views, 3 released */
};
struct test_look {
    struct test_look *next;
    struct wire_look look;
};
struct test_channel {
    struct wire_channel channel;
    struct test_wire *wire;
    int32_t rank;
    struct test_exposure *exposed;
    struct test_look *looks;
    char *pad; /* returned by reserve, not exposed yet */
};
struct test_wire {
    uint32_t size;
    uint64_t random;
    bool calm; /* nothing at random: everything that can succeed does so at once */
    uint64_t pads, agains, pendings;
    struct test_channel channel[TEST_RANKS_MAX];
};

void test_wire_open(struct test_wire *wire, uint32_t size, uint64_t seed, size_t chunk);
void test_wire_close(struct test_wire *wire); /* fails the test if an exposure of a stream was not released */
uint64_t test_random(struct test_wire *wire);
/* Returns one event of this rank, or false. */
bool test_wire_event(struct test_channel *channel, struct wire_event *event);

#endif
