/*
 * Memory of a device that other devices map too, in this process or in another one of the host. It is freed when the last mapping and the
 * last handle in any process is gone, also where a process has died. So its owner may free it while peers still read it.
 *
 * In all of these the caller has entered the device. They return CUDA's result, and leave nothing behind on an error.
 */
#ifndef ONESHOT_SHARE_H
#define ONESHOT_SHARE_H

#include "cuda/device.h"

struct cuda_share {
    cuda_memory memory;
    cuda_address at; /* where its own device has it; 0: there is none */
    size_t bytes;
};

/* Can the device have such memory, which is exported as a file descriptor? */
bool cuda_can_share(struct cuda_device *d);
/* False: the device with this number (device_class.where) is visible, and CUDA says that `d` cannot access it. */
bool cuda_may_reach(struct cuda_device *d, uint64_t hardware);
/* At least so many bytes. */
unsigned cuda_share_make(struct cuda_device *d, size_t bytes, struct cuda_share *share);
void cuda_share_free(struct cuda_device *d, struct cuda_share *share);
/* The caller closes the descriptor. */
unsigned cuda_share_export(struct cuda_device *d, const struct cuda_share *share, int *descriptor);
/* Maps memory of another device for this one; of another process: by its descriptor, which stays the caller's. */
unsigned cuda_share_map(struct cuda_device *d, cuda_memory memory, size_t bytes, cuda_address *at);
unsigned cuda_share_import(struct cuda_device *d, int descriptor, size_t bytes, cuda_address *at);
void cuda_share_unmap(struct cuda_device *d, cuda_address at, size_t bytes);

#endif
