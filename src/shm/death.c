/* How a process provides the descriptor by which peers notice its end: a pidfd, or a socket pair. */
#define _GNU_SOURCE
#include "shm/death.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int shm_death_make(struct shm_mine *mine, bool socket)
{
    *mine = (struct shm_mine){-1, -1};
#ifdef SYS_pidfd_open
    if (!socket)
        mine->given = (int)syscall(SYS_pidfd_open, getpid(), 0); /* a pidfd is close-on-exec */
#endif
    if (mine->given >= 0)
        return 0;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return errno;
    *mine = (struct shm_mine){pair[0], pair[1]};
    return 0;
}

void shm_death_given(struct shm_mine *mine)
{
    if (mine->given >= 0)
        close(mine->given);
    mine->given = -1;
}

void shm_death_close(struct shm_mine *mine)
{
    shm_death_given(mine);
    if (mine->kept >= 0)
        close(mine->kept);
    mine->kept = -1;
}
