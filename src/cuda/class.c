/* What the library asks of an open device: whose memory an address is, places on streams, and which hardware it is. */
#include "cuda/buffers.h"

/* ------------------------------------------------------------------------------------------------------------ memory */
/* The driver moves managed memory by itself, so it counts as the host's. What it does not tell the CPU must not access. */
static enum device_kind kind_of(const struct cuda_memory *is)
{
    return is->owner == CUDA_OWNER_HOST || is->managed ? DEVICE_HOST : DEVICE_CUDA;
}

static enum device_kind class_kind(struct device *device, const void *pointer)
{
    struct cuda_memory is = cuda_ask((struct cuda_device *)(void *)device, pointer);

    return kind_of(&is);
}

static enum device_kind class_extent(struct device *device, const void *pointer, size_t bytes, size_t *has)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda_memory is = cuda_ask(d, pointer);

    *has = cuda_bytes_of(d, &is, pointer, bytes, CUDA_OWNER_ANY);
    return kind_of(&is);
}

/* These two do not hold the device's lock. CUDA may wait for all work of the device here, which may need a copy of another communicator. */
static enum comm_result class_pin(struct device *device, void *pointer, size_t bytes)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda_inside inside;

    if (!cuda_enter(d, &inside))
        return COMM_ERR_BACKEND;
    enum comm_result r = cuda_result(d->calls->cuMemHostRegister(pointer, bytes, CUDA_REGISTER_PORTABLE | CUDA_REGISTER_MAPPED));
    cuda_leave(d, &inside);
    return r;
}

static void class_unpin(struct device *device, void *pointer)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda_inside inside;

    if (!cuda_enter(d, &inside))
        return;
    d->calls->cuMemHostUnregister(pointer);
    cuda_leave(d, &inside);
}

/* ------------------------------------------------------------------------------------------------------------ places */
/* Finds the device of the stream and does `what` there. */
static enum comm_result on_stream(struct device *device, struct CUstream_st *stream, struct device_place *place,
                                  enum comm_result (*what)(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place))
{
    struct cuda_inside inside;
    enum comm_result r;
    struct cuda_device *d = cuda_begin_on(device, stream, &inside, &r);

    if (!d)
        return r;
    r = what(d, stream, place);
    cuda_end(d, &inside);
    return r;
}

static enum comm_result class_record(struct device *device, struct CUstream_st *stream, struct device_place *place)
{
    return on_stream(device, stream, place, cuda_place);
}

static enum comm_result wait_here(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place)
{
    return cuda_wait(d, stream, place);
}

static enum comm_result class_wait(struct device *device, struct CUstream_st *stream, const struct device_place *place)
{
    struct device_place copy = *place;

    return on_stream(device, stream, &copy, wait_here);
}

static enum comm_result class_park(struct device *device, struct CUstream_st *stream, struct device_place *place)
{
    return on_stream(device, stream, place, cuda_park);
}

static bool poll_one(struct cuda_device *d)
{
    struct cuda_inside inside;

    if (atomic_load_explicit(&d->pending, memory_order_relaxed) == 0)
        return false;
    if (!cuda_begin(d, &inside))
        return true;
    bool more = cuda_poll(d);
    cuda_end(d, &inside);
    return more;
}

/* Polls all open devices, because an event of this engine may belong to any of them. The process's lock keeps devices from being freed. */
static bool class_poll(struct device *device)
{
    struct cuda *p = &cuda_process;
    bool more = false;

    (void)device;
    base_lock(&p->lock, p->env);
    for (int i = 0; i < CUDA_DEVICES; i++) {
        struct cuda_device *d = atomic_load_explicit(&p->device[i], memory_order_relaxed);
        if (d && d->head.polled)
            more |= poll_one(d);
    }
    base_unlock(&p->lock, p->env);
    return more;
}

/* False: the device runs, or this thread may not ask now. It is inside a host function (CUDA_ERROR_NOT_PERMITTED), or a stream is being
 * captured (the errors from 900 on). */
static bool says_stopped(unsigned result)
{
    enum { NOT_PERMITTED = 800, CAPTURE_FIRST = 900, CAPTURE_LAST = 908 };

    return result != CUDA_OK && result != CUDA_NOT_READY && result != NOT_PERMITTED && (result < CAPTURE_FIRST || result > CAPTURE_LAST);
}

static unsigned ask_device(struct cuda_device *d)
{
    struct CUstream_st *stream = d->copies[DEVICE_IN].stream ? d->copies[DEVICE_IN].stream : d->copies[DEVICE_OUT].stream;
    struct CUctx_st *mine;
    struct cuda_inside inside;
    unsigned result = d->calls->cuCtxPushCurrent(d->context);

    if (result != CUDA_OK)
        return result;
    d->calls->cuCtxPopCurrent(&mine);
    if (!cuda_enter(d, &inside))
        return CUDA_OK;
    if (stream)
        result = d->calls->cuStreamQuery(stream);
    else if (d->pending_first)
        result = d->calls->cuEventQuery(d->slot[d->pending_first - 1].event);
    cuda_leave(d, &inside);
    return result;
}

/* Nothing tells the host that a kernel has failed: the streams stop, and from then on each call in the context returns the error. The
 * caller has locks that the release of a park may need, and the driver lets some calls in only when all streams have ended. So nobody is
 * asked while a park stands, and no lock is waited for: the next look asks again. */
static enum comm_result class_health(struct device *device, const struct device_place *place)
{
    struct cuda *p = &cuda_process;
    bool stopped = false;

    (void)device;
    if (!base_trylock(&p->lock))
        return COMM_OK;
    for (int i = 0; i < CUDA_DEVICES; i++) {
        struct cuda_device *d = atomic_load_explicit(&p->device[i], memory_order_relaxed);
        bool is_there = d && place->word >= d->words && place->word < d->words + CUDA_SLOTS + CUDA_WORDS;
        if (!is_there || !base_trylock(&d->lock))
            continue;
        stopped = !cuda_has_parks(d) && says_stopped(ask_device(d));
        base_unlock(&d->lock, p->env);
    }
    base_unlock(&p->lock, p->env);
    return stopped ? COMM_ERR_BACKEND : COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ the hardware */
/* Identifies the device by its PCI address, such as "0000:41:00.0". CUDA ordinals do not identify it, because CUDA_VISIBLE_DEVICES may
 * number the devices differently in each process. */
enum comm_result cuda_hardware(const struct cuda_calls *calls, int ordinal, uint64_t *hardware)
{
    static const unsigned char widths[] = {8, 5, 3}; /* bits of bus, device, function; the domain takes the 32 bits above */
    char bus[32] = "";
    uint64_t all = 0, part = 0;
    uint32_t parts = 0;

    if (calls->cuDeviceGetPCIBusId(bus, sizeof bus, ordinal) != CUDA_OK)
        return COMM_ERR_BACKEND;
    for (const char *c = bus; parts <= 3; c++) {
        int digit = *c >= '0' && *c <= '9' ? *c - '0' : (*c | 32) >= 'a' && (*c | 32) <= 'f' ? (*c | 32) - 'a' + 10 : -1;
        if (digit >= 0) {
            part = part << 4 | (uint64_t)digit;
            continue;
        }
        if (*c && *c != ':' && *c != '.')
            return COMM_ERR_BACKEND;
        all = parts ? all << widths[parts - 1] | part : part & UINT32_MAX;
        part = 0;
        parts++;
        if (!*c)
            break;
    }
    *hardware = all;
    return parts == 4 ? COMM_OK : COMM_ERR_BACKEND;
}

static enum comm_result class_where(struct device *device, uint64_t *hardware)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;

    return cuda_hardware(d->calls, d->ordinal, hardware);
}

const struct device_class device_cuda = {.name = "cuda",
                                         .open = cuda_open,
                                         .close = cuda_close,
                                         .kind = class_kind,
                                         .pin = class_pin,
                                         .unpin = class_unpin,
                                         .extent = class_extent,
                                         .move = cuda_move,
                                         .record = class_record,
                                         .wait = class_wait,
                                         .park = class_park,
                                         .where = class_where,
                                         .poll = class_poll,
                                         .health = class_health,
                                         .hold = cuda_hold,
                                         .take = cuda_take,
                                         .give = cuda_give,
                                         .put = cuda_put};
