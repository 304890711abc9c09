/* Windows and memory of the library: both give views, and wait with their end until these are gone. */
#include "core.h"

#include <sched.h>
#include <string.h>
#include <structmember.h>

PyTypeObject *window_type, *memory_type;

/* A rank's part of a window, or memory of comm_mem_alloc() or comm_mem_alloc_symmetric(): an exporter of the buffer protocol. */
struct memory {
    PyObject ob_base;
    void *data;
    Py_ssize_t bytes;
    PyObject *owner; /* the window, or the communicator */
    int *exports;    /* the owner's, which counts the views of all parts */
    int views;
    bool allocated;
    bool of_device; /* the host cannot read it */
};

static struct memory *memory_new(void *data, size_t bytes, PyObject *owner, int *exports, bool allocated)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(memory_type, Py_tp_alloc);
    struct memory *m = (struct memory *)allocate(memory_type, 0);
    if (!m)
        return NULL;
    m->data = data;
    m->bytes = (Py_ssize_t)bytes;
    m->owner = owner;
    m->exports = exports;
    m->allocated = allocated;
    Py_INCREF(owner);
    return m;
}

PyObject *memory_part(void *data, size_t bytes, PyObject *owner, int *exports)
{
    return (PyObject *)memory_new(data, bytes, owner, exports, false);
}

PyObject *memory_part_of_device(void *data, size_t bytes, PyObject *owner, int *exports)
{
    struct memory *m = memory_new(data, bytes, owner, exports, false);
    if (m)
        m->of_device = true;
    return (PyObject *)m;
}

PyObject *memory_wrap(void *data, size_t bytes, struct communicator *comm)
{
    struct memory *m = memory_new(data, bytes, (PyObject *)comm, &comm->exports, true);
    struct comm_info info = {.size = sizeof info};
    struct comm_communicator *c = comm->c;
    enum comm_result result = COMM_ERR_CLOSED;
    ++comm->users;
    if (c)
        WITHOUT_GIL(result = comm_describe(c, &info));
    --comm->users;
    if (m)
        m->of_device = result == COMM_OK && strcmp(info.backend, "nccl") == 0;
    return (PyObject *)m;
}

bool memory_of_device(PyObject *object)
{
    return Py_TYPE(object) == memory_type && ((struct memory *)object)->of_device;
}

static bool memory_alive(struct memory *m)
{
    if (PyObject_TypeCheck(m->owner, window_type))
        return ((struct window *)m->owner)->w && ((struct window *)m->owner)->comm->c;
    if (!m->allocated) /* a gradient's */
        return buckets_alive(m->owner);
    return m->data && ((struct communicator *)m->owner)->c != NULL;
}

/* The communicator of a window unmaps its parts when it closes: it counts their views too. */
static void count_views(struct memory *m, int change)
{
    m->views += change;
    *m->exports += change;
    if (PyObject_TypeCheck(m->owner, window_type))
        ((struct window *)m->owner)->comm->exports += change;
}

/* The use of a device's memory by an operation: as a view of the host's. */
void memory_count(PyObject *object, int change)
{
    count_views((struct memory *)object, change);
}

static int memory_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct memory *m = (struct memory *)self;
    if (!memory_alive(m)) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "this memory is freed");
        return -1;
    }
    if (m->of_device) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "this memory is a device's; expected torch.as_tensor(memory, device=\"cuda\"), "
                                           "cupy.asarray(memory) or another reader of __cuda_array_interface__");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, m->data, m->bytes, 0, flags))
        return -1;
    count_views(m, 1);
    return 0;
}

static void memory_releasebuffer(PyObject *self, Py_buffer *view)
{
    struct memory *m = (struct memory *)self;
    (void)view;
    count_views(m, -1);
}

static void memory_give_back(struct memory *m)
{
    struct comm_communicator *c = m->allocated ? ((struct communicator *)m->owner)->c : NULL;
    void *data = m->data;
    if (!m->allocated)
        return;
    m->data = NULL; /* first: no other thread gets a view of it meanwhile, or frees it too */
    if (data && c)
        WITHOUT_GIL(comm_mem_free(c, data));
}

static PyObject *memory_free(PyObject *self, PyObject *unused)
{
    struct memory *m = (struct memory *)self;
    (void)unused;
    if (inside_refuses("free"))
        return NULL;
    if (m->views) {
        PyErr_Format(PyExc_BufferError, "free(): %d views of this memory exist; drop them first", m->views);
        return NULL;
    }
    memory_give_back(m);
    Py_RETURN_NONE;
}

static void memory_dealloc(PyObject *self)
{
    struct memory *m = (struct memory *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (!inside_postpone(self, sizeof *m)) {
        memory_give_back(m);
        Py_CLEAR(m->owner);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *memory_interface(PyObject *self, void *unused)
{
    struct memory *m = (struct memory *)self;
    (void)unused;
    if (m->of_device && memory_alive(m))
        return Py_BuildValue("{s(n)sss(KO)si}", "shape", m->bytes, "typestr", "|u1", "data", (unsigned long long)(uintptr_t)m->data,
                             Py_False, "version", 3);
    PyErr_SetString(PyExc_AttributeError, m->of_device ? "this memory is freed" : "this memory is the host's");
    return NULL;
}

static Py_ssize_t memory_length(PyObject *self)
{
    return ((struct memory *)self)->bytes;
}

static PyMethodDef memory_methods[] = {{"free", memory_free, METH_NOARGS,
                                        "free($self)\n--\n\nGives the memory back: comm_mem_free. Raises BufferError while views of it "
                                        "exist. A part of a window is freed with "
                                        "its window: then this does nothing."},
                                       {NULL, NULL, 0, NULL}};

static PyGetSetDef memory_properties[] = {
    {"__cuda_array_interface__", memory_interface, NULL, "Of memory of a device: its bytes, for CuPy, torch and Numba.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_methods, memory_methods},
    {Py_tp_getset, memory_properties},
    {Py_bf_getbuffer, memory_getbuffer},
    {Py_bf_releasebuffer, memory_releasebuffer},
    {Py_sq_length, memory_length},
    {Py_tp_doc,
     "Bytes of the library's: numpy.frombuffer(memory, dtype) and memoryview(memory) are views of them. The owner cannot be freed "
     "or closed while a view exists.\n\nOn backend nccl it is memory of the device: torch.as_tensor(memory, device=\"cuda\") and "
     "cupy.asarray(memory) are views of it, which are not counted. Drop them before its end."},
    {0, NULL}};

PyType_Spec memory_spec = {"commstream._core.Memory", sizeof(struct memory), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           memory_slots};

/* memory_alloc(communicator, bytes) */
PyObject *memory_alloc(PyObject *module, PyObject *args)
{
    PyObject *comm;
    Py_ssize_t bytes;
    void *data;
    (void)module;
    if (!PyArg_ParseTuple(args, "On:mem_alloc", &comm, &bytes))
        return NULL;
    struct comm_communicator *c = communicator_of(comm, "mem_alloc");
    if (!c)
        return NULL;
    enum comm_result result = COMM_ERR_ARGUMENT;
    ++((struct communicator *)comm)->users;
    if (bytes >= 0)
        WITHOUT_GIL(result = comm_mem_alloc(c, (size_t)bytes, &data));
    --((struct communicator *)comm)->users;
    if (result != COMM_OK)
        return raise_result(result, c, "mem_alloc");
    return memory_wrap(data, (size_t)bytes, (struct communicator *)comm);
}

/* -------------------------------------------------------------------------------------------------------- windows */

PyObject *window_wrap(struct comm_window *w, struct communicator *comm, PyObject *base)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(window_type, Py_tp_alloc);
    struct window *self = (struct window *)allocate(window_type, 0);
    if (!self)
        return NULL;
    self->w = w;
    self->comm = comm;
    self->base = base;
    Py_INCREF((PyObject *)comm);
    Py_XINCREF(base);
    return (PyObject *)self;
}

static PyObject *window_part(PyObject *object, PyObject *args)
{
    struct window *self = (struct window *)object;
    PyObject *given = Py_None;
    int64_t peer = self->comm->rank;
    void *data;
    size_t bytes;
    if (!PyArg_ParseTuple(args, "|O:part", &given) ||
        (given != Py_None && !read_int64(given, "part", "peer", 0, self->comm->size - 1, &peer)))
        return NULL;
    if (inside_refuses("part"))
        return NULL;
    if (!self->w)
        return raise_closed("window");
    enum comm_result result;
    struct comm_window *w = self->w;
    ++self->users;
    ++self->comm->users;
    WITHOUT_GIL(result = comm_window_pointer(w, (int32_t)peer, &data, &bytes));
    --self->comm->users;
    --self->users;
    return result == COMM_OK ? memory_part(data, bytes, object, &self->exports) : raise_result(result, self->comm->c, "part");
}

/* What comm_window_free() uses; all of it is given up at its end. */
struct freeing {
    struct comm_window *w;
    PyObject *comm, *base;
    enum comm_result result;
};

static void free_now(void *what)
{
    struct freeing *f = what;
    f->result = comm_window_free(f->w);
}

static void freeing_drop(void *what)
{
    struct freeing *f = what;
    Py_XDECREF(f->base);
    Py_DECREF(f->comm);
    PyMem_Free(f);
}

static void free_left(void *what)
{
    aside_drop(freeing_drop, what);
}

/* Calls of other threads that have the window end first: they only start something. An interrupt leaves the window to its free, which goes
 * on. */
static PyObject *free_window(struct window *self)
{
    struct freeing *f = PyMem_Calloc(1, sizeof *f);
    if (!f)
        return PyErr_NoMemory();
    *f = (struct freeing){self->w, Py_NewRef((PyObject *)self->comm), self->base, COMM_OK};
    self->w = NULL;
    self->base = NULL;
    while (self->users && !communicator_forked(self->comm))
        WITHOUT_GIL(sched_yield());
    if (!aside_run(aside_may(self->comm), free_now, free_left, f))
        return NULL;
    enum comm_result result = f->result;
    if (result == COMM_ERR_STATE) {
        self->w = f->w;
        self->base = Py_XNewRef(f->base);
    }
    freeing_drop(f);
    notify_run();
    return result == COMM_OK ? PyBool_FromLong(1) : raise_result(result, self->comm->c, "free");
}

static PyObject *window_free(PyObject *object, PyObject *unused)
{
    struct window *self = (struct window *)object;
    (void)unused;
    if (inside_refuses("free"))
        return NULL;
    if (!self->w)
        Py_RETURN_NONE;
    if (self->exports) {
        PyErr_Format(PyExc_BufferError, "free(): %d views of this window exist; drop them first", self->exports);
        return NULL;
    }
    return free_window(self);
}

/* Freeing is collective, and no rank knows when another drops its last reference: what is forgotten lives as long as its world. */
static void window_dealloc(PyObject *object)
{
    struct window *self = (struct window *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->w)
        Py_XINCREF(self->base);
    Py_CLEAR(self->base);
    Py_CLEAR(self->comm);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *window_freed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct window *)self)->w == NULL);
}

static PyMethodDef window_methods[] = {
    {"part", window_part, METH_VARARGS,
     "part($self, peer=None, /)\n--\n\nReturns a rank's part, this rank's by default, for direct loads and stores: "
     "comm_window_pointer.\n\nUse "
     "numpy.frombuffer() or memoryview() on it. Raises UnsupportedError if this rank shares no memory with that part."},
    {"free", window_free, METH_NOARGS,
     "free($self)\n--\n\nFrees the window; collective: comm_window_free.\n\nRaises BufferError while views of its parts exist. If "
     "an interrupt ends it, the window is freed all the same when the other ranks free it. A window that is forgotten without it lives as "
     "long as its world."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef window_properties[] = {{"freed", window_freed, NULL, "Whether it is freed.", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef window_members[] = {
    {"communicator", T_OBJECT, offsetof(struct window, comm), READONLY, "The communicator that it was made by."}, {NULL, 0, 0, 0, NULL}};

static PyType_Slot window_slots[] = {{Py_tp_dealloc, window_dealloc},
                                     {Py_tp_methods, window_methods},
                                     {Py_tp_getset, window_properties},
                                     {Py_tp_members, window_members},
                                     {0, NULL}};

PyType_Spec window_spec = {"commstream._core.Window", sizeof(struct window), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, window_slots};
