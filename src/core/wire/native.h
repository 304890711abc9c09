/*
 * native: a library that does whole collectives itself (MPI, NCCL), beside a communicator's wire. Collectives that it accepts are entries
 * of the timeline like any other: numbered, published, started in ticket order, retired in order; only what runs between start and end is
 * the library's. All else (other collectives, messages, creating calls, notes, deaths) goes over the wire, which is always there.
 *
 * What MPI and NCCL both must carry shaped it; docs/internals/engine.md says why. Two kinds of native:
 *   - ordinary (MPI): the engine starts an operation when the timeline lets it, on whichever thread moves the communicator, and polls.
 *   - NATIVE_STREAM (NCCL): its own queue orders what is started. Each call is started inside the issuing call; a queue wait is handed to
 *     the stream (wait, reach); nothing is tracked for conflicts. Completion is a word that the stream writes, so polling is a load.
 *
 * Calls on a channel are serialised by its communicator's lock; calls on different channels of one native may come at once, so a native
 * that wraps a library with one lock (MPI below MPI_THREAD_MULTIPLE, a device) takes its issue lock inside, and holds no other. None blocks
 * but open and close; a foreign call that blocks (ncclCommInit, MPI_Comm_create_group) runs on a thread of the native's own, which `joined`
 * asks after. Nothing of ours is called back.
 */
#ifndef WIRE_NATIVE_H
#define WIRE_NATIVE_H

#include <commstream/type.h>

#include "base/option.h"
#include "wire/collective.h"
#include "wire/device.h"
#include "wire/wire.h"

enum native_flag {
    NATIVE_STREAM = 1, /* its own queue orders what is started */
    NATIVE_CALLER = 2, /* only threads that are inside a call of the program may enter it: no progress thread, no monitor */
};
enum { NATIVE_OFFER_BYTES = 192, NATIVE_VERSION_BYTES = 64 };

/* Every native's instance and every channel begin with these. */
struct native {
    const struct native_class *class;
    uint32_t flags, reserved; /* enum native_flag, as open found them */
};
struct native_channel {
    struct native *native;
};

struct native_config {
    const struct comm_env *env;
    const struct base_log *log; /* NULL: say nothing */
    const char *launcher;       /* as team_launch_find names it */
    const char *device;         /* comm_config.device or NULL */
    const char *library;        /* mpi: the file of a library that the module opens itself, or NULL */
    const char *const *devices; /* rank -1: of each rank, or NULL; until open returned */
    int32_t rank, ranks;        /* of the world; rank -1: all of them are in this process */
    int32_t local_rank;
    int32_t threads; /* a progress thread was asked for */
    int64_t deadline;
    const struct base_options *options; /* NULL: all default; until open returned */
    char *error_text;                   /* where probe and open say why they failed */
    size_t error_text_bytes;
};

struct native_call {
    uint32_t collective; /* enum comm_collective */
    enum comm_type type;
    comm_op op;
    int32_t root;
    const void *in;       /* in place: in is out, or this rank's own block in it, or of scatters out this rank's own block in `in` */
    void *out;            /* NULL, as in: this rank gets, or gives, nothing */
    size_t n;             /* elements of a block; v forms: of the longest */
    size_t element_bytes; /* of type */
    const size_t *counts, *displs; /* v forms, in elements, one per rank; kept in place until the operation ended. gather_v, scatter_v: at
                                      the root alone, elsewhere NULL and n is this rank's own count */
    const size_t *in_counts, *in_displs; /* alltoall_v: of `in`; NULL: in place */
    uint64_t cookie;
};

/* A message of device memory. */
struct native_message {
    void *at; /* a send only reads it */
    size_t bytes;
    int32_t peer;
    int32_t is_send;
};

/* What a stream is to wait for. A word that somebody writes, reached when *word >= value; or NULL: `reach` will tell. */
struct native_point {
    const _Atomic uint64_t *word;
    uint64_t value;
};

struct native_event {
    uint64_t cookie;
    int32_t result; /* COMM_OK, or what went wrong: BACKEND mostly */
    int32_t code;   /* the library's own number for it */
};

struct native_class {
    const char *name;
    /* Finds the library and says its version (which all ranks of a world must have alike), or UNSUPPORTED with what is missing and what to
       do in error_text. Starts nothing, talks to nobody: comm_describe_backend asks too. May be called again. */
    enum comm_result (*probe)(const struct native_config *config, char version[NATIVE_VERSION_BYTES]);
    /* All ranks do this at about the same time: they have met, and every one's probe was OK. May block until the deadline, as far as the
       library lets itself be bounded. Nothing is left behind by a failure but what the library keeps for the process. */
    enum comm_result (*open)(const struct native_config *config, struct native **native);
    /* Twice: with offers NULL it makes the channel and writes this rank's offer; then, with those of all members in rank order, it begins
       to connect. Never blocks. UNSUPPORTED from the first: this communicator has no native; if any member says so, none has one. Another
       error of either ends the channel. */
    enum comm_result (*join)(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                             struct native_channel **channel);
    /* After the second join: PENDING, then OK, or an error (the channel is still left by `leave`). */
    enum comm_result (*joined)(struct native_channel *channel);
    /* COMM_OK: it will do this call. UNSUPPORTED: it lacks that, a program serves it; decided from what is equal on every rank alone (type,
       operator, lengths, never addresses or displacements). A call without buffers or counts only asks. Anything else refuses the call on
       this rank, with the reason in why. */
    enum comm_result (*accept)(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes);
    /* An accepted call. COMM_OK: its buffers are the library's until its event. An error fails the communicator. */
    enum comm_result (*start)(struct native_channel *channel, const struct native_call *call, int32_t *code);
    /* NATIVE_STREAM alone (NULL otherwise): what is started from now on runs after the point. COMM_OK: an event with the cookie comes once
       the stream got there. UNSUPPORTED: it would have to park where it may not. */
    enum comm_result (*wait)(struct native_channel *channel, const struct native_point *point, uint64_t cookie);
    /* The point of that wait, which had no word, is reached: one store, no call of the library. */
    void (*reach)(struct native_channel *channel, uint64_t cookie);
    /* NATIVE_STREAM alone (NULL otherwise): put on its stream as one, which ends when all of them have; matched with the peers' in the
       order in which each of the two ranks makes them, of the same length on both. ARGUMENT, with the reason in why: nothing happened.
       Another error fails the communicator. */
    enum comm_result (*messages)(struct native_channel *channel, const struct native_message *messages, uint32_t count, uint64_t cookie,
                                 int32_t *code, char *why, size_t why_bytes);
    /* NATIVE_STREAM alone: what is put on a stream of the caller's from now on runs after the operation, or wait, of this cookie, which was
       started; where that has ended, it does nothing. FULL: nothing happened. */
    enum comm_result (*await)(struct native_channel *channel, uint64_t cookie, struct CUstream_st *stream);
    /* NATIVE_STREAM alone: the stream that its operations go into, and whose device that is. `given`, before the second join: into that
       stream of the caller's, from the first operation on. */
    struct device *(*stream)(struct native_channel *channel, struct CUstream_st *given, struct CUstream_st **stream);
    /* What ended. Bounded; called only while something is pending. */
    uint32_t (*advance)(struct native_channel *channel, struct native_event *events, uint32_t max);
    /* WIRE_ABORT: the communicator failed: stop what can be stopped, release what is parked, do not block; again: look again. WIRE_CLOSE:
       the last call on the channel. Both return how many operations the library may still touch the buffers of; what is left at WIRE_CLOSE
       the native keeps for ever, on purpose. */
    uint32_t (*leave)(struct native_channel *channel, enum wire_leave how);
    /* A text for the code of an event or a start. */
    void (*explain)(struct native *native, int32_t code, char *text, size_t bytes);
    void (*close)(struct native *native);
};

#endif
