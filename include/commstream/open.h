#ifndef COMMSTREAM_OPEN_H
#define COMMSTREAM_OPEN_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

struct comm_id { unsigned char bytes[128]; };            /* where rank 0 listens, and the job secret: hand it out by any private means */
/* Every rank gives `in`; `out` (ranks x bytes) has all of them, by rank, on return. For hosts that have a store or MPI of their own. */
typedef int comm_exchange_fn(void *arg, const void *in, size_t bytes, void *out);
/* Sized structs have no padding (tests/abi compiles them with -Wpadded): a hole would be garbage that a newer library must refuse. */
typedef void comm_log_fn(void *arg, int level, const char *line); /* 1 error 2 warning 3 info 4 debug 5 trace */

/* AUTO: a helper thread moves work while no caller is inside the library, when usable CPUs exceed local ranks; else callers alone. */
enum comm_progress_mode { COMM_PROGRESS_AUTO = 0, COMM_PROGRESS_CALLER = 1, COMM_PROGRESS_THREAD = 2 };
enum comm_notify_mode {
    COMM_NOTIFY_DEFAULT = 0, /* = ANY */
    COMM_NOTIFY_ANY = 1,     /* callbacks run on whichever thread makes progress: a wait, a test, the helper thread           */
    COMM_NOTIFY_PROGRESS = 2 /* only inside comm_progress: for event loops, whose libraries are not thread safe               */
};
enum comm_order { COMM_ORDER_DEFAULT = 0, COMM_ORDER_FIXED = 1, COMM_ORDER_FREE = 2 };

/*
 * Zero means default everywhere. What the program sets here wins over the environment for identity (who, how many, where to meet, secret);
 * for tuning the environment wins over `options`, so that an operator can change a program he cannot rebuild.
 */
struct comm_config {
    size_t size;              /* sizeof(struct comm_config); COMM_CONFIG fills it                                              */
    int32_t rank, ranks;      /* ranks 0: from the launcher; none found: a world of one                                       */
    const char *backend;      /* auto local shm tcp mpi nccl                                                                  */
    const char *device;       /* "cuda:0"; NULL: the launcher's local rank when CUDA is loaded in this process                */
    const char *address;      /* host:port where ranks meet                                                                    */
    const struct comm_id *id; /* instead of address and secret                                                                 */
    comm_exchange_fn *exchange; void *exchange_arg; /* instead of both                                                         */
    struct comm_communicator *engine_of; /* a further world of this rank on that one's engine: any wait moves both, events join them */
    const void *secret; size_t secret_bytes;
    enum comm_progress_mode progress;
    enum comm_notify_mode notify;
    enum comm_order order;    /* DEFAULT: fixed, but free for a native (mpi, nccl) that was asked for by name                  */
    int32_t log_level;
    int64_t open_timeout_ns, operation_timeout_ns; /* 60 s; 1,800 s                                                            */
    const char *options;      /* "key=value,..." over the option table: everything that is not above                          */
    comm_log_fn *log; void *log_arg;
    char *error_text; size_t error_text_bytes; /* where a failed open says why                                                  */
};
#define COMM_CONFIG(...) (&(struct comm_config){.size = sizeof(struct comm_config), __VA_ARGS__}) /* C; C++: set size, fields */

/* Blocks until all ranks met, at most open_timeout. config NULL: all from the environment. */
COMM_MUST enum comm_result comm_open(const struct comm_config *config, struct comm_communicator **world);
/* All `ranks` ranks inside this process, one communicator each: threads, tests without a launcher, one process with many devices
   (device of rank r: devices[r]; NULL for host). One thread may then drive all of them: what NCCL needs grouped, the library groups. */
COMM_MUST enum comm_result comm_open_local(const struct comm_config *config, int32_t ranks, const char *const *devices,
                                           struct comm_communicator **worlds);
COMM_MUST enum comm_result comm_id_create(const struct comm_config *config, struct comm_id *id); /* rank 0; then opens with it */
/* Drains, at most timeout_ns (COMM_DEFAULT_TIMEOUT 5 s), then lets go, never aborts; c is gone in every case. COMM_ERR_TIMEOUT: something was
   left unfinished and (mpi, nccl) kept on purpose. Waiters in other threads return COMM_ERR_CLOSED first. Unmatched receives are cancelled. */
COMM_API enum comm_result comm_close(struct comm_communicator *c, int64_t timeout_ns);
COMM_API enum comm_result comm_abort(struct comm_communicator *c, int32_t code); /* the whole world; here <= 100 ms; the process goes on */
COMM_MUST enum comm_result comm_revoke(struct comm_communicator *c);
COMM_MUST enum comm_result comm_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req);
COMM_MUST enum comm_result comm_agree(struct comm_communicator *c, uint64_t *flags); /* AND over survivors, the same on all */

#define COMM_NO_COLOR (-1)
enum comm_place { COMM_PLACE_NODE = 1, COMM_PLACE_NUMA = 2, COMM_PLACE_DEVICE = 3 };
struct comm_options { /* of dup; split and subset inherit */
    size_t size;
    const char *name;                  /* in traces and errors                                                             */
    int32_t priority;                  /* 0 normal, 1 overtakes bulk, -1 yields                                             */
    enum comm_order order;
    int64_t operation_timeout_ns;
    struct CUstream_st *stream;        /* device work goes into the caller's stream, as NCCL does; NULL: a stream of its own */
    const char *options;
};
/* Creating calls are operations of the parent's queue: they take their place in line and drain nothing. `*out` is usable when req is
   complete; with req NULL the call waits for it, moving the whole engine, at most the operation timeout. */
COMM_MUST enum comm_result comm_split(struct comm_communicator *c, int32_t color, int32_t key, struct comm_communicator **out, struct comm_request *req);
COMM_MUST enum comm_result comm_split_place(struct comm_communicator *c, enum comm_place place, struct comm_communicator **out, struct comm_request *req);
COMM_MUST enum comm_result comm_subset(struct comm_communicator *c, const int32_t *ranks, size_t count, uint32_t tag,
                                       struct comm_communicator **out, struct comm_request *req); /* called by its members alone */
COMM_MUST enum comm_result comm_split_mesh(struct comm_communicator *c, const int32_t *shape, size_t axes,
                                           struct comm_communicator **axis, struct comm_request *req); /* product == size; last axis fastest; size-1 axes work */
COMM_MUST enum comm_result comm_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                                    struct comm_request *req);

COMM_MUST int32_t comm_rank(const struct comm_communicator *c);
COMM_MUST int32_t comm_size(const struct comm_communicator *c);
COMM_MUST int32_t comm_translate(const struct comm_communicator *c, int32_t rank, const struct comm_communicator *other); /* -1: not there */
struct comm_info {
    size_t size;
    char backend[16], launcher[16], host[64], name[32], library[96], slurm_job[32];
    int32_t rank, ranks, node, nodes, local_rank, local_ranks, cpus, homogeneous;
    uint32_t device_buffers, stream_wait, graph_capture, fixed_order; /* what it can                                        */
    uint32_t device_order, reserved;                                  /* CONTRACT 8: nccl                                    */
    uint64_t queue_max, window, inline_bytes, memory_bytes;
};
COMM_MUST enum comm_result comm_describe(struct comm_communicator *c, struct comm_info *info);
struct comm_peer_info { size_t size; int32_t node, local; char host[64], wire[16], address[64]; };
COMM_MUST enum comm_result comm_describe_peer(struct comm_communicator *c, int32_t peer, struct comm_peer_info *info);

#ifdef __cplusplus
}
#endif

#endif
