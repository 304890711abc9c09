#define _GNU_SOURCE
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int map(struct shm_segment *s, const char **what)
{
    void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
    if (at == MAP_FAILED) {
        *what = "mapping a shared segment";
        return errno;
    }
    s->at = at;
    /* A forked child has no business here, and could not tell its parent's words from its own. */
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
    goal = goal < s->bytes ? goal : s->bytes;
    for (;;) {
        if (!fallocate(s->fd, 0, (off_t)s->committed, (off_t)(goal - s->committed)))
            break;
        if (errno == EINTR)
            continue;
        if (goal == end)
            return errno;
        goal = end; /* not even a step, but perhaps what is needed */
    }
    s->committed = goal;
    return 0;
}

int shm_segment_create(struct shm_segment *s, size_t bytes, const char **what)
{
    *s = (struct shm_segment){.bytes = bytes, .fd = memfd_create("commstream", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    int error = 0;
    if (s->fd < 0)
        *what = "memfd_create";
    else if (ftruncate(s->fd, (off_t)bytes) < 0)
        *what = "sizing a shared segment";
    else if (fcntl(s->fd, F_ADD_SEALS, SEALS) < 0)
        *what = "sealing a shared segment";
    else
        error = -1;
    error = error ? map(s, what) : errno;
    if (!error && (error = commit(s, 4096)))
        *what = "committing the first page of a shared segment";
    if (error)
        shm_segment_close(s);
    return error;
}

int shm_segment_attach(struct shm_segment *s, int fd, size_t bytes, const char **what)
{
    struct stat status;
    *s = (struct shm_segment){.bytes = bytes, .fd = fd};
    int seals = fcntl(fd, F_GET_SEALS), error = 0;
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &status) < 0 || status.st_size != (off_t)bytes) {
        *what = "a peer's segment is not sealed, or not as long as it said";
        error = EPROTO;
    } else {
        error = map(s, what);
    }
    close(fd);
    s->fd = -1;
    if (error)
        shm_segment_close(s);
    return error;
}

void shm_segment_close(struct shm_segment *s)
{
    if (s->at)
        munmap(s->at, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct shm_segment){.fd = -1};
}

int shm_segment_take(struct shm_segment *s, size_t bytes, size_t align, size_t *offset)
{
    size_t start = (s->used + align - 1) & ~(align - 1);
    if (start > s->bytes || bytes > s->bytes - start)
        return ENOMEM;
    int error = commit(s, start + bytes);
    if (error)
        return error;
    s->used = start + bytes;
    *offset = start;
    return 0;
}
