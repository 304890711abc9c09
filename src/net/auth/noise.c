/* The names follow the specification: MixHash is mix_hash, and so on. */
#include "net/auth/noise.h"

#include <string.h>

static const char protocol[] = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

/* Wipes the state, so that nothing can be done with it any more. */
static bool give_up(struct noise *n)
{
    crypto_wipe(n, sizeof *n);
    n->failed = true;
    return false;
}

static bool mix_hash(struct noise *n, const void *bytes, size_t count)
{
    return crypto_hash(n->hash, sizeof n->hash, bytes, count, n->hash);
}

/* HKDF as in section 4.3 of the specification, with up to three outputs. */
static bool stretch(const unsigned char chain[CRYPTO_HASH], const void *input, size_t bytes, unsigned char out[][CRYPTO_HASH], int outputs)
{
    unsigned char secret[CRYPTO_HASH], text[CRYPTO_HASH + 1];
    bool done = crypto_hmac(chain, CRYPTO_HASH, input, bytes, secret);

    for (int i = 0; i < outputs && done; i++) {
        size_t before = i ? CRYPTO_HASH : 0;
        if (i)
            memcpy(text, out[i - 1], CRYPTO_HASH);
        text[before] = (unsigned char)(i + 1);
        done = crypto_hmac(secret, sizeof secret, text, before + 1, out[i]);
    }
    crypto_wipe(secret, sizeof secret);
    crypto_wipe(text, sizeof text);
    return done;
}

static bool mix_key(struct noise *n, const void *input, size_t bytes)
{
    unsigned char out[2][CRYPTO_HASH] = {{0}};
    bool done = stretch(n->chain, input, bytes, out, 2);

    memcpy(n->chain, out[0], sizeof n->chain);
    memcpy(n->key, out[1], sizeof n->key);
    n->nonce = 0;
    crypto_wipe(out, sizeof out);
    return done;
}

static bool mix_key_and_hash(struct noise *n, const void *input, size_t bytes)
{
    unsigned char out[3][CRYPTO_HASH] = {{0}};
    bool done = stretch(n->chain, input, bytes, out, 3) && mix_hash(n, out[1], CRYPTO_HASH);

    memcpy(n->chain, out[0], sizeof n->chain);
    memcpy(n->key, out[2], sizeof n->key);
    n->nonce = 0;
    crypto_wipe(out, sizeof out);
    return done;
}

static bool encrypt_and_hash(struct noise *n, const void *plain, size_t bytes, unsigned char *out)
{
    struct crypto_cipher *cipher = crypto_cipher_make(CRYPTO_CHACHA, n->key);
    bool done = cipher && crypto_seal(cipher, n->nonce++, n->hash, sizeof n->hash, plain, bytes, out, out + bytes);

    crypto_cipher_end(cipher);
    return done && mix_hash(n, out, bytes + CRYPTO_TAG);
}

static bool decrypt_and_hash(struct noise *n, const unsigned char *in, size_t bytes, void *plain)
{
    struct crypto_cipher *cipher = crypto_cipher_make(CRYPTO_CHACHA, n->key);
    unsigned char hash[CRYPTO_HASH] = {0};
    bool done = cipher &&
                crypto_hash(n->hash, sizeof n->hash, in, bytes, hash) /* before decryption, since plain may be the same buffer as in */
                && crypto_open(cipher, n->nonce++, n->hash, sizeof n->hash, in, bytes - CRYPTO_TAG, plain, in + bytes - CRYPTO_TAG);

    crypto_cipher_end(cipher);
    memcpy(n->hash, hash, sizeof hash);
    return done;
}

bool noise_begin(struct noise *n, bool initiator, const unsigned char psk[CRYPTO_KEY], const void *prologue, size_t prologue_bytes,
                 const unsigned char ephemeral[CRYPTO_KEY])
{
    memset(n, 0, sizeof *n);
    n->initiator = initiator;
    memcpy(n->psk, psk, sizeof n->psk);
    memcpy(n->own, ephemeral, sizeof n->own);
    bool done = crypto_hash(protocol, strlen(protocol), NULL, 0, n->hash); /* the name is longer than a hash, so it is hashed */
    memcpy(n->chain, n->hash, sizeof n->chain);
    return (done && mix_hash(n, prologue, prologue_bytes)) || give_up(n);
}

/* The token "e". With a pre-shared key it also includes MixKey (specification, section 9.2). */
static bool mix_ephemeral(struct noise *n, const unsigned char key[CRYPTO_KEY])
{
    return mix_hash(n, key, CRYPTO_KEY) && mix_key(n, key, CRYPTO_KEY);
}

static bool mix_agreed(struct noise *n)
{
    unsigned char shared[CRYPTO_KEY];
    bool done = crypto_agree(n->own, n->other, shared) && mix_key(n, shared, sizeof shared);

    crypto_wipe(shared, sizeof shared);
    return done;
}

/* Mixes the tokens of the next message, which has this ephemeral key. */
static bool mix_tokens(struct noise *n, const unsigned char ephemeral[CRYPTO_KEY])
{
    if (n->step == 0)
        return mix_key_and_hash(n, n->psk, sizeof n->psk) && mix_ephemeral(n, ephemeral);
    return mix_ephemeral(n, ephemeral) && mix_agreed(n);
}

bool noise_write(struct noise *n, const void *payload, size_t bytes, unsigned char *message)
{
    if (n->failed || n->step != (n->initiator ? 0 : 1))
        return give_up(n);
    /* The expensive operations come last: a pending peer's invalid first message fails in noise_read before any of them. */
    bool done = crypto_public(n->own, message) && mix_tokens(n, message) && encrypt_and_hash(n, payload, bytes, message + CRYPTO_KEY);
    n->step++;
    return done || give_up(n);
}

bool noise_read(struct noise *n, const unsigned char *message, size_t bytes, void *payload)
{
    if (n->failed || n->step != (n->initiator ? 1 : 0) || bytes < NOISE_OVERHEAD)
        return give_up(n);
    memcpy(n->other, message, CRYPTO_KEY);
    bool done = mix_tokens(n, n->other) && decrypt_and_hash(n, message + CRYPTO_KEY, bytes - CRYPTO_KEY, payload);
    n->step++;
    return done || give_up(n);
}

bool noise_split(struct noise *n, unsigned char send[CRYPTO_KEY], unsigned char receive[CRYPTO_KEY], unsigned char hash[CRYPTO_HASH])
{
    unsigned char out[2][CRYPTO_HASH] = {{0}};

    if (n->failed || n->step != 2 || !stretch(n->chain, NULL, 0, out, 2))
        return give_up(n);
    memcpy(send, out[n->initiator ? 0 : 1], CRYPTO_KEY);
    memcpy(receive, out[n->initiator ? 1 : 0], CRYPTO_KEY);
    memcpy(hash, n->hash, CRYPTO_HASH);
    crypto_wipe(out, sizeof out);
    crypto_wipe(n, sizeof *n);
    n->failed = true; /* the handshake is over */
    return true;
}
