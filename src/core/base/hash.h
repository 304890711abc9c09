/* Hashing of 64-bit words, for fingerprints of calls and identities of communicators. base_mix is the finalizer of
 * MurmurHash3 (Appleby, public domain). */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdint.h>

static inline uint64_t base_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

/* The order of the words matters: hash(hash(0, a), b) differs from hash(hash(0, b), a). */
static inline uint64_t base_hash(uint64_t so_far, uint64_t word)
{
    return base_mix(so_far * UINT64_C(0x9e3779b97f4a7c15) + word + 1);
}

#endif
