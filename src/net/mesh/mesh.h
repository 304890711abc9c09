/*
 * The state of connecting: while a world opens (mesh.c, admit.c), and afterwards if links are made when needed (links.c). Private to these.
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
/* In place of the lane in a greeting: the higher rank of a pair asks the lower one to dial, for a link, or for one of the base graph. */
enum { MESH_CALL = TCP_SOCKETS, MESH_CALL_BASE, MESH_LANES };

/* What each rank publishes about itself over the boot. If result is not COMM_OK, text has the reason. */
struct card {
    uint32_t magic, version;
    int32_t result;
    uint8_t proves; /* has the job's secret */
    uint8_t seal;   /* enum tcp_seal_choice */
    uint8_t aes;    /* prefers AES */
    uint8_t checks; /* has checksums for unsealed connections */
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

/* The answer to a greeting: the dialer's own word. A process that merely has taken the listener's port does not know it. */
struct welcome {
    uint32_t magic;
    unsigned char word[MESH_WORD];
};

/* A socket that is being connected. */
enum dial_stage {
    DIAL_CONNECTING,
    DIAL_ASKED,  /* the hello was sent */
    DIAL_GREETED /* the greeting was sent; waits for its confirmation */
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
    unsigned char *how;       /* by rank, enum crypto_kind: the cipher of connections with it */
    struct pending_peers pending_peers;
    struct hellos hellos;
    struct accept_limiter accept_limiter; /* limits the work for incoming connections, once steady */
    int outside;                          /* once steady: an epoll instance for the listener and pending peers */
    struct pollfd *wait;
    struct dialing *dials;
    uint32_t dialing, dials_room;
    uint32_t missing; /* greetings of lower ranks that have not arrived */
    uint32_t refused;
    int64_t now;               /* time of the current look */
    int64_t looked_ns;         /* when this rank last checked whether a rank is gone */
    int64_t refused_ns, until; /* until: shortly before the world's deadline, so that all ranks can still learn which one is at fault */
    char refusal[PENDING_WHY];
    bool steady;       /* the world is open: new connections are started, and failed dials are tried again */
    bool lacks_memory; /* a connection could not be admitted. While the world opens that is an error; later the peer dials again */
    size_t bytes;
};

/* socket.c */
void mesh_set_options(const struct tcp_wire *w, int fd, bool near);
socklen_t mesh_length_of(const struct sockaddr_storage *address);
bool mesh_read_address(const char *text, struct sockaddr_storage *address);                   /* numeric; sets port 0 */
void mesh_use_own_link(struct sockaddr_storage *address, const struct sockaddr_storage *own); /* of another rank's address */
int mesh_listen_on(struct sockaddr_storage *address, int backlog, int *listener);             /* returns 0, or an errno */
void mesh_await_words(int listener, int seconds); /* the kernel hides connections that send nothing for this long */
void mesh_name_address(const struct sockaddr_storage *address, char *text, size_t bytes);

/* dial.c */
/* Starts to connect: adds one to m->dials. Returns COMM_OK, or an error with its text. */
enum comm_result mesh_dial(struct mesh *m, uint32_t peer, uint32_t lane);
/* Whether this socket of the peer is being dialed. */
bool mesh_is_dialing(const struct mesh *m, uint32_t peer, uint32_t lane);
/* Continues all dials and, while the world opens, incoming connections; waits up to wait_ms for input. Once steady, a failed dial is not an
 * error. */
enum comm_result mesh_turn(struct mesh *m, int wait_ms);
enum comm_result mesh_dial_on(struct mesh *m, uint32_t at); /* its socket is ready */
void mesh_drop_dials(struct mesh *m, uint32_t peer);        /* the peer is given up */

/* mesh.c */
void mesh_close(struct mesh *m);
/* Used by both sides of a connection. */
enum comm_result mesh_fail(const struct mesh *m, enum comm_result result, const char *format, ...) __attribute__((format(printf, 3, 4)));
int mesh_send_now(int fd, const void *bytes, size_t count); /* returns 0, or an errno */
bool mesh_same_word(const unsigned char a[MESH_WORD], const unsigned char b[MESH_WORD]);
/* The memory for the connection's records, if it has them. keys: of its handshake, or NULL. False: no memory. */
bool mesh_seal(const struct mesh *m, uint32_t rank, uint32_t which, const struct seal *keys);
void mesh_unseal(const struct mesh *m, uint32_t rank, uint32_t which);
void mesh_keep(struct mesh *m, uint32_t rank, uint32_t which, int fd); /* after mesh_seal */
uint32_t mesh_files_for(const struct mesh *m);
enum comm_result mesh_fail_files(const struct mesh *m, int error);

/* links.c */
bool tcp_acceptor_open(struct tcp_wire *w, struct mesh *m); /* takes over m. False: errno has the reason */
void tcp_lane_up(struct tcp_lane *lane);                    /* a connection was made while the world is open */
void tcp_watch_for(struct tcp_wire *w, int fd);             /* the descriptor wakes the monitor */

/* admit.c */
/* The other half of mesh_turn once steady, without the wire's lock: accepts connections and reads from pending peers. Returns how long the
 * acceptor must rest. */
int64_t mesh_hear(struct mesh *m);
void mesh_watch_outside(struct mesh *m, int fd);
uint32_t mesh_accept_pending(struct mesh *m, uint32_t most, enum comm_result *result);
void mesh_hear_one(struct mesh *m, uint32_t at, short seen); /* handles pending peer `at`; seen: the events of poll */

#endif
