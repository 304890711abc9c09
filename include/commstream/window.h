#ifndef COMMSTREAM_WINDOW_H
#define COMMSTREAM_WINDOW_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

enum comm_placement { COMM_PLACEMENT_DEFAULT = 0, COMM_PLACEMENT_FIRST_TOUCH = 1, COMM_PLACEMENT_INTERLEAVE = 2 };
struct comm_window_options {
    size_t size;
    void *base;                     /* the caller's own memory instead of ours        */
    enum comm_placement placement;
    uint32_t signals;               /* signal counters per rank; 0: none              */
};
/* Collective; bytes may differ by rank (0 on all but the leader: one copy per host); zeroed. Always open: no lock epochs. Where memory cannot be
   shared (ranks on several hosts, no shm) the same calls work on a private copy per rank, and comm_window_pointer says so for others' parts. */
COMM_MUST enum comm_result comm_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                              struct comm_window **w, struct comm_request *req);
COMM_MUST enum comm_result comm_window_pointer(struct comm_window *w, int32_t peer, void **ptr, size_t *bytes); /* same host only */
COMM_MUST enum comm_result comm_window_fence(struct comm_window *w, struct comm_request *req); /* collective: all before, on all, is visible */
COMM_MUST enum comm_result comm_window_flush(struct comm_window *w, int32_t peer, struct comm_request *req); /* mine are done at peer (or ANY) */
COMM_MUST enum comm_result comm_put(struct comm_window *w, const void *from, size_t n, enum comm_type type, int32_t peer, size_t offset,
                                    struct comm_request *req); /* offset in bytes; complete: `from` may be reused */
COMM_MUST enum comm_result comm_get(struct comm_window *w, void *to, size_t n, enum comm_type type, int32_t peer, size_t offset,
                                    struct comm_request *req);
COMM_MUST enum comm_result comm_accumulate(struct comm_window *w, const void *from, size_t n, enum comm_type type, comm_op op, int32_t peer,
                                           size_t offset, struct comm_request *req); /* atomic per element */
COMM_MUST enum comm_result comm_fetch_op(struct comm_window *w, const void *from, void *old, size_t n, enum comm_type type, comm_op op,
                                         int32_t peer, size_t offset, struct comm_request *req); /* REPLACE swaps, NOOP reads atomically */
COMM_MUST enum comm_result comm_compare_swap(struct comm_window *w, const void *expected, const void *desired, void *old,
                                             enum comm_type type, int32_t peer, size_t offset, struct comm_request *req);
COMM_MUST enum comm_result comm_window_signal(struct comm_window *w, int32_t peer, uint32_t slot, uint64_t add, struct comm_request *req);
COMM_MUST enum comm_result comm_window_wait_signal(struct comm_window *w, uint32_t slot, uint64_t at_least, struct comm_request *req);
COMM_API enum comm_result comm_window_free(struct comm_window *w); /* collective, bounded */

#ifdef __cplusplus
}
#endif

#endif
