/* Events, and what makes a queue or a CUDA stream wait. */
#include "core.h"

PyTypeObject *event_type;

struct event {
    PyObject ob_base;
    struct comm_event *event;  /* NULL: destroyed */
    struct comm_event *kept;   /* destroyed while it had users: freed with this object */
    int users;                 /* calls that run, and groups and plans that wait for it */
    struct communicator *comm; /* knows why a call was refused */
};

PyObject *event_create(PyObject *module, PyObject *comm)
{
    struct comm_communicator *c = communicator_of(comm, "event");
    struct comm_event *made;
    (void)module;
    if (!c)
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_event_create(c, &made));
    if (result != COMM_OK)
        return raise_result(result, c, "event");
    allocfunc allocate = (allocfunc)PyType_GetSlot(event_type, Py_tp_alloc);
    struct event *self = (struct event *)allocate(event_type, 0);
    if (!self)
        return NULL;
    self->event = made;
    self->comm = (struct communicator *)comm;
    Py_INCREF(comm);
    return (PyObject *)self;
}

static struct comm_event *event_of(PyObject *object, const char *operation)
{
    if (!PyObject_TypeCheck(object, event_type)) {
        raise_kind(operation, "what", object, "an Event or a Request");
        return NULL;
    }
    if (inside_refuses(operation))
        return NULL;
    struct comm_event *event = ((struct event *)object)->event;
    if (!event)
        raise_closed("event");
    return event;
}

/* Another thread may destroy the event meanwhile. */
#define USING(object, statement)                                                                                                           \
    do {                                                                                                                                   \
        ++((struct event *)object)->users;                                                                                                 \
        WITHOUT_GIL(statement);                                                                                                            \
        --((struct event *)object)->users;                                                                                                 \
    } while (0)

static struct comm_communicator *knower(PyObject *event)
{
    return ((struct event *)event)->comm->c;
}

static struct CUstream_st *stream_of(unsigned long long stream)
{
    return (struct CUstream_st *)(uintptr_t)stream;
}

static PyObject *answer(enum comm_result result, struct comm_communicator *c, const char *operation)
{
    PyObject *said = wait_answer(result, c, operation);
    Py_XDECREF(said);
    if (!said)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *event_record(PyObject *self, PyObject *comm)
{
    struct comm_event *event = event_of(self, "record");
    struct comm_communicator *c = event ? communicator_of(comm, "record") : NULL;
    enum comm_result result;
    if (!c)
        return NULL;
    USING(self, result = comm_event_record(event, c));
    return answer(result, c, "record");
}

static PyObject *event_record_stream(PyObject *self, PyObject *address)
{
    struct CUstream_st *stream;
    enum comm_result result;
    struct comm_event *event = read_stream(address, "record_stream", &stream) ? event_of(self, "record_stream") : NULL;
    if (!event)
        return NULL;
    USING(self, result = comm_event_record_stream(event, stream));
    return answer(result, knower(self), "record_stream");
}

static PyObject *event_reset(PyObject *self, PyObject *unused)
{
    struct comm_event *event = event_of(self, "reset");
    enum comm_result result;
    (void)unused;
    if (!event)
        return NULL;
    USING(self, result = comm_event_reset(event));
    return answer(result, knower(self), "reset");
}

static PyObject *event_set(PyObject *self, PyObject *unused)
{
    struct comm_event *event = event_of(self, "set");
    enum comm_result result;
    (void)unused;
    if (!event)
        return NULL;
    USING(self, result = comm_event_set(event));
    return answer(result, knower(self), "set");
}

static PyObject *event_query(PyObject *self, PyObject *unused)
{
    struct comm_event *event = event_of(self, "query");
    enum comm_result result;
    (void)unused;
    if (!event)
        return NULL;
    USING(self, result = comm_event_query(event));
    return wait_answer(result, knower(self), "query");
}

static enum comm_result wait_event(void *event, int64_t timeout_ns)
{
    return comm_event_sync(event, timeout_ns);
}

static PyObject *event_sync(PyObject *self, PyObject *args, PyObject *words)
{
    int64_t timeout_ns;
    enum comm_result result;
    struct comm_event *event = parse_timeout(args, words, &timeout_ns) ? event_of(self, "sync") : NULL;
    if (!event)
        return NULL;
    ++((struct event *)self)->users;
    bool waited = wait_sliced(wait_event, event, timeout_ns, &result);
    --((struct event *)self)->users;
    if (!waited)
        return NULL;
    return wait_answer(result, knower(self), "sync");
}

/* Whoever waits for set() learns that it will not come, as from comm_event_free(). */
static void abandon(struct event *e, struct comm_event *event)
{
    e->kept = event;
    if (knower((PyObject *)e))
        WITHOUT_GIL((void)!comm_event_record(event, knower((PyObject *)e)));
}

static PyObject *event_destroy(PyObject *self, PyObject *unused)
{
    struct event *e = (struct event *)self;
    struct comm_event *event = e->event;
    (void)unused;
    if (inside_refuses("destroy"))
        return NULL;
    e->event = NULL;
    if (e->users && event)
        abandon(e, event);
    else
        WITHOUT_GIL(comm_event_free(event));
    Py_RETURN_NONE;
}

static PyObject *event_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *event_exit(PyObject *self, PyObject *args)
{
    (void)args;
    return event_destroy(self, NULL);
}

static void event_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct event *e = (struct event *)self;
    if (!inside_postpone(self, sizeof *e)) {
        WITHOUT_GIL(comm_event_free(e->event ? e->event : e->kept));
        Py_CLEAR(e->comm);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"record", event_record, METH_O,
     "record($self, communicator, /)\n--\n\nStores the point after everything issued on the communicator so far: comm_event_record."},
    {"record_stream", event_record_stream, METH_O,
     "record_stream($self, stream, /)\n--\n\nStores the point after everything on a CUDA stream (its address) so far: "
     "comm_event_record_stream."},
    {"reset", event_reset, METH_NOARGS, "reset($self)\n--\n\nStores a point that only set() reaches: comm_event_reset."},
    {"set", event_set, METH_NOARGS, "set($self)\n--\n\nReaches the point of the last reset(): comm_event_set."},
    {"query", event_query, METH_NOARGS, "query($self)\n--\n\nReturns whether the point is reached: comm_event_query."},
    {"sync", METHOD_WORDS(event_sync),
     "sync($self, timeout=None)\n--\n\nWaits until the point is reached: comm_event_sync. Returns False if `timeout` seconds passed "
     "first."},
    {"destroy", event_destroy, METH_NOARGS,
     "destroy($self)\n--\n\nDestroys the event: comm_event_free. Plans that wait for it keep its point."},
    {"__enter__", event_enter, METH_NOARGS, NULL},
    {"__exit__", event_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, event_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A point that queues, streams and the host wait for. Communicator.event() makes one, whose point is reached."},
    {0, NULL}};

PyType_Spec event_spec = {"commstream._core.Event", sizeof(struct event), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

/* ------------------------------------------------------------------------------------------------------ who waits */

static void end_recording(PyObject *capsule)
{
    struct event *e = PyCapsule_GetPointer(capsule, NULL);
    --e->users;
    Py_DECREF((PyObject *)e);
}

/* What is recorded looks at the event at each start: so the recorder keeps it. */
static bool keep_event(struct communicator *comm, PyObject *event)
{
    PyObject *capsule = PyCapsule_New(event, NULL, end_recording);
    if (!capsule)
        return false;
    ++((struct event *)event)->users;
    Py_INCREF(event);
    int failed = PyList_Append(comm->recorded, capsule);
    Py_DECREF(capsule);
    return !failed;
}

PyObject *queue_wait_event(PyObject *module, PyObject *args)
{
    PyObject *comm, *object;
    enum comm_result result;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:queue_wait", &comm, &object))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "queue_wait");
    struct comm_event *event = c ? event_of(object, "queue_wait") : NULL;
    if (!event || (((struct communicator *)comm)->recorded && !keep_event((struct communicator *)comm, object)))
        return NULL;
    USING(object, result = comm_queue_wait_event(c, event));
    return answer(result, c, "queue_wait");
}

PyObject *queue_wait_request(PyObject *module, PyObject *args)
{
    PyObject *comm, *request;
    enum comm_result result;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!:queue_wait", &comm, request_type, &request))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "queue_wait");
    if (!c)
        return NULL;
    WITHOUT_GIL(result = comm_queue_wait_request(c, ((struct request *)request)->request));
    return answer(result, c, "queue_wait");
}

PyObject *queue_wait_stream(PyObject *module, PyObject *args)
{
    PyObject *comm;
    unsigned long long stream;
    enum comm_result result;
    (void)module;
    if (!PyArg_ParseTuple(args, "OK:queue_wait_stream", &comm, &stream))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "queue_wait_stream");
    if (!c)
        return NULL;
    WITHOUT_GIL(result = comm_queue_wait_stream(c, stream_of(stream)));
    return answer(result, c, "queue_wait_stream");
}

PyObject *stream_wait(PyObject *module, PyObject *args)
{
    unsigned long long stream;
    PyObject *object;
    enum comm_result result;
    (void)module;
    if (!PyArg_ParseTuple(args, "KO:stream_wait", &stream, &object) || inside_refuses("stream_wait"))
        return NULL;
    if (PyObject_TypeCheck(object, request_type)) {
        WITHOUT_GIL(result = comm_stream_wait_request(stream_of(stream), ((struct request *)object)->request));
        return answer(result, ((struct request *)object)->comm ? ((struct request *)object)->comm->c : NULL, "stream_wait");
    }
    struct comm_event *event = event_of(object, "stream_wait");
    if (!event)
        return NULL;
    USING(object, result = comm_stream_wait_event(stream_of(stream), event));
    return answer(result, knower(object), "stream_wait");
}

PyObject *stream_of_communicator(PyObject *module, PyObject *comm)
{
    struct CUstream_st *stream;
    enum comm_result result;
    (void)module;
    struct comm_communicator *c = communicator_of(comm, "stream");
    if (!c)
        return NULL;
    WITHOUT_GIL(result = comm_stream_of(c, &stream));
    return result == COMM_OK ? PyLong_FromVoidPtr(stream) : raise_result(result, c, "stream");
}
