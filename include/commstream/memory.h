#ifndef COMMSTREAM_MEMORY_H
#define COMMSTREAM_MEMORY_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Local calls. Memory that peers on this host can read without a copy; zeroed, page aligned. */
COMM_MUST enum comm_result comm_mem_alloc(struct comm_communicator *c, size_t bytes, void **ptr);
COMM_API void comm_mem_free(struct comm_communicator *c, void *ptr);
COMM_MUST enum comm_result comm_mem_register(struct comm_communicator *c, void *ptr, size_t bytes); /* pin and announce the caller's own */
COMM_API void comm_mem_unregister(struct comm_communicator *c, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
