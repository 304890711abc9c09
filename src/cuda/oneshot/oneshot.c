/* The native backend cuda: probe, open and close, and its class. */
#include "cuda/oneshot/oneshot.h"

#include "base/format.h"
#include "cuda/kernels.h"

static const int64_t end_ns = 1000000000, look_ns = 200000;

/* The module is of the library's version, and the kernel is the module's: nothing else could differ between ranks. */
static enum comm_result class_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    enum comm_result r = cuda_load(config->env, false, config->error_text, config->error_text_bytes);

    if (r == COMM_OK)
        base_copy_text(version, NATIVE_VERSION_BYTES, "CUDA driver");
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ opening and closing */
static void free_world(struct oneshot *n)
{
    oneshot_free_boxes(n);
    oneshot_free_slots(n);
    for (int32_t i = 0; n->device && i < n->here; i++)
        if (n->device[i])
            device_cuda.close(&n->device[i]->head);
    env_give_back(n->env, n->device, (size_t)n->here * sizeof *n->device);
    env_give_back(n->env, n->shared, (size_t)n->here * sizeof *n->shared);
    env_give_back(n->env, n->sent, (size_t)n->ranks * sizeof *n->sent);
    n->env->give(n->env, n, sizeof *n);
}

/* Opens the device of a rank and loads the kernels, since a call that makes a communicator may not block. */
static enum comm_result open_device(struct oneshot *n, const struct native_config *config, int32_t index)
{
    const char *name = config->devices && config->rank < 0 ? config->devices[index] : config->device;
    struct device_config of = {.env = n->env,
                               .log = n->log,
                               .device = name,
                               .local_rank = config->rank < 0 ? index : config->local_rank,
                               .error_text = config->error_text,
                               .error_text_bytes = config->error_text_bytes};
    struct device *opened = NULL;
    struct cuda_inside inside;
    enum comm_result r = device_cuda.open(&of, &opened);

    if (r != COMM_OK)
        return r;
    n->device[index] = (struct cuda_device *)(void *)opened;
    if (!cuda_enter(n->device[index], &inside))
        return COMM_ERR_BACKEND;
    cuda_load_kernels(n->device[index]);
    cuda_leave(n->device[index], &inside);
    return COMM_OK;
}

static enum comm_result class_open(const struct native_config *config, struct native **native)
{
    const struct comm_env *env = config->env;
    struct oneshot *n = env->take(env, sizeof *n, 64);
    struct env_identity identity;
    enum comm_result r = COMM_OK;

    if (!n)
        return COMM_ERR_MEMORY;
    env->identity(env, &identity);
    *n = (struct oneshot){.head = {.class = &native_oneshot, .flags = NATIVE_DEVICE},
                          .env = env,
                          .log = config->log,
                          .host = identity.host_id,
                          .place = identity.place_id,
                          .rank = config->rank,
                          .here = config->rank < 0 ? config->ranks : 1,
                          .ranks = config->ranks,
                          .post.socket = -1};
    n->device = env->take(env, (size_t)n->here * sizeof *n->device, 64);
    n->shared = env->take(env, (size_t)n->here * sizeof *n->shared, 64);
    n->sent = env->take(env, (size_t)n->ranks * sizeof *n->sent, 64);
    if (!n->device || !n->shared || !n->sent)
        r = COMM_ERR_MEMORY;
    for (int32_t i = 0; i < n->here && r == COMM_OK; i++)
        r = open_device(n, config, i);
    for (int32_t i = 0; i < n->here && r == COMM_OK && n->ranks > 1; i++)
        oneshot_share_slots(n, i);
    if (r != COMM_OK)
        free_world(n);
    else
        *native = &n->head;
    return r;
}

/* A kernel that does not end still uses the mailboxes and the words, so all of that is kept. */
static void class_close(struct native *native)
{
    struct oneshot *n = (struct oneshot *)(void *)native;
    const struct comm_env *env = n->env;
    int64_t until = env->now(env) + end_ns;
    _Atomic uint32_t never = 0;
    uint32_t left = oneshot_reap(n);

    while (left && env->now(env) < until) {
        env->park(env, &never, 0, env->now(env) + look_ns);
        left = oneshot_reap(n);
    }
    if (!left)
        free_world(n);
    else if (n->log)
        base_log(n->log, LOG_ERROR, "cuda: the kernels of %u communicators do not end and are left behind, with their memory", left);
}

/* ------------------------------------------------------------------------------------------------------------ the class */
static void class_explain(struct native *native, int32_t code, char *text, size_t bytes)
{
    static const char *const texts[] = {[ONESHOT_ABORTED] = "the host ended the kernel",
                                        [ONESHOT_DIFFERS] = "a peer's call has another type, operator or length",
                                        [PIPELINE_REFUSED] = "CUDA refused a copy or a kernel of a long sum"};
    const char *name = NULL;

    (void)native;
    if (code < 0)
        cuda_process.calls.cuGetErrorName((unsigned)-code, &name);
    if (code < 0)
        base_format(text, bytes, "CUDA: %s (%d)", name ? name : "unknown error", -code);
    else
        base_copy_text(text, bytes, code > 0 && (size_t)code < sizeof texts / sizeof *texts ? texts[code] : "unknown error");
}

const struct native_class native_oneshot = {.name = "cuda",
                                            .probe = class_probe,
                                            .open = class_open,
                                            .join = oneshot_join,
                                            .joined = oneshot_joined,
                                            .accept = oneshot_accept,
                                            .ways = oneshot_ways,
                                            .reaches = oneshot_reaches,
                                            .how = oneshot_how,
                                            .start = oneshot_start,
                                            .wait = oneshot_wait,
                                            .keep_waits = oneshot_keep_waits,
                                            .reach = oneshot_reach,
                                            .await = oneshot_await,
                                            .stream = oneshot_stream,
                                            .may_close = oneshot_may_close,
                                            .advance = oneshot_advance,
                                            .leave = oneshot_leave,
                                            .explain = class_explain,
                                            .close = class_close};
