#ifndef COMMSTREAM_BUCKET_H
#define COMMSTREAM_BUCKET_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients in the order of the forward pass. Buckets run in reverse, split by size and type, and are issued in one agreed order on all ranks
   whatever the order of ready calls. wait counts a gradient never made ready as zeros, so unused parameters cannot hang it. */
struct comm_gradient { void *data; size_t count; enum comm_type type; int32_t reserved; };
struct comm_bucket_options {
    size_t size;
    size_t bytes, first_bytes;      /* 25 MiB, 1 MiB                                                                         */
    comm_op op;                     /* COMM_AVG                                                                              */
    int32_t adopt;                  /* 1: data may be NULL; gradients live in the buckets (comm_buckets_data), no copies      */
};
COMM_MUST enum comm_result comm_buckets_create(struct comm_communicator *c, const struct comm_gradient *gradients, size_t count,
                                               const struct comm_bucket_options *options, struct comm_buckets **b);
COMM_MUST enum comm_result comm_buckets_data(struct comm_buckets *b, size_t i, void **data);
COMM_MUST enum comm_result comm_buckets_ready(struct comm_buckets *b, size_t i);              /* any thread; twice in a step: COMM_ERR_STATE  */
COMM_MUST enum comm_result comm_buckets_wait(struct comm_buckets *b, int64_t timeout_ns);     /* all reduced; the next step may begin        */
COMM_MUST enum comm_result comm_buckets_hold(struct comm_buckets *b, int32_t on);             /* accumulate without reducing (no_sync)       */
COMM_API void comm_buckets_free(struct comm_buckets *b);

#ifdef __cplusplus
}
#endif

#endif
