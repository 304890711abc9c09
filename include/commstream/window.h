/**
 * @file window.h
 * @brief Windows: one-sided communication. Each rank can read, write and update memory of the others.
 *
 * A window is always open; there are no lock epochs. Flush, fence and signals give order and visibility. Put, get and the atomics are
 * not part of the queue of collectives: each completes on its own. If the work is done when the call returns, the request is
 * COMM_REQUEST_NONE. What one rank does to one part is done in the order of its calls. docs/guide/windows.md has all rules.
 *
 * **Progress.** If ranks share no memory (tcp, several hosts, memory of the caller's heap), the owner of a part carries out the operations:
 * its library does, not its program. This holds for all backends and progress modes: an operation is served within 1 ms by any call of the
 * owner that starts, tests or waits for something on any window or communicator of that world; and within 10 ms by a thread of the
 * owner's library if the owner makes no call at all. If more threads are busy than the host has CPUs, the time until a thread gets a CPU is
 * added.
 *
 * **Errors.** COMM_ERR_ARGUMENT (also for an access outside of a part, and for memory of a device: windows and their buffers are in host
 * memory), COMM_ERR_UNSUPPORTED (this type with this operator, or an option that this library does not know), COMM_ERR_MEMORY,
 * COMM_ERR_FULL (nothing was started: make progress and call again), COMM_ERR_CLOSED (the communicator was closed), COMM_ERR_FORKED, or the
 * error that the communicator failed with. comm_window_create() also returns COMM_ERR_STATE, on a recorder.
 *
 * Any thread may call. Creating, fencing and freeing are collective.
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

/** On which NUMA nodes the pages of a window are. */
enum comm_placement {
    COMM_PLACEMENT_DEFAULT = 0,
    COMM_PLACEMENT_FIRST_TOUCH = 1, /**< where they are first written */
    COMM_PLACEMENT_INTERLEAVE = 2   /**< on all nodes in turn */
};

/** Options of comm_window_create(). */
struct comm_window_options {
    size_t size;                   /**< sizeof(struct comm_window_options) */
    void *base;                    /**< the caller's `bytes` bytes to use, until comm_window_free(); NULL: the library allocates. Ranks of
                                        this host reach memory of comm_mem_alloc() directly. */
    enum comm_placement placement; /**< of memory that the library allocates; with base: COMM_PLACEMENT_DEFAULT */
    uint32_t signals;              /**< number of this rank's signal counters, which begin at 0 */
};

/**
 * Creates a window in which this rank has `bytes` bytes of memory, zeroed unless it is the caller's.
 *
 * Collective: an operation of the queue of c. `bytes` may differ between ranks: for one copy per host, all ranks but one of each host pass
 * 0. Either all ranks get the window or none does. Like MPI_Win_allocate_shared and ncclCommWindowRegister.
 *
 * @param c        communicator
 * @param bytes    size of this rank's part
 * @param options  NULL: all default; copied
 * @param w        receives the window when the request completes; must stay valid until then
 * @param req      receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                              struct comm_window **w, struct comm_request *req);

/**
 * Gets the address of a rank's part, for direct loads and stores. Local. Like MPI_Win_shared_query.
 *
 * In a communicator of several hosts, and over tcp, a rank gets the address of its own part only. For parts that the ranks of one host
 * share, make the window in a communicator of comm_split_place().
 *
 * @param w      the window
 * @param peer   rank, 0 to comm_size(c) - 1
 * @param ptr    receives the address, valid until the window is freed; NULL if the part has 0 bytes
 * @param bytes  receives the length; NULL: not wanted
 * @return COMM_OK; COMM_ERR_UNSUPPORTED if this rank shares no memory with that part (use comm_get() and comm_put()); otherwise an error,
 *         listed in window.h(3)
 */
COMM_MUST enum comm_result comm_window_pointer(struct comm_window *w, int32_t peer, void **ptr, size_t *bytes);

/**
 * Makes everything that any rank did to the window before visible to all ranks after, direct stores included.
 *
 * Collective. Like MPI_Win_fence.
 *
 * @param w    the window
 * @param req  receives the request; NULL: none is returned, and comm_sync() waits for the operation. The call itself never waits.
 * @return COMM_OK if the operation was queued; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_window_fence(struct comm_window *w, struct comm_request *req);

/**
 * Completes when everything that this rank did to a part is done there. Local. Like MPI_Win_flush.
 *
 * @param w     the window
 * @param peer  rank of the part; COMM_ANY_PEER: all parts
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation. The call itself never waits.
 * @return COMM_OK if the operation was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_window_flush(struct comm_window *w, int32_t peer, struct comm_request *req);

/**
 * Writes n elements to a rank's part.
 *
 * The request completes when `from` may be reused. The data is in the part after a flush, fence or signal. Like MPI_Rput and
 * shmem_put_nbi.
 *
 * @param w       the window
 * @param from    n elements; the library's until the request completes
 * @param n       number of elements
 * @param type    element type
 * @param peer    rank of the part
 * @param offset  offset in the part, in bytes
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_put(struct comm_window *w, const void *from, size_t n, enum comm_type type, int32_t peer, size_t offset,
                                    struct comm_request *req);

/**
 * Reads n elements of a rank's part. Like MPI_Rget and shmem_get_nbi.
 *
 * @param w       the window
 * @param to      room for n elements; the library's until the request completes
 * @param n       number of elements
 * @param type    element type
 * @param peer    rank of the part
 * @param offset  offset in the part, in bytes
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_get(struct comm_window *w, void *to, size_t n, enum comm_type type, int32_t peer, size_t offset,
                                    struct comm_request *req);

/**
 * Combines n elements with those of a rank's part, and stores the result there. Like MPI_Raccumulate.
 *
 * Each element is updated atomically with respect to other accumulate, fetch_op and compare_swap calls of the same type.
 *
 * @param w       the window
 * @param from    n elements; the library's until the request completes
 * @param n       number of elements
 * @param type    element type
 * @param op      built-in operator; COMM_REPLACE stores `from`; COMM_NOOP changes nothing, and does not use `from`. COMM_AVG,
 *                pre-multiplied sums and user-defined operators are COMM_ERR_UNSUPPORTED
 * @param peer    rank of the part
 * @param offset  offset in the part, in bytes
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_accumulate(struct comm_window *w, const void *from, size_t n, enum comm_type type, comm_op op, int32_t peer,
                                           size_t offset, struct comm_request *req);

/**
 * As comm_accumulate(), and fetches the elements that were in the part before. Like MPI_Fetch_and_op and MPI_Rget_accumulate.
 *
 * @param w       the window
 * @param from    n elements; the library's until the request completes; not used with COMM_NOOP, where it may be NULL
 * @param old     room for n elements; the library's until the request completes
 * @param n       number of elements
 * @param type    element type
 * @param op      as in comm_accumulate(): COMM_REPLACE swaps, COMM_NOOP only reads
 * @param peer    rank of the part
 * @param offset  offset in the part, in bytes
 * @param req     receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_fetch_op(struct comm_window *w, const void *from, void *old, size_t n, enum comm_type type, comm_op op,
                                         int32_t peer, size_t offset, struct comm_request *req);

/**
 * Replaces one element of a rank's part if it has the expected value, atomically. Like MPI_Compare_and_swap.
 *
 * @param w         the window
 * @param expected  one element: the value to compare with; the library's until the request completes
 * @param desired   one element: the new value; the library's until the request completes
 * @param old       receives the value before; the library's until the request completes
 * @param type      an integer type or COMM_BYTE (otherwise COMM_ERR_UNSUPPORTED)
 * @param peer      rank of the part
 * @param offset    offset in the part, in bytes
 * @param req       receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_compare_swap(struct comm_window *w, const void *expected, const void *desired, void *old,
                                             enum comm_type type, int32_t peer, size_t offset, struct comm_request *req);

/**
 * Adds to a signal counter of another rank, after everything that this rank put there before is done.
 *
 * Like shmem_put_signal and the signals of NVSHMEM and GASNet.
 *
 * @param w     the window
 * @param peer  rank whose counter it is
 * @param slot  number of the counter, 0 to options.signals - 1 of that rank
 * @param add   the number to add
 * @param req   receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_window_signal(struct comm_window *w, int32_t peer, uint32_t slot, uint64_t add, struct comm_request *req);

/**
 * Completes when a signal counter of this rank has reached a value. What was put before those signals is visible then.
 *
 * The request ends with COMM_ERR_TIMEOUT at the operation's deadline, with COMM_ERR_CLOSED when all other ranks have closed, and by
 * comm_cancel(); none of these fails the communicator. Like shmem_signal_wait_until.
 *
 * @param w         the window
 * @param slot      number of the counter, 0 to options.signals - 1
 * @param at_least  the value
 * @param req       receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the wait was started; otherwise an error, listed in window.h(3)
 */
COMM_MUST enum comm_result comm_window_wait_signal(struct comm_window *w, uint32_t slot, uint64_t at_least, struct comm_request *req);

/**
 * Frees a window. Collective. It blocks, at most the operation timeout. Like MPI_Win_free.
 *
 * Pointers into the window become invalid, waits for signals are cancelled, and memory of the caller's stays the caller's. The window is
 * freed also if an error is returned, except COMM_ERR_STATE and COMM_ERR_FORKED. While another thread closes the communicator, the call
 * waits for the end of that close, because unfinished operations may still use the window's memory.
 *
 * @param w  the window; NULL is ignored
 * @return COMM_OK; COMM_ERR_STATE inside a callback, also inside one that comm_close() runs; COMM_ERR_FORKED in a forked child;
 *         COMM_ERR_CLOSED if the communicator was closed or is being closed; COMM_ERR_MEMORY; COMM_ERR_FULL if other threads keep the queue
 *         full; or what the communicator failed with
 */
COMM_API enum comm_result comm_window_free(struct comm_window *w);

#ifdef __cplusplus
}
#endif

#endif
