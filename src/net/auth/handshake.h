/*
 * handshake: how two ranks that a stream socket joins prove to each other that they hold the job's secret, before a byte of either is
 * believed. Three fixed messages: HELLO says in plain who comes and to whom, with the first message of Noise, whose prologue these words
 * are; ANSWER is the second message, or a refusal; then the one who came says, sealed, what it wants (the first `seal_write`), and that is
 * what proves it: a recorded HELLO alone gets an ANSWER of no use to anybody. Pure but for the randomness of `env`: the sockets are
 * boot_star's and tcp_mesh's.
 */
#ifndef NET_AUTH_HANDSHAKE_H
#define NET_AUTH_HANDSHAKE_H

#include "base/env.h"
#include "net/auth/noise.h"

enum {
    HANDSHAKE_MAGIC = 0x70737663, /* unlike the plain greetings' */
    HANDSHAKE_VERSION = 2,
    HANDSHAKE_NAMES = 24, /* bytes in plain */
    HANDSHAKE_HELLO = HANDSHAKE_NAMES + NOISE_OVERHEAD,
    HANDSHAKE_HEAD = 8, /* of an answer: all of a refusal */
    HANDSHAKE_ANSWER = HANDSHAKE_HEAD + NOISE_OVERHEAD,
    SEAL_PIECE = 16384, /* what is sealed at once */
};
enum handshake_kind { HANDSHAKE_MEETING = 1, HANDSHAKE_CONNECTION = 2 };

/* What is told to a refused peer, as a number: it shows a text of its own. */
enum handshake_fault {
    HANDSHAKE_OK = 0,
    HANDSHAKE_NO_SECRET, /* who listens has none */
    HANDSHAKE_ANOTHER_VERSION,
    HANDSHAKE_ANOTHER_SECRET,
    HANDSHAKE_ANOTHER_RANK, /* dialed for another rank, or by one that this rank is not dialed by */
    HANDSHAKE_ANOTHER_WAY,  /* what is to follow is sealed otherwise than this rank agreed to */
    HANDSHAKE_BROKEN,       /* not of this protocol; or no memory, no randomness */
    HANDSHAKE_FAULTS
};

struct handshake_names {
    uint32_t kind, from, to, lane;
    uint32_t how; /* enum crypto_kind: by what all that follows on the connection is sealed; nothing: in plain. Of a meeting it is nothing,
                     and it is sealed by the handshake's own cipher all the same */
};

/* Keys of one connection: what leaves and what comes, each with its own count. */
struct seal {
    unsigned char key[2][CRYPTO_KEY]; /* 0 leaves, 1 comes */
    uint64_t number[2];
};

struct handshake {
    struct noise noise;
    unsigned char names[HANDSHAKE_NAMES];
    struct seal seal; /* when it is done */
};

bool handshake_hello(struct handshake *h, const struct comm_env *env, const unsigned char key[CRYPTO_KEY],
                     const struct handshake_names *names, unsigned char hello[HANDSHAKE_HELLO]);
/* Who the peer says it is, before anything is proved. */
bool handshake_read_names(const unsigned char hello[HANDSHAKE_NAMES], struct handshake_names *names);
/* Any bytes may come in. answer: all of it if OK, else its head. The caller has looked at the names, which are proved if it is OK. */
enum handshake_fault handshake_answer(struct handshake *h, const struct comm_env *env, const unsigned char key[CRYPTO_KEY],
                                      const unsigned char hello[HANDSHAKE_HELLO], unsigned char answer[HANDSHAKE_ANSWER]);
void handshake_refuse(enum handshake_fault fault, unsigned char head[HANDSHAKE_HEAD]);
/* Of an answer's head: OK when the rest follows. */
enum handshake_fault handshake_read_head(const unsigned char head[HANDSHAKE_HEAD]);
enum handshake_fault handshake_finish(struct handshake *h, const unsigned char answer[HANDSHAKE_ANSWER]);
const char *handshake_fault_text(enum handshake_fault fault);

/* Bytes that `count` take when they are sealed: each piece of SEAL_PIECE with its tag. */
static inline size_t seal_bytes(size_t count)
{
    return count + (count + SEAL_PIECE - 1) / SEAL_PIECE * CRYPTO_TAG;
}
/* sealed: seal_bytes(count), and not in. False: libcrypto has no memory. */
bool seal_write(struct seal *s, const void *in, size_t count, void *sealed);
/* out: count, whose sealed form is seal_bytes(count). False: it is not what the other end sealed next. */
bool seal_read(struct seal *s, const void *sealed, void *out, size_t count);

#endif
