/* Arguments of Python's calls, by position and by name, and the numbers in them. */
#include "core.h"

#include <string.h>

static int find(const struct parameter *parameters, PyObject *name)
{
    for (int i = 0; parameters[i].name; ++i)
        if (PyUnicode_CompareWithASCIIString(name, parameters[i].name) == 0)
            return i;
    return -1;
}

static bool type_error(const char *operation, const char *format, const char *what)
{
    PyErr_Format(PyExc_TypeError, format, operation, what);
    return false;
}

static bool parse_named(const char *operation, const struct parameter *parameters, PyObject **slots, PyObject *const *values,
                        PyObject *names)
{
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *name = PyTuple_GetItem(names, i);
        int at = find(parameters, name);
        if (at < 0)
            return type_error(operation, "%s() has no argument '%s'", PyUnicode_AsUTF8AndSize(name, NULL));
        if (slots[parameters[at].slot])
            return type_error(operation, "%s() got argument '%s' twice", parameters[at].name);
        slots[parameters[at].slot] = values[i];
    }
    return true;
}

/* None is as good as absent. */
bool arguments_parse(const char *operation, const struct parameter *parameters, int required, PyObject **slots, PyObject *const *args,
                     Py_ssize_t count, PyObject *names)
{
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (!parameters[i].name)
            return type_error(operation, "%s() got too many arguments%s", "");
        slots[parameters[i].slot] = args[i];
    }
    if (names && !parse_named(operation, parameters, slots, args + count, names))
        return false;
    for (int i = 0; i < required; ++i)
        if (!slots[parameters[i].slot])
            return type_error(operation, "%s() needs argument '%s'", parameters[i].name);
    for (int i = required; parameters[i].name; ++i)
        if (slots[parameters[i].slot] == Py_None)
            slots[parameters[i].slot] = NULL;
    return true;
}

PyObject *raise_kind(const char *operation, const char *name, PyObject *object, const char *expected)
{
    return PyErr_Format(PyExc_TypeError, "%s%s%s is %R; expected %s", operation ? operation : "", operation ? ": " : "", name, object,
                        expected);
}

/* In place of Python's own words, which do not say which argument it was. */
static bool wrong_kind(PyObject *object, const char *operation, const char *name, const char *expected)
{
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        raise_kind(operation, name, object, expected);
    }
    return false;
}

bool read_number(PyObject *object, const char *operation, const char *name, const char *expected, int64_t low, int64_t high, int64_t *value)
{
    PyObject *number = PyNumber_Index(object);
    if (!number)
        return wrong_kind(object, operation, name, expected);
    int overflow;
    *value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow || *value < low || *value > high) {
        raise_argument(operation, "%s is %R; expected %lld to %lld", name, number, (long long)low, (long long)high);
        Py_DECREF(number);
        return false;
    }
    Py_DECREF(number);
    return true;
}

bool read_int64(PyObject *object, const char *operation, const char *name, int64_t low, int64_t high, int64_t *value)
{
    return read_number(object, operation, name, "an integer", low, high, value);
}

/* Seconds; NULL or None: as long as the operation may take. */
bool read_timeout(PyObject *object, int64_t *ns)
{
    *ns = COMM_FOREVER;
    if (!object || object == Py_None)
        return true;
    double seconds = PyFloat_AsDouble(object);
    if (seconds == -1.0 && PyErr_Occurred())
        return wrong_kind(object, NULL, "timeout", "seconds or None");
    if (!(seconds >= 0)) {
        raise_argument(NULL, "timeout is %R; expected seconds of 0 or more, or None", object);
        return false;
    }
    if (seconds < 9e9)
        *ns = (int64_t)(seconds * SECOND_NS);
    return true;
}

/* The address of a CUDA stream, as torch.cuda.Stream.cuda_stream and cupy.cuda.Stream.ptr have it. */
bool read_stream(PyObject *object, const char *operation, struct CUstream_st **stream)
{
    PyObject *number = PyNumber_Index(object);
    if (!number)
        return wrong_kind(object, operation, "stream", "the address of a CUDA stream, which is an integer");
    unsigned long long address = PyLong_AsUnsignedLongLong(number);
    bool ok = !PyErr_Occurred();
    if (!ok) {
        PyErr_Clear();
        raise_argument(operation, "stream is %R; expected 0 to %llu, the address of a CUDA stream", number, (unsigned long long)UINT64_MAX);
    }
    Py_DECREF(number);
    *stream = (struct CUstream_st *)(uintptr_t)address;
    return ok;
}

/* A sequence of `expected` numbers, as an array that the caller frees. */
bool read_sizes(PyObject *object, const char *operation, const char *name, size_t expected, size_t **values)
{
    PyObject *list = PySequence_List(object);
    if (!list)
        return wrong_kind(object, operation, name, "a sequence of numbers");
    size_t count = (size_t)PyList_Size(list);
    size_t *sizes = count == expected ? PyMem_Malloc((count + 1) * sizeof *sizes) : NULL;
    bool ok = sizes != NULL;
    if (count != expected)
        raise_argument(operation, "%s has %zu items; expected %zu, one for each rank", name, count, expected);
    else if (!ok)
        PyErr_NoMemory();
    for (size_t i = 0; ok && i < count; ++i) {
        int64_t value = 0;
        ok = read_int64(PyList_GetItem(list, (Py_ssize_t)i), operation, name, 0, INT64_MAX, &value);
        sizes[i] = (size_t)value;
    }
    Py_DECREF(list);
    if (!ok) {
        PyMem_Free(sizes);
        return false;
    }
    *values = sizes;
    return true;
}
