/* What makes a communicator, a window or memory of all ranks: each call returns a request. commstream.Communicator gives them their face.
 */
#include "communicator_make.h"

#include <string.h>

struct making {
    struct comm_communicator *c;
    struct request *r;
};

static bool making_begin(struct making *m, PyObject *self, const char *operation, enum outcome outcome)
{
    m->c = communicator_of(self, NULL);
    m->r = m->c ? request_new(operation, (struct communicator *)self) : NULL;
    if (!m->r)
        return false;
    m->r->outcome = outcome;
    if (outcome == MAKES_COMMUNICATOR || outcome == MAKES_MESH)
        m->r->keep = Py_XNewRef(((struct communicator *)self)->hooks);
    return true;
}

static PyObject *making_end(struct making *m, enum comm_result result)
{
    if (result == COMM_OK)
        return request_started(m->r);
    raise_result(result, m->c, m->r->operation);
    if (m->r->outcome == MAKES_MESH)
        PyMem_Free(m->r->out.mesh);
    Py_DECREF(m->r);
    return NULL;
}

/* What is refused here is refused in the library too: so it has its place in the queue, and the other ranks are told. */
static void refuse(struct comm_communicator *c, const char *operation)
{
    struct comm_request req;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_BEGIN_ALLOW_THREADS;
    if (strcmp(operation, "dup") == 0)
        (void)!comm_dup(c, NULL, NULL, &req);
    else if (strcmp(operation, "window") == 0)
        (void)!comm_window_create(c, 0, NULL, NULL, &req);
    else if (strcmp(operation, "mem_alloc_symmetric") == 0)
        (void)!comm_mem_alloc_symmetric(c, 0, NULL, &req);
    else
        (void)!comm_split(c, 0, 0, NULL, &req);
    Py_END_ALLOW_THREADS;
    PyErr_Restore(type, value, trace);
}

/* _refuse(operation): the call's arguments were refused in Python. */
PyObject *communicator_refuse(PyObject *self, PyObject *operation)
{
    struct comm_communicator *c = communicator_of(self, NULL);
    const char *name = c ? PyUnicode_AsUTF8AndSize(operation, NULL) : NULL;
    if (!name)
        return NULL;
    refuse(c, name);
    Py_RETURN_NONE;
}

PyObject *communicator_split(PyObject *self, PyObject *args)
{
    int color, key;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "ii:split", &color, &key) || !making_begin(&m, self, "split", MAKES_COMMUNICATOR))
        return NULL;
    WITHOUT_GIL(result = comm_split(m.c, color, key, &m.r->out.comm, &m.r->request));
    return making_end(&m, result);
}

PyObject *communicator_split_place(PyObject *self, PyObject *args)
{
    int place;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "i:split_place", &place) || !making_begin(&m, self, "split_place", MAKES_COMMUNICATOR))
        return NULL;
    WITHOUT_GIL(result = comm_split_place(m.c, (enum comm_place)place, &m.r->out.comm, &m.r->request));
    return making_end(&m, result);
}

/* A sequence as an array of int32_t that the caller frees. */
static int32_t *read_ranks(PyObject *object, const char *operation, const char *name, size_t *count)
{
    PyObject *list = PySequence_List(object);
    if (!list)
        return NULL;
    *count = (size_t)PyList_Size(list);
    int32_t *ranks = PyMem_Malloc((*count + 1) * sizeof *ranks);
    for (size_t i = 0; ranks && i < *count; ++i) {
        int64_t value = 0;
        bool ok = read_int64(PyList_GetItem(list, (Py_ssize_t)i), operation, name, INT32_MIN, INT32_MAX, &value);
        ranks[i] = (int32_t)value;
        if (!ok) {
            PyMem_Free(ranks);
            ranks = NULL;
        }
    }
    if (!ranks && !PyErr_Occurred())
        PyErr_NoMemory();
    Py_DECREF(list);
    return ranks;
}

PyObject *communicator_subset(PyObject *self, PyObject *args)
{
    PyObject *list;
    unsigned tag;
    size_t count;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "OI:subset", &list, &tag))
        return NULL;
    int32_t *ranks = read_ranks(list, "subset", "ranks", &count);
    if (!ranks || !making_begin(&m, self, "subset", MAKES_COMMUNICATOR)) {
        PyMem_Free(ranks);
        return NULL;
    }
    WITHOUT_GIL(result = comm_subset(m.c, ranks, count, tag, &m.r->out.comm, &m.r->request));
    PyMem_Free(ranks);
    return making_end(&m, result);
}

PyObject *communicator_split_mesh(PyObject *self, PyObject *args)
{
    PyObject *list;
    size_t axes;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "O:split_mesh", &list))
        return NULL;
    if (!making_begin(&m, self, "split_mesh", MAKES_MESH))
        return NULL;
    int32_t *shape = read_ranks(list, "split_mesh", "shape", &axes);
    if (!shape) {
        refuse(m.c, "split_mesh");
        Py_DECREF(m.r);
        return NULL;
    }
    m.r->axes = (int32_t)axes;
    m.r->out.mesh = PyMem_Calloc(axes + 1, sizeof *m.r->out.mesh);
    WITHOUT_GIL(result = m.r->out.mesh ? comm_split_mesh(m.c, shape, axes, m.r->out.mesh, &m.r->request) : COMM_ERR_MEMORY);
    PyMem_Free(shape);
    return making_end(&m, result);
}

PyObject *communicator_dup(PyObject *self, PyObject *args)
{
    struct comm_options o = {.size = sizeof o};
    int order;
    long long timeout_ns;
    unsigned long long stream;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "ziiLKz:dup", &o.name, &o.priority, &order, &timeout_ns, &stream, &o.options) ||
        !making_begin(&m, self, "dup", MAKES_COMMUNICATOR))
        return NULL;
    o.order = (enum comm_order)order;
    o.operation_timeout_ns = timeout_ns;
    o.stream = (struct CUstream_st *)(uintptr_t)stream;
    WITHOUT_GIL(result = comm_dup(m.c, &o, &m.r->out.comm, &m.r->request));
    return making_end(&m, result);
}

PyObject *communicator_shrink(PyObject *self, PyObject *unused)
{
    struct making m;
    enum comm_result result;
    (void)unused;
    if (!making_begin(&m, self, "shrink", MAKES_COMMUNICATOR))
        return NULL;
    WITHOUT_GIL(result = comm_shrink(m.c, &m.r->out.comm, &m.r->request));
    return making_end(&m, result);
}

PyObject *communicator_agree(PyObject *self, PyObject *args)
{
    unsigned long long given = 0;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "K:agree", &given) || !making_begin(&m, self, "agree", MAKES_FLAGS))
        return NULL;
    m.r->out.flags = given;
    WITHOUT_GIL(result = comm_agree(m.c, &m.r->out.flags, &m.r->request));
    return making_end(&m, result);
}

PyObject *communicator_window(PyObject *self, PyObject *args)
{
    struct comm_window_options o = {.size = sizeof o};
    Py_ssize_t bytes;
    PyObject *base;
    int placement;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "nOiI:window", &bytes, &base, &placement, &o.signals) || !making_begin(&m, self, "window", MAKES_WINDOW))
        return NULL;
    struct buffer *b = &m.r->buffers[0];
    if (base != Py_None && !buffer_get(b, base, "window", "buffer", true, COMM_BYTE)) {
        refuse(m.c, "window");
        Py_DECREF(m.r);
        return NULL;
    }
    if (base != Py_None) { /* the window keeps the view, so that the memory stays where it is */
        m.r->keep = b->view.obj ? PyMemoryView_FromObject(base) : base;
        if (!b->view.obj)
            Py_INCREF(base);
        o.base = b->data;
        bytes = (Py_ssize_t)b->bytes;
    }
    o.placement = (enum comm_placement)placement;
    WITHOUT_GIL(result = comm_window_create(m.c, (size_t)bytes, &o, &m.r->out.window, &m.r->request));
    return making_end(&m, result);
}

PyObject *communicator_memory(PyObject *self, PyObject *args)
{
    Py_ssize_t bytes;
    struct making m;
    enum comm_result result;
    if (!PyArg_ParseTuple(args, "n:mem_alloc_symmetric", &bytes) || !making_begin(&m, self, "mem_alloc_symmetric", MAKES_MEMORY))
        return NULL;
    m.r->out.memory.bytes = (size_t)bytes;
    WITHOUT_GIL(result = comm_mem_alloc_symmetric(m.c, (size_t)bytes, &m.r->out.memory.data, &m.r->request));
    return making_end(&m, result);
}
