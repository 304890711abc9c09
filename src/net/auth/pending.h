/*
 * pending peer: a peer that has connected to the acceptor of a meeting (boot/acceptor.c) or of a rank (mesh/admit.c) and is not
 * authenticated yet. It costs the listener a table entry, two seconds, and one symmetric operation. Nothing is allocated for it, and no
 * length that it sends is trusted. No function here blocks.
 */
#ifndef NET_AUTH_PENDING_H
#define NET_AUTH_PENDING_H

#include "net/auth/handshake.h"

enum { UNAUTHENTICATED_MAX = 64, PENDING_WHY = 240, HELLOS_KEPT = 1024 };
#define PENDING_NS INT64_C(2000000000)

struct pending_peer {
    int fd;
    bool answered; /* it holds the secret, or replays a hello of a rank that does; it has no deadline any more */
    int64_t until;
    struct handshake_names names;
    struct handshake shake;
};
/* In order of arrival. If the table is full, a new peer replaces the oldest. */
struct pending_peers {
    struct pending_peer one[UNAUTHENTICATED_MAX];
    uint32_t count;
};

/* Marks of the last hellos that were answered. Honest hellos are all different, so a repeated one is a replay and is not answered again. */
struct hellos {
    uint64_t one[HELLOS_KEPT];
    uint32_t count; /* total number; wraps from 2 * HELLOS_KEPT to HELLOS_KEPT */
};

/* The listener's side: what it accepts. */
struct pending_acceptor {
    const struct comm_env *env;
    const unsigned char *key; /* 32 bytes */
    uint32_t kind, rank;      /* only handshakes for this kind and this rank are accepted */
    uint32_t plain;           /* first word of the greeting of a peer without a secret */
    struct hellos *answered;  /* NULL: replays are answered too */
    const unsigned char *how; /* by rank: the cipher agreed on with it (handshake_names.how); NULL: no cipher, for any rank */
    uint32_t ranks;
};
enum pending_heard { PENDING_LATER, PENDING_DONE, PENDING_PLAIN, PENDING_OUT };

/* From here on a forked child closes its copy of the descriptor: the connection may be admitted, and must then end with this process. */
void pending_add(struct pending_peers *s, const struct comm_env *env, int fd, int64_t now);
void pending_drop_eldest(struct pending_peers *s, const struct comm_env *env); /* for lack of space */
/* Removes the entry. The caller has taken or closed (pending_close) the descriptor. */
void pending_forget(struct pending_peers *s, uint32_t at);
void pending_close(const struct comm_env *env, int fd);
void pending_close_all(struct pending_peers *s, const struct comm_env *env);

/* Reads the peer's first message. DONE: it was answered. PLAIN: the peer has no secret. OUT: refused; why has the reason. last: the peer's
 * time is over. */
enum pending_heard pending_hello(const struct pending_acceptor *acceptor, struct pending_peer *s, bool last, char why[PENDING_WHY]);
/* Reads the peer's first sealed message of exactly `bytes` bytes. DONE, or OUT: the peer did not prove that it has the secret. */
enum pending_heard pending_greeting(struct pending_peer *s, void *greeting, size_t bytes, bool last);
/* Reads and discards input. Otherwise close() would send a reset, and the peer would not see the reason for its refusal. */
void pending_drain(int fd);
/* The peer's address without the port. */
void pending_name(int fd, char *text, size_t bytes);
void pending_wait_for(int fd, int bytes);
void pending_refuse(int fd, enum handshake_fault fault);

#endif
