/*
 * program: a collective as data. A program is an immutable, relocatable table of steps for one rank, in a few in-order
 * lanes over symbolic buffers. One small interpreter (run) executes it over any wire. The verifier in the tests proves
 * it for every team size in advance.
 *
 *   EXPOSE VIEW RELEASE COPY REDUCE LOOP END
 *
 * A lane issues its steps in order. A step issues when it is the lane's next, its wait holds, the views that it reads
 * are present, and the wire has room. After an EXPOSE or VIEW the lane continues at once; COPY and REDUCE hold it until
 * they are done; a RELEASE waits until the views are present. A step's bump happens when the step completes (EXPOSE:
 * its bytes may be overwritten; VIEW: the bytes have arrived), and makes every lane of the operation run again in the
 * same pass. Exposed bytes may be read until the EXPOSE completes. On a stream it completes at the latest when every
 * reader has released the bytes; a later view of such a reader's results implies that. On a ONCE edge the wire
 * completes it alone, whatever readers do. An operation ends when all lanes have ended and every EXPOSE and every
 * landing VIEW has completed.
 */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "data/data.h"
#include "wire/collective.h"
#include "wire/wire.h"

enum {
    PROGRAM_LANES_MAX = 8,
    PROGRAM_COUNTERS = 16, /* counter 0 means none */
    PROGRAM_VIEWS_MAX = 64,
    PROGRAM_EDGES_MAX = 20, /* levels of a doubling over a million ranks */
    PROGRAM_CHUNK_MIN_BYTES = 4096,
    PROGRAM_BRIEF_BYTES = 65536, /* the longest exposure of a ONCE edge that every wire accepts; a private one accepts WIRE_EACH_BYTES */
};

/* Whether only the two ends of each edge know the lengths of blocks. Then lengths are not part of what all ranks
 * compare. */
static inline bool collective_is_ragged(uint32_t collective)
{
    return collective == COLLECTIVE_GATHER_V || collective == COLLECTIVE_SCATTER_V || collective == COLLECTIVE_ALLTOALL_V;
}
const char *collective_name(uint32_t collective); /* "?" if unknown */
uint32_t collective_parse(const char *name);      /* 0: no such name */

/* ------------------------------------------------------------------------------------------------------------ the data */
enum program_code { STEP_EXPOSE = 1, STEP_VIEW, STEP_RELEASE, STEP_COPY, STEP_REDUCE, STEP_LOOP, STEP_END };
enum program_buf { BUF_NONE = 0, BUF_IN, BUF_OUT, BUF_SCRATCH, BUF_VIEW };
/* ELEMENT: elements of block 0. BLOCK: whole blocks. WHOLE: all blocks of a buffer without holes. SLICE: 1/slices of
 * block 0, cut at whole cache lines; with each_block, slices of all blocks, counted on. BRIEF: a block that is no longer than
 * program.brief; nothing of a longer one. In a program with `swaps`: SLICE is of what both blocks have, and chunks of a BLOCK are of what
 * the longer one has behind that. PARTIAL: or'ed in; items are in the accumulator type. */
enum program_unit { UNIT_BYTE = 0, UNIT_ELEMENT, UNIT_BLOCK, UNIT_SLICE, UNIT_WHOLE, UNIT_BRIEF, UNIT_PARTIAL = 0x80 };
enum program_flag {
    STEP_FINAL = 1,   /* REDUCE: result in the type, AVG divided */
    STEP_TEE = 2,     /* REDUCE: the next EXPOSE of this lane exposes this result: reserve its place first and store to both. Set on that
                       * EXPOSE too, and on one that a COPY with ANSWER feeds */
    STEP_CHUNKED = 4, /* refs mean chunk k of what they name; a LOOP or END with it counts k, otherwise i */
    STEP_LAND = 8,    /* VIEW: the bytes must go to dst */
    STEP_ANSWER = 16, /* REDUCE of two views, with TEE: one view is of the only reader of the result, on the edge before that result's, and
                       * the next step releases it: the result may be stored there. COPY of such a view: the same with what the next EXPOSE
                       * exposes, which the COPY moves in the same pass, to where it is exposed and to the dst of that EXPOSE */
    STEP_EACH = 32,   /* EXPOSE, VIEW: the exposer makes several on this edge for each k; the round is k * turns + turn instead of k */
};

struct comm_ref {
    uint8_t buf, unit;
    int16_t step;
    uint32_t first, count; /* items first, first+step, .. (modulo the team's size for blocks, modulo slices), count of them; + outer*i +
                            * inner*k */
    int16_t outer, inner;  /* for scratch and views, k counts modulo program.depth if depth is not 0. A scratch item is as long as slice (or
                            * block) `count`, or chunk k of it. A landing VIEW of several peers puts peer j's bytes at item first + step*j,
                            * and a COPY of several views puts the j-th there. Views that a COPY or REDUCE reads with unit BLOCK: each is
                            * WHOLE, and its block `step` is meant */
};
struct comm_step {
    uint8_t code, flags;
    uint16_t peer, npeers;     /* entries of the peer table */
    int16_t peer_outer;        /* + peer_outer * i, modulo the table's length */
    uint16_t edge, wait, bump; /* a VIEW of several peers bumps once for each */
    uint16_t aside; /* END of a loop: its first step (0: the lane ends); LOOP: the step behind its END; REDUCE with TEE: the EXPOSE that it
                     * feeds. Set by the builder */
    int32_t need, need_outer, need_inner; /* the wait: counter[wait] >= need + need_outer*i + need_inner*k */
    struct comm_ref dst, src;             /* dst of an EXPOSE: where this rank keeps the same bytes; BUF_NONE: nowhere */
    uint16_t turn, turns;                 /* with EACH: which one, and how many the exposer makes */
};
_Static_assert(sizeof(struct comm_ref) == 16 && sizeof(struct comm_step) == 64, "a step is one cache line");

struct comm_program {
    const char *algorithm;
    uint32_t bytes;                      /* size of the whole allocation */
    uint32_t references;                 /* of the cache and of running operations; under the communicator's lock */
    uint16_t lanes, steps, peers, views; /* views: number of view slots */
    uint16_t slices;                     /* number of parts, in whole lines, into which block 0 is cut; 0: not cut */
    uint8_t chunk_unit;                  /* what k counts chunks of: 0 (not chunked), UNIT_BLOCK or UNIT_SLICE */
    uint8_t depth;
    uint16_t scratch;   /* scratch items */
    uint8_t counters;   /* 0: no step waits or bumps */
    uint8_t each_block; /* slices are of every block: the item is block * slices + slice */
    uint8_t own_in;     /* IN is this rank's block alone (gathers): block x of IN is at its beginning */
    uint8_t own_out;    /* the same for OUT (scatters) */
    uint8_t ragged;     /* only the two ends of an edge know a block's length. Each loop over chunks counts those of its own ref, and every
                         * exposure carries the length of its whole block in its fingerprint. Equal on every rank */
    uint32_t brief; /* bytes; only ragged programs, equal on every rank. A block of at most this length is exposed by the steps that name
                     * it as BRIEF, and has no chunks. For a longer block those steps expose only that it is longer. A loop over chunks of
                     * which there are none is left out. 0: there are no such steps */
    uint32_t swaps; /* bytes; only ragged programs of two ranks, whose first peer is the other one. If both blocks that the two exchange are
                     * longer, none is brief, and what both have is cut into slices; otherwise there are no slices. Exposures of chunks
                     * carry both lengths in their fingerprint. 0: never */
    uint8_t wide; /* its streams carry partial results: chunks are cut for the accumulator. Equal on every rank, as own_in and chunk_unit */
    uint8_t crossing; /* a lane reads views that another lane requested */
    uint16_t edges;
    uint8_t edge[PROGRAM_EDGES_MAX];  /* enum wire_edge bits, equal on every rank */
    uint16_t lane[PROGRAM_LANES_MAX]; /* first step of each */
    const uint16_t *peer; /* NULL if a rank does not fit in 16 bits: then peer_wide, which no wire supports yet, but size-only runs do */
    const uint32_t *peer_wide;
    const struct comm_step *step;
};

/* Whether an alltoall by this program writes `out` while it still reads `in`. In place it needs a copy of `in`. */
static inline bool program_writes_early(const struct comm_program *program)
{
    return program->ragged || program->each_block;
}

static inline uint32_t program_peer(const struct comm_program *program, uint32_t index)
{
    return program->peer ? program->peer[index] : program->peer_wide[index];
}

/* Mixed into the fingerprint of an exposure of a ragged program: the length of the whole block that it is part of. */
static inline uint32_t program_mark(uint64_t elements)
{
    return ((uint32_t)elements ^ (uint32_t)(elements >> 32)) * UINT32_C(0x9e3779b1);
}

/* Exposures of one edge to one reader are distinguished by their round. On a stream all of them go to the same readers
 * and none is left out: an exposer waits until the readers have released the exposure that had the place before. */
static inline uint32_t program_round(const struct comm_step *step, uint32_t k)
{
    return step->flags & STEP_EACH ? k * step->turns + step->turn : k;
}

/* Which ranks share a host. */
struct program_hosts {
    const int32_t *of;      /* by rank: the number of its host, from 0 in the order of the hosts' lowest ranks */
    int32_t count, longest; /* number of hosts; ranks of the largest */
    bool reduces;           /* reductions over hosts are possible: all ranks are covered by few enough subtrees of T that lie on one host
                             * each */
    bool even;              /* each host is one such subtree, and all are equally long */
};

/* What a builder may depend on: only data that is equal on every rank, and this rank's number. */
struct program_spec {
    uint32_t collective;
    int32_t rank, size, root;
    int32_t block;                     /* T over blocks of this many ranks, then over their results; 0: T over all */
    const struct program_hosts *hosts; /* NULL: unknown, or one host */
};

/* ------------------------------------------------------------------------------------------------------------ build */
/* A builder fills a `struct build`; every call appends. Overflow is remembered, and build_end reports it. Memory:
 * env->take, one block per program. */
struct build;
struct build *build_begin(const struct comm_env *env, const char *algorithm, const struct program_spec *spec);
/* Returns the program (references 1), or NULL: no memory, or a limit was passed. Consumes the builder. */
struct comm_program *build_end(struct build *b);
void program_free(const struct comm_env *env, struct comm_program *program);
/* The rest of the builder's interface is in program/build.h, which algorithms include. */

/* ------------------------------------------------------------------------------------------------------------ run */
/* One operation, as its caller passed it. The engine keeps its pointers for the operation's life. */
struct run_call {
    const void *in; /* never COMM_IN_PLACE: the api resolves it (in-place allreduce: in == out; allgather: in == own block in out) */
    void *out;
    size_t n; /* elements of a block */
    enum comm_type type;
    comm_op op;
    const size_t *counts, *displs;       /* v forms: per rank, in elements; NULL: blocks of n, one behind the other */
    const size_t *in_counts, *in_displs; /* of `in`, if its layout differs from that of `out`; NULL: as out */
};

/* One element. run_start knows the built-in types and operators; others come from the engine. */
struct run_element {
    size_t raw, partial;    /* bytes of the element, and of its accumulator */
    size_t grain;           /* number of elements that are never split; 0: 1 */
    data_reduce_fn *reduce; /* NULL: elements are only moved */
    const void *context;    /* argument of reduce */
};

enum run_result {
    RUN_STANDS = 0,
    RUN_ENDED = 1,
    RUN_MISMATCH = 2,
    RUN_FAILED = 3,   /* no memory for the wire's places */
    RUN_GAVE_WAY = 4, /* it could continue at once, but the wire must be polled in between */
};
/* How results are stored in a peer's memory, and the known cost of either way; shared by all operations of a
 * communicator (store_policy.c). */
enum store_way { RUN_WAY_PAST = 0 /* non-temporal stores, past the cache */, RUN_WAY_NEAR = 1, RUN_WAYS, RUN_WAY_UNDECIDED = RUN_WAYS };
struct store_policy {
    const struct comm_env *env; /* for its clock */
    uint32_t turn;
    uint32_t cost[RUN_WAYS]; /* time per length; 0: unknown */
};
struct run_lane {
    uint16_t pc;
    uint16_t asked; /* peers of the VIEW at the head that were requested before the wire had no more room */
    uint32_t i, k;
    uint32_t turn;  /* the run's turn in which this lane last stored a result in a peer's memory */
    uint16_t built; /* flags of the next EXPOSE if its bytes are where reserve said; otherwise 0 */
};
struct run {
    const struct comm_program *program;
    struct wire_channel *channel;
    struct run_call call;
    data_reduce_fn *reduce;
    const void *context;                      /* argument of reduce */
    enum data_isa isa;                        /* the engine's; determined once, because data_isa_best is slow */
    char *scratch;                            /* the engine's, at least run_scratch_bytes(...) long */
    size_t raw, partial;                      /* element bytes */
    size_t slice, chunk;                      /* elements */
    uint32_t chunks, seq, fingerprint, index; /* index: the upper half of every cookie of this operation */
    uint32_t pending;                         /* exposures and landing views that are not complete */
    int32_t rank, size, mismatch_peer;        /* mismatch_peer: -1 while ranks agree */
    uint16_t open;                            /* one bit per lane that has not ended */
    uint16_t waited;                          /* 1 + the peer of the last event, which was therefore waited for; 0: none */
    bool again;                               /* something may move: an event came, or the wire had no room */
    bool bumped, nontemporal;
    bool oversubscribed;                      /* ranks share CPUs, and therefore caches */
    bool gave_way;                            /* in this round a lane had more to do, which is left for the next round */
    uint32_t turn;                            /* counts rounds of the lanes, from 1 */
    struct store_policy *store_policy;        /* the engine's; NULL: always store past the cache */
    uint8_t way;                              /* enum store_way, for this operation's results */
    bool timed;                               /* the next stored result is timed */
    size_t deposited;                         /* bytes stored in a peer's memory by this run_step */
    uint64_t present, view_partial, view_own; /* one bit per view slot; own: a view of this rank's own memory */
    size_t scratch_item;                      /* bytes */
    uint64_t bytes_out, bytes_in;             /* exposed to others, and viewed or landed from others: since this struct was made, never
                                               * reset */
    struct run_lane lane[PROGRAM_LANES_MAX];
    int32_t counter[PROGRAM_COUNTERS];
    struct wire_view *view; /* program->views of them, at most PROGRAM_VIEWS_MAX; the engine's memory */
};

/* Chunk length and scratch follow from the program, the call and the channel's caps, the same on every rank. 0: no
 * scratch. */
size_t run_scratch_bytes(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel, int32_t size);
/* How a call is cut, which every rank computes alike: in elements, except scratch_bytes, the bytes of one item. For
 * code that only counts. */
struct run_cut {
    size_t longest, slice, chunk, scratch_bytes;
    uint32_t chunks;
};
struct run_cut run_cut_of(const struct comm_program *program, const struct wire_caps *caps, int32_t size, size_t n, size_t raw,
                          size_t partial);
/* The caller sets channel, call, isa, oversubscribed, store_policy, scratch, view, seq, fingerprint, index, rank and
 * size; run_start sets the rest. Issues nothing. */
void run_start(struct run *run, const struct comm_program *program);
/* The same for an element that the caller describes. */
size_t run_scratch_bytes_as(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel,
                            int32_t size, const struct run_element *element);
void run_start_as(struct run *run, const struct comm_program *program, const struct run_element *element);
enum run_result run_step(struct run *run);
/* Handles a DONE event whose cookie's upper half is run->index. Sets `again`; a MISMATCH result makes the next run_step
 * return RUN_MISMATCH. */
void run_event(struct run *run, const struct wire_event *event);

/* An algorithm: builds the programs of one collective (build.h). */
typedef struct comm_program *program_build_fn(const struct comm_env *env, const struct program_spec *spec);

#endif
