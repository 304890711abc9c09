/* Barrier, broadcast, reduce, allreduce, reduce_scatter and allgather: check the arguments, resolve in-place calls to addresses, issue. */
#include "api/api.h"

/* All checks of an allreduce in one expression. Returns its bytes, or 0 if the slower checks must decide and write the error (also if n ==
 * 0). */
static inline size_t api_sound(const struct comm_communicator *c, const void *in, const void *out, size_t n, size_t element, bool in_place)
{
    size_t bytes = n * element;
    uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
    bool apart = in_place || a + bytes <= b || b + bytes <= a;

    if (!c || !element || !a || !b || b == (uintptr_t)COMM_IN_PLACE || n > SIZE_MAX / 128 || !apart)
        return 0;
    return atomic_load_explicit(c->alive, memory_order_relaxed) ? bytes : 0;
}

enum comm_result comm_barrier(struct comm_communicator *c, struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, NULL, NULL, 0, call_what(COMM_U8, COMM_BOR), call_where(COLLECTIVE_BARRIER, 0, 0), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_BARRIER, req) != COMM_OK)
        return check.result;
    return engine_issue(c, &(struct engine_call){.collective = COLLECTIVE_BARRIER, .type = COMM_U8, .op = COMM_BOR}, req);
}

enum comm_result comm_broadcast(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t root,
                                struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, buf, buf, n, call_what(type, 0), call_where(COLLECTIVE_BROADCAST, 0, root), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_BROADCAST, req) != COMM_OK)
        return check.result;
    api_need_type(&check, type);
    api_need_rank(&check, "root", root);
    size_t bytes = api_bytes(&check, type, n, 1);
    api_need_buffer(&check, "buf", buf, bytes);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_BROADCAST, .type = type, .root = root, .in = buf, .out = buf, .n = n};
    *(engine_rank(c) == root ? &call.read : &call.write) = api_range(buf, bytes);
    return engine_issue(c, &call, req);
}

enum comm_result comm_reduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                             int32_t root, struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, op), call_where(COLLECTIVE_REDUCE, 0, root), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_REDUCE, req) != COMM_OK)
        return check.result;
    bool am_root = engine_rank(c) == root, in_place = in == COMM_IN_PLACE;
    api_need_pair(&check, type, op, n);
    api_need_rank(&check, "root", root);
    size_t bytes = api_bytes(&check, type, n, 1);
    api_need(&check, am_root || !in_place, "in", -1, "a buffer: only the root may pass COMM_IN_PLACE");
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, bytes);
    api_need_buffer(&check, "out", out, am_root ? bytes : 0);
    if (am_root && !in_place)
        api_need_apart(&check, in, bytes, out, bytes);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_REDUCE,
                               .type = type,
                               .op = op,
                               .root = root,
                               .in = in_place ? out : in,
                               .out = am_root ? out : NULL,
                               .n = n};
    call.read = api_range(call.in, bytes);
    call.write = api_range(call.out, am_root ? bytes : 0);
    return engine_issue(c, &call, req);
}

/* Not inlined, so that the fast path of a repeated call saves no registers for it. site: the caller's return address. */
static __attribute__((noinline)) enum comm_result allreduce(struct comm_communicator *c, const void *in, void *out, size_t n,
                                                            enum comm_type type, comm_op op, struct comm_request *req, const void *site)
{
    struct api_check check;
    bool in_place = in == COMM_IN_PLACE;
    size_t sound = api_sound(c, in_place ? out : in, out, n, data_pair_bytes(type, op), in_place);

    if (BASE_LIKELY(sound)) {
        struct engine_call call = {
            .collective = COLLECTIVE_ALLREDUCE, .type = type, .op = op, .in = in_place ? out : in, .out = out, .n = n};
        call.read = (struct timeline_range){(uintptr_t)call.in, (uintptr_t)call.in + sound};
        call.write = (struct timeline_range){(uintptr_t)out, (uintptr_t)out + sound};
        return engine_issue_from(c, &call, req, site);
    }
    if (api_begin(&check, c, COLLECTIVE_ALLREDUCE, req) != COMM_OK)
        return check.result;
    api_need_pair(&check, type, op, n);
    size_t bytes = api_bytes(&check, type, n, 1);
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, bytes);
    api_need_buffer(&check, "out", out, bytes);
    if (!in_place)
        api_need_apart(&check, in, bytes, out, bytes);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_ALLREDUCE, .type = type, .op = op, .in = in_place ? out : in, .out = out, .n = n};
    call.read = api_range(call.in, bytes);
    call.write = api_range(out, bytes);
    return engine_issue_from(c, &call, req, site);
}

enum comm_result comm_allreduce(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                struct comm_request *req)
{
    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, op), call_where(COLLECTIVE_ALLREDUCE, 0, 0), req)))
        return COMM_OK;
    return allreduce(c, in, out, n, type, op, req, __builtin_return_address(0));
}

enum comm_result comm_reduce_scatter(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type, comm_op op,
                                     struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, op), call_where(COLLECTIVE_REDUCE_SCATTER, 0, 0), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_REDUCE_SCATTER, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE;
    size_t ranks = (size_t)engine_size(c), rank = (size_t)engine_rank(c);
    api_need_pair(&check, type, op, n);
    size_t block = api_bytes(&check, type, n, 1), all = api_bytes(&check, type, n, ranks);
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, all);
    api_need_buffer(&check, "out", out, block);
    if (!in_place)
        api_need_apart(&check, in, all, out, block);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_REDUCE_SCATTER,
                               .type = type,
                               .op = op,
                               .in = in_place ? out : in,
                               .out = in_place && block ? (char *)out + rank * block : out,
                               .n = n};
    call.read = api_range(call.in, all);
    call.write = api_range(call.out, block);
    return engine_issue(c, &call, req);
}

enum comm_result comm_allgather(struct comm_communicator *c, const void *in, void *out, size_t n, enum comm_type type,
                                struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat(c, in, out, n, call_what(type, 0), call_where(COLLECTIVE_ALLGATHER, 0, 0), req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_ALLGATHER, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE;
    size_t ranks = (size_t)engine_size(c), rank = (size_t)engine_rank(c);
    api_need_type(&check, type);
    size_t block = api_bytes(&check, type, n, 1), all = api_bytes(&check, type, n, ranks);
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, block);
    api_need_buffer(&check, "out", out, all);
    if (!in_place)
        api_need_apart(&check, in, block, out, all);
    if (check.result != COMM_OK)
        return check.result;
    struct engine_call call = {.collective = COLLECTIVE_ALLGATHER, .type = type, .out = out, .n = n};
    call.in = in_place && block ? (char *)out + rank * block : in_place ? out : in;
    call.read = api_range(call.in, block);
    call.write = api_range(out, all);
    return engine_issue(c, &call, req);
}
