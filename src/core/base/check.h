/* What must be true. A broken invariant of ours stops the process at the place where it broke: the core has no stdio to explain itself
 * with, a debugger shows the line. Errors of the world are results, never assertions. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#define BASE_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define BASE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Kept in release builds: state machines, protocol. */
#define BASE_ASSERT(condition)                                                                                                             \
    do {                                                                                                                                   \
        if (BASE_UNLIKELY(!(condition)))                                                                                                   \
            __builtin_trap();                                                                                                              \
    } while (0)

/* Debug builds alone: the hot loops. */
#ifdef COMM_DEBUG
#    define BASE_DEBUG_ASSERT(condition) BASE_ASSERT(condition)
#else
#    define BASE_DEBUG_ASSERT(condition) ((void)0)
#endif

#endif
