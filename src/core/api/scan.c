/* Scans: check the arguments, resolve in-place calls to addresses, issue. */
#include "api/api.h"

static inline __attribute__((always_inline)) enum comm_result scan(struct comm_communicator *c, uint32_t collective, const void *in,
                                                                   void *out, size_t n, enum comm_type type, comm_op op,
                                                                   struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, op), call_where(collective, 0, 0), req)))
        return COMM_OK;
    if (api_begin(&check, c, collective, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE, gets = collective == COLLECTIVE_SCAN || engine_rank(c) > 0;
    api_need_pair(&check, type, op, n);
    if (check.result == COMM_OK && op == COMM_AVG)
        return engine_refuse(c, collective, COMM_ERR_UNSUPPORTED, req,
                             "%s: op=avg: not defined for scans; expected another operator, such as sum", collective_name(collective));
    size_t bytes = api_bytes(&check, type, n, 1);
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, bytes);
    api_need_buffer(&check, "out", out, gets ? bytes : 0);
    if (!in_place && gets)
        api_need_apart(&check, in, bytes, out, bytes);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = collective, .type = type, .op = op, .in = in_place ? out : in, .out = out, .n = n};
    call.read = api_range(call.in, bytes);
    call.write = api_range(out, gets ? bytes : 0);
    return engine_issue(c, &call, req);
}

enum comm_result comm_scan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                           struct comm_request *req)
{
    return scan(c, COLLECTIVE_SCAN, in, out, n, type, op, req);
}

enum comm_result comm_exscan(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                             struct comm_request *req)
{
    return scan(c, COLLECTIVE_EXSCAN, in, out, n, type, op, req);
}
