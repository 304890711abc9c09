/* Collectives with blocks of different lengths (`_v`), at displacements that the caller may give. Missing displacements are filled in here,
 * densely. */
#include "api/api.h"

#include "base/heap.h"

enum { RANKS_ON_STACK = 64, LAYOUTS = 2 };

/* The layout of a buffer's blocks: the longest block, and the end of the last one. */
struct layout {
    const char *name; /* of the argument that has the counts */
    const size_t *counts, *displs;
    size_t longest, end;
};

/* Memory for the dense displacements of two buffers; on the stack if they are few. */
struct dense {
    size_t few[LAYOUTS][RANKS_ON_STACK];
    size_t *many;
    size_t ranks;
};

static void open_dense(struct api_check *check, struct dense *dense)
{
    dense->ranks = (size_t)engine_size(check->c);
    dense->many = dense->ranks > RANKS_ON_STACK ? base_heap_take(check->c, LAYOUTS * dense->ranks * sizeof *dense->many) : NULL;
    if (dense->ranks > RANKS_ON_STACK && !dense->many && check->result == COMM_OK)
        check->result = engine_refuse(check->c, check->collective, COMM_ERR_MEMORY, check->req, "%s: no memory for %zu displacements",
                                      api_name(check), dense->ranks);
}

static enum comm_result close_dense(struct api_check *check, struct dense *dense, enum comm_result result)
{
    if (dense->many)
        base_heap_give(check->c, dense->many, LAYOUTS * dense->ranks * sizeof *dense->many);
    return result;
}

static struct layout measure(struct api_check *check, struct dense *dense, int which, const char *name, const size_t *counts,
                             const size_t *displs)
{
    size_t *made = dense->many ? dense->many + (size_t)which * dense->ranks : dense->few[which], at = 0;
    struct layout l = {.name = name, .counts = counts, .displs = displs ? displs : made};
    bool overflow = false;

    if (check->result != COMM_OK)
        return l;
    for (size_t r = 0; r < dense->ranks; r++) {
        size_t begin_at = displs ? displs[r] : at, end;
        if (!displs)
            made[r] = at;
        overflow |= __builtin_add_overflow(begin_at, counts[r], &end);
        at = end;
        l.end = end > l.end && counts[r] ? end : l.end;
        l.longest = counts[r] > l.longest ? counts[r] : l.longest;
    }
    api_need_fit(check, !overflow, name, l.longest, "blocks that end");
    return l;
}

/* Names the longest block, which the caller knows. */
static size_t bytes_to_end(struct api_check *check, const struct layout *l, enum comm_type type)
{
    size_t bytes = 0;
    bool overflow = __builtin_mul_overflow(l->end, data_type_bytes(type), &bytes) || bytes > SIZE_MAX / 8;

    api_need_fit(check, !overflow, l->name, l->longest, "blocks that end");
    return overflow ? 0 : bytes;
}

static void need_counts(struct api_check *check, const char *argument, const size_t *counts)
{
    api_need(check, counts != NULL, argument, 0, "one count per rank");
}

/* ------------------------------------------------------------------------------------------------------------ to all */
enum comm_result comm_allgather_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts, const size_t *displs,
                                  enum comm_type type, struct comm_request *req)
{
    struct api_check check;
    struct dense dense;

    if (BASE_LIKELY(engine_repeat_v(c, in, out, ENGINE_AS_COUNTED, call_what(type, 0), call_where(COLLECTIVE_ALLGATHER_V, 0, 0),
                                    &(struct engine_vectors){counts, displs, NULL, NULL}, req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_ALLGATHER_V, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE;
    size_t rank = (size_t)engine_rank(c);
    api_need_type(&check, type);
    need_counts(&check, "counts", counts);
    open_dense(&check, &dense);
    struct layout l = measure(&check, &dense, 0, "counts", counts, displs);
    size_t all = bytes_to_end(&check, &l, type),
           own = check.result == COMM_OK ? api_bytes_of(&check, "counts[rank]", type, counts[rank], 1) : 0;
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, own);
    api_need_buffer(&check, "out", out, all);
    if (!in_place)
        api_need_apart(&check, in, own, out, all);
    if (check.result != COMM_OK)
        return close_dense(&check, &dense, check.result);
    struct engine_call call = {
        .collective = COLLECTIVE_ALLGATHER_V, .type = type, .out = out, .n = l.longest, .counts = l.counts, .displs = l.displs};
    call.in = in_place && own ? (char *)out + l.displs[rank] * data_type_bytes(type) : in_place ? out : in;
    call.read = api_range(call.in, own);
    call.write = api_range(out, all);
    return close_dense(&check, &dense, engine_issue(c, &call, req));
}

enum comm_result comm_reduce_scatter_v(struct comm_communicator *c, const void *in, void *out, const size_t *counts, enum comm_type type,
                                       comm_op op, struct comm_request *req)
{
    struct api_check check;
    struct dense dense;

    if (BASE_LIKELY(engine_repeat_v(c, in, out, ENGINE_AS_COUNTED, call_what(type, op), call_where(COLLECTIVE_REDUCE_SCATTER_V, 0, 0),
                                    &(struct engine_vectors){counts, NULL, NULL, NULL}, req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_REDUCE_SCATTER_V, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE;
    size_t rank = (size_t)engine_rank(c);
    need_counts(&check, "counts", counts);
    for (size_t r = 0; check.result == COMM_OK && r < (size_t)engine_size(c); r++)
        api_need_pair(&check, type, op, counts[r]);
    open_dense(&check, &dense);
    struct layout l = measure(&check, &dense, 0, "counts", counts, NULL);
    size_t all = bytes_to_end(&check, &l, type),
           own = check.result == COMM_OK ? api_bytes_of(&check, "counts[rank]", type, counts[rank], 1) : 0;
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, all);
    api_need_buffer(&check, "out", out, own);
    if (!in_place)
        api_need_apart(&check, in, all, out, own);
    if (check.result != COMM_OK)
        return close_dense(&check, &dense, check.result);
    struct engine_call call = {.collective = COLLECTIVE_REDUCE_SCATTER_V,
                               .type = type,
                               .op = op,
                               .in = in_place ? out : in,
                               .out = in_place && own ? (char *)out + l.displs[rank] * data_type_bytes(type) : out,
                               .n = l.longest,
                               .counts = l.counts,
                               .displs = l.displs};
    call.read = api_range(call.in, all);
    call.write = api_range(call.out, own);
    return close_dense(&check, &dense, engine_issue(c, &call, req));
}

/* ------------------------------------------------------------------------------------------------------------ to and from the root */
static inline __attribute__((always_inline)) enum comm_result gather_v_at_root(struct api_check *check, const void *in, size_t n, void *out,
                                                                               const size_t *counts, const size_t *displs,
                                                                               enum comm_type type)
{
    struct dense dense;
    bool in_place = in == COMM_IN_PLACE;
    size_t rank = (size_t)engine_rank(check->c);

    need_counts(check, "counts", counts);
    open_dense(check, &dense);
    struct layout l = measure(check, &dense, 0, "counts", counts, displs);
    if (check->result == COMM_OK)
        api_need(check, in_place || n == counts[rank], "n", (long long)n, "counts[root], as on every other rank its own");
    size_t all = bytes_to_end(check, &l, type),
           own = check->result == COMM_OK ? api_bytes_of(check, "counts[rank]", type, counts[rank], 1) : 0;
    api_need_buffer(check, in_place ? "out" : "in", in_place ? out : in, own);
    api_need_buffer(check, "out", out, all);
    if (!in_place)
        api_need_apart(check, in, own, out, all);
    if (check->result != COMM_OK)
        return close_dense(check, &dense, check->result);
    struct engine_call call = {.collective = COLLECTIVE_GATHER_V,
                               .type = type,
                               .root = (int32_t)rank,
                               .out = out,
                               .n = counts[rank],
                               .counts = l.counts,
                               .displs = l.displs};
    call.in = in_place && own ? (char *)out + l.displs[rank] * data_type_bytes(type) : in_place ? out : in;
    call.read = api_range(call.in, own);
    call.write = api_range(out, all);
    return close_dense(check, &dense, engine_issue(check->c, &call, check->req));
}

enum comm_result comm_gather_v(struct comm_communicator *c, const void *in, size_t n, void *out, const size_t *counts, const size_t *displs,
                               enum comm_type type, int32_t root, struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat_v(c, in, out, n, call_what(type, 0), call_where(COLLECTIVE_GATHER_V, 0, root),
                                    &(struct engine_vectors){counts, displs, NULL, NULL}, req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_GATHER_V, req) != COMM_OK)
        return check.result;
    api_need_type(&check, type);
    api_need_rank(&check, "root", root);
    if (check.result == COMM_OK && engine_rank(c) == root)
        return gather_v_at_root(&check, in, n, out, counts, displs, type);
    api_need(&check, in != COMM_IN_PLACE, "in", -1, "a buffer: only the root may pass COMM_IN_PLACE");
    size_t bytes = api_bytes(&check, type, n, 1);
    api_need_buffer(&check, "in", in, bytes);
    if (check.result != COMM_OK)
        return check.result;
    return engine_issue(c,
                        &(struct engine_call){
                            .collective = COLLECTIVE_GATHER_V, .type = type, .root = root, .in = in, .n = n, .read = api_range(in, bytes)},
                        req);
}

static inline __attribute__((always_inline)) enum comm_result scatter_v_at_root(struct api_check *check, const void *in,
                                                                                const size_t *counts, const size_t *displs, void *out,
                                                                                size_t n, enum comm_type type)
{
    struct dense dense;
    bool in_place = out == COMM_IN_PLACE;
    size_t rank = (size_t)engine_rank(check->c);

    need_counts(check, "counts", counts);
    open_dense(check, &dense);
    struct layout l = measure(check, &dense, 0, "counts", counts, displs);
    if (check->result == COMM_OK)
        api_need(check, in_place || n == counts[rank], "n", (long long)n, "counts[root], as on every other rank its own");
    size_t all = bytes_to_end(check, &l, type),
           own = check->result == COMM_OK ? api_bytes_of(check, "counts[rank]", type, counts[rank], 1) : 0;
    api_need_buffer(check, "in", in, all);
    api_need_buffer(check, in_place ? "in" : "out", in_place ? in : out, own);
    if (!in_place)
        api_need_apart(check, in, all, out, own);
    if (check->result != COMM_OK)
        return close_dense(check, &dense, check->result);
    struct engine_call call = {.collective = COLLECTIVE_SCATTER_V,
                               .type = type,
                               .root = (int32_t)rank,
                               .in = in,
                               .out = out,
                               .n = counts[rank],
                               .counts = l.counts,
                               .displs = l.displs,
                               .read = api_range(in, all),
                               .write = api_range(out, in_place ? 0 : own)};
    if (in_place) /* the root's own block stays where it is */
        call.out = own ? (char *)(uintptr_t)in + l.displs[rank] * data_type_bytes(type) : NULL;
    return close_dense(check, &dense, engine_issue(check->c, &call, check->req));
}

enum comm_result comm_scatter_v(struct comm_communicator *c, const void *in, const size_t *counts, const size_t *displs, void *out,
                                size_t n, enum comm_type type, int32_t root, struct comm_request *req)
{
    struct api_check check;

    if (BASE_LIKELY(engine_repeat_v(c, in, out, n, call_what(type, 0), call_where(COLLECTIVE_SCATTER_V, 0, root),
                                    &(struct engine_vectors){counts, displs, NULL, NULL}, req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_SCATTER_V, req) != COMM_OK)
        return check.result;
    api_need_type(&check, type);
    api_need_rank(&check, "root", root);
    if (check.result == COMM_OK && engine_rank(c) == root)
        return scatter_v_at_root(&check, in, counts, displs, out, n, type);
    api_need(&check, out != COMM_IN_PLACE, "out", -1, "a buffer: only the root may pass COMM_IN_PLACE");
    size_t bytes = api_bytes(&check, type, n, 1);
    api_need_buffer(&check, "out", out, bytes);
    if (check.result != COMM_OK)
        return check.result;
    return engine_issue(
        c,
        &(struct engine_call){
            .collective = COLLECTIVE_SCATTER_V, .type = type, .root = root, .out = out, .n = n, .write = api_range(out, bytes)},
        req);
}

/* ------------------------------------------------------------------------------------------------------------ between all pairs */
enum comm_result comm_alltoall_v(struct comm_communicator *c, const void *in, const size_t *in_counts, const size_t *in_displs, void *out,
                                 const size_t *out_counts, const size_t *out_displs, enum comm_type type, struct comm_request *req)
{
    struct api_check check;
    struct dense dense;

    if (BASE_LIKELY(engine_repeat_v(c, in, out, ENGINE_AS_COUNTED, call_what(type, 0), call_where(COLLECTIVE_ALLTOALL_V, 0, 0),
                                    &(struct engine_vectors){out_counts, out_displs, in_counts, in_displs}, req)))
        return COMM_OK;
    if (api_begin(&check, c, COLLECTIVE_ALLTOALL_V, req) != COMM_OK)
        return check.result;
    bool in_place = in == COMM_IN_PLACE;
    size_t rank = (size_t)engine_rank(c);
    api_need_type(&check, type);
    need_counts(&check, "out_counts", out_counts);
    if (!in_place)
        need_counts(&check, "in_counts", in_counts);
    open_dense(&check, &dense);
    struct layout to = measure(&check, &dense, 0, "out_counts", out_counts, out_displs), from = to;
    if (!in_place)
        from = measure(&check, &dense, 1, "in_counts", in_counts, in_displs);
    if (check.result == COMM_OK)
        api_need(&check, from.counts[rank] == to.counts[rank], "in_counts[rank]", (long long)from.counts[rank], "out_counts[rank]");
    size_t in_bytes = bytes_to_end(&check, &from, type), out_bytes = bytes_to_end(&check, &to, type);
    api_need_buffer(&check, in_place ? "out" : "in", in_place ? out : in, in_bytes);
    api_need_buffer(&check, "out", out, out_bytes);
    if (!in_place)
        api_need_apart(&check, in, in_bytes, out, out_bytes);
    if (check.result != COMM_OK)
        return close_dense(&check, &dense, check.result);
    struct engine_call call = {.collective = COLLECTIVE_ALLTOALL_V,
                               .type = type,
                               .in = in_place ? out : in,
                               .out = out,
                               .n = to.longest,
                               .counts = to.counts,
                               .displs = to.displs,
                               .in_counts = in_place ? NULL : from.counts,
                               .in_displs = in_place ? NULL : from.displs};
    call.read = api_range(call.in, in_bytes);
    call.write = api_range(out, out_bytes);
    return close_dense(&check, &dense, engine_issue(c, &call, req));
}
