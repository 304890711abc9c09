/* The null device: ordinary memory, whose copies are complete at once. */
#include "wire/device.h"

#include <string.h>

static struct device null_only = {.class = &device_null};
static _Atomic uint64_t null_reached = 1;

static enum comm_result null_open(const struct device_config *config, struct device **device)
{
    (void)config;
    *device = &null_only;
    return COMM_OK;
}

static void null_close(struct device *device)
{
    (void)device;
}

static enum device_kind null_kind(struct device *device, const void *pointer)
{
    (void)device;
    (void)pointer;
    return DEVICE_HOST;
}

static enum comm_result null_pin(struct device *device, void *pointer, size_t bytes)
{
    (void)device;
    (void)pointer;
    (void)bytes;
    return COMM_OK;
}

static void null_unpin(struct device *device, void *pointer)
{
    (void)device;
    (void)pointer;
}

static enum device_kind null_extent(struct device *device, const void *pointer, size_t bytes, size_t *has)
{
    (void)device;
    *has = pointer ? bytes : 0;
    return DEVICE_HOST;
}

static enum comm_result null_move(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                                  struct device_place *place)
{
    (void)device;
    (void)way;
    for (uint32_t i = 0; i < count; i++)
        memmove(pieces[i].to, pieces[i].from, pieces[i].bytes);
    *place = (struct device_place){&null_reached, 1};
    return COMM_OK;
}

static enum comm_result null_record(struct device *device, struct CUstream_st *stream, struct device_place *place)
{
    (void)device;
    (void)stream;
    *place = (struct device_place){&null_reached, 1};
    return COMM_OK;
}

static enum comm_result null_wait(struct device *device, struct CUstream_st *stream, const struct device_place *place)
{
    (void)device;
    (void)stream;
    return atomic_load_explicit(place->word, memory_order_acquire) >= place->value ? COMM_OK : COMM_ERR_UNSUPPORTED;
}

static enum comm_result null_park(struct device *device, struct CUstream_st *stream, struct device_place *place)
{
    (void)device;
    (void)stream;
    (void)place;
    return COMM_ERR_UNSUPPORTED;
}

static bool null_poll(struct device *device)
{
    (void)device;
    return false;
}

static enum comm_result null_where(struct device *device, uint64_t *hardware)
{
    (void)device;
    (void)hardware;
    return COMM_ERR_UNSUPPORTED;
}

const struct device_class device_null = {.name = "null",
                                         .open = null_open,
                                         .close = null_close,
                                         .kind = null_kind,
                                         .pin = null_pin,
                                         .unpin = null_unpin,
                                         .extent = null_extent,
                                         .move = null_move,
                                         .record = null_record,
                                         .wait = null_wait,
                                         .park = null_park,
                                         .where = null_where,
                                         .poll = null_poll};
