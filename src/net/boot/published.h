/* published: what rank 0 publishes about itself in a medium, for ranks that were given no address (tcp.c). */
#ifndef NET_BOOT_PUBLISHED_H
#define NET_BOOT_PUBLISHED_H

#include "net/boot/place.h"

enum dialed { DIAL_THERE, DIAL_LATER, DIAL_NEVER };

/* Rank 0: chooses an address of this host and a port that the kernel selects. If no secret was given, also makes one, which only readers of
 * the medium know. */
enum comm_result published_prepare(struct boot_star *b);
/* Rank 0, once it listens: publishes its address and what else the others need. */
enum comm_result published_write(struct boot_star *b);

/* The others: reads what rank 0 has published so far. NEVER: *result has the reason. */
enum dialed published_read(struct boot_star *b, enum comm_result *result);
/* Whether rank 0 has published another address than the one that this rank has dialed. */
bool published_moved(const struct boot_star *b);
/* The error of a rank that was given a secret, and rank 0 was not. */
enum comm_result published_contrary(const struct boot_star *b);
/* Adds to the text of an error, which an earlier run may have caused, what to do about it. */
void published_doubt(const struct boot_star *b, enum comm_result result);

#endif
