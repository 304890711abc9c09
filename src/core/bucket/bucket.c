/*
 * Gradient buckets: combines many small gradients into few allreduces, which run while the backward pass still
 * computes. It uses only the public calls.
 *
 * The plan is made once, from data that is equal on all ranks. Gradients are dealt from the last to the first, each
 * into the open bucket of its type. Buckets are numbered by the moment at which their last gradient can be ready. They
 * are issued in this order whatever the order of the ready calls, so all ranks issue them in the same order. A bucket of
 * one gradient is reduced in the caller's memory. The others are gathered into a flat buffer, and wait copies them back.
 * With `adopt` all gradients live in the flat buffers and nothing is copied.
 *
 * While the buckets are held, a step ends without a reduction. The values stay where they are, so that the caller can
 * accumulate. A gradient that was ready in a held step counts in the next step that is reduced, whether it is ready
 * there or not.
 *
 * There is no lock. A gradient belongs to the thread that sets its `claimed`: a ready call, or wait for the ones left
 * over. A bucket is full when `missing` reaches zero. One thread at a time issues: the one that raises `turns` from
 * zero. Other threads only raise it and leave; the issuing thread looks again until `turns` stays unchanged. While a
 * step is under way nothing else may issue collectives on the communicator, because their order would depend on timing.
 */
#include "bucket/bucket.h"

#include <commstream/collective.h>
#include <commstream/progress.h>

#include "base/heap.h"

#include <string.h>

enum { BUCKET_TYPES = COMM_I64_INDEX + 1, BUCKET_LOOK_NS = 1000000, BUCKET_LOOK_PART = 8 };
#define BUCKET_BYTES ((size_t)25 << 20)
#define BUCKET_FIRST_BYTES ((size_t)1 << 20)

/* State while gradients are dealt to buckets. It is separate, so that create can count before it allocates. */
struct bucket_deal {
    size_t limit, first_limit;
    size_t opened;
    size_t open[BUCKET_TYPES], filled[BUCKET_TYPES]; /* per type: its open bucket and the bytes in it */
};

static size_t bucket_type_bytes(enum comm_type type)
{
    switch (type) {
    case COMM_BYTE:
    case COMM_BOOL:
    case COMM_I8:
    case COMM_U8:
    case COMM_F8E4M3:
    case COMM_F8E5M2:
        return 1;
    case COMM_I16:
    case COMM_U16:
    case COMM_F16:
    case COMM_BF16:
        return 2;
    case COMM_I32:
    case COMM_U32:
    case COMM_F32:
        return 4;
    case COMM_I64:
    case COMM_U64:
    case COMM_F64:
    case COMM_C64:
    case COMM_F32_INDEX:
    case COMM_I32_INDEX:
        return 8;
    case COMM_C128:
    case COMM_F64_INDEX:
    case COMM_I64_INDEX:
        return 16;
    case COMM_TYPE_INT:
        break;
    }
    return 0;
}

/* COMM_ERR_UNSUPPORTED: the caller was built for a newer library and sets a field that this one does not know. */
static enum comm_result bucket_options(const struct comm_bucket_options *given, struct comm_bucket_options *options)
{
    memset(options, 0, sizeof *options);
    if (given != NULL) {
        if (given->size < sizeof given->size)
            return COMM_ERR_ARGUMENT;
        const unsigned char *bytes = (const unsigned char *)given;
        for (size_t at = sizeof *options; at < given->size; at++) {
            if (bytes[at] != 0)
                return COMM_ERR_UNSUPPORTED;
        }
        memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    }
    if (options->adopt < 0 || options->adopt > BUCKET_ADOPT_ON_DEVICE)
        return COMM_ERR_ARGUMENT;
    if (options->bytes == 0)
        options->bytes = BUCKET_BYTES;
    if (options->first_bytes == 0)
        options->first_bytes = BUCKET_FIRST_BYTES;
    if (options->op == 0)
        options->op = COMM_AVG;
    return COMM_OK;
}

static enum comm_result bucket_check(const struct comm_gradient *gradients, size_t count, bool adopt)
{
    for (size_t i = 0; i < count; i++) {
        size_t unit = bucket_type_bytes(gradients[i].type);
        if (unit == 0 || gradients[i].count > PTRDIFF_MAX / unit)
            return COMM_ERR_ARGUMENT;
        if (gradients[i].count != 0 && gradients[i].data == NULL && !adopt)
            return COMM_ERR_ARGUMENT;
    }
    return COMM_OK;
}

/* Returns the bucket of the next gradient downwards. Buckets are numbered here in the order in which they are opened. A
 * gradient that does not fit closes the bucket. One that is too long for any bucket gets its own. */
static size_t bucket_deal_next(struct bucket_deal *deal, enum comm_type type, size_t bytes, size_t *offset)
{
    bool open = deal->filled[type] != 0;
    size_t limit = open && deal->open[type] == 0 ? deal->first_limit : deal->limit;
    if (!open || deal->filled[type] > limit || bytes > limit - deal->filled[type]) {
        deal->open[type] = deal->opened++;
        deal->filled[type] = 0;
    }
    *offset = deal->filled[type];
    deal->filled[type] += bytes;
    return deal->open[type];
}

static size_t bucket_round(size_t bytes)
{
    return (bytes + (BUCKET_ALIGN - 1)) & ~(size_t)(BUCKET_ALIGN - 1);
}

/* Returns the bytes that the plan needs, or 0 if they are more than the address space has. *flat is the bytes of the flat buffers. It
 * counts one for every bucket, although some need none. */
static size_t bucket_measure(const struct comm_gradient *gradients, size_t count, struct bucket_deal deal, size_t *buckets, size_t *flat)
{
    size_t total = 0;
    for (size_t i = count; i-- > 0;) {
        size_t offset, bytes = gradients[i].count * bucket_type_bytes(gradients[i].type);
        if (bytes != 0)
            bucket_deal_next(&deal, gradients[i].type, bytes, &offset);
        if (bytes > PTRDIFF_MAX / 2 - total)
            return 0;
        total += bytes;
    }
    *buckets = deal.opened;
    *flat = deal.opened * BUCKET_ALIGN + total;
    size_t each = sizeof(struct bucket_gradient) + sizeof(struct bucket) + sizeof(struct comm_request) + BUCKET_ALIGN;
    if (count > PTRDIFF_MAX / 4 / each)
        return 0;
    return bucket_round(sizeof(struct comm_buckets)) + bucket_round(count * sizeof(struct bucket_gradient)) +
           bucket_round(deal.opened * sizeof(struct bucket)) + bucket_round(deal.opened * sizeof(struct comm_request));
}

/* Ends a step without a reduction. `kept` remembers the gradients that were ready. */
void bucket_end_held(struct comm_buckets *b)
{
    for (size_t i = 0; i < b->gradient_count; i++)
        atomic_store_explicit(&b->gradients[i].claimed, 0, memory_order_relaxed);
}

void bucket_begin_step(struct comm_buckets *b)
{
    bucket_end_held(b);
    for (size_t i = 0; i < b->gradient_count; i++)
        atomic_store_explicit(&b->gradients[i].kept, 0, memory_order_relaxed);
    for (size_t j = 0; j < b->bucket_count; j++) {
        b->buckets[j].refused = COMM_OK;
        atomic_store_explicit(&b->buckets[j].stream, BUCKET_NO_STREAM, memory_order_relaxed);
        atomic_store_explicit(&b->buckets[j].missing, b->buckets[j].members, memory_order_relaxed);
    }
    atomic_store_explicit(&b->issued, 0, memory_order_release);
}

/* Deals the gradients, then numbers the buckets by the position of their last member. With mixed types, the bucket that
 * was opened first may be full last. The memory of the requests holds two temporary tables meanwhile. */
static void bucket_plan(struct comm_buckets *b, const struct comm_gradient *gradients, struct bucket_deal deal)
{
    uint64_t *lowest = (uint64_t *)(void *)b->requests;
    for (size_t i = b->gradient_count; i-- > 0;) {
        struct bucket_gradient *gradient = &b->gradients[i];
        gradient->data = gradients[i].data;
        gradient->bytes = gradients[i].count * bucket_type_bytes(gradients[i].type);
        gradient->bucket = BUCKET_NONE;
        if (gradient->bytes != 0) {
            gradient->bucket = bucket_deal_next(&deal, gradients[i].type, gradient->bytes, &gradient->offset);
            lowest[gradient->bucket] = i;
        }
    }
    uint64_t *number = lowest + b->bucket_count;
    size_t numbered = 0;
    for (size_t i = b->gradient_count; i-- > 0;) {
        if (b->gradients[i].bucket != BUCKET_NONE && lowest[b->gradients[i].bucket] == i)
            number[b->gradients[i].bucket] = numbered++;
    }
    for (size_t i = b->gradient_count; i-- > 0;) {
        struct bucket_gradient *gradient = &b->gradients[i];
        if (gradient->bucket == BUCKET_NONE)
            continue;
        gradient->bucket = number[gradient->bucket];
        struct bucket *bucket = &b->buckets[gradient->bucket];
        if (bucket->members++ == 0)
            bucket->first = i;
        bucket->last = i;
        bucket->type = gradients[i].type;
        bucket->bytes += gradient->bytes;
    }
}

static void bucket_place_flat(struct comm_buckets *b, unsigned char *at)
{
    for (size_t j = 0; j < b->bucket_count; j++) {
        if (b->buckets[j].members == 1 && !b->adopt)
            continue;
        b->buckets[j].flat = at;
        at += bucket_round(b->buckets[j].bytes);
    }
    for (size_t i = 0; b->adopt && i < b->gradient_count; i++) {
        struct bucket_gradient *gradient = &b->gradients[i];
        gradient->data = gradient->bucket == BUCKET_NONE ? NULL : b->buckets[gradient->bucket].flat + gradient->offset;
    }
}

_Static_assert(sizeof(struct comm_request) == 2 * sizeof(uint64_t), "bucket_plan keeps two words per bucket there");

enum comm_result comm_buckets_create(struct comm_communicator *c, const struct comm_gradient *gradients, size_t count,
                                     const struct comm_bucket_options *options, struct comm_buckets **b)
{
    struct comm_bucket_options chosen;
    if (c == NULL || b == NULL || (gradients == NULL && count != 0))
        return COMM_ERR_ARGUMENT;
    enum comm_result result = bucket_options(options, &chosen);
    if (result == COMM_OK)
        result = bucket_check(gradients, count, chosen.adopt != 0);
    if (result != COMM_OK)
        return result;
    size_t opened = 0, flat = 0;
    struct device *device = NULL;
    struct bucket_deal deal = {.limit = chosen.bytes, .first_limit = chosen.first_bytes};
    size_t bytes = bucket_measure(gradients, count, deal, &opened, &flat);
    result = bucket_device_find(c, gradients, count, chosen.adopt, &device);
    if (result != COMM_OK)
        return result;
    bytes += bytes != 0 && device == NULL ? flat : 0;
    unsigned char *memory = bytes != 0 ? base_heap_take(c, bytes) : NULL;
    if (memory == NULL) {
        bucket_device_drop(device);
        return COMM_ERR_MEMORY;
    }
    struct comm_buckets *made = (struct comm_buckets *)(void *)memory;
    made->comm = c;
    made->memory_bytes = bytes;
    made->op = chosen.op;
    made->adopt = chosen.adopt != 0;
    made->gradient_count = count;
    made->bucket_count = opened;
    memory += bucket_round(sizeof *made);
    made->gradients = (struct bucket_gradient *)(void *)memory;
    memory += bucket_round(count * sizeof *made->gradients);
    made->buckets = (struct bucket *)(void *)memory;
    memory += bucket_round(opened * sizeof *made->buckets);
    made->requests = (struct comm_request *)(void *)memory;
    memory += bucket_round(opened * sizeof *made->requests);
    bucket_plan(made, gradients, deal);
    result = device != NULL ? bucket_device_open(made, device) : COMM_OK;
    if (result != COMM_OK) {
        base_heap_give(c, made, bytes);
        return result;
    }
    bucket_place_flat(made, device != NULL ? made->device_memory : memory);
    for (size_t j = 0; j < made->bucket_count; j++)
        made->requests[j] = COMM_REQUEST_NONE;
    bucket_begin_step(made);
    *b = made;
    return COMM_OK;
}

enum comm_result comm_buckets_data(struct comm_buckets *b, size_t i, void **data)
{
    if (b == NULL || data == NULL || i >= b->gradient_count)
        return COMM_ERR_ARGUMENT;
    *data = b->gradients[i].data;
    return COMM_OK;
}

enum comm_result comm_buckets_hold(struct comm_buckets *b, int32_t on)
{
    if (b == NULL || (on != 0 && on != 1))
        return COMM_ERR_ARGUMENT;
    for (size_t i = 0; i < b->gradient_count; i++) {
        if (atomic_load_explicit(&b->gradients[i].claimed, memory_order_relaxed) != 0)
            return COMM_ERR_STATE;
    }
    atomic_store_explicit(&b->held, (uint32_t)on, memory_order_release);
    return COMM_OK;
}

/* Returns false if the queue is full: the bucket is tried again later. Any other error becomes the bucket's result,
 * because then the collective has used up its place in the order, or the communicator is gone. */
static bool bucket_issue_one(struct comm_buckets *b, size_t j)
{
    struct bucket *bucket = &b->buckets[j];
    void *at = bucket->flat != NULL ? bucket->flat : b->gradients[bucket->first].data;
    size_t unit = bucket_type_bytes(bucket->type), elements = unit ? bucket->bytes / unit : 0;
    struct comm_request request = COMM_REQUEST_NONE;
    enum comm_result result = b->device != NULL ? bucket_device_order(b, bucket) : COMM_OK;
    if (result == COMM_OK)
        result = comm_allreduce(b->comm, COMM_IN_PLACE, at, elements, bucket->type, b->op, &request);
    if (result == COMM_ERR_FULL)
        return false;
    bucket->refused = result;
    b->requests[j] = result == COMM_OK ? request : COMM_REQUEST_NONE;
    return true;
}

/* Issues the next buckets that are full. Returns at once if another thread is issuing: that thread looks again because
 * `turns` has changed. */
void bucket_issue(struct comm_buckets *b)
{
    uint64_t seen = 1;
    if (atomic_fetch_add_explicit(&b->turns, 1, memory_order_acq_rel) != 0)
        return;
    do {
        size_t next = atomic_load_explicit(&b->issued, memory_order_acquire);
        while (next < b->bucket_count && atomic_load_explicit(&b->buckets[next].missing, memory_order_acquire) == 0 &&
               bucket_issue_one(b, next))
            atomic_store_explicit(&b->issued, ++next, memory_order_release);
    } while (!atomic_compare_exchange_strong_explicit(&b->turns, &seen, 0, memory_order_acq_rel, memory_order_acquire));
}

bool bucket_claim(struct comm_buckets *b, struct bucket_gradient *gradient, bool rest, struct bucket_copy *copy)
{
    *copy = (struct bucket_copy){0};
    if (atomic_exchange_explicit(&gradient->claimed, 1, memory_order_acq_rel) != 0)
        return false;
    if (gradient->bucket == BUCKET_NONE)
        return true;
    if (atomic_load_explicit(&b->held, memory_order_acquire) != 0) {
        atomic_store_explicit(&gradient->kept, 1, memory_order_relaxed);
        return true;
    }
    copy->bucket = &b->buckets[gradient->bucket];
    copy->to = copy->bucket->flat != NULL ? copy->bucket->flat + gradient->offset : gradient->data;
    copy->from = rest && atomic_load_explicit(&gradient->kept, memory_order_relaxed) == 0 ? NULL : gradient->data;
    copy->bytes = copy->from != copy->to ? gradient->bytes : 0;
    return true;
}

static bool bucket_contribute(struct comm_buckets *b, struct bucket_gradient *gradient, bool rest)
{
    struct bucket_copy copy;
    if (!bucket_claim(b, gradient, rest, &copy))
        return false;
    if (copy.bytes != 0 && copy.from == NULL)
        memset(copy.to, 0, copy.bytes);
    else if (copy.bytes != 0)
        memcpy(copy.to, copy.from, copy.bytes);
    if (copy.bucket != NULL)
        atomic_fetch_sub_explicit(&copy.bucket->missing, 1, memory_order_acq_rel);
    return true;
}

enum comm_result comm_buckets_ready(struct comm_buckets *b, size_t i)
{
    if (b == NULL || i >= b->gradient_count)
        return COMM_ERR_ARGUMENT;
    if (b->device != NULL)
        return COMM_ERR_UNSUPPORTED;
    if (!bucket_contribute(b, &b->gradients[i], false))
        return COMM_ERR_STATE;
    bucket_issue(b);
    enum comm_result moved = comm_progress(b->comm);
    return moved < 0 ? moved : COMM_OK;
}

/* Returns COMM_OK when all buckets are issued. Otherwise the queue was full, or another thread still copies into a bucket, and the caller
 * must wait. comm_last() waits for messages too, which other ranks may send after this step. So this looks for room meanwhile, less often
 * the longer it has waited: a short wait never sleeps. */
static enum comm_result bucket_issue_all(struct comm_buckets *b, int64_t timeout_ns)
{
    struct comm_request last = COMM_REQUEST_NONE;
    int64_t waited = 0;

    for (bucket_issue(b); atomic_load_explicit(&b->issued, memory_order_acquire) < b->bucket_count; bucket_issue(b)) {
        if (timeout_ns == 0)
            return COMM_PENDING;
        if (comm_test(last) != COMM_PENDING)
            last = comm_last(b->comm);
        int64_t look = waited / BUCKET_LOOK_PART > BUCKET_LOOK_NS ? waited / BUCKET_LOOK_PART : BUCKET_LOOK_NS;
        int64_t nap = timeout_ns < look ? timeout_ns : look;
        enum comm_result result = comm_wait(last, nap);
        if (result == COMM_ERR_STATE)
            return result;
        waited += result == COMM_PENDING ? nap : 0;
        if (result == COMM_PENDING && timeout_ns != COMM_FOREVER)
            timeout_ns -= nap;
        if (result >= 0 || last.comm != NULL)
            continue;
        /* comm_last() had no room or memory for its marker. Then this thread must make progress itself. Every operation
         * in the queue has a deadline, so even COMM_FOREVER ends. A shorter timeout cannot be kept here. */
        enum comm_result moved = comm_progress(b->comm);
        if (moved < 0)
            return moved;
        if (result == COMM_ERR_FULL && timeout_ns != COMM_FOREVER)
            return result;
    }
    return COMM_OK;
}

/* Returns COMM_OK when all buckets are issued and complete, whatever their results. COMM_ERR_STATE: this thread may not
 * wait, because it is inside a callback. */
static enum comm_result bucket_drain(struct comm_buckets *b, int64_t timeout_ns)
{
    enum comm_result issued = bucket_issue_all(b, timeout_ns);
    if (issued != COMM_OK)
        return issued;
    enum comm_result result = comm_wait_all(b->requests, b->bucket_count, timeout_ns);
    if (result == COMM_OK || result == COMM_PENDING)
        return result;
    for (size_t j = 0; j < b->bucket_count; j++) {
        if (comm_test(b->requests[j]) == COMM_PENDING)
            return result;
    }
    return COMM_OK;
}

static enum comm_result bucket_copy_back(struct comm_buckets *b, size_t j)
{
    const struct bucket *bucket = &b->buckets[j];
    enum comm_result result = bucket->refused != COMM_OK ? bucket->refused : comm_test(b->requests[j]);
    if (result != COMM_OK || bucket->flat == NULL || b->adopt)
        return result;
    if (b->device != NULL)
        return bucket_device_copy_back(b, j, (struct CUstream_st *)atomic_load_explicit(&b->stream, memory_order_relaxed));
    for (size_t i = bucket->first + 1; i-- > bucket->last;) {
        const struct bucket_gradient *gradient = &b->gradients[i];
        if (gradient->bucket == j)
            memcpy(gradient->data, bucket->flat + gradient->offset, gradient->bytes);
    }
    return COMM_OK;
}

static enum comm_result bucket_contribute_rest(struct comm_buckets *b)
{
    if (b->device != NULL)
        return bucket_device_contribute_rest(b, (struct CUstream_st *)atomic_load_explicit(&b->stream, memory_order_relaxed));
    for (size_t i = b->gradient_count; i-- > 0;)
        bucket_contribute(b, &b->gradients[i], true);
    return COMM_OK;
}

enum comm_result comm_buckets_wait(struct comm_buckets *b, int64_t timeout_ns)
{
    if (b == NULL || timeout_ns < 0)
        return COMM_ERR_ARGUMENT;
    if (atomic_exchange_explicit(&b->waiting, 1, memory_order_acquire) != 0)
        return COMM_ERR_STATE;
    if (atomic_load_explicit(&b->held, memory_order_acquire) != 0) {
        bucket_end_held(b);
        atomic_store_explicit(&b->waiting, 0, memory_order_release);
        return COMM_OK;
    }
    enum comm_result result = bucket_contribute_rest(b);
    if (result == COMM_OK)
        result = bucket_drain(b, timeout_ns);
    if (result == COMM_OK) {
        for (size_t j = 0; j < b->bucket_count; j++) {
            enum comm_result one = bucket_copy_back(b, j);
            if (result == COMM_OK)
                result = one;
        }
        if (b->device != NULL && result == COMM_OK)
            result = bucket_device_settle(b, timeout_ns);
        if (result != COMM_PENDING)
            bucket_begin_step(b);
    }
    atomic_store_explicit(&b->waiting, 0, memory_order_release);
    return result;
}

/* Waits for a step under way, also for one whose end comm_buckets_wait_stream() left to the stream. The operations' deadlines bound the
 * wait. If waiting is not allowed (inside a callback), the memory is not freed, because peers may still read it. */
void comm_buckets_free(struct comm_buckets *b)
{
    if (b == NULL || !base_heap_is_own(b))
        return;
    /* A bucket that is not issued in this step has the request of the step before, or none. */
    for (size_t j = 0; j < b->bucket_count; j++) {
        enum comm_result result = comm_wait(b->requests[j], COMM_FOREVER);
        if (result != COMM_OK && comm_test(b->requests[j]) == COMM_PENDING)
            return;
    }
    if (b->device != NULL)
        bucket_device_close(b);
    base_heap_give(b->comm, b, b->memory_bytes);
}
