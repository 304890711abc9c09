/* Opens a world: finds its own rank, reads the options, chooses the backend, then connects to the other ranks. It blocks, with a deadline;
 * no other calls block like this. */
#include "world/communicators.h"
#include "world/open.h"
#include "world/part_table.h"

#include "base/format.h"
#include "comm/parts.h"
#include "failure/failure.h"
#include "inspect/trace.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ rank and job */
static void hex(char *to, const unsigned char *bytes, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++)
        base_append(to, 2 * count + 1, &at, "%02x", bytes[i]);
}

static enum comm_result find_meeting(struct opening *o)
{
    const struct comm_config *c = &o->config;
    const char *job = o->env->lookup(o->env, "COMM_JOB");

    if (c->id)
        hex(o->launch.job, o->identity.job, sizeof o->identity.job);
    else if (c->address)
        base_copy_text(o->launch.job, sizeof o->launch.job, c->address);
    else if (job && *job)
        base_copy_text(o->launch.job, sizeof o->launch.job, job);
    else if (!c->exchange && c->ranks > 1) {
        base_format(o->text, sizeof o->text, "config.ranks=%d but nowhere to meet; expected .id, .exchange, .address or COMM_JOB",
                    c->ranks);
        return COMM_ERR_CONFIG;
    }
    return COMM_OK;
}

/* A secret that the program failed to set must not leave the job without one, or with one that everybody knows. */
static bool check_secret(struct opening *o)
{
    const struct comm_config *c = &o->config;
    bool missing = !c->secret && c->secret_bytes, blank = c->secret && c->secret_bytes && identity_is_blank(c->secret, c->secret_bytes);

    if (missing)
        base_format(o->text, sizeof o->text, "config.secret=NULL config.secret_bytes=%zu; expected the secret's bytes, or 0 of them",
                    c->secret_bytes);
    if (blank)
        base_format(o->text, sizeof o->text, "config.secret: its %zu bytes are 0; expected bytes that only this job knows",
                    c->secret_bytes);
    return !missing && !blank;
}

static enum comm_result find_identity(struct opening *o)
{
    const struct comm_config *c = &o->config;
    bool program_meets = c->address || c->exchange; /* it overrides the environment */

    o->address = program_meets ? c->address : o->env->lookup(o->env, "COMM_ADDRESS");
    o->met = c->address ? "the program" : "COMM_ADDRESS";
    if (c->id && !identity_read(c->id, &o->identity)) {
        base_format(o->text, sizeof o->text, "config.id has no secret, its bytes are 0; expected what comm_id_create() of rank 0 made");
        return COMM_ERR_CONFIG;
    }
    if (!check_secret(o))
        return COMM_ERR_CONFIG;
    if (o->identity.address[0] && !(c->address && c->address[0])) {
        o->address = o->identity.address;
        o->met = "config.id";
    }
    if (c->ranks < 0 || (c->ranks > 0 && (c->rank < 0 || c->rank >= c->ranks))) {
        base_format(o->text, sizeof o->text, "config.rank=%d config.ranks=%d; expected 0 <= rank < ranks", c->rank, c->ranks);
        return COMM_ERR_CONFIG;
    }
    if (c->ranks > TEAM_RANKS_MAX) {
        base_format(o->text, sizeof o->text, "config.ranks=%d; expected at most %d", c->ranks, TEAM_RANKS_MAX);
        return COMM_ERR_CONFIG;
    }
    if (c->ranks == 0) {
        enum comm_result r = team_launch_find(o->env, &o->launch, o->text, sizeof o->text);
        if (!c->exchange && (!o->address || !o->address[0]) && o->launch.ranks != o->launch.local_ranks && o->launch.address[0]) {
            o->address = o->launch.address;
            o->met = o->launch.launcher;
        }
        return r;
    }
    o->launch = (struct team_launch){
        .launcher = "program", .why = "config.ranks", .rank = c->rank, .ranks = c->ranks, .local_rank = c->rank, .local_ranks = c->ranks};
    return find_meeting(o);
}

static enum comm_result refuse_backend(struct opening *o, const char *name)
{
    base_format(o->text, sizeof o->text, "backend=%s; expected auto, local, shm, tcp, shm+tcp, mpi, shm+mpi, nccl or cuda", name);
    return COMM_ERR_CONFIG;
}

static enum comm_result find_backend(struct opening *o)
{
    const char *name = o->options.backend;
    bool meets = (o->address && o->address[0]) || o->config.exchange; /* ranks may be on several hosts */

    if (!name[0] || base_equal(name, "auto"))
        name = o->launch.ranks == 1 ? "local" : open_several_hosts(o) ? "shm+tcp" : "shm";
    o->backend = wire_backend_find(name);
    if (!o->backend)
        return refuse_backend(o, name);
    if ((open_several_hosts(o) || (o->config.ranks && meets)) && wire_backend_several_hosts(name))
        o->backend = wire_backend_several_hosts(name);
    if (!team_launch_one_host(&o->launch, o->text, sizeof o->text) && !(o->backend->network && meets))
        return COMM_ERR_CONFIG;
    o->text[0] = 0;
    if (!o->backend->wire) {
        base_format(o->text, sizeof o->text, "%s", o->backend->missing);
        return COMM_ERR_UNSUPPORTED;
    }
    if (o->launch.ranks == 1 && wire_backend_one_process(name))
        o->backend = wire_backend_one_process(name);
    if (!o->backend->boot && o->launch.ranks > 1) {
        base_format(o->text, sizeof o->text, "backend=local but %d ranks; expected one, or comm_open_local for ranks inside this process",
                    o->launch.ranks);
        return COMM_ERR_CONFIG;
    }
    return COMM_OK;
}

/* Ranks on several hosts that nobody gave an address or a secret meet in their launcher's store, if it has one. */
static void find_store(struct opening *o)
{
    const struct boot_class *boot = o->backend->boot;
    bool given = o->address != o->launch.address || o->config.secret || o->config.id;

    if (!given && o->launch.store && boot && boot->has_store && boot->has_store(o->env, o->launch.store))
        o->address = o->launch.store;
}

/* ------------------------------------------------------------------------------------------------------------ the world */
static enum comm_result find_engine(struct opening *o)
{
    enum comm_result r;

    if (!o->config.engine_of)
        return engine_create(&(struct engine_config){.env = o->env,
                                                     .options = &o->options,
                                                     .log = &o->log,
                                                     .class = &state_progress,
                                                     .parts = world_parts,
                                                     .notify = o->config.notify},
                             o->text, sizeof o->text, &o->engine);
    struct comm_state *b = state_lock(o->config.engine_of, &r);
    if (!b) {
        base_format(o->text, sizeof o->text, "config.engine_of is no open communicator");
        return r;
    }
    o->engine = b->unit.engine;
    engine_hold(o->engine);
    state_unlock(b);
    return COMM_OK;
}

static enum comm_result enlist_world(struct engine *e, struct world *w)
{
    for (uint32_t i = 0; i < ENGINE_WORLDS; i++) {
        struct progress_wire *none = NULL;
        if (atomic_compare_exchange_strong(&e->table.worlds[i], &none, &w->port))
            return COMM_OK;
    }
    return COMM_ERR_FULL;
}

/* failed: not OK if this rank comes only to say that it cannot open. */
static enum comm_result meet(struct opening *o, enum comm_result failed)
{
    struct boot_config boot = {.env = o->env,
                               .log = &o->log,
                               .rank = o->launch.rank,
                               .ranks = o->launch.ranks,
                               .job = o->launch.job,
                               .address = o->address,
                               .deadline = o->deadline,
                               .exchange = o->config.exchange,
                               .exchange_arg = o->config.exchange_arg,
                               .failed = failed,
                               .secret = o->config.secret ? o->config.secret
                                         : o->config.id   ? o->identity.secret
                                                          : NULL,
                               .secret_bytes = o->config.secret ? o->config.secret_bytes : sizeof o->identity.secret,
                               .secret_implied = !o->config.secret,
                               .error_text = o->text,
                               .error_text_bytes = sizeof o->text};

    o->comes = true;
    return o->backend->boot ? o->backend->boot->open(&boot, &o->boot) : COMM_OK;
}

/* The other ranks would wait for this one in the program's exchange, which has no deadline of this library's. */
static void say_failed(struct opening *o, enum comm_result failed)
{
    if (failed == COMM_OK || o->comes || !o->config.exchange || !o->backend)
        return;
    if (!o->text[0])
        base_copy_text(o->text, sizeof o->text, base_result_text(failed));
    (void)meet(o, failed);
}

/* ------------------------------------------------------------------------------------------------------------ wire and world */
static enum comm_result open_wire(struct opening *o, struct world *w)
{
    struct wire_config config = {.env = o->env,
                                 .log = &o->engine->log,
                                 .bell = &o->engine->bell,
                                 .watch = &o->engine->monitor.bell,
                                 .boot = o->boot,
                                 .rank = w->rank,
                                 .ranks = w->ranks,
                                 .oversubscribed = (uint32_t)o->neighbours > o->engine->cpus,
                                 .world = w->id,
                                 .host = w->hosts.of,
                                 .launcher = o->launch.launcher,
                                 .deadline = o->deadline,
                                 .peer_timeout_ns = w->peer_timeout_ns,
                                 .link_timeout_ns = w->link_timeout_ns,
                                 .error_text = o->text,
                                 .error_text_bytes = sizeof o->text};

    wire_backend_inner(o->backend, &config);
    enum comm_result r = o->backend->wire->open(&config, &w->port.wire);

    w->port.class = o->backend->wire;
    w->port.asks = r == COMM_OK && w->port.wire->asks ? w->port.wire->asks : &w->no_asks;
    if (r == COMM_OK)
        engine_note_silent(o->engine, w->port.wire->silent ? 1 : 0);
    engine_note_timeout(o->engine, w->peer_timeout_ns * 4 / WIRE_TICKS);
    engine_note_timeout(o->engine, w->link_timeout_ns * 4 / WIRE_LINK_TICKS);
    return r == COMM_OK ? enlist_world(o->engine, w) : r;
}

static enum comm_result make_world(struct opening *o)
{
    struct world *w = o->env->take(o->env, sizeof *w, 64);

    if (!w)
        return COMM_ERR_MEMORY;
    o->world = w;
    w->engine = o->engine;
    engine_hold(o->engine);
    w->backend = o->backend;
    w->ranks = o->launch.ranks;
    base_copy_text(w->launcher, sizeof w->launcher, o->launch.launcher);
    base_copy_text(w->slurm_job, sizeof w->slurm_job, team_slurm_job(o->env));
    atomic_store_explicit(&w->references, 1, memory_order_relaxed);
    w->down = o->env->take(o->env, (size_t)w->ranks * sizeof *w->down, 64);
    if (!w->down)
        return COMM_ERR_MEMORY;
    enum comm_result r = meet(o, COMM_OK);
    w->rank = o->boot ? o->launch.rank : -1;
    if (r == COMM_OK)
        r = open_terms(o, w);
    if (r == COMM_OK)
        r = open_wire(o, w);
    return r == COMM_OK ? open_library(o, w) : r;
}

static enum comm_result make_state(struct opening *o, int32_t rank, const char *name, struct team_offer *offer, struct comm_state **state)
{
    struct state_config config = {.world = o->world,
                                  .timeout_ns = o->world->timeout_ns,
                                  .name = name,
                                  .free_order = o->world->free_order,
                                  .fixed_order = o->world->fixed_order};
    enum comm_result r = team_world(o->env, o->world->id, rank, o->launch.ranks, &config.team);

    return r == COMM_OK ? state_create(o->engine, &config, offer, state) : r;
}

static enum comm_result start_threads(struct opening *o)
{
    struct engine *e = o->engine;
    int32_t mode = o->options.progress;

    if (e->caller_only && mode == OPTION_PROGRESS_THREAD) {
        base_format(o->text, sizeof o->text,
                    "progress=thread, but a library under this engine may be called by the program's own threads alone (MPI below "
                    "MPI_THREAD_MULTIPLE); expected progress=caller or auto");
        return COMM_ERR_CONFIG;
    }
    if ((uint32_t)o->neighbours > e->local_ranks)
        e->local_ranks = (uint32_t)o->neighbours;
    e->oversubscribed = e->local_ranks > e->cpus;
    e->streams.local_rank = o->launch.local_rank;
    if (o->config.device)
        base_copy_text(e->streams.device_name, sizeof e->streams.device_name, o->config.device);
    if (!e->monitor.runs) {
        e->monitor.check = engine_monitor_check;
        int failed = e->env->spawn(e->env, engine_monitor, e, &e->monitor.thread);
        if (failed) {
            base_format(o->text, sizeof o->text, "no thread for the monitor, errno=%d", failed);
            return COMM_ERR_SYSTEM;
        }
        e->monitor.runs = true;
    }
    trace_start(e);
    engine_poll(e); /* sends the first heartbeat before the caller goes on: from now on silence is measured */
    if (e->caller_only)
        return COMM_OK;
    bool spare = o->launch.ranks > 1 && e->cpus > e->local_ranks;
    return mode == OPTION_PROGRESS_THREAD || (mode == OPTION_PROGRESS_AUTO && spare) ? engine_start_progress_thread(e) : COMM_OK;
}

static void end_opening(struct opening *o, enum comm_result result)
{
    if (o->log.env)
        open_tell_misspelt(o);
    if (result == COMM_OK)
        open_tell(o);
    else
        open_complain(o, result);
    identity_wipe(&o->identity);
    if (o->boot)
        o->boot->class->close(o->boot);
    if (o->world)
        world_drop(o->world);
    if (o->engine)
        engine_drop(o->engine);
    if (o->log.env && result == COMM_OK)
        base_log_drain(o->log.env);
    else if (o->log.env)
        base_log_end(&o->log);
}

static enum comm_result prepare(struct opening *o)
{
    enum comm_result r = find_backend(o);

    if (r == COMM_OK)
        find_store(o);
    if (r == COMM_OK)
        r = open_probe_library(o);
    if (r == COMM_OK)
        r = open_before_store(o);
    if (r == COMM_OK)
        r = find_engine(o);
    if (r == COMM_OK)
        r = make_world(o);
    say_failed(o, r);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ comm_open */
static enum comm_result open_alone(struct opening *o, struct comm_communicator **world)
{
    struct team_offer offer = {0};
    struct comm_state *b = NULL;
    struct team_offer *offers = o->env->take(o->env, (size_t)o->launch.ranks * sizeof offer, 64);
    enum comm_result r = offers ? make_state(o, o->launch.rank, "world", &offer, &b) : COMM_ERR_MEMORY;

    if (r == COMM_OK)
        r = open_gather(o, &offer, sizeof offer, offers);
    if (r == COMM_OK)
        r = state_connect(b, offers);
    if (r == COMM_OK)
        r = open_await_library(o, &b, 1);
    env_give_back(o->env, offers, (size_t)o->launch.ranks * sizeof offer);
    if (r == COMM_OK)
        r = start_threads(o);
    if (r == COMM_OK)
        *world = b->unit.handle;
    else if (b)
        state_destroy(b);
    return r;
}

enum comm_result engine_open(const struct comm_config *config, struct comm_communicator **world)
{
    const struct comm_env *env = wire_default_env();
    int before = env->cancel(env, ENV_CANCEL_OFF);
    struct opening o;
    enum comm_result r = open_begin(&o, config);

    if (r == COMM_OK)
        r = find_identity(&o);
    if (r == COMM_OK)
        r = open_count_local(&o);
    if (r == COMM_OK) {
        o.log.rank = o.launch.rank;
        r = prepare(&o);
    }
    if (r == COMM_OK)
        r = open_alone(&o, world);
    end_opening(&o, r);
    env->cancel(env, before);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ comm_open_local */
static enum comm_result connect_all(struct opening *o, struct comm_state **states, struct team_offer *offers,
                                    struct comm_communicator **worlds)
{
    int32_t ranks = o->launch.ranks, made = 0;
    enum comm_result r = COMM_OK;
    char name[16];

    for (; r == COMM_OK && made < ranks; made += r == COMM_OK) {
        base_format(name, sizeof name, "world.%d", made);
        r = make_state(o, made, name, &offers[made], &states[made]);
    }
    for (int32_t i = 0; r == COMM_OK && i < ranks; i++)
        r = state_connect(states[i], offers);
    if (r == COMM_OK)
        r = open_await_library(o, states, ranks);
    if (r == COMM_OK)
        r = start_threads(o);
    for (int32_t i = 0; i < made; i++) {
        if (r == COMM_OK)
            worlds[i] = states[i]->unit.handle;
        else
            state_destroy(states[i]);
    }
    return r;
}

/* Finds the backend that has all ranks in this process. */
static enum comm_result find_backend_one_process(struct opening *o, const char *const *devices)
{
    const char *name = o->options.backend;

    if (name[0] && !base_equal(name, "auto") && !wire_backend_find(name))
        return refuse_backend(o, name);
    o->backend = wire_backend_one_process(name);
    if (!o->backend)
        o->backend = wire_backend_find("local");
    base_copy_text(o->options.backend, sizeof o->options.backend, o->backend->name);
    o->devices = devices;
    if (devices && !o->backend->native) {
        base_format(o->text, sizeof o->text, "open_local: devices are named; expected backend=nccl or cuda, or NULL for each rank");
        return COMM_ERR_UNSUPPORTED;
    }
    return open_probe_library(o);
}

enum comm_result engine_open_local(const struct comm_config *config, int32_t ranks, const char *const *devices,
                                   struct comm_communicator **worlds)
{
    const struct comm_env *env = wire_default_env();
    int before = env->cancel(env, ENV_CANCEL_OFF);
    struct opening o;
    enum comm_result r = open_begin(&o, config);

    o.launch = (struct team_launch){.launcher = "local", .why = "comm_open_local", .rank = 0, .ranks = ranks, .local_ranks = ranks};
    o.config.exchange = NULL;
    if (r == COMM_OK)
        r = find_backend_one_process(&o, devices);
    if (r == COMM_OK)
        r = find_engine(&o);
    if (r == COMM_OK)
        r = make_world(&o);
    size_t bytes = (size_t)ranks * (sizeof(struct team_offer) + sizeof(struct comm_state *));
    struct team_offer *memory = r == COMM_OK ? o.env->take(o.env, bytes, 64) : NULL;
    if (memory)
        r = connect_all(&o, (struct comm_state **)(void *)(memory + ranks), memory, worlds);
    else if (r == COMM_OK)
        r = COMM_ERR_MEMORY;
    env_give_back(o.env, memory, bytes);
    end_opening(&o, r);
    env->cancel(env, before);
    return r;
}
