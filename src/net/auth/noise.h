/*
 * noise: the handshake Noise_NNpsk0_25519_ChaChaPoly_SHA256 of the Noise Protocol Framework, revision 34 (noiseprotocol.org). Two parties
 * prove to each other that they hold the same 32 bytes, and derive keys. An attacker that steals those bytes later cannot compute the keys
 * (forward secrecy). Pure: bytes in, bytes out. The caller provides sockets and randomness. An error ends the handshake: its state is
 * wiped, and every later step fails.
 *
 *   -> psk, e      noise_write by the initiator, noise_read by the responder
 *   <- e, ee       noise_write by the responder, noise_read by the initiator; then both call noise_split
 */
#ifndef NET_AUTH_NOISE_H
#define NET_AUTH_NOISE_H

#include "net/auth/crypto.h"

enum { NOISE_KEY = CRYPTO_KEY, NOISE_OVERHEAD = CRYPTO_KEY + CRYPTO_TAG /* bytes that a message adds to its payload */ };

struct noise {
    unsigned char chain[CRYPTO_HASH], hash[CRYPTO_HASH], key[CRYPTO_KEY], psk[CRYPTO_KEY];
    unsigned char own[CRYPTO_KEY], other[CRYPTO_KEY];
    uint64_t nonce;
    uint32_t step; /* messages processed so far, in both directions */
    bool initiator, failed;
};

/* prologue: public bytes that must be the same on both sides. ephemeral: 32 random bytes that were never used before. */
bool noise_begin(struct noise *n, bool initiator, const unsigned char psk[CRYPTO_KEY], const void *prologue, size_t prologue_bytes,
                 const unsigned char ephemeral[CRYPTO_KEY]);
/* message has bytes + NOISE_OVERHEAD bytes. */
bool noise_write(struct noise *n, const void *payload, size_t bytes, unsigned char *message);
/* payload has bytes - NOISE_OVERHEAD bytes. False: the sender does not hold the same secret, or the message was changed. */
bool noise_read(struct noise *n, const unsigned char *message, size_t bytes, void *payload);
/* Returns the keys after both messages, and wipes the state. */
bool noise_split(struct noise *n, unsigned char send[CRYPTO_KEY], unsigned char receive[CRYPTO_KEY], unsigned char hash[CRYPTO_HASH]);

#endif
