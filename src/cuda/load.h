/* Finding the driver and NCCL when they are asked for. Each thing that can be missing has a text of its own, which says what to do. */
#ifndef CUDA_LOAD_H
#define CUDA_LOAD_H

#include <commstream/result.h>

#include "cuda/calls.h"

#include <stdbool.h>

/* Where libraries come from: the dynamic loader, or a test. */
struct cuda_source {
    void *(*open)(const char *name, char *why, size_t why_bytes); /* NULL: why */
    void *(*symbol)(void *library, const char *name);             /* NULL: not there */
    void (*close)(void *library);
    /* The n-th folder in which Python packages may be, from 0; empty: not this one; false: there are no more. */
    bool (*packages)(uint32_t n, char *folder, size_t bytes);
};
extern const struct cuda_source cuda_source_system;

/* COMM_OK, or UNSUPPORTED with the missing piece in why; nothing then stays loaded. The driver is started (cuInit), so a process that loads
 * it can no longer use CUDA in a forked child. */
enum comm_result cuda_load_driver(const struct cuda_source *source, struct cuda_calls *calls, int *devices, char *why, size_t why_bytes);
enum comm_result cuda_load_nccl(const struct cuda_source *source, struct nccl_calls *calls, int *version, char *why, size_t why_bytes);

#endif
