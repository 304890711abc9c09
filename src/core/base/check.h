/* Assertions. A broken internal invariant stops the process at the place where it broke; a debugger shows the line,
 * because the core has no stdio to print a message. Errors from outside (peers, the system, callers) are returned as
 * results and never asserted. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#define BASE_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define BASE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Also checked in release builds: state machines and protocols. */
#define BASE_ASSERT(condition)                                                                                                             \
    do {                                                                                                                                   \
        if (BASE_UNLIKELY(!(condition)))                                                                                                   \
            __builtin_trap();                                                                                                              \
    } while (0)

/* Checked only in debug builds: hot loops. */
#ifdef COMM_DEBUG
#    define BASE_DEBUG_ASSERT(condition) BASE_ASSERT(condition)
#else
#    define BASE_DEBUG_ASSERT(condition) ((void)0)
#endif

#endif
