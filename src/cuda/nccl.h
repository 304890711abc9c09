/* The native nccl: one instance per world, one channel per communicator. What its files share. */
#ifndef CUDA_NCCL_H
#define CUDA_NCCL_H

#include "cuda/device.h"
#include "wire/native.h"

/* What a rank tells the others for a new communicator: rank 0's id counts, and whose device each has. */
struct nccl_offer {
    struct nccl_id id;
    uint64_t host;
    char bus[32];
};

/* An operation, or a wait, that was put on the stream; they end in order. */
struct nccl_pending {
    uint64_t cookie;
    struct device_place place; /* where words do not come by themselves: the place behind it */
};
struct nccl_parked {
    uint64_t cookie;
    struct device_place place;
    bool taken;
};

enum { NCCL_SPARES = 40, SPARE_LEAST = 65536, SPARE_LINE = 256 };
enum nccl_state { NCCL_JOINING = 0, NCCL_JOINED, NCCL_FAILED, NCCL_LEFT };

/*
 * Two NCCL communicators: `root` is made without blocking, so that the deadline holds; `comm` is split from it and blocks, so that a
 * collective that returned stands in its stream, and what is recorded behind it really is behind it. Collectives go to `comm`.
 */
struct nccl_channel {
    struct native_channel head;
    struct nccl *owner;
    struct nccl_channel *next; /* of those that are being ended */
    struct cuda_device *d;
    const struct nccl_calls *nccl;
    int32_t rank, size;
    struct nccl_id id;
    struct ncclComm *root, *comm;     /* the joining thread's until `state` says that it is done */
    struct CUstream_st *stream, *own; /* where operations go: the own one, or the caller's */
    uint32_t word;                    /* of the device: the stream writes there how many are done */
    uint64_t base;                    /* what it held at first */
    uint64_t issued, told;            /* operations and waits of this channel, from 0 */
    struct nccl_parked parked[CUDA_PARKS];
    struct nccl_pending *pending; /* a ring, by number */
    uint32_t room;
    uint32_t looks; /* since NCCL was asked last whether all is well */
    int64_t looked_ns, deadline;
    _Atomic uint32_t state;    /* enum nccl_state */
    _Atomic uint32_t aborting; /* the joining thread parks on it */
    int32_t result, code;      /* of the joining: code is NCCL's number, or less than 0: CUDA's */
    struct env_thread joiner, warmer, ender;
    _Atomic uint32_t warmed; /* the warming thread is back */
    unsigned warm_code;
    struct device_place warm;        /* reached: all of it is done on the device too */
    cuda_address spare[NCCL_SPARES]; /* the last one is the largest, and in use */
    size_t spare_bytes;
    uint32_t spares;
    bool joins, warms, ends, aborted, has_id;
};

struct nccl {
    struct native head;
    const struct comm_env *env;
    const struct base_log *log;
    struct base_lock lock; /* of the list, and of the devices */
    struct nccl_channel *ending;
    struct cuda_device *device[CUDA_DEVICES]; /* that are open for it */
    char named[32];                           /* device that was asked for; empty: by rank */
    char (*by_rank)[32];                      /* the same for each rank of the world; NULL: `named` is all ranks' */
    int32_t ranks;
    int64_t join_ns;
    uint64_t host;
    struct nccl *next; /* of those left behind */
    int32_t rank;      /* of the world; -1: all of them are here */
    int32_t local_rank;
    int min_ctas, max_ctas, cga_cluster_size, split_share; /* as in NCCL's configuration: NCCL_UNSET, or what was asked for */
};

/* join.c: what may block runs on threads of its own */
enum comm_result nccl_begin_join(struct nccl_channel *c);
/* Aborts the communicator, or destroys it, and does not wait. */
void nccl_begin_end(struct nccl_channel *c, bool abort);
/* Frees what is ended among those that were closed; waits for the others until the deadline. How many are left. */
uint32_t nccl_reap(struct nccl *n, int64_t deadline);
/* issue.c: the class's calls on the stream */
enum comm_result nccl_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes);
enum comm_result nccl_start(struct native_channel *channel, const struct native_call *call, int32_t *code);
enum comm_result nccl_wait(struct native_channel *channel, const struct native_point *point, uint64_t cookie);
void nccl_reach(struct native_channel *channel, uint64_t cookie);
enum comm_result nccl_await(struct native_channel *channel, uint64_t cookie, struct CUstream_st *stream);
uint32_t nccl_advance(struct native_channel *channel, struct native_event *events, uint32_t max);
unsigned nccl_type(enum comm_type type); /* with those that nccl_accept took */
unsigned nccl_op(comm_op op);
/* moves.c: collectives made of parts. Memory for it, before it has a number; then itself: NCCL's result. */
enum comm_result nccl_reserve(struct nccl_channel *c, const struct native_call *call);
unsigned nccl_move(struct nccl_channel *c, const struct native_call *call);
void nccl_free_spares(struct nccl_channel *c);
/* What a call of NCCL's came to. */
unsigned nccl_settle(struct nccl_channel *c, unsigned result);
void nccl_release_all(struct nccl_channel *c);
enum comm_result nccl_messages(struct native_channel *channel, const struct native_message *messages, uint32_t count, uint64_t cookie,
                               int32_t *code, char *why, size_t why_bytes);
bool nccl_room(struct nccl_channel *c);                                    /* for one more that is pending; false: no memory */
enum comm_result nccl_mark_alone(struct nccl_channel *c, uint64_t cookie); /* as nccl_mark, without the lock */
/* The next number, told by the stream behind what stands on it. With the device entered and locked. */
enum comm_result nccl_mark(struct nccl_channel *c, uint64_t cookie);
extern const struct native_class native_nccl;

#endif
