/*
 * noise: the handshake Noise_NNpsk0_25519_ChaChaPoly_SHA256 to the setup message of the Noise Protocol Framework, revision 34
 * (noiseprotocol.org): two parties that hold the same 32 bytes prove it to each other, and get keys that nobody learns who later steals
 * those bytes. Pure: bytes in, bytes out; the caller has the sockets and the randomness. An error ends a handshake: its state is wiped and
 * every later step fails.
 *
 *   -> psk, e      noise_write by the initiator, noise_read by the responder
 *   <- e, ee       the other way round; then noise_split on both sides
 */
#ifndef NET_AUTH_NOISE_H
#define NET_AUTH_NOISE_H

#include "net/auth/crypto.h"

enum { NOISE_KEY = CRYPTO_KEY, NOISE_OVERHEAD = CRYPTO_KEY + CRYPTO_TAG /* of a message over its payload */ };

struct noise {
    unsigned char chain[CRYPTO_HASH], hash[CRYPTO_HASH], key[CRYPTO_KEY], psk[CRYPTO_KEY];
    unsigned char own[CRYPTO_KEY], other[CRYPTO_KEY];
    uint64_t nonce;
    uint32_t step; /* messages gone either way */
    bool initiator, failed;
};

/* The prologue is what both must agree on without its being sent in secret; ephemeral: 32 random bytes, never used before. */
bool noise_begin(struct noise *n, bool initiator, const unsigned char psk[CRYPTO_KEY], const void *prologue, size_t prologue_bytes,
                 const unsigned char ephemeral[CRYPTO_KEY]);
/* message: bytes + NOISE_OVERHEAD */
bool noise_write(struct noise *n, const void *payload, size_t bytes, unsigned char *message);
/* payload: bytes - NOISE_OVERHEAD. False: whoever sent it does not hold the same, or it was changed. */
bool noise_read(struct noise *n, const unsigned char *message, size_t bytes, void *payload);
/* After both messages; the state is wiped. */
bool noise_split(struct noise *n, unsigned char send[CRYPTO_KEY], unsigned char receive[CRYPTO_KEY], unsigned char hash[CRYPTO_HASH]);

#endif
