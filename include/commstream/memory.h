/**
 * @file memory.h
 * @brief Memory that the library can move with fewer copies.
 *
 * It is optional: every call takes any buffer. Allocated and registered memory belongs to the world of `c`: it can be given back through
 * any communicator of that world, and is given back when the last of them is closed. docs/guide/windows.md describes it, and
 * docs/guide/cuda.md memory of devices. All functions here may be called from any thread. All but comm_mem_alloc_symmetric() are local.
 */
#ifndef COMMSTREAM_MEMORY_H
#define COMMSTREAM_MEMORY_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Allocates zeroed, page-aligned memory that other ranks of this host can read without a copy.
 *
 * Other ranks write it only as the output of an operation that runs, or as a part of a window. After an operation fails, they may still
 * read what it was given. On a communicator of backend nccl it is memory of the rank's device, and is not zeroed. Like MPI_Alloc_mem and
 * ncclMemAlloc.
 *
 * @param c      a communicator of the world that uses the memory
 * @param bytes  number of bytes, at least 1
 * @param ptr    receives the address; free it with comm_mem_free()
 * @return COMM_OK, COMM_ERR_ARGUMENT, COMM_ERR_CLOSED, or COMM_ERR_MEMORY (on shm the memory comes out of COMM_SHM_SEGMENT_BYTES)
 */
COMM_MUST enum comm_result comm_mem_alloc(struct comm_communicator *c, size_t bytes, void **ptr);

/**
 * Allocates memory of the same length on every rank, in all ranks' call together, and registers it with them.
 *
 * Collective: an operation of the queue of c. Either all ranks get memory or none does. It is memory of comm_mem_alloc(), freed by
 * comm_mem_free(). On backend nccl the ranks also register it with each other as a symmetric window, which NCCL's fastest kernels need:
 * ncclMemAlloc and ncclCommWindowRegister with NCCL_WIN_COLL_SYMMETRIC. Like shmem_malloc, except that other ranks reach the memory in
 * collectives only. NCCL below 2.27 has no windows: each rank registers for itself (ncclCommRegister), and a warning says so once. On
 * other backends nothing is registered.
 *
 * The window belongs to c alone. In operations of other communicators, those made of c too, the memory is memory of comm_mem_alloc(). On
 * nccl all ranks give an operation of c memory of the same such call at the same offset, or none does. NCCL does not check that: otherwise
 * the operation may end only by its deadline, or have a wrong result.
 *
 * The request waits for all ranks. A rank that does not call fails the communicator at the deadline, and a rank that dies at once, as in
 * any operation. Until the request completes, other calls on device buffers of c may return COMM_ERR_FULL. Lengths that differ are
 * COMM_ERR_ARGUMENT on every rank, and too little memory on one rank is COMM_ERR_MEMORY on every rank: then the communicator works on, and
 * comm_error_detail() names the rank and its length. If NCCL could not register on one rank, all ranks get COMM_ERR_BACKEND.
 *
 * @param c      a communicator
 * @param bytes  number of bytes, at least 1, the same on every rank
 * @param ptr    receives the address when the request completes; must stay valid until then
 * @param req    receives the request; NULL: none is returned, and comm_sync() waits for the operation. The call itself never waits.
 * @return COMM_OK if the operation was queued; COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, COMM_ERR_FULL (nothing was started: make progress and
 *         call again), COMM_ERR_STATE (c is a recorder), COMM_ERR_CLOSED, or the error that the communicator failed with
 */
COMM_MUST enum comm_result comm_mem_alloc_symmetric(struct comm_communicator *c, size_t bytes, void **ptr, struct comm_request *req);

/**
 * Frees memory of comm_mem_alloc() or comm_mem_alloc_symmetric(). No operation may still use it.
 *
 * It is local, and works after a failure and after comm_abort() too. An address that those calls did not return changes nothing and is
 * reported by comm_error_detail(). Symmetric memory on nccl is freed when its communicator has ended, if that failed or if another
 * communicator is given here; otherwise at once. Like MPI_Free_mem, ncclMemFree and ncclCommWindowDeregister.
 *
 * @param c    an open communicator of the world that it was allocated for; a closed one frees nothing
 * @param ptr  the address; NULL is ignored
 */
COMM_API void comm_mem_free(struct comm_communicator *c, void *ptr);

/**
 * Registers the caller's own memory, to avoid registration in each operation.
 *
 * The memory stays the caller's and must stay mapped until comm_mem_unregister(). A communicator of backend nccl registers memory of its
 * device with NCCL, for its own operations; if NCCL cannot, the memory is used as any other. On other backends the call only records the
 * memory. Like ncclCommRegister and ibv_reg_mr.
 *
 * @param c      a communicator of the world that uses the memory; nccl: the one whose operations use it
 * @param ptr    start of the memory
 * @param bytes  its length
 * @return COMM_OK; COMM_ERR_STATE if memory with this start is registered already; COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_mem_register(struct comm_communicator *c, void *ptr, size_t bytes);

/**
 * Undoes comm_mem_register(). No operation may still use the memory. Like ncclCommDeregister.
 *
 * An address that was not registered changes nothing and is reported by comm_error_detail().
 *
 * @param c    an open communicator of the world that it was registered for; nccl: the same one
 * @param ptr  start of the memory; NULL is ignored
 */
COMM_API void comm_mem_unregister(struct comm_communicator *c, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
