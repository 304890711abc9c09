/*
 * death: how the end of another process of this host becomes a readable descriptor. A pidfd where the kernel has them; otherwise one end of
 * a socket pair whose other end only that process holds (a child that it forks holds it too: that is why it comes second).
 */
#ifndef SHM_DEATH_H
#define SHM_DEATH_H

#include <stdbool.h>

struct shm_mine {
    int given; /* what peers watch */
    int kept;  /* what must stay open as long as this process lives; -1: nothing */
};
/* 0 or an errno. socket: do not try pidfd. */
int shm_death_make(struct shm_mine *mine, bool socket);
/* given alone: it was passed on. */
void shm_death_given(struct shm_mine *mine);
void shm_death_close(struct shm_mine *mine);

#endif
