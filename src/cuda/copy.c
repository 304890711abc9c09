/* Copies on this library's streams and on the program's streams, and allocation of device memory. */
#include "cuda/device.h"

enum { SHORT_BYTES = 32768 };

/* ------------------------------------------------------------------------------------------------------------ on our streams */
unsigned cuda_make_stream(struct cuda_device *d, int below, struct CUstream_st **stream)
{
    int least = 0, greatest = 0;
    unsigned result = d->calls->cuCtxGetStreamPriorityRange(&least, &greatest);

    if (result == CUDA_OK)
        result =
            d->calls->cuStreamCreateWithPriority(stream, CUDA_STREAM_NON_BLOCKING, greatest + below < least ? greatest + below : least);
    if (result != CUDA_OK)
        *stream = NULL;
    return result;
}

/* The priority is between that of park streams, which is the highest, and that of the program's streams. So a copy shares no hardware queue
 * with a blocked stream, which may be waiting for this copy.
 * These streams run only copies, so their work always ends. The places of one stream are reached in order, so one counting word serves all.
 */
static unsigned make_copies(struct cuda_device *d, struct cuda_copies *c)
{
    unsigned result = cuda_make_stream(d, 1, &c->stream);

    if (result != CUDA_OK)
        return result;
    c->word = d->memops ? cuda_take_word(d) : 0;
    c->begun = c->word ? atomic_load_explicit(&d->words[c->word], memory_order_relaxed) : 0;
    return CUDA_OK;
}

static enum comm_result place_copies(struct cuda_device *d, struct cuda_copies *c, struct device_place *place)
{
    if (!c->word)
        return cuda_place(d, c->stream, place);
    unsigned result = d->calls->cuStreamWriteValue64(c->stream, cuda_word_there(d, c->word), c->begun + 1, 0);
    if (result == CUDA_OK)
        *place = (struct device_place){&d->words[c->word], ++c->begun};
    return cuda_result(result);
}

static unsigned copy_whole(const struct cuda_calls *calls, enum device_way way, const struct device_piece *p, struct CUstream_st *stream)
{
    (void)way;
    return calls->cuMemcpyAsync((uintptr_t)p->to, (uintptr_t)p->from, p->bytes, stream);
}

/* CUDA has the compute engine write short pieces to the device, and processes that share a device take turns there: such a copy took up to
 * 0.3 ms beside those of one other process. Two rows are copied by the copy engine, in 10 us. */
static unsigned copy_in_two_rows(const struct cuda_calls *calls, const struct device_piece *p, struct CUstream_st *stream)
{
    struct cuda_rows rows = {.from_type = CUDA_MEMORY_HOST,
                             .from_host = p->from,
                             .from_pitch = p->bytes / 2,
                             .to_type = CUDA_MEMORY_DEVICE,
                             .to = (uintptr_t)p->to,
                             .to_pitch = p->bytes / 2,
                             .width = p->bytes / 2,
                             .height = 2};

    return calls->cuMemcpy2DAsync(&rows, stream);
}

static unsigned copy_rows(const struct cuda_calls *calls, enum device_way way, const struct device_piece *p, struct CUstream_st *stream)
{
    if (way == DEVICE_OUT && p->bytes < SHORT_BYTES && p->bytes % 2 == 0)
        return copy_in_two_rows(calls, p, stream);
    return copy_whole(calls, way, p, stream);
}

typedef unsigned copy_fn(const struct cuda_calls *, enum device_way, const struct device_piece *, struct CUstream_st *);

static enum comm_result move(struct cuda_device *d, enum device_way way, copy_fn *copy, const struct device_piece *pieces, uint32_t count,
                             struct device_place *place)
{
    static _Atomic uint64_t nothing;
    struct cuda_copies *c = &d->copies[way];
    unsigned result = c->stream ? CUDA_OK : make_copies(d, c);
    uint32_t begun = 0;

    *place = (struct device_place){&nothing, 0};
    if (result != CUDA_OK)
        return cuda_result(result);
    if (!c->word && !cuda_has_place(d))
        return COMM_ERR_FULL;
    for (; begun < count && result == CUDA_OK; begun += result == CUDA_OK)
        result = copy(d->calls, way, &pieces[begun], c->stream);
    if (!begun)
        return cuda_result(result);
    place->word = NULL;
    enum comm_result placed = place_copies(d, c, place);
    return result == CUDA_OK ? placed : cuda_result(result);
}

static enum comm_result begin_and_move(struct device *device, enum device_way way, copy_fn *copy, const struct device_piece *pieces,
                                       uint32_t count, struct device_place *place)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda_inside inside;

    if (!cuda_begin(d, &inside)) {
        place->word = NULL;
        return COMM_ERR_BACKEND;
    }
    enum comm_result r = move(d, way, copy, pieces, count, place);
    cuda_end(d, &inside);
    return r;
}

enum comm_result cuda_move(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                           struct device_place *place)
{
    return begin_and_move(device, way, copy_rows, pieces, count, place);
}

enum comm_result cuda_move_whole(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                                 struct device_place *place)
{
    return begin_and_move(device, way, copy_whole, pieces, count, place);
}

/* ------------------------------------------------------------------------------------------------------------ memory of the device */
void cuda_hold(struct device *device)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda *p = &cuda_process;

    base_lock(&p->lock, d->env);
    d->references++;
    base_unlock(&p->lock, d->env);
}

void *cuda_take(struct device *device, size_t bytes)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda_inside inside;
    cuda_address memory = 0;

    if (!cuda_enter(d, &inside))
        return NULL;
    if (d->calls->cuMemAlloc(&memory, bytes) != CUDA_OK)
        memory = 0;
    cuda_leave(d, &inside);
    return (void *)(uintptr_t)memory;
}

/* Does not hold the device's lock, because cuMemFree waits for everything on the device. */
void cuda_give(struct device *device, void *memory)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda_inside inside;

    if (!cuda_enter(d, &inside))
        return;
    d->calls->cuMemFree((uintptr_t)memory);
    cuda_leave(d, &inside);
}

enum comm_result cuda_put(struct device *device, struct CUstream_st *stream, void *to, const void *from, size_t bytes)
{
    struct cuda_inside inside;
    enum comm_result r;
    struct cuda_device *d = cuda_begin_on(device, stream, &inside, &r);

    if (!d)
        return r;
    unsigned result = CUDA_OK;
    if (bytes && from)
        result = d->calls->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
    else if (bytes)
        result = d->calls->cuMemsetD8Async((uintptr_t)to, 0, bytes, stream);
    cuda_end(d, &inside);
    return cuda_result(result);
}
