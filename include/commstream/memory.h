/*
 * Memory that the library can move with fewer copies. Nothing needs it: every call takes any buffer. All calls are local and may be made
 * from any thread. What is allocated or registered belongs to the world of c: through any communicator of that world it can be given back,
 * and with the last of them it ends. docs/memory.md tells what becomes of it.
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

/*
 * `bytes` of zeroed, page-aligned memory that peers on this host can read without a copy. The caller's until comm_mem_free. MEMORY when
 * there is none (on shm it comes out of COMM_SHM_SEGMENT_BYTES), ARGUMENT for 0. Peers may still read, never write, what an operation that
 * failed was given. MPI_Alloc_mem, ncclMemAlloc.
 */
COMM_MUST enum comm_result comm_mem_alloc(struct comm_communicator *c, size_t bytes, void **ptr);
/*
 * Gives back memory of comm_mem_alloc; no operation may still use it. NULL is fine; any other address changes nothing and is told by
 * comm_error_detail. MPI_Free_mem, ncclMemFree.
 */
COMM_API void comm_mem_free(struct comm_communicator *c, void *ptr);
/*
 * Announces the caller's own memory to the wires, so that operations on it need not. It stays the caller's and stays mapped until
 * comm_mem_unregister. STATE: it is registered already. On shared memory nothing is gained by it. ncclCommRegister, ibv_reg_mr.
 */
COMM_MUST enum comm_result comm_mem_register(struct comm_communicator *c, void *ptr, size_t bytes);
/*
 * Takes back comm_mem_register of this address; no operation may still use the memory. NULL is fine. ncclCommDeregister.
 */
COMM_API void comm_mem_unregister(struct comm_communicator *c, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
