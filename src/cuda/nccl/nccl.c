/* The native backend nccl: probe, open, and the life of a channel. issue.c has the calls on the stream, join.c the calls that may block. */
#include "cuda/nccl/nccl.h"

#include "base/format.h"
#include "base/hash.h"

#include <string.h>

enum { JOIN_LEAST_NS = 100000000, JOIN_OVER_NS = 500000000 };
static const int64_t end_ns = 5000000000;

static enum comm_result class_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    enum comm_result r = cuda_load(config->env, true, config->error_text, config->error_text_bytes);
    int v = cuda_process.nccl_version;

    if (r == COMM_OK)
        base_format(version, NATIVE_VERSION_BYTES, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return r == COMM_OK && config->options && config->options->nccl_fallback ? nccl_try(config) : r;
}

static void free_world(struct nccl *n)
{
    nccl_forget_memory(n);
    for (int i = 0; i < CUDA_DEVICES; i++)
        if (n->device[i])
            device_cuda.close(&n->device[i]->head);
    env_give_back(n->env, n->by_rank, (size_t)n->ranks * sizeof *n->by_rank);
    n->env->give(n->env, n, sizeof *n);
}

/* Frees the worlds that were left behind and have ended since. */
static void reap_left(const struct comm_env *env)
{
    struct cuda *p = &cuda_process;

    base_lock(&p->lock, env);
    struct nccl *all = p->left;
    p->left = NULL;
    base_unlock(&p->lock, env);
    for (struct nccl *n = all, *next; n; n = next) {
        next = n->next;
        if (nccl_reap(n, env->now(env)) == 0) {
            free_world(n);
            continue;
        }
        base_lock(&p->lock, env);
        n->next = p->left;
        p->left = n;
        base_unlock(&p->lock, env);
    }
}

static int or_unset(uint32_t value)
{
    return value ? (int)value : NCCL_UNSET;
}

/* Reads the program's options for NCCL's configuration. */
static enum comm_result read_options(struct nccl *n, const struct native_config *config)
{
    static const struct base_options none;
    const struct base_options *o = config->options ? config->options : &none;

    n->min_ctas = or_unset(o->nccl_min_ctas);
    n->max_ctas = or_unset(o->nccl_max_ctas);
    n->cga_cluster_size = or_unset(o->nccl_cluster);
    n->split_share = o->nccl_split_share ? 1 : NCCL_UNSET;
    n->falls_back = o->nccl_fallback;
    if (!o->nccl_min_ctas || !o->nccl_max_ctas || o->nccl_min_ctas <= o->nccl_max_ctas)
        return COMM_OK;
    base_format(config->error_text, config->error_text_bytes, "nccl_min_ctas=%u; expected no more than nccl_max_ctas=%u", o->nccl_min_ctas,
                o->nccl_max_ctas);
    return COMM_ERR_CONFIG;
}

/* NCCL takes ranks with different NCCL_HOSTID for ranks of different hosts, so each may have a device at the same place. */
static uint64_t host_of(const struct comm_env *env)
{
    struct env_identity identity;
    const char *named = env->lookup(env, "NCCL_HOSTID");
    uint64_t host = 0;

    env->identity(env, &identity);
    for (const char *at = named; at && *at; at++)
        host = base_hash(host, (unsigned char)*at);
    return named && *named ? host : identity.host_id;
}

static enum comm_result class_open(const struct native_config *config, struct native **native)
{
    const struct comm_env *env = config->env;
    enum comm_result r = cuda_load(env, true, config->error_text, config->error_text_bytes);
    struct nccl *n = r == COMM_OK ? env->take(env, sizeof *n, 64) : NULL;
    int64_t left = config->deadline - env->now(env);

    if (!n)
        return r == COMM_OK ? COMM_ERR_MEMORY : r;
    r = read_options(n, config);
    if (r != COMM_OK) {
        env->give(env, n, sizeof *n);
        return r;
    }
    reap_left(env);
    n->head.class = &native_nccl;
    n->head.flags = NATIVE_STREAM | NATIVE_FOLDS;
    n->env = env;
    n->log = config->log;
    n->rank = config->rank;
    n->local_rank = config->local_rank;
    n->join_ns = left > JOIN_LEAST_NS ? left : JOIN_LEAST_NS;
    n->host = host_of(env);
    base_copy_text(n->named, sizeof n->named, config->device);
    n->ranks = config->ranks;
    if (config->devices && config->rank < 0)
        n->by_rank = env->take(env, (size_t)config->ranks * sizeof *n->by_rank, 64);
    if (config->devices && config->rank < 0 && !n->by_rank) {
        env->give(env, n, sizeof *n);
        return COMM_ERR_MEMORY;
    }
    for (int32_t i = 0; n->by_rank && i < config->ranks; i++)
        base_copy_text(n->by_rank[i], sizeof n->by_rank[i], config->devices[i]);
    *native = &n->head;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ channels */
/* If all ranks are in this process, each takes a device of its own, in the order of the ranks. */
static enum comm_result find_device(struct nccl *n, int32_t world_rank, struct cuda_device **device)
{
    char text[160] = "";
    int32_t which = n->rank < 0 ? world_rank : n->local_rank;
    const char *name = n->by_rank ? n->by_rank[world_rank] : n->named;
    struct device_config config = {.env = n->env,
                                   .log = n->log,
                                   .device = name && name[0] ? name : NULL,
                                   .local_rank = which,
                                   .error_text = text,
                                   .error_text_bytes = sizeof text};
    struct device *opened = NULL;
    enum comm_result r = device_cuda.open(&config, &opened);

    if (r != COMM_OK) {
        if (n->log)
            base_log(n->log, LOG_ERROR, "nccl: %s", text);
        return r;
    }
    struct cuda_device *d = (struct cuda_device *)(void *)opened;
    base_lock(&n->lock, n->env);
    bool known = n->device[d->ordinal] != NULL;
    n->device[d->ordinal] = d;
    base_unlock(&n->lock, n->env);
    if (known)
        device_cuda.close(opened);
    *device = d;
    return COMM_OK;
}

static unsigned make_stream(struct nccl_channel *c)
{
    struct cuda_device *d = c->d;
    struct cuda_inside inside;
    int least = 0, greatest = 0;
    unsigned result = CUDA_INVALID_CONTEXT;

    base_lock(&d->lock, d->env);
    if (cuda_enter(d, &inside)) {
        result = d->calls->cuCtxGetStreamPriorityRange(&least, &greatest);
        if (result == CUDA_OK)
            result = d->calls->cuStreamCreateWithPriority(&c->own, CUDA_STREAM_NON_BLOCKING, greatest);
        cuda_leave(d, &inside);
    }
    if (result == CUDA_OK)
        c->word = cuda_take_word(d);
    base_unlock(&d->lock, d->env);
    c->stream = c->own;
    if (c->word)
        c->base = atomic_load_explicit(&d->words[c->word], memory_order_relaxed);
    return result == CUDA_OK && !c->word ? CUDA_OUT_OF_MEMORY : result;
}

/* ncclGetUniqueId starts a listener, which ends only when ranks connect to it. So an id that no rank used is kept for a later communicator.
 */
static unsigned take_id(struct nccl_channel *c)
{
    struct cuda *p = &cuda_process;
    unsigned result = NCCL_OK;

    base_lock(&p->lock, p->env);
    bool has = p->has_id;
    c->id = p->id;
    p->has_id = false;
    base_unlock(&p->lock, p->env);
    if (!has)
        result = c->nccl->ncclGetUniqueId(&c->id);
    c->has_id = result == NCCL_OK;
    return result;
}

static void give_id(struct nccl_channel *c)
{
    struct cuda *p = &cuda_process;

    base_lock(&p->lock, p->env);
    if (c->has_id && !p->has_id) {
        p->id = c->id;
        p->has_id = true;
    }
    base_unlock(&p->lock, p->env);
    c->has_id = false;
}

static void drop_channel(struct nccl_channel *c)
{
    struct nccl *n = c->owner;

    base_lock(&n->lock, n->env);
    c->next = n->ending;
    n->ending = c;
    base_unlock(&n->lock, n->env);
    nccl_reap(n, n->env->now(n->env));
}

static void write_offer(const struct nccl_channel *c, void *offer)
{
    struct nccl_offer mine = {.id = c->id, .host = c->owner->host};

    if (c->d->calls->cuDeviceGetPCIBusId(mine.bus, sizeof mine.bus, c->d->ordinal) != CUDA_OK)
        mine.bus[0] = 0;
    memcpy(offer, &mine, sizeof mine);
}

static void say_shared(const struct nccl_channel *c, int32_t one, int32_t other, const char *bus)
{
    struct nccl *n = c->owner;

    if (!n->log || (n->falls_back && c->rank != 0))
        return;
    if (!n->falls_back)
        base_log(n->log, LOG_ERROR,
                 "nccl: ranks %d and %d both have the device %s; expected one rank a device: name others (config.device), or use "
                 "backend shm",
                 one, other, bus);
    else if (!atomic_exchange_explicit(&n->said_shared, true, memory_order_relaxed))
        base_log(n->log, LOG_WARNING,
                 "nccl_fallback: ranks %d and %d both have the device %s, which NCCL refuses; device buffers are staged", one, other, bus);
}

/* NCCL accepts one rank per device. This check reports a violation earlier and with a clearer text than NCCL. */
static bool devices_differ(const struct nccl_channel *c, const unsigned char *offers)
{
    struct nccl_offer a, b;

    for (int32_t i = 0; i < c->size; i++) {
        for (int32_t k = 0; k < i; k++) {
            memcpy(&a, offers + (size_t)i * NATIVE_OFFER_BYTES, sizeof a);
            memcpy(&b, offers + (size_t)k * NATIVE_OFFER_BYTES, sizeof b);
            if (a.host != b.host || !a.bus[0] || strcmp(a.bus, b.bus) != 0)
                continue;
            say_shared(c, k, i, a.bus);
            return false;
        }
    }
    return true;
}

static enum comm_result make_channel(struct nccl *n, const struct wire_team *team, void *offer, struct native_channel **channel)
{
    struct cuda_device *d;
    enum comm_result r = find_device(n, team->world ? team->world[team->rank] : team->rank, &d);
    struct nccl_channel *c = r == COMM_OK ? n->env->take(n->env, sizeof *c, 64) : NULL;

    if (!c)
        return r == COMM_OK ? COMM_ERR_MEMORY : r;
    c->head.native = &n->head;
    c->owner = n;
    c->d = d;
    c->nccl = &cuda_process.nccl;
    c->rank = team->rank;
    c->size = team->size;
    atomic_store_explicit(&c->state, NCCL_FAILED, memory_order_relaxed); /* until the join begins */
    c->result = COMM_ERR_BACKEND;
    unsigned result = make_stream(c);
    unsigned of_id = result == CUDA_OK && c->rank == 0 ? take_id(c) : NCCL_OK;
    if (result != CUDA_OK || of_id != NCCL_OK) {
        if (n->log)
            base_log(n->log, LOG_ERROR, "nccl rank=%d: %s failed (%u)", c->rank, of_id ? "ncclGetUniqueId" : "making a stream",
                     of_id ? of_id : result);
        drop_channel(c);
        return of_id ? COMM_ERR_BACKEND : cuda_result(result) == COMM_ERR_MEMORY ? COMM_ERR_MEMORY : COMM_ERR_BACKEND;
    }
    write_offer(c, offer);
    *channel = &c->head;
    return COMM_OK;
}

static enum comm_result class_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                                   struct native_channel **channel)
{
    struct nccl *n = (struct nccl *)(void *)native;

    _Static_assert(sizeof(struct nccl_offer) <= NATIVE_OFFER_BYTES, "an offer holds it");
    if (!offers)
        return make_channel(n, team, offer, channel);
    struct nccl_channel *c = (struct nccl_channel *)(void *)*channel;
    memcpy(&c->id, offers, sizeof c->id);
    if (!devices_differ(c, offers)) { /* all members get this result */
        give_id(c);
        drop_channel(c);
        return n->falls_back ? COMM_ERR_UNSUPPORTED : COMM_ERR_CONFIG;
    }
    c->has_id = false; /* from now on other ranks may use the id */
    atomic_store_explicit(&c->state, NCCL_JOINING, memory_order_relaxed);
    enum comm_result r = nccl_begin_join(c);
    if (r != COMM_OK) {
        atomic_store_explicit(&c->state, NCCL_FAILED, memory_order_relaxed);
        drop_channel(c);
    }
    return r;
}

/* Does not wait for a thread that stays in NCCL past its deadline. With NCCL_COMM_BLOCKING=1 nothing can end such a call. */
static enum comm_result class_joined(struct native_channel *channel)
{
    const struct nccl_channel *c = (const struct nccl_channel *)(const void *)channel;
    const struct comm_env *env = c->owner->env;

    if (atomic_load_explicit(&c->state, memory_order_acquire) == NCCL_JOINING)
        return env->now(env) < c->deadline + JOIN_OVER_NS ? COMM_PENDING : COMM_ERR_TIMEOUT;
    return (enum comm_result)c->result;
}

/* NCCL does not free a communicator while a graph holds it; it would wait. */
static enum comm_result class_may_close(struct native_channel *channel, char *why, size_t why_bytes)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;

    return cuda_may_close(c->owner->env, &c->held, why, why_bytes);
}

static uint32_t class_leave(struct native_channel *channel, enum native_leave how)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    uint32_t state = atomic_load_explicit(&c->state, memory_order_acquire);
    int32_t code;

    (void)nccl_group(channel, false, &code); /* a call of the group failed: NCCL must not abort a communicator of an open group */
    uint32_t pending = (uint32_t)(c->issued - c->told);
    if (how != NATIVE_LEAVE_CLOSE || pending || state == NCCL_JOINING || (!c->threads.ends && c->windows.runs)) {
        c->aborted = true;
        nccl_release_all(c);
        nccl_begin_end(c, true);
    } else {
        nccl_begin_end(c, false);
    }
    state = atomic_load_explicit(&c->state, memory_order_acquire);
    if (state == NCCL_LEFT || state == NCCL_FAILED)
        pending = 0;
    pending += atomic_load_explicit(&c->held.graphs, memory_order_acquire); /* NCCL does not end before they do */
    if (how == NATIVE_LEAVE_CLOSE)
        drop_channel(c);
    return pending;
}

static void class_explain(struct native *native, int32_t code, char *text, size_t bytes)
{
    const char *last = cuda_process.nccl.ncclGetLastError(NULL), *name = NULL;

    (void)native;
    if (code < 0) {
        cuda_process.calls.cuGetErrorName((unsigned)-code, &name);
        base_format(text, bytes, "CUDA: %s (%d): a kernel on the device has failed; this process's context cannot be used any more",
                    name ? name : "unknown error", -code);
        return;
    }
    base_format(text, bytes, "NCCL: %s (%d)%s%s", cuda_process.nccl.ncclGetErrorString((unsigned)code), code, last && *last ? "; " : "",
                last ? last : "");
}

/* A thread that does not return still uses its memory. So that memory stays until another world finds that the thread has returned. */
static void class_close(struct native *native)
{
    struct nccl *n = (struct nccl *)(void *)native;
    const struct comm_env *env = n->env;
    uint32_t left = nccl_reap(n, env->now(env) + end_ns);

    if (left) {
        if (n->log)
            base_log(n->log, LOG_ERROR, "nccl: %u communicators did not end within 5 s and are left behind, with their memory", left);
        base_lock(&n->lock, env); /* the world's threads log under this lock */
        n->log = NULL;            /* the engine frees the log */
        base_unlock(&n->lock, env);
        base_lock(&cuda_process.lock, env);
        n->next = cuda_process.left;
        cuda_process.left = n;
        base_unlock(&cuda_process.lock, env);
        return;
    }
    free_world(n);
    reap_left(env);
}

static struct device *class_stream(struct native_channel *channel, struct CUstream_st *given, struct CUstream_st **stream)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;

    if (given && !cuda_has_stream(c->d, c->owner->log, "nccl", given))
        return NULL;
    if (given)
        c->stream = given;
    *stream = c->stream;
    return &c->d->head;
}

const struct native_class native_nccl = {.name = "nccl",
                                         .probe = class_probe,
                                         .open = class_open,
                                         .join = class_join,
                                         .joined = class_joined,
                                         .accept = nccl_accept,
                                         .ways = nccl_ways,
                                         .group = nccl_group,
                                         .algorithm = nccl_algorithm,
                                         .start = nccl_start,
                                         .wait = nccl_wait,
                                         .keep_waits = nccl_keep_waits,
                                         .reach = nccl_reach,
                                         .messages = nccl_messages,
                                         .await = nccl_await,
                                         .stream = class_stream,
                                         .advance = nccl_advance,
                                         .may_close = class_may_close,
                                         .take = nccl_take,
                                         .give = nccl_give,
                                         .enlist = nccl_enlist,
                                         .delist = nccl_delist,
                                         .enlist_all = nccl_enlist_all,
                                         .enlisted_all = nccl_enlisted_all,
                                         .leave = class_leave,
                                         .explain = class_explain,
                                         .close = class_close};
