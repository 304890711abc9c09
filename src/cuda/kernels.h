/*
 * The module's kernels. They are loaded once for each device, by a thread that may block. A device has none where the build had no nvcc, or
 * where its driver does not take what nvcc made; then the host does what they would.
 */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include "cuda/combine_kernel.h"
#include "cuda/device.h"

/* What nvcc made of kernels.cu (cmake/kernels.cmake). */
extern const unsigned char cuda_kernels[];
extern const unsigned cuda_kernels_bytes; /* 0: there was no nvcc */

/* In these the caller has entered the device. */
void cuda_load_kernels(struct cuda_device *d);
void cuda_unload_kernels(struct cuda_device *d);
bool cuda_can_fold(struct cuda_device *d, enum comm_type type, comm_op op);
/* Only where cuda_can_fold. Puts the reduction on the stream. */
unsigned cuda_fold(struct cuda_device *d, const struct fold_args *args, struct CUstream_st *stream);
/* The reduction of a block of all ranks, most of which are in pinned memory. */
bool cuda_can_combine(struct cuda_device *d);
unsigned cuda_combine(struct cuda_device *d, const struct combine_args *args, struct CUstream_st *stream);
/* The allreduce in one kernel. Staged buffers are registered memory, so a device that cannot use host pointers does not run it. */
bool cuda_can_run_oneshot(struct cuda_device *d);
unsigned cuda_run_oneshot(struct cuda_device *d, const struct oneshot_args *args, struct CUstream_st *stream);
/* The kernel that times exchanges. */
bool cuda_can_try(struct cuda_device *d);
unsigned cuda_run_trial(struct cuda_device *d, const struct oneshot_trial *trial, struct CUstream_st *stream);

#endif
