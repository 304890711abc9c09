/* user: checks which user owns the process at the other end of a Unix socket. */
#ifndef NET_POSIX_USER_H
#define NET_POSIX_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { USER_WHY = 200 };

/* True: the process that connected to `fd`, or that listens where `fd` is connected to, has this process's effective user, as the kernel
 * recorded it at connect() or listen(). False: `why` has both numbers. Any thread may call. */
bool user_is_ours(int fd, char why[USER_WHY]);
/* The same for numbers. `overflow` is the uid that the kernel shows for users without a number in this process's user namespace.
 * `complete`: the namespace maps all users, so there are none. Otherwise two users with that uid may differ. Pure. */
bool user_is_same(uint32_t seen, uint32_t expected, uint32_t overflow, bool complete, char why[USER_WHY]);

#endif
