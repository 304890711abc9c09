/*
 * Calls of the library that block until other ranks have come: they run on a thread of their own, and the main thread, which called,
 * handles signals meanwhile. If a handler raises, the call goes on without its caller, and its thread ends what it leaves. Only the main
 * thread handles signals: on any other the call is made where it stands.
 */
#include "core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RUNNING, ENDED, LEFT, SLICE_US = SLICE_NS / 1000 };

struct aside {
    PyThread_type_lock ended; /* held while the call runs */
    _Atomic(int) state;
    aside_fn *fn, *left;
    void *what;
};

static void drop(struct aside *a)
{
    if (a->ended)
        PyThread_free_lock(a->ended);
    free(a);
}

static void run(void *arg)
{
    struct aside *a = arg;
    a->fn(a->what);
    if (atomic_exchange(&a->state, ENDED) != LEFT) {
        PyThread_release_lock(a->ended);
        return;
    }
    a->left(a->what);
    drop(a);
}

/* Calls drop_it(what) with the GIL, on a thread of which Python need not know. Nothing at the interpreter's end. */
void aside_drop(aside_fn *drop_it, void *what)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    drop_it(what);
    PyGILState_Release(state);
}

/* Whether another thread may wait in this communicator's calls. Below MPI_THREAD_SERIALIZED only one may call MPI; NCCL and CUDA have a
 * device for each thread. */
bool aside_may(const struct communicator *comm)
{
    static const char *const bound[] = {"mpi", "nccl", "cuda"};
    struct comm_info info = {.size = sizeof info};
    enum comm_result result;
    WITHOUT_GIL(result = comm_describe(comm->c, &info));
    for (size_t i = 0; result == COMM_OK && i < sizeof bound / sizeof *bound; ++i)
        if (strstr(info.backend, bound[i]))
            result = COMM_ERR_UNSUPPORTED;
    return result == COMM_OK;
}

static struct aside *start(aside_fn *fn, aside_fn *left, void *what)
{
    struct aside *a = syscall(SYS_gettid) == getpid() ? malloc(sizeof *a) : NULL;
    if (!a)
        return NULL;
    *a = (struct aside){PyThread_allocate_lock(), RUNNING, fn, left, what};
    if (a->ended && PyThread_acquire_lock(a->ended, WAIT_LOCK) && PyThread_start_new_thread(run, a) != (unsigned long)-1)
        return a;
    drop(a);
    return NULL;
}

/* Runs fn(what) without the GIL, on another thread only if it may. False: a handler of signals raised, and left(what) is called at the end
 * of fn, with or without the GIL. */
bool aside_run(bool may, aside_fn *fn, aside_fn *left, void *what)
{
    PyLockStatus status = PY_LOCK_FAILURE;
    struct aside *a = may ? start(fn, left, what) : NULL;
    if (!a) {
        WITHOUT_GIL(fn(what));
        return true;
    }
    while (status != PY_LOCK_ACQUIRED && !PyErr_CheckSignals())
        WITHOUT_GIL(status = PyThread_acquire_lock_timed(a->ended, SLICE_US, 1));
    bool ended = status == PY_LOCK_ACQUIRED;
    if (!ended && atomic_exchange(&a->state, LEFT) != ENDED)
        return false; /* its thread has all of it now */
    if (!ended) {
        WITHOUT_GIL(PyThread_acquire_lock(a->ended, WAIT_LOCK));
        left(what);
    }
    drop(a);
    return ended;
}
