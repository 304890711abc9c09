/*
 * files: descriptors where many may be needed at once. A process has a limit on how many it may have open, the soft one (`ulimit -n`),
 * which it may raise itself up to the hard one. So it is raised when, and only by as much as, a world needs it.
 */
#ifndef NET_POSIX_FILES_H
#define NET_POSIX_FILES_H

#include "base/log.h"

#include <stddef.h>
#include <stdint.h>

enum { FILES_OF_A_WORLD = 32 }; /* beside its connections: pollers, bells, a listener, and the program's own first ones */

/* As accept4 and socket, close-on-exec and nonblocking. more: by how many the limit is raised where it is met. -1: errno says why. */
int files_accept(int listener, const struct base_log *log, uint32_t more);
int files_socket(int family, const struct base_log *log, uint32_t more);
/* The error was the process's limit, and it could not be raised. */
bool files_are_short(int error);
/* Why, for an error: what the limit is and how many are needed. */
void files_name_limit(char *text, size_t bytes, uint32_t needed);

#endif
