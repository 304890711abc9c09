/* Messages: checks the arguments of send, recv and probe. */
#include "api/api.h"

static enum comm_result check(struct comm_communicator *c, const char *call, const void *buf, size_t n, enum comm_type type, bool peer_ok,
                              bool tag_ok, int32_t peer, uint32_t tag, size_t *bytes, struct comm_request *req)
{
    enum comm_result r = engine_alive(c);
    size_t element = data_type_bytes(type);

    if (r != COMM_OK) {
        if (req)
            *req = timeline_refusal(r);
        return r;
    }
    if (!element)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "%s: type=%d; expected an enum comm_type", call, (int)type);
    if (__builtin_mul_overflow(n, element, bytes) || *bytes > SIZE_MAX / 8)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "%s: n=%zu; expected a length within the address space", call, n);
    if (!peer_ok)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "%s: peer=%d; expected a rank of the communicator, 0 to %d", call, peer,
                              engine_size(c) - 1);
    if (!tag_ok)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "%s: tag=%u; expected 0 to UINT32_MAX - 1", call, tag);
    if (*bytes && (!buf || buf == COMM_IN_PLACE))
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "%s: buf=%s; expected a buffer of %zu bytes", call, buf ? "COMM_IN_PLACE" : "NULL",
                              *bytes);
    return COMM_OK;
}

enum comm_result comm_send(struct comm_communicator *c, const void *buf, size_t n, enum comm_type type, int32_t peer, uint32_t tag,
                           struct comm_request *req)
{
    size_t bytes = 0;
    enum comm_result r = check(c, "send", buf, n, type, peer >= 0 && peer < engine_size(c), tag != COMM_ANY_TAG, peer, tag, &bytes, req);

    return r == COMM_OK ? engine_message(c, true, (void *)(uintptr_t)buf, bytes, peer, tag, NULL, req) : r;
}

enum comm_result comm_recv(struct comm_communicator *c, void *buf, size_t n, enum comm_type type, int32_t peer, uint32_t tag,
                           struct comm_status *status, struct comm_request *req)
{
    size_t bytes = 0;
    enum comm_result r = check(c, "recv", buf, n, type, peer >= COMM_ANY_PEER && peer < engine_size(c), true, peer, tag, &bytes, req);

    return r == COMM_OK ? engine_message(c, false, buf, bytes, peer, tag, status, req) : r;
}

enum comm_result comm_probe(struct comm_communicator *c, int32_t peer, uint32_t tag, int64_t timeout_ns, struct comm_status *status)
{
    enum comm_result r = engine_alive(c);

    if (r != COMM_OK)
        return r;
    if (peer < COMM_ANY_PEER || peer >= engine_size(c) || timeout_ns < 0)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "probe: peer=%d timeout_ns=%lld; expected a rank or COMM_ANY_PEER, and 0 or more",
                              peer, (long long)timeout_ns);
    return engine_probe(c, peer, tag, timeout_ns, status);
}
