/*
 * Calls of the system that fail when told to: the linker puts these in front of the C library's, for the library's own objects alone. One
 * function is chosen, and its n-th call from then on fails with the errno chosen; or all from the n-th on.
 */
#ifndef ENGINE_SYSTEM_FAULTS_H
#define ENGINE_SYSTEM_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct system_fault {
    const char *call; /* "socket"; those by number are "pidfd_open", "membarrier", "futex_wait", "epoll_pwait2" */
    int error;
};

void system_fail(const struct system_fault *fault, uint32_t at, bool ever_after);
uint32_t system_failed(void); /* how many have */
void system_heal(void);

#endif
