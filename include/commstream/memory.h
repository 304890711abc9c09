/**
 * @file memory.h
 * @brief Memory that the library can move with fewer copies.
 *
 * It is optional: every call takes any buffer. Allocated and registered memory belongs to the world of `c`: it can be given back through
 * any communicator of that world, and is given back when the last of them is closed. docs/guide/windows.md describes it. All functions
 * here are local and may be called from any thread.
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
 * @return COMM_OK, COMM_ERR_ARGUMENT, or COMM_ERR_MEMORY (on shm the memory comes out of COMM_SHM_SEGMENT_BYTES)
 */
COMM_MUST enum comm_result comm_mem_alloc(struct comm_communicator *c, size_t bytes, void **ptr);

/**
 * Frees memory of comm_mem_alloc(). No operation may still use it.
 *
 * An address that comm_mem_alloc() did not return changes nothing and is reported by comm_error_detail(). Like MPI_Free_mem and
 * ncclMemFree.
 *
 * @param c    a communicator of the world that it was allocated for
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
 * @return COMM_OK; COMM_ERR_STATE if it is registered already; COMM_ERR_ARGUMENT or COMM_ERR_MEMORY
 */
COMM_MUST enum comm_result comm_mem_register(struct comm_communicator *c, void *ptr, size_t bytes);

/**
 * Undoes comm_mem_register(). No operation may still use the memory. Like ncclCommDeregister.
 *
 * @param c    a communicator of the world that it was registered for; nccl: the same one
 * @param ptr  start of the memory; NULL is ignored
 */
COMM_API void comm_mem_unregister(struct comm_communicator *c, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
