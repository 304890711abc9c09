/* Reduction operators: built in, written in Python, and pre-multiplied sums. The library calls the second on whichever thread makes
 * progress. */
#include "core.h"

#include <structmember.h>

PyTypeObject *operator_type;

struct operator
{
    PyObject ob_base;
    struct communicator *comm;
    PyObject *function, *name, *error;
    comm_op op;
    Py_ssize_t element_bytes;
};

bool read_operator(PyObject *object, const char *operation, comm_op *op, bool *custom)
{
    *custom = Py_TYPE(object) == operator_type;
    if (*custom) {
        *op = ((struct operator*)object)->op;
        if (!*op)
            raise_closed("operator");
        return *op != 0;
    }
    int64_t number;
    if (!read_number(object, operation, "op", "a commstream.Op, such as commstream.SUM, or an Operator", 0, UINT32_MAX, &number))
        return false;
    *op = (comm_op)number;
    return true;
}

bool operator_takes_bytes(PyObject *object)
{
    return ((struct operator*)object)->function != NULL;
}

/* The first error is kept: each request that uses the operator raises it. */
static void keep_error(struct operator* self)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (!self->error) {
        self->error = value;
        value = NULL;
    }
    Py_XDECREF(value);
    Py_XDECREF(type);
    Py_XDECREF(trace);
}

/* A view that the function kept must not be read later: the memory is the library's. An array that numpy made of it still can. */
static void end_view(PyObject *view)
{
    PyObject *said = view ? PyObject_CallMethod(view, "release", NULL) : NULL;
    if (!said)
        PyErr_Clear();
    Py_XDECREF(said);
    Py_XDECREF(view);
}

static void call_operator(void *inout, const void *in, size_t elements, void *arg)
{
    struct operator* self = arg;
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    inside_enter();
    Py_ssize_t bytes = (Py_ssize_t)elements * self->element_bytes;
    PyObject *left = PyMemoryView_FromMemory((char *)(uintptr_t)in, bytes, PyBUF_READ);
    PyObject *right = PyMemoryView_FromMemory(inout, bytes, PyBUF_WRITE);
    PyObject *said = left && right ? PyObject_CallFunctionObjArgs(self->function, right, left, NULL) : NULL;
    if (!said)
        keep_error(self);
    Py_XDECREF(said);
    end_view(left);
    end_view(right);
    inside_leave();
    PyGILState_Release(state);
}

/* function NULL: a pre-multiplied sum. */
static struct operator* make(PyObject *comm, PyObject *function, PyObject *name, Py_ssize_t bytes)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(operator_type, Py_tp_alloc);
    struct operator* self =(struct operator*) allocate(operator_type, 0);
    if (!self)
        return NULL;
    self->comm = (struct communicator *)comm;
    self->function = function;
    self->name = name;
    self->element_bytes = bytes;
    Py_INCREF(comm);
    Py_XINCREF(function);
    Py_INCREF(name);
    return self;
}

static PyObject *made(struct operator* self, enum comm_result result, struct comm_communicator *c, const char *operation)
{
    if (result == COMM_OK)
        return (PyObject *)self;
    raise_result(result, c, operation);
    Py_DECREF(self);
    return NULL;
}

/* operator_create(communicator, function, name, element_bytes, ordered) */
PyObject *operator_create(PyObject *module, PyObject *args)
{
    PyObject *comm, *function, *name;
    Py_ssize_t bytes;
    int ordered;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOUnp:operator", &comm, &function, &name, &bytes, &ordered))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "operator");
    struct operator* self = c ? make(comm, function, name, bytes) : NULL;
    if (!self)
        return NULL;
    struct comm_op_options options = {
        .size = sizeof options, .name = PyUnicode_AsUTF8AndSize(name, NULL), .element_bytes = (size_t)bytes, .ordered = ordered};
    enum comm_result result;
    WITHOUT_GIL(result = comm_op_create(c, call_operator, self, &options, &self->op));
    return made(self, result, c, "operator");
}

/* premul_sum(communicator, type, name, factor): factor is one element of the type, as bytes. */
PyObject *premul_sum_create(PyObject *module, PyObject *args)
{
    PyObject *comm, *name;
    const char *factor;
    Py_ssize_t bytes;
    int type;
    (void)module;
    if (!PyArg_ParseTuple(args, "OiUy#:premul_sum", &comm, &type, &name, &factor, &bytes))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "premul_sum");
    struct operator* self = c ? make(comm, NULL, name, bytes) : NULL;
    if (!self)
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_op_create_premul_sum(c, (enum comm_type)type, factor, &self->op));
    return made(self, result, c, "premul_sum");
}

static void give_back(struct operator* self)
{
    comm_op op = self->op;
    struct comm_communicator *c = self->comm ? self->comm->c : NULL;
    self->op = 0; /* first: its number may be that of another operator soon */
    if (op && c)
        WITHOUT_GIL(comm_op_free(c, op));
}

static PyObject *operator_free(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (inside_refuses("free"))
        return NULL;
    give_back((struct operator*)self);
    Py_RETURN_NONE;
}

static int operator_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct operator* self =(struct operator*) object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->comm);
    Py_VISIT(self->function);
    Py_VISIT(self->error);
    return 0;
}

/* The function stays: operations may run it until the operator is freed. */
static int operator_clear(PyObject *object)
{
    struct operator* self =(struct operator*) object;
    Py_CLEAR(self->error);
    return 0;
}

static void operator_dealloc(PyObject *object)
{
    struct operator* self =(struct operator*) object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (!inside_postpone(object, sizeof *self)) {
        give_back(self);
        Py_CLEAR(self->comm);
        Py_CLEAR(self->function);
        Py_CLEAR(self->name);
        Py_CLEAR(self->error);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"free", operator_free, METH_NOARGS,
                                 "free($self)\n--\n\nFrees the operator: comm_op_free. Operations that are running finish with it."},
                                {NULL, NULL, 0, NULL}};

static PyMemberDef members[] = {
    {"name", T_OBJECT, offsetof(struct operator, name), READONLY, "What identifies it: the same on all ranks."},
    {"error", T_OBJECT, offsetof(struct operator, error), READONLY, "What the function raised first, or None."},
    {"element_bytes", T_PYSSIZET, offsetof(struct operator, element_bytes), READONLY, "The size of an element."},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, operator_dealloc},
    {Py_tp_traverse, operator_traverse},
    {Py_tp_clear, operator_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, "A reduction operator of one's own. Communicator.operator() and Communicator.premul_sum() make one."},
    {0, NULL}};

PyType_Spec operator_spec = {"commstream._core.Operator", sizeof(struct operator), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
