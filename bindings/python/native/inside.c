/*
 * Operators written in Python run while the library holds a lock of their communicator. So the thread that runs one must not enter the
 * library: calls raise StateError, callbacks wait (notify.c), and an object whose end is a call of the library lives on as a copy.
 */
#include "core.h"

#include <string.h>

static _Thread_local int depth;
static PyObject *postponed; /* the copies: a list, or NULL */

bool inside_operator(void)
{
    return depth > 0;
}

void inside_enter(void)
{
    ++depth;
}

void inside_leave(void)
{
    if (--depth == 0)
        notify_later();
}

bool inside_refuses(const char *operation)
{
    if (!depth)
        return false;
    raise_state(operation, "an operator calls the library; expected one that only combines its arguments");
    return true;
}

bool inside_has_postponed(void)
{
    return postponed != NULL;
}

/* For the end of an object of `bytes` bytes: true if a copy has taken over what it owns. Without memory for the copy that is never freed.
 */
bool inside_postpone(PyObject *object, size_t bytes)
{
    PyObject *error, *value, *trace;
    if (!depth)
        return false;
    PyErr_Fetch(&error, &value, &trace);
    PyTypeObject *type = Py_TYPE(object);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *copy = allocate(type, 0);
    if (copy)
        memcpy((char *)copy + sizeof *copy, (char *)object + sizeof *object, bytes - sizeof *object);
    postponed = postponed ? postponed : PyList_New(0);
    if (!copy || !postponed || PyList_Append(postponed, copy))
        PyErr_Clear();
    else
        Py_DECREF(copy);
    PyErr_Restore(error, value, trace);
    return true;
}

void inside_drop_postponed(void)
{
    PyObject *list = postponed;
    postponed = NULL;
    Py_XDECREF(list);
}
