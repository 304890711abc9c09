/* Cache lines asked for before they are needed. A hint: nothing depends on it, and any address will do. */
#ifndef BASE_FETCH_H
#define BASE_FETCH_H

/*
 * A line that will be written: the copies that other CPUs hold are given up meanwhile, so that the store and whatever stands behind it in
 * the store queue need not wait for that. Compilers make an ordinary prefetch of it for a CPU that may be older than the instruction
 * (Broadwell), which does nothing of the kind; on those it does nothing.
 */
static inline void base_fetch_to_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

#endif
