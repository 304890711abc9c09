/* Methods of a communicator that communicator_wait.c has; communicator.c lists them. */
#ifndef COMMSTREAM_PYTHON_COMMUNICATOR_WAIT_H
#define COMMSTREAM_PYTHON_COMMUNICATOR_WAIT_H

#include "core.h"

enum comm_result communicator_wait_all(void *c, int64_t timeout_ns); /* a wait_fn */
PyObject *communicator_sync(PyObject *self, PyObject *args, PyObject *words);
PyObject *communicator_sync_all(PyObject *self, PyObject *args, PyObject *words);
PyObject *communicator_stream_sync(PyObject *self, PyObject *args, PyObject *words);
PyObject *communicator_progress(PyObject *self, PyObject *unused);
PyObject *communicator_arm(PyObject *self, PyObject *unused);
PyObject *communicator_fileno(PyObject *self, PyObject *unused);
PyObject *communicator_last(PyObject *self, PyObject *unused);

#endif
