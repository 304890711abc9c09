/* The module: its types, and functions that are nobody's method. */
#include "call.h"

#include <string.h>

PyObject *in_place, *status_type;

/* The types and lists of this module are those of one interpreter: another one of the process would change them below it. */
static bool only_interpreter(void)
{
    static PyInterpreterState *home;
    home = home ? home : PyInterpreterState_Get();
    if (home == PyInterpreterState_Get())
        return true;
    PyErr_SetString(PyExc_ImportError, "commstream serves one interpreter of a process, and another one has imported it");
    return false;
}

/* bind(Communicator, Window, make_error, in_place, Status): the classes of Python that the module makes objects of. */
static PyObject *bind(PyObject *module, PyObject *args)
{
    PyObject *communicator, *window, *error, *place, *status;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOO:bind", &communicator, &window, &error, &place, &status) || !only_interpreter())
        return NULL;
    Py_INCREF(communicator);
    Py_INCREF(window);
    Py_INCREF(error);
    Py_INCREF(place);
    communicator_type = (PyTypeObject *)communicator;
    window_type = (PyTypeObject *)window;
    make_error = error;
    Py_INCREF(status);
    in_place = place;
    status_type = status;
    Py_RETURN_NONE;
}

static PyObject *pending(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromSsize_t(request_count());
}

static PyMethodDef methods[] = {{"bind", bind, METH_VARARGS, NULL},
                                {"bind_recorder", recorder_bind, METH_O, NULL},
                                {"pending", pending, METH_NOARGS, "How many operations the module keeps alive."},
                                {"notify", notify, METH_VARARGS, NULL},
                                {"wait_many", wait_many, METH_VARARGS, NULL},
                                {"mem_alloc", memory_alloc, METH_VARARGS, NULL},
                                {"operator", operator_create, METH_VARARGS, NULL},
                                {"premul_sum", premul_sum_create, METH_VARARGS, NULL},
                                {"event", event_create, METH_O, NULL},
                                {"group_begin", group_begin, METH_O, NULL},
                                {"plan_begin", plan_begin, METH_O, NULL},
                                {"recorder_end", recorder_end, METH_O, NULL},
                                {"buckets", buckets_create, METH_VARARGS, NULL},
                                {"queue_wait_event", queue_wait_event, METH_VARARGS, NULL},
                                {"queue_wait_request", queue_wait_request, METH_VARARGS, NULL},
                                {"queue_wait_stream", queue_wait_stream, METH_VARARGS, NULL},
                                {"stream_wait", stream_wait, METH_VARARGS, NULL},
                                {"stream_of", stream_of_communicator, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};

/* The methods of the calls are rows of their own: each becomes a descriptor of its type. */
static bool add_calls(PyTypeObject *type, PyMethodDef *rows)
{
    for (PyMethodDef *row = rows; row->ml_name; ++row) {
        PyObject *method = PyDescr_NewMethod(type, row);
        int failed = !method || PyObject_SetAttrString((PyObject *)type, row->ml_name, method);
        Py_XDECREF(method);
        if (failed)
            return false;
    }
    return true;
}

static bool add_type(PyObject *module, PyTypeObject **type, PyType_Spec *spec)
{
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    if (!*type)
        return false;
    Py_INCREF((PyObject *)*type);
    return PyModule_AddObject(module, strrchr(spec->name, '.') + 1, (PyObject *)*type) == 0;
}

static bool fill(PyObject *module)
{
    return add_type(module, &communicator_type, &communicator_spec) && add_type(module, &window_type, &window_spec) &&
           add_type(module, &request_type, &request_spec) && add_type(module, &operator_type, &operator_spec) &&
           add_type(module, &event_type, &event_spec) && add_type(module, &plan_type, &plan_spec) &&
           add_type(module, &buckets_type, &buckets_spec) && add_type(module, &memory_type, &memory_spec) &&
           add_calls(communicator_type, collective_methods) && add_calls(communicator_type, collective_v_methods) &&
           add_calls(communicator_type, message_methods) && add_calls(window_type, window_call_methods) &&
           PyModule_AddFunctions(module, inspect_methods) == 0 && PyModule_AddFunctions(module, open_methods) == 0;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "commstream._core", "The C API. commstream has what programs use.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && fill(module))
        return module;
    Py_XDECREF(module);
    return NULL;
}
