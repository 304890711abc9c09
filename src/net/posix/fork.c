/*
 * fork: closes in a forked child what the child must not keep. A peer sees the end of a connection only when the last process that has it
 * closes it. So a long-lived child (such as a data loader's worker) would hide its parent's death. An io_uring would do the same, since it
 * holds its sockets. Such descriptors are recorded in a bitmap, and a hook of fork() closes them in the child. The hook uses only system
 * calls and atomic operations and takes no lock, because between fork and exec the child of a multithreaded process may do no more
 * (fork(2)).
 *
 * Not covered: a child made by a bare clone(2), which runs no hooks; and a connection that another thread opens or closes during the fork,
 * between its system call and its record here.
 */
#define _GNU_SOURCE
#include "net/posix/posix.h"

#include <pthread.h>
#include <unistd.h>

enum { WORD_BITS = 64, DESCRIPTORS = 1 << 20 /* the default limit on open files of any process (nr_open, proc(5)) */ };

static struct {
    _Atomic uint32_t words; /* how many words have been used */
    _Atomic uint64_t word[DESCRIPTORS / WORD_BITS];
} owned;

void posix_own(const struct comm_env *env, int32_t fd, bool owns)
{
    uint32_t at = (uint32_t)fd / WORD_BITS, words = atomic_load_explicit(&owned.words, memory_order_relaxed);
    uint64_t bit = UINT64_C(1) << (uint32_t)fd % WORD_BITS;

    (void)env;
    if (fd < 0 || fd >= DESCRIPTORS)
        return;
    while (owns && words <= at &&
           !atomic_compare_exchange_weak_explicit(&owned.words, &words, at + 1, memory_order_relaxed, memory_order_relaxed))
        ;
    if (owns)
        atomic_fetch_or_explicit(&owned.word[at], bit, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&owned.word[at], ~bit, memory_order_relaxed);
}

static void close_in_child(void)
{
    uint32_t words = atomic_exchange_explicit(&owned.words, 0, memory_order_relaxed);

    for (uint32_t i = 0; i < words; i++)
        for (uint64_t bits = atomic_exchange_explicit(&owned.word[i], 0, memory_order_relaxed); bits; bits &= bits - 1)
            (void)close((int)(i * WORD_BITS) + __builtin_ctzll(bits));
}

int posix_fork_start(void)
{
    return pthread_atfork(NULL, NULL, close_in_child);
}
