/**
 * @file bucket.h
 * @brief Gradient buckets: allreduce of gradients that overlaps with the backward pass.
 *
 * Data-parallel training reports each gradient as the backward pass produces it. Gradients are packed into buckets, and full buckets are
 * reduced while the pass goes on. Gradients are listed in the order of the forward pass; buckets run in reverse order, and in the same
 * order on all ranks, whatever the order of the comm_buckets_ready() calls. A gradient that was not reported counts as zeros, so unused
 * parameters hang nothing.
 *
 * Gradients may be in memory of a CUDA device, all of the list or none. CUDA streams then report and wait: comm_buckets_ready_stream() and
 * comm_buckets_wait_stream() of cuda.h.
 *
 * Buckets issue collectives on their communicator while a step runs. From the first comm_buckets_ready() of a step to the end of its
 * comm_buckets_wait(), nobody else may issue collectives on it. Use a comm_dup() for the buckets alone.
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

/** One gradient of the list. */
struct comm_gradient {
    void *data;          /**< its elements; the caller's, for the life of the buckets */
    size_t count;        /**< number of elements */
    enum comm_type type; /**< a type that the operator can reduce */
    int32_t reserved;    /**< 0 */
};

/** Options of comm_buckets_create(). */
struct comm_bucket_options {
    size_t size;        /**< sizeof(struct comm_bucket_options) */
    size_t bytes;       /**< size of a bucket; 0: 25 MiB */
    size_t first_bytes; /**< size of the bucket that runs first; 0: 1 MiB */
    comm_op op;         /**< 0: COMM_AVG; checked by the reductions, so comm_buckets_wait() reports one that cannot reduce the types */
    int32_t adopt;      /**< 1: gradients are stored in the buckets (comm_buckets_data()), without copies; data of the list is ignored;
                             2: the same in memory of the communicator's device */
};

/**
 * Makes buckets for a list of gradients. Local: nothing is sent. Similar to the reducer of PyTorch's DistributedDataParallel.
 *
 * @param c          communicator of the reductions
 * @param gradients  the list, in the order of the forward pass, the same on all ranks; copied. If ranks differ in lengths or types, the
 *                   reductions end with COMM_ERR_MISMATCH.
 * @param count      number of gradients
 * @param options    the same on all ranks; copied; NULL: all default
 * @param b          receives the buckets; free them with comm_buckets_free()
 * @return COMM_OK; COMM_ERR_ARGUMENT, also for a list in memory of a device and of the host; COMM_ERR_UNSUPPORTED for a field that this
 *         library does not know, and for adopt=2 without a device; COMM_ERR_MEMORY, also if c is closed (with gradients of a device
 *         COMM_ERR_CLOSED)
 */
COMM_MUST enum comm_result comm_buckets_create(struct comm_communicator *c, const struct comm_gradient *gradients, size_t count,
                                               const struct comm_bucket_options *options, struct comm_buckets **b);

/**
 * Gets the address of a gradient: with `adopt` inside its bucket (aligned for its type; zeroed in memory of the host, not in a device's),
 * otherwise the caller's own.
 *
 * @param b     the buckets
 * @param i     index of the gradient
 * @param data  receives the address, valid for the life of the buckets; NULL for an empty gradient
 * @return COMM_OK or COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_buckets_data(struct comm_buckets *b, size_t i, void **data);

/**
 * Reports that a gradient of this step is written. It belongs to the library until comm_buckets_wait().
 *
 * The last gradient of a bucket starts its reduction, as soon as the buckets before it have started. The call makes progress, so it may run
 * callbacks. Any thread may call, several at once.
 *
 * @param b  the buckets
 * @param i  index of the gradient
 * @return COMM_OK; COMM_ERR_STATE the second time in a step; COMM_ERR_ARGUMENT; COMM_ERR_UNSUPPORTED for gradients of a device;
 *         COMM_ERR_CLOSED or COMM_ERR_FORKED. comm_buckets_wait() reports errors of the reduction.
 */
COMM_MUST enum comm_result comm_buckets_ready(struct comm_buckets *b, size_t i);

/**
 * Ends the step: waits until all gradients are reduced. Gradients that were not reported count as zeros.
 *
 * On COMM_OK every gradient has its result on every rank, and the next step may begin. On an error the step has ended too. Only one thread
 * may call; not inside a callback. With gradients of a device, the stream of the newest comm_buckets_ready_stream() fills in what was not
 * reported and copies the results, and the call waits for it.
 *
 * @param b           the buckets
 * @param timeout_ns  how long to wait, as in comm_wait()
 * @return COMM_OK; COMM_PENDING if timeout_ns passed first, and COMM_ERR_FULL if the queue had no room: the step goes on, call again;
 *         COMM_ERR_STATE if another thread is in this call, and inside a callback; COMM_ERR_ARGUMENT; otherwise the first error of the
 *         reductions, or of the device
 */
COMM_MUST enum comm_result comm_buckets_wait(struct comm_buckets *b, int64_t timeout_ns);

/**
 * Turns reduction off (1) or on (0), for gradient accumulation. Similar to no_sync() of DistributedDataParallel.
 *
 * While it is off, steps end without a reduction and gradients keep their values. Those that were ready in such a step count in the next
 * step that is reduced. Call it on all ranks, between steps, from one thread.
 *
 * @param b   the buckets
 * @param on  1: off from now on; 0: on again
 * @return COMM_OK; COMM_ERR_STATE inside a step; COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_buckets_hold(struct comm_buckets *b, int32_t on);

/**
 * Frees the buckets, and with `adopt` the gradients in them. Local, from one thread.
 *
 * It waits for a running step, at most until the operations' deadlines. Inside a callback it cannot wait: the memory of a running step is
 * then never freed.
 *
 * @param b  the buckets; NULL is ignored
 */
COMM_API void comm_buckets_free(struct comm_buckets *b);

#ifdef __cplusplus
}
#endif

#endif
