/* The data of gradient buckets, shared by the plan (bucket.c) and by the code for gradients on a device (device.c). */
#ifndef BUCKET_BUCKET_H
#define BUCKET_BUCKET_H

#include <commstream/bucket.h>
#include <commstream/event.h>

#include <stdatomic.h>
#include <stdbool.h>

#define BUCKET_NONE SIZE_MAX
#define BUCKET_NO_STREAM UINTPTR_MAX
enum { BUCKET_ADOPT_ON_DEVICE = 2, BUCKET_ALIGN = 64 };

struct device;

struct bucket_gradient {
    unsigned char *data;
    size_t bytes;
    size_t bucket, offset;    /* where it is gathered; BUCKET_NONE if the gradient is empty */
    _Atomic uint32_t claimed; /* this step has its value, or a thread is copying it */
    _Atomic uint32_t kept;    /* a held step had a value for it */
};

struct bucket {
    size_t first; /* the highest gradient in it; members are walked downwards to `last` */
    size_t last;  /* the lowest gradient in it */
    size_t members, bytes;
    unsigned char *flat; /* NULL: one member, reduced in place. With `adopt` the members live here */
    enum comm_type type;
    enum comm_result refused; /* what issuing it returned */
    _Atomic size_t missing;
    _Atomic uintptr_t stream; /* on a device: the stream that the queue must wait for before the reduction, or BUCKET_NO_STREAM */
};

struct comm_buckets {
    struct comm_communicator *comm;
    size_t memory_bytes;
    comm_op op;
    _Atomic uint32_t waiting; /* a thread is inside wait */
    _Atomic uint32_t held;
    bool adopt;
    size_t gradient_count, bucket_count;
    struct bucket_gradient *gradients;
    struct bucket *buckets;        /* in issue order */
    struct comm_request *requests; /* one per bucket, written before `issued` passes it */
    _Atomic size_t issued;
    _Atomic uint64_t turns;
    struct device *device;      /* NULL: gradients are in host memory */
    void *device_memory;        /* the flat buffers on the device */
    _Atomic uintptr_t stream;   /* the stream of the last comm_buckets_ready_stream() */
    struct comm_event *settled; /* reached when the copies of comm_buckets_wait() are done */
    struct comm_event *order;   /* recorded on the stream of the bucket that is issued next */
    bool ordering;              /* `order` was recorded: while the queue is full, only the wait is retried */
    bool settling;              /* `settled` was recorded in this step: a later call continues to wait */
};

/* What a claimed gradient has to bring into its bucket. `bucket` NULL: nothing in this step. `from` NULL: zeros. */
struct bucket_copy {
    struct bucket *bucket;
    unsigned char *to;
    const unsigned char *from;
    size_t bytes; /* 0: the value is in place */
};
/* Claims the gradient for this step. Returns false if it was claimed already. rest: it was not reported, so zeros count, unless a held step
 * had a value for it. Whoever has copied counts `missing` down. */
bool bucket_claim(struct comm_buckets *b, struct bucket_gradient *gradient, bool rest, struct bucket_copy *copy);
void bucket_issue(struct comm_buckets *b);
void bucket_begin_step(struct comm_buckets *b);
void bucket_end_held(struct comm_buckets *b);

/* device.c. Finds the gradients' device and holds it. COMM_OK with *device NULL: the gradients are in host memory. */
enum comm_result bucket_device_find(struct comm_communicator *c, const struct comm_gradient *gradients, size_t count, int32_t adopt,
                                    struct device **device);
/* Takes over the reference to the device, and creates what the buckets need on it. */
enum comm_result bucket_device_open(struct comm_buckets *b, struct device *device);
void bucket_device_close(struct comm_buckets *b);
void bucket_device_drop(struct device *device); /* NULL is ignored */
/* The parts of comm_buckets_wait() on a device: contribute the gradients that were not reported; have the reduction wait for the stream
 * that wrote a bucket; copy a bucket's results back; wait for these copies. */
enum comm_result bucket_device_contribute_rest(struct comm_buckets *b, struct CUstream_st *stream);
enum comm_result bucket_device_order(struct comm_buckets *b, struct bucket *bucket);
enum comm_result bucket_device_copy_back(struct comm_buckets *b, size_t j, struct CUstream_st *stream);
enum comm_result bucket_device_settle(struct comm_buckets *b, int64_t timeout_ns);

#endif
