/*
 * death: turns the end of another process of this host into a readable descriptor. It is a pidfd if the kernel has them. Otherwise it is
 * one end of a socket pair, whose other end only that process holds. The socket pair is second choice because a forked child holds that end
 * too.
 */
#ifndef SHM_DEATH_H
#define SHM_DEATH_H

#include <stdbool.h>

struct shm_mine {
    int given; /* the descriptor that peers watch */
    int kept;  /* must stay open while this process lives; -1: none */
};
/* Returns 0 or an errno. socket: do not try pidfd. */
int shm_death_make(struct shm_mine *mine, bool socket);
/* Closes `given` alone, after it was passed on. */
void shm_death_given(struct shm_mine *mine);
void shm_death_close(struct shm_mine *mine);

#endif
