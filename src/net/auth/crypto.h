/*
 * crypto: the primitives of the handshake and of sealed connections, from whichever library the build found: X25519, SHA-256 and HMAC over
 * it, ChaCha20-Poly1305, AES-256-GCM. Today libcrypto of OpenSSL 3 (crypto_openssl.c), or none (crypto_none.c): everything is then false,
 * and crypto_missing says why. Any thread; nothing is kept between calls but what a cipher holds.
 */
#ifndef NET_AUTH_CRYPTO_H
#define NET_AUTH_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CRYPTO_KEY = 32, CRYPTO_HASH = 32, CRYPTO_TAG = 16 };

/* NULL: it is here. Otherwise a reason, for an error's text. */
const char *crypto_missing(void);

/* The library, or "none" and why, in a few words. */
const char *crypto_name(void);
/* Of a, then b. */
bool crypto_hash(const void *a, size_t a_bytes, const void *b, size_t b_bytes, unsigned char hash[CRYPTO_HASH]);
bool crypto_hmac(const unsigned char *key, size_t key_bytes, const void *text, size_t bytes, unsigned char mac[CRYPTO_HASH]);
bool crypto_public(const unsigned char private_key[CRYPTO_KEY], unsigned char public_key[CRYPTO_KEY]);
/* False also for a public key that would make the outcome known to everybody. */
bool crypto_agree(const unsigned char private_key[CRYPTO_KEY], const unsigned char public_key[CRYPTO_KEY],
                  unsigned char shared[CRYPTO_KEY]);

/* Numbers that ranks tell each other. */
enum crypto_kind { CRYPTO_NONE = 0, CRYPTO_CHACHA = 1, CRYPTO_AES = 2 };
static inline const char *crypto_kind_name(enum crypto_kind kind)
{
    return kind == CRYPTO_AES ? "aes-256-gcm" : kind == CRYPTO_CHACHA ? "chacha20-poly1305" : "none";
}
/* This CPU has instructions for AES and for the multiplication of GCM, and the library has AES-256-GCM: it is then the faster one. */
bool crypto_has_aes(void);

/*
 * One key, for one thread at a time. A nonce is used once, by whoever calls, and is not CRYPTO_LAST_NONCE. in and out may be the same, and
 * not overlap otherwise. How a nonce becomes the cipher's own is the Noise specification's (section 12).
 */
#define CRYPTO_LAST_NONCE UINT64_MAX
struct crypto_cipher;
struct crypto_cipher *crypto_cipher_make(enum crypto_kind kind, const unsigned char key[CRYPTO_KEY]);
void crypto_cipher_end(struct crypto_cipher *cipher);
/* The next key in the old one's place, which cannot be found from it: REKEY of the Noise specification (sections 4.2 and 11.3). False: the
 * cipher is of no use any more. */
bool crypto_cipher_rekey(struct crypto_cipher *cipher);
bool crypto_seal(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, unsigned char tag[CRYPTO_TAG]);
/* False: not what was sealed; out then holds nothing of use. */
bool crypto_open(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, const unsigned char tag[CRYPTO_TAG]);

/* Overwrites what must not be found later; the compiler does not leave it out. */
void crypto_wipe(void *memory, size_t bytes);

#endif
