/*
 * The library that runs collectives beside the wire (wire/native.h), while a world opens: whether this rank has it, and whether it has
 * connected the ranks. With option nccl_fallback the world does without it where some rank has none, or where it cannot connect the ranks.
 */
#include "world/open.h"

#include "base/format.h"
#include "failure/failure.h"

#include <string.h>

enum { LOOK_NS = 100000 };

static struct native_config config_of(struct opening *o)
{
    return (struct native_config){.env = o->env,
                                  .log = o->engine ? &o->engine->log : &o->log,
                                  .launcher = o->launch.launcher,
                                  .device = o->config.device,
                                  .devices = o->devices,
                                  .rank = o->backend->boot ? o->launch.rank : -1,
                                  .ranks = o->launch.ranks,
                                  .local_rank = o->launch.local_rank,
                                  .threads = o->options.progress == OPTION_PROGRESS_THREAD || (o->engine && engine_has_thread(o->engine)),
                                  .deadline = o->deadline,
                                  .options = &o->options,
                                  .error_text = o->text,
                                  .error_text_bytes = sizeof o->text};
}

/* A rank without the library still connects to the others, so that all ranks learn why the world does not open. */
enum comm_result open_probe_library(struct opening *o)
{
    struct native_config config = config_of(o);

    if (!wire_backend_library(o->backend))
        return COMM_OK;
    o->probed = wire_backend_library(o->backend)->probe(&config, o->version);
    return (o->launch.ranks == 1 || !o->backend->boot) && !o->options.nccl_fallback ? o->probed : COMM_OK;
}

/* Open MPI 5 cannot start after PMIx. */
enum comm_result open_before_store(struct opening *o)
{
    const struct native_class *library = wire_backend_library(o->backend);
    struct native_config config = config_of(o);

    if (!library || !library->before_store || o->probed != COMM_OK || !o->address || strncmp(o->address, "store:", 6) != 0)
        return COMM_OK;
    return library->before_store(&config);
}

/* A world that can do without the library gives it half of the time, so that the ranks can still tell each other that it failed. */
enum comm_result open_library(struct opening *o, struct world *w)
{
    struct native_config config = config_of(o);
    int64_t now = o->env->now(o->env);

    if (!o->backend->native || o->without)
        return COMM_OK;
    if (w->falls_back)
        config.deadline = now + (o->deadline - now) / 2;
    o->library_deadline = config.deadline;
    enum comm_result r = o->backend->native->open(&config, &w->native);
    if (r == COMM_OK && (w->native->flags & NATIVE_CALLER))
        o->engine->caller_only = true;
    if (r == COMM_OK && (w->native->flags & NATIVE_DEVICE)) /* the program may load the driver later; the native has */
        o->env->find_devices(o->env);
    return r;
}

/* Checks for dead ranks, because a library may wait for one without an end. */
static enum comm_result find_lost(struct opening *o, const struct comm_state *b)
{
    engine_poll(o->engine);
    for (int32_t r = 0; r < b->team.size; r++) {
        int32_t rank = b->team.world[r];
        if (r == b->team.rank || !world_down(b->world, rank))
            continue;
        base_format(o->text, sizeof o->text, "rank %d was lost while %s connected the ranks", rank, b->world->native->class->name);
        return COMM_ERR_PEER;
    }
    return COMM_PENDING;
}

/* Waits until the library has connected this rank. */
static enum comm_result await_one(struct opening *o, struct comm_state *b)
{
    enum comm_result r = state_library_joined(b);
    _Atomic uint32_t never = 0;

    while (r == COMM_PENDING && o->env->now(o->env) < o->library_deadline) {
        o->env->park(o->env, &never, 0, o->env->now(o->env) + LOOK_NS);
        r = state_library_joined(b);
        if (r == COMM_PENDING)
            r = find_lost(o, b);
    }
    if (r == COMM_PENDING) {
        base_format(o->text, sizeof o->text, "%s has not connected the ranks in time; open_timeout is %lld ms",
                    b->world->native->class->name, (long long)(o->options.open_timeout_ns / 1000000));
        r = COMM_ERR_TIMEOUT;
    }
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ doing without */
void open_say_staged(const struct opening *o, int32_t rank, const char *why)
{
    const struct wire_backend *b = o->backend;

    if (o->launch.rank <= 0)
        base_log(&o->log, LOG_WARNING, "nccl_fallback: rank %d %s; device buffers are staged over %s%s%s", rank, why,
                 b->near ? b->near : "shared memory", b->far ? " and " : "", b->far ? b->far : "");
}

/* Gathers what became of each rank. Where all ranks are in this process, it has all results already. */
static enum comm_result gather_results(struct opening *o, int32_t *all)
{
    int32_t mine = all[0];

    return o->boot ? open_gather(o, &mine, sizeof mine, all) : COMM_OK;
}

/* All ranks decide alike, because they decide by the results of all. */
static void decide(struct opening *o, struct comm_state *const *states, int32_t here, const int32_t *all)
{
    int32_t failed = 0;
    char why[80];

    while (failed < o->launch.ranks && all[failed] == COMM_OK)
        failed++;
    if (failed == o->launch.ranks)
        return;
    base_format(why, sizeof why, "was not connected by %s (%s)", o->backend->native->name, base_result_name((enum comm_result)all[failed]));
    open_say_staged(o, failed, why);
    for (int32_t i = 0; i < here; i++)
        states[i]->library->drop(states[i]);
    o->world->native->class->close(o->world->native);
    o->world->native = NULL;
    o->text[0] = 0;
}

/* A rank that found another one lost fails at once: the world cannot open without that rank. */
static enum comm_result await_all(struct opening *o, struct comm_state *const *states, int32_t here, int32_t *all)
{
    for (int32_t i = 0; i < here; i++) {
        enum comm_result r = await_one(o, states[i]);
        if (r == COMM_ERR_PEER)
            return r;
        all[i] = (int32_t)r;
    }
    return gather_results(o, all);
}

/* Until all ranks are connected, none begins to join: some libraries wait for the others in a call without a deadline. */
static enum comm_result await_connected(struct opening *o)
{
    size_t ranks = (size_t)o->launch.ranks;
    unsigned char mine = 0, *all = o->boot ? o->env->take(o->env, ranks, 64) : NULL;
    enum comm_result r = all ? open_gather(o, &mine, sizeof mine, all) : o->boot ? COMM_ERR_MEMORY : COMM_OK;

    env_give_back(o->env, all, ranks);
    return r;
}

enum comm_result open_await_library(struct opening *o, struct comm_state *const *states, int32_t here)
{
    const struct comm_env *env = o->env;
    size_t bytes = (size_t)o->launch.ranks * sizeof(int32_t);
    enum comm_result r = states[0]->native ? await_connected(o) : COMM_OK;

    if (r != COMM_OK)
        return r;
    if (!o->world->falls_back || !states[0]->native) {
        for (int32_t i = 0; i < here && r == COMM_OK; i++)
            r = await_one(o, states[i]);
        return r;
    }
    int32_t *all = env->take(env, bytes, 64);
    if (!all)
        return COMM_ERR_MEMORY;
    r = await_all(o, states, here, all);
    if (r == COMM_OK)
        decide(o, states, here, all);
    env->give(env, all, bytes);
    return r;
}
