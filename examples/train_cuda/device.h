/* The few CUDA driver calls that this example needs. They are loaded at run time, so the example builds without CUDA. A program with the
 * CUDA toolkit calls cudaMalloc, cudaMemcpyAsync and so on instead, and passes the same streams and addresses to the library. */
#ifndef TRAIN_CUDA_DEVICE_H
#define TRAIN_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

bool device_load(void); /* call it before any communicator is created; on false it has printed why */
/* Selects a device for the rank, round-robin over the ranks of a host. Makes its context current for the thread. */
bool device_use(int rank_of_host);
struct CUstream_st *device_stream(void);
void device_drop_stream(struct CUstream_st *stream);
void *device_memory(size_t bytes);
void device_free(void *memory);
void *device_pinned(size_t bytes); /* zeroed host memory, which the device copies asynchronously */
void device_free_pinned(void *memory);
void device_copy(struct CUstream_st *stream, void *to, const void *from, size_t bytes); /* in either direction; exits on an error */

#endif
