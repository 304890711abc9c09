/* How each call that starts an operation runs: arguments, buffers, the library, the request. */
#include "call.h"

#include <string.h>

static bool read_slot(struct call *k, enum slot slot, const char *name, int64_t low, int64_t high, int64_t absent, int64_t *value)
{
    *value = absent;
    return !k->slots[slot] || read_int64(k->slots[slot], k->row->name, name, low, high, value);
}

static bool read_type(struct call *k)
{
    int64_t type;
    PyObject *said = k->slots[SLOT_TYPE];
    if (!said)
        return true;
    if (!read_number(said, k->row->name, "type", "a commstream.Type, such as commstream.F64", 0, INT32_MAX, &type))
        return false;
    if (type && !comm_type_size((enum comm_type)type)) {
        raise_argument(k->row->name, "type is %d; expected one of commstream.Type", (int)type);
        return false;
    }
    k->said = (int)type;
    return true;
}

/* An operator that is a function is for bytes. */
static bool read_op(struct call *k)
{
    bool custom = false;
    k->op = COMM_SUM;
    if (k->slots[SLOT_OP] && !read_operator(k->slots[SLOT_OP], k->row->name, &k->op, &custom))
        return false;
    if (!custom)
        return true;
    k->said = operator_takes_bytes(k->slots[SLOT_OP]) ? COMM_BYTE : k->said;
    k->r->keep = k->slots[SLOT_OP];
    Py_INCREF(k->r->keep);
    return true;
}

/* The numbers of every call; those that a row has no parameter for keep their defaults. */
static bool read_scalars(struct call *k)
{
    int64_t root, peer, tag, offset, slot, value;
    if (!read_slot(k, SLOT_ROOT, "root", INT32_MIN, INT32_MAX, 0, &root) ||
        !read_slot(k, SLOT_PEER, "peer", INT32_MIN, INT32_MAX, COMM_ANY_PEER, &peer) ||
        !read_slot(k, SLOT_TAG, "tag", 0, UINT32_MAX, 0, &tag) || !read_slot(k, SLOT_OFFSET, "offset", 0, INT64_MAX, 0, &offset) ||
        !read_slot(k, SLOT_SLOT, "slot", 0, UINT32_MAX, 0, &slot) || !read_slot(k, SLOT_VALUE, "value", 0, INT64_MAX, 1, &value) ||
        !read_type(k) || !read_op(k))
        return false;
    k->root = (int32_t)root;
    k->on_root = k->root == k->comm->rank;
    k->peer = (int32_t)peer;
    k->tag = (uint32_t)tag;
    k->offset = (size_t)offset;
    k->slot = (uint32_t)slot;
    k->value = (uint64_t)value;
    return true;
}

bool call_input(struct call *k, int at, enum slot slot, const char *name)
{
    struct buffer *b = &k->r->buffers[at];
    if (!buffer_get(b, k->slots[slot], k->row->name, name, false, k->said))
        return false;
    k->type = b->type;
    return true;
}

bool call_output(struct call *k, int at, enum slot slot, const char *name)
{
    struct buffer *b = &k->r->buffers[at];
    if (!buffer_get(b, k->slots[slot], k->row->name, name, true, k->said))
        return false;
    k->type = b->type;
    return true;
}

bool call_array(struct call *k, int array, enum slot slot, const char *name, size_t expected)
{
    return !k->slots[slot] || read_sizes(k->slots[slot], k->row->name, name, expected, &k->arrays[array]);
}

static PyObject *type_names(void)
{
    PyObject *module = PyImport_ImportModule("commstream._types");
    PyObject *names = module ? PyObject_GetAttrString(module, "Type") : NULL;
    Py_XDECREF(module);
    return names;
}

bool call_same_type(struct call *k, int a, int b)
{
    const struct buffer *one = &k->r->buffers[a], *other = &k->r->buffers[b];
    if (one->type == other->type)
        return true;
    PyObject *names = type_names();
    PyObject *first = names ? PyObject_CallFunction(names, "i", (int)one->type) : NULL;
    PyObject *second = names ? PyObject_CallFunction(names, "i", (int)other->type) : NULL;
    if (first && second)
        raise_argument(k->row->name, "the buffers have elements of %R and %R; expected the same", first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    Py_XDECREF(names);
    return false;
}

static bool find_target(struct call *k, PyObject *self)
{
    if (inside_refuses(k->row->name))
        return false;
    if (PyObject_TypeCheck(self, window_type)) {
        k->window = (struct window *)self;
        k->comm = k->window->comm;
        k->w = k->window->w;
        if (!k->w)
            raise_closed("window");
        return k->w != NULL;
    }
    k->comm = (struct communicator *)self;
    k->c = k->comm->c;
    if (!k->c)
        raise_closed("communicator");
    return k->c != NULL;
}

/* An argument may be an object whose code ends the target, and while it runs another thread may do so. */
static bool has_ended(const struct call *k)
{
    return k->window ? k->window->w != k->w : k->comm->c != k->c;
}

static void count_user(struct call *k, int change)
{
    k->comm->users += change;
    if (k->window)
        k->window->users += change;
}

static PyObject *issue(struct call *k)
{
    enum comm_result result;
    struct comm_request *req = k->comm->recorded ? NULL : &k->r->request;
    count_user(k, 1);
    WITHOUT_GIL(result = k->row->issue(k, req));
    count_user(k, -1);
    if (result == COMM_OK)
        return request_started(k->r);
    raise_result(result, k->comm->c, k->row->name);
    Py_DECREF(k->r);
    return NULL;
}

/* A collective that is refused here is refused in the library too: so it has its place in the queue, and the other ranks are told. One
 * without arguments has nothing that the library could refuse. */
static void refuse(struct call *k)
{
    struct comm_request req;
    PyObject *type, *value, *trace;
    if (k->row->alone || !k->row->parameters[0].name || has_ended(k))
        return;
    PyErr_Fetch(&type, &value, &trace);
    struct call wrong = {.row = k->row, .c = k->c, .w = k->w, .r = k->r, .root = -1};
    count_user(k, 1);
    WITHOUT_GIL((void)!k->row->issue(&wrong, k->comm->recorded ? NULL : &req));
    count_user(k, -1);
    PyErr_Restore(type, value, trace);
}

PyObject *call_run(const struct row *row, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    struct call k;
    PyObject *answer = NULL;
    memset(&k, 0, sizeof k);
    k.row = row;
    if (!find_target(&k, self))
        return NULL;
    k.r = request_new(row->name, k.comm);
    if (!k.r)
        return NULL;
    bool sound = arguments_parse(row->name, row->parameters, row->required, k.slots, args, count, names) && read_scalars(&k) &&
                 (!row->prepare || row->prepare(&k));
    if (sound && has_ended(&k))
        sound = raise_closed(k.window ? "window" : "communicator") != NULL;
    if (sound)
        answer = issue(&k);
    else {
        refuse(&k);
        Py_DECREF(k.r);
    }
    for (int i = 0; i < ARRAYS; ++i)
        PyMem_Free(k.arrays[i]);
    return answer;
}
