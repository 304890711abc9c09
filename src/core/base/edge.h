/*
 * Red zones for builds under AddressSanitizer. The sanitizer puts red zones around what malloc returns, but it does not
 * know the pieces that the library cuts from one allocation: stages of connections, blocks of a pool, parts of a shared
 * segment. Without help it would see an overflow only when it left the whole mapping. Neighbouring pieces are therefore
 * EDGE_BYTES apart. The code that cuts them closes (poisons) everything that nobody may touch: the gaps, the free
 * pieces, and what lies behind the requested length. In other builds there are no gaps and these calls do nothing.
 *
 * The start of a closed region should be aligned to 8 bytes, because AddressSanitizer can only close the end of an
 * 8-byte unit (see AddressSanitizerAlgorithm of compiler-rt). Memory is opened again before it returns to its
 * allocator. Accesses by the kernel are not checked where the sanitizer does not intercept the system call (io_uring).
 */
#ifndef BASE_EDGE_H
#define BASE_EDGE_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) /* gcc */
#    define EDGE_CHECKED 1
#elif defined(__has_feature) /* clang */
#    if __has_feature(address_sanitizer)
#        define EDGE_CHECKED 1
#    endif
#endif

#ifdef EDGE_CHECKED
#    include <sanitizer/asan_interface.h>
enum { EDGE_BYTES = 64, EDGE_PAGE_BYTES = 4096 };
static inline void edge_close(const void *at, size_t bytes)
{
    __asan_poison_memory_region(at, bytes);
}
static inline void edge_open(const void *at, size_t bytes)
{
    __asan_unpoison_memory_region(at, bytes);
}
#else
enum { EDGE_BYTES = 0, EDGE_PAGE_BYTES = 0 };
static inline void edge_close(const void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}
static inline void edge_open(const void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}
#endif

/* Opens the first `bytes` of `whole` bytes and closes the rest. */
static inline void edge_set(const void *at, size_t bytes, size_t whole)
{
    edge_open(at, bytes);
    edge_close((const char *)at + bytes, whole - bytes);
}

#endif
