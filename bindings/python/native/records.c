/* Structs that the library fills, as dictionaries: a table of fields for each, made from the struct itself. */
#include "records.h"

const struct field info_fields[] = {
#define INFO(name) FIELD(struct comm_info, name)
    INFO(backend),      INFO(launcher),    INFO(host),           INFO(name),         INFO(library),       INFO(slurm_job),
    INFO(rank),         INFO(ranks),       INFO(node),           INFO(nodes),        INFO(local_rank),    INFO(local_ranks),
    INFO(cpus),         INFO(homogeneous), INFO(device_buffers), INFO(stream_wait),  INFO(graph_capture), INFO(fixed_order),
    INFO(device_order), INFO(queue_max),   INFO(window),         INFO(inline_bytes), INFO(memory_bytes),  {NULL, 0, FIELD_TEXT}};

const struct field peer_fields[] = {
#define PEER(name) FIELD(struct comm_peer_info, name)
    PEER(node), PEER(local), PEER(host), PEER(wire), PEER(address), {NULL, 0, FIELD_TEXT}};

const struct field request_fields[] = {
#define REQUEST(name) FIELD(struct comm_request_info, name)
    {"result", offsetof(struct comm_request_info, result), FIELD_I32},
    REQUEST(flags),
    REQUEST(sequence),
    REQUEST(bytes),
    REQUEST(queued_ns),
    REQUEST(started_ns),
    REQUEST(completed_ns),
    REQUEST(algorithm),
    REQUEST(waited_for),
    {NULL, 0, FIELD_TEXT}};

const struct field backend_fields[] = {
#define BACKEND(name) FIELD(struct comm_backend_info, name)
    BACKEND(name),    BACKEND(version),     BACKEND(missing),        BACKEND(available),
    BACKEND(threads), BACKEND(fixed_order), BACKEND(device_buffers), {NULL, 0, FIELD_TEXT}};

const struct field option_fields[] = {
#define OPTION(name) FIELD(struct comm_option_info, name)
    OPTION(key),  OPTION(environment),      OPTION(type),   OPTION(default_text), OPTION(unit), OPTION(help),
    OPTION(also), OPTION(environment_only), OPTION(values), {NULL, 0, FIELD_TEXT}};

const struct field algorithm_fields[] = {
#define ALGORITHM(name) FIELD(struct comm_algorithm_info, name)
    ALGORITHM(ranks_min),  ALGORITHM(ranks_max), ALGORITHM(bounded), ALGORITHM(over_hosts),
    ALGORITHM(collective), ALGORITHM(name),      ALGORITHM(help),    {NULL, 0, FIELD_TEXT}};

const struct field stats_fields[] = {
#define STATS(name) FIELD(struct comm_stats, name)
    STATS(operations),       STATS(messages),    STATS(bytes_out),  STATS(bytes_in),
    STATS(queue_high_water), STATS(network_out), STATS(network_in), {NULL, 0, FIELD_TEXT}};

static PyObject *read_field(const void *record, const struct field *f)
{
    const void *at = (const char *)record + f->offset;
    switch (f->kind) {
    case FIELD_I32:
        return PyLong_FromLong(*(const int32_t *)at);
    case FIELD_U32:
        return PyLong_FromUnsignedLong(*(const uint32_t *)at);
    case FIELD_U64:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case FIELD_POINTER:
        return read_text(*(const char *const *)at);
    default:
        return read_text(at);
    }
}

PyObject *record_dict(const void *record, const struct field *fields)
{
    PyObject *dict = PyDict_New();
    for (const struct field *f = fields; dict && f->name; ++f) {
        PyObject *value = read_field(record, f);
        if (!value || PyDict_SetItemString(dict, f->name, value))
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}
