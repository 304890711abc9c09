/*
 * program: a collective as data. Per rank an immutable, relocatable table of steps in a few in-order lanes over symbolic buffers; one small
 * interpreter (run) runs it over any wire; the verifier of the tests proves it for every team size before it meets one.
 *
 *   EXPOSE VIEW RELEASE COPY REDUCE LOOP END
 *
 * A lane issues its steps in order: a step issues when it stands at the head, its wait holds, the views it reads are present, and the wire
 * has room. After an EXPOSE or VIEW the lane moves on at once; COPY and REDUCE hold it until done; a RELEASE waits for the view's readers.
 * The bump happens when the step completes (EXPOSE: its bytes may be overwritten; VIEW: the bytes are there), and puts every lane of the
 * operation back to work in the same pass. What was exposed is read until the EXPOSE completes; on a stream at the latest until every
 * reader gave it back, which later views of those readers' results imply. On a ONCE edge it completes by the wire alone, whatever readers
 * do. An operation ends when all lanes ended and every EXPOSE and every landing VIEW completed.
 */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "data/data.h"
#include "wire/collective.h"
#include "wire/wire.h"

enum {
    PROGRAM_LANES_MAX = 8,
    PROGRAM_COUNTERS = 16, /* counter 0 is none */
    PROGRAM_VIEWS_MAX = 64,
    PROGRAM_EDGES_MAX = 20, /* levels of a doubling over a million ranks */
    PROGRAM_CHUNK_MIN_BYTES = 4096,
    PROGRAM_BRIEF_BYTES = 65536, /* what a ONCE edge of any wire takes; a private one takes WIRE_EACH_BYTES */
};

/* Where the lengths of blocks are known to the two ends of each edge alone, and so are no part of what all ranks compare. */
static inline bool collective_is_ragged(uint32_t collective)
{
    return collective == COLLECTIVE_GATHER_V || collective == COLLECTIVE_SCATTER_V || collective == COLLECTIVE_ALLTOALL_V;
}
const char *collective_name(uint32_t collective); /* "?" for none */
uint32_t collective_parse(const char *name);      /* 0: no such name */

/* ------------------------------------------------------------------------------------------------------------ the data */
enum program_code { STEP_EXPOSE = 1, STEP_VIEW, STEP_RELEASE, STEP_COPY, STEP_REDUCE, STEP_LOOP, STEP_END };
enum program_buf { BUF_NONE = 0, BUF_IN, BUF_OUT, BUF_SCRATCH, BUF_VIEW };
/* ELEMENT: elements of block 0. BLOCK: whole blocks. WHOLE: all blocks of a buffer without holes. SLICE: 1/slices of block 0, cut at whole
 * cache lines. BRIEF: a block that is no longer than program.brief; of a longer one nothing. PARTIAL: or'ed; items are in the accumulator.
 */
enum program_unit { UNIT_BYTE = 0, UNIT_ELEMENT, UNIT_BLOCK, UNIT_SLICE, UNIT_WHOLE, UNIT_BRIEF, UNIT_PARTIAL = 0x80 };
enum program_flag {
    STEP_FINAL = 1, /* REDUCE: result in the type, AVG divided */
    STEP_TEE = 2,   /* REDUCE: the next EXPOSE of this lane is of this result: reserve its place first, store to both. On that EXPOSE too */
    STEP_CHUNKED = 4, /* refs mean chunk k of what they name; a LOOP or END with it counts k, otherwise i */
    STEP_LAND = 8,    /* VIEW: the bytes must end at dst */
    STEP_EACH = 32,   /* EXPOSE, VIEW: one of several that the exposer makes on this edge in each k: its round is k * turns + turn, not k */
};

struct comm_ref {
    uint8_t buf, unit;
    int16_t step;
    uint32_t first,
        count;            /* items first, first+step, .. (mod the team's size for blocks, mod slices), count of them; + outer*i + inner*k */
    int16_t outer, inner; /* of scratch and views, k counts mod program.depth when depth is not 0; a scratch item is as long as slice (or
                             block) `count`, or chunk k of it. A landing VIEW of several peers puts peer j's bytes at item first + step*j,
                             and a COPY of several views the j-th. Views that a COPY or REDUCE reads, with unit BLOCK: each is WHOLE, and
                             its block `step` is meant */
};
struct comm_step {
    uint8_t code, flags;
    uint16_t peer, npeers;     /* entries of the peer table */
    int16_t peer_outer;        /* + peer_outer * i, mod the table's length */
    uint16_t edge, wait, bump; /* a VIEW of several peers bumps once for each */
    uint16_t aside; /* END of a loop: its first step (0: the lane ends); REDUCE with TEE: the EXPOSE it feeds. Set by the builder */
    int32_t need, need_outer, need_inner; /* the wait: counter[wait] >= need + need_outer*i + need_inner*k */
    struct comm_ref dst, src;
    uint16_t turn, turns; /* with EACH: which one, and how many the exposer makes */
};
_Static_assert(sizeof(struct comm_ref) == 16 && sizeof(struct comm_step) == 64, "a step is one cache line");

struct comm_program {
    const char *algorithm;
    uint32_t bytes;                      /* of the whole allocation, for giving it back */
    uint32_t references;                 /* the cache's and those of running operations; under the communicator's lock */
    uint16_t lanes, steps, peers, views; /* views: how many view slots it uses */
    uint16_t slices;                     /* into how many whole-line parts block 0 is cut; 0: not cut */
    uint8_t chunk_unit;                  /* what k counts chunks of: 0 not chunked, UNIT_BLOCK or UNIT_SLICE */
    uint8_t depth;
    uint16_t scratch; /* scratch items */
    uint8_t counters; /* 0: no step waits or bumps */
    uint8_t own_in;   /* IN is this rank's block alone (gathers): block x of IN lies at its beginning */
    uint8_t own_out;  /* so is OUT (scatters) */
    uint8_t ragged;   /* a block's length is known to the two ends of its edge alone: each loop over chunks counts those of its own ref, and
                         every exposure carries the length of its whole block in its fingerprint. Equal on every rank */
    uint32_t brief;   /* bytes; ragged programs only, equal on every rank: a block that is no longer is shown by the steps that name it as
                         BRIEF, and none of its chunks is; of a longer one those steps show that it is. 0: there are no such steps */
    uint8_t
        wide; /* partial results travel on its streams: chunks are cut for the accumulator. Equal on every rank, as own_in and chunk_unit */
    uint8_t crossing; /* a lane reads views that another one asked for */
    uint16_t edges;
    uint8_t edge[PROGRAM_EDGES_MAX];  /* enum wire_edge bits, equal on every rank */
    uint16_t lane[PROGRAM_LANES_MAX]; /* first step of each */
    const uint16_t *peer; /* NULL where a rank does not fit 16 bits: then peer_wide, which no wire serves yet, but size-only runs do */
    const uint32_t *peer_wide;
    const struct comm_step *step;
};

static inline uint32_t program_peer(const struct comm_program *program, uint32_t index)
{
    return program->peer ? program->peer[index] : program->peer_wide[index];
}

/* Is this step one of those that leave out a block of so many bytes, since it goes whole in another? */
static inline bool program_leaves_out(const struct comm_program *program, const struct comm_step *step, size_t bytes)
{
    return program->brief && step->flags & STEP_CHUNKED && bytes <= program->brief;
}

/* What an exposure of a ragged program has in its fingerprint beside the call's: of the whole block that it is a part of. */
static inline uint32_t program_mark(uint64_t elements)
{
    return ((uint32_t)elements ^ (uint32_t)(elements >> 32)) * UINT32_C(0x9e3779b1);
}

/* Exposures of one edge to one reader are told apart by their round. On a stream the same readers see them all, and none is left out: who
 * shows one waits until they gave back the one that had its place. */
static inline uint32_t program_round(const struct comm_step *step, uint32_t k)
{
    return step->flags & STEP_EACH ? k * step->turns + step->turn : k;
}

/* Which ranks share a host. */
struct program_hosts {
    const int32_t *of;      /* by rank: its host's number, from 0 in the order of their lowest ranks */
    int32_t count, longest; /* hosts; ranks of the one with most */
    bool reduces;           /* reductions can be made of them too: few enough subtrees of T, each on one host, are all of it */
    bool even;              /* each is one such subtree, and as long as the others */
};

/* What a builder may know: only what is equal on every rank, and which rank this is. */
struct program_spec {
    uint32_t collective;
    int32_t rank, size, root;
    int32_t block;                     /* T over blocks of so many ranks, then over their results; 0: T over all */
    const struct program_hosts *hosts; /* NULL: not said, or one */
};

/* ------------------------------------------------------------------------------------------------------------ build */
/* A builder fills a `struct build`; every call appends. Overflow is remembered and told by build_end. Memory: env->take, one block per
 * program. */
struct build;
struct build *build_begin(const struct comm_env *env, const char *algorithm, const struct program_spec *spec);
/* The program (references 1), or NULL: no memory, or a bound was passed. Consumes the builder. */
struct comm_program *build_end(struct build *b);
void program_free(const struct comm_env *env, struct comm_program *program);
/* The rest of the builder's handle is in program/build.h: algorithms include that. */

/* ------------------------------------------------------------------------------------------------------------ run */
/* One operation, as its caller gave it. Pointers in it are kept for the operation's life by the engine. */
struct run_call {
    const void *in; /* never COMM_IN_PLACE: resolved by the api (in-place allreduce: in == out; allgather: in == own block in out) */
    void *out;
    size_t n; /* elements of a block */
    enum comm_type type;
    comm_op op;
    const size_t *counts, *displs;       /* v forms: per rank, in elements; NULL: blocks of n, one behind the other */
    const size_t *in_counts, *in_displs; /* of `in`, where it is laid out unlike `out`; NULL: as out */
};

/* What one element is: for the built-in types and operators run_start knows; others come from the engine. */
struct run_element {
    size_t raw, partial;    /* bytes, by itself and in its accumulator */
    size_t grain;           /* how many are never split; 0: 1 */
    data_reduce_fn *reduce; /* NULL: it is only moved */
    const void *context;    /* for reduce */
};

enum run_result {
    RUN_STANDS = 0,
    RUN_ENDED = 1,
    RUN_MISMATCH = 2,
    RUN_FAILED = 3,   /* no memory for the wire's places */
    RUN_GAVE_WAY = 4, /* it could go on at once, but the wire wants to be looked at in between */
};
/* How a result goes into a peer's memory, and what is known of either way: for all operations of a communicator (store_policy.c). */
enum store_way { RUN_WAY_PAST = 0 /* the cache */, RUN_WAY_NEAR = 1, RUN_WAYS, RUN_WAY_UNDECIDED = RUN_WAYS };
struct store_policy {
    const struct comm_env *env; /* its clock */
    uint32_t turn;
    uint32_t cost[RUN_WAYS]; /* time by length; 0: not known */
};
struct run_lane {
    uint16_t pc;
    uint16_t asked; /* peers of the VIEW at the head that were asked before the wire had no more room */
    uint32_t i, k;
    uint32_t turn;  /* of run, in which this lane stored a result in a peer's memory */
    uint16_t built; /* flags of the next EXPOSE, whose bytes stand where reserve said; 0: they do not */
};
struct run {
    const struct comm_program *program;
    struct wire_channel *channel;
    struct run_call call;
    data_reduce_fn *reduce;
    const void *context;                      /* for reduce */
    enum data_isa isa;                        /* the engine's, asked once: data_isa_best is slow */
    char *scratch;                            /* the engine's, at least run_scratch_bytes(...) */
    size_t raw, partial;                      /* element bytes */
    size_t slice, chunk;                      /* elements */
    uint32_t chunks, seq, fingerprint, index; /* index: the upper half of every cookie of this operation */
    uint32_t pending;                         /* exposes and landing views not complete */
    int32_t rank, size, mismatch_peer;        /* the last: -1 while ranks agree */
    uint16_t open;                            /* a bit per lane that has not ended */
    uint16_t waited;                          /* 1 + the peer whose event came last: it was waited for; 0: nobody */
    bool again;                               /* something may move: an event came, or the wire had no room */
    bool bumped, nontemporal;
    bool oversubscribed;                      /* ranks take turns on CPUs, and in their caches */
    bool gave_way;                            /* in this round a lane had more to do, which is another round's */
    uint32_t turn;                            /* of the lanes, from 1 */
    struct store_policy *store_policy;        /* the engine's; NULL: always past the cache */
    uint8_t way;                              /* enum run_way, of this operation's results */
    bool timed;                               /* the next of them tells what it took */
    size_t deposited;                         /* bytes stored in a peer's memory by this run_step */
    uint64_t present, view_partial, view_own; /* a bit per view slot; own: a view of this rank's own memory */
    size_t scratch_item;                      /* bytes */
    uint64_t bytes_out, bytes_in;             /* shown to others, looked at or landed of theirs: since this place was made, never reset */
    struct run_lane lane[PROGRAM_LANES_MAX];
    int32_t counter[PROGRAM_COUNTERS];
    struct wire_view *view; /* program->views of them, the engine's memory: PROGRAM_VIEWS_MAX at most */
};

/* Chunk length and scratch follow from the program, the call and the channel's caps, the same on every rank. 0: needs none. */
size_t run_scratch_bytes(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel, int32_t size);
/* How a call is cut, as every rank computes it alike: in elements, but for scratch_bytes of one item. For who only counts. */
struct run_cut {
    size_t longest, slice, chunk, scratch_bytes;
    uint32_t chunks;
};
struct run_cut run_cut_of(const struct comm_program *program, const struct wire_caps *caps, int32_t size, size_t n, size_t raw,
                          size_t partial);
/* channel, call, isa, oversubscribed, store_policy, scratch, view, seq, fingerprint, index, rank and size are set by the caller; the
 * rest is filled here. Issues nothing. */
void run_start(struct run *run, const struct comm_program *program);
/* The same for an element of the caller's own. */
size_t run_scratch_bytes_as(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel,
                            int32_t size, const struct run_element *element);
void run_start_as(struct run *run, const struct comm_program *program, const struct run_element *element);
enum run_result run_step(struct run *run);
/* A DONE event whose cookie's upper half is run->index. Sets again; a MISMATCH result makes the next run_step return RUN_MISMATCH. */
void run_event(struct run *run, const struct wire_event *event);

/* An algorithm: what makes the programs of one collective (build.h). */
typedef struct comm_program *program_build_fn(const struct comm_env *env, const struct program_spec *spec);

#endif
