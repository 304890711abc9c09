/* Requests: test, wait, notify, cancel. */
#include "api/api.h"

static bool bad_time(int64_t timeout_ns)
{
    return timeout_ns < 0;
}

enum comm_result comm_test(struct comm_request request)
{
    return engine_test(request);
}

enum comm_result comm_wait(struct comm_request request, int64_t timeout_ns)
{
    return bad_time(timeout_ns) ? COMM_ERR_ARGUMENT : engine_wait(request, timeout_ns);
}

enum comm_result comm_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns)
{
    if (bad_time(timeout_ns) || (count && !requests))
        return COMM_ERR_ARGUMENT;
    return engine_wait_all(requests, count, timeout_ns);
}

enum comm_result comm_wait_any(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *index)
{
    size_t done = 0;

    if (bad_time(timeout_ns) || (count && !requests) || !index)
        return COMM_ERR_ARGUMENT;
    *index = COMM_NO_INDEX;
    return engine_wait_some(requests, count, timeout_ns, 1, index, NULL, &done);
}

enum comm_result comm_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t *indices, enum comm_result *results,
                                size_t *done)
{
    if (bad_time(timeout_ns) || (count && (!requests || !indices)) || !done)
        return COMM_ERR_ARGUMENT;
    return engine_wait_some(requests, count, timeout_ns, count, indices, results, done);
}

struct comm_request comm_last(struct comm_communicator *c)
{
    return engine_last(c);
}

enum comm_result comm_notify(struct comm_request request, comm_notify_fn *fn, void *arg)
{
    return fn && request.comm ? engine_notify(request, fn, arg) : COMM_ERR_ARGUMENT;
}

enum comm_result comm_cancel(struct comm_request request)
{
    return engine_cancel(request);
}

enum comm_result comm_describe_request(struct comm_request request, struct comm_request_info *info)
{
    enum comm_result r = api_size(info, sizeof(size_t));

    return r == COMM_OK ? engine_describe_request(request, info) : r;
}
