/*
 * Memory of a run, at the same addresses in every run: a mistaken dependence on an address then behaves the same each
 * time. Blocks come from two arenas: small ones that stay mapped, and large ones whose pages are returned to the system
 * after a run, because most of a large block is never touched. Freed memory is poisoned and reused by size.
 */
#define _GNU_SOURCE
#include "base/edge.h"
#include "sim/inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#    define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { LARGE = 32768, CLASSES = 40, POISON = 0xdb, POISON_MOST = 512, CLASS_STEPS = 4, HUGE = 1 << 20, PAGE = 4096 };
#define SMALL_BYTES (UINT64_C(1) << 30)
#define LARGE_BYTES (UINT64_C(1) << 36)
#define ARENA_AT UINT64_C(0x200000000000)

struct spare {
    struct spare *next;
};
struct arena {
    char *at;
    size_t bytes, used, dirty; /* dirty: earlier runs wrote up to here */
    struct spare *spare[CLASSES * CLASS_STEPS];
};
static struct arena arena[2];

static char *map(uint64_t where, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = mmap((void *)(uintptr_t)where, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0);

    if (at == MAP_FAILED) /* the place may be taken, for example by a sanitizer: then use any address */
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

/* Sizes are rounded up to a quarter of a power of two. */
static size_t class_of(size_t bytes, size_t *rounded)
{
    size_t power = 63 - (size_t)__builtin_clzll(bytes), step = ((size_t)1 << power) / CLASS_STEPS;

    *rounded = (bytes + step - 1) / step * step;
    power = 63 - (size_t)__builtin_clzll(*rounded);
    return power * CLASS_STEPS + (*rounded - ((size_t)1 << power)) / (((size_t)1 << power) / CLASS_STEPS);
}

void sim_memory_reset(void)
{
    for (int large = 0; large < 2; large++) {
        struct arena *a = &arena[large];
        if (!a->at) {
            a->bytes = large ? LARGE_BYTES : SMALL_BYTES;
            a->at = map(large ? ARENA_AT + SMALL_BYTES : ARENA_AT, a->bytes);
        }
        if (a->used > a->dirty)
            a->dirty = a->used;
        if (large && a->used) {
            madvise(a->at, a->used, MADV_DONTNEED);
            a->dirty = 0;
        }
        a->used = 0;
        memset(a->spare, 0, sizeof a->spare);
    }
}

void *sim_memory_take(size_t bytes, size_t align)
{
    size_t rounded = 0;

    bytes = bytes < 64 ? 64 : (bytes + 63) & ~(size_t)63;
    struct arena *a = &arena[bytes >= LARGE];
    size_t class = class_of(bytes, &rounded);
    struct spare *spare = align <= 64 ? a->spare[class] : NULL;
    if (spare) {
        a->spare[class] = spare->next;
        memset(spare, 0, bytes);
        return spare;
    }
    rounded = (rounded + 63) & ~(size_t)63;
    size_t at = (a->used + align - 1) & ~(align - 1);
    if (at + rounded > a->bytes)
        return NULL;
    a->used = at + rounded;
    edge_open(a->at + at, rounded); /* a run may have left it closed: its ranks were killed */
    if (at < a->dirty)
        memset(a->at + at, 0, rounded);
    return a->at + at;
}

void sim_memory_give(void *memory, size_t bytes, bool poison)
{
    size_t rounded = 0;

    bytes = bytes < 64 ? 64 : (bytes + 63) & ~(size_t)63;
    struct arena *a = &arena[bytes >= LARGE];
    size_t class = class_of(bytes, &rounded);
    edge_open(memory, bytes);
    if (poison)
        memset(memory, POISON, bytes < POISON_MOST ? bytes : POISON_MOST);
    struct spare *spare = memory;
    spare->next = a->spare[class];
    a->spare[class] = spare;
    if (bytes >= HUGE) { /* while a large world opens, each of its ranks has one such block */
        uintptr_t begin = ((uintptr_t)memory + POISON_MOST + PAGE - 1) & ~(uintptr_t)(PAGE - 1), end = (uintptr_t)memory + bytes;
        madvise((void *)begin, (end - begin) & ~(uintptr_t)(PAGE - 1), MADV_DONTNEED);
    }
}
