/* Methods of a communicator that communicator_make.c has; communicator.c lists them. */
#ifndef COMMSTREAM_PYTHON_COMMUNICATOR_MAKE_H
#define COMMSTREAM_PYTHON_COMMUNICATOR_MAKE_H

#include "core.h"

PyObject *communicator_split(PyObject *self, PyObject *args);
PyObject *communicator_split_place(PyObject *self, PyObject *args);
PyObject *communicator_subset(PyObject *self, PyObject *args);
PyObject *communicator_split_mesh(PyObject *self, PyObject *args);
PyObject *communicator_dup(PyObject *self, PyObject *args);
PyObject *communicator_shrink(PyObject *self, PyObject *unused);
PyObject *communicator_agree(PyObject *self, PyObject *args);
PyObject *communicator_window(PyObject *self, PyObject *args);
PyObject *communicator_memory(PyObject *self, PyObject *args);
PyObject *communicator_refuse(PyObject *self, PyObject *operation);

#endif
