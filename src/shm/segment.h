/*
 * segment: the memory of one rank that all ranks of its host map. Anonymous (nothing in the file system), sealed against shrinking and
 * growing, so that no peer can take pages away from under a reader; virtual at first, and each page is committed before it is used: want of
 * memory is an error here and never a fault in somebody's copy. Handed out by its owner alone and never taken back before the end.
 */
#ifndef SHM_SEGMENT_H
#define SHM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHM_COMMIT_BYTES = 256 * 1024 };

struct shm_segment {
    char *at; /* NULL: none */
    size_t bytes, committed, used;
    size_t limit; /* from here on it is lent out, and not for `take` */
    int fd;       /* -1: not ours, or closed */
};

/* 0, or an errno and what failed. Touches nothing but the first page, which is committed. number: another one for each of the segments that
 * a process has; it decides where in the caches they lie. */
int shm_segment_create(struct shm_segment *segment, size_t bytes, uint32_t number, const char **what);
/* Maps a peer's; takes over fd in every case and closes it. Refuses one that is not sealed or not as long as said. */
int shm_segment_attach(struct shm_segment *segment, int fd, size_t bytes, uint32_t number, const char **what);
void shm_segment_close(struct shm_segment *segment);
/* Zeroed, committed memory at *offset. 0, or ENOMEM or another errno. */
int shm_segment_take(struct shm_segment *segment, size_t bytes, size_t align, size_t *offset);
/* Whole pages at an offset of the caller's choice, at or above `committed`, and back again: what is put back is zeroed when lent anew. */
int shm_segment_lend(struct shm_segment *segment, size_t offset, size_t bytes, bool interleave);
void shm_segment_put_back(struct shm_segment *segment, size_t offset, size_t bytes);
/* Whole pages of a mapping become this process's own, with the same bytes; whoever else has the segment keeps the old ones. False: no
 * memory. */
bool shm_segment_replace(char *at, size_t bytes);

#endif
