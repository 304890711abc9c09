/*
 * Callbacks of requests. The library calls on any thread, perhaps while another one holds the GIL and waits for the engine: so its callback
 * only pushes onto a list. Python's functions run on a thread of Python: at the end of the next call that makes progress, or on the main
 * thread as a pending call of the interpreter.
 */
#include "core.h"

#include <stdatomic.h>
#include <stdlib.h>

struct note {
    struct note *next;
    struct request *r;
    PyObject *function;
    enum comm_result result;
};
static _Atomic(struct note *) notes;

static int run_pending(void *unused)
{
    (void)unused;
    notify_run();
    return 0;
}

static void push(struct comm_request request, enum comm_result result, void *arg)
{
    struct note *note = arg;
    (void)request;
    note->result = result;
    note->next = atomic_load_explicit(&notes, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&notes, &note->next, note, memory_order_release, memory_order_relaxed))
        ;
    if (Py_IsInitialized())
        Py_AddPendingCall(run_pending, NULL);
}

/* The main thread looks once more. */
void notify_later(void)
{
    if (atomic_load_explicit(&notes, memory_order_relaxed) || inside_has_postponed())
        Py_AddPendingCall(run_pending, NULL);
}

static void run(struct note *note)
{
    PyObject *done = request_finish(note->r, note->result);
    PyErr_Clear();
    Py_XDECREF(done);
    PyObject *said = PyObject_CallFunctionObjArgs(note->function, (PyObject *)note->r, NULL);
    if (!said)
        PyErr_WriteUnraisable(note->function);
    Py_XDECREF(said);
    Py_DECREF(note->function);
    Py_DECREF(note->r);
    free(note);
}

void notify_run(void)
{
    if ((!atomic_load_explicit(&notes, memory_order_relaxed) && !inside_has_postponed()) || request_completing() || inside_operator())
        return;
    struct note *stack = atomic_exchange_explicit(&notes, NULL, memory_order_acquire), *first = NULL;
    PyObject *error, *value, *trace;
    while (stack) {
        struct note *next = stack->next;
        stack->next = first;
        first = stack;
        stack = next;
    }
    PyErr_Fetch(&error, &value, &trace);
    inside_drop_postponed();
    while (first) {
        struct note *next = first->next;
        run(first);
        first = next;
    }
    PyErr_Restore(error, value, trace);
}

/* notify(request, function) */
PyObject *notify(PyObject *module, PyObject *args)
{
    PyObject *request, *function;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O:notify", request_type, &request, &function) || inside_refuses("add_done_callback"))
        return NULL;
    if (!PyCallable_Check(function))
        return PyErr_Format(PyExc_TypeError, "add_done_callback: function is %R; expected a function", function);
    struct request *r = (struct request *)request;
    struct note *note = malloc(sizeof *note);
    if (!note)
        return PyErr_NoMemory();
    *note = (struct note){.r = r, .function = function, .result = COMM_OK};
    Py_INCREF(request);
    Py_INCREF(function);
    if (r->done || !r->request.comm) {
        run(note);
        Py_RETURN_NONE;
    }
    enum comm_result result;
    WITHOUT_GIL(result = comm_notify(r->request, push, note)); /* on COMM_OK another thread may have run and freed the note */
    if (result == COMM_OK)
        Py_RETURN_NONE;
    Py_DECREF(request);
    Py_DECREF(function);
    free(note);
    return raise_result(result, NULL, "notify");
}
