/*
 * Requests. One that may be running is in a list that owns it, so that what it uses stays alive whoever forgets it. Each new operation
 * looks at the two that have been in the list longest, and drops what is complete and only the list still owns: the list grows no longer
 * than the queues of the library. A request whose memory the backend still holds after an error (COMM_INFO_BUFFERS_HELD) stays in the list
 * for good.
 */
#include "core.h"

#include <sched.h>

PyTypeObject *request_type;
static struct request *head, *tail;
static Py_ssize_t listed;

static void list_add(struct request *r)
{
    r->next = NULL;
    r->previous = tail;
    *(tail ? &tail->next : &head) = r;
    tail = r;
    r->listed = true;
    ++listed;
    Py_INCREF((PyObject *)r);
}

static void list_take(struct request *r)
{
    *(r->previous ? &r->previous->next : &head) = r->next;
    *(r->next ? &r->next->previous : &tail) = r->previous;
    r->listed = false;
    --listed;
    Py_DECREF(r);
}

Py_ssize_t request_count(void)
{
    return listed;
}

struct request *request_new(const char *operation, struct communicator *comm)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(request_type, Py_tp_alloc);
    struct request *r = (struct request *)allocate(request_type, 0);
    if (r) {
        r->operation = operation;
        r->comm = comm;
        Py_XINCREF((PyObject *)comm);
    }
    return r;
}

static void drop_buffers(struct request *r)
{
    for (int i = 0; i < BUFFERS; ++i)
        buffer_drop(&r->buffers[i]);
    Py_CLEAR(r->keep);
}

static bool buffers_held(struct request *r)
{
    struct comm_request_info info = {.size = sizeof info};
    enum comm_result result;
    WITHOUT_GIL(result = comm_describe_request(r->request, &info));
    return result == COMM_OK && (info.flags & COMM_INFO_BUFFERS_HELD);
}

static PyObject *take_mesh(struct request *r)
{
    PyObject *list = PyList_New(r->axes);
    for (int32_t i = 0; list && i < r->axes; ++i) {
        PyObject *c = communicator_wrap(r->out.mesh[i], r->keep);
        if (!c)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, i, c);
    }
    return list;
}

/* If one axis failed, the communicators of the others are nobody's. */
static void drop_mesh(struct request *r, enum comm_result result)
{
    for (int32_t i = 0; result < 0 && i < r->axes; ++i)
        WITHOUT_GIL((void)comm_close(r->out.mesh[i], 0));
    PyMem_Free(r->out.mesh);
}

static PyObject *take_outcome(struct request *r)
{
    switch (r->outcome) {
    case MAKES_STATUS:
        return PyObject_CallFunction(status_type, "iIK", (int)r->out.status.peer, (unsigned)r->out.status.tag,
                                     (unsigned long long)r->out.status.bytes);
    case MAKES_LENGTH:
        return PyLong_FromSize_t(r->out.length);
    case MAKES_FLAGS:
        return PyLong_FromUnsignedLongLong(r->out.flags);
    case MAKES_COMMUNICATOR:
        return communicator_wrap(r->out.comm, r->keep);
    case MAKES_MESH:
        return take_mesh(r);
    case MAKES_WINDOW:
        return window_wrap(r->out.window, r->comm, r->keep);
    case MAKES_MEMORY:
        return memory_wrap(r->out.memory.data, r->out.memory.bytes, r->comm);
    default:
        Py_RETURN_NONE;
    }
}

static void save_error(struct request *r)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(r->error);
    r->error = value;
    Py_XDECREF(type);
    Py_XDECREF(trace);
}

/* An operator of Python that raised has spoilt the result. `keep` is the operator, or what was recorded for a group or plan. */
static bool operator_failed(PyObject *keep)
{
    PyObject *recorded = keep && Py_TYPE(keep) == plan_type ? plan_recorded(keep) : keep;
    if (recorded && Py_TYPE(recorded) == operator_type) {
        PyObject *error = PyObject_GetAttrString(recorded, "error");
        if (error && error != Py_None)
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
    }
    Py_ssize_t count = recorded && PyList_Check(recorded) ? PyList_Size(recorded) : 0;
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); ++i) {
        PyObject *item = PyList_GetItem(recorded, i);
        if (PyObject_TypeCheck(item, request_type))
            (void)operator_failed(((struct request *)item)->keep);
    }
    return PyErr_Occurred() != NULL;
}

static int completing;

/* Python's code runs in here: callbacks then wait for its end. */
bool request_completing(void)
{
    return completing > 0;
}

/* The first time that an operation is seen complete. */
static void complete(struct request *r, enum comm_result result)
{
    r->busy = true;
    ++completing;
    bool held = result < 0 && r->listed && buffers_held(r);
    if (result < 0)
        raise_result(result, r->comm ? r->comm->c : NULL, r->operation);
    else if (!operator_failed(r->keep) && r->outcome != MAKES_NOTHING) {
        Py_XDECREF(r->value);
        r->value = take_outcome(r);
    }
    if (PyErr_Occurred())
        save_error(r);
    if (r->outcome == MAKES_MESH)
        drop_mesh(r, result);
    if (--completing == 0)
        notify_later();
    r->busy = false;
    r->done = true;
    if (held)
        return;
    drop_buffers(r);
    if (r->listed)
        list_take(r);
}

/* A wait may fail before the operation ends, when another thread closes the communicator: the operation then still uses its buffers. */
static bool still_running(struct request *r, enum comm_result result)
{
    enum comm_result now = COMM_OK;
    if (result < 0 && !r->done)
        WITHOUT_GIL(now = comm_test(r->request));
    return now == COMM_PENDING;
}

/* True, or False if it is not complete; or the exception. The caller owns a reference to r. */
PyObject *request_finish(struct request *r, enum comm_result result)
{
    if (still_running(r, result))
        return raise_result(result, r->comm ? r->comm->c : NULL, r->operation);
    while (r->busy && !(r->comm && communicator_forked(r->comm))) /* on another thread */
        WITHOUT_GIL(sched_yield());
    if (!r->done && result != COMM_PENDING)
        complete(r, result);
    notify_run();
    if (!r->done)
        Py_RETURN_FALSE;
    if (!r->error)
        Py_RETURN_TRUE;
    PyErr_SetObject((PyObject *)Py_TYPE(r->error), r->error);
    return NULL;
}

/* Nobody has this request any more: sync() reports its error. Who cancelled it knows. */
static void keep_lost(struct request *r, enum comm_result result)
{
    if (r->error && result != COMM_ERR_CANCELLED && r->comm && r->comm->c && !r->comm->lost)
        r->comm->lost = Py_NewRef(r->error);
}

static void sweep(Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count && head; ++i) {
        struct request *r = head;
        enum comm_result result = COMM_PENDING;
        Py_INCREF((PyObject *)r);
        if (Py_REFCNT((PyObject *)r) == 2 && !r->done && !r->busy)
            WITHOUT_GIL(result = comm_test(r->request));
        if (result != COMM_PENDING && !r->done && !r->busy) {
            complete(r, result);
            keep_lost(r, result);
        }
        if (r->listed) { /* to the end */
            list_take(r);
            list_add(r);
        }
        Py_DECREF(r);
    }
}

void request_sweep_all(void)
{
    sweep(listed);
}

/* After the call that started it: the request, or None of a recorded call. */
PyObject *request_started(struct request *r)
{
    if (r->comm && r->comm->recorded) {
        int failed = PyList_Append(r->comm->recorded, (PyObject *)r);
        Py_CLEAR(r->comm); /* the recorder owns the request, and not the other way round */
        Py_DECREF(r);
        if (failed)
            return NULL;
        Py_RETURN_NONE;
    }
    list_add(r);
    sweep(2);
    return (PyObject *)r;
}

static enum comm_result wait_for(void *what, int64_t timeout_ns)
{
    return comm_wait(*(struct comm_request *)what, timeout_ns);
}

bool wait_sliced(wait_fn *fn, void *what, int64_t timeout_ns, enum comm_result *result)
{
    for (;;) {
        int64_t slice = timeout_ns < SLICE_NS ? timeout_ns : SLICE_NS;
        WITHOUT_GIL(*result = fn(what, slice));
        if (*result != COMM_PENDING)
            return true;
        if (PyErr_CheckSignals())
            return false;
        notify_run();
        if (timeout_ns <= SLICE_NS)
            return true;
        if (timeout_ns != COMM_FOREVER)
            timeout_ns -= slice;
    }
}

/* The arguments of a method that has `timeout` alone. */
bool parse_timeout(PyObject *args, PyObject *words, int64_t *ns)
{
    static char timeout_word[] = "timeout", *names[] = {timeout_word, NULL};
    PyObject *timeout = NULL;
    return PyArg_ParseTupleAndKeywords(args, words, "|O", names, &timeout) && read_timeout(timeout, ns);
}

PyObject *wait_answer(enum comm_result result, struct comm_communicator *c, const char *operation)
{
    notify_run();
    if (result == COMM_OK)
        Py_RETURN_TRUE;
    if (result == COMM_PENDING)
        Py_RETURN_FALSE;
    return raise_result(result, c, operation);
}

/* -------------------------------------------------------------------------------------------------------- methods */

static const struct parameter timeout_parameters[] = {{"timeout", 0}, {NULL, 0}};

static PyObject *wait_with(struct request *r, const char *name, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *slots[1] = {NULL};
    int64_t timeout_ns;
    if ((count || names) && !arguments_parse(name, timeout_parameters, 0, slots, args, count, names))
        return NULL;
    if (!read_timeout(slots[0], &timeout_ns) || inside_refuses(name))
        return NULL;
    enum comm_result result = COMM_OK;
    if (!r->done && !wait_sliced(wait_for, &r->request, timeout_ns, &result))
        return NULL;
    return request_finish(r, result);
}

static PyObject *request_wait(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return wait_with((struct request *)self, "wait", args, count, names);
}

static PyObject *value_of(struct request *r)
{
    PyObject *value = r->value ? r->value : Py_None;
    Py_INCREF(value);
    return value;
}

static PyObject *request_result(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    struct request *r = (struct request *)self;
    PyObject *done = wait_with(r, "result", args, count, names);
    bool timed_out = done == Py_False;
    if (!done)
        return NULL;
    Py_DECREF(done);
    return timed_out ? raise_result(COMM_PENDING, NULL, r->operation) : value_of(r);
}

static PyObject *request_test(PyObject *self, PyObject *unused)
{
    struct request *r = (struct request *)self;
    enum comm_result result = COMM_OK;
    (void)unused;
    if (inside_refuses("test"))
        return NULL;
    if (!r->done)
        WITHOUT_GIL(result = comm_test(r->request));
    return request_finish(r, result);
}

static PyObject *request_cancel(PyObject *self, PyObject *unused)
{
    struct request *r = (struct request *)self;
    enum comm_result result;
    (void)unused;
    if (inside_refuses("cancel"))
        return NULL;
    WITHOUT_GIL(result = comm_cancel(r->request));
    if (result == COMM_OK)
        Py_RETURN_TRUE;
    if (result == COMM_ERR_STATE)
        Py_RETURN_FALSE;
    return raise_result(result, NULL, "cancel");
}

/* True also after an error; never raises for the operation's. */
static PyObject *request_done(PyObject *self, void *unused)
{
    struct request *r = (struct request *)self;
    (void)unused;
    if (!r->done) {
        PyObject *answer = request_test(self, NULL);
        Py_XDECREF(answer);
        if (!answer && !r->done)
            return NULL;
        PyErr_Clear();
    }
    return PyBool_FromLong(r->done);
}

static PyObject *request_operation(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(((struct request *)self)->operation);
}

static PyObject *request_error(PyObject *self, void *unused)
{
    PyObject *error = ((struct request *)self)->error;
    (void)unused;
    error = error ? error : Py_None;
    Py_INCREF(error);
    return error;
}

static PyObject *request_callback(PyObject *self, PyObject *function)
{
    PyObject *args = PyTuple_Pack(2, self, function), *said = args ? notify(NULL, args) : NULL;
    Py_XDECREF(args);
    return said;
}

static PyObject *request_communicator(PyObject *self, void *unused)
{
    PyObject *comm = (PyObject *)((struct request *)self)->comm;
    (void)unused;
    comm = comm ? comm : Py_None;
    Py_INCREF(comm);
    return comm;
}

static PyObject *request_await(PyObject *self)
{
    PyObject *module = PyImport_ImportModule("commstream._aio");
    PyObject *iterator = module ? PyObject_CallMethod(module, "wait_for", "O", self) : NULL;
    Py_XDECREF(module);
    return iterator;
}

/* An error that was raised knows the frames that it passed, which know the request. */
static int request_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct request *r = (struct request *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->comm);
    Py_VISIT(r->keep);
    Py_VISIT(r->value);
    Py_VISIT(r->error);
    return 0;
}

static int request_clear(PyObject *self)
{
    struct request *r = (struct request *)self;
    Py_CLEAR(r->keep);
    Py_CLEAR(r->value);
    Py_CLEAR(r->error);
    return 0;
}

static void request_dealloc(PyObject *self)
{
    struct request *r = (struct request *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    drop_buffers(r);
    Py_CLEAR(r->comm);
    Py_CLEAR(r->value);
    Py_CLEAR(r->error);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"wait", (PyCFunction)(void (*)(void))request_wait, METH_FASTCALL | METH_KEYWORDS,
     "wait($self, timeout=None)\n--\n\nWaits until the operation is complete: comm_wait.\n\nReturns True when it is, and False if "
     "`timeout` "
     "seconds passed first; the operation then goes on. None waits until the operation completes or reaches its own deadline. Raises the "
     "operation's error."},
    {"result", (PyCFunction)(void (*)(void))request_result, METH_FASTCALL | METH_KEYWORDS,
     "result($self, timeout=None)\n--\n\nWaits, and returns what the operation made.\n\nA receive gives its status (peer, tag, bytes), a "
     "broadcast_bytes the length, a split the communicator, and the other operations their output buffer. Raises PendingError if `timeout` "
     "seconds passed first."},
    {"test", request_test, METH_NOARGS,
     "test($self)\n--\n\nMakes progress, and returns whether the operation is complete: comm_test. Raises the operation's error."},
    {"cancel", request_cancel, METH_NOARGS,
     "cancel($self)\n--\n\nCancels a receive, or a wait for a signal, that has not matched yet: comm_cancel.\n\nReturns False if there is "
     "nothing to cancel: the operation goes on."},
    {"add_done_callback", request_callback, METH_O,
     "add_done_callback($self, function, /)\n--\n\nHas function(request) called once when the operation is complete: comm_notify.\n\nIt is "
     "called by a thread of Python: at the end of its next call that makes progress, or between two steps of the main thread. If the "
     "operation "
     "is complete already, it is called at once."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {
    {"done", request_done, NULL, "Whether the operation is complete, with a result or an error. Makes progress.", NULL},
    {"error", request_error, NULL, "The exception that the operation failed with, or None.", NULL},
    {"operation", request_operation, NULL, "The name of the operation.", NULL},
    {"communicator", request_communicator, NULL, "The communicator of the operation.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, request_dealloc},
                              {Py_tp_traverse, request_traverse},
                              {Py_tp_clear, request_clear},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {Py_am_await, request_await},
                              {Py_tp_doc,
                               "An operation that was started. It can be waited for, tested, and awaited in asyncio.\n\nIt keeps "
                               "the buffers of the operation alive until the operation is complete, also if the request itself "
                               "is forgotten."},
                              {0, NULL}};

PyType_Spec request_spec = {"commstream._core.Request", sizeof(struct request), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
