/* The canonical tree over any number of inputs, on the host (fold_tree.c). Private to this room. */
#ifndef CUDA_NCCL_FOLD_TREE_H
#define CUDA_NCCL_FOLD_TREE_H

#include "data/data.h"

struct fold_tree {
    data_reduce_fn *kernel;
    const void *context; /* of the kernel */
    const char *in;      /* input r begins r * stride bytes behind it */
    char *out;           /* may be `in`; no other overlap */
    char *room;          /* fold_tree_room bytes, with the alignment of a cache line */
    size_t stride, elements, element_bytes;
    size_t partial_bytes; /* of an element's accumulator */
    size_t grain;         /* so many elements are never split */
    uint32_t ways, divisor;
};

size_t fold_tree_room(uint32_t ways); /* 0: it needs none */
void fold_tree(const struct fold_tree *t);

#endif
