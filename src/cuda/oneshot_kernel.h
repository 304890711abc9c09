/*
 * The allreduce of a host in one kernel, as each rank's device runs it: it writes its input into its own mailbox, waits for those of all
 * others, and reduces. An allgather and a broadcast are the same without the reduction; of a reduce_scatter each rank reduces its block. A
 * barrier has no data: it announces and waits.
 * Mailboxes are pinned memory of the host; where devices can access each other, the slots may lie in their memory.
 * docs/internals/kernels.md has the protocol and why it is right.
 * It is plain C: nvcc compiles it for devices (kernels.cu); the mock driver and tests/cuda/test_oneshot.c compile it for the CPU, where
 * they run its blocks in all kinds of orders.
 *
 * A block handles one part of the vector, in phases. All threads of a block end a phase before any begins the next one.
 */
#ifndef CUDA_ONESHOT_KERNEL_H
#define CUDA_ONESHOT_KERNEL_H

#include "cuda/fold_kernel.h"

#ifndef ONESHOT_PART_BYTES
#    define ONESHOT_PART_BYTES 4096 /* the longest part */
#endif
enum {
    ONESHOT_RANKS = 64,
    ONESHOT_BYTES = 65536, /* the longest vector */
    ONESHOT_THREADS = 256,
    ONESHOT_TILE_BYTES = 32768, /* fast memory of a block: the same part of all ranks */
    ONESHOT_PARTS = ONESHOT_BYTES / (ONESHOT_TILE_BYTES / ONESHOT_RANKS),
    ONESHOT_PIECE_BYTES = 16, /* what a thread copies at once */
    ONESHOT_BATCH = 8 /* pieces that a thread reads before it uses the first: a read of the host's memory takes about a microsecond */
};

/* A mailbox: words of its owner's host, then flags and two slots, for operations with even and with odd numbers. Slots in memory of a
 * device are at the same place of a piece of the same length; where the words and flags would be, it has the buffers of a trial. */
enum {
    ONESHOT_FLAGS_AT = 64,
    ONESHOT_PIPELINE_AT = 3072, /* words of the host for long sums (pipeline/pipeline.h) */
    ONESHOT_SLOTS_AT = 4096,
    ONESHOT_BOX_BYTES = ONESHOT_SLOTS_AT + 2 * ONESHOT_BYTES
};

enum oneshot_kind { ONESHOT_SUM, ONESHOT_GATHER, ONESHOT_BROADCAST, ONESHOT_SCATTER, ONESHOT_BARRIER /* one part of no elements */ };

/* How an operation ends that does not end well. */
enum { ONESHOT_ABORTED = 1, ONESHOT_DIFFERS = 2 /* a peer's operation of the same number has another type, operator or length */ };

/* A rank's counters in memory of its device: all zero before the first operation. The kernel counts the operations itself, so that a graph
 * may launch it again with the same arguments. */
struct oneshot_state {
    uint64_t number;           /* of the last operation that has ended */
    uint32_t ticket, finished; /* blocks of this operation that have begun, and that have finished */
    uint32_t error, unused;    /* once set, no operation does anything any more */
};

/* Addresses are the device's. */
struct oneshot_args {
    const void *in;
    void *out; /* it is `in`, or overlaps it nowhere; of a gather: `in` may be this rank's own block of it */
    struct oneshot_state *state;
    uint64_t *done;        /* pinned: gets `base` + number, last of all */
    uint64_t *wrong;       /* pinned: gets the error, before */
    const uint64_t *abort; /* pinned: not 0: end */
    uint64_t base;
    uint64_t elements;
    uint64_t stride; /* bytes from one rank's block to the next one's: of a gather in `out`, of a scatter in `in`; otherwise 0 */
    uint32_t kind, root;
    uint32_t type, op, ranks, rank; /* without a reduction the elements are bytes */
    uint32_t scaled, unused;        /* scaled: of a reduction; each element of `in` is first multiplied by `factor` */
    uint64_t factor;                /* begins with an element of the type */
    uint32_t fingerprint;           /* of the call */
    uint32_t parts;                 /* also the number of blocks */
    char *box[ONESHOT_RANKS];
    char *slots[ONESHOT_RANKS]; /* the mailboxes whose slots are used: `box`, or memory of the devices */
};

struct oneshot_piece {
    uint64_t low, high;
} __attribute__((aligned(16)));

/* Memory of a block. */
struct oneshot_block {
    struct oneshot_piece tile[ONESHOT_TILE_BYTES / ONESHOT_PIECE_BYTES];
    uint64_t number;
    uint32_t part, there, error; /* there: peers that have written their part */
};

enum oneshot_phase {
    ONESHOT_BEGIN,
    ONESHOT_PUBLISH,
    ONESHOT_ANNOUNCE,
    ONESHOT_AWAIT,
    ONESHOT_COLLECT,
    ONESHOT_REDUCE,
    ONESHOT_FINISH,
    ONESHOT_PHASES
};

/*
 * What the memory model asks for. WRITE: an ordinary store into a mailbox. READ_PIECE and READ_BYTE: of a slot, never from a cache that
 * other devices' stores do not reach. LOAD and STORE: acquire and release, seen by all devices and the host. NOW: nanoseconds. ADD, MAX and
 * FENCE: for the blocks of this kernel. SEEN: a variable of the block, read again at each look. A test may define them first.
 */
#ifdef __CUDACC__
#    define ONESHOT_SLOT(number) ((number)&1)
#    define ONESHOT_WRITE(to, value) (*(to) = (value))
#    define ONESHOT_ADD(at, more) atomicAdd((at), (more))
#    define ONESHOT_MAX(at, value) atomicMax((at), (value))
#    define ONESHOT_FENCE() __threadfence()
#    define ONESHOT_SEEN(variable) (*(volatile uint32_t *)&(variable))
#    define ONESHOT_READ_BYTE(at) (*(const volatile char *)(at))
FOLD_INLINE struct oneshot_piece ONESHOT_READ_PIECE(const struct oneshot_piece *at) {
    struct oneshot_piece value;
    asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];" : "=l"(value.low), "=l"(value.high) : "l"(at) : "memory");
    return value;
} FOLD_INLINE uint64_t ONESHOT_NOW(void)
{
    uint64_t value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value) : : "memory");
    return value;
}
FOLD_INLINE uint64_t ONESHOT_LOAD(const uint64_t *at)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
FOLD_INLINE void ONESHOT_STORE(uint64_t *at, uint64_t value)
{
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}
#elif !defined(ONESHOT_STORE)
#    define ONESHOT_SLOT(number) ((number)&1)
#    define ONESHOT_WRITE(to, value) (*(to) = (value))
#    define ONESHOT_LOAD(at) __atomic_load_n((at), __ATOMIC_ACQUIRE)
#    define ONESHOT_STORE(at, value) __atomic_store_n((at), (value), __ATOMIC_RELEASE)
#    define ONESHOT_ADD(at, more) __atomic_fetch_add((at), (more), __ATOMIC_ACQ_REL)
#    define ONESHOT_MAX(at, value) (void)(*(at) = *(at) > (value) ? *(at) : (value)) /* one thread runs all blocks */
#    define ONESHOT_FENCE() (void)0
#    define ONESHOT_SEEN(variable) (*(volatile uint32_t *)&(variable))
#    define ONESHOT_READ_PIECE(at) (*(at))
#    define ONESHOT_READ_BYTE(at) (*(at))
#endif
#if !defined(__CUDACC__) && !defined(ONESHOT_NOW)
#    define ONESHOT_NOW() 0
#endif

/* ------------------------------------------------------------------------------------------------------------ what all ranks know */
/* The length of a part, equal on all ranks: parts of all of them fit in a tile. Every element is in one part. */
FOLD_INLINE uint32_t oneshot_part_bytes(uint32_t ranks)
{
    uint32_t most = ONESHOT_TILE_BYTES / ranks / ONESHOT_PIECE_BYTES * ONESHOT_PIECE_BYTES;

    return most < ONESHOT_PART_BYTES ? most : ONESHOT_PART_BYTES;
}

FOLD_INLINE uint64_t *oneshot_flag(char *box, uint64_t number, uint32_t part)
{
    return (uint64_t *)(void *)(box + ONESHOT_FLAGS_AT) + ONESHOT_SLOT(number) * ONESHOT_PARTS + part;
}

FOLD_INLINE char *oneshot_slot(char *slots, uint64_t number)
{
    return slots + ONESHOT_SLOTS_AT + ONESHOT_SLOT(number) * ONESHOT_BYTES;
}

/* Number and fingerprint of an operation: what the flag of a written part says. */
FOLD_INLINE uint64_t oneshot_mark(const struct oneshot_args *a, uint64_t number)
{
    return number << 32 | a->fingerprint;
}

/* ------------------------------------------------------------------------------------------------------------ phases */
struct oneshot_span {
    size_t at, bytes, elements;
};

FOLD_INLINE struct oneshot_span oneshot_span_of(const struct oneshot_args *a, uint32_t part)
{
    size_t element = fold_bytes(a->type), each = oneshot_part_bytes(a->ranks), all = (size_t)a->elements * element;
    struct oneshot_span span;

    span.at = part * each;
    span.bytes = all - span.at < each ? all - span.at : each;
    span.elements = span.bytes / element;
    return span;
}

/* Parts go to blocks in the order in which these begin, so a block waits for no part that a block of its own device has still to begin. */
FOLD_INLINE void oneshot_begin(const struct oneshot_args *a, struct oneshot_block *b)
{
    b->part = ONESHOT_ADD(&a->state->ticket, 1);
    b->number = a->state->number + 1;
    b->there = 0;
    b->error = a->state->error;
}

/* In a scatter's slot, the bytes from one rank's block to the next one's: so many of each fit. */
FOLD_INLINE size_t oneshot_share(const struct oneshot_args *a)
{
    return ONESHOT_BYTES / a->ranks / ONESHOT_PIECE_BYTES * ONESHOT_PIECE_BYTES;
}

/* Writes into the mailbox, and into the tile unless that is NULL. A device's writes of whole pieces cross the bus in whole lines. */
FOLD_INLINE void oneshot_write(char *to, char *tile, const char *from, size_t bytes, uint32_t thread, uint32_t threads)
{
    size_t pieces = (uintptr_t)from % ONESHOT_PIECE_BYTES ? 0 : bytes / ONESHOT_PIECE_BYTES;

    for (size_t i = thread; i < pieces; i += threads) {
        struct oneshot_piece piece = ((const struct oneshot_piece *)(const void *)from)[i];
        ONESHOT_WRITE((struct oneshot_piece *)(void *)to + i, piece);
        if (tile)
            ((struct oneshot_piece *)(void *)tile)[i] = piece;
    }
    for (size_t i = pieces * ONESHOT_PIECE_BYTES + thread; i < bytes; i += threads) {
        ONESHOT_WRITE(to + i, from[i]);
        if (tile)
            tile[i] = from[i];
    }
}

/* One element, in one store. */
FOLD_INLINE void oneshot_store(char *to, const char *from, size_t bytes)
{
    if (bytes == 1)
        ONESHOT_WRITE(to, *from);
    else if (bytes == 2)
        ONESHOT_WRITE((uint16_t *)(void *)to, *(const uint16_t *)(const void *)from);
    else if (bytes == 4)
        ONESHOT_WRITE((uint32_t *)(void *)to, *(const uint32_t *)(const void *)from);
    else
        ONESHOT_WRITE((uint64_t *)(void *)to, *(const uint64_t *)(const void *)from);
}

/* As oneshot_write, of products with the factor, which are rounded to the type. */
FOLD_INLINE void oneshot_write_products(const struct oneshot_args *a, char *to, char *tile, const char *from, size_t elements,
                                        uint32_t thread, uint32_t threads)
{
    const char *pair[2] = {(const char *)&a->factor, from};
    size_t bytes = fold_bytes(a->type);
    uint64_t product;
    struct fold_args fold;

    fold.in = NULL;
    fold.inputs = pair;
    fold.out = &product;
    fold.stride = 0;
    fold.elements = 1;
    fold.ways = fold.divisor = 2;
    fold.type = a->type;
    fold.op = COMM_PROD;
    for (size_t i = thread; i < elements; i += threads) {
        pair[1] = from + i * bytes;
        fold_element(&fold, 0);
        oneshot_store(to + i * bytes, (const char *)&product, bytes);
        if (tile)
            oneshot_store(tile + i * bytes, (const char *)&product, bytes);
    }
}

FOLD_INLINE void oneshot_write_input(const struct oneshot_args *a, char *to, char *tile, const char *from, const struct oneshot_span *span,
                                     uint32_t thread, uint32_t threads)
{
    if (a->scaled)
        oneshot_write_products(a, to, tile, from, span->elements, thread, threads);
    else
        oneshot_write(to, tile, from, span->bytes, thread, threads);
}

/* The own part also goes into the tile; of a scatter, that of the own block. */
FOLD_INLINE void oneshot_publish(const struct oneshot_args *a, struct oneshot_block *b, uint32_t thread, uint32_t threads)
{
    struct oneshot_span span = oneshot_span_of(a, b->part);
    const char *from = (const char *)a->in + span.at;
    char *to = oneshot_slot(a->slots[a->rank], b->number) + span.at,
         *tile = (char *)b->tile + a->rank * (size_t)oneshot_part_bytes(a->ranks);

    if (a->kind == ONESHOT_BROADCAST && a->rank != a->root)
        return;
    for (uint32_t peer = 0; a->kind == ONESHOT_SCATTER && peer < a->ranks; peer++)
        oneshot_write_input(a, to + peer * oneshot_share(a), peer == a->rank ? tile : NULL, from + peer * a->stride, &span, thread,
                            threads);
    if (a->kind != ONESHOT_SCATTER)
        oneshot_write_input(a, to, tile, from, &span, thread, threads);
}

/* True: this thread has nothing to wait for any more. Each thread looks at one peer's flag; the one of this rank at the abort word. */
FOLD_INLINE bool oneshot_look(const struct oneshot_args *a, struct oneshot_block *b, uint32_t thread)
{
    uint64_t mark = oneshot_mark(a, b->number), flag;

    if (thread >= a->ranks || ONESHOT_SEEN(b->error))
        return true;
    if (thread == a->rank) {
        if (ONESHOT_SEEN(b->there) == a->ranks - 1)
            return true;
        if (!ONESHOT_LOAD(a->abort))
            return false;
        b->error = ONESHOT_ABORTED;
        return true;
    }
    flag = ONESHOT_LOAD(oneshot_flag(a->box[thread], b->number, b->part));
    if (flag == mark)
        ONESHOT_ADD(&b->there, 1);
    else if (flag >> 32 == mark >> 32)
        b->error = ONESHOT_DIFFERS;
    else
        return false;
    return true;
}

/* Piece number `index` of all that the peers wrote, of which each wrote `each`; or NULL past the end. *to: its place in the tile. */
FOLD_INLINE const struct oneshot_piece *oneshot_piece_of(const struct oneshot_args *a, struct oneshot_block *b, size_t at, uint32_t each,
                                                         uint32_t index, struct oneshot_piece **to)
{
    uint32_t peer = index / each, piece = index % each;

    if (index >= each * (a->ranks - 1))
        return NULL;
    peer += peer >= a->rank;
    *to = b->tile + peer * (oneshot_part_bytes(a->ranks) / ONESHOT_PIECE_BYTES) + piece;
    return (const struct oneshot_piece *)(const void *)(oneshot_slot(a->slots[peer], b->number) + at) + piece;
}

/* Whole pieces: a slot has room for the last one. */
FOLD_INLINE void oneshot_gather(const struct oneshot_args *a, struct oneshot_block *b, uint32_t thread, uint32_t threads)
{
    struct oneshot_piece piece[ONESHOT_BATCH], *to[ONESHOT_BATCH];
    struct oneshot_span span = oneshot_span_of(a, b->part);
    uint32_t each = (uint32_t)((span.bytes + ONESHOT_PIECE_BYTES - 1) / ONESHOT_PIECE_BYTES), index = thread;
    size_t at = span.at + (a->kind == ONESHOT_SCATTER ? a->rank * oneshot_share(a) : 0);
    const struct oneshot_piece *from;
    bool more = true;

    while (more) {
        for (uint32_t i = 0; i < ONESHOT_BATCH; i++, index += threads) {
            to[i] = NULL;
            from = oneshot_piece_of(a, b, at, each, index, &to[i]);
            if (from)
                piece[i] = ONESHOT_READ_PIECE(from);
        }
        for (uint32_t i = 0; i < ONESHOT_BATCH; i++)
            if (to[i])
                *to[i] = piece[i];
        more = to[ONESHOT_BATCH - 1] != NULL;
    }
}

/* Reads a batch before it writes the first piece. */
FOLD_INLINE void oneshot_copy(char *to, const char *from, size_t bytes, uint32_t thread, uint32_t threads)
{
    struct oneshot_piece piece[ONESHOT_BATCH];
    size_t pieces = ((uintptr_t)to | (uintptr_t)from) % ONESHOT_PIECE_BYTES ? 0 : bytes / ONESHOT_PIECE_BYTES;

    for (size_t first = thread; first < pieces; first += (size_t)ONESHOT_BATCH * threads) {
        for (uint32_t i = 0; i < ONESHOT_BATCH; i++)
            if (first + i * threads < pieces)
                piece[i] = ONESHOT_READ_PIECE((const struct oneshot_piece *)(const void *)from + first + i * threads);
        for (uint32_t i = 0; i < ONESHOT_BATCH; i++)
            if (first + i * threads < pieces)
                ((struct oneshot_piece *)(void *)to)[first + i * threads] = piece[i];
    }
    for (size_t i = pieces * ONESHOT_PIECE_BYTES + thread; i < bytes; i += threads)
        to[i] = ONESHOT_READ_BYTE(from + i);
}

/* The same part of every rank, or of the root, goes to its place in the output. */
FOLD_INLINE void oneshot_take(const struct oneshot_args *a, struct oneshot_block *b, uint32_t thread, uint32_t threads)
{
    struct oneshot_span span = oneshot_span_of(a, b->part);

    for (uint32_t peer = 0; peer < a->ranks; peer++) {
        char *to = (char *)a->out + peer * a->stride + span.at;
        const char *from = (peer == a->rank ? (const char *)a->in : oneshot_slot(a->slots[peer], b->number)) + span.at;
        if (to != from && (a->kind == ONESHOT_GATHER || peer == a->root))
            oneshot_copy(to, from, span.bytes, thread, threads);
    }
}

FOLD_INLINE void oneshot_reduce(const struct oneshot_args *a, struct oneshot_block *b, uint32_t thread, uint32_t threads)
{
    struct oneshot_span span = oneshot_span_of(a, b->part);
    struct fold_args fold;

    fold.in = b->tile;
    fold.inputs = NULL;
    fold.out = (char *)a->out + span.at;
    fold.stride = oneshot_part_bytes(a->ranks);
    fold.elements = span.elements;
    fold.ways = fold.divisor = a->ranks;
    fold.type = a->type;
    fold.op = a->op;
    fold_thread(&fold, thread, threads);
}

/* The last block of the operation tells the host. */
FOLD_INLINE void oneshot_finish(const struct oneshot_args *a, struct oneshot_block *b)
{
    struct oneshot_state *s = a->state;

    if (b->error)
        ONESHOT_MAX(&s->error, b->error);
    ONESHOT_FENCE();
    if (ONESHOT_ADD(&s->finished, 1) + 1 < a->parts)
        return;
    ONESHOT_FENCE();
    s->ticket = s->finished = 0;
    s->number = b->number;
    if (ONESHOT_SEEN(s->error))
        ONESHOT_STORE(a->wrong, ONESHOT_SEEN(s->error));
    ONESHOT_STORE(a->done, a->base + b->number);
}

FOLD_INLINE bool oneshot_reduces(const struct oneshot_args *a)
{
    return a->kind == ONESHOT_SUM || a->kind == ONESHOT_SCATTER;
}

/* What a thread does in a phase. False: it has still to wait; call again. */
FOLD_INLINE bool oneshot_step(const struct oneshot_args *a, struct oneshot_block *b, uint32_t phase, uint32_t thread, uint32_t threads)
{
    if (phase == ONESHOT_BEGIN && thread == 0)
        oneshot_begin(a, b);
    else if (phase == ONESHOT_FINISH && thread == 0)
        oneshot_finish(a, b);
    if (phase == ONESHOT_BEGIN || phase == ONESHOT_FINISH || ONESHOT_SEEN(b->error))
        return true;
    if (phase == ONESHOT_PUBLISH)
        oneshot_publish(a, b, thread, threads);
    else if (phase == ONESHOT_ANNOUNCE && thread == 0)
        ONESHOT_STORE(oneshot_flag(a->box[a->rank], b->number, b->part), oneshot_mark(a, b->number));
    else if (phase == ONESHOT_AWAIT)
        return oneshot_look(a, b, thread);
    else if (phase == ONESHOT_COLLECT && oneshot_reduces(a))
        oneshot_gather(a, b, thread, threads);
    else if (phase == ONESHOT_COLLECT)
        oneshot_take(a, b, thread, threads);
    else if (phase == ONESHOT_REDUCE && oneshot_reduces(a))
        oneshot_reduce(a, b, thread, threads);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ a trial */
/* Operations of one part, one after the other in one launch of one block, which are timed: all but the first, in which ranks wait for those
 * that are late. */
struct oneshot_trial {
    struct oneshot_args args;
    uint64_t *took; /* pinned: gets the nanoseconds, before the last operation ends */
    uint32_t rounds, unused;
};
struct oneshot_trial_block {
    struct oneshot_block block;
    uint64_t began;
};

FOLD_INLINE uint32_t oneshot_trial_phases(const struct oneshot_trial *t)
{
    return t->rounds * ONESHOT_PHASES;
}

/* As oneshot_step; phases count on through all rounds. */
FOLD_INLINE bool oneshot_try(const struct oneshot_trial *t, struct oneshot_trial_block *b, uint32_t phase, uint32_t thread,
                             uint32_t threads)
{
    if (thread == 0 && phase == ONESHOT_PHASES)
        b->began = ONESHOT_NOW();
    if (thread == 0 && phase == oneshot_trial_phases(t) - 1)
        ONESHOT_STORE(t->took, ONESHOT_NOW() - b->began);
    return oneshot_step(&t->args, &b->block, phase % ONESHOT_PHASES, thread, threads);
}

#endif
