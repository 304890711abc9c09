/*
 * Worlds and communicators: opening, splitting, ending. A world is all ranks of one comm_open; a communicator is some of them and a work
 * queue of its own. Every communicator made here is the caller's until comm_close. All calls may be made from any thread; those that block
 * are COMM_ERR_STATE inside a callback.
 *
 * Sized structs begin with their size, have no padding, and zero means default everywhere; a newer field than the library knows must be
 * zero (COMM_ERR_UNSUPPORTED otherwise). May change until 0.1.
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

/* Names one world, so that its ranks find each other and nobody else; it also holds a secret, and where rank 0 listens if that was said or
 * backend tcp was asked for. Hand it out by private means. ncclUniqueId. */
struct comm_id {
    unsigned char bytes[128];
};

/* Every rank gives `in`; `out` (ranks x bytes) has all of them, by rank, on return. 0 is success. For hosts with a store or MPI of their
 * own. */
typedef int comm_exchange_fn(void *arg, const void *in, size_t bytes, void *out);
/* level: 1 error, 2 warning, 3 info, 4 debug, 5 trace. line has no newline and lives until the function returns. Called by a thread of the
 * library's that does nothing else, one line after the other, so it may block or wait for a lock of the program: nothing else waits for it.
 * Lines that do not fit meanwhile (256) are dropped, and a line says how many. Not called any more once the last comm_close of the world,
 * or a failed comm_open, has returned; only a call that takes longer than 0.2 s may then still be under way. */
typedef void comm_log_fn(void *arg, int level, const char *line);

/* AUTO: a helper thread moves work while no caller is inside the library, when usable CPUs exceed local ranks; else callers alone. */
enum comm_progress_mode { COMM_PROGRESS_AUTO = 0, COMM_PROGRESS_CALLER = 1, COMM_PROGRESS_THREAD = 2 };

enum comm_notify_mode {
    COMM_NOTIFY_DEFAULT = 0, /* = ANY */
    COMM_NOTIFY_ANY = 1,     /* callbacks run on whichever thread makes progress: a wait, a test, the helper thread */
    COMM_NOTIFY_PROGRESS = 2 /* only inside comm_progress: for event loops, whose libraries are not thread safe */
};

/* FIXED: the same call gives the same bits on every wire. FREE: whatever order is fastest. */
enum comm_order { COMM_ORDER_DEFAULT = 0, COMM_ORDER_FIXED = 1, COMM_ORDER_FREE = 2 };

/*
 * What the program sets here wins over the environment for identity (who, how many, where to meet, secret); for tuning the environment wins
 * over `options`, so that an operator can change a program that he cannot rebuild. Everything pointed at is copied, except where a function
 * and its argument are kept: those live as long as the world.
 */
struct comm_config {
    size_t size;                /* sizeof(struct comm_config); COMM_CONFIG fills it */
    int32_t rank, ranks;        /* ranks 0: from the launcher; none found: a world of one */
    const char *backend;        /* auto local shm tcp shm+tcp mpi nccl */
    const char *device;         /* "cuda:0"; NULL: the device of the launcher's local rank. For nccl, and for streams */
    const char *address;        /* HOST:PORT of rank 0, or file:PATH, for tcp; otherwise a name under which ranks of one host meet */
    const struct comm_id *id;   /* instead of address and secret */
    comm_exchange_fn *exchange; /* instead of both */
    void *exchange_arg;
    struct comm_communicator *engine_of; /* a further world of this rank on that one's engine: any wait moves both, events join them */
    const void *secret;                  /* of the job, at least 16 bytes: ranks of a network prove to each other that they have it */
    size_t secret_bytes;
    enum comm_progress_mode progress;
    enum comm_notify_mode notify;
    enum comm_order order;                         /* DEFAULT: fixed, but free for a native (mpi, nccl) that was asked for by name */
    int32_t log_level;                             /* 1 .. 5 as in comm_log_fn */
    int64_t open_timeout_ns, operation_timeout_ns; /* 60 s; 1,800 s */
    const char *options;                           /* "key=value,..." over the option table: everything that is not above */
    comm_log_fn *log;                              /* NULL: standard error, likewise */
    void *log_arg;
    char *error_text; /* where a failed open says why */
    size_t error_text_bytes;
};
/* COMM_CONFIG(.ranks = 4, .rank = r) is a pointer to a config, in C. In C++ set size and the fields. */
#define COMM_CONFIG(...) (&(struct comm_config){.size = sizeof(struct comm_config), __VA_ARGS__})

/*
 * Opens the world of this job and gives this rank's communicator of it. Collective; blocks until all ranks met, at most open_timeout_ns.
 * config NULL takes everything from the environment; without a launcher it is a world of one. On an error *world is NULL, nothing is left
 * behind, and config->error_text says why: CONFIG names every offender, TIMEOUT the ranks that did not come, UNSUPPORTED what is missing.
 * Built today: backend local (a world of one), shm, mpi and nccl (ranks of one host), tcp (of many); auto takes one of local, shm and tcp.
 * MPI_Init with MPI_COMM_WORLD, ncclCommInitRank.
 */
COMM_MUST enum comm_result comm_open(const struct comm_config *config, struct comm_communicator **world);
/*
 * Opens a world whose `ranks` ranks are all in this process, one communicator each in worlds[0 .. ranks), on one engine: threads, tests
 * without a launcher, one process with many devices (that of rank r is devices[r]; NULL: host memory). One thread may drive all of them.
 * devices may be NULL; named ones are for backend nccl, UNSUPPORTED otherwise. Errors leave worlds untouched. ncclCommInitAll.
 */
COMM_MUST enum comm_result comm_open_local(const struct comm_config *config, int32_t ranks, const char *const *devices,
                                           struct comm_communicator **worlds);
/*
 * Rank 0 makes an identity for a world and hands it to the others by private means; all then open with config.id. It is used once and not
 * logged. Where config.backend or the environment says tcp, it holds an address of this host and a port that is free now, unless
 * config.address or COMM_ADDRESS says another: then rank 0 is to open soon, and on this host. Local. CONFIG: an address of more than 63
 * characters; config->error_text says so. ncclGetUniqueId.
 */
COMM_MUST enum comm_result comm_id_create(const struct comm_config *config, struct comm_id *id);
/*
 * Ends c, and c alone: local, not collective. Cancels receives that matched nothing, drains what was issued for at most timeout_ns
 * (COMM_DEFAULT_TIMEOUT: 5 s), lets waiters in other threads return with CLOSED, runs due callbacks, and consumes c, but for STATE (inside
 * a callback, or c records a plan). TIMEOUT: something was left unfinished; it ended with CLOSED, here and on every rank that still needed
 * it, and on these wires its buffers are the caller's again. Children of c go on. NULL is fine. MPI_Comm_free, MPI_Finalize,
 * ncclCommDestroy.
 */
COMM_API enum comm_result comm_close(struct comm_communicator *c, int64_t timeout_ns);
/*
 * Fails every communicator of c's world with ABORTED, here within 100 ms, then on every rank that has one open together with a rank that
 * knows; the process goes on and still closes what it opened. code is the caller's and is found in the error detail. Never blocks.
 * MPI_Abort (which ends the process), ncclCommAbort.
 */
COMM_API enum comm_result comm_abort(struct comm_communicator *c, int32_t code);
/*
 * Fails c on every rank with REVOKED, so that ranks blocked in it come out and can close it. Local and at once here; other ranks hear of it
 * while they wait, or within a second.
 * MPIX_Comm_revoke (ULFM).
 */
COMM_MUST enum comm_result comm_revoke(struct comm_communicator *c);
/*
 * Makes a communicator of the ranks of c that live, after a failure, a revoke or none; collective over the survivors, outside the queue of
 * c. Ranks that died, stood still for too long or closed c are left out, the others keep their order. *survivors is usable when req is
 * complete with OK, the same on all; it stays the library's until then. With req NULL the call waits. Errors: MEMORY (may be called again),
 * PEER (this rank was given up by the others), TIMEOUT (c's operation timeout passed: the detail names who did not call), MISMATCH (another
 * rank called comm_agree), STATE (an agree or shrink of c is under way), ABORTED, UNSUPPORTED (more than 1,024 ranks). The new communicator
 * works by programs over the wire, also where c had a library of its own. docs/recovery.md; MPIX_Comm_shrink, ncclCommShrink.
 */
COMM_MUST enum comm_result comm_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req);
/*
 * ANDs *flags over the survivors of c and gives all of them the same word, also when ranks die meanwhile; works on a failed or revoked
 * communicator as on any, outside its queue. Blocks until all who live have called. On an error *flags is as it was; errors are those of
 * comm_shrink. The way of it is Paxos with the lowest rank that lives as proposer: docs/recovery.md. MPIX_Comm_agree.
 */
COMM_MUST enum comm_result comm_agree(struct comm_communicator *c, uint64_t *flags);

#define COMM_NO_COLOR (-1)
enum comm_place { COMM_PLACE_NODE = 1, COMM_PLACE_NUMA = 2, COMM_PLACE_DEVICE = 3 };

/* Of dup; split and subset inherit. */
struct comm_options {
    size_t size;      /* sizeof(struct comm_options) */
    const char *name; /* in traces and errors */
    int32_t priority; /* 0 normal; 1: moved first and after each step of another; -1: moved when nothing else moves. This rank's own */
    enum comm_order order;
    int64_t operation_timeout_ns;
    struct CUstream_st *stream; /* nccl: device work goes into the caller's stream, which outlives the communicator; NULL: one of its own */
    const char *options;        /* "algorithm=allreduce:slices,...", the same on all ranks (MISMATCH); no other key */
};

/*
 * Splits c by color: ranks of one color form a new communicator, ordered by key, then by rank in c. COMM_NO_COLOR takes part and gets NULL.
 *
 * This and the next four are operations of the parent's queue: they take their place in line and drain nothing. The outputs are written
 * before req completes and stay in place until then; with req NULL the call waits, moving the whole engine, at most the operation timeout
 * (STATE inside a callback, though the call has been issued: pass a req there). Collective over c, issued in the same order on all ranks.
 * MPI_Comm_split, ncclCommSplit.
 */
COMM_MUST enum comm_result comm_split(struct comm_communicator *c, int32_t color, int32_t key, struct comm_communicator **out,
                                      struct comm_request *req);
/*
 * Splits c by where ranks run: those of one host, of one NUMA node, or of one device come together, in the order of c. Collective, as
 * comm_split. MPI_Comm_split_type. For COMM_PLACE_NUMA the calling thread must be bound to CPUs of one NUMA node: UNSUPPORTED otherwise.
 * For COMM_PLACE_DEVICE each rank needs a device, config.device or by its local rank: UNSUPPORTED otherwise, with what is missing in
 * comm_error_detail. It is told by its host and its place on the bus, so whatever CUDA_VISIBLE_DEVICES calls it; parts of one GPU come
 * together.
 */
COMM_MUST enum comm_result comm_split_place(struct comm_communicator *c, enum comm_place place, struct comm_communicator **out,
                                            struct comm_request *req);
/*
 * Makes a communicator of ranks[0 .. count) of c, in that order, called by its members alone, all with the same list and tag; the tag tells
 * apart two that are made at once. The other ranks of c do not notice. The list is copied. A request of the message line: it holds back no
 * collective and none holds it back. A member that does not call fails c with TIMEOUT at the deadline. ARGUMENT: a rank that is out of
 * range, named twice, or not this one's. MPI_Comm_create_group.
 */
COMM_MUST enum comm_result comm_subset(struct comm_communicator *c, const int32_t *ranks, size_t count, uint32_t tag,
                                       struct comm_communicator **out, struct comm_request *req);
/*
 * Sees c as a mesh of shape[0] x shape[1] x ... whose product is its size, the last axis fastest, and gives axis[i]: the ranks that differ
 * from this one in coordinate i alone, in its order. At most 16 axes; those of size one work. Collective, as comm_split, of which it is one
 * for each axis: where the error of one is not that of req, comm_sync tells it and its axis[i] is NULL. Data, tensor and pipeline groups;
 * MPI_Cart_sub.
 */
COMM_MUST enum comm_result comm_split_mesh(struct comm_communicator *c, const int32_t *shape, size_t axes, struct comm_communicator **axis,
                                           struct comm_request *req);
/*
 * The same ranks with another queue: independent of c in order, matching and failure of calls. options may be NULL (options.stream is
 * for backend nccl, UNSUPPORTED otherwise). Collective, as comm_split. MPI_Comm_dup; a second CUDA stream is its relative.
 */
COMM_MUST enum comm_result comm_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                                    struct comm_request *req);

/*
 * This rank in c, 0 .. comm_size(c) - 1; -1 where c is NULL or closed. Any thread, inside callbacks too. MPI_Comm_rank, ncclCommUserRank.
 */
COMM_MUST int32_t comm_rank(const struct comm_communicator *c);
/*
 * How many ranks c has; -1 where c is NULL or closed. Any thread, inside callbacks too. MPI_Comm_size, ncclCommCount.
 */
COMM_MUST int32_t comm_size(const struct comm_communicator *c);
/*
 * The rank in `other` of c's rank `rank`, -1 where it is not a member or the two are of different worlds. Any thread.
 * MPI_Group_translate_ranks.
 */
COMM_MUST int32_t comm_translate(const struct comm_communicator *c, int32_t rank, const struct comm_communicator *other);

/* node and local_rank count the hosts and this host's ranks of c alone. */
struct comm_info {
    size_t size; /* sizeof(struct comm_info) */
    char backend[16], launcher[16], host[64], name[32], library[96];
    char slurm_job[32]; /* SLURM's number of the job that this process is in, whoever launched it; empty outside of one */
    int32_t rank, ranks, node, nodes, local_rank, local_ranks, cpus;
    int32_t homogeneous;                                              /* 1: every host has as many ranks of c */
    uint32_t device_buffers, stream_wait, graph_capture, fixed_order; /* what it can */
    uint32_t device_order, reserved;                        /* device_order 1: the weaker rules of nccl, part 8 of docs/contract.md */
    uint64_t queue_max, window, inline_bytes, memory_bytes; /* the last: of its queue and records, without the wire's */
};
/*
 * What this communicator is and can: backend, launcher, host, place, limits. The caller sets info->size; everything is copied into *info.
 * Works on a failed communicator. Any thread, inside callbacks too.
 */
COMM_MUST enum comm_result comm_describe(struct comm_communicator *c, struct comm_info *info);

struct comm_peer_info {
    size_t size; /* sizeof(struct comm_peer_info) */
    int32_t node, local;
    char host[64], wire[16], address[64];
};
/*
 * Where rank `peer` of c runs and which wire leads there. The caller sets info->size. ARGUMENT where there is no such rank. Any thread.
 */
COMM_MUST enum comm_result comm_describe_peer(struct comm_communicator *c, int32_t peer, struct comm_peer_info *info);

#ifdef __cplusplus
}
#endif

#endif
