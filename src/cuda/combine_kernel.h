/*
 * Reduces the same block of all ranks on one rank's device (pipeline/pipeline.h): its own input lies in memory of the device, those of its
 * peers in pinned memory of the host. The bits are the host's, since the arithmetic and the tree are comm_fold's (fold_kernel.h).
 * Like that, it is plain C for nvcc and for the CPU. No thread waits for another one.
 */
#ifndef CUDA_COMBINE_KERNEL_H
#define CUDA_COMBINE_KERNEL_H

#include "cuda/oneshot_kernel.h"

/* Pieces of so many batches of ranks are reduced together. A batch is a subtree of the canonical tree, since its length is a power of two
 * and it begins at a multiple of that. Of more ranks the elements are read one by one. */
enum { COMBINE_BATCHES = 2, COMBINE_RANKS = COMBINE_BATCHES * ONESHOT_BATCH };

/* The argument of the kernel. Addresses are the device's. */
struct combine_args {
    const char *from[ONESHOT_RANKS]; /* by rank */
    char *to;                        /* it is the own input, or overlaps no input */
    char *copy;                      /* pinned: gets the result too; NULL: no peer needs it */
    uint64_t elements;
    uint32_t type, op, ranks, in_pieces; /* in_pieces: all addresses are multiples of a piece's length, and ranks <= COMBINE_RANKS */
};

/* The same piece of a batch of ranks. All are read before the first is used, because a read of the host's memory takes about a
 * microsecond. */
FOLD_INLINE void combine_read(const struct combine_args *a, uint32_t first, size_t at, struct oneshot_piece *piece)
{
    for (uint32_t i = 0; i < ONESHOT_BATCH; i++)
        if (first + i < a->ranks)
            piece[i] = ONESHOT_READ_PIECE((const struct oneshot_piece *)(const void *)(a->from[first + i] + at));
}

FOLD_INLINE struct fold_args combine_fold(const struct combine_args *a)
{
    struct fold_args fold;

    fold.in = NULL;
    fold.inputs = NULL;
    fold.out = a->to;
    fold.stride = ONESHOT_PIECE_BYTES;
    fold.elements = ONESHOT_PIECE_BYTES / fold_bytes(a->type);
    fold.ways = fold.divisor = a->ranks;
    fold.type = a->type;
    fold.op = a->op;
    return fold;
}

FOLD_INLINE void combine_batch(const struct combine_args *a, size_t at, struct oneshot_piece *sum)
{
    struct oneshot_piece piece[ONESHOT_BATCH];
    struct fold_args fold = combine_fold(a);

    combine_read(a, 0, at, piece);
    fold.in = piece;
    fold.out = sum;
    fold_thread(&fold, 0, 1);
}

/* The accumulators of each batch, and then of these. */
FOLD_INLINE void combine_batches(const struct combine_args *a, size_t at, struct oneshot_piece *sum)
{
    struct oneshot_piece piece[ONESHOT_BATCH], of[COMBINE_BATCHES][2];
    struct fold_args fold = combine_fold(a);
    uint32_t batches = 0;

    fold.in = piece;
    for (uint32_t first = 0; first < a->ranks; first += ONESHOT_BATCH, batches++) {
        combine_read(a, first, at, piece);
        fold.ways = a->ranks - first < ONESHOT_BATCH ? a->ranks - first : ONESHOT_BATCH;
        for (size_t i = 0; i < fold.elements; i++)
            fold_accumulate(&fold, i, of[batches]);
    }
    fold.in = of;
    fold.stride = sizeof of[0];
    fold.ways = batches;
    fold.out = sum;
    for (size_t i = 0; i < fold.elements; i++)
        fold_accumulated(&fold, i);
}

FOLD_INLINE void combine_piece(const struct combine_args *a, size_t at, bool many)
{
    struct oneshot_piece sum;

    if (many)
        combine_batches(a, at, &sum);
    else
        combine_batch(a, at, &sum);
    *(struct oneshot_piece *)(void *)(a->to + at) = sum;
    if (a->copy)
        ONESHOT_WRITE((struct oneshot_piece *)(void *)(a->copy + at), sum);
}

/* The inputs were complete before the kernel began, so no cache has an older line. */
FOLD_INLINE void combine_element(const struct combine_args *a, size_t index)
{
    struct fold_args fold = combine_fold(a);
    size_t bytes = fold_bytes(a->type);

    fold.inputs = a->from;
    fold_element(&fold, index);
    if (a->copy)
        oneshot_store(a->copy + index * bytes, a->to + index * bytes, bytes);
}

/* One thread's part: every step-th piece, from `first` on; behind the last whole piece, and if there are no pieces, elements instead.
 * many: ranks > ONESHOT_BATCH. Each kernel has one of the two, because the other one takes more memory of each thread. */
FOLD_INLINE void combine_thread(const struct combine_args *a, size_t first, size_t step, bool many)
{
    size_t element = fold_bytes(a->type), bytes = (size_t)a->elements * element;
    size_t whole = a->in_pieces ? bytes / ONESHOT_PIECE_BYTES * ONESHOT_PIECE_BYTES : 0;

    for (size_t at = first * ONESHOT_PIECE_BYTES; at < whole; at += step * ONESHOT_PIECE_BYTES)
        combine_piece(a, at, many);
    for (size_t index = whole / element + first; index < a->elements; index += step)
        combine_element(a, index);
}

#endif
