/*
 * crypto: the primitives of the handshake and of sealed connections: X25519, SHA-256 and HMAC over it, ChaCha20-Poly1305, AES-256-GCM. The
 * build chooses the implementation: libcrypto of OpenSSL 3 (crypto_openssl.c), or none (crypto_none.c). With none, every function returns
 * false and crypto_missing returns the reason. Any thread may call. Only a cipher keeps state between calls.
 */
#ifndef NET_AUTH_CRYPTO_H
#define NET_AUTH_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CRYPTO_KEY = 32, CRYPTO_HASH = 32, CRYPTO_TAG = 16 };

/* NULL: crypto is available. Otherwise the reason, for an error text. */
const char *crypto_missing(void);

/* The name of the library, or "none" and the reason, in a few words. */
const char *crypto_name(void);
/* The hash of a followed by b. */
bool crypto_hash(const void *a, size_t a_bytes, const void *b, size_t b_bytes, unsigned char hash[CRYPTO_HASH]);
bool crypto_hmac(const unsigned char *key, size_t key_bytes, const void *text, size_t bytes, unsigned char mac[CRYPTO_HASH]);
bool crypto_public(const unsigned char private_key[CRYPTO_KEY], unsigned char public_key[CRYPTO_KEY]);
/* Returns false also for a public key that would make the shared secret predictable (all zeros). */
bool crypto_agree(const unsigned char private_key[CRYPTO_KEY], const unsigned char public_key[CRYPTO_KEY],
                  unsigned char shared[CRYPTO_KEY]);

/* The numbers are sent between ranks. */
enum crypto_kind { CRYPTO_NONE = 0, CRYPTO_CHACHA = 1, CRYPTO_AES = 2 };
static inline const char *crypto_kind_name(enum crypto_kind kind)
{
    return kind == CRYPTO_AES ? "aes-256-gcm" : kind == CRYPTO_CHACHA ? "chacha20-poly1305" : "none";
}
/* Whether this CPU has instructions for AES and for the multiplication of GCM, and the library has AES-256-GCM. AES is then the faster
 * cipher. */
bool crypto_has_aes(void);

/* A cipher has one key and serves one thread at a time. The caller uses each nonce once and never CRYPTO_LAST_NONCE. in and out may be the
 * same buffer, but must not overlap otherwise. Section 12 of the Noise specification says how a cipher encodes the nonce. */
#define CRYPTO_LAST_NONCE UINT64_MAX
struct crypto_cipher;
struct crypto_cipher *crypto_cipher_make(enum crypto_kind kind, const unsigned char key[CRYPTO_KEY]);
void crypto_cipher_end(struct crypto_cipher *cipher);
/* Replaces the key by the next one, from which the old key cannot be computed: REKEY of the Noise specification (sections 4.2 and 11.3).
 * After false, the cipher must not be used any more. */
bool crypto_cipher_rekey(struct crypto_cipher *cipher);
bool crypto_seal(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, unsigned char tag[CRYPTO_TAG]);
/* False: the input is not what was sealed, and the contents of out are undefined. */
bool crypto_open(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, const unsigned char tag[CRYPTO_TAG]);

/* Overwrites secrets. The compiler cannot optimize this away. */
void crypto_wipe(void *memory, size_t bytes);

#endif
