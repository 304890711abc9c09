/* Gradient buckets: allreduce of gradients that overlaps with the backward pass. */
#include "core.h"

enum { ON_DEVICE = 2 }; /* of `adopt` */

PyTypeObject *buckets_type;

struct buckets {
    PyObject ob_base;
    struct comm_buckets *b; /* NULL: freed */
    int users;              /* threads inside a call on them */
    struct communicator *comm;
    struct buffer *gradients;
    Py_ssize_t count;
    PyObject *op;
    int32_t adopt;
    int exports;
};

static void drop_gradients(struct buffer *gradients, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; gradients && i < count; ++i)
        buffer_drop(&gradients[i]);
    PyMem_Free(gradients);
}

static bool read_gradients(struct buckets *self, PyObject *list, struct comm_gradient *gradients)
{
    for (Py_ssize_t i = 0; i < self->count; ++i) {
        struct buffer *b = &self->gradients[i];
        if (!buffer_get(b, PyList_GetItem(list, i), "buckets", "gradients", true, 0))
            return false;
        gradients[i] = (struct comm_gradient){b->data, b->count, b->type, 0};
    }
    return true;
}

static bool create(struct buckets *self, PyObject *list, struct comm_bucket_options *options)
{
    struct comm_gradient *gradients = PyMem_Calloc((size_t)self->count + 1, sizeof *gradients);
    self->gradients = PyMem_Calloc((size_t)self->count + 1, sizeof *self->gradients);
    bool ok = gradients && self->gradients;
    if (!ok)
        PyErr_NoMemory();
    else if ((ok = read_gradients(self, list, gradients))) {
        enum comm_result result;
        WITHOUT_GIL(result = comm_buckets_create(self->comm->c, gradients, (size_t)self->count, options, &self->b));
        if (result != COMM_OK)
            raise_result(result, self->comm->c, "buckets");
        ok = result == COMM_OK;
    }
    PyMem_Free(gradients);
    return ok;
}

/* buckets_create(communicator, list, bytes, first_bytes, op, adopt) */
PyObject *buckets_create(PyObject *module, PyObject *args)
{
    struct comm_bucket_options options = {.size = sizeof options};
    PyObject *comm, *list, *op;
    Py_ssize_t bytes, first_bytes;
    bool custom;
    int adopt;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!nnOi:buckets", &comm, &PyList_Type, &list, &bytes, &first_bytes, &op, &adopt) ||
        !communicator_of(comm, "buckets") || !read_operator(op, "buckets", &options.op, &custom))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(buckets_type, Py_tp_alloc);
    struct buckets *self = (struct buckets *)allocate(buckets_type, 0);
    if (!self)
        return NULL;
    options.bytes = (size_t)bytes;
    options.first_bytes = (size_t)first_bytes;
    options.adopt = self->adopt = adopt;
    self->comm = (struct communicator *)comm;
    self->op = op;
    self->count = PyList_Size(list);
    Py_INCREF(comm);
    Py_INCREF(op);
    if (create(self, list, &options))
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

bool buckets_alive(PyObject *buckets)
{
    return ((struct buckets *)buckets)->b != NULL;
}

/* To be called after the arguments were read, whose code may free the buckets. */
static struct buckets *alive(PyObject *object)
{
    struct buckets *self = (struct buckets *)object;
    if (inside_refuses("buckets"))
        return NULL;
    if (self->b)
        return self;
    raise_closed("bucket list");
    return NULL;
}

/* So that no other thread frees them meanwhile. */
#define USING(self, statement)                                                                                                             \
    do {                                                                                                                                   \
        ++(self)->users;                                                                                                                   \
        WITHOUT_GIL(statement);                                                                                                            \
        --(self)->users;                                                                                                                   \
    } while (0)

static PyObject *said(struct buckets *self, enum comm_result result, const char *operation)
{
    notify_run();
    if (result != COMM_OK)
        return raise_result(result, self->comm->c, operation);
    Py_RETURN_NONE;
}

static bool read_index(PyObject *buckets, PyObject *object, const char *operation, int64_t *i)
{
    return read_int64(object, operation, "i", 0, ((struct buckets *)buckets)->count - 1, i);
}

static PyObject *buckets_ready(PyObject *object, PyObject *index)
{
    int64_t i;
    enum comm_result result;
    struct buckets *self = read_index(object, index, "ready", &i) ? alive(object) : NULL;
    if (!self)
        return NULL;
    USING(self, result = comm_buckets_ready(self->b, (size_t)i));
    return said(self, result, "ready");
}

static PyObject *buckets_ready_stream(PyObject *object, PyObject *args)
{
    PyObject *index, *address;
    int64_t i;
    struct CUstream_st *stream;
    enum comm_result result;
    struct buckets *self = NULL;
    if (PyArg_ParseTuple(args, "OO:ready_stream", &index, &address) && read_index(object, index, "ready_stream", &i) &&
        read_stream(address, "ready_stream", &stream))
        self = alive(object);
    if (!self)
        return NULL;
    USING(self, result = comm_buckets_ready_stream(self->b, (size_t)i, stream));
    return said(self, result, "ready_stream");
}

static PyObject *buckets_wait_stream(PyObject *object, PyObject *address)
{
    struct CUstream_st *stream;
    enum comm_result result;
    struct buckets *self = read_stream(address, "wait_stream", &stream) ? alive(object) : NULL;
    if (!self)
        return NULL;
    USING(self, result = comm_buckets_wait_stream(self->b, stream));
    return said(self, result, "wait_stream");
}

static enum comm_result wait_buckets(void *b, int64_t timeout_ns)
{
    return comm_buckets_wait(b, timeout_ns);
}

static PyObject *buckets_wait(PyObject *object, PyObject *args, PyObject *words)
{
    int64_t timeout_ns;
    enum comm_result result;
    struct buckets *self = parse_timeout(args, words, &timeout_ns) ? alive(object) : NULL;
    if (!self)
        return NULL;
    ++self->users;
    bool waited = wait_sliced(wait_buckets, self->b, timeout_ns, &result);
    --self->users;
    if (!waited)
        return NULL;
    return wait_answer(result, self->comm->c, "wait");
}

static PyObject *buckets_hold(PyObject *object, PyObject *args)
{
    int on = 1;
    enum comm_result result;
    struct buckets *self = PyArg_ParseTuple(args, "|p:hold", &on) ? alive(object) : NULL;
    if (!self)
        return NULL;
    USING(self, result = comm_buckets_hold(self->b, on));
    return said(self, result, "hold");
}

static PyObject *buckets_data(PyObject *object, PyObject *index)
{
    int64_t i;
    void *data;
    struct buckets *self = read_index(object, index, "data", &i) ? alive(object) : NULL;
    if (!self)
        return NULL;
    enum comm_result result;
    USING(self, result = comm_buckets_data(self->b, (size_t)i, &data));
    if (result != COMM_OK)
        return raise_result(result, self->comm->c, "data");
    const struct buffer *given = &self->gradients[i];
    bool of_device = self->adopt == ON_DEVICE || (!self->adopt && given->of_device);
    return (of_device ? memory_part_of_device : memory_part)(data, given->bytes, object, &self->exports);
}

/* What comm_buckets_free() uses; all of it is given up at its end. */
struct freeing {
    struct comm_buckets *b;
    struct buffer *gradients;
    Py_ssize_t count;
    PyObject *comm, *op;
};

static void free_now(void *what)
{
    comm_buckets_free(((struct freeing *)what)->b);
}

static void freeing_drop(void *what)
{
    struct freeing *f = what;
    drop_gradients(f->gradients, f->count);
    Py_DECREF(f->comm);
    Py_DECREF(f->op);
    PyMem_Free(f);
}

static void free_left(void *what)
{
    aside_drop(freeing_drop, what);
}

/* An interrupt leaves the buckets to their free, which goes on. */
static PyObject *free_buckets(struct buckets *self)
{
    struct freeing *f = PyMem_Calloc(1, sizeof *f);
    if (!f)
        return PyErr_NoMemory();
    *f = (struct freeing){self->b, self->gradients, self->count, Py_NewRef((PyObject *)self->comm), Py_NewRef(self->op)};
    self->b = NULL;
    self->gradients = NULL;
    if (!aside_run(aside_may(self->comm), free_now, free_left, f))
        return NULL;
    freeing_drop(f);
    Py_RETURN_NONE;
}

static PyObject *buckets_free(PyObject *object, PyObject *unused)
{
    struct buckets *self = (struct buckets *)object;
    (void)unused;
    if (inside_refuses("free"))
        return NULL;
    if (!self->b)
        Py_RETURN_NONE;
    if (self->exports) {
        PyErr_Format(PyExc_BufferError, "free(): %d views of these buckets exist; drop them first", self->exports);
        return NULL;
    }
    if (self->users && !communicator_forked(self->comm))
        return raise_state("free", "another call on these buckets is running; expected its end first");
    return free_buckets(self);
}

static PyObject *buckets_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

/* An exception of the block is not replaced by that of views which it keeps alive. */
static PyObject *buckets_exit(PyObject *self, PyObject *args)
{
    PyObject *freed = buckets_free(self, NULL);
    if (freed || PyTuple_Size(args) < 1 || PyTuple_GetItem(args, 0) == Py_None)
        return freed;
    PyErr_Clear();
    Py_RETURN_NONE;
}

static Py_ssize_t buckets_length(PyObject *self)
{
    return ((struct buckets *)self)->count;
}

static void buckets_dealloc(PyObject *object)
{
    struct buckets *self = (struct buckets *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (!inside_postpone(object, sizeof *self)) {
        WITHOUT_GIL(comm_buckets_free(self->b));
        drop_gradients(self->gradients, self->count);
        Py_CLEAR(self->comm);
        Py_CLEAR(self->op);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"ready", buckets_ready, METH_O, "ready($self, i, /)\n--\n\nReports that gradient `i` of this step is written: comm_buckets_ready."},
    {"wait", METHOD_WORDS(buckets_wait),
     "wait($self, timeout=None)\n--\n\nEnds the step: waits until all gradients are reduced: comm_buckets_wait.\n\nReturns False if "
     "`timeout` "
     "seconds passed first; the step then goes on."},
    {"hold", buckets_hold, METH_VARARGS,
     "hold($self, on=True, /)\n--\n\nTurns reduction off or on, for gradient accumulation: comm_buckets_hold."},
    {"data", buckets_data, METH_O,
     "data($self, i, /)\n--\n\nReturns the memory of gradient `i`, with `adopt` inside its bucket: comm_buckets_data."},
    {"ready_stream", buckets_ready_stream, METH_VARARGS,
     "ready_stream($self, i, stream, /)\n--\n\nAs ready(), for a gradient that a CUDA stream writes: comm_buckets_ready_stream. "
     "Gradients of the host: UnsupportedError."},
    {"wait_stream", buckets_wait_stream, METH_O,
     "wait_stream($self, stream, /)\n--\n\nAs wait(), for a CUDA stream: comm_buckets_wait_stream. Gradients of the host: "
     "UnsupportedError."},
    {"free", buckets_free, METH_NOARGS,
     "free($self)\n--\n\nFrees the buckets: comm_buckets_free.\n\nIt waits for a running step. If an interrupt ends it, they are freed "
     "when the step ends. Raises StateError while another thread is inside a call on them."},
    {"__enter__", buckets_enter, METH_NOARGS, NULL},
    {"__exit__", buckets_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, buckets_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, buckets_length},
    {Py_tp_doc, "Gradient buckets: allreduce of gradients that overlaps with the backward pass. Communicator.buckets() makes them."},
    {0, NULL}};

PyType_Spec buckets_spec = {"commstream._core.Buckets", sizeof(struct buckets), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            slots};
