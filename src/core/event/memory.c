/* Device memory for rooms that use only the public calls (base/device_memory.h). The device's class provides it. */
#include "event/event.h"

#include "base/device_memory.h"
#include "comm/state.h"
#include "staging/staging.h"

bool base_heap_is_on_device(struct comm_communicator *c, const void *at)
{
    enum comm_result r;
    char text[256] = "";
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return false;
    struct engine *e = b->unit.engine;
    bool maybe = state_is_foreign(b, at), is = b->library_work.flags && state_is_device_memory(b, at);
    engine_hold(e);
    state_unlock(b);
    if (maybe) /* the driver may fail on this thread, so ask the device; if it cannot be opened, the CPU must not touch the memory */
        is = !staging_device(e, &r, text, sizeof text) || staging_is_device(e, at);
    engine_drop(e);
    return is;
}

static struct device *find(struct comm_communicator *c, enum comm_result *r)
{
    struct CUstream_st *stream = NULL;
    struct device *d = NULL;
    char text[256] = "";
    struct comm_state *b = state_lock(c, r);

    if (!b)
        return NULL;
    struct engine *e = b->unit.engine;
    if (b->native && b->library_work.flags & NATIVE_STREAM) /* each rank of a process may have its own device */
        d = b->native->native->class->stream(b->native, NULL, &stream);
    engine_hold(e);
    state_unlock(b);
    if (!d)
        d = staging_device(e, r, text, sizeof text);
    if (!d)
        (void)!engine_decline(c, *r, NULL, "buckets: %s", text);
    engine_drop(e);
    return d;
}

enum comm_result base_heap_device_find(struct comm_communicator *c, struct device **device)
{
    enum comm_result r = COMM_ERR_UNSUPPORTED;
    struct device *d = find(c, &r);

    if (!d)
        return r;
    if (!d->class->hold)
        return COMM_ERR_UNSUPPORTED;
    d->class->hold(d);
    *device = d;
    return COMM_OK;
}

void base_heap_device_drop(struct device *device)
{
    if (device)
        device->class->close(device);
}

void *base_heap_device_take(struct device *device, size_t bytes)
{
    return device->class->take(device, bytes);
}

void base_heap_device_give(struct device *device, void *memory)
{
    if (memory)
        device->class->give(device, memory);
}

enum comm_result base_heap_device_put(struct device *device, struct CUstream_st *stream, void *to, const void *from, size_t bytes)
{
    return device->class->put(device, stream, to, from, bytes);
}
