/* Collectives whose blocks have one length. Without an output the result replaces the input, where the input and the output have one
 * length. */
#include "call.h"

enum { IN = 0, OUT = 1 };
static const struct parameter with_op[] = {{"input", SLOT_INPUT}, {"output", SLOT_OUTPUT}, {"op", SLOT_OP}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter with_both[] = {{"input", SLOT_INPUT}, {"output", SLOT_OUTPUT}, {"op", SLOT_OP},
                                             {"root", SLOT_ROOT},   {"type", SLOT_TYPE},     {NULL, 0}};
static const struct parameter with_root[] = {
    {"input", SLOT_INPUT}, {"output", SLOT_OUTPUT}, {"root", SLOT_ROOT}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter with_neither[] = {{"input", SLOT_INPUT}, {"output", SLOT_OUTPUT}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter of_broadcast[] = {{"buffer", SLOT_OUTPUT}, {"root", SLOT_ROOT}, {"type", SLOT_TYPE}, {NULL, 0}};
static const struct parameter nothing[] = {{NULL, 0}};

/* n from the buffer `at`, which has `blocks` blocks. */
static bool block_length(struct call *k, int at, int blocks, const char *name)
{
    size_t count = k->r->buffers[at].count, parts = blocks == BLOCKS ? (size_t)k->comm->size : 1;
    k->n = count / parts;
    if (count % parts)
        raise_argument(k->row->name, "%s has %zu elements; expected a multiple of %zu, the number of ranks", name, count, parts);
    return count % parts == 0;
}

static bool take_value(struct call *k, PyObject *object)
{
    Py_INCREF(object);
    k->r->value = object;
    return true;
}

/* One buffer is both: the argument `slot`. In the in-place scatter it is the input. */
static bool take_in_place(struct call *k, enum slot slot, const char *name)
{
    const struct row *row = k->row;
    bool reads = row->in_on_root_only;
    if (!k->slots[slot]) {
        raise_argument(row->name, "%s is None; in place one buffer is both", name);
        return false;
    }
    int blocks = row->in_blocks > row->out_blocks ? row->in_blocks : row->out_blocks;
    if (!call_output(k, OUT, slot, name) || !block_length(k, OUT, blocks, name))
        return false;
    void *data = k->r->buffers[OUT].data;
    k->in = reads ? data : COMM_IN_PLACE;
    k->out = reads ? COMM_IN_PLACE : data;
    return take_value(k, k->slots[slot]);
}

static bool same_length(struct call *k, size_t parts_out)
{
    size_t expected = k->n * parts_out, count = k->r->buffers[OUT].count;
    if (count == expected)
        return true;
    raise_argument(k->row->name, "output has %zu elements; expected %zu, since input has %zu on %d ranks", count, expected,
                   k->r->buffers[IN].count, (int)k->comm->size);
    return false;
}

/* Both buffers, or the one that this rank needs. */
static bool take_buffers(struct call *k)
{
    const struct row *row = k->row;
    bool needs_in = !row->in_on_root_only || k->on_root, needs_out = !row->out_on_root_only || k->on_root;
    if ((needs_in && !k->slots[SLOT_INPUT]) || (needs_out && !k->slots[SLOT_OUTPUT])) {
        raise_argument(row->name, "%s is None; this rank needs one", needs_in && !k->slots[SLOT_INPUT] ? "input" : "output");
        return false;
    }
    if (needs_in && (!call_input(k, IN, SLOT_INPUT, "input") || !block_length(k, IN, row->in_blocks, "input")))
        return false;
    if (!needs_out) {
        k->in = k->r->buffers[IN].data;
        return true;
    }
    if (!call_output(k, OUT, SLOT_OUTPUT, "output"))
        return false;
    k->in = k->r->buffers[IN].data;
    k->out = k->r->buffers[OUT].data;
    take_value(k, k->slots[SLOT_OUTPUT]);
    if (!needs_in)
        return block_length(k, OUT, row->out_blocks, "output");
    return call_same_type(k, IN, OUT) && same_length(k, row->out_blocks == BLOCKS ? (size_t)k->comm->size : 1);
}

static bool prepare(struct call *k)
{
    const struct row *row = k->row;
    PyObject *input = k->slots[SLOT_INPUT], *output = k->slots[SLOT_OUTPUT];
    bool writes = !row->out_on_root_only || k->on_root;
    if (output == in_place && row->in_on_root_only)
        return take_in_place(k, SLOT_INPUT, "input");
    if (input == in_place && !row->in_on_root_only)
        return take_in_place(k, SLOT_OUTPUT, "output");
    if (!output && row->in_blocks == row->out_blocks && writes)
        return take_in_place(k, SLOT_INPUT, "input");
    return take_buffers(k);
}

static bool prepare_broadcast(struct call *k)
{
    bool ok = k->on_root ? call_input(k, IN, SLOT_OUTPUT, "buffer") : call_output(k, IN, SLOT_OUTPUT, "buffer");
    k->out = k->r->buffers[IN].data;
    k->n = k->r->buffers[IN].count;
    return ok && take_value(k, k->slots[SLOT_OUTPUT]);
}

/* None on the root: it has nothing to send. */
static bool prepare_bytes(struct call *k)
{
    struct request *r = k->r;
    k->said = COMM_BYTE;
    r->outcome = MAKES_LENGTH;
    if (!k->slots[SLOT_OUTPUT] && k->on_root) {
        r->out.length = COMM_ROOT_FAILED;
        return true;
    }
    if (!k->slots[SLOT_OUTPUT]) {
        raise_argument(k->row->name, "buffer is None; only the root may have nothing");
        return false;
    }
    if (!(k->on_root ? call_input(k, IN, SLOT_OUTPUT, "buffer") : call_output(k, IN, SLOT_OUTPUT, "buffer")))
        return false;
    k->out = r->buffers[IN].data;
    r->out.length = r->buffers[IN].bytes;
    return true;
}

static enum comm_result issue_barrier(const struct call *k, struct comm_request *req)
{
    return comm_barrier(k->c, req);
}

static enum comm_result issue_broadcast(const struct call *k, struct comm_request *req)
{
    return comm_broadcast(k->c, k->out, k->n, k->type, k->root, req);
}

static enum comm_result issue_bytes(const struct call *k, struct comm_request *req)
{
    return comm_broadcast_bytes(k->c, k->out, &k->r->out.length, k->root, req);
}

static enum comm_result issue_reduce(const struct call *k, struct comm_request *req)
{
    return comm_reduce(k->c, k->in, k->out, k->n, k->type, k->op, k->root, req);
}

#define ISSUE_OP(name)                                                                                                                     \
    static enum comm_result issue_##name(const struct call *k, struct comm_request *req)                                                   \
    {                                                                                                                                      \
        return comm_##name(k->c, k->in, k->out, k->n, k->type, k->op, req);                                                                \
    }
#define ISSUE_ROOT(name)                                                                                                                   \
    static enum comm_result issue_##name(const struct call *k, struct comm_request *req)                                                   \
    {                                                                                                                                      \
        return comm_##name(k->c, k->in, k->out, k->n, k->type, k->root, req);                                                              \
    }
#define ISSUE_PLAIN(name)                                                                                                                  \
    static enum comm_result issue_##name(const struct call *k, struct comm_request *req)                                                   \
    {                                                                                                                                      \
        return comm_##name(k->c, k->in, k->out, k->n, k->type, req);                                                                       \
    }
ISSUE_OP(allreduce)
ISSUE_OP(scan)
ISSUE_OP(exscan)
ISSUE_OP(reduce_scatter)
ISSUE_ROOT(gather)
ISSUE_ROOT(scatter)
ISSUE_PLAIN(allgather)
ISSUE_PLAIN(alltoall)

static const struct row row_barrier = {"barrier", nothing, 0, NULL, issue_barrier, 0, 0, false, false, false};
static const struct row row_broadcast = {"broadcast", of_broadcast, 1,    prepare_broadcast, issue_broadcast, BLOCK, BLOCK,
                                         false,       false,        false};
static const struct row row_broadcast_bytes = {
    "broadcast_bytes", of_broadcast, 0, prepare_bytes, issue_bytes, BLOCK, BLOCK, false, false, false};
static const struct row row_reduce = {"reduce", with_both, 1, prepare, issue_reduce, BLOCK, BLOCK, false, true, false};
static const struct row row_allreduce = {"allreduce", with_op, 1, prepare, issue_allreduce, BLOCK, BLOCK, false, false, false};
static const struct row row_scan = {"scan", with_op, 1, prepare, issue_scan, BLOCK, BLOCK, false, false, false};
static const struct row row_exscan = {"exscan", with_op, 1, prepare, issue_exscan, BLOCK, BLOCK, false, false, false};
static const struct row row_reduce_scatter = {"reduce_scatter", with_op, 1,     prepare, issue_reduce_scatter,
                                              BLOCKS,           BLOCK,   false, false,   false};
static const struct row row_gather = {"gather", with_root, 1, prepare, issue_gather, BLOCK, BLOCKS, false, true, false};
static const struct row row_scatter = {"scatter", with_root, 0, prepare, issue_scatter, BLOCKS, BLOCK, true, false, false};
static const struct row row_allgather = {"allgather", with_neither, 2, prepare, issue_allgather, BLOCK, BLOCKS, false, false, false};
static const struct row row_alltoall = {"alltoall", with_neither, 1, prepare, issue_alltoall, BLOCKS, BLOCKS, false, false, false};
METHOD(barrier)
METHOD(broadcast)
METHOD(broadcast_bytes)
METHOD(reduce)
METHOD(allreduce)
METHOD(scan)
METHOD(exscan)
METHOD(reduce_scatter)
METHOD(gather)
METHOD(scatter)
METHOD(allgather)
METHOD(alltoall)

#define RETURNS "\n\nReturns the request; its result is the output."

PyMethodDef collective_methods[] = {
    METHOD_ROW(barrier, "barrier($self)\n--\n\nCompletes when every rank has called it: comm_barrier.\n\nReturns the request."),
    METHOD_ROW(broadcast, "broadcast($self, buffer, root=0, type=None)\n--\n\nCopies the root's buffer into that of every other rank: "
                          "comm_broadcast." RETURNS),
    METHOD_ROW(broadcast_bytes, "broadcast_bytes($self, buffer, root=0)\n--\n\nBroadcasts a length and that many bytes, for receivers that "
                                "do not know the length: comm_broadcast_bytes.\n\nThe root passes its data, or None if it could not make "
                                "it; other ranks pass room. Returns the request; its result is the length."),
    METHOD_ROW(reduce, "reduce($self, input, output=None, op=1, root=0, type=None)\n--\n\nCombines the inputs of all ranks on the root: "
                       "comm_reduce.\n\nWithout an output the root's result replaces its input." RETURNS),
    METHOD_ROW(allreduce, "allreduce($self, input, output=None, op=1, type=None)\n--\n\nCombines the inputs of all ranks, on every rank: "
                          "comm_allreduce.\n\nWithout an output the result replaces the input." RETURNS),
    METHOD_ROW(scan, "scan($self, input, output=None, op=1, type=None)\n--\n\nCombines the inputs of this rank and all lower ones: "
                     "comm_scan.\n\nWithout an output the result replaces the input." RETURNS),
    METHOD_ROW(exscan, "exscan($self, input, output=None, op=1, type=None)\n--\n\nCombines the inputs of all lower ranks: comm_exscan."
                       "\n\nWithout an output the result replaces the input." RETURNS),
    METHOD_ROW(reduce_scatter, "reduce_scatter($self, input, output=None, op=1, type=None)\n--\n\nCombines the inputs of all ranks, and "
                               "gives each rank its block: comm_reduce_scatter.\n\nWith input=IN_PLACE the result replaces this rank's "
                               "block of the output, which has all blocks." RETURNS),
    METHOD_ROW(gather, "gather($self, input, output=None, root=0, type=None)\n--\n\nCollects a block of each rank on the root: "
                       "comm_gather.\n\nOnly the root needs an output. With input=IN_PLACE its block is in the output." RETURNS),
    METHOD_ROW(scatter, "scatter($self, input=None, output=None, root=0, type=None)\n--\n\nGives each rank its block of the root's input: "
                        "comm_scatter.\n\nOnly the root needs an input. With output=IN_PLACE its block stays there." RETURNS),
    METHOD_ROW(allgather, "allgather($self, input, output, type=None)\n--\n\nCollects a block of each rank on every rank: comm_allgather."
                          "\n\nWith input=IN_PLACE this rank's block is in the output." RETURNS),
    METHOD_ROW(alltoall, "alltoall($self, input, output=None, type=None)\n--\n\nExchanges blocks between all pairs: comm_alltoall."
                         "\n\nWithout an output the blocks received replace those sent." RETURNS),
    {NULL, NULL, 0, NULL}};
