/*
 * System calls that fail on request. The linker puts these functions in front of those of the C library, only for the library's own
 * objects. One function is chosen: its n-th call from then on fails with the chosen errno, or all calls from the n-th on.
 */
#ifndef ENGINE_SYSTEM_FAULTS_H
#define ENGINE_SYSTEM_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct system_fault {
    const char *call; /* "socket"; calls by number are "pidfd_open", "membarrier", "futex_wait", "epoll_pwait2" */
    int error;
};

void system_fail(const struct system_fault *fault, uint32_t at, bool ever_after);
uint32_t system_failed(void); /* how many calls have failed */
void system_heal(void);

#endif
