/*
 * pending peer: one who has connected and is not known yet, at the acceptor of a meeting (acceptor.c) or of a rank (admit.c). Costs whoever
 * listens a place, two seconds, and one symmetric operation; nothing is allocated for it and no length that it sends is believed.
 * Nothing here waits.
 */
#ifndef NET_AUTH_PENDING_H
#define NET_AUTH_PENDING_H

#include "net/auth/handshake.h"

enum { STRANGERS_MAX = 64, PENDING_WHY = 240, HELLOS_KEPT = 1024 };
#define PENDING_NS INT64_C(2000000000)

struct pending_peer {
    int fd;
    bool answered; /* it has proved the secret, or repeats one that has: now it has all the time there is */
    int64_t until;
    struct handshake_names names;
    struct handshake shake;
};
/* The eldest first: it goes when somebody comes and there is no place. */
struct pending_peers {
    struct pending_peer one[STRANGERS_MAX];
    uint32_t count;
};

/* The last hellos that were answered: each is another, unless it is a recording, which then costs no second answer. */
struct hellos {
    uint64_t one[HELLOS_KEPT];
    uint32_t count; /* counts on */
};

/* Who listens. */
struct pending_acceptor {
    const struct comm_env *env;
    const unsigned char *key; /* 32 bytes */
    uint32_t kind, rank;      /* of the handshakes that are for it */
    uint32_t plain;           /* first word of the greetings of those who have no secret */
    struct hellos *answered;  /* NULL: recordings are answered like others */
    const unsigned char *how; /* by rank: as in the names, what was agreed on with each; NULL: nothing, with anybody */
    uint32_t ranks;
};
enum pending_heard { PENDING_LATER, PENDING_DONE, PENDING_PLAIN, PENDING_OUT };

void pending_add(struct pending_peers *s, int fd, int64_t now);
void pending_drop_eldest(struct pending_peers *s); /* it had its time */
/* The descriptor is the caller's by now, or closed. */
void pending_forget(struct pending_peers *s, uint32_t at);
void pending_close_all(struct pending_peers *s);

/* Its first message: DONE, it has an answer; PLAIN, it has no secret; OUT, and why. last: it has no more time. */
enum pending_heard pending_hello(const struct pending_acceptor *acceptor, struct pending_peer *s, bool last, char why[PENDING_WHY]);
/* What it says sealed, exactly `bytes`: DONE, or OUT: it did not prove that it has the secret. */
enum pending_heard pending_greeting(struct pending_peer *s, void *greeting, size_t bytes, bool last);
/* What it sent and nobody read would make the kernel break the connection before it has read why. */
void pending_drain(int fd);
/* Its peer's address without the port. */
void pending_name(int fd, char *text, size_t bytes);
void pending_wait_for(int fd, int bytes);
void pending_refuse(int fd, enum handshake_fault fault);

#endif
