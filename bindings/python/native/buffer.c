/*
 * From a Python object to an address, without a copy: the buffer protocol first (numpy, array, bytearray, memoryview), then
 * __cuda_array_interface__ (device memory), then DLPack (torch, jax). What is not dense in C order is refused.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* dlpack.h, as its version 0.2 and later have it for a capsule of the name "dltensor". */
struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
/* The same with a version, as capsules of the name "dltensor_versioned" have it since version 1. */
struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};
enum { DL_VERSION = 1, DL_READ_ONLY = 1 };
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };

static int of_width(Py_ssize_t bytes, int one, int two, int four, int eight)
{
    return bytes == 1 ? one : bytes == 2 ? two : bytes == 4 ? four : bytes == 8 ? eight : 0;
}

static int type_of_letter(char letter, Py_ssize_t bytes)
{
    switch (letter) {
    case '?':
        return COMM_BOOL;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
        return of_width(bytes, COMM_I8, COMM_I16, COMM_I32, COMM_I64);
    case 'c':
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
        return of_width(bytes, COMM_U8, COMM_U16, COMM_U32, COMM_U64);
    case 'e':
    case 'f':
    case 'd':
        return of_width(bytes, 0, COMM_F16, COMM_F32, COMM_F64);
    default:
        return 0;
    }
}

/* A format of the struct module, or of __array_interface__ without its width, as a type: 0 if there is none. */
static int type_of_format(const char *format, Py_ssize_t bytes)
{
    if (!format)
        return COMM_U8;
    if (*format == '<' || *format == '=' || *format == '@' || *format == '|')
        ++format;
    if (format[0] == 'Z')
        return bytes == 8 ? COMM_C64 : bytes == 16 ? COMM_C128 : 0;
    return format[0] && !format[1] ? type_of_letter(format[0], bytes) : 0;
}

/* Codes of types and of byte orders are not inside of the names of fields, which stand between colons. */
static bool has_code(const char *format, const char *codes)
{
    bool named = false;
    for (; *format; ++format) {
        named = named != (*format == ':');
        if (!named && strchr(codes, *format))
            return true;
    }
    return false;
}

/* Elements that are more than their bytes: no type= makes them others. */
static bool plain(const char *operation, const char *name, int said, const char *format, Py_ssize_t each)
{
    if (!format)
        return true;
    if (has_code(format, "O")) {
        raise_argument(operation, "%s: elements of format '%s' are Python objects; expected numbers, or bytes such as pickle.dumps() makes",
                       name, format);
        return false;
    }
    if (each > 1 && said && said != COMM_BYTE && has_code(format, ">!")) {
        raise_argument(operation, "%s: elements of format '%s' are big-endian; expected the byte order of this machine, or type=BYTE", name,
                       format);
        return false;
    }
    return true;
}

/* Sets type and count. `said` is the type that the caller named, or 0; `found` is that of the object, or 0. */
static bool settle(struct buffer *b, const char *operation, const char *name, int said, int found, const char *format)
{
    int type = said ? said : found;
    if (!type) {
        raise_argument(operation, "%s: elements of format '%s' have no type here; name one with type=", name, format ? format : "");
        return false;
    }
    size_t each = comm_type_size((enum comm_type)type);
    if (b->bytes % each) {
        raise_argument(operation, "%s: %zu bytes are no whole number of elements of %zu bytes", name, b->bytes, each);
        return false;
    }
    b->type = (enum comm_type)type;
    b->count = b->bytes / each;
    return true;
}

/* The exception of an exporter that refuses becomes ours, with its words. */
static bool refused(const char *operation, const char *name, PyObject *object, bool writable)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *words = value ? PyObject_Str(value) : NULL;
    const char *text = words ? PyUnicode_AsUTF8AndSize(words, NULL) : NULL;
    PyErr_Clear();
    bool strided = text && strstr(text, "contiguous");
    bool fixed = writable && text && (strstr(text, "writ") || strstr(text, "read-only") || strstr(text, "readonly"));
    raise_argument(operation, "%s: expected %s%s, got %R (%s)%s", name, writable ? "writable " : "",
                   strided ? "memory that is dense in C order"
                   : fixed ? "memory"
                           : "memory of numbers or bytes",
                   (PyObject *)Py_TYPE(object), text ? text : "no reason given",
                   strided ? "; numpy.ascontiguousarray() makes a dense copy" : "");
    Py_XDECREF(words);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return false;
}

static bool from_view(struct buffer *b, PyObject *object, const char *operation, const char *name, bool writable, int type)
{
    int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &b->view, flags)) {
        b->view.obj = NULL;
        return refused(operation, name, object, writable);
    }
    b->data = b->view.buf;
    b->bytes = (size_t)b->view.len;
    return plain(operation, name, type, b->view.format, b->view.itemsize) &&
           settle(b, operation, name, type, type_of_format(b->view.format, b->view.itemsize), b->view.format);
}

/* Arrays of shape[] with strides[] in units of `unit` bytes: dense, and how many bytes? */
static bool dense(const int64_t *shape, const int64_t *strides, int32_t axes, int64_t unit, int64_t each, size_t *bytes)
{
    int64_t total = each;
    bool gaps = false;
    for (int32_t i = axes; i-- > 0;) {
        gaps = gaps || (strides && shape[i] > 1 && strides[i] * unit != total);
        total *= shape[i];
    }
    *bytes = (size_t)total;
    return !gaps || total == 0;
}

static bool not_dense(const char *operation, const char *name)
{
    raise_argument(operation, "%s: expected memory that is dense in C order, got strides; make a dense copy first", name);
    return false;
}

static int dl_type(const struct dl_tensor *t)
{
    static const struct {
        uint8_t code, bits;
        int type;
    } rows[] = {{0, 8, COMM_I8},   {0, 16, COMM_I16},   {0, 32, COMM_I32}, {0, 64, COMM_I64},    {1, 8, COMM_U8},     {1, 16, COMM_U16},
                {1, 32, COMM_U32}, {1, 64, COMM_U64},   {2, 16, COMM_F16}, {2, 32, COMM_F32},    {2, 64, COMM_F64},   {4, 16, COMM_BF16},
                {5, 64, COMM_C64}, {5, 128, COMM_C128}, {6, 8, COMM_BOOL}, {10, 8, COMM_F8E4M3}, {12, 8, COMM_F8E5M2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        if (rows[i].code == t->code && rows[i].bits == t->bits && t->lanes == 1)
            return rows[i].type;
    return 0;
}

static const struct dl_tensor *open_capsule(PyObject *capsule, const char *operation, const char *name, bool writable)
{
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned"))
        return PyCapsule_GetPointer(capsule, "dltensor");
    const struct dl_versioned *v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (v->major != DL_VERSION)
        return raise_argument(operation, "%s: expected DLPack of version %d, got version %u", name, DL_VERSION, v->major), NULL;
    if (writable && (v->flags & DL_READ_ONLY))
        return raise_argument(operation, "%s: expected writable memory, got read-only memory", name), NULL;
    return &v->tensor;
}

static bool from_capsule(struct buffer *b, PyObject *capsule, const char *operation, const char *name, bool writable, int type)
{
    const struct dl_tensor *t = open_capsule(capsule, operation, name, writable);
    if (!t)
        return false;
    if (t->device_type != DL_CPU && t->device_type != DL_CUDA && t->device_type != DL_CUDA_HOST && t->device_type != DL_CUDA_MANAGED) {
        raise_argument(operation, "%s: expected memory of the host or of CUDA, got DLPack device %d", name, (int)t->device_type);
        return false;
    }
    int64_t each = (int64_t)t->bits * t->lanes / 8;
    if (!each || t->bits * t->lanes % 8) {
        raise_argument(operation, "%s: expected elements of whole bytes, got DLPack elements of %d bits", name, t->bits * t->lanes);
        return false;
    }
    if (!dense(t->shape, t->strides, t->dimensions, each, each, &b->bytes))
        return not_dense(operation, name);
    b->data = t->data ? (char *)t->data + t->byte_offset : NULL;
    b->of_device = t->device_type == DL_CUDA;
    return settle(b, operation, name, type, dl_type(t), "DLPack");
}

/* Exporters from before version 1 do not know the argument. */
static PyObject *make_capsule(PyObject *call)
{
    PyObject *none = PyTuple_New(0), *words = Py_BuildValue("{s(ii)}", "max_version", DL_VERSION, 0);
    PyObject *capsule = none && words ? PyObject_Call(call, none, words) : NULL;
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_Call(call, none, NULL);
    }
    Py_XDECREF(none);
    Py_XDECREF(words);
    return capsule;
}

static bool from_dlpack(struct buffer *b, PyObject *object, const char *operation, const char *name, bool writable, int type)
{
    /* The capsule keeps its name, so that its destructor gives the tensor back. */
    PyObject *call = PyObject_GetAttrString(object, "__dlpack__");
    b->keep = call ? make_capsule(call) : NULL;
    Py_XDECREF(call);
    if (!b->keep)
        return refused(operation, name, object, writable);
    return from_capsule(b, b->keep, operation, name, writable, type);
}

static bool read_tuple(PyObject *tuple, int64_t *values, int32_t axes)
{
    for (int32_t i = 0; i < axes; ++i) {
        PyObject *item = PySequence_GetItem(tuple, i);
        values[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

enum { AXES_MAX = 32 };

/* The parts of an array interface (numpy's, numba's): a dictionary with typestr, shape, strides and data. */
static bool from_interface(struct buffer *b, PyObject *interface, const char *operation, const char *name, bool writable, int type)
{
    PyObject *typestr = PyDict_GetItemString(interface, "typestr"), *shape = PyDict_GetItemString(interface, "shape");
    PyObject *strides = PyDict_GetItemString(interface, "strides"), *data = PyDict_GetItemString(interface, "data");
    int64_t lengths[AXES_MAX], steps[AXES_MAX];
    const char *code = typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, NULL) : NULL;
    Py_ssize_t axes = shape && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    if (!code || strlen(code) < 3 || axes < 0 || axes > AXES_MAX || !data || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
        raise_argument(operation, "%s: its array interface has no typestr, shape or data", name);
        return false;
    }
    bool strided = strides && strides != Py_None;
    if (!read_tuple(shape, lengths, (int32_t)axes) || (strided && !read_tuple(strides, steps, (int32_t)axes)))
        return false;
    Py_ssize_t each = strtol(code + 2, NULL, 10);
    if (!dense(lengths, strided ? steps : NULL, (int32_t)axes, 1, each, &b->bytes))
        return not_dense(operation, name);
    if (writable && PyObject_IsTrue(PyTuple_GetItem(data, 1))) {
        raise_argument(operation, "%s: expected writable memory, got read-only memory", name);
        return false;
    }
    b->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    if (PyErr_Occurred())
        return false;
    char letter = code[1] == 'i' ? 'b' : code[1] == 'u' ? 'B' : code[1] == 'b' ? '?' : code[1];
    int found = code[0] == '>' ? 0 : letter == 'c' ? (each == 8 ? COMM_C64 : COMM_C128) : type_of_letter(letter, each);
    return plain(operation, name, type, code, each) && settle(b, operation, name, type, found, code);
}

static bool from_attribute(struct buffer *b, PyObject *object, PyObject *interface, const char *operation, const char *name, bool writable,
                           int type)
{
    bool ok = PyDict_Check(interface) && from_interface(b, interface, operation, name, writable, type);
    if (!ok && !PyErr_Occurred())
        raise_argument(operation, "%s: its array interface is not a dictionary", name);
    Py_DECREF(interface);
    Py_INCREF(object);
    b->keep = object;
    return ok;
}

/* Types of ml_dtypes are arrays of numpy that refuse the buffer protocol: their name says what they are. */
static int named_type(PyObject *object)
{
    static const struct {
        const char *name;
        int type;
    } rows[] = {{"bfloat16", COMM_BF16}, {"float8_e4m3fn", COMM_F8E4M3}, {"float8_e5m2", COMM_F8E5M2}};
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
    int type = 0;
    for (size_t i = 0; name && PyUnicode_Check(name) && i < sizeof rows / sizeof rows[0]; ++i)
        if (PyUnicode_CompareWithASCIIString(name, rows[i].name) == 0)
            type = rows[i].type;
    PyErr_Clear();
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    return type;
}

static bool from_protocols(struct buffer *b, PyObject *object, const char *operation, const char *name, bool writable, int type)
{
    PyObject *interface = PyObject_GetAttrString(object, "__cuda_array_interface__");
    b->of_device = interface != NULL;
    if (interface)
        return from_attribute(b, object, interface, operation, name, writable, type);
    PyErr_Clear();
    if (PyObject_HasAttrString(object, "__dlpack__"))
        return from_dlpack(b, object, operation, name, writable, type);
    raise_argument(operation, "%s: expected an array, a tensor or bytes (the buffer protocol, DLPack or __cuda_array_interface__), got %R",
                   name, (PyObject *)Py_TYPE(object));
    return false;
}

/* After a refusal: an array of such a type is taken by its array interface; of another the refusal stands. */
static bool from_named(struct buffer *b, PyObject *object, const char *operation, const char *name, bool writable, int type)
{
    PyObject *error, *value, *trace;
    PyErr_Fetch(&error, &value, &trace);
    int named = named_type(object);
    PyObject *interface = named ? PyObject_GetAttrString(object, "__array_interface__") : NULL;
    PyErr_Clear();
    if (!interface) {
        PyErr_Restore(error, value, trace);
        return false;
    }
    Py_XDECREF(error);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    buffer_drop(b);
    return from_attribute(b, object, interface, operation, name, writable, type ? type : named);
}

bool buffer_get(struct buffer *b, PyObject *object, const char *operation, const char *name, bool writable, int type)
{
    static char nothing; /* comm_alltoall_v takes no rank that has NULL on both sides */
    bool ok = PyObject_CheckBuffer(object) && !memory_of_device(object)
                  ? from_view(b, object, operation, name, writable, type) || from_named(b, object, operation, name, writable, type)
                  : from_protocols(b, object, operation, name, writable, type);
    if (ok && !b->data)
        b->data = &nothing;
    if (b->keep && memory_of_device(b->keep))
        memory_count(b->keep, 1);
    return ok;
}

void buffer_drop(struct buffer *b)
{
    if (b->view.obj)
        PyBuffer_Release(&b->view);
    if (b->keep && memory_of_device(b->keep))
        memory_count(b->keep, -1);
    Py_CLEAR(b->keep);
    b->data = NULL;
}
