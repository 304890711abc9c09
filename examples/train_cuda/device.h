/* The little of the CUDA driver that this example calls, loaded while it runs: the example is built where CUDA is not. A program with the
 * CUDA toolkit calls cudaMalloc, cudaMemcpyAsync and so on instead, and gives the library the same streams and addresses. */
#ifndef TRAIN_CUDA_DEVICE_H
#define TRAIN_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

bool device_load(void); /* before any communicator is made; false: there is no driver, and it was said */
/* One of the devices for each rank of a host, counted round; its context becomes the thread's. */
bool device_use(int rank_of_host);
struct CUstream_st *device_stream(void);
void device_drop_stream(struct CUstream_st *stream);
void *device_memory(size_t bytes);
void device_free(void *memory);
void *device_pinned(size_t bytes); /* memory of the host that the device copies without waiting; zeroed */
void device_free_pinned(void *memory);
void device_copy(struct CUstream_st *stream, void *to, const void *from, size_t bytes); /* either way; ends the program if it cannot */

#endif
