/*
 * A mock CUDA driver and a mock NCCL: two shared objects with the names of the real ones (libcuda.so.1, libnccl.so.2), so that the module
 * loads them as it would load the real ones. Device memory is ordinary memory. A stream is a list of operations. A seeded generator chooses
 * the next operation. Streams share K hardware queues. As on a real device, the head of a queue may block all operations after it, so K = 1
 * is the worst case.
 *
 * A test steps the machine by hand (mock_step), or lets a thread do it (mock_run). It can make a call fail, by the number of the call.
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
    int no_kernels;   /* the driver does not take the module's kernels */
    int no_memops;    /* streams cannot write or wait for words */
    int init_result;  /* what cuInit returns */
    int driver, nccl; /* versions; 0: recent ones */
    int slow_join;    /* queries before an NCCL communicator is ready; -1: it never is */
    int abort_hangs;  /* ncclCommAbort of abort_rank blocks until mock_free_abort */
    int abort_rank;
    int lost_rank;        /* 1 + the rank whose NCCL calls never end while it warms up; 0: none */
    int blocks;           /* how many NCCL operations a device can run at once; 0: all */
    int no_share;         /* devices cannot map memory of other devices */
    int island;           /* devices can access each other's memory in groups of so many; 0: all; 1: none */
    int deaf;             /* what a device reads from another one's memory is wrong */
    int host_ns, peer_ns; /* an exchange of comm_trial through the host's pages, and through the devices' memory; 0: 900, 400 */
    int no_windows;       /* ncclCommWindowRegister makes no window, and returns no error */
    int no_window_rank;   /* 1 + the rank whose ncclCommWindowRegister fails at once; 0: none */
    int many_hosts;       /* each rank's device counts as one of another host, so ranks of this process may share devices */
    int backwards;        /* devices are in reverse order, as CUDA_VISIBLE_DEVICES may request */
    /* mock_fail spares a call if calls of its name were made `first` times since, except each `every`-th; 0: it spares none */
    uint32_t first, every;
};
/* Starts anew. All objects made before must have been freed. */
MOCK_API void mock_reset(const struct mock_options *options);
/* Sets the seed of the choices from now on. */
MOCK_API void mock_seed(uint64_t seed);
/* Sets lost_rank from now on. */
MOCK_API void mock_lose(int lost_rank);
/* Sets slow_join from now on. */
MOCK_API void mock_slow(int slow_join);
/* Runs one operation that can run, chosen by the seed. Returns false if none can. */
MOCK_API bool mock_step(void);
/* Steps until no operation can run. */
MOCK_API void mock_drain(void);
/* on: starts a thread that steps. off: stops it. */
MOCK_API void mock_run(bool on);
/* on: operations run inside the call that lets them run, for measuring. No thread steps meanwhile. */
MOCK_API void mock_at_once(bool on);
/* Puts fn on the stream, as a kernel. */
MOCK_API void mock_kernel(struct CUstream_st *stream, void (*fn)(void *arg), void *arg);
/* Makes the n-th call from now fail (1: the next; 0: none), or the next one after it that is not spared. With sticky all later calls fail
 * too, as after a broken kernel. */
MOCK_API void mock_fail(uint64_t n, bool sticky);
MOCK_API void mock_exempt(bool on);     /* on: calls of this thread are not counted and do not fail */
MOCK_API uint64_t mock_calls(void);     /* since the reset */
MOCK_API const char *mock_failed(void); /* the call that failed, or NULL */
MOCK_API uint64_t mock_failed_at(void); /* its number, as n of mock_fail; 0: none failed */
/* From now on fn runs when a call of this name begins. NULL: it does not any more. */
MOCK_API void mock_at(const char *call, void (*fn)(void *arg), void *arg);
/* Makes the n-th cuStreamWaitEvent from now do nothing. 0: none. */
MOCK_API void mock_drop_wait(uint64_t n);
MOCK_API uint64_t mock_waits(void); /* since the reset */
/* Makes the n-th order from now on have no effect: a wait for an event or for a word does nothing, and a word, or where streams write no
 * words an event, tells at once what it should tell when the stream has come so far. Calls of exempt threads do not count, nor does what
 * tells the host that a stream no longer stands. 0: none. */
MOCK_API void mock_drop_order(uint64_t n);
MOCK_API uint64_t mock_orders(void); /* since the reset */
/* on: what this stream tells does not count as an order, since it tells it to the host alone, which does not ask. */
MOCK_API void mock_spare_orders(struct CUstream_st *stream, bool on);
/* Makes a device's memory managed memory. */
MOCK_API void mock_manage(void *memory);
/* The number of streams, events, memory, contexts and communicators that exist. */
MOCK_API int mock_live(void);
MOCK_API void mock_list_live(void);
MOCK_API uint64_t mock_held(void); /* bytes of memory of devices and pinned memory that exists, together */
MOCK_API uint64_t mock_made(void); /* how many were made since the reset; graphs, which only the program makes, do not count */
MOCK_API void mock_free_abort(void);
/* on: no operation of this stream runs. */
MOCK_API void mock_hold(struct CUstream_st *stream, bool on);
MOCK_API void mock_capture(struct CUstream_st *stream, bool on);
/* From now on ncclCommGetAsyncError reports this for every communicator. 0: no error. */
MOCK_API void mock_async_error(int result);
/* A kernel has failed: the device's streams stop and calls in its context return the error, until `on` is false. As in reality, NCCL does
 * not notice. */
MOCK_API void mock_fault(int device, bool on);
/* Describes a misuse since the reset that would break the real libraries, or NULL. */
MOCK_API const char *mock_misused(void);
/* The number of ids at which NCCL still listens, because not all ranks have joined. */
MOCK_API uint64_t mock_listeners(void);
/* The configuration of the newest communicator. NCCL_UNSET: no value was given. */
struct mock_config {
    int min_ctas, max_ctas, cga_cluster_size, split_share;
};
MOCK_API struct mock_config mock_newest_config(void);
/* Launches of comm_allreduce, and of them those whose slots lie in memory of devices; since the reset. Launches of graphs do not count. */
struct mock_launches {
    uint64_t all, by_devices;
};
MOCK_API struct mock_launches mock_launched(void);
MOCK_API int mock_windows(void); /* windows that exist in this process */
MOCK_API bool mock_idle(void);   /* no operation is on any stream */

#endif
