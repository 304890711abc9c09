/*
 * The extension module commstream._core: the C API as Python types. Requests own what an operation uses: buffers, operators and outputs
 * stay alive until the operation is complete, whether or not Python keeps the request. The GIL is released around every call that enters
 * the engine, since an operator or a callback in Python may need it on another thread. Lists and counters of this module are guarded by the
 * GIL.
 */
#ifndef COMMSTREAM_PYTHON_CORE_H
#define COMMSTREAM_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <commstream/commstream.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { BUFFERS = 3, SECOND_NS = 1000000000, SLICE_NS = 100000000 };

/* Memory of a Python object, held until buffer_drop(). */
struct buffer {
    void *data;
    size_t bytes, count; /* count: in elements of `type` */
    enum comm_type type;
    bool of_device; /* by what its object says */
    PyObject *keep; /* what owns the memory if it is not a view: a capsule, or an object with device memory */
    Py_buffer view;
};

/* What the operation of a request leaves behind. */
enum outcome { MAKES_NOTHING, MAKES_STATUS, MAKES_LENGTH, MAKES_FLAGS, MAKES_COMMUNICATOR, MAKES_MESH, MAKES_WINDOW, MAKES_MEMORY };

struct communicator {
    PyObject ob_base;
    struct comm_communicator *c; /* NULL: closed */
    int32_t rank, size;
    int fd;                               /* of the engine; -1: not asked for */
    pid_t pid;                            /* of the process that made it; a child of that has no other threads */
    int users;                            /* threads inside a call that starts an operation */
    int exports;                          /* views of its memory */
    int records;                          /* RECORDS_* */
    PyObject *recorded;                   /* requests of recorded calls; NULL: not a recorder */
    PyObject *parent;                     /* of a recorder */
    PyObject *hooks;                      /* functions that the library calls: log and exchange */
    PyObject *lost;                       /* the first error of requests that were dropped, until sync() raises it */
    struct communicator *next, *previous; /* of the list of open ones */
};
enum { RECORDS_NOTHING, RECORDS_GROUP, RECORDS_PLAN };

struct window {
    PyObject ob_base;
    struct comm_window *w; /* NULL: freed */
    struct communicator *comm;
    PyObject *base; /* the caller's memory */
    int users;      /* threads inside a call on it */
    int exports;
};

struct request {
    PyObject ob_base;
    struct comm_request request;
    struct request *next, *previous; /* of the list of operations that may be running */
    struct communicator *comm;
    const char *operation;
    PyObject *keep;          /* operators, plans, hooks and the like */
    PyObject *value;         /* what result() returns */
    PyObject *error;         /* what it failed with */
    bool done, listed, busy; /* busy: on its way to done */
    enum outcome outcome;
    union {
        struct comm_status status;
        size_t length;
        uint64_t flags;
        struct comm_communicator *comm;
        struct comm_communicator **mesh; /* of the heap */
        struct comm_window *window;
        struct {
            void *data;
            size_t bytes;
        } memory;
    } out;
    int32_t axes;
    struct buffer buffers[BUFFERS];
};

/* The types; classes of Python replace the first three (module.c). */
extern PyTypeObject *communicator_type, *window_type, *request_type, *operator_type, *event_type, *plan_type, *buckets_type, *memory_type;
extern PyObject *make_error;  /* make_error(result, fields) of commstream._errors */
extern PyObject *status_type; /* commstream.Status */

/* errors.c */
PyObject *raise_result(enum comm_result result, struct comm_communicator *c, const char *operation);
PyObject *raise_argument(const char *operation, const char *format, ...);
PyObject *raise_closed(const char *what);
PyObject *raise_state(const char *operation, const char *text);
PyObject *raise_unfinished(void); /* by a close; the result's own words are those of an operation's deadline */
PyObject *error_fields(struct comm_communicator *c);
PyObject *read_text(const char *text); /* of the library's; a path or a value in it may be no UTF-8. NULL: None */

/* buffer.c */
bool buffer_get(struct buffer *b, PyObject *object, const char *operation, const char *name, bool writable, int type);
void buffer_drop(struct buffer *b);

/* arguments.c */
struct parameter {
    const char *name;
    int slot;
};
bool arguments_parse(const char *operation, const struct parameter *parameters, int required, PyObject **slots, PyObject *const *args,
                     Py_ssize_t count, PyObject *names);
PyObject *raise_kind(const char *operation, const char *name, PyObject *object, const char *expected); /* a TypeError */
/* `expected`: what the argument is, for the error. */
bool read_number(PyObject *object, const char *operation, const char *name, const char *expected, int64_t low, int64_t high,
                 int64_t *value);
bool read_int64(PyObject *object, const char *operation, const char *name, int64_t low, int64_t high, int64_t *value);
bool read_timeout(PyObject *object, int64_t *ns);
bool read_stream(PyObject *object, const char *operation, struct CUstream_st **stream);
bool read_sizes(PyObject *object, const char *operation, const char *name, size_t expected, size_t **values);
bool read_operator(PyObject *object, const char *operation, comm_op *op, bool *custom);
bool operator_takes_bytes(PyObject *object); /* false: a pre-multiplied sum, which takes its own type */

/* request.c */
struct request *request_new(const char *operation, struct communicator *comm);
PyObject *request_started(struct request *r);
void request_sweep_all(void);
PyObject *request_finish(struct request *r, enum comm_result result);
Py_ssize_t request_count(void);
bool request_completing(void);

/* Waits in slices, so that signals are handled: 0 and an exception if a handler raised one. */
typedef enum comm_result wait_fn(void *what, int64_t timeout_ns);
bool wait_sliced(wait_fn *fn, void *what, int64_t timeout_ns, enum comm_result *result);
bool parse_timeout(PyObject *args, PyObject *words, int64_t *ns);
PyObject *wait_answer(enum comm_result result, struct comm_communicator *c, const char *operation);

/* aside.c */
typedef void aside_fn(void *what);
void aside_drop(aside_fn *drop_it, void *what);
bool aside_may(const struct communicator *comm);
bool aside_run(bool may, aside_fn *fn, aside_fn *left, void *what);

/* notify.c */
void notify_run(void);
void notify_later(void);

/* inside.c */
bool inside_operator(void);
void inside_enter(void);
void inside_leave(void);
bool inside_refuses(const char *operation);
bool inside_postpone(PyObject *object, size_t bytes);
bool inside_has_postponed(void);
void inside_drop_postponed(void);

/* recorder.c */
PyObject *plan_recorded(PyObject *plan); /* a list: requests, and what keeps events */

/* communicator.c, window.c */
PyObject *communicator_wrap(struct comm_communicator *c, PyObject *hooks);
PyObject *window_wrap(struct comm_window *w, struct communicator *comm, PyObject *base);
PyObject *memory_part(void *data, size_t bytes, PyObject *owner, int *exports);
PyObject *memory_part_of_device(void *data, size_t bytes, PyObject *owner, int *exports);
bool memory_of_device(PyObject *object);
void memory_count(PyObject *object, int change);
PyObject *communicator_take_lost(struct communicator *comm, bool engine);
bool communicator_forked(const struct communicator *comm);
bool buckets_alive(PyObject *buckets);
struct comm_communicator *communicator_of(PyObject *object, const char *operation);

/* Functions of the module that other files than module.c have. */
PyObject *notify(PyObject *module, PyObject *args);
PyObject *wait_many(PyObject *module, PyObject *args);
PyObject *memory_alloc(PyObject *module, PyObject *args);
PyObject *memory_wrap(void *data, size_t bytes, struct communicator *comm); /* memory that comm_mem_free frees */
PyObject *operator_create(PyObject *module, PyObject *args);
PyObject *premul_sum_create(PyObject *module, PyObject *args);
PyObject *buckets_create(PyObject *module, PyObject *args);
PyObject *event_create(PyObject *module, PyObject *comm);
PyObject *group_begin(PyObject *module, PyObject *comm);
PyObject *plan_begin(PyObject *module, PyObject *comm);
PyObject *recorder_end(PyObject *module, PyObject *recorder);
PyObject *recorder_bind(PyObject *module, PyObject *type);
PyObject *queue_wait_event(PyObject *module, PyObject *args);
PyObject *queue_wait_request(PyObject *module, PyObject *args);
PyObject *queue_wait_stream(PyObject *module, PyObject *args);
PyObject *stream_wait(PyObject *module, PyObject *args);
PyObject *stream_of_communicator(PyObject *module, PyObject *comm);
#define METHOD_WORDS(function) (PyCFunction)(void (*)(void)) function, METH_VARARGS | METH_KEYWORDS
extern PyMethodDef inspect_methods[], open_methods[];

/* The types' specifications, one file each. */
extern PyType_Spec communicator_spec, window_spec, request_spec, operator_spec, event_spec, plan_spec, buckets_spec, memory_spec;
extern PyMethodDef collective_methods[], collective_v_methods[], message_methods[], window_call_methods[];

#define WITHOUT_GIL(statement)                                                                                                             \
    do {                                                                                                                                   \
        Py_BEGIN_ALLOW_THREADS;                                                                                                            \
        statement;                                                                                                                         \
        Py_END_ALLOW_THREADS;                                                                                                              \
    } while (0)

#endif
