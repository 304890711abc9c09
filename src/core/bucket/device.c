/*
 * Buckets of gradients in device memory. bucket.c makes the plan. Here streams do the work that the host does there. A gradient's stream
 * copies it into its bucket. The bucket's reduction waits for that stream. The stream of comm_buckets_wait_stream() waits for all
 * reductions and copies the results back. The host does not wait.
 *
 * A step must not overwrite a bucket that the previous step still uses. The program must order the stream that writes a gradient after that
 * gradient's previous result. That result was copied out of the bucket before, so the bucket is free for the new value of the gradient.
 */
#include "bucket/bucket.h"

#include <commstream/cuda.h>
#include <commstream/open.h>
#include <commstream/progress.h>

#include "base/device_memory.h"

enum { BUCKET_NUMBERED_STREAMS = 2 }; /* handles up to this name a default stream: of the thread or of its context */

enum comm_result bucket_device_find(struct comm_communicator *c, const struct comm_gradient *gradients, size_t count, int32_t adopt,
                                    struct device **device)
{
    size_t there = 0, filled = 0;
    for (size_t i = 0; i < count && adopt == 0; i++) {
        if (gradients[i].count == 0)
            continue;
        filled++;
        there += base_heap_is_on_device(c, gradients[i].data);
    }
    if (there != 0 && there != filled)
        return COMM_ERR_ARGUMENT;
    return there != 0 || adopt == BUCKET_ADOPT_ON_DEVICE ? base_heap_device_find(c, device) : COMM_OK;
}

void bucket_device_drop(struct device *device)
{
    base_heap_device_drop(device);
}

/* A bucket of one gradient needs no flat buffer, because it is reduced in place. */
static size_t bucket_flat_bytes(const struct comm_buckets *b)
{
    size_t bytes = BUCKET_ALIGN;
    for (size_t j = 0; j < b->bucket_count; j++) {
        if (b->buckets[j].members > 1 || b->adopt)
            bytes += (b->buckets[j].bytes + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
    }
    return bytes;
}

enum comm_result bucket_device_open(struct comm_buckets *b, struct device *device)
{
    enum comm_result result = comm_event_create(b->comm, &b->settled);
    if (result == COMM_OK)
        result = comm_event_create(b->comm, &b->order);
    b->device_memory = result == COMM_OK ? base_heap_device_take(device, bucket_flat_bytes(b)) : NULL;
    if (b->device_memory != NULL) {
        b->device = device;
        return COMM_OK;
    }
    if (b->settled != NULL)
        comm_event_free(b->settled);
    if (b->order != NULL)
        comm_event_free(b->order);
    base_heap_device_drop(device);
    return result == COMM_OK ? COMM_ERR_MEMORY : result;
}

void bucket_device_close(struct comm_buckets *b)
{
    comm_event_free(b->settled);
    comm_event_free(b->order);
    base_heap_device_give(b->device, b->device_memory);
    base_heap_device_drop(b->device);
}

/* Makes the bucket's reduction wait for the work that is on the stream now. One stream per bucket is remembered until the bucket is issued.
 * For any other stream the queue waits at once. So it does for default streams, whose handles mean a different stream on another thread. */
static enum comm_result bucket_note_stream(struct comm_buckets *b, struct bucket *bucket, struct CUstream_st *stream)
{
    uintptr_t known = BUCKET_NO_STREAM, number = (uintptr_t)stream;
    if (number > BUCKET_NUMBERED_STREAMS && (atomic_compare_exchange_strong(&bucket->stream, &known, number) || known == number))
        return COMM_OK;
    return comm_queue_wait_stream(b->comm, stream);
}

/* Returns COMM_ERR_STATE if the gradient was contributed before in this step. After any other error the call had no effect. */
static enum comm_result bucket_device_contribute(struct comm_buckets *b, struct bucket_gradient *gradient, struct CUstream_st *stream,
                                                 bool rest)
{
    struct bucket_copy copy;
    if (!bucket_claim(b, gradient, rest, &copy))
        return COMM_ERR_STATE;
    if (copy.bucket == NULL)
        return COMM_OK;
    enum comm_result result = base_heap_device_put(b->device, stream, copy.to, copy.from, copy.bytes);
    if (result == COMM_OK)
        result = bucket_note_stream(b, copy.bucket, stream);
    if (result == COMM_OK)
        atomic_fetch_sub_explicit(&copy.bucket->missing, 1, memory_order_acq_rel);
    else
        atomic_store_explicit(&gradient->claimed, 0, memory_order_release);
    return result;
}

enum comm_result bucket_device_contribute_rest(struct comm_buckets *b, struct CUstream_st *stream)
{
    for (size_t i = b->gradient_count; i-- > 0;) {
        enum comm_result result = bucket_device_contribute(b, &b->gradients[i], stream, true);
        if (result != COMM_OK && result != COMM_ERR_STATE)
            return result;
    }
    return COMM_OK;
}

/* A rank that cannot order its reduction cannot start it either. The other ranks would wait for it, so it revokes the communicator. */
enum comm_result bucket_device_order(struct comm_buckets *b, struct bucket *bucket)
{
    uintptr_t stream = atomic_load_explicit(&bucket->stream, memory_order_acquire);
    if (stream == BUCKET_NO_STREAM)
        return COMM_OK;
    enum comm_result result = b->ordering ? COMM_OK : comm_event_record_stream(b->order, (struct CUstream_st *)stream);
    b->ordering = result == COMM_OK;
    if (result == COMM_OK)
        result = comm_queue_wait_event(b->comm, b->order);
    b->ordering = b->ordering && result == COMM_ERR_FULL;
    if (result == COMM_OK)
        atomic_store_explicit(&bucket->stream, BUCKET_NO_STREAM, memory_order_relaxed);
    else if (result != COMM_ERR_FULL)
        (void)!comm_revoke(b->comm);
    return result;
}

enum comm_result bucket_device_copy_back(struct comm_buckets *b, size_t j, struct CUstream_st *stream)
{
    const struct bucket *bucket = &b->buckets[j];
    enum comm_result result = COMM_OK;
    if (b->settling)
        return COMM_OK;
    for (size_t i = bucket->first + 1; i-- > bucket->last && result == COMM_OK;) {
        const struct bucket_gradient *gradient = &b->gradients[i];
        if (gradient->bucket == j)
            result = base_heap_device_put(b->device, stream, gradient->data, bucket->flat + gradient->offset, gradient->bytes);
    }
    return result;
}

enum comm_result bucket_device_settle(struct comm_buckets *b, int64_t timeout_ns)
{
    struct CUstream_st *stream = (struct CUstream_st *)atomic_load_explicit(&b->stream, memory_order_relaxed);
    enum comm_result result = b->settling ? COMM_OK : comm_event_record_stream(b->settled, stream);
    if (result == COMM_OK)
        result = comm_event_sync(b->settled, timeout_ns);
    b->settling = result == COMM_PENDING;
    return result;
}

enum comm_result comm_buckets_ready_stream(struct comm_buckets *b, size_t i, struct CUstream_st *stream)
{
    if (b == NULL || i >= b->gradient_count)
        return COMM_ERR_ARGUMENT;
    if (b->device == NULL)
        return COMM_ERR_UNSUPPORTED;
    enum comm_result result = bucket_device_contribute(b, &b->gradients[i], stream, false);
    if (result != COMM_OK)
        return result;
    atomic_store_explicit(&b->stream, (uintptr_t)stream, memory_order_relaxed);
    bucket_issue(b);
    enum comm_result moved = comm_progress(b->comm);
    return moved < 0 ? moved : COMM_OK;
}

/* Returns COMM_OK when all buckets are issued. FULL: the queue or the device's table of places is full. PENDING: another thread is inside
 * a ready call. */
static enum comm_result bucket_device_issue_all(struct comm_buckets *b)
{
    bucket_issue(b);
    size_t next = atomic_load_explicit(&b->issued, memory_order_acquire);
    if (next == b->bucket_count)
        return COMM_OK;
    enum comm_result moved = comm_progress(b->comm);
    if (moved < 0)
        return moved;
    return atomic_load_explicit(&b->buckets[next].missing, memory_order_acquire) != 0 ? COMM_PENDING : COMM_ERR_FULL;
}

/* Returns the error of the first bucket that was refused. */
static enum comm_result bucket_first_refusal(const struct comm_buckets *b)
{
    enum comm_result result = COMM_OK;
    for (size_t j = 0; j < b->bucket_count && result == COMM_OK; j++)
        result = b->buckets[j].refused;
    return result;
}

static enum comm_result bucket_put_results(struct comm_buckets *b, struct CUstream_st *stream)
{
    enum comm_result result = comm_stream_wait_request(stream, comm_last(b->comm));
    for (size_t j = 0; j < b->bucket_count && result == COMM_OK; j++) {
        if (b->buckets[j].flat != NULL && !b->adopt)
            result = bucket_device_copy_back(b, j, stream);
    }
    return result;
}

static enum comm_result bucket_wait_stream(struct comm_buckets *b, struct CUstream_st *stream)
{
    enum comm_result result = bucket_device_contribute_rest(b, stream);
    if (result == COMM_OK)
        result = bucket_device_issue_all(b);
    if (result != COMM_OK)
        return result;
    result = bucket_first_refusal(b);
    if (result == COMM_OK)
        result = bucket_put_results(b, stream);
    if (result != COMM_ERR_FULL)
        bucket_begin_step(b);
    return result;
}

enum comm_result comm_buckets_wait_stream(struct comm_buckets *b, struct CUstream_st *stream)
{
    if (b == NULL)
        return COMM_ERR_ARGUMENT;
    if (b->device == NULL)
        return COMM_ERR_UNSUPPORTED;
    if (atomic_exchange_explicit(&b->waiting, 1, memory_order_acquire) != 0)
        return COMM_ERR_STATE;
    enum comm_result result = COMM_OK;
    if (atomic_load_explicit(&b->held, memory_order_acquire) != 0)
        bucket_end_held(b);
    else
        result = bucket_wait_stream(b, stream);
    atomic_store_explicit(&b->waiting, 0, memory_order_release);
    return result;
}
