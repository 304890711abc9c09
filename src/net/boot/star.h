/* Ranks that meet in a star around rank 0: shared by boot/unix.c and boot/tcp.c. */
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
    BOOT_UNAUTHENTICATED_MAX = 64, /* accepted and not yet authenticated; the same number as in auth/pending.h */
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
    struct handshake shake; /* the current handshake with rank 0 */
    struct seal seal[];
};

struct boot_star;
struct star_kind {
    enum comm_result (*listen)(struct boot_star *star); /* rank 0: sets star->listener, or by_name, or both */
    enum comm_result (*dial)(struct boot_star *star);   /* other ranks: set star->root, connected; may wait until the deadline */
    bool (*moved)(const struct boot_star *star);        /* whether rank 0 is now known to be elsewhere than where root leads; NULL: never */
};

struct boot_star {
    struct wire_boot boot;
    const struct star_kind *kind;
    struct boot_config config;
    int listener, by_name; /* a network socket, and a socket of this host for which the kernel identifies the peer's user; -1: none */
    int root;              /* connection to rank 0 */
    int *peer;             /* on rank 0: the connections, by rank */
    struct pollfd *wait;
    struct star_keys *keys; /* from secret_take */
    struct seal *seal;      /* points into keys: by rank like `peer`; [0] is for `root` */
    uint64_t job;
    void *place;        /* private to the kind: where to meet */
    bool sealed;        /* every rank must prove the key before it is admitted, and everything exchanged is sealed */
    bool again;         /* rank 0 listened a moment ago; if nobody does any more, it is gone */
    bool nobody;        /* the last attempt found that nobody listens */
    bool unsure;        /* the key is from where an earlier run may have left it: who does not know it is not this run's rank 0 */
    bool maybe_old;     /* the address is from a file that an earlier run may have left: another program may listen there by now */
    uint32_t refused;   /* number of pending peers that were refused */
    int64_t refused_ns; /* when a refusal was last logged */
    char refusal[160];
};

/* NULL: no memory; the error text is set. */
struct boot_star *star_make(const struct boot_config *config, const struct boot_class *class, const struct star_kind *kind);
/* Sets the key, which the wires use too. sealed: the meeting itself requires it. */
void star_use_key(struct boot_star *star, const unsigned char key[CRYPTO_KEY], bool sealed);
void star_use_no_key(struct boot_star *star);
enum comm_result star_meet(struct boot_star *star);
enum comm_result star_allgather(struct wire_boot *boot, const void *in, size_t bytes, void *out);
bool star_is_over(struct wire_boot *boot);
void star_close(struct wire_boot *boot);
/* A child that is forked while ranks meet must not keep their sockets: it would hide the end of this process, and keep the port. drop sets
 * *fd to -1, and accepts -1. */
void star_own(const struct boot_star *star, int fd);
void star_drop(const struct boot_star *star, int *fd);

/* Receives a frame of this kind from rank 0, or returns why there is none. */
enum comm_result star_expect(const struct boot_star *star, uint32_t kind, uint64_t bytes);
/* Sends a whole frame to a rank (other ranks: 0), sealed if agreed. */
enum io star_send_frame(const struct boot_star *star, int32_t rank, uint32_t kind, const void *bytes, size_t count);
/* seal NULL: sends it unsealed. Does not block. */
void star_send_refusal(int fd, struct seal *seal, enum comm_result result, const char *text);
enum comm_result star_dead_rank(const struct boot_star *star, int32_t rank);
enum comm_result star_root_lost(const struct boot_star *star, enum io io);
enum comm_result star_tell_all(const struct boot_star *star, enum comm_result result);
enum comm_result star_fail_errno(const struct boot_star *star, const char *what);

/*
 * unix.c: meeting at an abstract socket, star->by_name. The name belongs to this network namespace, and disappears with the last process
 * that has it. Any process may take the name first, so both sides check that the peer belongs to the same user. `what` names the meeting in
 * error texts.
 */
struct star_name {
    struct sockaddr_un address;
    socklen_t length;
};
enum star_dialed { STAR_DIALED, STAR_NOT_YET, STAR_FAILED };
void star_name(struct star_name *name, const char *text); /* text is cut at the longest name of the kernel */
enum comm_result star_listen_at(struct boot_star *star, const struct star_name *name, const char *what);
enum star_dialed star_dial_at(struct boot_star *star, const struct star_name *name, const char *what, enum comm_result *result);

/* acceptor.c: rank 0's side, and the side of the other ranks */
enum comm_result acceptor_listen_for_all(struct boot_star *star);
enum comm_result acceptor_connect_to_root(struct boot_star *star);

#endif
