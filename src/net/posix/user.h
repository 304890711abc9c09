/* user: whose process is at the other end of a Unix socket. */
#ifndef NET_POSIX_USER_H
#define NET_POSIX_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { USER_WHY = 200 };

/*
 * True: the process that connected to `fd`, or that listens where `fd` is connected to, has this process's effective user, as the kernel
 * recorded it at connect() or listen(). False: `why` has both numbers. Any thread.
 */
bool user_is_ours(int fd, char why[USER_WHY]);
/*
 * The same by numbers. `overflow` is the number by which the kernel shows every user that has none in this process's user namespace;
 * `complete`: there is no such user, since the namespace has them all. Otherwise two users of that number may differ. Pure.
 */
bool user_is_same(uint32_t seen, uint32_t expected, uint32_t overflow, bool complete, char why[USER_WHY]);

#endif
