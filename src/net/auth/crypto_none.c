/* crypto for builds without a library: every operation fails, and crypto_missing returns the reason. */
#define _GNU_SOURCE
#include "net/auth/crypto.h"

#include <string.h>

const char *crypto_missing(void)
{
    return "this library was built without OpenSSL 3 (libcrypto): ranks cannot prove a secret to each other";
}

const char *crypto_name(void)
{
    return "none (built without OpenSSL 3)";
}

bool crypto_hash(const void *a, size_t a_bytes, const void *b, size_t b_bytes, unsigned char hash[CRYPTO_HASH])
{
    (void)a, (void)a_bytes, (void)b, (void)b_bytes, (void)hash;
    return false;
}

bool crypto_hmac(const unsigned char *key, size_t key_bytes, const void *text, size_t bytes, unsigned char mac[CRYPTO_HASH])
{
    (void)key, (void)key_bytes, (void)text, (void)bytes, (void)mac;
    return false;
}

bool crypto_public(const unsigned char private_key[CRYPTO_KEY], unsigned char public_key[CRYPTO_KEY])
{
    (void)private_key, (void)public_key;
    return false;
}

bool crypto_agree(const unsigned char private_key[CRYPTO_KEY], const unsigned char public_key[CRYPTO_KEY], unsigned char shared[CRYPTO_KEY])
{
    (void)private_key, (void)public_key, (void)shared;
    return false;
}

bool crypto_has_aes(void)
{
    return false;
}

struct crypto_cipher *crypto_cipher_make(enum crypto_kind kind, const unsigned char key[CRYPTO_KEY])
{
    (void)kind, (void)key;
    return NULL;
}

bool crypto_cipher_rekey(struct crypto_cipher *cipher)
{
    (void)cipher;
    return false;
}

void crypto_cipher_end(struct crypto_cipher *cipher)
{
    (void)cipher;
}

bool crypto_seal(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, unsigned char tag[CRYPTO_TAG])
{
    (void)cipher, (void)nonce, (void)about, (void)about_bytes, (void)in, (void)bytes, (void)out, (void)tag;
    return false;
}

bool crypto_open(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, const unsigned char tag[CRYPTO_TAG])
{
    (void)cipher, (void)nonce, (void)about, (void)about_bytes, (void)in, (void)bytes, (void)out, (void)tag;
    return false;
}

void crypto_wipe(void *memory, size_t bytes)
{
    explicit_bzero(memory, bytes);
}
