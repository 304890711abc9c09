/* Groups and plans: recorders, which are communicators that start nothing, and what they end as. */
#include "core.h"

#include <sched.h>

static PyTypeObject *recorder_type;
PyTypeObject *plan_type;

struct plan {
    PyObject ob_base;
    struct comm_plan *plan; /* NULL: freed */
    int users;              /* threads inside a start */
    struct communicator *comm;
    PyObject *recorded; /* what its buffers are kept alive by */
};

PyObject *plan_recorded(PyObject *plan)
{
    return ((struct plan *)plan)->recorded;
}

PyObject *recorder_bind(PyObject *module, PyObject *type)
{
    (void)module;
    Py_INCREF(type);
    recorder_type = (PyTypeObject *)type;
    Py_RETURN_NONE;
}

static PyObject *recorder_wrap(struct comm_communicator *c, struct communicator *parent, int records)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(recorder_type, Py_tp_alloc);
    struct communicator *self = (struct communicator *)allocate(recorder_type, 0);
    PyObject *recorded = PyList_New(0);
    if (!self || !recorded)
        return NULL;
    self->c = c;
    self->rank = parent->rank;
    self->size = parent->size;
    self->fd = -1;
    self->pid = parent->pid;
    self->records = records;
    self->recorded = recorded;
    self->parent = (PyObject *)parent;
    Py_INCREF((PyObject *)parent);
    return (PyObject *)self;
}

typedef enum comm_result begin_fn(struct comm_communicator *c, struct comm_communicator **recorder);

static PyObject *begin(PyObject *object, const char *operation, begin_fn *fn, int records)
{
    struct comm_communicator *c = communicator_of(object, operation), *recorder = NULL;
    enum comm_result result;
    if (!c)
        return NULL;
    WITHOUT_GIL(result = fn(c, &recorder));
    return result == COMM_OK ? recorder_wrap(recorder, (struct communicator *)object, records) : raise_result(result, c, operation);
}

PyObject *group_begin(PyObject *module, PyObject *comm)
{
    (void)module;
    return begin(comm, "group", comm_group_begin, RECORDS_GROUP);
}

PyObject *plan_begin(PyObject *module, PyObject *comm)
{
    (void)module;
    return begin(comm, "plan", comm_plan_begin, RECORDS_PLAN);
}

/* The end consumes the recorder in any case. */
static struct comm_communicator *take(struct communicator *self, PyObject **recorded)
{
    struct comm_communicator *c = self->c;
    if (inside_refuses("end"))
        return NULL;
    if (!c || !self->recorded) {
        raise_closed("recorder");
        return NULL;
    }
    *recorded = self->recorded;
    Py_INCREF(*recorded);
    self->c = NULL;
    return c;
}

static PyObject *end_group(struct communicator *self)
{
    PyObject *recorded;
    struct communicator *parent = (struct communicator *)self->parent;
    struct comm_communicator *c = take(self, &recorded);
    struct request *r = c ? request_new("group", parent) : NULL;
    enum comm_result result;
    if (!r)
        return NULL;
    r->keep = recorded;
    WITHOUT_GIL(result = comm_group_end(c, parent->recorded ? NULL : &r->request));
    if (result == COMM_OK)
        return request_started(r);
    Py_DECREF(r);
    return raise_result(result, parent->c, "group");
}

static PyObject *end_plan(struct communicator *self)
{
    PyObject *recorded;
    struct communicator *parent = (struct communicator *)self->parent;
    struct comm_communicator *c = take(self, &recorded);
    enum comm_result result;
    if (!c)
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(plan_type, Py_tp_alloc);
    struct plan *plan = (struct plan *)allocate(plan_type, 0);
    if (!plan)
        return NULL;
    plan->recorded = recorded;
    plan->comm = parent;
    Py_INCREF((PyObject *)parent);
    WITHOUT_GIL(result = comm_plan_end(c, &plan->plan));
    if (result == COMM_OK)
        return (PyObject *)plan;
    Py_DECREF(plan);
    return raise_result(result, parent->c, "plan");
}

/* The request of a group (None inside a plan), or the plan. */
PyObject *recorder_end(PyObject *module, PyObject *object)
{
    struct communicator *self = (struct communicator *)object;
    (void)module;
    if (!PyObject_TypeCheck(object, communicator_type))
        return raise_argument("end", "expected a recorder, got %R", (PyObject *)Py_TYPE(object));
    return self->records == RECORDS_PLAN ? end_plan(self) : end_group(self);
}

static PyObject *plan_start(PyObject *object, PyObject *unused)
{
    struct plan *self = (struct plan *)object;
    enum comm_result result;
    (void)unused;
    if (inside_refuses("start"))
        return NULL;
    if (!self->plan)
        return raise_closed("plan");
    struct request *r = request_new("plan", self->comm);
    if (!r)
        return NULL;
    r->keep = object;
    Py_INCREF(object);
    struct comm_plan *plan = self->plan;
    ++self->users;
    WITHOUT_GIL(result = comm_plan_start(plan, &r->request));
    --self->users;
    if (result == COMM_OK)
        return request_started(r);
    Py_DECREF(r);
    return raise_result(result, self->comm->c, "plan");
}

/* Starts of other threads return first: they do not wait for what they have started. */
static PyObject *plan_free(PyObject *object, PyObject *unused)
{
    struct plan *self = (struct plan *)object;
    struct comm_plan *plan = self->plan;
    (void)unused;
    if (inside_refuses("free"))
        return NULL;
    self->plan = NULL;
    while (self->users && !communicator_forked(self->comm))
        WITHOUT_GIL(sched_yield());
    WITHOUT_GIL(comm_plan_free(plan));
    Py_RETURN_NONE;
}

static void plan_dealloc(PyObject *object)
{
    struct plan *self = (struct plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (!inside_postpone(object, sizeof *self)) {
        WITHOUT_GIL(comm_plan_free(self->plan));
        Py_CLEAR(self->recorded);
        Py_CLEAR(self->comm);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *plan_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *plan_exit(PyObject *self, PyObject *args)
{
    (void)args;
    return plan_free(self, NULL);
}

static PyMethodDef methods[] = {
    {"start", plan_start, METH_NOARGS,
     "start($self)\n--\n\nStarts all recorded operations: comm_plan_start.\n\nReturns the request, which completes when all are complete."},
    {"free", plan_free, METH_NOARGS, "free($self)\n--\n\nFrees the plan: comm_plan_free. A start that is running finishes first."},
    {"__enter__", plan_enter, METH_NOARGS, NULL},
    {"__exit__", plan_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Recorded operations that can be started many times. It keeps their buffers; their contents are read at each start."},
    {0, NULL}};

PyType_Spec plan_spec = {"commstream._core.Plan", sizeof(struct plan), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
