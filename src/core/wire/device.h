/*
 * device: one kind of memory and the streams that work on it, for ordering: which memory a pointer is, and how a stream, the host and other
 * streams wait for each other. The null device is ordinary memory, which has no streams.
 *
 * A *place* is a point on a stream that the host can see: reached when *word >= value, and reached for good. Its word belongs to the device
 * and lives as long as that; copies of a place need no owner. Any thread may call; no call blocks for the device's work.
 */
#ifndef WIRE_DEVICE_H
#define WIRE_DEVICE_H

#include <commstream/result.h>

#include "base/env.h"
#include "base/log.h"

enum device_kind { DEVICE_HOST = 0, DEVICE_CUDA = 1 };

struct CUstream_st;

struct device_place {
    _Atomic uint64_t *word;
    uint64_t value;
};

/* A copy between memory of the host that is pinned and a device's: IN comes from the device, OUT goes there. */
enum device_way { DEVICE_IN = 0, DEVICE_OUT = 1, DEVICE_WAYS };
struct device_piece {
    void *to;
    const void *from;
    size_t bytes;
};

struct device_config {
    const struct comm_env *env;
    const struct base_log *log; /* NULL: say nothing */
    const char *device;         /* "cuda:0"; NULL: by local_rank */
    int32_t local_rank;
    uint32_t reserved;
    char *error_text; /* where open says what is missing */
    size_t error_text_bytes;
};

struct device_class;
/* Every device begins with this. */
struct device {
    const struct device_class *class;
    bool polled; /* places are reached when `poll` looks, not by themselves */
};

struct device_class {
    const char *name;
    /* COMM_OK, UNSUPPORTED with the missing piece, or an error, with error_text. Each open is closed once; they share what there is once.
     */
    enum comm_result (*open)(const struct device_config *config, struct device **device);
    void (*close)(struct device *device);
    enum device_kind (*kind)(struct device *device, const void *pointer);
    /* Memory of the host that the device may read and write while the host goes on. */
    enum comm_result (*pin)(struct device *device, void *pointer, size_t bytes);
    void (*unpin)(struct device *device, void *pointer);
    /* Whether all those bytes are memory of devices of this process. */
    bool (*spans)(struct device *device, const void *pointer, size_t bytes);
    /* Copies, on a stream of the library's own for each way, on which nothing ever waits; *place: behind all of them. The streams are made
       at the first use and kept. FULL: none was begun, and some may be later. Any other error: the place is behind what was begun all the
       same, or its word is NULL, where nobody will see the end of that. */
    enum comm_result (*move)(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                             struct device_place *place);
    /* Which stream it is says which of this process's devices is meant, in the next three; UNSUPPORTED: none that is open.
       The place behind everything on the stream so far. FULL: too many are not reached yet; nothing happened. */
    enum comm_result (*record)(struct device *device, struct CUstream_st *stream, struct device_place *place);
    /* What is put on the stream afterwards runs after the place, which may be of another device of this process. */
    enum comm_result (*wait)(struct device *device, struct CUstream_st *stream, const struct device_place *place);
    /* What is put on the stream afterwards runs after the host stored `value` into `word`: until then only a stream of the library's own
       stands still. Ends without a call into the device. FULL: as many are parked as may be. UNSUPPORTED: this device cannot. */
    enum comm_result (*park)(struct device *device, struct CUstream_st *stream, struct device_place *place);
    /* Which piece of hardware it is, below 2^48: the same for processes of one host that have the same one. UNSUPPORTED: it is none. */
    enum comm_result (*where)(struct device *device, uint64_t *hardware);
    /* Looks at places, where their words do not come by themselves; true: some may be unreached still. */
    bool (*poll)(struct device *device);
    /* Memory of the device; all NULL: it has none. hold: one more `close` is due. take: not zeroed, or NULL. give waits for the device's
       work where the driver does. */
    void (*hold)(struct device *device);
    void *(*take)(struct device *device, size_t bytes);
    void (*give)(struct device *device, void *memory);
    /* The stream copies, or with `from` NULL writes zeros; with bytes 0 it is only looked at. UNSUPPORTED: as for `record`. */
    enum comm_result (*put)(struct device *device, struct CUstream_st *stream, void *to, const void *from, size_t bytes);
};

extern const struct device_class device_null;

#endif
