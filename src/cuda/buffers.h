/* Whose memory an address is, how far that goes, and which bytes of its buffers a call uses. */
#ifndef CUDA_BUFFERS_H
#define CUDA_BUFFERS_H

#include "cuda/device.h"
#include "wire/native.h"

enum { CUDA_OWNER_HOST = -1, CUDA_OWNER_UNKNOWN = -2 };
struct cuda_memory {
    int32_t owner;     /* the ordinal of the device, or one of the values above. Managed memory is a device's */
    bool managed;      /* the driver moves it by itself */
    cuda_address past; /* of a device: behind the last byte of the allocation, or of the piece of it that was mapped by itself */
};
/* The caller need not have entered the device. Here and below it may have. */
struct cuda_memory cuda_ask(struct cuda_device *d, const void *at);
/* How many of the bytes, from the first on, are memory of devices; with `owner`, of that one. `is` says what has the first of them. */
size_t cuda_bytes_of(struct cuda_device *d, const struct cuda_memory *is, const void *at, size_t bytes, int32_t owner);
enum { CUDA_OWNER_ANY = -3 };

/* A buffer of a call. One without bytes was not asked about, and counts as the host's. */
struct cuda_buffer {
    const char *name; /* of the argument */
    const void *at;
    size_t bytes; /* from `at` to the last one that the call uses */
    struct cuda_memory is;
};
struct cuda_buffers {
    struct cuda_buffer in, out; /* if one lies in the other (in place), it has no bytes here */
};
/* Asks once about each buffer. */
struct cuda_buffers cuda_ask_buffers(struct cuda_device *d, const struct native_call *call, int32_t rank, int32_t ranks);
/* ARGUMENT, with the reason in why: the buffer, whose first byte is the device's, has not all of its bytes there. */
enum comm_result cuda_check_end(struct cuda_device *d, const struct cuda_buffer *b, char *why, size_t why_bytes);

#endif
