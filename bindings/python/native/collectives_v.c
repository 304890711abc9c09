/* Collectives with a count and an offset for each rank. Offsets left out are dense, in rank order. */
#include "call.h"

enum { IN = 0, OUT = 1 };
static const struct parameter of_reduce_scatter[] = {{"input", SLOT_INPUT}, {"output", SLOT_OUTPUT}, {"counts", SLOT_COUNTS},
                                                     {"op", SLOT_OP},       {"type", SLOT_TYPE},     {NULL, 0}};
static const struct parameter of_root[] = {{"input", SLOT_INPUT},
                                           {"output", SLOT_OUTPUT},
                                           {"counts", SLOT_COUNTS},
                                           {"displs", SLOT_DISPLS},
                                           {"root", SLOT_ROOT},
                                           {"type", SLOT_TYPE},
                                           {NULL, 0}};
static const struct parameter of_allgather[] = {{"input", SLOT_INPUT},   {"output", SLOT_OUTPUT}, {"counts", SLOT_COUNTS},
                                                {"displs", SLOT_DISPLS}, {"type", SLOT_TYPE},     {NULL, 0}};
static const struct parameter of_alltoall[] = {
    {"input", SLOT_INPUT},         {"output", SLOT_OUTPUT},     {"in_counts", SLOT_IN_COUNTS}, {"out_counts", SLOT_COUNTS},
    {"in_displs", SLOT_IN_DISPLS}, {"out_displs", SLOT_DISPLS}, {"type", SLOT_TYPE},           {NULL, 0}};

/* How many elements a buffer of these blocks needs. */
static size_t extent(const size_t *counts, const size_t *displs, int32_t ranks)
{
    size_t sum = 0, most = 0;
    for (int32_t i = 0; i < ranks; ++i) {
        size_t end = (displs ? displs[i] : sum) + counts[i];
        sum += counts[i];
        most = end > most ? end : most;
    }
    return displs ? most : sum;
}

static bool blocks_fit(struct call *k, int at, const char *name, int counts, int displs)
{
    size_t need = extent(k->arrays[counts], k->arrays[displs], k->comm->size), have = k->r->buffers[at].count;
    if (have >= need)
        return true;
    raise_argument(k->row->name, "%s has %zu elements; expected %zu, by its counts and displs", name, have, need);
    return false;
}

static bool exactly(struct call *k, int at, const char *name, size_t need)
{
    size_t have = k->r->buffers[at].count;
    if (have == need)
        return true;
    raise_argument(k->row->name, "%s has %zu elements; expected %zu, this rank's count", name, have, need);
    return false;
}

static bool needs(struct call *k, enum slot slot, const char *name)
{
    if (k->slots[slot] && k->slots[slot] != Py_None)
        return true;
    raise_argument(k->row->name, "%s is None; this rank needs it", name);
    return false;
}

/* An input, or in place. */
static bool input(struct call *k)
{
    k->in = COMM_IN_PLACE;
    if (k->slots[SLOT_INPUT] == in_place)
        return true;
    if (!needs(k, SLOT_INPUT, "input") || !call_input(k, IN, SLOT_INPUT, "input"))
        return false;
    k->in = k->r->buffers[IN].data;
    k->n = k->r->buffers[IN].count;
    return true;
}

static bool output(struct call *k)
{
    k->out = COMM_IN_PLACE;
    if (k->slots[SLOT_OUTPUT] == in_place)
        return true;
    if (!needs(k, SLOT_OUTPUT, "output") || !call_output(k, OUT, SLOT_OUTPUT, "output"))
        return false;
    k->out = k->r->buffers[OUT].data;
    k->r->value = k->slots[SLOT_OUTPUT];
    Py_INCREF(k->r->value);
    return k->in == COMM_IN_PLACE || !k->in || call_same_type(k, IN, OUT);
}

static bool arrays(struct call *k)
{
    size_t size = (size_t)k->comm->size;
    return needs(k, SLOT_COUNTS, "counts") && call_array(k, ARRAY_COUNTS, SLOT_COUNTS, "counts", size) &&
           call_array(k, ARRAY_DISPLS, SLOT_DISPLS, "displs", size);
}

static bool prepare_reduce_scatter(struct call *k)
{
    if (!arrays(k) || !input(k) || !output(k))
        return false;
    size_t all = extent(k->arrays[ARRAY_COUNTS], NULL, k->comm->size), mine = k->arrays[ARRAY_COUNTS][k->comm->rank];
    return k->in == COMM_IN_PLACE ? exactly(k, OUT, "output", all) : exactly(k, IN, "input", all) && exactly(k, OUT, "output", mine);
}

static bool prepare_allgather(struct call *k)
{
    return arrays(k) && input(k) && output(k) && blocks_fit(k, OUT, "output", ARRAY_COUNTS, ARRAY_DISPLS) &&
           (k->in == COMM_IN_PLACE || exactly(k, IN, "input", k->arrays[ARRAY_COUNTS][k->comm->rank]));
}

/* In place only the root has no buffer. */
static bool has_buffer(struct call *k, const void *given, const char *name)
{
    if (k->on_root || given != COMM_IN_PLACE)
        return true;
    raise_argument(k->row->name, "%s is IN_PLACE; expected a buffer, since rank %d is not the root", name, k->comm->rank);
    return false;
}

/* In place the root's length is its count. */
static bool prepare_gather(struct call *k)
{
    if (!k->on_root)
        return input(k) && has_buffer(k, k->in, "input");
    if (!arrays(k) || !input(k) || !output(k))
        return false;
    if (k->in == COMM_IN_PLACE)
        k->n = k->arrays[ARRAY_COUNTS][k->comm->rank];
    return blocks_fit(k, OUT, "output", ARRAY_COUNTS, ARRAY_DISPLS);
}

static bool prepare_scatter(struct call *k)
{
    if (k->on_root && (!arrays(k) || !input(k) || !blocks_fit(k, IN, "input", ARRAY_COUNTS, ARRAY_DISPLS)))
        return false;
    if (!output(k) || !has_buffer(k, k->out, "output"))
        return false;
    k->n = k->out == COMM_IN_PLACE ? k->arrays[ARRAY_COUNTS][k->comm->rank] : k->r->buffers[OUT].count;
    return true;
}

static bool prepare_alltoall(struct call *k)
{
    size_t size = (size_t)k->comm->size;
    if (!arrays(k) || !input(k) || !output(k) || !blocks_fit(k, OUT, "output", ARRAY_COUNTS, ARRAY_DISPLS))
        return false;
    if (k->in == COMM_IN_PLACE)
        return true;
    return needs(k, SLOT_IN_COUNTS, "in_counts") && call_array(k, ARRAY_IN_COUNTS, SLOT_IN_COUNTS, "in_counts", size) &&
           call_array(k, ARRAY_IN_DISPLS, SLOT_IN_DISPLS, "in_displs", size) &&
           blocks_fit(k, IN, "input", ARRAY_IN_COUNTS, ARRAY_IN_DISPLS);
}

static enum comm_result issue_reduce_scatter_v(const struct call *k, struct comm_request *req)
{
    return comm_reduce_scatter_v(k->c, k->in, k->out, k->arrays[ARRAY_COUNTS], k->type, k->op, req);
}

static enum comm_result issue_gather_v(const struct call *k, struct comm_request *req)
{
    return comm_gather_v(k->c, k->in, k->n, k->out, k->arrays[ARRAY_COUNTS], k->arrays[ARRAY_DISPLS], k->type, k->root, req);
}

static enum comm_result issue_scatter_v(const struct call *k, struct comm_request *req)
{
    return comm_scatter_v(k->c, k->in, k->arrays[ARRAY_COUNTS], k->arrays[ARRAY_DISPLS], k->out, k->n, k->type, k->root, req);
}

static enum comm_result issue_allgather_v(const struct call *k, struct comm_request *req)
{
    return comm_allgather_v(k->c, k->in, k->out, k->arrays[ARRAY_COUNTS], k->arrays[ARRAY_DISPLS], k->type, req);
}

static enum comm_result issue_alltoall_v(const struct call *k, struct comm_request *req)
{
    return comm_alltoall_v(k->c, k->in, k->arrays[ARRAY_IN_COUNTS], k->arrays[ARRAY_IN_DISPLS], k->out, k->arrays[ARRAY_COUNTS],
                           k->arrays[ARRAY_DISPLS], k->type, req);
}

#define ROW(name, parameters, required, prepare)                                                                                           \
    static const struct row row_##name = {#name, parameters, required, prepare, issue_##name, 0, 0, false, false, false};                  \
    METHOD(name)
ROW(reduce_scatter_v, of_reduce_scatter, 3, prepare_reduce_scatter)
ROW(gather_v, of_root, 1, prepare_gather)
ROW(scatter_v, of_root, 0, prepare_scatter)
ROW(allgather_v, of_allgather, 3, prepare_allgather)
ROW(alltoall_v, of_alltoall, 2, prepare_alltoall)

#define COUNTS "\n\n`counts` has the elements of each rank's block, `displs` their offsets in elements. Returns the request."

PyMethodDef collective_v_methods[] = {
    METHOD_ROW(reduce_scatter_v, "reduce_scatter_v($self, input, output, counts, op=1, type=None)\n--\n\nAs reduce_scatter(), with a block "
                                 "size for each rank: comm_reduce_scatter_v." COUNTS),
    METHOD_ROW(gather_v,
               "gather_v($self, input, output=None, counts=None, displs=None, root=0, type=None)\n--\n\nAs gather(), with a count "
               "and an offset for each rank: comm_gather_v. Only the root needs output and counts." COUNTS),
    METHOD_ROW(scatter_v,
               "scatter_v($self, input=None, output=None, counts=None, displs=None, root=0, type=None)\n--\n\nAs scatter(), with "
               "a count and an offset for each rank: comm_scatter_v. Only the root needs input and counts." COUNTS),
    METHOD_ROW(allgather_v, "allgather_v($self, input, output, counts, displs=None, type=None)\n--\n\nAs allgather(), with a count and an "
                            "offset for each rank: comm_allgather_v." COUNTS),
    METHOD_ROW(alltoall_v, "alltoall_v($self, input, output, in_counts=None, out_counts=None, in_displs=None, out_displs=None, type=None)\n"
                           "--\n\nAs alltoall(), with a count and an offset for each block: comm_alltoall_v. With input=IN_PLACE the "
                           "counts of the input are not needed." COUNTS),
    {NULL, NULL, 0, NULL}};
