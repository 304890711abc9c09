/* Windows: checks the arguments. The text of a refusal names the argument, its value and what was expected. */
#include "api/api.h"

#define DECLINE(w, reason, req, ...) refused(engine_decline(engine_window_comm(w), reason, req, __VA_ARGS__), req)

/* Also gives the request the result. engine_decline returns ARGUMENT if the communicator no longer exists. */
static enum comm_result refused(enum comm_result r, struct comm_request *req)
{
    if (req)
        *req = timeline_refusal(r);
    return r;
}

/* COMM_OK, or why w cannot be used. */
static enum comm_result alive(const struct comm_window *w, struct comm_request *req)
{
    struct comm_communicator *c = w ? engine_window_comm(w) : NULL; /* once: another thread may close it meanwhile */
    enum comm_result r = c ? engine_alive(c) : w ? COMM_ERR_CLOSED : COMM_ERR_ARGUMENT;

    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r;
}

static void copy_options(struct api_check *check, struct comm_window_options *to, const struct comm_window_options *from)
{
    *to = (struct comm_window_options){.size = sizeof *to};
    if (!from)
        return;
    api_need(check, from->size >= sizeof *to, "options.size", (long long)from->size, "sizeof(struct comm_window_options)");
    if (check->result == COMM_OK && api_sets_unknown(from, sizeof *to))
        check->result =
            engine_refuse(check->c, check->collective, COMM_ERR_UNSUPPORTED, check->req,
                          "window_create: options.size=%zu; expected 0 in the fields that this library does not know", from->size);
    if (check->result == COMM_OK)
        *to = *from;
}

enum comm_result comm_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                    struct comm_window **w, struct comm_request *req)
{
    struct comm_window_options own;
    struct api_check check;

    if (api_begin(&check, c, COLLECTIVE_WINDOW, req) != COMM_OK)
        return check.result;
    check.name = "window_create";
    copy_options(&check, &own, options);
    api_need(&check, w != NULL, "w", 0, "where to put the window");
    api_need_fit(&check, bytes <= SIZE_MAX / 8, "bytes", bytes, "a length");
    api_need(&check, own.placement >= COMM_PLACEMENT_DEFAULT && own.placement <= COMM_PLACEMENT_INTERLEAVE, "options.placement",
             (long long)own.placement, "an enum comm_placement");
    api_need(&check, !own.base || own.placement == COMM_PLACEMENT_DEFAULT, "options.placement", (long long)own.placement,
             "COMM_PLACEMENT_DEFAULT, because base is given: pages of the caller's memory are not moved");
    if (check.result == COMM_OK && own.base && engine_has_devices(c))
        api_need(&check, engine_need_host(c, "window_create", "options.base", own.base, NULL) == COMM_OK, "options.base",
                 (long long)(intptr_t)own.base, "memory of the host: that is a device's");
    return check.result == COMM_OK ? engine_window_create(c, bytes, &own, w, req) : check.result;
}

enum comm_result comm_window_pointer(struct comm_window *w, int32_t peer, void **ptr, size_t *bytes)
{
    enum comm_result r = alive(w, NULL);
    size_t length;
    uint32_t signals;

    if (r != COMM_OK)
        return r;
    if (peer < 0 || peer >= engine_window_size(w))
        return DECLINE(w, COMM_ERR_ARGUMENT, NULL, "comm_window_pointer: peer=%d; expected a rank, 0 to %d", peer,
                       engine_window_size(w) - 1);
    if (!ptr)
        return DECLINE(w, COMM_ERR_ARGUMENT, NULL, "comm_window_pointer: ptr=0; expected room for the address");
    void *at = engine_window_part(w, peer, &length, &signals);
    if (length && engine_window_apart(w, peer))
        return DECLINE(w, COMM_ERR_UNSUPPORTED, NULL,
                       "comm_window_pointer: rank %d shares no memory of this window with this rank; expected comm_get, comm_put or an "
                       "atomic, which its owner does",
                       peer);
    *ptr = at;
    if (bytes)
        *bytes = length;
    return COMM_OK;
}

enum comm_result comm_window_fence(struct comm_window *w, struct comm_request *req)
{
    enum comm_result r = alive(w, req);

    return r == COMM_OK ? engine_window_fence(w, req) : r;
}

enum comm_result comm_window_flush(struct comm_window *w, int32_t peer, struct comm_request *req)
{
    enum comm_result r = alive(w, req);

    if (r != COMM_OK)
        return r;
    if (peer < COMM_ANY_PEER || peer >= engine_window_size(w))
        return DECLINE(w, COMM_ERR_ARGUMENT, req, "comm_window_flush: peer=%d; expected a rank, 0 to %d, or COMM_ANY_PEER", peer,
                       engine_window_size(w) - 1);
    return engine_one_sided(w, &(struct one_sided){.window = w, .kind = ONE_FLUSH, .peer = peer}, req);
}

/* ------------------------------------------------------------------------------------------------------------ access to a part */
/* Checks that all calls with a range share. one->element is 0 if the type is invalid. */
static enum comm_result check_range(const char *call, const struct one_sided *one, struct comm_request *req)
{
    struct comm_window *w = one->window;
    enum comm_result r = alive(w, req);
    size_t bytes, part;
    uint32_t signals;

    if (r != COMM_OK)
        return r;
    if (one->peer < 0 || one->peer >= engine_window_size(w))
        return DECLINE(w, COMM_ERR_ARGUMENT, req, "%s: peer=%d; expected a rank, 0 to %d", call, one->peer, engine_window_size(w) - 1);
    if (!one->element)
        return DECLINE(w, COMM_ERR_ARGUMENT, req, "%s: type=%d; expected an enum comm_type", call, (int)one->type);
    (void)engine_window_part(w, one->peer, &part, &signals);
    if (__builtin_mul_overflow(one->n, one->element, &bytes) || bytes > part || one->offset > part - bytes)
        return DECLINE(w, COMM_ERR_ARGUMENT, req,
                       "%s: offset=%zu and n=%zu of %zu bytes each; expected to end within the %zu bytes of rank %d", call, one->offset,
                       one->n, one->element, part, one->peer);
    return COMM_OK;
}

static enum comm_result check_buffer(const char *call, const char *name, const struct one_sided *one, const void *at,
                                     struct comm_request *req)
{
    if (one->n && (!at || at == COMM_IN_PLACE))
        return DECLINE(one->window, COMM_ERR_ARGUMENT, req, "%s: %s=%s; expected a buffer of %zu elements", call, name,
                       at ? "COMM_IN_PLACE" : "NULL", one->n);
    if (BASE_UNLIKELY(one->n && engine_has_devices(engine_window_comm(one->window))))
        return refused(engine_need_host(engine_window_comm(one->window), call, name, at, NULL), req);
    return COMM_OK;
}

/* Copies count bytes. */
static enum comm_result copy(const char *call, const char *name, struct one_sided *one, const void *at, struct comm_request *req)
{
    enum comm_result r = check_range(call, one, req);

    if (r == COMM_OK)
        r = check_buffer(call, name, one, at, req);
    if (r != COMM_OK)
        return r;
    one->n *= one->element;
    one->element = 1;
    return engine_one_sided(one->window, one, req);
}

enum comm_result comm_put(struct comm_window *w, const void *from, size_t n, enum comm_type type, int32_t peer, size_t offset,
                          struct comm_request *req)
{
    struct one_sided one = {
        .window = w, .kind = ONE_PUT, .peer = peer, .from = from, .n = n, .offset = offset, .element = data_type_bytes(type), .type = type};

    return copy("comm_put", "from", &one, from, req);
}

enum comm_result comm_get(struct comm_window *w, void *to, size_t n, enum comm_type type, int32_t peer, size_t offset,
                          struct comm_request *req)
{
    struct one_sided one = {
        .window = w, .kind = ONE_GET, .peer = peer, .to = to, .n = n, .offset = offset, .element = data_type_bytes(type), .type = type};

    return copy("comm_get", "to", &one, to, req);
}

static enum comm_result check_operator(const char *call, const struct one_sided *one, struct comm_request *req)
{
    const char *why = "an operator of your own cannot be applied to memory that others update";
    enum comm_result r = COMM_ERR_UNSUPPORTED;

    if (one->op == COMM_REPLACE || one->op == COMM_NOOP)
        return COMM_OK;
    if (one->op == COMM_AVG)
        why = "averages are not available here: the number of values is not known";
    else if (!(one->op & OPERATOR_USER))
        r = data_check(one->type, one->op, &why);
    return r == COMM_OK ? r
                        : DECLINE(one->window, r, req, "%s: type=%s(%d) op=%s(%u): %s", call, data_type_name(one->type), (int)one->type,
                                  data_op_name(one->op), one->op, why);
}

static enum comm_result update(const char *call, const struct one_sided *one, bool wants_old, struct comm_request *req)
{
    enum comm_result r = check_range(call, one, req);

    if (r == COMM_OK)
        r = check_operator(call, one, req);
    if (r == COMM_OK && one->op != COMM_NOOP)
        r = check_buffer(call, "from", one, one->from, req);
    if (r == COMM_OK && wants_old)
        r = check_buffer(call, "old", one, one->to, req);
    return r == COMM_OK ? engine_one_sided(one->window, one, req) : r;
}

enum comm_result comm_accumulate(struct comm_window *w, const void *from, size_t n, enum comm_type type, comm_op op, int32_t peer,
                                 size_t offset, struct comm_request *req)
{
    struct one_sided one = {.window = w,
                            .kind = ONE_UPDATE,
                            .peer = peer,
                            .from = op == COMM_NOOP ? NULL : from,
                            .n = n,
                            .offset = offset,
                            .element = data_type_bytes(type),
                            .type = type,
                            .op = op};

    return update("comm_accumulate", &one, false, req);
}

enum comm_result comm_fetch_op(struct comm_window *w, const void *from, void *old, size_t n, enum comm_type type, comm_op op, int32_t peer,
                               size_t offset, struct comm_request *req)
{
    struct one_sided one = {.window = w,
                            .kind = ONE_UPDATE,
                            .peer = peer,
                            .from = op == COMM_NOOP ? NULL : from,
                            .to = old,
                            .n = n,
                            .offset = offset,
                            .element = data_type_bytes(type),
                            .type = type,
                            .op = op};

    return update("comm_fetch_op", &one, true, req);
}

enum comm_result comm_compare_swap(struct comm_window *w, const void *expected, const void *desired, void *old, enum comm_type type,
                                   int32_t peer, size_t offset, struct comm_request *req)
{
    static const char call[] = "comm_compare_swap";
    struct one_sided one = {.window = w,
                            .kind = ONE_SWAP,
                            .peer = peer,
                            .from = desired,
                            .expected = expected,
                            .to = old,
                            .n = 1,
                            .offset = offset,
                            .element = data_type_bytes(type),
                            .type = type};
    enum comm_result r = check_range(call, &one, req);

    if (r == COMM_OK && type != COMM_BYTE && !(type >= COMM_I8 && type <= COMM_U64))
        r = DECLINE(w, COMM_ERR_UNSUPPORTED, req, "%s: type=%s(%d); expected an integer type: only equal bits are the same value", call,
                    data_type_name(type), (int)type);
    if (r == COMM_OK)
        r = check_buffer(call, "expected", &one, expected, req);
    if (r == COMM_OK)
        r = check_buffer(call, "desired", &one, desired, req);
    if (r == COMM_OK)
        r = check_buffer(call, "old", &one, old, req);
    return r == COMM_OK ? engine_one_sided(w, &one, req) : r;
}

/* ------------------------------------------------------------------------------------------------------------ signals */
static enum comm_result check_slot(const char *call, struct comm_window *w, int32_t peer, uint32_t slot, struct comm_request *req)
{
    enum comm_result r = alive(w, req);
    size_t bytes;
    uint32_t signals;

    if (r != COMM_OK)
        return r;
    if (peer < 0 || peer >= engine_window_size(w))
        return DECLINE(w, COMM_ERR_ARGUMENT, req, "%s: peer=%d; expected a rank, 0 to %d", call, peer, engine_window_size(w) - 1);
    (void)engine_window_part(w, peer, &bytes, &signals);
    if (slot >= signals)
        return DECLINE(w, COMM_ERR_ARGUMENT, req, "%s: slot=%u; expected less than the %u of rank %d (options.signals)", call, slot,
                       signals, peer);
    return COMM_OK;
}

enum comm_result comm_window_signal(struct comm_window *w, int32_t peer, uint32_t slot, uint64_t add, struct comm_request *req)
{
    enum comm_result r = check_slot("comm_window_signal", w, peer, slot, req);
    struct one_sided one = {.window = w, .kind = ONE_SIGNAL, .peer = peer, .slot = slot, .amount = add};

    return r == COMM_OK ? engine_one_sided(w, &one, req) : r;
}

enum comm_result comm_window_wait_signal(struct comm_window *w, uint32_t slot, uint64_t at_least, struct comm_request *req)
{
    int32_t own = w ? engine_window_rank(w) : 0;
    enum comm_result r = check_slot("comm_window_wait_signal", w, own, slot, req);
    struct one_sided one = {.window = w, .kind = ONE_WAIT, .peer = own, .slot = slot, .amount = at_least};

    return r == COMM_OK ? engine_one_sided(w, &one, req) : r;
}

enum comm_result comm_window_free(struct comm_window *w)
{
    return w ? engine_window_free(w) : COMM_OK;
}
