/* The part of the face that is not built yet: each call says so with COMM_ERR_UNSUPPORTED and a text. A refused collective uses up no
 * number here, since every rank refuses it alike. */
#include "api/api.h"

enum comm_result comm_mem_alloc(struct comm_communicator *c, size_t bytes, void **ptr)
{
    (void)bytes;
    (void)ptr;
    return api_unsupported(c, NULL, "comm_mem_alloc");
}

void comm_mem_free(struct comm_communicator *c, void *ptr)
{
    (void)c;
    (void)ptr;
}

enum comm_result comm_mem_register(struct comm_communicator *c, void *ptr, size_t bytes)
{
    (void)ptr;
    (void)bytes;
    return api_unsupported(c, NULL, "comm_mem_register");
}

void comm_mem_unregister(struct comm_communicator *c, void *ptr)
{
    (void)c;
    (void)ptr;
}

enum comm_result comm_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                    struct comm_window **w, struct comm_request *req)
{
    (void)bytes;
    (void)options;
    (void)w;
    return api_unsupported(c, req, "comm_window_create");
}

enum comm_result comm_window_pointer(struct comm_window *w, int32_t peer, void **ptr, size_t *bytes)
{
    (void)w;
    (void)peer;
    (void)ptr;
    (void)bytes;
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_window_fence(struct comm_window *w, struct comm_request *req)
{
    (void)w;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_window_flush(struct comm_window *w, int32_t peer, struct comm_request *req)
{
    (void)w;
    (void)peer;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_put(struct comm_window *w, const void *from, size_t n, enum comm_type type, int32_t peer, size_t offset,
                          struct comm_request *req)
{
    (void)w;
    (void)from;
    (void)n;
    (void)type;
    (void)peer;
    (void)offset;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_get(struct comm_window *w, void *to, size_t n, enum comm_type type, int32_t peer, size_t offset,
                          struct comm_request *req)
{
    (void)w;
    (void)to;
    (void)n;
    (void)type;
    (void)peer;
    (void)offset;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_accumulate(struct comm_window *w, const void *from, size_t n, enum comm_type type, comm_op op, int32_t peer,
                                 size_t offset, struct comm_request *req)
{
    (void)w;
    (void)from;
    (void)n;
    (void)type;
    (void)op;
    (void)peer;
    (void)offset;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_fetch_op(struct comm_window *w, const void *from, void *old, size_t n, enum comm_type type, comm_op op, int32_t peer,
                               size_t offset, struct comm_request *req)
{
    (void)w;
    (void)from;
    (void)old;
    (void)n;
    (void)type;
    (void)op;
    (void)peer;
    (void)offset;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_compare_swap(struct comm_window *w, const void *expected, const void *desired, void *old, enum comm_type type,
                                   int32_t peer, size_t offset, struct comm_request *req)
{
    (void)w;
    (void)expected;
    (void)desired;
    (void)old;
    (void)type;
    (void)peer;
    (void)offset;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_window_signal(struct comm_window *w, int32_t peer, uint32_t slot, uint64_t add, struct comm_request *req)
{
    (void)w;
    (void)peer;
    (void)slot;
    (void)add;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_window_wait_signal(struct comm_window *w, uint32_t slot, uint64_t at_least, struct comm_request *req)
{
    (void)w;
    (void)slot;
    (void)at_least;
    if (req)
        *req = timeline_refusal(COMM_ERR_UNSUPPORTED);
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_window_free(struct comm_window *w)
{
    (void)w;
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_buckets_ready_stream(struct comm_buckets *b, size_t i, struct CUstream_st *stream)
{
    (void)b;
    (void)i;
    (void)stream;
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result comm_buckets_wait_stream(struct comm_buckets *b, struct CUstream_st *stream)
{
    (void)b;
    (void)stream;
    return COMM_ERR_UNSUPPORTED;
}
