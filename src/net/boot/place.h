/* Addresses at which ranks of several hosts meet (tcp.c). */
#ifndef NET_BOOT_PLACE_H
#define NET_BOOT_PLACE_H

#include "net/boot/meeting.h"
#include "net/boot/star.h"

enum { PLACE_HOST_BYTES = 256 };

struct boot_place {
    char host[PLACE_HOST_BYTES], port[8];
    char why[MEETING_WHY];               /* why the last attempt failed */
    bool permitted;                      /* addresses beyond loopback are allowed, because a secret was given, or by the user without one */
    bool open;                           /* they are allowed; also because the medium has a secret */
    bool given;                          /* a secret was given, not found in the medium */
    bool contrary;                       /* a secret was given, and rank 0 put one of its own into the medium */
    bool known;                          /* rank 0's entry in the medium was read and will not change */
    const struct meeting_medium *medium; /* the medium in which rank 0 publishes its address; NULL: the address was given */
    const char *name;                    /* the place in the medium */
    char world[16];                      /* the storage of `name`, for a medium of one job */
    char what[64];                       /* for texts: the meeting point of ranks of one user */
    int held;                            /* a socket that reserves rank 0's port while nothing listens on it; -1: none */
    struct meeting meeting;
};

/* Whether the medium may have what rank 0 of an earlier run published. */
static inline bool place_may_be_old(const struct boot_place *p)
{
    return p->medium && !p->medium->of_one_job;
}
void place_host(const struct sockaddr *address, char *text, size_t bytes); /* in numeric form, INTERFACE_ADDRESS bytes */
uint16_t place_port(const struct sockaddr *address);
bool place_read(const char *address, struct boot_place *p); /* "host:port" or "[v6]:port" */
/* Sets the address at which other ranks reach this one: the local address of the connection to rank 0, unless the user named interfaces. */
void place_note_own(struct boot_star *b, int fd);
/* Whether ranks meet at a socket for which the kernel identifies the peer's user. */
bool place_is_of_user(const struct boot_star *b, const struct sockaddr *address);
void place_name(const struct sockaddr *address, struct star_name *name, struct boot_place *p); /* makes the name of that socket */
enum comm_result place_not_allowed(struct boot_star *b, const struct sockaddr *address);

#endif
