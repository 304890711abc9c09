/* The native backend nccl: one instance per world, one channel per communicator. This header is shared by its files. */
#ifndef CUDA_NCCL_H
#define CUDA_NCCL_H

#include "cuda/buffers.h"
#include "data/data.h"
#include "wire/native.h"

/* What a rank sends to the others for a new communicator. NCCL's id is taken from rank 0. `host` and `bus` name the rank's device. */
struct nccl_offer {
    struct nccl_id id;
    uint64_t host;
    char bus[32];
};

/* An operation or a wait that was put on the stream. They end in order. */
struct nccl_pending {
    uint64_t cookie, mark;     /* it is done when the stream has reported `mark` operations */
    struct device_place place; /* the place after it, if the stream cannot write words */
    bool captured;             /* a graph has it: the stream reports nothing, so it is done when those before it are */
};
/* A wait of the stream for what only the host sees. */
struct nccl_waited {
    uint64_t cookie;
    bool reached;
};
/* All of them, in their order. The stream waits for a word, in which the host counts those that are reached, from the first on. */
struct nccl_waits {
    uint32_t gate;              /* the word; 0: none yet */
    uint64_t base;              /* the word's first value */
    uint64_t put, passed;       /* waits that were put on the stream; of them, how many the word has let pass */
    struct nccl_waited *waited; /* a ring, indexed by number */
    uint32_t room;
};

/* Reductions by the host's kernels (fold.c). */
struct nccl_folds {
    void *pinned; /* NULL: none yet */
    cuda_address inputs;
    struct nccl_step *steps; /* all that were made */
};

enum { NCCL_SPARES = 40, SPARE_LEAST = 65536, SPARE_LINE = 256 };
enum nccl_state { NCCL_JOINING = 0, NCCL_JOINED, NCCL_FAILED, NCCL_LEFT };

/* NCCL's calls that may block run on threads of their own. The bools: the thread was started, and has not been waited for. */
struct nccl_threads {
    struct env_thread joiner, warmer, ender;
    bool joins, warms, ends;
};

/* A registration of memory with all ranks (window.c), which blocks and so runs on a thread of its own. */
struct nccl_windows {
    struct env_thread thread;
    bool runs;             /* the thread was started, and has not been waited for */
    _Atomic uint32_t over; /* it has returned from NCCL */
    unsigned result;
    size_t bytes;
    struct nccl_memory *memory; /* that it registers */
};

/* Queries of NCCL and CUDA for errors (complete.c). */
struct nccl_health {
    uint32_t looks;   /* how often the channel was polled: one poll in 64 may query */
    int64_t asked_ns; /* the time of the last query */
};

/* A group of calls (group.c). */
struct nccl_group_calls {
    bool open;      /* the program's group is being started */
    uint32_t count; /* calls in NCCL's group, which is open if there are any. They are in `pending` behind the issued ones */
};

/* Device memory between the steps of a call. */
struct nccl_spares {
    cuda_address at[NCCL_SPARES]; /* the last one is the largest and the one in use */
    size_t bytes;                 /* of that one */
    uint32_t count;
};

/*
 * A channel has two NCCL communicators. `root` is nonblocking, so that the deadline can be kept. `comm` is split from it and is blocking:
 * when a collective call returns, the collective is on the stream, and an event recorded then is after it. Collectives use `comm`.
 */
struct nccl_channel {
    struct native_channel head;
    struct nccl *owner;
    struct nccl_channel *next; /* in the list of channels that are ending */
    struct cuda_device *d;
    const struct nccl_calls *nccl;
    int32_t rank, size;
    struct nccl_id id;
    struct ncclComm *root, *comm;     /* owned by the joining thread until `state` says that it is done */
    struct CUstream_st *stream, *own; /* `stream` takes the operations: `own`, or the caller's */
    uint32_t word;                    /* a word of the device, to which the stream writes how many are done */
    uint64_t base;                    /* the word's first value */
    uint64_t issued, told;            /* numbers of operations and waits of this channel, from 0 */
    uint64_t marks;                   /* how many of them the stream reports */
    struct cuda_capture held;         /* by graphs */
    struct nccl_waits waits;
    struct nccl_pending *pending; /* a ring, indexed by number */
    uint32_t room;
    struct nccl_health health;
    int64_t deadline;
    _Atomic uint32_t state;    /* enum nccl_state */
    _Atomic uint32_t aborting; /* the joining thread waits on it */
    int32_t result, code;      /* of the join; code is NCCL's error, or the negative of CUDA's */
    struct nccl_threads threads;
    _Atomic uint32_t warmed; /* the warming thread has returned */
    unsigned warm_code;
    struct device_place warm; /* reached when the device has finished the warming too */
    struct nccl_spares spares;
    struct nccl_group_calls group;
    uint32_t ways;    /* NATIVE_* of the call that was accepted last */
    unsigned made[2]; /* NCCL's operators of the pre-multiplied sum that is being issued: by this rank's factor, and by 1 */
    struct nccl_folds folds;
    struct nccl_enlisted *enlisted; /* registered memory */
    struct nccl_windows windows;
    bool aborted, has_id;
};

/* Memory of ncclMemAlloc, or of cuMemAlloc where NCCL is too old (memory.c). */
struct nccl_memory {
    struct nccl_memory *next;
    void *at;
    struct cuda_device *d;
    struct nccl_channel *of; /* whose ranks have registered it, or may have; NULL: nobody's */
    struct ncclWindow_vidmem *window;
    bool given; /* back, and kept because of `of` */
};

struct nccl {
    struct native head;
    const struct comm_env *env;
    const struct base_log *log;
    struct base_lock lock; /* protects the lists and the devices */
    struct nccl_channel *ending;
    struct nccl_memory *memory;
    struct cuda_device *device[CUDA_DEVICES]; /* the devices that this world has opened */
    char named[32];                           /* the configured device; empty: chosen by rank */
    char (*by_rank)[32];                      /* the same for each rank of the world; NULL: all use `named` */
    int32_t ranks;
    int64_t join_ns;
    uint64_t host;
    struct nccl *next; /* in the list of worlds left behind */
    int32_t rank;      /* in the world; -1: all ranks are in this process */
    int32_t local_rank;
    bool falls_back;                                       /* option nccl_fallback */
    _Atomic bool said_shared;                              /* that two ranks have one device */
    _Atomic bool said_windows;                             /* that this NCCL has no windows */
    int min_ctas, max_ctas, cga_cluster_size, split_share; /* NCCL's configuration: NCCL_UNSET, or the value asked for */
};

/* join.c: calls that may block run on separate threads */
enum comm_result nccl_begin_join(struct nccl_channel *c);
/* Starts to abort or destroy the communicator, and does not wait. */
void nccl_begin_end(struct nccl_channel *c, bool abort);
/* Frees the closed channels that have ended, and waits for the others until the deadline. Returns how many are left. */
uint32_t nccl_reap(struct nccl *n, int64_t deadline);
/* probe.c: uses NCCL with this rank alone. COMM_OK: it works. */
enum comm_result nccl_try(const struct native_config *config);
/* issue.c: the class's functions that put work on the stream */
enum comm_result nccl_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes);
uint32_t nccl_ways(struct native_channel *channel);
const char *nccl_algorithm(struct native_channel *channel, const struct native_call *call, const char **how);
enum comm_result nccl_start(struct native_channel *channel, const struct native_call *call, int32_t *code);
/* waits.c: the class's functions of waits */
enum comm_result nccl_wait(struct native_channel *channel, const struct native_point *point, uint64_t cookie);
enum comm_result nccl_keep_waits(struct native_channel *channel, uint32_t count);
void nccl_reach(struct native_channel *channel, uint64_t cookie);
enum comm_result nccl_await(struct native_channel *channel, uint64_t cookie, struct CUstream_st *stream);
void nccl_release_all(struct nccl_channel *c); /* after a failure */
/* COMM_OK: it is memory of the channel's device. Otherwise ARGUMENT or BACKEND, with the reason in why. */
enum comm_result nccl_check_buffer(struct nccl_channel *c, const struct cuda_buffer *b, char *why, size_t why_bytes);
unsigned nccl_type(enum comm_type type); /* only for types that nccl_accept took */
/* neutral: for neutral elements, which no factor may change: a factor that is not finite makes NaNs of them. */
unsigned nccl_op(const struct nccl_channel *c, const struct native_call *call, bool neutral);
bool nccl_serves(const struct native_call *call); /* NCCL has the type and the operator, with the result that is expected */
/* group.c: whether the call joins the group that is open; the same on all ranks. nccl_join_group comes before the call and returns NCCL's
 * result. nccl_end_group puts the group on the stream, and has the stream report it; the caller has entered the device. */
enum comm_result nccl_group(struct native_channel *channel, bool open, int32_t *code);
bool nccl_joins_group(const struct nccl_channel *c, const struct native_call *call);
unsigned nccl_join_group(struct nccl_channel *c, uint64_t cookie, bool captured);
enum comm_result nccl_end_group(struct nccl_channel *c, int32_t *code);
/* complete.c: returns what has ended */
uint32_t nccl_advance(struct native_channel *channel, struct native_event *events, uint32_t max);
/* moves.c: collectives composed of several NCCL calls. nccl_reserve gets the memory before the operation has a number; nccl_move issues
 * the operation and returns NCCL's result. */
enum comm_result nccl_reserve(struct nccl_channel *c, const struct native_call *call);
unsigned nccl_move(struct nccl_channel *c, const struct native_call *call);
void nccl_free_spares(struct nccl_channel *c);
uint64_t nccl_neutral_of(enum comm_type type, comm_op op); /* the bits of the neutral element of a reduction */
/* fold.c: reductions that NCCL lacks, on device buffers. The same two steps. */
enum comm_result nccl_reserve_fold(struct nccl_channel *c, const struct native_call *call);
unsigned nccl_fold(struct nccl_channel *c, const struct native_call *call);
bool nccl_free_folds(struct nccl_channel *c); /* the caller has entered the device; false: the stream still uses them */
/* memory.c: the class's functions of memory. nccl_forget_memory frees what is left of a world's; nccl_forget_enlisted forgets what was
 * registered with a communicator of NCCL's that is gone, and frees what was kept until then. */
void *nccl_take(struct native_channel *channel, size_t bytes);
void nccl_give(struct native *native, void *memory);
void nccl_enlist(struct native_channel *channel, void *memory, size_t bytes);
void nccl_delist(struct native_channel *channel, void *memory);
void nccl_forget_memory(struct nccl *n);
void nccl_forget_enlisted(struct nccl_channel *c);
bool nccl_can_enlist(const struct nccl_channel *c); /* false: its NCCL communicator is not there, or another thread is inside */
void nccl_delist_late(struct nccl_channel *c);      /* what could not be delisted because of such a thread */
/* window.c: the class's functions of memory that all ranks register. nccl_call_windows_back makes the thread that registers return, which
 * it must before the communicator is freed; false: it does not. nccl_delist_window: false if it is not a window of this channel.
 * nccl_end_windows deregisters what is left, before the communicator is destroyed; the caller has entered the device. */
enum comm_result nccl_enlist_all(struct native_channel *channel, void *memory, size_t bytes);
enum comm_result nccl_enlisted_all(struct native_channel *channel);
bool nccl_call_windows_back(struct nccl_channel *c);
bool nccl_delist_window(struct nccl_channel *c, void *memory);
void nccl_end_windows(struct nccl_channel *c);
/* Returns the final result of an NCCL call. */
unsigned nccl_settle(struct nccl_channel *c, unsigned result);
enum comm_result nccl_messages(struct native_channel *channel, const struct native_message *messages, uint32_t count, uint64_t cookie,
                               int32_t *code, char *why, size_t why_bytes);
/* graph.c: calls on a stream that is being captured. The caller has entered the device. nccl_capture tells whether the stream is; then its
 * graph holds the channel from now on. An error: the call cannot be captured, with the reason in `why`. */
enum comm_result nccl_capture(struct nccl_channel *c, bool *captured, char *why, size_t why_bytes);
bool nccl_is_capturing(struct nccl_channel *c);
void nccl_record_captured(struct nccl_channel *c, uint64_t cookie);
bool nccl_room(struct nccl_channel *c); /* makes room for one more pending entry; false: no memory */
/* nccl_mark for a caller without the lock. captured: a graph has the operation, so the stream reports nothing. */
enum comm_result nccl_mark_alone(struct nccl_channel *c, uint64_t cookie, bool captured);
/* Has the stream report the next number after everything now on it. The caller has entered and locked the device. */
enum comm_result nccl_mark(struct nccl_channel *c, uint64_t cookie);
extern const struct native_class native_nccl;

#endif
