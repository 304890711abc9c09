/* The public calls that the bucket room makes, and what no case here may call. */
#include "mock_library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "bucket/bucket.h"

struct mock_library mock;
struct comm_communicator *const mock_world = (struct comm_communicator *)&mock;

void mock_begin(void)
{
    memset(&mock, 0, sizeof mock);
    mock.full_after = SIZE_MAX;
}

void *base_heap_take(struct comm_communicator *c, size_t bytes)
{
    assert_ptr_equal(c, mock_world);
    void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    memset(memory, 0, bytes);
    mock.taken++;
    return memory;
}

bool base_heap_is_own(const void *memory)
{
    (void)memory;
    return true;
}

void base_heap_give(struct comm_communicator *c, void *memory, size_t bytes)
{
    assert_ptr_equal(c, mock_world);
    memset(memory, 0xee, bytes);
    free(memory);
    mock.taken--;
}

/* No gradient here is a device's: tests/cuda has those. */
enum comm_result bucket_device_find(struct comm_communicator *c, const struct comm_gradient *gradients, size_t count, int32_t adopt,
                                    struct device **device)
{
    (void)gradients;
    (void)count;
    (void)adopt;
    (void)device;
    assert_ptr_equal(c, mock_world);
    return COMM_OK;
}

void bucket_device_drop(struct device *device)
{
    assert_null(device);
}

#define NEVER(result, name, ...)                                                                                                           \
    result name(__VA_ARGS__)                                                                                                               \
    {                                                                                                                                      \
        abort();                                                                                                                           \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-noreturn"
NEVER(enum comm_result, bucket_device_open, struct comm_buckets *b, struct device *device)
NEVER(void, bucket_device_close, struct comm_buckets *b)
NEVER(enum comm_result, bucket_device_contribute_rest, struct comm_buckets *b, struct CUstream_st *stream)
NEVER(enum comm_result, bucket_device_order, struct comm_buckets *b, struct bucket *bucket)
NEVER(enum comm_result, bucket_device_copy_back, struct comm_buckets *b, size_t j, struct CUstream_st *stream)
NEVER(enum comm_result, bucket_device_settle, struct comm_buckets *b, int64_t timeout_ns)
#pragma GCC diagnostic pop

enum comm_result comm_allreduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                struct comm_request *req)
{
    assert_int_equal(atomic_fetch_add(&mock.inside, 1), 0);
    size_t at = atomic_load(&mock.count);
    enum comm_result result = COMM_OK;
    assert_ptr_equal(c, mock_world);
    assert_ptr_equal(in, COMM_IN_PLACE);
    assert_true(at < MOCK_CALLS_MAX);
    if (at == mock.full_after) {
        result = COMM_ERR_FULL;
    } else {
        mock.calls[at] = (struct mock_call){out, n, type, op};
        atomic_store(&mock.count, at + 1);
        if (at + 1 == mock.refuse_at)
            result = COMM_ERR_UNSUPPORTED;
        else if (type == COMM_F32)
            for (size_t i = 0; i < n; i++)
                ((float *)out)[i] /= 2;
        *req = (struct comm_request){c, at + 1};
    }
    atomic_fetch_sub(&mock.inside, 1);
    return result;
}

enum comm_result comm_test(struct comm_request request)
{
    return request.comm != NULL && mock.late ? COMM_PENDING : COMM_OK;
}

enum comm_result comm_wait(struct comm_request request, int64_t timeout_ns)
{
    if (request.comm == NULL)
        return (enum comm_result)(int32_t)request.ticket;
    if (mock.in_callback && comm_test(request) == COMM_PENDING)
        return COMM_ERR_STATE;
    if (timeout_ns == COMM_FOREVER)
        mock.late = false;
    mock.full_after = SIZE_MAX;
    return comm_test(request);
}

enum comm_result comm_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns)
{
    enum comm_result result = COMM_OK;
    for (size_t i = 0; i < count && result == COMM_OK; i++)
        result = comm_wait(requests[i], timeout_ns);
    return result;
}

struct comm_request comm_last(struct comm_communicator *c)
{
    assert_true(++mock.lasts < 100000); /* or somebody spins */
    if (mock.no_marker)
        return (struct comm_request){NULL, (uint64_t)COMM_ERR_FULL};
    return (struct comm_request){c, atomic_load(&mock.count)};
}

enum comm_result comm_progress(struct comm_communicator *any)
{
    assert_ptr_equal(any, mock_world);
    if (mock.progress_left != 0 && --mock.progress_left == 0)
        mock.full_after = SIZE_MAX;
    return COMM_OK;
}
