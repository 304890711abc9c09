/* Loads the driver and NCCL on request. Each thing that can be missing has its own error text, which says what to do. */
#ifndef CUDA_LOAD_H
#define CUDA_LOAD_H

#include <commstream/result.h>

#include "cuda/calls.h"

#include <stdbool.h>

/* Where libraries come from: the dynamic loader, or a test. */
struct cuda_source {
    void *(*open)(const char *name, char *why, size_t why_bytes); /* on NULL, `why` has the reason */
    void *(*symbol)(void *library, const char *name);             /* NULL: not found */
    void (*close)(void *library);
    /* Writes the n-th folder (from 0) that may hold Python packages, or an empty string. Returns false if n is past the last one. */
    bool (*packages)(uint32_t n, char *folder, size_t bytes);
};
extern const struct cuda_source cuda_source_system;

/* Return COMM_OK, or UNSUPPORTED with the missing piece in `why`; then nothing stays loaded. cuda_load_driver also initializes the driver
 * (cuInit). After that, a forked child of the process cannot use CUDA. */
enum comm_result cuda_load_driver(const struct cuda_source *source, struct cuda_calls *calls, int *devices, char *why, size_t why_bytes);
enum comm_result cuda_load_nccl(const struct cuda_source *source, struct nccl_calls *calls, int *version, char *why, size_t why_bytes);

/* CUDA_LAUNCH_BLOCKING: a call that launches a kernel returns when the kernel has ended. */
bool cuda_launches_block(void);

#endif
