/* The codec of the handshake. The plain words are little-endian on every machine, so that ranks of any byte order can read the version and
 * the reason for a refusal. */
#include "net/auth/handshake.h"

#include "base/bytes.h"

#include <string.h>

static bool wipe(struct handshake *h)
{
    crypto_wipe(h, sizeof *h);
    return false;
}

static bool begin(struct handshake *h, const struct comm_env *env, bool initiator, const unsigned char key[CRYPTO_KEY])
{
    unsigned char ephemeral[CRYPTO_KEY];
    bool done =
        !env->random(env, ephemeral, sizeof ephemeral) && noise_begin(&h->noise, initiator, key, h->names, sizeof h->names, ephemeral);

    crypto_wipe(ephemeral, sizeof ephemeral);
    return done;
}

bool handshake_hello(struct handshake *h, const struct comm_env *env, const unsigned char key[CRYPTO_KEY],
                     const struct handshake_names *names, unsigned char hello[HANDSHAKE_HELLO])
{
    const uint32_t words[] = {HANDSHAKE_MAGIC, HANDSHAKE_VERSION, names->kind, names->from, names->to, names->lane | names->how << 16};

    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        base_put32(h->names + 4 * i, words[i]);
    memcpy(hello, h->names, sizeof h->names);
    return (begin(h, env, true, key) && noise_write(&h->noise, NULL, 0, hello + HANDSHAKE_NAMES)) || wipe(h);
}

bool handshake_read_names(const unsigned char hello[HANDSHAKE_NAMES], struct handshake_names *names)
{
    *names = (struct handshake_names){base_get32(hello + 8), base_get32(hello + 12), base_get32(hello + 16),
                                      base_get32(hello + 20) & 0xffff, base_get32(hello + 20) >> 16};
    return base_get32(hello) == HANDSHAKE_MAGIC;
}

void handshake_refuse(enum handshake_fault fault, unsigned char head[HANDSHAKE_HEAD])
{
    base_put32(head, HANDSHAKE_MAGIC);
    base_put32(head + 4, (uint32_t)fault);
}

static bool split(struct handshake *h)
{
    unsigned char hash[CRYPTO_HASH];

    return noise_split(&h->noise, h->seal.key[0], h->seal.key[1], hash);
}

enum handshake_fault handshake_answer(struct handshake *h, const struct comm_env *env, const unsigned char key[CRYPTO_KEY],
                                      const unsigned char hello[HANDSHAKE_HELLO], unsigned char answer[HANDSHAKE_ANSWER])
{
    enum handshake_fault fault = HANDSHAKE_OK;
    unsigned char nothing[1];

    memset(h, 0, sizeof *h);
    memcpy(h->names, hello, sizeof h->names);
    if (base_get32(hello) != HANDSHAKE_MAGIC)
        fault = HANDSHAKE_BROKEN;
    else if (base_get32(hello + 4) != HANDSHAKE_VERSION)
        fault = HANDSHAKE_ANOTHER_VERSION;
    else if (!begin(h, env, false, key))
        fault = HANDSHAKE_BROKEN;
    else if (!noise_read(&h->noise, hello + HANDSHAKE_NAMES, NOISE_OVERHEAD, nothing))
        fault = HANDSHAKE_ANOTHER_SECRET;
    else if (!noise_write(&h->noise, NULL, 0, answer + HANDSHAKE_HEAD) || !split(h))
        fault = HANDSHAKE_BROKEN;
    handshake_refuse(fault, answer);
    if (fault)
        wipe(h);
    return fault;
}

enum handshake_fault handshake_read_head(const unsigned char head[HANDSHAKE_HEAD])
{
    uint32_t fault = base_get32(head + 4);

    return base_get32(head) == HANDSHAKE_MAGIC && fault < HANDSHAKE_FAULTS ? (enum handshake_fault)fault : HANDSHAKE_BROKEN;
}

enum handshake_fault handshake_finish(struct handshake *h, const unsigned char answer[HANDSHAKE_ANSWER])
{
    enum handshake_fault fault = handshake_read_head(answer);
    unsigned char nothing[1];

    if (!fault && (!noise_read(&h->noise, answer + HANDSHAKE_HEAD, NOISE_OVERHEAD, nothing) || !split(h)))
        fault = HANDSHAKE_ANOTHER_SECRET;
    if (fault)
        wipe(h);
    return fault;
}

const char *handshake_fault_text(enum handshake_fault fault)
{
    static const char *const texts[HANDSHAKE_FAULTS] = {
        [HANDSHAKE_OK] = "",
        [HANDSHAKE_NO_SECRET] =
            "it has no secret, and this rank has one: give every rank of the job the same COMM_SECRET_FILE or COMM_SECRET",
        [HANDSHAKE_ANOTHER_VERSION] = "it speaks another version of the handshake",
        [HANDSHAKE_ANOTHER_SECRET] = "it has another secret: COMM_SECRET_FILE or COMM_SECRET must be the same on every rank of the job",
        [HANDSHAKE_ANOTHER_RANK] = "it is another rank than the one that was dialed, or that rank is connected already",
        [HANDSHAKE_ANOTHER_WAY] = "it is to be sealed by another cipher than both agreed on when they met, or not at all",
        [HANDSHAKE_BROKEN] = "what listens there uses another protocol, or has no memory left",
    };
    return texts[fault];
}

/* ------------------------------------------------------------------------------------------------------------ sealed bytes */
bool seal_write(struct seal *s, const void *in, size_t count, void *sealed)
{
    struct crypto_cipher *cipher = crypto_cipher_make(CRYPTO_CHACHA, s->key[0]);
    const unsigned char *from = in;
    unsigned char *to = sealed;
    bool done = cipher != NULL;

    while (count && done) {
        size_t piece = count < SEAL_PIECE ? count : SEAL_PIECE;
        done = crypto_seal(cipher, s->number[0]++, NULL, 0, from, piece, to, to + piece);
        from += piece;
        to += piece + CRYPTO_TAG;
        count -= piece;
    }
    crypto_cipher_end(cipher);
    return done;
}

bool seal_read(struct seal *s, const void *sealed, void *out, size_t count)
{
    struct crypto_cipher *cipher = crypto_cipher_make(CRYPTO_CHACHA, s->key[1]);
    const unsigned char *from = sealed;
    unsigned char *to = out;
    bool done = cipher != NULL;

    while (count && done) {
        size_t piece = count < SEAL_PIECE ? count : SEAL_PIECE;
        done = crypto_open(cipher, s->number[1]++, NULL, 0, from, piece, to, from + piece);
        from += piece + CRYPTO_TAG;
        to += piece;
        count -= piece;
    }
    crypto_cipher_end(cipher);
    return done;
}
