/*
 * device: one kind of memory and the streams that work on it. It tells which kind of memory a pointer refers to, and
 * makes a stream, the host and other streams wait for each other. The null device is ordinary memory, which has no
 * streams.
 *
 * A *place* is a point on a stream that the host can see. It is reached when *word >= value, and then stays reached.
 * The word belongs to the device and lives as long as it; copies of a place need no owner. Any thread may call; no call
 * waits for the device to finish work.
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

/* A copy between pinned host memory and a device's memory: IN comes from the device, OUT goes to it. */
enum device_way { DEVICE_IN = 0, DEVICE_OUT = 1, DEVICE_WAYS };
struct device_piece {
    void *to;
    const void *from;
    size_t bytes;
};

struct device_config {
    const struct comm_env *env;
    const struct base_log *log; /* NULL: no log */
    const char *device;         /* "cuda:0"; NULL: by local_rank */
    int32_t local_rank;
    uint32_t reserved;
    char *error_text; /* open writes here what is missing */
    size_t error_text_bytes;
};

struct device_class;
/* Every device begins with this. */
struct device {
    const struct device_class *class;
    bool polled; /* places are updated by `poll`, not by the device itself */
};

struct device_class {
    const char *name;
    /* COMM_OK; or UNSUPPORTED with what is missing, or an error, both with error_text. Each open has its own close;
     * opens share one device. */
    enum comm_result (*open)(const struct device_config *config, struct device **device);
    void (*close)(struct device *device);
    enum device_kind (*kind)(struct device *device, const void *pointer);
    /* Host memory that the device may read and write while the host continues. */
    enum comm_result (*pin)(struct device *device, void *pointer, size_t bytes);
    void (*unpin)(struct device *device, void *pointer);
    /* The same, and how many of the bytes, from the first on, are memory of devices of this process. */
    enum device_kind (*extent)(struct device *device, const void *pointer, size_t bytes, size_t *has);
    /* Copies on a stream of the library's own, one for each way, on which nothing ever waits. *place comes behind all
     * of the copies. The streams are created at the first use and kept. FULL: no copy was begun; try again later. Any
     * other error: *place comes behind the copies that were begun, or its word is NULL if nobody can observe their end. */
    enum comm_result (*move)(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                             struct device_place *place);
    /* In the next three calls the stream tells which of this process's devices is meant; UNSUPPORTED: none that is
     * open. record returns the place behind everything that is on the stream so far. FULL: too many places are not
     * reached yet; nothing happened. */
    enum comm_result (*record)(struct device *device, struct CUstream_st *stream, struct device_place *place);
    /* Work that is put on the stream afterwards runs after the place, which may belong to another device of this
     * process. */
    enum comm_result (*wait)(struct device *device, struct CUstream_st *stream, const struct device_place *place);
    /* Work that is put on the stream afterwards runs after the host has stored `value` into `word`; until then only a
     * stream of the library's own is blocked. It ends without a call to the device. FULL: the maximum number is parked
     * already. UNSUPPORTED: the device cannot do this. */
    enum comm_result (*park)(struct device *device, struct CUstream_st *stream, struct device_place *place);
    /* A number of the hardware, below 2^48: equal for processes of one host that use the same device. UNSUPPORTED:
     * there is no hardware. */
    enum comm_result (*where)(struct device *device, uint64_t *hardware);
    /* Updates places whose words the device does not write itself. True: some may not be reached yet. */
    bool (*poll)(struct device *device);
    /* BACKEND: a fault has stopped the device of this place for good, so the place is never reached. Otherwise COMM_OK. Asks the driver.
     * NULL: a device that cannot stop. */
    enum comm_result (*health)(struct device *device, const struct device_place *place);
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
