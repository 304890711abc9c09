/* Waiting for all work of a communicator, and moving work from an event loop. */
#include "communicator_wait.h"

enum comm_result communicator_wait_all(void *c, int64_t timeout_ns)
{
    return comm_sync(c, timeout_ns);
}

static enum comm_result wait_sync_all(void *c, int64_t timeout_ns)
{
    return comm_sync_all(c, timeout_ns);
}

static enum comm_result wait_stream(void *c, int64_t timeout_ns)
{
    return comm_stream_sync(c, timeout_ns);
}

static PyObject *sync_with(wait_fn *fn, const char *operation, PyObject *self, PyObject *args, PyObject *words)
{
    int64_t timeout_ns;
    enum comm_result result;
    struct comm_communicator *c = communicator_of(self, NULL);
    if (!c || !parse_timeout(args, words, &timeout_ns) || !wait_sliced(fn, c, timeout_ns, &result))
        return NULL;
    request_sweep_all();
    PyObject *lost = result == COMM_OK ? communicator_take_lost((struct communicator *)self, fn == wait_sync_all) : NULL;
    if (lost) {
        PyErr_SetObject((PyObject *)Py_TYPE(lost), lost);
        Py_DECREF(lost);
        notify_run();
        return NULL;
    }
    return wait_answer(result, ((struct communicator *)self)->c, operation);
}

PyObject *communicator_sync(PyObject *self, PyObject *args, PyObject *words)
{
    return sync_with(communicator_wait_all, "sync", self, args, words);
}

PyObject *communicator_sync_all(PyObject *self, PyObject *args, PyObject *words)
{
    return sync_with(wait_sync_all, "sync_all", self, args, words);
}

PyObject *communicator_stream_sync(PyObject *self, PyObject *args, PyObject *words)
{
    return sync_with(wait_stream, "stream_sync", self, args, words);
}

PyObject *communicator_progress(PyObject *self, PyObject *unused)
{
    struct comm_communicator *c = communicator_of(self, NULL);
    enum comm_result result;
    (void)unused;
    if (!c)
        return NULL;
    WITHOUT_GIL(result = comm_progress(c));
    return wait_answer(result, c, "progress");
}

PyObject *communicator_arm(PyObject *self, PyObject *unused)
{
    struct comm_communicator *c = communicator_of(self, NULL);
    enum comm_result result;
    (void)unused;
    if (!c)
        return NULL;
    WITHOUT_GIL(result = comm_arm(c));
    return wait_answer(result, c, "arm");
}

PyObject *communicator_fileno(PyObject *self, PyObject *unused)
{
    struct communicator *comm = (struct communicator *)self;
    (void)unused;
    if (!communicator_of(self, NULL))
        return NULL;
    enum comm_result result = COMM_OK;
    if (comm->fd < 0)
        WITHOUT_GIL(result = comm_fd(comm->c, &comm->fd));
    return result == COMM_OK ? PyLong_FromLong(comm->fd) : raise_result(result, comm->c, "fileno");
}

PyObject *communicator_last(PyObject *self, PyObject *unused)
{
    struct communicator *comm = (struct communicator *)self;
    struct comm_communicator *c = communicator_of(self, NULL);
    (void)unused;
    if (c && comm->recorded)
        return raise_state("last", "a recorder has started nothing; expected the communicator that it records for");
    struct request *r = c ? request_new("last", comm) : NULL;
    if (!r)
        return NULL;
    WITHOUT_GIL(r->request = comm_last(c));
    return request_started(r);
}
