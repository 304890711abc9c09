/* Gather, scatter and alltoall with blocks of one length: check the arguments, resolve in-place calls to addresses, issue. */
#include "api/api.h"

enum comm_result comm_gather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                             struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, 0), call_where(COLLECTIVE_GATHER, 0, root), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_GATHER, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE, am_root = engine_rank(c) == root;
    size_t ranks = (size_t)engine_size(c), rank = (size_t)engine_rank(c);
    api_need_type(&check, type);
    api_need_rank(&check, "root", root);
    size_t block = api_bytes(&check, type, n, 1), all = api_bytes(&check, type, n, ranks);
    api_need(&check, am_root || !in_place, "in", -1, "a buffer: only the root may pass COMM_IN_PLACE");
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, block);
    api_need_buffer(&check, "out", out, am_root ? all : 0);
    if (am_root && !in_place)
        api_need_apart(&check, in, block, out, all);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_GATHER, .type = type, .root = root, .in = in, .out = am_root ? out : NULL, .n = n};
    if (in_place)
        call.in = block ? (char *)out + rank * block : out;
    call.read = api_range(call.in, block);
    call.write = api_range(call.out, am_root ? all : 0);
    return engine_issue(c, &call, req);
}

enum comm_result comm_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, int32_t root,
                              struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, 0), call_where(COLLECTIVE_SCATTER, 0, root), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_SCATTER, req) != COMM_OK)
        return check.result;
    bool in_place = out == COMM_IN_PLACE, am_root = engine_rank(c) == root;
    size_t ranks = (size_t)engine_size(c), rank = (size_t)engine_rank(c);
    api_need_type(&check, type);
    api_need_rank(&check, "root", root);
    size_t block = api_bytes(&check, type, n, 1), all = api_bytes(&check, type, n, ranks);
    api_need(&check, am_root || !in_place, "out", -1, "a buffer: only the root may pass COMM_IN_PLACE");
    api_need_buffer(&check, "in", in, am_root ? all : 0);
    api_need_buffer(&check, in_place ? "in" : "out", in_place ? in : out, block);
    if (am_root && !in_place)
        api_need_apart(&check, in, all, out, block);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_SCATTER, .type = type, .root = root, .in = am_root ? in : NULL, .out = out, .n = n};
    call.read = api_range(call.in, am_root ? all : 0);
    call.write = api_range(out, in_place ? 0 : block);
    if (in_place) /* the root's own block stays where it is */
        call.out = block ? (char *)(uintptr_t)in + rank * block : NULL;
    return engine_issue(c, &call, req);
}

enum comm_result comm_alltoall(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                               struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, 0), call_where(COLLECTIVE_ALLTOALL, 0, 0), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_ALLTOALL, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE;
    api_need_type(&check, type);
    size_t all = api_bytes(&check, type, n, (size_t)engine_size(c));
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, all);
    api_need_buffer(&check, "out", out, all);
    if (!in_place)
        api_need_apart(&check, in, all, out, all);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_ALLTOALL, .type = type, .in = in_place ? out : in, .out = out, .n = n};
    call.read = api_range(call.in, all);
    call.write = api_range(out, all);
    return engine_issue(c, &call, req);
}

enum comm_result comm_broadcast_bytes(struct comm_communicator *c, void *buf, size_t *bytes, int32_t root, struct comm_request *req)
{
    struct api_check check;

    if (api_begin(&check, c, COLLECTIVE_BROADCAST_BYTES, req) != COMM_OK)
        return check.result;
    api_need_rank(&check, "root", root);
    api_need(&check, bytes != NULL, "bytes", 0, "where the length is");
    size_t length = bytes && *bytes != COMM_ROOT_FAILED ? *bytes : 0;
    api_need_fit(&check, length <= SIZE_MAX / 8, "*bytes", length, "COMM_ROOT_FAILED, or a length");
    api_need_buffer(&check, "buf", buf, length);
    return check.result == COMM_OK ? engine_broadcast_bytes(c, buf, bytes, root, req, __builtin_return_address(0)) : check.result;
}
