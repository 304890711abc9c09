/*
 * What connecting needs, while a world opens (mesh.c, admit.c) and, where links are made when they are needed, afterwards
 * (links.c). Private to these.
 */
#ifndef NET_MESH_MESH_H
#define NET_MESH_MESH_H

#include "net/auth/accept_limiter.h"
#include "net/auth/pending.h"
#include "net/lane/lane.h"
#include "net/mesh/connect.h"

#include <netinet/in.h>
#include <poll.h>

enum { MESH_MAGIC = 0x6d736574, MESH_WORD = 16, MESH_TEXT = 160 };
/* In a greeting's place for the lane: the higher rank of a pair asks the lower one to dial, for a link, or for one of the base graph. */
enum { MESH_CALL = TCP_SOCKETS, MESH_CALL_BASE, MESH_LANES };

/* What each rank says of itself over the boot. result: not COMM_OK, and why. */
struct card {
    uint32_t magic, version;
    int32_t result;
    uint8_t proves; /* has the job's secret */
    uint8_t seal;   /* enum tcp_seal_choice */
    uint8_t aes;    /* would be sealed by AES */
    uint8_t checks; /* has a checksum over what is not sealed */
    struct sockaddr_storage address;
    unsigned char word[MESH_WORD];
    uint64_t host;
    uint32_t float_mode, endian;
    uint32_t links; /* enum tcp_links */
    char text[MESH_TEXT];
};

/* The first bytes of a connection. */
struct greeting {
    uint32_t magic, version;
    uint32_t from, to, lane, reserved;
    unsigned char word[MESH_WORD];
};

/* The answer to it, from who let him in: the dialer's own word, so that nobody who merely has the listener's port can give it. */
struct welcome {
    uint32_t magic;
    unsigned char word[MESH_WORD];
};

/* A socket that is being connected. */
enum dial_stage {
    DIAL_CONNECTING,
    DIAL_ASKED,  /* the hello has left */
    DIAL_GREETED /* it is to be confirmed */
};
struct dialing {
    uint32_t peer, lane;
    int fd;
    enum dial_stage stage;
    struct handshake shake;
};

struct mesh {
    struct tcp_wire *w;
    const struct wire_config *config;
    int listener;
    struct card mine, *cards;
    const unsigned char *key; /* NULL: the job has no secret */
    unsigned char *how;       /* by rank, enum crypto_kind: by what connections with it are sealed */
    struct pending_peers pending_peers;
    struct hellos hellos;
    struct accept_limiter accept_limiter; /* of what is done for those who come, once steady */
    int outside;                          /* once steady: an epoll of the listener and of pending peers */
    struct pollfd *wait;
    struct dialing *dials;
    uint32_t dialing, dials_room;
    uint32_t missing; /* greetings of lower ranks that have not come */
    uint32_t refused;
    int64_t now;               /* of the look that is under way */
    int64_t looked_ns;         /* when it was looked last whether somebody is gone */
    int64_t refused_ns, until; /* until: some time before the world's, in which all can still hear whose fault it is */
    char refusal[PENDING_WHY];
    bool steady; /* the world is open: what is connected is started, and what fails is tried again */
    size_t bytes;
};

/* socket.c */
void mesh_set_options(const struct tcp_wire *w, int fd, bool near);
socklen_t mesh_length_of(const struct sockaddr_storage *address);
bool mesh_read_address(const char *text, struct sockaddr_storage *address);       /* a numeric one, port 0 */
int mesh_listen_on(struct sockaddr_storage *address, int backlog, int *listener); /* 0, or an errno */
void mesh_await_words(int listener, int seconds);                                 /* who says nothing is not shown to us for so long */
void mesh_name_address(const struct sockaddr_storage *address, char *text, size_t bytes);

/* dial.c */
/* Starts to connect: one more of m->dials. COMM_OK, or an error with its text. */
enum comm_result mesh_dial(struct mesh *m, uint32_t peer, uint32_t lane);
/* Whether a socket of this number is being dialed. */
bool mesh_is_dialing(const struct mesh *m, uint32_t peer, uint32_t lane);
/* What has come since, of those that dial and, while the world opens, are dialed; waits so many milliseconds for it. Once steady no dial's
 * failure is an error. */
enum comm_result mesh_turn(struct mesh *m, int wait_ms);
enum comm_result mesh_dial_on(struct mesh *m, uint32_t at); /* its socket has something to say */

/* mesh.c */
void mesh_close(struct mesh *m);
/* What both sides of a connection need. */
enum comm_result mesh_fail(const struct mesh *m, enum comm_result result, const char *format, ...) __attribute__((format(printf, 3, 4)));
int mesh_send_now(int fd, const void *bytes, size_t count); /* 0, or an errno */
bool mesh_same_word(const unsigned char a[MESH_WORD], const unsigned char b[MESH_WORD]);
bool mesh_keep(struct mesh *m, uint32_t rank, uint32_t which, int fd, const struct seal *keys);
uint32_t mesh_files_for(const struct mesh *m);
enum comm_result mesh_fail_files(const struct mesh *m);

/* links.c */
bool tcp_acceptor_open(struct tcp_wire *w, struct mesh *m); /* it keeps m. False: an errno says why */
void tcp_lane_up(struct tcp_lane *lane);                    /* connected while the world is open */
void tcp_watch_for(struct tcp_wire *w, int fd);             /* the monitor wakes for it */

/* admit.c */
/* The other half of mesh_turn, once steady, without the wire's lock: who has come, and what they say. How long the acceptor is to be left
 * alone then. */
int64_t mesh_hear(struct mesh *m);
void mesh_watch_outside(struct mesh *m, int fd);
uint32_t mesh_receive_strangers(struct mesh *m, uint32_t most, enum comm_result *result);
void mesh_hear_one(struct mesh *m, uint32_t at, short seen); /* pending peer `at`, of whom poll has seen this */

#endif
