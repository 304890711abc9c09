/*
 * Windows: memory of all ranks that each of them can read, write and update without the owner taking part. Always open, there are no lock
 * epochs: order and visibility come from flush, fence and signals. Put, get and the atomics are messages: they stand beside the queue and
 * complete on their own: a call whose work is done when it returns gives COMM_REQUEST_NONE. What one rank does to one part is done in the
 * order of its calls. Any thread may call; creating, fencing and freeing are collective. docs/memory.md has the whole.
 *
 * Where ranks share no memory (tcp, several hosts, the caller's own memory on its heap) the same calls are done by a part's owner: by its
 * library, not by its program. One rule for all wires and for progress=caller, thread and auto: what is asked of a part is served within a
 * millisecond by any call of its owner that starts, tests or waits for something on any window or communicator of that world, also one that
 * completes at once; and within ten milliseconds by the owner's watcher, which peers wake, if the owner makes no call at all. On a machine
 * with fewer CPUs than busy threads, the time until one of these threads gets a CPU comes on top. A rank that is asked for nothing pays
 * nothing for it. comm_window_pointer then is UNSUPPORTED for others' parts.
 */
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
    size_t size; /* sizeof(struct comm_window_options) */
    void *base;  /* the caller's own memory instead of ours; of comm_mem_alloc it is reached directly by peers of this host */
    enum comm_placement placement;
    uint32_t signals; /* signal counters per rank; 0: none */
};

/*
 * Makes a window in which this rank has `bytes` of zeroed memory; bytes may differ by rank (0 on all but one per host: one copy per host).
 * Collective, an operation of c's queue; *w is usable when req is complete, with req NULL the call waits. All ranks get it or none does:
 * MEMORY. options NULL: all default.
 * MPI_Win_allocate_shared, ncclCommWindowRegister.
 */
COMM_MUST enum comm_result comm_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                              struct comm_window **w, struct comm_request *req);
/*
 * The address and length of peer's part, to be read and written directly; NULL where it has 0 bytes. Valid until the window is freed.
 * bytes NULL: not wanted. UNSUPPORTED where this rank shares no memory with that part: get, put and the atomics reach it. Local.
 * MPI_Win_shared_query.
 */
COMM_MUST enum comm_result comm_window_pointer(struct comm_window *w, int32_t peer, void **ptr, size_t *bytes);
/*
 * Collective: everything done to the window before, by every rank, is visible to all after. Direct stores through comm_window_pointer
 * count. MPI_Win_fence.
 */
COMM_MUST enum comm_result comm_window_fence(struct comm_window *w, struct comm_request *req);
/*
 * Complete when all that this rank did to the window at `peer` (COMM_ANY_PEER: anywhere) is done there. Local. MPI_Win_flush.
 */
COMM_MUST enum comm_result comm_window_flush(struct comm_window *w, int32_t peer, struct comm_request *req);
/*
 * Writes n elements of `from` at `offset` bytes of peer's part. Complete when `from` may be reused; done at the peer after flush, fence or
 * signal. ARGUMENT past the end. MPI_Rput, shmem_put_nbi.
 */
COMM_MUST enum comm_result comm_put(struct comm_window *w, const void *from, size_t n, enum comm_type type, int32_t peer, size_t offset,
                                    struct comm_request *req);
/*
 * Reads n elements at `offset` bytes of peer's part into `to`, which is the library's until complete. MPI_Rget, shmem_get_nbi.
 */
COMM_MUST enum comm_result comm_get(struct comm_window *w, void *to, size_t n, enum comm_type type, int32_t peer, size_t offset,
                                    struct comm_request *req);
/*
 * Combines n elements of `from` by op into peer's part at `offset` bytes, atomically for each element against other such calls of the same
 * type there. `from` is the library's until complete. UNSUPPORTED: COMM_AVG, an operator of the caller's own, or a pair without meaning.
 * MPI_Raccumulate.
 */
COMM_MUST enum comm_result comm_accumulate(struct comm_window *w, const void *from, size_t n, enum comm_type type, comm_op op, int32_t peer,
                                           size_t offset, struct comm_request *req);
/*
 * As comm_accumulate, and what was there before comes into `old`. COMM_REPLACE swaps, COMM_NOOP reads atomically. Both buffers are the
 * library's until complete. MPI_Fetch_and_op, MPI_Rget_accumulate.
 */
COMM_MUST enum comm_result comm_fetch_op(struct comm_window *w, const void *from, void *old, size_t n, enum comm_type type, comm_op op,
                                         int32_t peer, size_t offset, struct comm_request *req);
/*
 * Puts *desired at `offset` bytes of peer's part if *expected is there, atomically, and gives what was there in *old. One element of an
 * integer type; the three are the library's until complete. MPI_Compare_and_swap.
 */
COMM_MUST enum comm_result comm_compare_swap(struct comm_window *w, const void *expected, const void *desired, void *old,
                                             enum comm_type type, int32_t peer, size_t offset, struct comm_request *req);
/*
 * Adds to counter `slot` of peer's part after all that this rank put there before is done. ARGUMENT: no such slot (options.signals).
 * shmem_put_signal, gasnet and NVSHMEM signals.
 */
COMM_MUST enum comm_result comm_window_signal(struct comm_window *w, int32_t peer, uint32_t slot, uint64_t add, struct comm_request *req);
/*
 * Complete when this rank's own counter `slot` is at least `at_least`; what was put before those signals is visible then. Past the
 * deadline of operations it ends alone with TIMEOUT, with CLOSED when all others have closed; comm_cancel ends it.
 * shmem_signal_wait_until.
 */
COMM_MUST enum comm_result comm_window_wait_signal(struct comm_window *w, uint32_t slot, uint64_t at_least, struct comm_request *req);
/*
 * Ends the window. Collective, and bounded by the deadline of operations; consumes w in every case but STATE; pointers into it end with it,
 * unfinished waits for signals are cancelled, the caller's own memory stays his. What the communicator failed with, or CLOSED, when that
 * came first. Blocks: STATE inside a callback. NULL is fine. MPI_Win_free.
 */
COMM_API enum comm_result comm_window_free(struct comm_window *w);

#ifdef __cplusplus
}
#endif

#endif
