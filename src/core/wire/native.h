/*
 * native: a library that does whole collectives itself (MPI, NCCL, kernels on devices), next to a communicator's wire. The collectives that
 * it accepts are entries of the timeline like any other: numbered, published, started in ticket order and retired in
 * order. Only the work between start and end is the library's. Everything else (other collectives, messages, calls that
 * create communicators, notes, deaths) goes over the wire, which is always there.
 *
 * The interface is made for what MPI and NCCL both need; docs/internals/engine.md explains why. There are two kinds of
 * native:
 *   - ordinary (MPI): the engine starts an operation when the timeline allows it, on any thread that moves the communicator, and polls.
 *   - NATIVE_STREAM (NCCL): the library's own queue orders what is started. Each call is started inside the issuing call. A queue wait is
 *     passed to the stream (wait, reach), and conflicts are not tracked. The stream writes a word on completion, so polling is a load.
 *
 * Calls on a channel are serialised by its communicator's lock. Calls on different channels of one native may come at
 * the same time. A native that wraps a library with one lock (MPI below MPI_THREAD_MULTIPLE, a device) takes its issue
 * lock inside, and holds no other. Only open and close block. A library call that blocks (ncclCommInit,
 * MPI_Comm_create_group) runs on a thread of the native; `joined` asks whether it has finished. The library never calls
 * back into commstream.
 */
#ifndef WIRE_NATIVE_H
#define WIRE_NATIVE_H

#include <commstream/type.h>

#include "base/option.h"
#include "data/data.h"
#include "wire/collective.h"
#include "wire/device.h"
#include "wire/wire.h"

enum native_flag {
    NATIVE_STREAM = 1, /* the library's own queue orders what is started */
    NATIVE_FOLDS = 4,  /* only with NATIVE_STREAM: it can move the inputs and have the host's kernel reduce them (native_call.reduce) */
    NATIVE_DEVICE = 8, /* it takes calls whose buffers are all in device memory, and its reductions have the bits of the host's kernels. All
                        * other device buffers are staged. A channel with a stream of the caller's is a NATIVE_STREAM, and stages nothing */
    NATIVE_STANDS = 16, /* it keeps what it needs for a call that is started many times with the same buffers. Known when `joined` is OK */
    NATIVE_CALLER = 2,  /* only threads that are inside a call of the program may enter it: no progress thread, no monitor */
    NATIVE_GONE = 32,   /* set before `close`: a rank of the world has died, though perhaps no channel was open then */
};
enum { NATIVE_IN_ORDER = NATIVE_STREAM | NATIVE_DEVICE }; /* a device does its calls one after the other, in the order of their starts */
enum { NATIVE_OFFER_BYTES = 192, NATIVE_VERSION_BYTES = 64 };

enum native_leave {
    NATIVE_LEAVE_FAILED = 1, /* the communicator failed */
    NATIVE_LEAVE_GONE = 2,   /* it failed because a rank died, closed or cannot be reached, which some libraries do not survive */
    NATIVE_LEAVE_CLOSE = 3,  /* the last call on the channel */
};

/* Every native's instance and every channel begin with these. */
struct native {
    const struct native_class *class;
    uint32_t flags, reserved; /* enum native_flag, set by open */
};
struct native_channel {
    struct native *native;
};

struct native_config {
    const struct comm_env *env;
    const struct base_log *log; /* NULL: no log */
    const char *launcher;       /* as team_launch_find names it */
    const char *device;         /* comm_config.device or NULL */
    const char *library;        /* mpi: the file of a library that the module opens itself, or NULL */
    const char *const *devices; /* with rank -1: one per rank, or NULL; valid until open returns */
    int32_t rank, ranks;        /* of the world; rank -1: all ranks are in this process */
    int32_t local_rank;
    int32_t threads; /* a progress thread was requested */
    int64_t deadline;
    const struct base_options *options; /* NULL: all default; valid until open returns */
    char *error_text;                   /* probe and open write here why they failed */
    size_t error_text_bytes;
};

struct native_call {
    uint32_t collective; /* enum comm_collective */
    enum comm_type type;
    comm_op op;
    int32_t root;
    const void *in;       /* in place: `in` is `out`, or this rank's own block in it; for scatters `out` is this rank's own block in `in` */
    void *out;            /* out or in NULL: this rank receives, or contributes, nothing */
    size_t n;             /* elements of a block; v forms: of the longest block */
    size_t element_bytes; /* of type */
    const size_t *counts, *displs; /* v forms: in elements, one per rank, kept in place until the operation ends. gather_v, scatter_v: only
                                    * at the root; elsewhere NULL, and n is this rank's own count */
    const size_t *in_counts, *in_displs; /* alltoall_v: of `in`; NULL: in place */
    data_reduce_fn *reduce;              /* of a reduction, for NATIVE_FOLDS: the host's kernel; otherwise NULL */
    data_scale_fn *scale; /* of a pre-multiplied sum, the only one of the program's operators with it: multiplies by the factor in
                           * `context`, and the kernel is that of COMM_SUM; otherwise NULL */
    const void *context;  /* of an operator of the program's: its struct data_user; only at `start`, valid until the operation has ended */
    size_t grain;         /* at `start`: so many elements are never split */
    void **standing; /* at `start`, with NATIVE_STANDS: where the native notes what it keeps of this call until `forget`; NULL at the first
                      * start, of which all ranks have the same. The next starts have the same buffers. NULL: an ordinary call */
    bool on_device;  /* all of its buffers are in device memory: of any device of this process */
    bool exact;      /* the result must have the bits of the host's kernel: the order is fixed, or the operator is the program's */
    uint64_t cookie;
};

/* How the native does a call, where the ranks may decide differently: what they compare beside the call. */
enum native_way {
    NATIVE_RECORDED = 1,  /* it goes into a graph of the program's, which runs it later */
    NATIVE_FOLDED = 2,    /* the library only moves the inputs; the host's kernel reduces them */
    NATIVE_ON_DEVICE = 4, /* devices do it, each with its rank's memory; all ranks must have device buffers */
    NATIVE_TOGETHER = 8,  /* the library starts it together with the call before it, which is of the same group */
};

/* A message in device memory. */
struct native_message {
    void *at; /* a send only reads it */
    size_t bytes;
    int32_t peer;
    int32_t is_send;
};

/* What a stream shall wait for: reached when *word >= value, where somebody else writes the word. word NULL: the native
 * is told by `reach`. */
struct native_point {
    const _Atomic uint64_t *word;
    uint64_t value;
};

struct native_event {
    uint64_t cookie;
    int32_t result; /* COMM_OK or an error, usually BACKEND */
    int32_t code;   /* the library's own error code */
};

struct native_class {
    const char *name;
    /* Finds the library and its version, which must be the same on all ranks of a world. Or UNSUPPORTED, with what is
     * missing and what to do in error_text; or why `open` would fail on this rank, as far as that is known, so that all ranks learn it when
     * they meet. Starts nothing and communicates with nobody; comm_describe_backend also calls it. May be called again. */
    enum comm_result (*probe)(const struct native_config *config, char version[NATIVE_VERSION_BYTES]);
    /* Before the ranks meet by a launcher's store, where probe was OK: starts what cannot start any more once this library has used the
     * store. May block. NULL: nothing is. */
    enum comm_result (*before_store)(const struct native_config *config);
    /* All ranks call this at about the same time: they have met, and every rank's probe was OK. May block until the
     * deadline, as far as the library can be limited. A failure leaves nothing behind except what the library keeps for
     * the process. */
    enum comm_result (*open)(const struct native_config *config, struct native **native);
    /* Called twice. With offers NULL it makes the channel and writes this rank's offer. Then, with the offers of all
     * members in rank order, it begins to connect. Never blocks. UNSUPPORTED from the first call: this communicator has
     * no native; if any member says so, none has one. UNSUPPORTED from the second: the same, and all members get it. Any other error
     * of either call ends the channel. */
    enum comm_result (*join)(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                             struct native_channel **channel);
    /* After the second join: PENDING, then OK or an error. After an error the channel must still be left with `leave`. While a world opens,
     * it is first called when all ranks have done their second join. */
    enum comm_result (*joined)(struct native_channel *channel);
    /* COMM_OK: the native will do this call. UNSUPPORTED: it cannot, and a program does it. This is decided only from
     * what is equal on all ranks (type, operator, lengths; never addresses or displacements). A call without buffers or
     * counts is only a query. Any other result refuses the call on this rank, with the reason in why. */
    enum comm_result (*accept)(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes);
    /* NULL: always 0. The NATIVE_* ways of the call that `accept` took last. */
    uint32_t (*ways)(struct native_channel *channel);
    /* NULL: always the class's name. What a request of this call says that it ran, and in words; for a call that is not accepted the
     * class's name. Needs neither buffers nor counts. */
    const char *(*algorithm)(struct native_channel *channel, const struct native_call *call, const char **how);
    /* Only NATIVE_DEVICE: whether `start` can use this memory; if not, the call gets a stage in its place, which is pinned. */
    bool (*reaches)(struct native_channel *channel, const void *at, size_t align);
    /* Only NATIVE_DEVICE: how the devices do the call that `accept` took last, for comm_explain. */
    const char *(*how)(struct native_channel *channel);
    /* Starts an accepted call. COMM_OK: the library owns its buffers until its event. An error fails the communicator. */
    enum comm_result (*start)(struct native_channel *channel, const struct native_call *call, int32_t *code);
    /* Only NATIVE_STANDS: a call that was noted in `standing` will not be started again. Only after a failure it may still run. */
    void (*forget)(struct native_channel *channel, void *standing);
    /* NULL: calls are started one by one. open: what is started until the call with open false is one group of the program's. Its calls
     * have no order among themselves, and their buffers do not conflict, so the library may start them together. All of it happens on one
     * thread, under the communicator's lock. An error fails the communicator. */
    enum comm_result (*group)(struct native_channel *channel, bool open, int32_t *code);
    /* Only NATIVE_STREAM (otherwise NULL): what is started from now on runs after the point. COMM_OK: an event with the
     * cookie comes once the stream has reached the point. UNSUPPORTED: it would have to park where it may not. */
    enum comm_result (*wait)(struct native_channel *channel, const struct native_point *point, uint64_t cookie);
    /* NULL: no such wait is ever FULL or UNSUPPORTED. Keeps the room of `count` waits without a word for the next ones of this channel,
     * instead of what it kept before: they are neither until it is called with 0. After an error nothing is kept. */
    enum comm_result (*keep_waits)(struct native_channel *channel, uint32_t count);
    /* The point of that wait, which had no word, is reached: one store, no call of the library. */
    void (*reach)(struct native_channel *channel, uint64_t cookie);
    /* Only NATIVE_STREAM (otherwise NULL): puts the messages on its stream as one operation, which ends when all of
     * them have. They match the peers' messages in the order in which each of two ranks issues them, and have the same
     * length on both. ARGUMENT, with the reason in why: nothing happened. Any other error fails the communicator. count 0: an operation
     * that ends when the stream has passed all that is on it; ARGUMENT if the stream is being captured. */
    enum comm_result (*messages)(struct native_channel *channel, const struct native_message *messages, uint32_t count, uint64_t cookie,
                                 int32_t *code, char *why, size_t why_bytes);
    /* Only NATIVE_STREAM: what is put on the caller's stream from now on runs after the started operation or wait with
     * this cookie. Does nothing if that has ended. FULL: nothing happened. */
    enum comm_result (*await)(struct native_channel *channel, uint64_t cookie, struct CUstream_st *stream);
    /* Only NATIVE_STREAM: the stream that its operations are put on, and the device of that stream. `given`, before the
     * second join: use this stream of the caller's, from the first operation on. */
    struct device *(*stream)(struct native_channel *channel, struct CUstream_st *given, struct CUstream_st **stream);
    /* Returns what has ended. Bounded. An ordinary native is also called when nothing of this rank is pending: a library that moves only
     * inside its calls then does what it owes to other ranks. */
    uint32_t (*advance)(struct native_channel *channel, struct native_event *events, uint32_t max);
    /* NULL: always OK. STATE, with the reason in why: something of the program's still needs the channel (a CUDA graph), so that its
     * communicator cannot be closed yet. */
    enum comm_result (*may_close)(struct native_channel *channel, char *why, size_t why_bytes);
    /* Memory of the channel's device; all NULL: there is none. take: not zeroed, or NULL. `close` gives back what is left. enlist: the
     * library may prepare for the channel's operations on this memory of the caller's, until delist or leave. */
    void *(*take)(struct native_channel *channel, size_t bytes);
    void (*give)(struct native *native, void *memory);
    void (*enlist)(struct native_channel *channel, void *memory, size_t bytes);
    void (*delist)(struct native_channel *channel, void *memory);
    /* NULL: neither. The same for memory of `take`, together with all members, which have it of the same length: begins to, and does not
     * block. UNSUPPORTED: it cannot. With memory NULL it only tells whether it can. No operation starts on the channel until enlisted_all
     * returns another result than PENDING: OK, or an error, after which it is not registered here. */
    enum comm_result (*enlist_all)(struct native_channel *channel, void *memory, size_t bytes);
    enum comm_result (*enlisted_all)(struct native_channel *channel);
    /* After a failure: stop what can be stopped and release what is parked, without blocking; called again, look again. Returns the
     * number of operations whose buffers the library may still access. What is left at NATIVE_LEAVE_CLOSE the native keeps for ever, on
     * purpose. */
    uint32_t (*leave)(struct native_channel *channel, enum native_leave how);
    /* Writes a text for the code of an event or a start. */
    void (*explain)(struct native *native, int32_t code, char *text, size_t bytes);
    void (*close)(struct native *native);
};

#endif
