/*
 * Gradient buckets: data-parallel training hands over each gradient as the backward pass makes it, and full buckets are reduced while the
 * pass goes on. Gradients are listed in the order of the forward pass; buckets run in reverse, split by size and type, and are issued in
 * one agreed order on all ranks whatever the order of ready calls. A gradient never made ready counts as zeros, so unused parameters hang
 * nothing.
 *
 * The object belongs to its maker until comm_buckets_free. It issues on the communicator that it was made for, when buckets are full: from
 * the first ready of a step to the end of its wait nobody else may issue collectives there, whose order would depend on timing. A comm_dup
 * for the buckets alone is the simplest. May change until 0.1.
 */
#ifndef COMMSTREAM_BUCKET_H
#define COMMSTREAM_BUCKET_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

struct comm_gradient {
    void *data; /* the caller's, for the life of the buckets */
    size_t count;
    enum comm_type type;
    int32_t reserved;
};

struct comm_bucket_options {
    size_t size;               /* sizeof(struct comm_bucket_options) */
    size_t bytes, first_bytes; /* 25 MiB, 1 MiB */
    comm_op op;                /* COMM_AVG */
    int32_t adopt;             /* 1: gradients live in the buckets (comm_buckets_data), no copies; data of the list is not looked at */
};

/*
 * Makes buckets for `count` gradients; the list is copied. List and options (which may be NULL) are the same on all ranks; where they
 * differ in length or type the step's reductions are MISMATCH. Local: nothing is sent. Errors: ARGUMENT, UNSUPPORTED (a field that this
 * library does not know), MEMORY, the last also where c is closed. DistributedDataParallel's reducer is its relative.
 */
COMM_MUST enum comm_result comm_buckets_create(struct comm_communicator *c, const struct comm_gradient *gradients, size_t count,
                                               const struct comm_bucket_options *options, struct comm_buckets **b);
/*
 * Where gradient i lives: with adopt inside its bucket, zeros at first and aligned for its type, otherwise the caller's own address. Good
 * for the life of the buckets; NULL for an empty gradient. Any thread.
 */
COMM_MUST enum comm_result comm_buckets_data(struct comm_buckets *b, size_t i, void **data);
/*
 * Gradient i of this step is written: it is the library's until comm_buckets_wait. The last one of a bucket starts its reduction, as soon
 * as the buckets before it have started. Makes progress, so it may run callbacks. Twice in a step: STATE. An error of the reduction itself
 * is told by comm_buckets_wait. Any thread, several at once.
 */
COMM_MUST enum comm_result comm_buckets_ready(struct comm_buckets *b, size_t i);
/*
 * Ends the step: blocks until all gradients are reduced, at most timeout_ns (PENDING then; call again). Those never made ready count as
 * zeros. On OK every gradient holds its result on every rank and the next step may begin; on an error the step has ended too, with the
 * first one of its buckets. FULL: the queue has no room for the rest and there is none for a marker to wait for; the step goes on, call
 * again. One thread: a second is STATE. Blocks: not for callbacks.
 */
COMM_MUST enum comm_result comm_buckets_wait(struct comm_buckets *b, int64_t timeout_ns);
/*
 * on 1: steps end without a reduction, until on 0: gradients keep what they hold, for the caller to add to, and those that were ready in
 * such a step count in the next one that is reduced, ready or not. The same on all ranks, between steps (STATE otherwise), from one thread.
 * no_sync of DistributedDataParallel.
 */
COMM_MUST enum comm_result comm_buckets_hold(struct comm_buckets *b, int32_t on);
/*
 * Gives the buckets back, and with adopt the gradients in them. A step under way is waited for, bounded by its operations' deadlines;
 * inside a callback, where that cannot be, its memory is kept for good. Local, from one thread. NULL is fine.
 */
COMM_API void comm_buckets_free(struct comm_buckets *b);

#ifdef __cplusplus
}
#endif

#endif
