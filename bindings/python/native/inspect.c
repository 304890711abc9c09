/* What the library tells: versions, options, descriptions, predictions. */
#include "records.h"

enum { TEXT_BYTES = 16384 };

static PyObject *version(PyObject *module, PyObject *unused)
{
    uint32_t v = comm_version();
    (void)module, (void)unused;
    return Py_BuildValue("iii", (int)(v >> 16), (int)(v >> 8 & 255), (int)(v & 255));
}

static PyObject *result_name(PyObject *module, PyObject *args)
{
    int result;
    (void)module;
    return PyArg_ParseTuple(args, "i:result_name", &result) ? PyUnicode_FromString(comm_result_name((enum comm_result)result)) : NULL;
}

static PyObject *result_text(PyObject *module, PyObject *args)
{
    int result;
    (void)module;
    return PyArg_ParseTuple(args, "i:result_text", &result) ? PyUnicode_FromString(comm_result_text((enum comm_result)result)) : NULL;
}

static PyObject *type_size(PyObject *module, PyObject *args)
{
    int type;
    (void)module;
    return PyArg_ParseTuple(args, "i:type_size", &type) ? PyLong_FromSize_t(comm_type_size((enum comm_type)type)) : NULL;
}

/* A list of dictionaries, one for each index that the library knows. */
#define DESCRIBE_ALL(name, type, fields)                                                                                                   \
    static PyObject *name(PyObject *module, PyObject *unused)                                                                              \
    {                                                                                                                                      \
        PyObject *list = PyList_New(0);                                                                                                    \
        type info = {.size = sizeof info};                                                                                                 \
        (void)module, (void)unused;                                                                                                        \
        for (size_t i = 0; list && comm_##name(i, &info) == COMM_OK; ++i) {                                                                \
            PyObject *dict = record_dict(&info, fields);                                                                                   \
            if (!dict || PyList_Append(list, dict))                                                                                        \
                Py_CLEAR(list);                                                                                                            \
            Py_XDECREF(dict);                                                                                                              \
            info = (type){.size = sizeof info};                                                                                            \
        }                                                                                                                                  \
        return list;                                                                                                                       \
    }
DESCRIBE_ALL(describe_backend, struct comm_backend_info, backend_fields)
DESCRIBE_ALL(describe_option, struct comm_option_info, option_fields)
DESCRIBE_ALL(describe_algorithm, struct comm_algorithm_info, algorithm_fields)

static PyObject *describe(PyObject *module, PyObject *comm)
{
    struct comm_communicator *c = communicator_of(comm, "describe");
    struct comm_info info = {.size = sizeof info};
    (void)module;
    if (!c)
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_describe(c, &info));
    return result == COMM_OK ? record_dict(&info, info_fields) : raise_result(result, c, "describe");
}

static PyObject *describe_peer(PyObject *module, PyObject *args)
{
    PyObject *comm;
    int peer;
    struct comm_peer_info info = {.size = sizeof info};
    (void)module;
    if (!PyArg_ParseTuple(args, "Oi:describe_peer", &comm, &peer))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "describe_peer");
    if (!c)
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_describe_peer(c, peer, &info));
    return result == COMM_OK ? record_dict(&info, peer_fields) : raise_result(result, c, "describe_peer");
}

static PyObject *describe_request(PyObject *module, PyObject *args)
{
    PyObject *request;
    struct comm_request_info info = {.size = sizeof info};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!:describe_request", request_type, &request) || inside_refuses("describe_request"))
        return NULL;
    struct request *r = (struct request *)request;
    enum comm_result result;
    WITHOUT_GIL(result = comm_describe_request(r->request, &info));
    return result == COMM_OK ? record_dict(&info, request_fields) : raise_result(result, NULL, r->operation);
}

static PyObject *statistics(PyObject *module, PyObject *comm)
{
    struct comm_communicator *c = communicator_of(comm, "statistics");
    struct comm_stats stats = {.size = sizeof stats};
    (void)module;
    if (!c)
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_statistics(c, &stats));
    return result == COMM_OK ? record_dict(&stats, stats_fields) : raise_result(result, c, "statistics");
}

static PyObject *error_detail(PyObject *module, PyObject *comm)
{
    struct comm_communicator *c = communicator_of(comm, "error_detail");
    (void)module;
    return c ? error_fields(c) : NULL;
}

static PyObject *trace_dump(PyObject *module, PyObject *args)
{
    PyObject *comm, *path;
    enum comm_result result = COMM_OK;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO&:trace_dump", &comm, PyUnicode_FSConverter, &path))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "trace_dump");
    const char *name = c ? PyBytes_AsString(path) : NULL;
    if (name)
        WITHOUT_GIL(result = comm_trace_dump(c, name));
    Py_DECREF(path);
    if (!name)
        return NULL;
    if (result != COMM_OK)
        return raise_result(result, c, "trace_dump");
    Py_RETURN_NONE;
}

static PyObject *describe_machine(PyObject *module, PyObject *comm)
{
    char text[TEXT_BYTES];
    struct comm_communicator *c = communicator_of(comm, "describe_machine");
    (void)module;
    if (!c)
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_describe_machine(c, text, sizeof text));
    return result == COMM_OK ? read_text(text) : raise_result(result, c, "describe_machine");
}

/* (communicator, collective, n, type, op, root, ranks, ...) */
static bool read_call(PyObject *args, const char *format, struct comm_communicator **c, struct comm_call *call, const char **algorithm,
                      const char **machine)
{
    PyObject *comm;
    Py_ssize_t n;
    int type;
    *call = (struct comm_call){.size = sizeof *call};
    if (!PyArg_ParseTuple(args, format, &comm, &call->collective, &n, &type, &call->op, &call->root, &call->ranks, algorithm, machine))
        return false;
    call->n = (size_t)n;
    call->type = (enum comm_type)type;
    *c = communicator_of(comm, "predict");
    return *c != NULL;
}

static PyObject *explain(PyObject *module, PyObject *args)
{
    char text[TEXT_BYTES];
    struct comm_communicator *c;
    struct comm_call call;
    const char *algorithm, *machine;
    (void)module;
    if (!read_call(args, "OsniIiizz:explain", &c, &call, &algorithm, &machine))
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_explain(c, &call, text, sizeof text));
    return result == COMM_OK ? read_text(text) : raise_result(result, c, "explain");
}

static PyObject *predict(PyObject *module, PyObject *args)
{
    int64_t ns;
    struct comm_communicator *c;
    struct comm_call call;
    const char *algorithm, *machine;
    (void)module;
    if (!read_call(args, "OsniIiizz:predict", &c, &call, &algorithm, &machine))
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_predict(c, &call, algorithm, machine, &ns));
    return result == COMM_OK ? PyFloat_FromDouble((double)ns * 1e-9) : raise_result(result, c, "predict");
}

PyMethodDef inspect_methods[] = {{"version", version, METH_NOARGS, NULL},
                                 {"result_name", result_name, METH_VARARGS, NULL},
                                 {"type_size", type_size, METH_VARARGS, NULL},
                                 {"result_text", result_text, METH_VARARGS, NULL},
                                 {"describe_backends", describe_backend, METH_NOARGS, NULL},
                                 {"describe_options", describe_option, METH_NOARGS, NULL},
                                 {"describe_algorithms", describe_algorithm, METH_NOARGS, NULL},
                                 {"describe", describe, METH_O, NULL},
                                 {"describe_peer", describe_peer, METH_VARARGS, NULL},
                                 {"describe_request", describe_request, METH_VARARGS, NULL},
                                 {"statistics", statistics, METH_O, NULL},
                                 {"error_detail", error_detail, METH_O, NULL},
                                 {"trace_dump", trace_dump, METH_VARARGS, NULL},
                                 {"describe_machine", describe_machine, METH_O, NULL},
                                 {"explain", explain, METH_VARARGS, NULL},
                                 {"predict", predict, METH_VARARGS, NULL},
                                 {NULL, NULL, 0, NULL}};
