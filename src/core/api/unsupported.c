/* The part of the handle that is not built yet: each call says so with COMM_ERR_UNSUPPORTED and a text. A refused collective uses up no
 * number here, since every rank refuses it alike. */
#include "api/api.h"

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
