/* A world of ranks for tests of the wires: in one process, with each rank stepped by hand or by a thread of its own, or
 * in forked processes. A scenario is what one rank does. CHECK ends the process with a message, because cmocka's
 * asserts cannot leave threads or children. */
#ifndef TESTS_WIRE_WORLD_H
#define TESTS_WIRE_WORLD_H

#include "base/log.h"
#include "wire/table.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                                \
            abort();                                                                                                                       \
        }                                                                                                                                  \
    } while (0)

enum { RANKS_MAX = 8 };

struct rank {
    const struct wire_class *wire_class;
    const struct wire_backend *backend;
    struct wire *wire;
    struct wire_boot *boot; /* for processes and shm */
    struct wire_channel *ch;
    struct env_bell bell;
    int32_t rank, size;
    int32_t world[RANKS_MAX], host[RANKS_MAX];
    struct wire_limits limits;
    char job[64];
    char text[512];
    struct wire_event event[64]; /* events that no test has taken yet */
    uint32_t events;
    uint64_t seed;
    struct shared *shared; /* shared by all ranks, also forked ones */
    int32_t variant;
    bool by_hand;  /* one thread moves all ranks: yielding helps no other rank */
    bool attended; /* the wire is polled while this rank waits for others outside the wire */
};
/* How ranks meet outside the wire under test: a mapping that children inherit. */
struct shared {
    _Atomic uint32_t arrived, generation;
    unsigned char blob[RANKS_MAX][WIRE_OFFER_BYTES];
    _Atomic uint64_t word[64];
};
typedef void scenario_fn(struct rank *rank);

uint64_t rank_random(struct rank *r);
/* The number of rounds of a scenario: the variant or, if that is 0, `usual`; half of it, a quarter or all of it, as is selected
 * (selection.h). */
uint32_t rank_count(const struct rank *r, uint32_t usual);
void rank_meet(struct rank *r); /* a barrier outside the wire */
/* Joins a channel over all ranks of the world. */
struct wire_channel *rank_join(struct rank *r, uint64_t id, const struct wire_limits *limits);
/* One pass: advance and flush; adds events to r->event. True: there were some. */
bool rank_pass(struct rank *r);
/* Passes until the event with this cookie has come; returns its result. */
int32_t rank_await(struct rank *r, uint64_t cookie);
/* Passes until a message or note has come; false after a minute. */
bool rank_announced(struct rank *r, uint32_t kind, struct wire_event *event);
int32_t rank_expose(struct rank *r, const struct wire_expose *e); /* repeats on AGAIN, waits on PENDING */
int32_t rank_look(struct rank *r, const struct wire_look *l);     /* repeats on AGAIN, waits on PENDING */

void world_threads(const char *backend, int32_t ranks, const struct wire_limits *limits, int32_t variant, scenario_fn *scenario);
/* Returns each child's wait status. */
void world_processes(const char *backend, int32_t ranks, const struct wire_limits *limits, int32_t variant, scenario_fn *scenario,
                     int *status);
/* Opens `ranks` ranks in this process without running them, for stepping by hand. */
void world_open(struct rank *ranks, const char *backend, int32_t count, const struct wire_limits *limits, struct shared *shared);
void world_close(struct rank *ranks, int32_t count);
struct shared *world_shared(void);

#endif
