/* The device of an engine. It is opened once, when a stream or a device buffer is first used. */
#include "staging/staging.h"

#include "wire/module.h"

struct device *staging_device(struct engine *e, enum comm_result *why, char *text, size_t bytes)
{
    struct device *made = atomic_load_explicit(&e->streams.device, memory_order_acquire), *none = NULL;

    *why = COMM_OK;
    if (BASE_LIKELY(made != NULL))
        return made;
    const struct module_interface *handle = module_load(e->env, "cuda", text, bytes);
    struct device_config config = {.env = e->env,
                                   .log = &e->log,
                                   .device = e->streams.device_name[0] ? e->streams.device_name : NULL,
                                   .local_rank = e->streams.local_rank,
                                   .error_text = text,
                                   .error_text_bytes = bytes};
    *why = handle && handle->device ? handle->device->open(&config, &made) : COMM_ERR_UNSUPPORTED;
    if (*why != COMM_OK)
        return NULL;
    if (atomic_compare_exchange_strong(&e->streams.device, &none, made))
        return made;
    made->class->close(made); /* another thread was first; both opened the same device */
    return none;
}

bool staging_is_device(struct engine *e, const void *at)
{
    struct device *d = atomic_load_explicit(&e->streams.device, memory_order_acquire);

    return d && at && d->class->kind(d, at) != DEVICE_HOST;
}

bool staging_is_extent(struct engine *e, const void *at, size_t bytes, bool *all)
{
    struct device *d = atomic_load_explicit(&e->streams.device, memory_order_acquire);
    size_t has = 0;
    bool is = d && at && d->class->extent(d, at, bytes, &has) != DEVICE_HOST;

    *all = has == bytes;
    return is;
}

bool staging_close_device(struct engine *e)
{
    struct device *d = atomic_load_explicit(&e->streams.device, memory_order_acquire);

    if (d)
        d->class->close(d);
    return true;
}
