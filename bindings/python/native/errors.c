/* Results become exceptions. commstream._errors makes them: this file collects what the library knows. */
#include "core.h"

#include <stdarg.h>
#include <string.h>

PyObject *make_error;

static PyObject *raise(enum comm_result result, PyObject *fields)
{
    PyObject *error = fields ? PyObject_CallFunction(make_error, "iO", (int)result, fields) : NULL;
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(fields);
    return NULL;
}

PyObject *read_text(const char *text)
{
    if (!text)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *error_fields(struct comm_communicator *c)
{
    struct comm_error e = {.size = sizeof e};
    enum comm_result result = COMM_ERR_CLOSED;
    if (c)
        WITHOUT_GIL(result = comm_error_detail(c, &e));
    if (result != COMM_OK)
        return PyDict_New();
    return Py_BuildValue("{sisisisisKsisNsNsN}", "result", (int)e.result, "rank", (int)e.rank, "peer", (int)e.peer, "errno",
                         (int)e.system_errno, "sequence", (unsigned long long)e.sequence, "backend_code", (int)e.backend_code, "operation",
                         read_text(e.operation), "cause", read_text(e.cause), "text", read_text(e.text));
}

/* The detail may tell of another failure: then only the operation and the result's own words are true. */
PyObject *raise_result(enum comm_result result, struct comm_communicator *c, const char *operation)
{
    PyObject *fields = error_fields(c);
    if (!fields)
        return NULL;
    PyObject *told = PyDict_GetItemString(fields, "result");
    if (!told || PyLong_AsLong(told) != (long)result) {
        Py_DECREF(fields);
        fields = Py_BuildValue("{ss}", "operation", operation ? operation : "");
    }
    return raise(result, fields);
}

PyObject *raise_argument(const char *operation, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    PyObject *text = PyUnicode_FromFormatV(format, list);
    va_end(list);
    return text ? raise(COMM_ERR_ARGUMENT, Py_BuildValue("{sNss}", "text", text, "operation", operation ? operation : "")) : NULL;
}

PyObject *raise_state(const char *operation, const char *text)
{
    return raise(COMM_ERR_STATE, Py_BuildValue("{ssss}", "text", text, "operation", operation ? operation : ""));
}

PyObject *raise_unfinished(void)
{
    const char *text = "work was unfinished when the time was over; it has ended, here and where it was still needed";
    return raise(COMM_ERR_TIMEOUT, Py_BuildValue("{ssss}", "text", text, "operation", "close"));
}

PyObject *raise_closed(const char *what)
{
    PyObject *text = PyUnicode_FromFormat("the %s is closed", what);
    return text ? raise(COMM_ERR_CLOSED, Py_BuildValue("{sN}", "text", text)) : NULL;
}
