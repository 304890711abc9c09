/*
 * Edges of memory, for builds under AddressSanitizer. It puts redzones around what malloc gives and knows nothing of the pieces that we
 * cut out of one piece ourselves: stages of connections, blocks of a pool, what a shared segment lends. So an overflow there would only
 * be seen if it left the whole mapping. Neighbours leave EDGE_BYTES between them, and who cuts closes what nobody may touch: the gaps,
 * what is free, and what lies behind the length that was asked for. In other builds there is no gap and these calls are nothing.
 *
 * A closed piece is best aligned to 8 bytes at its beginning: of a unit of 8 only the end can be closed (compiler-rt's AddressSanitizer
 * algorithm). Memory is opened again before it goes back to where it came from. The kernel is not checked, where a call of its is not
 * intercepted (io_uring).
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

/* Of `whole` bytes the first `bytes` may be touched, the others not. */
static inline void edge_set(const void *at, size_t bytes, size_t whole)
{
    edge_open(at, bytes);
    edge_close((const char *)at + bytes, whole - bytes);
}

#endif
