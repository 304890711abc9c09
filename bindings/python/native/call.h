/*
 * Calls that start an operation, as data: a row says which arguments there are, how buffers and counts are checked, and which function of
 * the library it is. call_run() does the rest.
 */
#ifndef COMMSTREAM_PYTHON_CALL_H
#define COMMSTREAM_PYTHON_CALL_H

#include "core.h"

enum slot {
    SLOT_INPUT,
    SLOT_OUTPUT,
    SLOT_OLD,
    SLOT_OP,
    SLOT_TYPE,
    SLOT_ROOT,
    SLOT_PEER,
    SLOT_TAG,
    SLOT_OFFSET,
    SLOT_COUNTS,
    SLOT_DISPLS,
    SLOT_IN_COUNTS,
    SLOT_IN_DISPLS,
    SLOT_SLOT,
    SLOT_VALUE,
    SLOTS
};

/* Arrays of counts and offsets. */
enum { ARRAY_COUNTS, ARRAY_DISPLS, ARRAY_IN_COUNTS, ARRAY_IN_DISPLS, ARRAYS };

struct call {
    const struct row *row;
    struct communicator *comm;
    struct window *window; /* of a window's call */
    struct request *r;
    PyObject *slots[SLOTS];
    struct comm_communicator *c;
    struct comm_window *w;
    const void *in;
    void *out, *old;
    size_t n, offset;
    enum comm_type type;
    int said; /* the type that the caller named; 0: none */
    comm_op op;
    int32_t root, peer;
    uint32_t tag, slot;
    uint64_t value;
    size_t *arrays[ARRAYS];
    bool on_root;
};

struct row {
    const char *name;
    const struct parameter *parameters;
    int required;
    bool (*prepare)(struct call *k);
    enum comm_result (*issue)(const struct call *k, struct comm_request *req);
    int in_blocks, out_blocks; /* BLOCK or BLOCKS: how many blocks each buffer has */
    bool in_on_root_only, out_on_root_only;
    bool alone; /* one rank's own: no other rank waits for it */
};
enum { BLOCK = 1, BLOCKS = 2 };

/* IN_PLACE of Python is an object of its own: any other object is a buffer. */
extern PyObject *in_place;

PyObject *call_run(const struct row *row, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
bool call_input(struct call *k, int at, enum slot slot, const char *name);
bool call_output(struct call *k, int at, enum slot slot, const char *name);
bool call_array(struct call *k, int array, enum slot slot, const char *name, size_t expected);
bool call_same_type(struct call *k, int a, int b);

#define METHOD(name)                                                                                                                       \
    static PyObject *method_##name(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)                               \
    {                                                                                                                                      \
        return call_run(&row_##name, self, args, count, names);                                                                            \
    }
#define METHOD_ROW(name, doc)                                                                                                              \
    {                                                                                                                                      \
#        name, (PyCFunction)(void (*)(void))method_##name, METH_FASTCALL | METH_KEYWORDS, doc                                              \
    }

#endif
