/* Prefetching of cache lines. Only a hint: nothing depends on it, and any address is valid. */
#ifndef BASE_FETCH_H
#define BASE_FETCH_H

/*
 * Prefetches a line that will be written. Other CPUs give up their copies meanwhile, so the store, and the stores
 * behind it in the store queue, need not wait for that. The instruction is written in assembly because compilers that
 * target CPUs older than it (before Broadwell) emit an ordinary prefetch, which does not take ownership of the line. On
 * such CPUs the instruction does nothing.
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
