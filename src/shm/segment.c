/* Creates, maps, commits and lends the memory of segments. */
#define _GNU_SOURCE
#include "shm/segment.h"

#include "base/edge.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
enum { SKEWS = 256, SKEW_PAGES = 157 /* odd, so that all SKEWS values occur */ };

/*
 * Segments are mapped side by side, and their length is a high power of two. So equal offsets in several segments would differ only in high
 * bits of the address. First-level caches that predict the way from a hash of the lower bits (AMD's since Zen) hold only one of such lines
 * at a time; stores to both in turn took eight times as long. Therefore each segment is followed by a different number of unused pages.
 */
static int map(struct shm_segment *s, uint32_t number, const char **what)
{
    size_t skew = (size_t)((number + 1) * SKEW_PAGES % SKEWS) * 4096;
    char *at = mmap(NULL, s->bytes + skew, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *mapped = MAP_FAILED;
    if (at != MAP_FAILED)
        mapped = mmap(at, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, s->fd, 0);
    if (mapped == MAP_FAILED) {
        int error = errno;
        if (at != MAP_FAILED)
            munmap(at, s->bytes + skew);
        *what = "mapping a shared segment";
        return error;
    }
    if (skew)
        munmap(at + s->bytes, skew);
    s->at = at;
    /* A forked child must not use the segment, and could not distinguish its parent's words from its own. */
    if (madvise(at, s->bytes, MADV_DONTFORK) < 0) {
        *what = "keeping a shared segment from children";
        return errno;
    }
    return 0;
}

static int commit(struct shm_segment *s, size_t end)
{
    if (end <= s->committed)
        return 0;
    size_t goal = (end + SHM_COMMIT_BYTES - 1) & ~(size_t)(SHM_COMMIT_BYTES - 1);
    goal = goal < s->limit ? goal : s->limit;
    for (;;) {
        if (!fallocate(s->fd, 0, (off_t)s->committed, (off_t)(goal - s->committed)))
            break;
        if (errno == EINTR)
            continue;
        if (goal == end)
            return errno;
        goal = end; /* there is not enough memory for a whole step, but perhaps for what is needed */
    }
    s->committed = goal;
    return 0;
}

int shm_segment_create(struct shm_segment *s, size_t bytes, uint32_t number, const char **what)
{
    *s = (struct shm_segment){.bytes = bytes, .limit = bytes, .fd = memfd_create("commstream", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    int error = 0;
    if (s->fd < 0)
        *what = "memfd_create";
    else if (ftruncate(s->fd, (off_t)bytes) < 0)
        *what = "sizing a shared segment";
    else if (fcntl(s->fd, F_ADD_SEALS, SEALS) < 0)
        *what = "sealing a shared segment";
    else
        error = -1;
    error = error ? map(s, number, what) : errno;
    if (!error && (error = commit(s, 4096)))
        *what = "committing the first page of a shared segment";
    if (error)
        shm_segment_close(s);
    return error;
}

int shm_segment_attach(struct shm_segment *s, int fd, size_t bytes, uint32_t number, const char **what)
{
    struct stat status;
    *s = (struct shm_segment){.bytes = bytes, .fd = fd};
    int seals = fcntl(fd, F_GET_SEALS), error = 0;
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &status) < 0 || status.st_size != (off_t)bytes) {
        *what = "a peer's segment is not sealed, or not as long as it said";
        error = EPROTO;
    } else {
        error = map(s, number, what);
    }
    close(fd);
    s->fd = -1;
    if (error)
        shm_segment_close(s);
    return error;
}

void shm_segment_close(struct shm_segment *s)
{
    if (s->at) {
        edge_open(s->at, s->used);
        munmap(s->at, s->bytes);
    }
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct shm_segment){.fd = -1};
}

int shm_segment_take(struct shm_segment *s, size_t bytes, size_t align, size_t *offset)
{
    size_t start = (s->used + align - 1) & ~(align - 1);
    if (start > s->limit || bytes > s->limit - start)
        return ENOMEM;
    int error = commit(s, start + bytes);
    if (error)
        return error;
    s->used = start + bytes;
    *offset = start;
    if (EDGE_BYTES > 0 && s->used + EDGE_BYTES <= s->limit) {
        edge_close(s->at + s->used, EDGE_BYTES);
        s->used += EDGE_BYTES;
    }
    return 0;
}

/* Interleaves the pages over all memory nodes that this process may use. If the kernel or a sandbox refuses, the default placement remains:
 * only speed depends on it. */
static void spread(char *at, size_t bytes)
{
    unsigned long nodes[1024 / (8 * sizeof(unsigned long))] = {0};
    const int interleave = 3, allowed = 1 << 2;

    if (!syscall(SYS_get_mempolicy, NULL, nodes, sizeof nodes * 8, NULL, allowed))
        (void)syscall(SYS_mbind, at, bytes, interleave, nodes, sizeof nodes * 8, 0);
}

int shm_segment_lend(struct shm_segment *s, size_t offset, size_t bytes, bool interleave)
{
    if (interleave)
        spread(s->at + offset, bytes);
    while (fallocate(s->fd, 0, (off_t)offset, (off_t)bytes)) {
        int error = errno;
        if (error == EINTR)
            continue;
        shm_segment_put_back(s, offset, bytes); /* a part may have been allocated */
        return error;
    }
    return 0;
}

/* The address range always has pages, since other threads may be reading there. */
bool shm_segment_replace(char *at, size_t bytes)
{
    char *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (fresh == MAP_FAILED)
        return false;
    memcpy(fresh, at, bytes);
    (void)madvise(fresh, bytes, MADV_DONTFORK);
    if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
        return true;
    munmap(fresh, bytes);
    return false;
}

void shm_segment_put_back(struct shm_segment *s, size_t offset, size_t bytes)
{
    (void)syscall(SYS_mbind, s->at + offset, bytes, 0, NULL, 0, 0);
    (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}
