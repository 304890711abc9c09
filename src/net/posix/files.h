/* files: descriptors, when many may be needed at once. A process has a soft limit on open files (`ulimit -n`), which it may raise up to the
 * hard limit. The limit is raised only when a world needs it, and only by as much. */
#ifndef NET_POSIX_FILES_H
#define NET_POSIX_FILES_H

#include "base/log.h"

#include <stddef.h>
#include <stdint.h>

enum { FILES_OF_A_WORLD = 32 }; /* in addition to connections: pollers, bells, a listener, and the first files of the program */

/* Like accept4 and socket, close-on-exec and nonblocking. more: how far to raise the limit if it is reached. -1: errno has the reason. */
int files_accept(int listener, const struct base_log *log, uint32_t more);
int files_socket(int family, const struct base_log *log, uint32_t more);
/* Whether there was no descriptor or no memory for another connection: the process's limit, which could not be raised, or the system's. A
 * connection that was not accepted for this reason stays in the listener's queue. */
bool files_are_short(int error);
/* For an error text, if they are short: what is short; for the process's limit also how many descriptors are needed. */
void files_name_shortage(char *text, size_t bytes, uint32_t needed, int error);

#endif
