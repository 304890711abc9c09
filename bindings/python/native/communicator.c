/* Communicators: life, place, order. commstream.Communicator gives these calls their face. */
#include "core.h"
#include "communicator_make.h"
#include "communicator_wait.h"

#include <sched.h>
#include <string.h>
#include <structmember.h>
#include <unistd.h>

PyTypeObject *communicator_type;

static const int64_t CLOSE_NS = (int64_t)5 * SECOND_NS; /* the default of comm_close() */
static struct communicator *all;                        /* open ones, without recorders */

static void list_add(struct communicator *self)
{
    self->next = all;
    self->previous = NULL;
    if (all)
        all->previous = self;
    all = self;
}

static void list_take(struct communicator *self)
{
    if (self != all && !self->previous)
        return;
    *(self->previous ? &self->previous->next : &all) = self->next;
    if (self->next)
        self->next->previous = self->previous;
    self->next = self->previous = NULL;
}

/* The error that sync() has to raise, of this communicator or of any of its engine; NULL if there is none. The caller owns it. */
PyObject *communicator_take_lost(struct communicator *comm, bool engine)
{
    PyObject *error = comm->lost;
    comm->lost = NULL;
    for (struct communicator *c = all; c && engine && !error; c = c->next)
        if (c->hooks == comm->hooks) {
            error = c->lost;
            c->lost = NULL;
        }
    return error;
}

PyObject *communicator_wrap(struct comm_communicator *c, PyObject *hooks)
{
    if (!c)
        Py_RETURN_NONE;
    allocfunc allocate = (allocfunc)PyType_GetSlot(communicator_type, Py_tp_alloc);
    struct communicator *self = (struct communicator *)allocate(communicator_type, 0);
    if (!self)
        return NULL;
    self->c = c;
    self->rank = comm_rank(c);
    self->size = comm_size(c);
    self->fd = -1;
    self->pid = getpid();
    Py_XINCREF(hooks);
    self->hooks = hooks;
    list_add(self);
    PyObject *said = PyObject_CallMethod((PyObject *)self, "_made", NULL); /* in the list of those that the exit closes */
    if (!said)
        Py_CLEAR(self);
    Py_XDECREF(said);
    return (PyObject *)self;
}

/* In a child that was forked nobody ends what other threads of the parent had begun. */
bool communicator_forked(const struct communicator *comm)
{
    return comm->pid != getpid();
}

/* The open communicator in an argument; NULL and an exception. */
struct comm_communicator *communicator_of(PyObject *object, const char *operation)
{
    if (!PyObject_TypeCheck(object, communicator_type)) {
        raise_kind(operation, "communicator", object, "a Communicator");
        return NULL;
    }
    struct communicator *comm = (struct communicator *)object;
    if (inside_refuses(operation))
        return NULL;
    if (!comm->c)
        raise_closed("communicator");
    return comm->c;
}

static struct comm_communicator *opened(PyObject *self)
{
    return communicator_of(self, NULL);
}

/* -------------------------------------------------------------------------------------------------- its end */

/* Event loops that wait for its requests are told, if there may be any. */
static void tell_loops(PyObject *hooks)
{
    PyObject *name = PyUnicode_FromString("commstream._aio"), *module = name && hooks ? PyImport_GetModule(name) : NULL;
    PyObject *said = module ? PyObject_CallMethod(module, "closed", "O", hooks) : NULL;
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(module);
    Py_XDECREF(said);
    Py_XDECREF(module);
    Py_XDECREF(name);
}

/* Other threads may be between the check of c and the library. */
static enum comm_result close_now(struct communicator *self, int64_t timeout_ns)
{
    struct comm_communicator *c = self->c;
    enum comm_result result;
    self->c = NULL;
    while (self->users && !communicator_forked(self))
        WITHOUT_GIL(sched_yield());
    WITHOUT_GIL(result = comm_close(c, timeout_ns));
    if (result == COMM_ERR_STATE)
        self->c = c;
    notify_run();
    request_sweep_all();
    if (self->c)
        return result;
    tell_loops(self->hooks);
    list_take(self);
    Py_CLEAR(self->hooks);
    Py_CLEAR(self->lost);
    return result;
}

/* Operations have views of memory too, until they are complete. False: an exception. */
static bool drop_views(struct communicator *self, int64_t timeout_ns)
{
    enum comm_result result;
    if (!self->exports)
        return true;
    if (!wait_sliced(communicator_wait_all, self->c, timeout_ns == COMM_DEFAULT_TIMEOUT ? CLOSE_NS : timeout_ns, &result))
        return false;
    request_sweep_all();
    if (self->exports)
        PyErr_Format(PyExc_BufferError, "close(): %d views of memory of this communicator exist; drop them first", self->exports);
    return !self->exports;
}

static PyObject *communicator_close(PyObject *object, PyObject *args, PyObject *words)
{
    static char word[] = "timeout", *names[] = {word, NULL};
    struct communicator *self = (struct communicator *)object;
    PyObject *timeout = NULL;
    int64_t timeout_ns = COMM_DEFAULT_TIMEOUT;
    if (!PyArg_ParseTupleAndKeywords(args, words, "|O:close", names, &timeout) ||
        (timeout && timeout != Py_None && !read_timeout(timeout, &timeout_ns)) || inside_refuses("close"))
        return NULL;
    if (!self->c)
        Py_RETURN_NONE;
    if (!drop_views(self, timeout_ns))
        return NULL;
    if (!self->c) /* another thread has closed it meanwhile */
        Py_RETURN_NONE;
    enum comm_result result = close_now(self, timeout_ns);
    if (result != COMM_OK)
        return result == COMM_ERR_TIMEOUT ? raise_unfinished() : raise_result(result, NULL, "close");
    Py_RETURN_NONE;
}

static void communicator_dealloc(PyObject *object)
{
    struct communicator *self = (struct communicator *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *error, *value, *trace;
    list_take(self);
    if (!inside_postpone(object, sizeof *self)) {
        PyErr_Fetch(&error, &value, &trace);
        if (self->c && !self->recorded)
            (void)close_now(self, COMM_DEFAULT_TIMEOUT);
        PyErr_Restore(error, value, trace);
        Py_CLEAR(self->recorded);
        Py_CLEAR(self->parent);
        Py_CLEAR(self->hooks);
        Py_CLEAR(self->lost);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *communicator_abort(PyObject *self, PyObject *args)
{
    PyObject *given = NULL;
    int64_t code = 1;
    struct comm_communicator *c = opened(self);
    if (!c || !PyArg_ParseTuple(args, "|O:abort", &given) || (given && !read_int64(given, "abort", "code", INT32_MIN, INT32_MAX, &code)))
        return NULL;
    enum comm_result result;
    WITHOUT_GIL(result = comm_abort(c, (int32_t)code));
    if (result != COMM_OK)
        return raise_result(result, c, "abort");
    Py_RETURN_NONE;
}

static PyObject *communicator_revoke(PyObject *self, PyObject *unused)
{
    struct comm_communicator *c = opened(self);
    enum comm_result result;
    (void)unused;
    if (!c)
        return NULL;
    WITHOUT_GIL(result = comm_revoke(c));
    if (result != COMM_OK)
        return raise_result(result, c, "revoke");
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------- place and order */

static PyObject *communicator_translate(PyObject *self, PyObject *args)
{
    int rank;
    PyObject *object;
    if (!PyArg_ParseTuple(args, "iO:translate", &rank, &object))
        return NULL;
    struct comm_communicator *c = opened(self), *other = c ? communicator_of(object, "translate") : NULL;
    if (!other)
        return NULL;
    WITHOUT_GIL(rank = comm_translate(c, rank, other));
    return PyLong_FromLong(rank);
}

struct probing {
    struct comm_communicator *c;
    int32_t peer;
    uint32_t tag;
    struct comm_status status;
};

static enum comm_result wait_probe(void *what, int64_t timeout_ns)
{
    struct probing *p = what;
    return comm_probe(p->c, p->peer, p->tag, timeout_ns, &p->status);
}

static PyObject *communicator_probe(PyObject *self, PyObject *args)
{
    struct probing p = {.c = opened(self)};
    PyObject *timeout;
    int64_t timeout_ns;
    enum comm_result result;
    if (!p.c || !PyArg_ParseTuple(args, "iIO:probe", &p.peer, &p.tag, &timeout) || !read_timeout(timeout, &timeout_ns) ||
        !wait_sliced(wait_probe, &p, timeout_ns, &result))
        return NULL;
    if (result == COMM_OK)
        return Py_BuildValue("iIK", (int)p.status.peer, (unsigned)p.status.tag, (unsigned long long)p.status.bytes);
    if (result == COMM_PENDING)
        Py_RETURN_NONE;
    return raise_result(result, p.c, "probe");
}

/* (address, what keeps the memory where it is) */
static PyObject *communicator_register(PyObject *self, PyObject *object)
{
    struct buffer b = {.data = NULL};
    PyObject *answer = NULL;
    struct comm_communicator *c = opened(self);
    if (!c)
        return NULL;
    if (buffer_get(&b, object, "mem_register", "buffer", true, COMM_BYTE)) {
        enum comm_result result;
        WITHOUT_GIL(result = comm_mem_register(c, b.data, b.bytes));
        PyObject *keep = b.view.obj ? PyMemoryView_FromObject(object) : Py_NewRef(b.keep);
        answer =
            result != COMM_OK ? raise_result(result, c, "mem_register") : Py_BuildValue("KO", (unsigned long long)(uintptr_t)b.data, keep);
        Py_XDECREF(keep);
    }
    buffer_drop(&b);
    return answer;
}

static PyObject *communicator_unregister(PyObject *self, PyObject *args)
{
    unsigned long long address;
    struct communicator *comm = (struct communicator *)self;
    if (!PyArg_ParseTuple(args, "K:unregister", &address) || inside_refuses("unregister"))
        return NULL;
    if (comm->c)
        WITHOUT_GIL(comm_mem_unregister(comm->c, (void *)(uintptr_t)address));
    Py_RETURN_NONE;
}

static PyObject *get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct communicator *)self)->c == NULL);
}

static PyObject *get_handle(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((struct communicator *)self)->c);
}

static PyObject *get_engine(PyObject *self, void *unused)
{
    PyObject *hooks = ((struct communicator *)self)->hooks;
    (void)unused;
    return Py_NewRef(hooks ? hooks : Py_None);
}

static PyMethodDef methods[] = {
    {"close", METHOD_WORDS(communicator_close),
     "close($self, timeout=None)\n--\n\nCloses the communicator: comm_close.\n\nIt waits for issued work, 5 seconds or `timeout`. "
     "Communicators made "
     "from it stay open. A communicator is also closed at the end of its `with`, and when the interpreter exits."},
    {"abort", communicator_abort, METH_VARARGS,
     "abort($self, code=1, /)\n--\n\nFails every communicator of the world, on every rank, with AbortedError: comm_abort."},
    {"revoke", communicator_revoke, METH_NOARGS,
     "revoke($self)\n--\n\nFails this communicator on every rank with RevokedError, so that all can recover: comm_revoke."},
    {"sync", METHOD_WORDS(communicator_sync),
     "sync($self, timeout=None)\n--\n\nWaits until everything issued so far is complete: comm_sync.\n\nReturns False if `timeout` "
     "seconds "
     "passed first. Raises the first error of operations whose request was dropped, unless it was cancelled."},
    {"sync_all", METHOD_WORDS(communicator_sync_all),
     "sync_all($self, timeout=None)\n--\n\nAs sync(), for every communicator of the engine: comm_sync_all."},
    {"stream_sync", METHOD_WORDS(communicator_stream_sync),
     "stream_sync($self, timeout=None)\n--\n\nAs sync(), on the device too: comm_stream_sync."},
    {"progress", communicator_progress, METH_NOARGS,
     "progress($self)\n--\n\nDoes a bounded amount of work for the whole engine: comm_progress.\n\nReturns True if the engine is idle, "
     "False "
     "if there is more to do now."},
    {"arm", communicator_arm, METH_NOARGS,
     "arm($self)\n--\n\nPrepares the descriptor of fileno() for sleep: comm_arm.\n\nReturns True if it is safe to sleep."},
    {"fileno", communicator_fileno, METH_NOARGS,
     "fileno($self)\n--\n\nReturns the descriptor that is readable when progress() has work: comm_fd.\n\nThere is one per engine. Do not "
     "read or close it."},
    {"last", communicator_last, METH_NOARGS,
     "last($self)\n--\n\nReturns a request that completes when everything issued so far is complete: comm_last."},
    {"_split", communicator_split, METH_VARARGS, NULL},
    {"_split_place", communicator_split_place, METH_VARARGS, NULL},
    {"_split_mesh", communicator_split_mesh, METH_VARARGS, NULL},
    {"_subset", communicator_subset, METH_VARARGS, NULL},
    {"_dup", communicator_dup, METH_VARARGS, NULL},
    {"_agree", communicator_agree, METH_VARARGS, NULL},
    {"_shrink", communicator_shrink, METH_NOARGS, NULL},
    {"_window", communicator_window, METH_VARARGS, NULL},
    {"_mem_alloc_symmetric", communicator_memory, METH_VARARGS, NULL},
    {"_refuse", communicator_refuse, METH_O, NULL},
    {"_translate", communicator_translate, METH_VARARGS, NULL},
    {"_probe", communicator_probe, METH_VARARGS, NULL},
    {"_register", communicator_register, METH_O, NULL},
    {"_unregister", communicator_unregister, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyMemberDef members[] = {{"rank", T_INT, offsetof(struct communicator, rank), READONLY, "The rank of this process: comm_rank."},
                                {"size", T_INT, offsetof(struct communicator, size), READONLY, "The number of ranks: comm_size."},
                                {NULL, 0, 0, 0, NULL}};

static PyGetSetDef properties[] = {
    {"closed", get_closed, NULL, "Whether it is closed.", NULL},
    {"_engine", get_engine, NULL, "What all communicators of the engine share.", NULL},
    {"handle", get_handle, NULL, "The address of the struct comm_communicator, for C code that shares it; 0: closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, communicator_dealloc}, {Py_tp_methods, methods}, {Py_tp_members, members}, {Py_tp_getset, properties}, {0, NULL}};

PyType_Spec communicator_spec = {"commstream._core.Communicator", sizeof(struct communicator), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
