/*
 * A mock CUDA driver and NCCL: two shared objects under the real ones' names (libcuda.so.1, libnccl.so.2), so that the module loads them
 * as it would the real ones. Device memory is memory; a stream is a list of operations; what runs next is drawn from a seed. Streams share
 * K hardware queues, in each of which the head holds back all behind it, as a real one may: K = 1 is the worst case.
 *
 * A test steps by hand (mock_step), or lets a thread do it (mock_run). Each call may be made to fail, by its number.
 */
#ifndef MOCK_H
#define MOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

#define MOCK_API __attribute__((visibility("default")))

struct mock_options {
    uint64_t seed;
    int devices;      /* 0: 8 */
    int queues;       /* hardware queues of a device; 0: 8; 32: each stream has its own */
    int no_memops;    /* streams cannot write or wait for words */
    int init_result;  /* of cuInit */
    int driver, nccl; /* versions; 0: recent ones */
    int slow_join;    /* asks after an NCCL communicator before it is ready; -1: it never is */
    int abort_hangs;  /* ncclCommAbort of abort_rank does not return until mock_free_abort */
    int abort_rank;
    int lost_rank; /* 1 + the rank whose calls of NCCL never come to an end while it warms up; 0: none */
    int blocks;    /* how many operations of NCCL a device has room for at once; 0: all */
    int backwards; /* the devices in another order, as CUDA_VISIBLE_DEVICES may say */
};
/* Everything from the start; what was made before must be gone. */
MOCK_API void mock_reset(const struct mock_options *options);
/* What is drawn from now on. */
MOCK_API void mock_seed(uint64_t seed);
/* Runs one operation that can run, drawn by the seed; false: none can. */
MOCK_API bool mock_step(void);
/* Steps until nothing can run. */
MOCK_API void mock_drain(void);
/* on: a thread steps, until off. */
MOCK_API void mock_run(bool on);
/* What a kernel would do, in the stream's order. */
MOCK_API void mock_kernel(struct CUstream_st *stream, void (*fn)(void *arg), void *arg);
/* Call number n from now (1: the next) fails; 0: none. With sticky all after it fail too, as after a broken kernel. */
MOCK_API void mock_fail(uint64_t n, bool sticky);
MOCK_API void mock_exempt(bool on);     /* calls of this thread neither count nor fail */
MOCK_API uint64_t mock_calls(void);     /* since the reset */
MOCK_API const char *mock_failed(void); /* the call that failed; NULL: none has */
/* fn runs when a call of this name begins, from now on; NULL: no more. */
MOCK_API void mock_at(const char *call, void (*fn)(void *arg), void *arg);
/* The n-th cuStreamWaitEvent from now does nothing; 0: none. */
MOCK_API void mock_drop_wait(uint64_t n);
MOCK_API uint64_t mock_waits(void); /* since the reset */
/* Streams, events, memory, contexts, communicators that exist. */
MOCK_API int mock_live(void);
MOCK_API void mock_list_live(void);
MOCK_API void mock_free_abort(void);
/* on: nothing of this stream runs. */
MOCK_API void mock_hold(struct CUstream_st *stream, bool on);
MOCK_API void mock_capture(struct CUstream_st *stream, bool on);
/* From now on NCCL tells this of every communicator that is asked after. 0: all is well. */
MOCK_API void mock_async_error(int result);
/* A kernel has failed: the device's streams stand, and calls in its context say so, until `on` is false. NCCL is not told. */
MOCK_API void mock_fault(int device, bool on);
/* What was done that the real libraries do not survive; NULL: nothing since the reset. */
MOCK_API const char *mock_misused(void);
/* Ids of communicators at which NCCL still listens, since not all ranks came. */
MOCK_API uint64_t mock_listeners(void);
/* What the newest communicator was configured with; NCCL_UNSET: nothing was asked for. */
struct mock_config {
    int min_ctas, max_ctas, cga_cluster_size, split_share;
};
MOCK_API struct mock_config mock_newest_config(void);
MOCK_API bool mock_idle(void); /* no operation is on any stream */

#endif
