/*
 * data: element types, operators, and the kernels that reduce and copy. Knows nothing of ranks, transports or the
 * owners of buffers.
 *
 * A reduction evaluates the canonical tree T(ways) for each element: inputs are paired along bit 0 of their index, then
 * bit 1, ..., the lower one on the left. An input without a partner moves up unchanged (a binary counter). Each type
 * has an accumulator type: f32 for f16, bf16 and the 8-bit floats, otherwise the type itself. T is evaluated in the
 * accumulator. An input is raw (in the type) or partial (in the accumulator). The output is partial, or final: divided
 * by `divisor` for AVG and rounded once to the type. The result's bits do not depend on the instruction set, the
 * alignment, or how a vector was cut.
 */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include <commstream/result.h>
#include <commstream/type.h>

#include <stdbool.h>

enum { DATA_WAYS_MAX = 64 };

enum data_isa { DATA_SCALAR = 0, DATA_AVX2 = 1, DATA_AVX512 = 2 };
enum data_isa data_isa_best(void); /* the best that this CPU and operating system support */
const char *data_isa_name(enum data_isa isa);

size_t data_type_bytes(enum comm_type type);      /* 0: no such type */
size_t data_partial_bytes(enum comm_type type);   /* of its accumulator */
const char *data_type_name(enum comm_type type);  /* "f32"; "?" if unknown */
const char *data_op_name(comm_op op);             /* "sum" */
enum comm_type data_type_parse(const char *name); /* 0: no such name */
comm_op data_op_parse(const char *name);          /* 0: no such name */

/* COMM_OK; ARGUMENT: no such type or operator; UNSUPPORTED: both exist, but the pair has no meaning or is not
 * implemented. *why: a text in prose. */
enum comm_result data_check(enum comm_type type, comm_op op, const char **why);

/* Element bytes of a pair that data_check accepts, 0 for any other pair: the only check that a valid call needs. */
size_t data_pair_bytes(enum comm_type type, comm_op op);

struct data_reduce {
    const void *const *from; /* `ways` inputs, in rank order */
    uint64_t partial;        /* bit i: from[i] is in the accumulator type */
    uint32_t ways;           /* 1 .. DATA_WAYS_MAX; 1 converts or copies */
    uint32_t divisor;        /* for AVG in a final step: the team's size */
    const void *context;     /* for a kernel that is not in this room's table: its own data; otherwise NULL */
    void *to;                /* may be exactly one of the inputs if element sizes are equal; no other overlap */
    void *also;              /* NULL, or a second destination for the same result; it too may be exactly one of the inputs */
    size_t elements;
    bool final;       /* to and also are in the type; otherwise in the accumulator type */
    bool nontemporal; /* write `to` (not also) with non-temporal stores where alignment allows; ends with a store fence */
    bool is_plain;    /* the caller has checked data_float_is_plain; otherwise the kernel checks */
};
typedef void data_reduce_fn(const struct data_reduce *reduce);

/* Returns the kernel of a pair that data_check accepts, never NULL; isa at most data_isa_best(). */
data_reduce_fn *data_reducer(enum comm_type type, comm_op op, enum data_isa isa);

/* The factor of a pre-multiplied sum: one element of a type that has COMM_PROD. */
struct data_scale {
    enum comm_type type;
    enum data_isa isa; /* the engine's */
    _Alignas(16) unsigned char factor[16];
};
/* to[i] = factor * from[i], each rounded once to the type, with the bits of COMM_PROD. `to` may be `from`; no other overlap. */
typedef void data_scale_fn(void *to, const void *from, size_t n, const struct data_scale *scale);
data_scale_fn data_scale;

/* An operator that a program made: a function, on elements of this many bytes that are never split, where `elements` and all lengths count
 * bytes; or, if fn is NULL, a pre-multiplied sum. */
enum { DATA_USER_BYTES_MAX = 4096 };
struct data_user {
    comm_op_fn *fn;
    void *arg;
    size_t element_bytes; /* of a pre-multiplied sum: 1, since any element may be split from the next */
    struct data_scale scale;
};
data_reduce_fn data_reduce_user; /* context: a struct data_user with a function */

/* Updates n elements at `at` by op, with from[i] on the right, while others may update them too: atomic for each
 * element. The previous values go to old[] (NULL: not wanted). COMM_REPLACE and COMM_NOOP are operators here too; NOOP
 * reads no `from`. */
struct data_update {
    void *at;
    const void *from;
    void *old;
    size_t n, element; /* element: bytes of one element, at most 16 */
    comm_op op;
    bool locked;            /* the caller holds a lock that all updaters take; needed where data_update_is_atomic is false */
    data_reduce_fn *reduce; /* for the pair; not used for REPLACE and NOOP */
};
bool data_update_is_atomic(const void *at, size_t element);
void data_update(const struct data_update *update);
/* *old becomes the previous value; *desired is stored if that equals *expected. */
void data_compare_swap(void *at, const void *expected, const void *desired, void *old, size_t element, bool locked);

void data_copy(void *to, const void *from, size_t bytes, bool nontemporal);

/* Two ranks that exchange bytes through the same memory: what `view` holds goes to `taken`, and `given` goes to `place` and to `kept`, in
 * one pass. A destination may be NULL. `place` may be `view`; no other overlap. nontemporal: stores to taken and kept bypass the cache. */
struct data_swap {
    char *taken, *place, *kept;
    const char *view, *given;
    size_t bytes;
    bool nontemporal;
};
void data_swap(const struct data_swap *swap);

/* A cache line that several caches have read costs its next writer an upgrade, which is several times as slow as taking
 * it from the one cache that modified it. So a reader of shared memory that nobody else reads, and that its owner
 * writes next, writes one byte of each line before it releases them. The bytes are lost. */
void data_dirty(void *at, size_t bytes);
/* data_copy, and data_dirty of `from`, line by line. `from` is the beginning of a line. */
void data_take(void *to, void *from, size_t bytes, bool nontemporal);

/* The part of the floating-point control word that kernels depend on: rounding mode, FTZ, DAZ. Ranks compare it when
 * they meet. Reducers of floating types set round-to-nearest without flushing themselves, and restore the caller's mode
 * afterwards. */
uint32_t data_float_mode(void);
/* Whether this thread's floating-point mode is as kernels need it. Reading the control word takes as long as a small
 * reduction. */
bool data_float_is_plain(void);

#endif
