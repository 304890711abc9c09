/* Ranks that meet in a star over rank 0: what boot_unix and boot_tcp share. */
#ifndef NET_BOOT_STAR_H
#define NET_BOOT_STAR_H

#include "net/boot/io.h"
#include "net/auth/handshake.h"
#include "net/posix/user.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    BOOT_VERSION = 1,
    BOOT_STRANGERS_MAX = 64, /* accepted and not yet known: STRANGERS_MAX */
    BOOT_LISTENERS = 2,
    BOOT_RETRY_MS = 2,
};
struct greeting {
    uint32_t magic, version;
    int32_t rank, ranks;
    uint64_t job;
};

struct star_keys {
    unsigned char job[CRYPTO_KEY];
    struct handshake shake; /* with rank 0, while it goes on */
    struct seal seal[];
};

struct boot_star;
struct star_kind {
    enum comm_result (*listen)(struct boot_star *star); /* rank 0: makes star->listener, or by_name, or both */
    enum comm_result (*dial)(struct boot_star *star);   /* the others: make star->root, connected; may wait until the deadline */
};

struct boot_star {
    struct wire_boot boot;
    const struct star_kind *kind;
    struct boot_config config;
    int listener, by_name; /* of a network; of this host, where the kernel knows whose who comes is. -1: none */
    int root;              /* this rank's connection to rank 0 */
    int *peer;             /* rank 0's connections, by rank */
    struct pollfd *wait;
    struct star_keys *keys; /* of secret_take */
    struct seal *seal;      /* in them, by rank as `peer`, and [0]: of `root` */
    uint64_t job;
    void *place;        /* the kind's: where to meet */
    bool sealed;        /* every rank proves the key before it is let in, and what is exchanged is sealed */
    uint32_t refused;   /* pending peers who were turned away, and why the last one was */
    int64_t refused_ns; /* when that was logged last */
    char refusal[160];
};

/* NULL: no memory, and the error's text is set. */
struct boot_star *star_make(const struct boot_config *config, const struct boot_class *class, const struct star_kind *kind);
/* What wires prove with it is theirs; sealed: the meeting itself asks for it too. */
void star_use_key(struct boot_star *star, const unsigned char key[CRYPTO_KEY], bool sealed);
enum comm_result star_meet(struct boot_star *star);
enum comm_result star_allgather(struct wire_boot *boot, const void *in, size_t bytes, void *out);
bool star_is_over(struct wire_boot *boot);
void star_close(struct wire_boot *boot);

/* A frame of this kind from rank 0, or the reason why there will be none. */
enum comm_result star_expect(const struct boot_star *star, uint32_t kind, uint64_t bytes);
/* A whole frame to rank (0: rank 0), sealed where that was agreed. */
enum io star_send_frame(const struct boot_star *star, int32_t rank, uint32_t kind, const void *bytes, size_t count);
/* seal NULL: in plain. Never waits. */
void star_send_refusal(int fd, struct seal *seal, enum comm_result result, const char *text);
enum comm_result star_dead_rank(const struct boot_star *star, int32_t rank);
enum comm_result star_root_lost(const struct boot_star *star, enum io io);
enum comm_result star_tell_all(const struct boot_star *star, enum comm_result result);
enum comm_result star_fail_errno(const struct boot_star *star, const char *what);

/*
 * unix.c: meeting at an abstract socket, star->by_name. Its name is of this network namespace, gone with its last process, and
 * anybody's who takes it first: so whoever listens or comes there is heard only if it is a process of the same user. `what`: the meeting,
 * for an error's text.
 */
struct star_name {
    struct sockaddr_un address;
    socklen_t length;
};
enum star_dialed { STAR_DIALED, STAR_NOT_YET, STAR_FAILED };
void star_name(struct star_name *name, const char *text); /* text is cut where the kernel's names end */
enum comm_result star_listen_at(struct boot_star *star, const struct star_name *name, const char *what);
enum star_dialed star_dial_at(struct boot_star *star, const struct star_name *name, const char *what, enum comm_result *result);

/* acceptor.c: who is let in, and by whom */
enum comm_result acceptor_listen_for_all(struct boot_star *star);
enum comm_result acceptor_connect_to_root(struct boot_star *star);

#endif
