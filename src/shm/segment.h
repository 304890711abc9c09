/*
 * segment: the memory of one rank, which all ranks of its host map. It is anonymous (nothing in the file system), and sealed against
 * shrinking and growing, so that no peer can remove pages under a reader. It is virtual at first, and each page is committed before it is
 * used, so a lack of memory is an error and never a fault in a copy. Only its owner allocates from it, and returns nothing before the end.
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
    size_t limit; /* memory from here on is lent out, and not available to `take` */
    int fd;       /* -1: another rank's, or closed */
};

/* Returns 0, or an errno and what failed. Commits and touches only the first page. number: different for each segment of a process; it
 * decides their offset in the caches. */
int shm_segment_create(struct shm_segment *segment, size_t bytes, uint32_t number, const char **what);
/* Maps a peer's segment. Takes over fd and closes it in every case. Refuses a segment that is not sealed or has another length. */
int shm_segment_attach(struct shm_segment *segment, int fd, size_t bytes, uint32_t number, const char **what);
void shm_segment_close(struct shm_segment *segment);
/* Zeroed, committed memory at *offset. Returns 0, or ENOMEM or another errno. */
int shm_segment_take(struct shm_segment *segment, size_t bytes, size_t align, size_t *offset);
/* Whole pages at an offset that the caller chooses, at or above `committed`. What is put back is zeroed when it is lent again. */
int shm_segment_lend(struct shm_segment *segment, size_t offset, size_t bytes, bool interleave);
void shm_segment_put_back(struct shm_segment *segment, size_t offset, size_t bytes);
/* Makes whole pages of a mapping private to this process, with the same bytes. Other processes keep the old ones. False: no memory. */
bool shm_segment_replace(char *at, size_t bytes);

#endif
