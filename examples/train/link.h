/* A network link that is slower than this host's memory, for programs whose ranks are all on one host. */
#ifndef TRAIN_LINK_H
#define TRAIN_LINK_H

/*
 * Limits what this process sends on each of its TCP connections, in bytes per second. The kernel does it (SO_MAX_PACING_RATE), without
 * privileges. A connection that is made later is not limited until the next call. Returns how many connections are limited.
 */
int link_limit(double bytes_per_second);

#endif
