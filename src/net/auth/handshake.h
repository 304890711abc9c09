/*
 * handshake: two ranks that are connected by a stream socket prove to each other that they hold the job's secret, before either believes a
 * byte of the other. There are three fixed messages:
 *
 * HELLO names the sender and the receiver in plain, followed by the first Noise message, which has these names as its prologue. ANSWER is
 * the second Noise message, or a refusal. Then the initiator sends its first sealed message (seal_write). Only that message proves the
 * initiator's secret: an attacker that replays a recorded HELLO gets an ANSWER that it cannot use.
 *
 * Pure except for the randomness of `env`. The sockets belong to boot/star.c and mesh/.
 */
#ifndef NET_AUTH_HANDSHAKE_H
#define NET_AUTH_HANDSHAKE_H

#include "base/env.h"
#include "net/auth/noise.h"

enum {
    HANDSHAKE_MAGIC = 0x70737663, /* differs from the plain greetings */
    HANDSHAKE_VERSION = 2,
    HANDSHAKE_NAMES = 24, /* bytes in plain */
    HANDSHAKE_HELLO = HANDSHAKE_NAMES + NOISE_OVERHEAD,
    HANDSHAKE_HEAD = 8, /* of an answer; a refusal consists of it alone */
    HANDSHAKE_ANSWER = HANDSHAKE_HEAD + NOISE_OVERHEAD,
    SEAL_PIECE = 16384, /* bytes sealed at once */
};
enum handshake_kind { HANDSHAKE_MEETING = 1, HANDSHAKE_CONNECTION = 2 };

/* The reason for a refusal. It is sent as a number; the refused peer makes its own text from it. */
enum handshake_fault {
    HANDSHAKE_OK = 0,
    HANDSHAKE_NO_SECRET, /* the listener has no secret */
    HANDSHAKE_ANOTHER_VERSION,
    HANDSHAKE_ANOTHER_SECRET,
    HANDSHAKE_ANOTHER_RANK, /* the connection is for another rank, or from a rank that does not connect to this one */
    HANDSHAKE_ANOTHER_WAY,  /* the cipher differs from the one that both ranks agreed on */
    HANDSHAKE_BROKEN,       /* another protocol, or no memory, or no randomness */
    HANDSHAKE_FAULTS
};

struct handshake_names {
    uint32_t kind, from, to, lane;
    uint32_t how; /* enum crypto_kind: the cipher that seals the rest of the connection; 0: it stays in plain. 0 for a meeting, which the
                     handshake's own cipher seals */
};

/* The keys of one connection. Each direction has its own key and its own counter. */
struct seal {
    unsigned char key[2][CRYPTO_KEY]; /* 0: sending, 1: receiving */
    uint64_t number[2];
};

struct handshake {
    struct noise noise;
    unsigned char names[HANDSHAKE_NAMES];
    struct seal seal; /* valid when the handshake is done */
};

bool handshake_hello(struct handshake *h, const struct comm_env *env, const unsigned char key[CRYPTO_KEY],
                     const struct handshake_names *names, unsigned char hello[HANDSHAKE_HELLO]);
/* The names that the peer claims. They are not proved yet. */
bool handshake_read_names(const unsigned char hello[HANDSHAKE_NAMES], struct handshake_names *names);
/* hello may contain any bytes. If OK, the whole answer is set, else only its head. The caller checks the names; the initiator's first
 * sealed message proves them. */
enum handshake_fault handshake_answer(struct handshake *h, const struct comm_env *env, const unsigned char key[CRYPTO_KEY],
                                      const unsigned char hello[HANDSHAKE_HELLO], unsigned char answer[HANDSHAKE_ANSWER]);
void handshake_refuse(enum handshake_fault fault, unsigned char head[HANDSHAKE_HEAD]);
/* Reads the head of an answer; OK if the rest follows. */
enum handshake_fault handshake_read_head(const unsigned char head[HANDSHAKE_HEAD]);
enum handshake_fault handshake_finish(struct handshake *h, const unsigned char answer[HANDSHAKE_ANSWER]);
const char *handshake_fault_text(enum handshake_fault fault);

/* The size of `count` bytes after sealing: each piece of SEAL_PIECE has a tag. */
static inline size_t seal_bytes(size_t count)
{
    return count + (count + SEAL_PIECE - 1) / SEAL_PIECE * CRYPTO_TAG;
}
/* sealed has seal_bytes(count) bytes and is not `in`. False: libcrypto has no memory. */
bool seal_write(struct seal *s, const void *in, size_t count, void *sealed);
/* out has `count` bytes; their sealed form has seal_bytes(count). False: this is not what the peer sealed next. */
bool seal_read(struct seal *s, const void *sealed, void *out, size_t count);

#endif
