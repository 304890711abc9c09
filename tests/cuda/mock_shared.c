/*
 * Memory shared by the processes of a test, for the shared state of a communicator's ranks. Forked processes inherit it. Programs that are
 * started separately map the file named by MOCK_SHARED, at the same address. A process may be killed at any time, so the lock is a robust
 * mutex. The memory that a killed process held is lost, as its NCCL state would be.
 */
#define _GNU_SOURCE
#include "mock_clique.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#    define PLACE ((void *)(uintptr_t)0x7ea000000000) /* ThreadSanitizer gives a program's memory few ranges of addresses */
#else
#    define PLACE ((void *)(uintptr_t)0x5a0000000000)
#endif
enum { SIZES = 26 };
#define ARENA_BYTES ((size_t)1 << 30)

struct piece {
    struct piece *next;
    size_t size; /* it has 64 << size bytes */
};
struct arena {
    struct mock_shared shared;
    pthread_mutex_t lock;
    size_t used;
    bool ready;
    struct piece *free[SIZES];
};
static struct arena *arena;
struct mock_shared *mock_shared;

static void make(void)
{
    pthread_mutexattr_t how;

    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&arena->lock, &how);
    arena->used = (sizeof *arena + 63) / 64 * 64;
    arena->ready = true;
}

__attribute__((constructor)) static void map(void)
{
    const char *name = getenv("MOCK_SHARED");
    int file = name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;

    if (name && (file < 0 || flock(file, LOCK_EX) || ftruncate(file, (off_t)ARENA_BYTES)))
        abort();
    arena = mmap(name ? PLACE : NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_NORESERVE | (name ? MAP_FIXED_NOREPLACE : MAP_ANONYMOUS), file, 0);
    if (arena == MAP_FAILED) {
        perror("mock: shared memory");
        abort();
    }
    if (!arena->ready)
        make();
    mock_shared = &arena->shared;
    if (file >= 0 && (flock(file, LOCK_UN) || close(file))) /* the mapping would keep the lock */
        abort();
}

void mock_shared_lock(void)
{
    if (pthread_mutex_lock(&arena->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&arena->lock);
}

void mock_shared_unlock(void)
{
    pthread_mutex_unlock(&arena->lock);
}

void *mock_shared_take(size_t bytes)
{
    size_t size = 0;

    while ((size_t)64 << size < bytes + sizeof(struct piece))
        size++;
    if (size >= SIZES)
        abort();
    struct piece *p = arena->free[size];
    if (p) {
        arena->free[size] = p->next;
    } else {
        if (arena->used + ((size_t)64 << size) > ARENA_BYTES)
            abort();
        p = (struct piece *)(void *)((char *)arena + arena->used);
        arena->used += (size_t)64 << size;
    }
    p->size = size;
    return memset(p + 1, 0, bytes);
}

void mock_shared_give(void *memory)
{
    if (!memory)
        return;
    struct piece *p = (struct piece *)memory - 1;
    p->next = arena->free[p->size];
    arena->free[p->size] = p;
}
