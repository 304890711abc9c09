/* A world of ranks for tests of the wires: in one process, each rank stepped by hand or by a thread of its own, or in forked processes. A
 * scenario is what one rank does; CHECK ends the process loudly, since cmocka's asserts do not leave threads or children. */
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
    struct wire_boot *boot; /* processes and shm */
    struct wire_channel *ch;
    struct env_bell bell;
    int32_t rank, size;
    int32_t world[RANKS_MAX], host[RANKS_MAX];
    struct wire_limits limits;
    char job[64];
    char text[512];
    struct wire_event event[64]; /* not yet taken ones */
    uint32_t events;
    uint64_t seed;
    struct shared *shared; /* of all ranks, also of forked ones */
    int32_t variant;
    bool by_hand;  /* one thread moves all ranks: there is nobody to leave the CPU to, but whoever else keeps it busy */
    bool attended; /* polled while it waits for the others outside the wire */
};
/* How ranks meet outside the wire under test: a mapping that children inherit. */
struct shared {
    _Atomic uint32_t arrived, generation;
    unsigned char blob[RANKS_MAX][WIRE_OFFER_BYTES];
    _Atomic uint64_t word[64];
};
typedef void scenario_fn(struct rank *rank);

uint64_t rank_random(struct rank *r);
/* How many rounds a scenario takes: the variant or, with 0, `usual`; a quarter of that where COMM_TEST_QUICK is set. */
uint32_t rank_count(const struct rank *r, uint32_t usual);
void rank_meet(struct rank *r); /* a barrier beside the wire */
/* Joins a channel over all ranks; its members are the world's. */
struct wire_channel *rank_join(struct rank *r, uint64_t id, const struct wire_limits *limits);
/* One pass: advance and flush; events pile up in r->event. True: something came. */
bool rank_pass(struct rank *r);
/* Passes until the event with this cookie came; its result. */
int32_t rank_await(struct rank *r, uint64_t cookie);
/* Passes until a message or note came; false after a minute. */
bool rank_announced(struct rank *r, uint32_t kind, struct wire_event *event);
int32_t rank_expose(struct rank *r, const struct wire_expose *e); /* repeats AGAIN, awaits PENDING */
int32_t rank_look(struct rank *r, const struct wire_look *l);     /* repeats AGAIN, awaits PENDING */

void world_threads(const char *backend, int32_t ranks, const struct wire_limits *limits, int32_t variant, scenario_fn *scenario);
/* Returns each child's wait status. */
void world_processes(const char *backend, int32_t ranks, const struct wire_limits *limits, int32_t variant, scenario_fn *scenario,
                     int *status);
/* Opens `ranks` ranks in this process without running them: for stepping by hand. */
void world_open(struct rank *ranks, const char *backend, int32_t count, const struct wire_limits *limits, struct shared *shared);
void world_close(struct rank *ranks, int32_t count);
struct shared *world_shared(void);

#endif
