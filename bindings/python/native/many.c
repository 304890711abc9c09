/* Waiting for several requests. */
#include "core.h"

#include <string.h>

enum many { WAIT_ALL, WAIT_ANY, WAIT_SOME };

struct waiting {
    enum many kind;
    size_t count, found, at;
    struct comm_request *requests;
    size_t *indices;
    enum comm_result *results;
};

static enum comm_result wait_for(void *what, int64_t timeout_ns)
{
    struct waiting *w = what;
    switch (w->kind) {
    case WAIT_ALL:
        return comm_wait_all(w->requests, w->count, timeout_ns);
    case WAIT_ANY:
        return comm_wait_any(w->requests, w->count, timeout_ns, &w->at);
    default:
        return comm_wait_some(w->requests, w->count, timeout_ns, w->indices, w->results, &w->found);
    }
}

static struct request *request_at(PyObject *list, size_t i)
{
    PyObject *item = PyList_GetItem(list, (Py_ssize_t)i);
    if (item == Py_None)
        return NULL;
    if (PyObject_TypeCheck(item, request_type))
        return (struct request *)item;
    PyErr_Format(PyExc_TypeError, "wait: requests[%zu] is %R; expected a Request or None", i, item);
    return NULL;
}

/* Of a request that this process has seen complete the library may have forgotten the result: the answer has it without a wait. */
static bool read_requests(PyObject *list, struct waiting *w)
{
    for (size_t i = 0; i < w->count; ++i) {
        struct request *r = request_at(list, i);
        if (PyErr_Occurred())
            return false;
        w->requests[i] = r && !(w->kind == WAIT_ALL && r->done) ? r->request : COMM_REQUEST_NONE;
        if (r && w->kind == WAIT_ANY && r->done) {
            w->at = i;
            return true;
        }
    }
    return true;
}

static PyObject *finish_index(PyObject *list, size_t i, enum comm_result result)
{
    struct request *r = request_at(list, i);
    PyObject *done = r ? request_finish(r, result) : NULL;
    bool failed = r && !done;
    Py_XDECREF(done);
    return failed ? NULL : PyLong_FromSize_t(i);
}

/* Every request is seen complete; the first error by index is raised. */
static PyObject *finish_all(PyObject *list, struct waiting *w, enum comm_result result)
{
    PyObject *error[3] = {NULL, NULL, NULL};
    if (result == COMM_PENDING)
        Py_RETURN_FALSE;
    for (size_t i = 0; i < w->count; ++i) {
        struct request *r = request_at(list, i);
        enum comm_result each = COMM_OK;
        if (r)
            WITHOUT_GIL(each = comm_test(r->request));
        PyObject *done = r ? request_finish(r, each) : Py_NewRef(Py_True);
        if (!done && !error[0])
            PyErr_Fetch(&error[0], &error[1], &error[2]);
        PyErr_Clear();
        Py_XDECREF(done);
    }
    if (!error[0] && result < 0) /* the wait failed, and the operations go on */
        return raise_result(result, NULL, "wait_all");
    if (!error[0])
        Py_RETURN_TRUE;
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static PyObject *finish_any(PyObject *list, struct waiting *w, enum comm_result result)
{
    if (result == COMM_PENDING)
        return PyLong_FromLong(-1);
    if (w->at == COMM_NO_INDEX)
        Py_RETURN_NONE;
    return finish_index(list, w->at, result);
}

/* Each request keeps its error. If the wait fails while a request goes on, that error is raised. */
static PyObject *finish_some(PyObject *list, struct waiting *w)
{
    PyObject *indices = PyList_New(0);
    for (size_t i = 0; indices && i < w->found; ++i) {
        struct request *r = request_at(list, w->indices[i]);
        PyObject *index = finish_index(list, w->indices[i], w->results[i]);
        if (!index && r && !r->done) {
            Py_DECREF(indices);
            return NULL;
        }
        PyErr_Clear();
        index = index ? index : PyLong_FromSize_t(w->indices[i]);
        if (!index || PyList_Append(indices, index))
            Py_CLEAR(indices);
        Py_XDECREF(index);
    }
    return indices;
}

static PyObject *wait_now(PyObject *list, struct waiting *w, int64_t timeout_ns)
{
    enum comm_result result = COMM_OK;
    w->at = COMM_NO_INDEX;
    if (!read_requests(list, w))
        return NULL;
    if (w->at == COMM_NO_INDEX && !wait_sliced(wait_for, w, timeout_ns, &result))
        return NULL;
    return w->kind == WAIT_ALL ? finish_all(list, w, result) : w->kind == WAIT_ANY ? finish_any(list, w, result) : finish_some(list, w);
}

/* wait_many(kind, list of requests, timeout): True or False; an index, None or -1; a list of indices. */
PyObject *wait_many(PyObject *module, PyObject *args)
{
    PyObject *list, *timeout, *answer = NULL;
    int kind;
    int64_t timeout_ns;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!O:wait", &kind, &PyList_Type, &list, &timeout) || !read_timeout(timeout, &timeout_ns) ||
        inside_refuses("wait"))
        return NULL;
    struct waiting w = {.kind = (enum many)kind, .count = (size_t)PyList_Size(list)};
    w.requests = PyMem_Calloc(w.count + 1, sizeof *w.requests);
    w.indices = PyMem_Calloc(w.count + 1, sizeof *w.indices);
    w.results = PyMem_Calloc(w.count + 1, sizeof *w.results);
    if (w.requests && w.indices && w.results)
        answer = wait_now(list, &w, timeout_ns);
    else
        PyErr_NoMemory();
    PyMem_Free(w.requests);
    PyMem_Free(w.indices);
    PyMem_Free(w.results);
    return answer;
}
