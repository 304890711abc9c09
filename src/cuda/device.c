/* The life of devices: each is found by its name and opened once per process, and later opens share it. class.c has what the library asks
 * of an open one. */
#include "cuda/kernels.h"

#include "base/format.h"

#include <string.h>

enum { REST_NS = 1000000000, LOOK_NS = 200000 };

struct cuda cuda_process;

enum comm_result cuda_load(const struct comm_env *env, bool with_nccl, char *why, size_t why_bytes)
{
    struct cuda *p = &cuda_process;
    enum comm_result r = COMM_OK;

    base_lock(&p->lock, env);
    if (!p->env) /* once: other threads read it without the lock */
        p->env = env;
    if (!p->has_driver)
        r = cuda_load_driver(&cuda_source_system, &p->calls, &p->devices, why, why_bytes);
    p->has_driver = p->has_driver || r == COMM_OK;
    if (r == COMM_OK && with_nccl && !p->has_nccl) {
        r = cuda_load_nccl(&cuda_source_system, &p->nccl, &p->nccl_version, why, why_bytes);
        p->has_nccl = r == COMM_OK;
    }
    base_unlock(&p->lock, env);
    return r;
}

enum comm_result cuda_result(unsigned result)
{
    if (result == CUDA_OK)
        return COMM_OK;
    if (result == CUDA_OUT_OF_MEMORY)
        return COMM_ERR_MEMORY;
    return result == CUDA_NOT_SUPPORTED ? COMM_ERR_UNSUPPORTED : COMM_ERR_BACKEND;
}

/* ------------------------------------------------------------------------------------------------------------ inside a context */
bool cuda_enter(struct cuda_device *d, struct cuda_inside *inside)
{
    inside->mode = CUDA_CAPTURE_RELAXED;
    if (d->calls->cuCtxPushCurrent(d->context) != CUDA_OK)
        return false;
    if (d->calls->cuThreadExchangeStreamCaptureMode(&inside->mode) != CUDA_OK)
        inside->mode = CUDA_CAPTURE_RELAXED; /* then cuda_leave restores nothing */
    return true;
}

void cuda_leave(struct cuda_device *d, const struct cuda_inside *inside)
{
    struct CUctx_st *mine;
    unsigned mode = inside->mode;

    if (mode != CUDA_CAPTURE_RELAXED)
        d->calls->cuThreadExchangeStreamCaptureMode(&mode);
    d->calls->cuCtxPopCurrent(&mine);
}

/* ------------------------------------------------------------------------------------------------------------ opening */
static bool parse_name(const struct device_config *config, int devices, int32_t *ordinal)
{
    const char *name = config->device, *prefix = "cuda:";
    uint64_t value = 0;

    if (!name || !*name) {
        *ordinal = config->local_rank % devices;
        return true;
    }
    if (strncmp(name, prefix, strlen(prefix)) == 0 && base_parse_u64(name + strlen(prefix), &value) && value < (uint64_t)devices &&
        value < CUDA_DEVICES) {
        *ordinal = (int32_t)value;
        return true;
    }
    base_format(config->error_text, config->error_text_bytes, "device=%s; expected cuda:0 to cuda:%d", name, devices - 1);
    return false;
}

static unsigned make_words(struct cuda_device *d)
{
    size_t bytes = (CUDA_SLOTS + CUDA_WORDS + CUDA_PARKS) * sizeof *d->words;
    void *memory = NULL;
    unsigned result = d->calls->cuMemHostAlloc(&memory, bytes, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);

    if (result != CUDA_OK)
        return result;
    d->words = memory;
    memset(memory, 0, bytes);
    result = d->calls->cuMemHostGetDevicePointer(&d->words_there, memory, 0);
    return result == CUDA_OK ? d->calls->cuMemAlloc(&d->scratch, CUDA_SCRATCH_BYTES + CUDA_WORDS * CUDA_COUNTERS_BYTES) : result;
}

/* Returns false if the context could not be entered; then nothing was freed. */
static bool forget(struct cuda_device *d)
{
    const struct cuda_calls *calls = d->calls;
    struct cuda_inside inside;

    if (d->context && !cuda_enter(d, &inside))
        return false;
    if (d->context) {
        for (uint32_t i = 0; i < CUDA_SLOTS; i++)
            if (d->slot[i].event)
                calls->cuEventDestroy(d->slot[i].event);
        for (uint32_t i = 0; i < CUDA_PARKS; i++) {
            if (d->park[i].event)
                calls->cuEventDestroy(d->park[i].event);
            if (d->park[i].stream)
                calls->cuStreamDestroy(d->park[i].stream);
        }
        for (uint32_t i = 0; i < DEVICE_WAYS; i++)
            if (d->copies[i].stream)
                calls->cuStreamDestroy(d->copies[i].stream);
        cuda_unload_kernels(d);
        if (d->scratch)
            calls->cuMemFree(d->scratch);
        if (d->words)
            calls->cuMemFreeHost((void *)d->words);
        cuda_leave(d, &inside);
        calls->cuDevicePrimaryCtxRelease(d->ordinal);
    }
    d->env->give(d->env, d, sizeof *d);
    return true;
}

static enum comm_result make_device(const struct device_config *config, int32_t ordinal, struct cuda_device **made)
{
    const struct comm_env *env = config->env;
    struct cuda_device *d = env->take(env, sizeof *d, 64);
    struct cuda_inside inside;
    int device = 0, has_memops = 0;

    if (!d)
        return COMM_ERR_MEMORY;
    d->head.class = &device_cuda;
    d->env = env;
    d->calls = &cuda_process.calls;
    unsigned result = d->calls->cuDeviceGet(&device, ordinal);
    d->ordinal = device;
    if (result == CUDA_OK)
        result = d->calls->cuDevicePrimaryCtxRetain(&d->context, device);
    if (result == CUDA_OK)
        result = d->calls->cuDeviceGetAttribute(&has_memops, CUDA_ATTRIBUTE_MEMOPS_64, device);
    d->memops = has_memops != 0;
    d->head.polled = !d->memops;
    if (result == CUDA_OK && cuda_enter(d, &inside)) {
        result = make_words(d);
        cuda_leave(d, &inside);
    } else if (result == CUDA_OK) {
        result = CUDA_INVALID_CONTEXT;
    }
    if (result != CUDA_OK) {
        base_format(config->error_text, config->error_text_bytes, "cuda:%d cannot be used: CUDA error %u", ordinal, result);
        if (!forget(d)) {
            d->calls->cuDevicePrimaryCtxRelease(d->ordinal);
            env->give(env, d, sizeof *d);
        }
        return cuda_result(result) == COMM_ERR_UNSUPPORTED ? COMM_ERR_BACKEND : cuda_result(result);
    }
    *made = d;
    return COMM_OK;
}

enum comm_result cuda_open(const struct device_config *config, struct device **device)
{
    struct cuda *p = &cuda_process;
    enum comm_result r = cuda_load(config->env, false, config->error_text, config->error_text_bytes);
    int32_t ordinal = 0;

    if (r != COMM_OK)
        return r;
    if (!parse_name(config, p->devices, &ordinal))
        return COMM_ERR_CONFIG;
    base_lock(&p->lock, config->env);
    struct cuda_device *d = atomic_load_explicit(&p->device[ordinal], memory_order_relaxed);
    if (!d)
        r = make_device(config, ordinal, &d);
    if (r == COMM_OK) {
        d->references++;
        atomic_store_explicit(&p->device[ordinal], d, memory_order_release);
        *device = &d->head;
    }
    base_unlock(&p->lock, config->env);
    return r;
}

/* Returns false while a copy is under way. */
static bool copies_rest(const struct cuda_device *d)
{
    for (uint32_t i = 0; i < DEVICE_WAYS; i++)
        if (d->copies[i].word && atomic_load_explicit(&d->words[d->copies[i].word], memory_order_acquire) < d->copies[i].begun)
            return false;
    return true;
}

/* Returns true when no stream will write the words any more. Releases the remaining parks, whose streams would otherwise wait for ever. */
static bool quiet(struct cuda_device *d)
{
    struct cuda_inside inside;
    bool is_quiet = false;

    base_lock(&d->lock, d->env);
    for (uint32_t i = 0; i < CUDA_SLOTS; i++)
        if (d->slot[i].host_writes)
            atomic_store_explicit(&d->words[i], d->slot[i].value, memory_order_release);
    if (cuda_enter(d, &inside)) {
        is_quiet = !cuda_poll(d) && copies_rest(d);
        cuda_leave(d, &inside);
    }
    base_unlock(&d->lock, d->env);
    return is_quiet;
}

/* Gives the last owner's reference back. If nobody has opened the device meanwhile and it is quiet, takes it out of the table, so that it
 * is freed without a lock: freeing memory waits for everything on the device, the program's kernels included. Otherwise returns less than
 * 0. */
static int32_t take_off(struct cuda_device *d)
{
    struct cuda *p = &cuda_process;
    int32_t at = -1;

    base_lock(&p->lock, d->env);
    if (--d->references == 0 && quiet(d))
        for (at = CUDA_DEVICES - 1; at >= 0 && atomic_load_explicit(&p->device[at], memory_order_relaxed) != d;)
            at--;
    if (at >= 0)
        atomic_store_explicit(&p->device[at], NULL, memory_order_release);
    base_unlock(&p->lock, d->env);
    return at;
}

/* Freeing waits for everything on the device, without a bound. So a separate thread does it. If that takes long, the thread is left behind,
 * with the device and this structure. */
struct forgetting {
    struct cuda_device *d;
    int32_t at;
    struct env_thread thread;
};

static void forget_thread(void *arg)
{
    struct forgetting *f = arg;
    struct cuda *p = &cuda_process;

    if (forget(f->d))
        return;
    base_lock(&p->lock, p->env); /* put it back for the next open; if another was made meanwhile, this one is left behind */
    if (!atomic_load_explicit(&p->device[f->at], memory_order_relaxed))
        atomic_store_explicit(&p->device[f->at], f->d, memory_order_release);
    base_unlock(&p->lock, p->env);
}

static void forget_within(struct cuda_device *d, int32_t at, int64_t ns)
{
    const struct comm_env *env = d->env;
    struct forgetting *f = env->take(env, sizeof *f, 64);

    if (!f)
        return; /* no memory for the thread: the device is left behind */
    *f = (struct forgetting){.d = d, .at = at};
    if (env->spawn(env, forget_thread, f, &f->thread)) {
        forget_thread(f);
        env->give(env, f, sizeof *f);
        return;
    }
    if (env->join(env, &f->thread, env->now(env) + ns))
        env->give(env, f, sizeof *f);
}

/* The last owner closes the device. The streams get a moment to finish. A device that is not idle by then is kept, because its streams
 * still write to the words. The owner keeps its reference meanwhile, so another thread that opens and closes the device does not free it.
 */
static void retire(struct cuda_device *d)
{
    const struct comm_env *env = d->env;
    int64_t until = env->now(env) + REST_NS;
    _Atomic uint32_t never = 0;

    while (!quiet(d) && env->now(env) < until)
        env->park(env, &never, 0, env->now(env) + LOOK_NS);
    int32_t at = take_off(d);
    if (at >= 0)
        forget_within(d, at, REST_NS);
}

void cuda_close(struct device *device)
{
    struct cuda_device *d = (struct cuda_device *)(void *)device;
    struct cuda *p = &cuda_process;

    base_lock(&p->lock, d->env);
    bool last = d->references == 1;
    d->references -= !last;
    base_unlock(&p->lock, d->env);
    if (last)
        retire(d);
}

/* ------------------------------------------------------------------------------------------------------------ the device of a stream */
/* Returns the open device of the stream's context. The default streams (NULL, 1 and 2) belong to the thread's current context. If there is
 * none, it returns `asked`. */
static struct cuda_device *device_of(struct cuda_device *asked, struct CUstream_st *stream)
{
    struct CUctx_st *context = NULL;

    if (asked->calls->cuStreamGetCtx(stream, &context) != CUDA_OK)
        return (uintptr_t)stream > CUDA_STREAM_PER_THREAD ? NULL : asked;
    for (int i = 0; i < CUDA_DEVICES; i++) {
        struct cuda_device *d = atomic_load_explicit(&cuda_process.device[i], memory_order_acquire);
        if (d && d->context == context)
            return d;
    }
    return NULL;
}

/* An event recorded on a stream that is being captured cannot be queried by the host. */
static bool captured(const struct cuda_device *d, struct CUstream_st *stream)
{
    unsigned status = CUDA_CAPTURE_NONE;

    return d->calls->cuStreamIsCapturing(stream, &status) != CUDA_OK || status != CUDA_CAPTURE_NONE;
}

bool cuda_begin(struct cuda_device *d, struct cuda_inside *inside)
{
    base_lock(&d->lock, d->env);
    if (cuda_enter(d, inside))
        return true;
    base_unlock(&d->lock, d->env);
    return false;
}

void cuda_end(struct cuda_device *d, const struct cuda_inside *inside)
{
    cuda_leave(d, inside);
    base_unlock(&d->lock, d->env);
}

struct cuda_device *cuda_begin_on(struct device *device, struct CUstream_st *stream, struct cuda_inside *inside, enum comm_result *r)
{
    struct cuda_device *d = device_of((struct cuda_device *)(void *)device, stream);

    *r = d ? COMM_ERR_BACKEND : COMM_ERR_UNSUPPORTED;
    if (!d || !cuda_begin(d, inside))
        return NULL;
    if (!captured(d, stream))
        return d;
    cuda_end(d, inside);
    *r = COMM_ERR_UNSUPPORTED;
    return NULL;
}
