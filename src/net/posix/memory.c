/*
 * Memory on Linux. Large pieces are separate mappings, small ones come from the heap. Pieces in between, of which communicators are made,
 * are kept when they are returned, for the next request of the same size. Otherwise, when communicators are created and closed in a row,
 * the heap would return its end to the kernel and request it again each time, with a system call and a page fault per page.
 */
#define _GNU_SOURCE
#include "net/posix/posix.h"

#include "base/check.h"
#include "base/edge.h"
#include "base/lock.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, MAP_FROM_BYTES = 256 * 1024, KEEP_FROM_BYTES = 4096, KEEP_STEP_BYTES = 1024, KEEP_ALIGN = 128 };
/* Sanitizers must see uses after free, so nothing is kept. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KEEP_MOST_BYTES = 0 };
#else
enum { KEEP_MOST_BYTES = 8 << 20 };
#endif

struct piece {
    struct piece *next;
};
/* One for the process, like the heap. The lists are by length. */
static struct {
    struct base_lock lock;
    size_t bytes;
    struct piece *list[MAP_FROM_BYTES / KEEP_STEP_BYTES];
} kept;

static size_t mapped_bytes(size_t bytes)
{
    return ((bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1)) + EDGE_PAGE_BYTES;
}

/* New pages are zero already and cost nothing until they are touched. */
static void *take_mapped(size_t bytes, size_t align)
{
    size_t extra = align > PAGE_BYTES ? align : 0, wanted = mapped_bytes(bytes);

    if (wanted < bytes || wanted + extra < wanted)
        return NULL;
    char *at = mmap(NULL, wanted + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    if (extra) {
        char *first = (char *)(((uintptr_t)at + align - 1) & ~(uintptr_t)(align - 1));
        if (first > at)
            munmap(at, (size_t)(first - at));
        if (first + wanted < at + wanted + extra)
            munmap(first + wanted, (size_t)(at + wanted + extra - (first + wanted)));
        at = first;
    }
    edge_close(at + bytes, EDGE_PAGE_BYTES ? wanted - bytes : 0);
    if (EDGE_PAGE_BYTES)
        (void)mprotect(at + wanted - EDGE_PAGE_BYTES, EDGE_PAGE_BYTES,
                       PROT_NONE); /* protects against the kernel too, whose writes no sanitizer sees */
    return at;
}

/* ------------------------------------------------------------------------------------------------------------ kept pieces */
static bool is_kept(size_t bytes)
{
    return KEEP_MOST_BYTES > 0 && bytes >= KEEP_FROM_BYTES && bytes <= MAP_FROM_BYTES - KEEP_STEP_BYTES;
}

static size_t whole_steps(size_t bytes)
{
    return (bytes + KEEP_STEP_BYTES - 1) & ~(size_t)(KEEP_STEP_BYTES - 1);
}

static void *take_kept(const struct comm_env *env, size_t bytes)
{
    size_t whole = whole_steps(bytes);
    void *memory = NULL;

    base_lock(&kept.lock, env);
    struct piece **list = &kept.list[whole / KEEP_STEP_BYTES], *piece = *list;
    if (piece) {
        *list = piece->next;
        kept.bytes -= whole;
    }
    base_unlock(&kept.lock, env);
    if (!piece && posix_memalign(&memory, KEEP_ALIGN, whole) != 0)
        return NULL;
    return piece ? piece : memory;
}

static void give_kept(const struct comm_env *env, void *memory, size_t bytes)
{
    size_t whole = whole_steps(bytes);
    struct piece *piece = memory;

    base_lock(&kept.lock, env);
    bool keep = kept.bytes + whole <= KEEP_MOST_BYTES && (uintptr_t)memory % KEEP_ALIGN == 0;
    if (keep) {
        struct piece **list = &kept.list[whole / KEEP_STEP_BYTES];
        piece->next = *list;
        *list = piece;
        kept.bytes += whole;
    }
    base_unlock(&kept.lock, env);
    if (!keep)
        free(memory);
}

/* ------------------------------------------------------------------------------------------------------------ env's */
void *posix_take(const struct comm_env *env, size_t bytes, size_t align)
{
    void *memory = NULL;

    BASE_ASSERT(align != 0 && (align & (align - 1)) == 0);
    if (bytes >= MAP_FROM_BYTES)
        return take_mapped(bytes, align);
    if (is_kept(bytes) && align <= KEEP_ALIGN)
        memory = take_kept(env, bytes);
    else if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align,
                            is_kept(bytes) ? whole_steps(bytes)
                            : bytes        ? bytes
                                           : 1) != 0)
        return NULL; /* rounded like a kept piece, because it may become one */
    return memory ? memset(memory, 0, bytes) : NULL;
}

void posix_give(const struct comm_env *env, void *memory, size_t bytes)
{
    if (memory && bytes >= MAP_FROM_BYTES) {
        edge_open(memory, mapped_bytes(bytes));
        munmap(memory, mapped_bytes(bytes));
    } else if (memory && is_kept(bytes)) {
        give_kept(env, memory, bytes);
    } else {
        free(memory);
    }
}
