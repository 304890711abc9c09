/* crypto on libcrypto of OpenSSL 3. A function returns false on any failure: no memory, or a provider (FIPS) that lacks the algorithm. */
#define _GNU_SOURCE
#include "net/auth/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#ifdef __aarch64__
#    include <asm/hwcap.h>
#    include <sys/auxv.h>
#endif

enum { NONCE = 12 };

const char *crypto_missing(void)
{
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "ChaCha20-Poly1305", NULL);
    EVP_KEYEXCH *exchange = EVP_KEYEXCH_fetch(NULL, "X25519", NULL);
    bool here = cipher && exchange;

    EVP_CIPHER_free(cipher);
    EVP_KEYEXCH_free(exchange);
    return here ? NULL : "libcrypto as it is configured here lacks X25519 or ChaCha20-Poly1305";
}

const char *crypto_name(void)
{
    return crypto_missing() ? "none (its X25519 or ChaCha20-Poly1305 is not allowed)" : OpenSSL_version(OPENSSL_VERSION);
}

bool crypto_hash(const void *a, size_t a_bytes, const void *b, size_t b_bytes, unsigned char hash[CRYPTO_HASH])
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool done = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(c, a, a_bytes) == 1 &&
                EVP_DigestUpdate(c, b, b_bytes) == 1 && EVP_DigestFinal_ex(c, hash, NULL) == 1;

    EVP_MD_CTX_free(c);
    return done;
}

bool crypto_hmac(const unsigned char *key, size_t key_bytes, const void *text, size_t bytes, unsigned char mac[CRYPTO_HASH])
{
    return HMAC(EVP_sha256(), key, (int)key_bytes, text, bytes, mac, NULL) != NULL;
}

bool crypto_public(const unsigned char private_key[CRYPTO_KEY], unsigned char public_key[CRYPTO_KEY])
{
    EVP_PKEY *own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, private_key, CRYPTO_KEY);
    size_t bytes = CRYPTO_KEY;
    bool done = own && EVP_PKEY_get_raw_public_key(own, public_key, &bytes) == 1 && bytes == CRYPTO_KEY;

    EVP_PKEY_free(own);
    return done;
}

bool crypto_agree(const unsigned char private_key[CRYPTO_KEY], const unsigned char public_key[CRYPTO_KEY], unsigned char shared[CRYPTO_KEY])
{
    EVP_PKEY *own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, private_key, CRYPTO_KEY);
    EVP_PKEY *other = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, public_key, CRYPTO_KEY);
    EVP_PKEY_CTX *c = own ? EVP_PKEY_CTX_new(own, NULL) : NULL;
    size_t bytes = CRYPTO_KEY;
    bool done = c && other && EVP_PKEY_derive_init(c) == 1 && EVP_PKEY_derive_set_peer(c, other) == 1 &&
                EVP_PKEY_derive(c, shared, &bytes) == 1 && bytes == CRYPTO_KEY;

    EVP_PKEY_CTX_free(c);
    EVP_PKEY_free(own);
    EVP_PKEY_free(other);
    return done;
}

/* ------------------------------------------------------------------------------------------------------------ ciphers */
bool crypto_has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
    bool fast = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
    bool fast = (getauxval(AT_HWCAP) & (HWCAP_AES | HWCAP_PMULL)) == (HWCAP_AES | HWCAP_PMULL);
#else
    bool fast = false;
#endif
    EVP_CIPHER *cipher = fast ? EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL) : NULL;
    bool here = cipher != NULL;

    EVP_CIPHER_free(cipher);
    return here;
}

/* A cipher is an EVP_CIPHER_CTX. Its key stays set; each call sets another nonce. */
static EVP_CIPHER_CTX *context_of(struct crypto_cipher *cipher)
{
    return (EVP_CIPHER_CTX *)(void *)cipher;
}

struct crypto_cipher *crypto_cipher_make(enum crypto_kind kind, const unsigned char key[CRYPTO_KEY])
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    const EVP_CIPHER *cipher = kind == CRYPTO_AES ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();

    if (c && EVP_CipherInit_ex(c, cipher, NULL, key, NULL, 1) == 1)
        return (struct crypto_cipher *)(void *)c;
    EVP_CIPHER_CTX_free(c);
    return NULL;
}

bool crypto_cipher_rekey(struct crypto_cipher *cipher)
{
    unsigned char key[CRYPTO_KEY] = {0}, tag[CRYPTO_TAG];
    bool done = crypto_seal(cipher, CRYPTO_LAST_NONCE, NULL, 0, key, sizeof key, key, tag) &&
                EVP_CipherInit_ex(context_of(cipher), NULL, NULL, key, NULL, -1) == 1;

    crypto_wipe(key, sizeof key);
    crypto_wipe(tag, sizeof tag);
    return done;
}

void crypto_cipher_end(struct crypto_cipher *cipher)
{
    EVP_CIPHER_CTX_free(context_of(cipher)); /* this also wipes the key */
}

/* The nonce as Noise defines it: four zero bytes, then the number, little-endian for ChaCha20 and big-endian for AES-GCM. */
static bool begin(EVP_CIPHER_CTX *c, uint64_t nonce, int seal, const void *about, size_t about_bytes)
{
    bool aes = EVP_CIPHER_CTX_get_mode(c) == EVP_CIPH_GCM_MODE;
    unsigned char iv[NONCE] = {0};
    int done;

    for (int i = 0; i < 8; i++)
        iv[aes ? NONCE - 1 - i : 4 + i] = (unsigned char)(nonce >> 8 * i);
    return EVP_CipherInit_ex(c, NULL, NULL, NULL, iv, seal) == 1 &&
           (!about_bytes || EVP_CipherUpdate(c, NULL, &done, about, (int)about_bytes) == 1);
}

bool crypto_seal(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, unsigned char tag[CRYPTO_TAG])
{
    EVP_CIPHER_CTX *c = context_of(cipher);
    unsigned char rest[CRYPTO_TAG];
    int done = 0, last = 0;

    return begin(c, nonce, 1, about, about_bytes) && (!bytes || EVP_CipherUpdate(c, out, &done, in, (int)bytes) == 1) &&
           EVP_CipherFinal_ex(c, rest, &last) == 1 && EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, CRYPTO_TAG, tag) == 1;
}

bool crypto_open(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                 void *out, const unsigned char tag[CRYPTO_TAG])
{
    EVP_CIPHER_CTX *c = context_of(cipher);
    unsigned char rest[CRYPTO_TAG], wanted[CRYPTO_TAG];
    int done = 0, last = 0;

    memcpy(wanted, tag, sizeof wanted);
    return begin(c, nonce, 0, about, about_bytes) && (!bytes || EVP_CipherUpdate(c, out, &done, in, (int)bytes) == 1) &&
           EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, CRYPTO_TAG, wanted) == 1 && EVP_CipherFinal_ex(c, rest, &last) == 1;
}

void crypto_wipe(void *memory, size_t bytes)
{
    OPENSSL_cleanse(memory, bytes);
}
