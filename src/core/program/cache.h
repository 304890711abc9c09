/*
 * program_cache: the programs that a communicator has built, by a key that says what each was built for. A hash table with linear probing
 * over a bounded distance (Knuth, The Art of Computer Programming, vol. 3, 6.4), at most half full in practice: so calls that take
 * turns each find their program, and none is built a second time.
 */
#ifndef PROGRAM_CACHE_H
#define PROGRAM_CACHE_H

#include "base/hash.h"
#include "program/program.h"

enum { PROGRAM_CACHE_PLACES = 64 /* a power of two */, PROGRAM_CACHE_NEAR = 16 /* places that one key may be at */ };

struct program_cache {
    struct cached_program {
        uint64_t key; /* 0: this place is empty */
        struct comm_program *program;
    } place[PROGRAM_CACHE_PLACES];
    uint32_t displaced; /* how often a program had to make room */
};

/* The place for this key, which is not 0. If the place has another key, what is there (or nothing) makes room: the caller releases it, and
 * writes its own key and program. */
static inline struct cached_program *program_cache_place(struct program_cache *cache, uint64_t key)
{
    uint64_t home = base_hash(0, key);

    for (uint32_t i = 0; i < PROGRAM_CACHE_NEAR; i++) {
        struct cached_program *place = &cache->place[(home + i) % PROGRAM_CACHE_PLACES];
        if (place->key == key || !place->key)
            return place;
    }
    return &cache->place[(home + cache->displaced++ % PROGRAM_CACHE_NEAR) % PROGRAM_CACHE_PLACES];
}

#endif
