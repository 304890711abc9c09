/* Messages between two ranks, and the one-sided calls of windows. */
#include "call.h"

static const struct parameter of_send[] = {{"buffer", SLOT_INPUT}, {"peer", SLOT_PEER}, {"tag", SLOT_TAG}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter of_recv[] = {{"buffer", SLOT_OUTPUT}, {"peer", SLOT_PEER}, {"tag", SLOT_TAG}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter of_put[] = {
    {"buffer", SLOT_INPUT}, {"peer", SLOT_PEER}, {"offset", SLOT_OFFSET}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter of_get[] = {
    {"buffer", SLOT_OUTPUT}, {"peer", SLOT_PEER}, {"offset", SLOT_OFFSET}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter of_accumulate[] = {{"buffer", SLOT_INPUT}, {"peer", SLOT_PEER}, {"offset", SLOT_OFFSET},
                                                 {"op", SLOT_OP},        {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter of_fetch[] = {
    {"buffer", SLOT_INPUT}, {"old", SLOT_OLD}, {"peer", SLOT_PEER}, {"offset", SLOT_OFFSET}, {"op", SLOT_OP},
    {"type", SLOT_TYPE},    {NULL, 0}};
static const struct parameter of_swap[] = {{"expected", SLOT_INPUT}, {"desired", SLOT_OUTPUT}, {"old", SLOT_OLD}, {"peer", SLOT_PEER},
                                           {"offset", SLOT_OFFSET},  {"type", SLOT_TYPE},      {NULL, 0}};
static const struct parameter of_signal[] = {{"peer", SLOT_PEER}, {"slot", SLOT_SLOT}, {"add", SLOT_VALUE}, {NULL, 0}};
static const struct parameter of_wait_signal[] = {{"slot", SLOT_SLOT}, {"at_least", SLOT_VALUE}, {NULL, 0}};
static const struct parameter of_flush[] = {{"peer", SLOT_PEER}, {NULL, 0}};
static const struct parameter nothing[] = {{NULL, 0}};

static bool input(struct call *k)
{
    if (!call_input(k, 0, SLOT_INPUT, "buffer"))
        return false;
    k->in = k->r->buffers[0].data;
    k->n = k->r->buffers[0].count;
    return true;
}

static bool output(struct call *k)
{
    if (!call_output(k, 0, SLOT_OUTPUT, "buffer"))
        return false;
    k->out = k->r->buffers[0].data;
    k->n = k->r->buffers[0].count;
    return true;
}

/* A recorded receive has no status: its request is never returned. */
static bool prepare_recv(struct call *k)
{
    if (!k->slots[SLOT_TAG])
        k->tag = COMM_ANY_TAG;
    k->r->outcome = k->comm->recorded ? MAKES_NOTHING : MAKES_STATUS;
    return output(k);
}

static bool prepare_get(struct call *k)
{
    k->r->value = k->slots[SLOT_OUTPUT];
    Py_INCREF(k->r->value);
    return output(k);
}

static bool old(struct call *k, int at)
{
    if (!call_output(k, at, SLOT_OLD, "old") || !call_same_type(k, 0, at))
        return false;
    k->old = k->r->buffers[at].data;
    k->r->value = k->slots[SLOT_OLD];
    Py_INCREF(k->r->value);
    if (k->r->buffers[at].count == k->r->buffers[0].count)
        return true;
    raise_argument(k->row->name, "old has %zu elements; expected %zu, as the buffer", k->r->buffers[at].count, k->r->buffers[0].count);
    return false;
}

static bool prepare_fetch(struct call *k)
{
    return input(k) && old(k, 1);
}

static bool prepare_swap(struct call *k)
{
    if (!call_input(k, 0, SLOT_INPUT, "expected") || !call_input(k, 1, SLOT_OUTPUT, "desired") || !call_same_type(k, 0, 1) || !old(k, 2))
        return false;
    k->in = k->r->buffers[0].data;
    k->out = k->r->buffers[1].data;
    if (k->r->buffers[0].count == 1 && k->r->buffers[1].count == 1)
        return true;
    raise_argument(k->row->name, "expected has %zu elements and desired %zu; each is one element", k->r->buffers[0].count,
                   k->r->buffers[1].count);
    return false;
}

static enum comm_result issue_send(const struct call *k, struct comm_request *req)
{
    return comm_send(k->c, k->in, k->n, k->type, k->peer, k->tag, req);
}

static enum comm_result issue_recv(const struct call *k, struct comm_request *req)
{
    struct comm_status *status = k->r->outcome == MAKES_STATUS ? &k->r->out.status : NULL;
    return comm_recv(k->c, k->out, k->n, k->type, k->peer, k->tag, status, req);
}

static enum comm_result issue_put(const struct call *k, struct comm_request *req)
{
    return comm_put(k->w, k->in, k->n, k->type, k->peer, k->offset, req);
}

static enum comm_result issue_get(const struct call *k, struct comm_request *req)
{
    return comm_get(k->w, k->out, k->n, k->type, k->peer, k->offset, req);
}

static enum comm_result issue_accumulate(const struct call *k, struct comm_request *req)
{
    return comm_accumulate(k->w, k->in, k->n, k->type, k->op, k->peer, k->offset, req);
}

static enum comm_result issue_fetch_op(const struct call *k, struct comm_request *req)
{
    return comm_fetch_op(k->w, k->in, k->old, k->n, k->type, k->op, k->peer, k->offset, req);
}

static enum comm_result issue_compare_swap(const struct call *k, struct comm_request *req)
{
    return comm_compare_swap(k->w, k->in, k->out, k->old, k->type, k->peer, k->offset, req);
}

static enum comm_result issue_signal(const struct call *k, struct comm_request *req)
{
    return comm_window_signal(k->w, k->peer, k->slot, k->value, req);
}

static enum comm_result issue_wait_signal(const struct call *k, struct comm_request *req)
{
    return comm_window_wait_signal(k->w, k->slot, k->value, req);
}

static enum comm_result issue_fence(const struct call *k, struct comm_request *req)
{
    return comm_window_fence(k->w, req);
}

static enum comm_result issue_flush(const struct call *k, struct comm_request *req)
{
    return comm_window_flush(k->w, k->peer, req);
}

#define ROW(name, parameters, required, prepare)                                                                                           \
    static const struct row row_##name = {#name, parameters, required, prepare, issue_##name, 0, 0, false, false, true};                   \
    METHOD(name)
ROW(send, of_send, 2, input)
ROW(recv, of_recv, 1, prepare_recv)
ROW(put, of_put, 2, input)
ROW(get, of_get, 2, prepare_get)
ROW(accumulate, of_accumulate, 2, input)
ROW(fetch_op, of_fetch, 3, prepare_fetch)
ROW(compare_swap, of_swap, 4, prepare_swap)
ROW(signal, of_signal, 1, NULL)
ROW(wait_signal, of_wait_signal, 0, NULL)
ROW(fence, nothing, 0, NULL)
ROW(flush, of_flush, 0, NULL)

PyMethodDef message_methods[] = {
    METHOD_ROW(send, "send($self, buffer, peer, tag=0, type=None)\n--\n\nSends the buffer to a rank: comm_send.\n\nReturns the request, "
                     "which completes when the buffer may be reused."),
    METHOD_ROW(recv, "recv($self, buffer, peer=-1, tag=4294967295, type=None)\n--\n\nReceives a message of up to the buffer's length: "
                     "comm_recv.\n\nWithout peer and tag it matches any. Returns the request; its result is a Status (peer, tag, bytes)."),
    {NULL, NULL, 0, NULL}};

PyMethodDef window_call_methods[] = {
    METHOD_ROW(put, "put($self, buffer, peer, offset=0, type=None)\n--\n\nWrites the buffer to a rank's part, at an offset in bytes: "
                    "comm_put.\n\nReturns the request, which completes when the buffer may be reused."),
    METHOD_ROW(get, "get($self, buffer, peer, offset=0, type=None)\n--\n\nReads elements of a rank's part into the buffer: comm_get."
                    "\n\nReturns the request; its result is the buffer."),
    METHOD_ROW(accumulate,
               "accumulate($self, buffer, peer, offset=0, op=1, type=None)\n--\n\nCombines the buffer with elements of a rank's "
               "part, and stores the result there: comm_accumulate.\n\nReturns the request."),
    METHOD_ROW(fetch_op, "fetch_op($self, buffer, old, peer, offset=0, op=1, type=None)\n--\n\nAs accumulate(), and fetches what was there "
                         "before into `old`: comm_fetch_op.\n\nReturns the request; its result is `old`."),
    METHOD_ROW(compare_swap, "compare_swap($self, expected, desired, old, peer, offset=0, type=None)\n--\n\nReplaces one element of a "
                             "rank's part if it has the expected value: comm_compare_swap.\n\nReturns the request; its result is `old`."),
    METHOD_ROW(signal, "signal($self, peer, slot=0, add=1)\n--\n\nAdds to a signal counter of a rank, after everything that was put there "
                       "before: comm_window_signal.\n\nReturns the request."),
    METHOD_ROW(wait_signal, "wait_signal($self, slot=0, at_least=1)\n--\n\nCompletes when a signal counter of this rank has reached a "
                            "value: comm_window_wait_signal.\n\nReturns the request."),
    METHOD_ROW(fence, "fence($self)\n--\n\nMakes everything that any rank did before visible to all ranks after; collective: "
                      "comm_window_fence.\n\nReturns the request."),
    METHOD_ROW(flush, "flush($self, peer=-1)\n--\n\nCompletes when everything that this rank did to a part, or to all, is done there: "
                      "comm_window_flush.\n\nReturns the request."),
    {NULL, NULL, 0, NULL}};
