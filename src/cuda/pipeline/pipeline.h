/*
 * Long sums of a host whose buffers are in memory of devices: reduced by the devices, and exchanged through pinned pages that all ranks
 * share. docs/internals/kernels.md ("Long sums") has the protocol and why it is right.
 *
 * The vector is cut into chunks, and a chunk into a block for each rank. Of each chunk a rank does three steps, on the device's copy
 * streams and on a stream of its own, none of which ever waits for a peer:
 *   send    copies the blocks of all peers to its own pages;
 *   reduce  launches comm_combine: its block of all ranks, into the output and into its own pages;
 *   take    copies the blocks that its peers have reduced to the output.
 * A reduce_scatter has nothing to take. In an allgather nothing is sent, and the step `reduce` copies the own block to the own pages.
 * The host begins a step when words in the ranks' mailboxes say that it may. So several chunks, also of several calls, are in different
 * steps at the same time.
 */
#ifndef CUDA_PIPELINE_H
#define CUDA_PIPELINE_H

#include "cuda/combine_kernel.h"
#include "cuda/device.h"
#include "wire/native.h"

enum pipeline_step { PIPELINE_SEND, PIPELINE_REDUCE, PIPELINE_TAKE, PIPELINE_STEPS };
enum {
    PIPELINE_CHUNK_BYTES = 2 << 20,                /* the longest chunk */
    PIPELINE_SLOTS = 4,                            /* of the pages: this many chunks are under way at once */
    PIPELINE_SUM_BYTES = PIPELINE_CHUNK_BYTES / 2, /* the longest block, where a rank has peers */
    PIPELINE_AREA_BYTES = PIPELINE_SLOTS * (PIPELINE_CHUNK_BYTES + PIPELINE_SUM_BYTES),
    PIPELINE_MARKS = 16, /* a rank's newest call is less than this before a peer's oldest, since each has a chunk */
};
_Static_assert((int)PIPELINE_MARKS > 2 * (int)PIPELINE_SLOTS, "a mark that a peer may still read is not overwritten");

/* How a call ends that does not end well; other codes are ONESHOT_DIFFERS, and CUDA's errors as negative numbers. */
enum { PIPELINE_REFUSED = 3 };

/* In a rank's mailbox: its owner writes, all read. */
struct pipeline_words {
    _Atomic uint64_t done[PIPELINE_STEPS]; /* chunks of which the owner has done the step */
    _Atomic uint64_t mark[PIPELINE_MARKS]; /* by number of the call: the number and the call's fingerprint */
};

enum pipeline_kind { PIPELINE_SUM, PIPELINE_SCATTER, PIPELINE_GATHER };

struct pipeline_call {
    const char *in;
    char *out;
    uint64_t bytes, stride; /* SUM: of the vector, and 0; otherwise of a rank's block, and the same */
    uint64_t block;         /* of a chunk, the bytes of a rank */
    uint64_t end, cookie;   /* end: the number of the chunk behind its last one */
    uint32_t chunks, fingerprint, kind, type, op;
};

/* What a pipeline has of its communicator. Pages stay pinned for as long as it is open. */
struct pipeline_config {
    const struct comm_env *env;
    struct cuda_device *d;
    uint32_t rank, ranks;
    struct pipeline_words *words[ONESHOT_RANKS];
    char *pages[ONESHOT_RANKS]; /* as the host and as the device address them; of a rank alone NULL */
    cuda_address there[ONESHOT_RANKS];
};

struct pipeline {
    struct pipeline_config is;
    struct pipeline_call *calls; /* a ring, indexed by number */
    uint32_t room;
    uint64_t issued, told;
    struct {
        uint64_t call, chunk; /* the next to begin; chunks are counted over all calls */
        struct device_place place[PIPELINE_SLOTS];
    } at[PIPELINE_STEPS];
    struct CUstream_st *stream; /* of the kernels */
    int32_t wrong;              /* the code with which all calls end */
    bool has_stopped;
    bool is_lost; /* no word says when something that was begun ends */
};

/* NULL: no memory, or CUDA makes no stream. */
struct pipeline *pipeline_make(const struct pipeline_config *config);
/* Nothing of it is on the device. */
void pipeline_free(struct pipeline *p);
/* Of calls whose longer buffer has at least so many bytes. */
bool pipeline_serves(const struct native_call *call, uint32_t ranks, size_t least_bytes);
enum comm_result pipeline_start(struct pipeline *p, const struct native_call *call);
uint32_t pipeline_advance(struct pipeline *p, struct native_event *events, uint32_t max);
/* The device does nothing any more. */
void pipeline_break(struct pipeline *p, int32_t code);
/* Begins no step any more. */
void pipeline_stop(struct pipeline *p);
/* Copies or kernels may still use buffers and pages. */
bool pipeline_runs(struct pipeline *p);
static inline bool pipeline_is_pending(const struct pipeline *p)
{
    return p->told != p->issued;
}

#endif
