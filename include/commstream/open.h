/**
 * @file open.h
 * @brief Worlds and communicators: open, split, duplicate, close, recover.
 *
 * A *world* is all ranks of one comm_open(). A *communicator* is some ranks of a world, with a work queue of their own. The communicators
 * of one world, and of worlds that joined it (config.engine_of), share one *engine*, which moves their work.
 *
 * Structs that begin with `size` can grow in later versions. They have no padding, and zero means default in every field. A field that the
 * library does not know must be zero (otherwise COMM_ERR_UNSUPPORTED).
 *
 * Any thread may call. comm_open(), comm_open_local() and comm_close() block. comm_close() returns COMM_ERR_STATE inside a callback; do not
 * open a world there.
 */
#ifndef COMMSTREAM_OPEN_H
#define COMMSTREAM_OPEN_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Identifies one world, so that its ranks find each other. It contains a secret, so hand it out by private means. Like ncclUniqueId.
 *
 * With a backend over TCP, or with an address given, it also contains the address at which rank 0 listens (comm_id_create()).
 */
struct comm_id {
    unsigned char bytes[128]; /**< opaque */
};

/**
 * Exchanges data between the ranks of a world that is opening, for programs that have a store or MPI of their own.
 *
 * Every rank passes `bytes` bytes and gets those of all ranks, as an allgather. comm_open() calls it on the thread that opens, several
 * times, and the same number of times on every rank if all name the same backend. It may block; the library cannot interrupt it. So a rank
 * that has no memory, or that cannot use the backend, calls it once to say so, and the others return an error too. A rank whose options are
 * wrong does not call it.
 *
 * @param arg    config.exchange_arg
 * @param in     this rank's data
 * @param bytes  its length, the same on all ranks
 * @param out    room for ranks * bytes; receives the data of all ranks in rank order
 * @return 0, or another number if the exchange failed
 */
typedef int comm_exchange_fn(void *arg, const void *in, size_t bytes, void *out);

/**
 * Receives lines of the log.
 *
 * A thread of the library that does nothing else calls it, one line after the other, so it may block or lock. While it does, 256 more lines
 * are kept; further ones are dropped, and a line reports how many. It is not called after the last comm_close() of the world, or a
 * comm_open() that failed, has returned. A call that takes longer than 0.2 s may still be running then.
 *
 * @param arg    config.log_arg
 * @param level  what the line is: COMM_LOG_ERROR to COMM_LOG_TRACE of enum comm_log_level
 * @param line   text without a newline, valid until the function returns
 */
typedef void comm_log_fn(void *arg, int level, const char *line);

/** How much is logged. COMM_LOG in the environment overrides a program's choice. */
enum comm_log_level {
    COMM_LOG_OFF = -1,    /**< nothing */
    COMM_LOG_DEFAULT = 0, /**< errors and warnings */
    COMM_LOG_ERROR = 1,   /**< errors */
    COMM_LOG_WARNING = 2, /**< and warnings */
    COMM_LOG_INFO = 3,    /**< and, once, what was chosen and why */
    COMM_LOG_DEBUG = 4,   /**< and connections, progress and the like */
    COMM_LOG_TRACE = 5    /**< and each operation */
};

/** Who moves work while no thread of the program is inside the library. */
enum comm_progress_mode {
    COMM_PROGRESS_AUTO = 0,   /**< a progress thread, if there are several ranks and the host has more usable CPUs than ranks; otherwise
                                   nobody */
    COMM_PROGRESS_CALLER = 1, /**< nobody: work moves inside calls */
    COMM_PROGRESS_THREAD = 2  /**< a progress thread */
};

/** Where callbacks run. */
enum comm_notify_mode {
    COMM_NOTIFY_DEFAULT = 0, /**< as COMM_NOTIFY_ANY */
    COMM_NOTIFY_ANY = 1,     /**< on any thread that makes progress: in a wait or test, or on the progress thread */
    COMM_NOTIFY_PROGRESS = 2 /**< only inside comm_progress() and comm_close(): for event loops that are not thread-safe */
};

/** The order of operands in reductions. */
enum comm_order {
    COMM_ORDER_DEFAULT = 0, /**< fixed; for backends mpi and nccl named by the user: free */
    COMM_ORDER_FIXED = 1,   /**< the same call gives the same bits with every backend */
    COMM_ORDER_FREE = 2     /**< the order of the backend's library */
};

/**
 * How to open a world.
 *
 * For identity (rank, ranks, address, secret) these fields override the environment. For backend, progress, order, log level, timeouts and
 * `options` the environment overrides the program, so that an operator can change them without building it again. `notify` and
 * COMM_ORDER_FIXED are the program's alone: with the latter, another COMM_ORDER is COMM_ERR_CONFIG. Strings and arrays are copied; a
 * function and its argument must stay valid as long as the world.
 */
struct comm_config {
    size_t size;                         /**< sizeof(struct comm_config); COMM_CONFIG sets it */
    int32_t rank;                        /**< this rank, 0 to ranks - 1; not used if ranks is 0 */
    int32_t ranks;                       /**< number of ranks; 0: from the launcher, or else 1 */
    const char *backend;                 /**< auto, local, shm, tcp, shm+tcp, mpi, shm+mpi, nccl or cuda; NULL: auto */
    const char *device;                  /**< "cuda:0"; NULL: that with the number of the local rank, modulo the number of devices. For
                                              nccl, cuda, streams, device buffers */
    const char *address;                 /**< for tcp HOST:PORT of rank 0, or file:PATH; otherwise a name where ranks of a host meet */
    const struct comm_id *id;            /**< instead of address and secret: it has a secret, and perhaps an address. If one of these is
                                              given too, it is used instead of the id's; all ranks then give the same */
    comm_exchange_fn *exchange;          /**< instead of address; overrides COMM_ADDRESS and a launcher's address too */
    void *exchange_arg;                  /**< passed to exchange */
    struct comm_communicator *engine_of; /**< join the engine of this communicator: one wait moves both worlds, events work in both, and
                                              `notify` and the log are those that the engine was opened with */
    const void *secret;                  /**< the secret of the job, at least 16 bytes, not all 0: ranks prove to each other that they have
                                              it */
    size_t secret_bytes;                 /**< its length */
    enum comm_progress_mode progress;    /**< who moves work */
    enum comm_notify_mode notify;        /**< where callbacks run */
    enum comm_order order;               /**< the order of operands */
    enum comm_log_level log_level;       /**< how much is logged */
    int64_t open_timeout_ns;             /**< how long comm_open() waits for the other ranks; 0: 60 s; not negative; at most
                                              a year, so that is what COMM_FOREVER means */
    int64_t operation_timeout_ns;        /**< the deadline of each operation, on this rank; 0: 1,800 s; not negative */
    const char *options;                 /**< "key=value,...", keys of docs/reference/options.md */
    comm_log_fn *log;                    /**< receives the log; NULL: standard error, written by the same thread */
    void *log_arg;                       /**< passed to log */
    char *error_text;                    /**< room for the reason why comm_open() failed; NULL: not wanted */
    size_t error_text_bytes;             /**< its size */
};

/** A pointer to a config, in C: COMM_CONFIG(.ranks = 4, .rank = r). In C++ set size and the fields. */
#define COMM_CONFIG(...) (&(struct comm_config){.size = sizeof(struct comm_config), __VA_ARGS__})

/**
 * Opens the world of this job, and returns this rank's communicator of all ranks.
 *
 * Collective. It blocks until all ranks have come, at most open_timeout_ns. Like MPI_Init with MPI_COMM_WORLD, and ncclCommInitRank.
 *
 * @param config  NULL: everything from the environment; without a launcher a world of one rank
 * @param world   receives the communicator; NULL on an error. Close it with comm_close().
 * @return COMM_OK; COMM_ERR_CONFIG (error_text names every wrong value); COMM_ERR_TIMEOUT (error_text names the ranks that are missing);
 *         COMM_ERR_UNSUPPORTED (error_text names what is missing); COMM_ERR_PEER if a rank died meanwhile; COMM_ERR_FULL if the engine has
 *         64 worlds or 16,384 communicators; COMM_ERR_CLOSED if engine_of is closed; COMM_ERR_AUTH, COMM_ERR_ARGUMENT, COMM_ERR_MEMORY,
 *         COMM_ERR_SYSTEM, COMM_ERR_BACKEND, COMM_ERR_FORKED. After an error nothing is left behind, and only config.error_text and the
 *         log have the reason.
 */
COMM_MUST enum comm_result comm_open(const struct comm_config *config, struct comm_communicator **world);

/**
 * Opens a world whose ranks are all in this process, on one engine: for threads, for tests, and for one process with several devices.
 *
 * One thread may drive all ranks. Like ncclCommInitAll.
 *
 * @param config   as for comm_open(); rank, ranks, address, id, secret and exchange are ignored. Backends nccl, cuda, tcp and shm+tcp are
 *                 used as they are; with any other one the ranks share the memory of this process (local).
 * @param ranks    number of ranks, 1 to 1,024
 * @param devices  devices[r] is the device of rank r, such as "cuda:1". If that or `devices` is NULL, rank r has device r modulo the number
 *                 of devices. Only backends nccl and cuda have devices; with another backend a name is COMM_ERR_UNSUPPORTED.
 * @param worlds   receives `ranks` communicators; not changed on an error
 * @return as comm_open()
 */
COMM_MUST enum comm_result comm_open_local(const struct comm_config *config, int32_t ranks, const char *const *devices,
                                           struct comm_communicator **worlds);

/**
 * Makes the identity of a world on rank 0, which hands it to the other ranks by private means; all then open with config.id.
 *
 * It can be used once. If the backend is tcp, shm+tcp or shm+mpi, it contains an address of this host and a free port: rank 0 must then
 * open soon, and on this host. config.address or COMM_ADDRESS, if given, is taken instead. For any other backend it has no address of its
 * own, which is enough on one host. As in comm_open(), the environment's backend overrides the program's. Local. Like ncclGetUniqueId.
 *
 * @param config  backend, address, error_text, and the backend in options are used; NULL: from the environment
 * @param id      receives the identity
 * @return COMM_OK; COMM_ERR_CONFIG for an address of more than 63 characters; COMM_ERR_ARGUMENT, for a wrong config.size too;
 *         COMM_ERR_UNSUPPORTED if config has fields that this library does not know; COMM_ERR_SYSTEM or COMM_ERR_FORKED
 */
COMM_MUST enum comm_result comm_id_create(const struct comm_config *config, struct comm_id *id);

/**
 * Closes a communicator. Local, not collective; communicators made from it stay open.
 *
 * It cancels receives that matched nothing, waits for issued work, and runs due callbacks. A wait in another thread goes on until its
 * operation ends; what is unfinished when the time is over ends with COMM_ERR_CLOSED. Like MPI_Comm_free, MPI_Finalize, and
 * ncclCommDestroy.
 *
 * @param c           communicator, freed unless the result is COMM_ERR_STATE, COMM_ERR_ARGUMENT or COMM_ERR_FORKED; NULL is ignored
 * @param timeout_ns  how long to wait for issued work; COMM_DEFAULT_TIMEOUT: 5 s
 * @return COMM_OK; COMM_ERR_TIMEOUT if work was left unfinished: it ended with COMM_ERR_CLOSED, here and on every rank that still needed
 *         it; COMM_ERR_STATE inside a callback, for a recorder, and while a CUDA graph has calls of c: destroy the graph, then close;
 *         COMM_ERR_ARGUMENT for another negative timeout; COMM_ERR_CLOSED if it was closed before; COMM_ERR_FORKED
 */
COMM_API enum comm_result comm_close(struct comm_communicator *c, int64_t timeout_ns);

/**
 * Fails every communicator of the world of c with COMM_ERR_ABORTED: on this rank within 100 ms, and on every other rank that shares an open
 * communicator with a rank that knows. Never blocks. The process goes on, and still closes what it opened.
 *
 * Like ncclCommAbort; MPI_Abort ends the process instead.
 *
 * @param c     any communicator of the world
 * @param code  a number of the caller's, found in the error detail of all ranks
 * @return COMM_OK, COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_API enum comm_result comm_abort(struct comm_communicator *c, int32_t code);

/**
 * Fails c on every rank with COMM_ERR_REVOKED, so that ranks that wait in it return and can recover.
 *
 * It takes effect at once on this rank, and on others while they wait, or within a second. Like MPIX_Comm_revoke of ULFM.
 *
 * @param c  communicator
 * @return COMM_OK, also if c has failed; COMM_ERR_STATE on a recorder; COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_revoke(struct comm_communicator *c);

/**
 * Makes a communicator of the surviving ranks of c. Works on a failed or revoked communicator.
 *
 * Collective over the survivors, outside the queue of c. Ranks that died, stopped for too long or closed c are left out; the others keep
 * their order. All survivors get the same ranks. If c used NCCL, the new communicator has it too, or stages device buffers if NCCL cannot
 * connect the survivors. If c used MPI, the new one runs on the library's own algorithms. docs/guide/recovery.md has the rules,
 * docs/internals/recovery.md the protocol. Like MPIX_Comm_shrink and ncclCommShrink.
 *
 * @param c          communicator, at most 1,024 ranks
 * @param survivors  receives the communicator when the request completes with COMM_OK, and is not changed otherwise; must stay valid until
 *                   the request completes or comm_close() of c begins
 * @param req        receives the request; not NULL, since comm_sync() cannot wait on a failed communicator
 * @return COMM_OK if it was started. The request, or the call, ends with COMM_ERR_MEMORY (may be called again); COMM_ERR_SYSTEM if the
 *         survivors could not be connected (may be called again); COMM_ERR_PEER if the others gave this rank up; COMM_ERR_TIMEOUT after the
 *         operation timeout (the detail names who did not call); COMM_ERR_MISMATCH if another rank called comm_agree(). After these three
 *         errors every later agree and shrink of c ends with the same one on this rank. The call returns COMM_ERR_STATE if an agree or
 *         shrink of c is running, and on a recorder; COMM_ERR_UNSUPPORTED for more ranks; COMM_ERR_FULL (make progress and call again);
 *         COMM_ERR_ABORTED after comm_abort(); COMM_ERR_CLOSED; COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req);

/**
 * Computes the bitwise AND of the flags of all surviving ranks, and gives all of them the same result, also if ranks die meanwhile.
 *
 * Collective over the survivors, outside the queue of c. Works on a failed or revoked communicator. The request completes when all
 * survivors have called, at most after the operation timeout. The method is Paxos with the lowest surviving rank as proposer
 * (docs/internals/recovery.md). Like MPIX_Comm_iagree.
 *
 * @param c      communicator, at most 1,024 ranks
 * @param flags  this rank's flags, read by the call; receives the result when the request completes with COMM_OK, and is not changed
 *               otherwise; must stay valid until the request completes or comm_close() of c begins
 * @param req    receives the request; not NULL, as for comm_shrink()
 * @return as comm_shrink(); COMM_ERR_MISMATCH if another rank called comm_shrink()
 */
COMM_MUST enum comm_result comm_agree(struct comm_communicator *c, uint64_t *flags, struct comm_request *req);

/** The color of a rank that takes part in comm_split() and gets no communicator. */
#define COMM_NO_COLOR (-1)

/** What comm_split_place() brings together. */
enum comm_place {
    COMM_PLACE_NODE = 1,  /**< ranks of one host */
    COMM_PLACE_NUMA = 2,  /**< ranks of one NUMA node */
    COMM_PLACE_DEVICE = 3 /**< ranks of one device */
};

/** Options of comm_dup(). Communicators made by split and subset inherit them. */
struct comm_options {
    size_t size;                  /**< sizeof(struct comm_options) */
    const char *name;             /**< used in traces and errors; at most 31 characters are kept */
    int32_t priority;             /**< 1: moved before others; 0: normal, whatever c has; -1: moved when nothing else moves. Local to this
                                       rank */
    enum comm_order order;        /**< the order of operands, the same on all ranks; COMM_ORDER_DEFAULT: as c */
    int64_t operation_timeout_ns; /**< the deadline of each operation; 0: as c */
    struct CUstream_st *stream;   /**< nccl, cuda: the stream of device work, on the rank's device and not cudaStreamPerThread, which must
                                       outlive the communicator; NULL: the stream that c was given, or else one of the library's */
    const char *options;          /**< "algorithm=allreduce:slices,...": the same on all ranks; no other key; at most 240 characters */
};

/**
 * Splits c: the ranks of each color form a communicator, ordered by key, then by rank in c.
 *
 * Collective: an operation of the queue of c, which is not drained. Either all ranks of c get their communicators or none does: if one rank
 * cannot make it (COMM_ERR_MEMORY; COMM_ERR_FULL if it has 16,384 communicators), the request ends with that error on every rank, and c
 * does not fail. Like MPI_Comm_split and ncclCommSplit.
 *
 * @param c      communicator
 * @param color  0 or greater; COMM_NO_COLOR: this rank gets NULL
 * @param key    decides the order of ranks
 * @param out    receives the communicator before the request completes, and is not changed on an error; must stay valid until then
 * @param req    receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return COMM_OK if the operation was queued; COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, COMM_ERR_FULL, COMM_ERR_STATE on a recorder,
 *         COMM_ERR_CLOSED, or what c failed with
 */
COMM_MUST enum comm_result comm_split(struct comm_communicator *c, int32_t color, int32_t key, struct comm_communicator **out,
                                      struct comm_request *req);

/**
 * Splits c by where ranks run: ranks of one host, NUMA node or device form a communicator, in the order of c.
 *
 * Collective, as comm_split(). For COMM_PLACE_NUMA the calling thread must be bound to the CPUs of one NUMA node. For COMM_PLACE_DEVICE
 * each rank needs a device (config.device, or by its local rank), which is identified by its host and its place on the bus, whatever
 * CUDA_VISIBLE_DEVICES says; parts of one GPU come together. Like MPI_Comm_split_type.
 *
 * @param c      communicator
 * @param place  what brings ranks together
 * @param out    receives the communicator before the request completes; must stay valid until then
 * @param req    receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return as comm_split(); COMM_ERR_UNSUPPORTED, or an error of the device, if the place of this rank cannot be known (comm_error_detail()
 *         tells why). If other ranks know theirs, c fails with COMM_ERR_REFUSED.
 */
COMM_MUST enum comm_result comm_split_place(struct comm_communicator *c, enum comm_place place, struct comm_communicator **out,
                                            struct comm_request *req);

/**
 * Makes a communicator of some ranks of c. Only those ranks call it, all with the same list and tag.
 *
 * It is not part of the queue of collectives. A rank of the list that does not call fails c with COMM_ERR_TIMEOUT at the deadline, or with
 * COMM_ERR_CLOSED if it closes c. Like MPI_Comm_create_group.
 *
 * @param c      communicator
 * @param ranks  ranks of c, in the order of the new communicator, each once, this rank among them; copied
 * @param count  their number
 * @param tag    tells subsets apart that are made at the same time
 * @param out    receives the communicator before the request completes; must stay valid until then
 * @param req    receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return as comm_split()
 */
COMM_MUST enum comm_result comm_subset(struct comm_communicator *c, const int32_t *ranks, size_t count, uint32_t tag,
                                       struct comm_communicator **out, struct comm_request *req);

/**
 * Views c as a mesh and makes a communicator for each axis: the ranks that differ from this one in that coordinate only.
 *
 * The product of the shape is the size of c, and the last axis changes fastest. Collective, as comm_split(), which is done once for each
 * axis. For groups of data, tensor and pipeline parallelism. Like MPI_Cart_sub.
 *
 * @param c      communicator
 * @param shape  length of each axis, at least 1; copied
 * @param axes   number of axes, 1 to 16
 * @param axis   receives a communicator for each axis before the request completes; must stay valid until then. If one axis alone fails,
 *               it is NULL and comm_sync() reports the error.
 * @param req    receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return as comm_split()
 */
COMM_MUST enum comm_result comm_split_mesh(struct comm_communicator *c, const int32_t *shape, size_t axes, struct comm_communicator **axis,
                                           struct comm_request *req);

/**
 * Makes a communicator of the same ranks with a queue of its own. Collective, as comm_split().
 *
 * It is independent of c in order, matching, and failure of calls. Like MPI_Comm_dup; similar to a second CUDA stream.
 *
 * @param c        communicator
 * @param options  NULL: as c, with priority 0; copied. options.stream needs backend nccl or cuda (otherwise COMM_ERR_UNSUPPORTED).
 * @param out      receives the communicator before the request completes; must stay valid until then
 * @param req      receives the request; NULL: none is returned, and comm_sync() waits for the operation
 * @return as comm_split()
 */
COMM_MUST enum comm_result comm_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                                    struct comm_request *req);

/**
 * Returns the rank of this process in c. Like MPI_Comm_rank and ncclCommUserRank.
 *
 * @param c  communicator
 * @return 0 to comm_size(c) - 1; -1 if c is NULL or closed
 */
COMM_MUST int32_t comm_rank(const struct comm_communicator *c);

/**
 * Returns the number of ranks of c. Like MPI_Comm_size and ncclCommCount.
 *
 * @param c  communicator
 * @return 1 or greater; -1 if c is NULL or closed
 */
COMM_MUST int32_t comm_size(const struct comm_communicator *c);

/**
 * Translates a rank of c to the rank of the same process in another communicator. Like MPI_Group_translate_ranks.
 *
 * @param c      communicator
 * @param rank   rank of c
 * @param other  another communicator of the same world
 * @return the rank in `other`; -1 if it is not a member, if `rank` is none of c, if the communicators belong to different worlds, or if one
 *         of them is NULL or closed
 */
COMM_MUST int32_t comm_translate(const struct comm_communicator *c, int32_t rank, const struct comm_communicator *other);

/** What comm_describe() tells of a communicator. Hosts and local ranks are counted among the ranks of c only. */
struct comm_info {
    size_t size;             /**< sizeof(struct comm_info) */
    char backend[16];        /**< name of the backend */
    char launcher[16];       /**< what started the ranks: comm-run, torchrun, open-mpi, hydra, slurm, ...; none */
    char host[64];           /**< name of this host */
    char name[32];           /**< options.name */
    char library[96];        /**< version of the library, and its kernels */
    char slurm_job[32];      /**< the SLURM job of this process; empty: none */
    int32_t rank;            /**< comm_rank() */
    int32_t ranks;           /**< comm_size() */
    int32_t node;            /**< number of this host */
    int32_t nodes;           /**< number of hosts */
    int32_t local_rank;      /**< rank on this host */
    int32_t local_ranks;     /**< ranks of this host */
    int32_t cpus;            /**< CPUs that this process may use */
    int32_t homogeneous;     /**< 1: every host has the same number of ranks */
    uint32_t device_buffers; /**< 1: buffers may be device memory; all except nccl stage them, and cuda all but what kernels do */
    uint32_t stream_wait;    /**< 1: it works on a CUDA stream, so other streams wait for it on the device, without the host */
    uint32_t graph_capture;  /**< 1: what is issued while its stream is captured goes into the CUDA graph */
    uint32_t fixed_order;    /**< 1: reductions have a fixed order of operands */
    uint32_t device_order;   /**< 1: the weaker ordering rules of nccl hold, part 8 of docs/reference/contract.md */
    uint32_t reserved;       /**< 0 */
    uint64_t queue_max;      /**< operations that the queue can hold */
    uint64_t window;         /**< operations that can run at the same time */
    uint64_t inline_bytes;   /**< longest piece that the backend sends inline */
    uint64_t memory_bytes;   /**< memory of its queue and records, without the backend's */
};

/**
 * Describes a communicator: backend, launcher, host, place, limits. Works on a failed communicator, and inside callbacks.
 *
 * @param c     communicator
 * @param info  receives the description; the caller sets info->size
 * @return COMM_OK, COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_describe(struct comm_communicator *c, struct comm_info *info);

/** What comm_describe_peer() tells of a rank. */
struct comm_peer_info {
    size_t size;      /**< sizeof(struct comm_peer_info) */
    int32_t node;     /**< number of its host */
    int32_t local;    /**< 1: it runs on this host */
    char host[64];    /**< name of its host */
    char wire[16];    /**< the backend that reaches it */
    char address[64]; /**< its address, if the backend has one */
};

/**
 * Describes where a rank of c runs, and which backend reaches it.
 *
 * @param c     communicator
 * @param peer  rank, 0 to comm_size(c) - 1
 * @param info  receives the description; the caller sets info->size
 * @return COMM_OK, COMM_ERR_ARGUMENT, COMM_ERR_STATE on a recorder, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_describe_peer(struct comm_communicator *c, int32_t peer, struct comm_peer_info *info);

#ifdef __cplusplus
}
#endif

#endif
