/* Opening worlds. The functions of a config are called without the GIL: they take it. */
#include "core.h"

#include <string.h>

struct hooks {
    struct hooks *next; /* of all that live */
    uintptr_t number;
    PyObject *log, *exchange;
    int32_t ranks;
    PyObject *error[3]; /* what the exchange raised */
};
static struct hooks *living;

/* The library may call a last time after the world is closed: so its argument is a number, and no address. */
static PyObject *find_log(uintptr_t number)
{
    for (struct hooks *h = living; h; h = h->next)
        if (h->number == number)
            return Py_XNewRef(h->log);
    return NULL;
}

static void call_log(void *arg, int level, const char *line)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *log = find_log((uintptr_t)arg);
    PyObject *said = log ? PyObject_CallFunction(log, "iN", level, read_text(line)) : NULL;
    if (log && !said)
        PyErr_WriteUnraisable(log);
    Py_XDECREF(said);
    Py_XDECREF(log);
    PyGILState_Release(state);
}

static int copy_out(PyObject *said, void *out, Py_ssize_t expected)
{
    char *bytes;
    Py_ssize_t length;
    if (!said || PyBytes_AsStringAndSize(said, &bytes, &length))
        return 1;
    if (length != expected) {
        PyErr_Format(PyExc_ValueError, "exchange() returned %zd bytes; expected %zd, those of all ranks", length, expected);
        return 1;
    }
    memcpy(out, bytes, (size_t)length);
    return 0;
}

static int call_exchange(void *arg, const void *in, size_t bytes, void *out)
{
    struct hooks *h = arg;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *said = PyObject_CallFunction(h->exchange, "y#", in, (Py_ssize_t)bytes);
    int failed = copy_out(said, out, (Py_ssize_t)bytes * h->ranks);
    if (failed)
        PyErr_Fetch(&h->error[0], &h->error[1], &h->error[2]);
    Py_XDECREF(said);
    PyGILState_Release(state);
    return failed;
}

static void free_hooks(PyObject *capsule)
{
    struct hooks *h = PyCapsule_GetPointer(capsule, NULL), **at = &living;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    Py_XDECREF(h->log);
    Py_XDECREF(h->exchange);
    for (int i = 0; i < 3; ++i)
        Py_XDECREF(h->error[i]);
    PyMem_Free(h);
}

/* What the config's functions are given: lives as long as a communicator of the engine is open. */
static PyObject *make_hooks(PyObject *log, PyObject *exchange, int32_t ranks, struct hooks **h)
{
    static uintptr_t numbers;
    *h = PyMem_Calloc(1, sizeof **h);
    PyObject *capsule = *h ? PyCapsule_New(*h, NULL, free_hooks) : PyErr_NoMemory();
    if (!capsule)
        return NULL;
    (*h)->next = living;
    living = *h;
    (*h)->number = ++numbers;
    (*h)->ranks = ranks;
    (*h)->log = log == Py_None ? NULL : log;
    (*h)->exchange = exchange == Py_None ? NULL : exchange;
    Py_XINCREF((*h)->log);
    Py_XINCREF((*h)->exchange);
    return capsule;
}

struct opening {
    struct comm_config config;
    struct comm_id id;
    char text[1024];
    PyObject *capsule, *keep; /* its own hooks; those of the engine, whose log it uses */
    struct hooks *hooks;
    PyObject *args; /* has the texts of the config */
    struct comm_communicator *world;
    enum comm_result result;
};

static bool read_id(PyObject *object, struct opening *o)
{
    char *bytes;
    Py_ssize_t length;
    if (object == Py_None)
        return true;
    if (PyBytes_AsStringAndSize(object, &bytes, &length))
        return false;
    if (length != (Py_ssize_t)sizeof o->id.bytes) {
        raise_argument("open", "id has %zd bytes; expected %zu, as unique_id() returns", length, sizeof o->id.bytes);
        return false;
    }
    memcpy(o->id.bytes, bytes, sizeof o->id.bytes);
    o->config.id = &o->id;
    return true;
}

/* (rank, ranks, backend, device, address, id, exchange, engine_of, secret, progress, notify, order, log_level, open_timeout_ns,
 * operation_timeout_ns, options, log) */
static bool read_config(PyObject *args, struct opening *o)
{
    struct comm_config *c = &o->config;
    PyObject *id, *exchange, *engine, *log;
    int progress, notify_mode, order, log_level;
    long long open_ns, operation_ns;
    Py_ssize_t secret_bytes = 0;
    memset(o, 0, sizeof *o);
    c->size = sizeof *c;
    if (!PyArg_ParseTuple(args, "iizzzOOOz#iiiiLLzO:open", &c->rank, &c->ranks, &c->backend, &c->device, &c->address, &id, &exchange,
                          &engine, &c->secret, &secret_bytes, &progress, &notify_mode, &order, &log_level, &open_ns, &operation_ns,
                          &c->options, &log) ||
        !read_id(id, o) || (engine != Py_None && !(c->engine_of = communicator_of(engine, "open"))))
        return false;
    o->capsule = make_hooks(log, exchange, c->ranks, &o->hooks);
    o->keep = Py_XNewRef(engine != Py_None ? ((struct communicator *)engine)->hooks : o->capsule);
    c->secret_bytes = (size_t)secret_bytes;
    c->progress = (enum comm_progress_mode)progress;
    c->notify = (enum comm_notify_mode)notify_mode;
    c->order = (enum comm_order)order;
    c->log_level = (enum comm_log_level)log_level;
    c->open_timeout_ns = open_ns;
    c->operation_timeout_ns = operation_ns;
    c->log = log == Py_None ? NULL : call_log;
    c->exchange = exchange == Py_None ? NULL : call_exchange;
    c->exchange_arg = o->hooks;
    c->log_arg = o->hooks ? (void *)o->hooks->number : NULL;
    c->error_text = o->text;
    c->error_text_bytes = sizeof o->text;
    return o->capsule != NULL;
}

static PyObject *failed(enum comm_result result, struct opening *o, const char *operation)
{
    if (o->hooks && o->hooks->error[0]) {
        PyErr_Restore(o->hooks->error[0], o->hooks->error[1], o->hooks->error[2]);
        memset(o->hooks->error, 0, sizeof o->hooks->error);
    } else {
        PyObject *error = PyObject_CallFunction(make_error, "i{sNss}", (int)result, "text", read_text(o->text), "operation", operation);
        if (error)
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
    }
    return NULL;
}

static void drop(struct opening *o)
{
    Py_XDECREF(o->capsule);
    Py_XDECREF(o->keep);
    Py_XDECREF(o->args);
}

static void opening_drop(void *what)
{
    drop(what);
    PyMem_Free(what);
}

static void open_now(void *what)
{
    struct opening *o = what;
    o->result = comm_open(&o->config, &o->world);
}

/* Nobody waits for this world any more. */
static void open_left(void *what)
{
    struct opening *o = what;
    if (o->result == COMM_OK)
        (void)comm_close(o->world, 0);
    aside_drop(opening_drop, o);
}

/* (config, aside): may another thread than the caller's open? */
static PyObject *open_world(PyObject *module, PyObject *args)
{
    PyObject *config, *self = NULL;
    int aside;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!p:open", &PyTuple_Type, &config, &aside) || inside_refuses("open"))
        return NULL;
    struct opening *o = PyMem_Malloc(sizeof *o);
    if (!o)
        return PyErr_NoMemory();
    if (read_config(config, o)) {
        o->args = Py_NewRef(config);
        if (!aside_run(aside, open_now, open_left, o))
            return NULL; /* and the opening is not the caller's any more */
        self = o->result == COMM_OK ? communicator_wrap(o->world, o->keep) : failed(o->result, o, "open");
    }
    opening_drop(o);
    return self;
}

/* (ranks, devices or None, config) */
static PyObject *wrap_all(struct comm_communicator **worlds, int ranks, PyObject *hooks)
{
    PyObject *list = PyList_New(ranks);
    for (int i = 0; list && i < ranks; ++i) {
        PyObject *world = communicator_wrap(worlds[i], hooks);
        if (world)
            PyList_SetItem(list, i, world);
        else
            Py_CLEAR(list);
    }
    return list;
}

static bool read_devices(PyObject *list, int ranks, const char **devices)
{
    if (PyList_Size(list) != ranks) {
        raise_argument("open_local", "devices has %zd items; expected %d, one for each rank", PyList_Size(list), ranks);
        return false;
    }
    for (int i = 0; i < ranks; ++i) {
        PyObject *item = PyList_GetItem(list, i);
        devices[i] = item == Py_None ? NULL : PyUnicode_AsUTF8AndSize(item, NULL);
        if (item != Py_None && !devices[i])
            return false;
    }
    return true;
}

static PyObject *open_local(PyObject *module, PyObject *args)
{
    struct opening o;
    int ranks;
    PyObject *devices, *config, *self = NULL;
    enum comm_result result;
    (void)module;
    if (!PyArg_ParseTuple(args, "iOO!:open_local", &ranks, &devices, &PyTuple_Type, &config) || inside_refuses("open_local"))
        return NULL;
    if (!read_config(config, &o)) {
        drop(&o);
        return NULL;
    }
    size_t room = ranks > 0 ? (size_t)ranks : 1;
    struct comm_communicator **worlds = PyMem_Calloc(room, sizeof *worlds);
    const char **names = PyMem_Calloc(room, sizeof *names);
    if (worlds && names && (devices == Py_None || read_devices(devices, ranks, names))) {
        WITHOUT_GIL(result = comm_open_local(&o.config, ranks, devices == Py_None ? NULL : names, worlds));
        if (result != COMM_OK)
            failed(result, &o, "open_local");
        else
            self = wrap_all(worlds, ranks, o.keep);
    }
    drop(&o);
    PyMem_Free(worlds);
    PyMem_Free(names);
    return self;
}

static PyObject *unique_id(PyObject *module, PyObject *args)
{
    char text[1024] = "";
    struct comm_config config = {.size = sizeof config, .error_text = text, .error_text_bytes = sizeof text};
    struct comm_id id;
    enum comm_result result;
    (void)module;
    if (!PyArg_ParseTuple(args, "zz:unique_id", &config.backend, &config.address) || inside_refuses("unique_id"))
        return NULL;
    WITHOUT_GIL(result = comm_id_create(&config, &id));
    if (result == COMM_OK)
        return PyBytes_FromStringAndSize((const char *)id.bytes, sizeof id.bytes);
    struct opening o = {.capsule = NULL};
    memcpy(o.text, text, sizeof text);
    return failed(result, &o, "unique_id");
}

PyMethodDef open_methods[] = {{"open", open_world, METH_VARARGS, NULL},
                              {"open_local", open_local, METH_VARARGS, NULL},
                              {"unique_id", unique_id, METH_VARARGS, NULL},
                              {NULL, NULL, 0, NULL}};
