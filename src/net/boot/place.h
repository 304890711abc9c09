/* Where ranks of several hosts meet (tcp.c). */
#ifndef NET_BOOT_PLACE_H
#define NET_BOOT_PLACE_H

#include "net/boot/meeting.h"
#include "net/boot/star.h"

enum { PLACE_HOST_BYTES = 256 };

struct place {
    char host[PLACE_HOST_BYTES], port[8];
    char why[MEETING_WHY];               /* why the last attempt came to nothing */
    bool open;                           /* addresses beyond loopback are: there is a secret, or it was allowed without */
    bool given;                          /* a secret was, and not by the medium */
    bool known;                          /* what rank 0 says there was read, and will not change */
    const struct meeting_medium *medium; /* where rank 0 says the rest; NULL: it was said */
    const char *name;                    /* of the place in it */
    char world[16];                      /* that name, of a medium of one job */
    char what[64];                       /* where ranks of one user meet, for texts */
    int held;                            /* a socket that has rank 0's port where nobody listens there; -1: none */
    struct meeting meeting;
};

void place_host(const struct sockaddr *address, char *text, size_t bytes); /* in digits */
uint16_t place_port(const struct sockaddr *address);
bool place_read(const char *address, struct place *p); /* "host:port", "[v6]:port" */
/* By which address of its own this rank is reached: the one that leads to rank 0, unless the user named interfaces. */
void place_note_own(struct boot_star *b, int fd);
/* Whether ranks meet there at a socket where the kernel says whose process each is. */
bool place_is_of_user(const struct boot_star *b, const struct sockaddr *address);
void place_name(const struct sockaddr *address, struct star_name *name, struct place *p); /* the name of that socket */
enum comm_result place_not_allowed(struct boot_star *b, const struct sockaddr *address);

#endif
