/* What the library reports about itself: structs with a size field, filled as far as the caller's version knows them. */
#include "inspect/inspect.h"

#include "base/format.h"
#include "failure/failure.h"
#include "failure/recover.h"
#include "fastpath/fastpath.h"
#include "p2p/op.h"

#include <string.h>

/* Copies min(size, ours) bytes of `ours`, zeroes the rest, and keeps the caller's size. */
static void give(void *to, size_t theirs, const void *ours, size_t bytes)
{
    memset(to, 0, theirs);
    memcpy(to, ours, theirs < bytes ? theirs : bytes);
    memcpy(to, &theirs, sizeof theirs < theirs ? sizeof theirs : theirs);
}

/* Asks whether the library is installed, with the launcher of this process. */
static bool ask_native(const struct native_class *native, struct comm_backend_info *made)
{
    const struct comm_env *env = wire_default_env();
    struct team_launch launch;
    char why[256], version[NATIVE_VERSION_BYTES] = "";

    if (env->start(env) != 0)
        return false;
    bool launched = team_launch_find(env, &launch, why, sizeof why) == COMM_OK;
    struct native_config config = {.env = env,
                                   .launcher = launched ? launch.launcher : "none",
                                   .ranks = 1,
                                   .error_text = made->missing,
                                   .error_text_bytes = sizeof made->missing};
    if (native->probe(&config, version) != COMM_OK)
        return false;
    base_copy_text(made->version, sizeof made->version, version);
    return true;
}

enum comm_result engine_describe_backend(size_t index, struct comm_backend_info *info)
{
    struct comm_backend_info made = {.size = sizeof made, .threads = 1};

    if (index >= wire_backend_count)
        return COMM_ERR_ARGUMENT;
    const struct wire_backend *b = &wire_backends[index];
    base_copy_text(made.name, sizeof made.name, b->name);
    base_copy_text(made.missing, sizeof made.missing, b->missing);
    base_format(made.version, sizeof made.version, "%u.%u.%u", COMM_VERSION >> 16, COMM_VERSION >> 8 & 255, COMM_VERSION & 255);
    size_t at = strlen(made.version);
    if (b->boot && b->boot->proof)
        base_append(made.version, sizeof made.version, &at, ", secrets: %s", b->boot->proof());
    made.available = b->wire != NULL;
    if (wire_backend_library(b))
        made.available = ask_native(wire_backend_library(b), &made);
    made.fixed_order =
        b->fixed_order && (!b->native || b->keeps_order); /* a native chosen by name keeps its own order, unless fixed is requested too */
    made.device_buffers = b->device_buffers;
    give(info, info->size, &made, sizeof made);
    return COMM_OK;
}

enum comm_result engine_error_detail(struct comm_communicator *c, struct comm_error *error)
{
    enum comm_result r;
    struct comm_error made = {.size = sizeof made, .rank = -1, .peer = -1};
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    bool aborted =
        b->failed && b->failure.cause.result == COMM_ERR_ABORTED; /* who aborted, and with which code, says more than later refusals */

    if (b->recovery.state && b->recovery.state->error.size && !aborted)
        made = b->recovery.state->error;
    else if (b->failed)
        cause_describe(b, &b->failure.cause, &made);
    else if (b->failure.last_refused.size)
        made = b->failure.last_refused;
    state_unlock(b);
    give(error, error->size, &made, sizeof made);
    return COMM_OK;
}

/* Hosts are numbered in the order of their lowest ranks in the communicator. */
static bool is_lowest(const struct comm_state *b, int32_t rank)
{
    for (int32_t r = 0; r < rank; r++)
        if (state_host(b, r) == state_host(b, rank))
            return false;
    return true;
}

static int32_t state_node(const struct comm_state *b, int32_t rank)
{
    int32_t node = -1;

    for (int32_t r = 0; r < b->team.size; r++) {
        node += is_lowest(b, r);
        if (state_host(b, r) == state_host(b, rank))
            break;
    }
    return node;
}

static void describe_hosts(const struct comm_state *b, struct comm_info *info)
{
    info->node = state_node(b, b->team.rank);
    for (int32_t r = 0; r < b->team.size; r++) {
        bool here = state_host(b, r) == state_host(b, b->team.rank);
        info->nodes += is_lowest(b, r);
        info->local_rank += here && r < b->team.rank;
        info->local_ranks += here;
    }
}

enum comm_result engine_describe(struct comm_communicator *c, struct comm_info *info)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    struct engine *e = b->unit.engine;
    struct comm_info made = {.size = sizeof made,
                             .rank = b->team.rank,
                             .ranks = b->team.size,
                             .cpus = (int32_t)e->cpus,
                             .homogeneous = b->hosts.all.count <= 1 || b->hosts.all.longest * b->hosts.all.count == b->team.size,
                             .fixed_order = b->world->backend->fixed_order && !b->terms.free_order &&
                                            (!b->native || b->terms.fixed_order || b->world->backend->keeps_order),
                             .device_buffers = (b->library_work.flags & NATIVE_STREAM) != 0 || engine_has_devices(c),
                             .stream_wait = (b->library_work.flags & NATIVE_STREAM) != 0,
                             .graph_capture = (b->library_work.flags & NATIVE_STREAM) != 0 && b->terms.stream,
                             .device_order = (b->library_work.flags & NATIVE_STREAM) != 0,
                             .queue_max = b->line.capacity_max,
                             .window = b->line.window};
    describe_hosts(b, &made);
    if (b->channel)
        made.inline_bytes = b->channel->caps.inline_max;
    made.memory_bytes = b->line.capacity * (uint64_t)b->line.entry_bytes + b->records.room * sizeof *b->records.at;
    base_copy_text(made.backend, sizeof made.backend, b->world->backend->name);
    base_copy_text(made.launcher, sizeof made.launcher, b->world->launcher);
    base_copy_text(made.slurm_job, sizeof made.slurm_job, b->world->slurm_job);
    base_copy_text(made.host, sizeof made.host, e->identity.host);
    base_copy_text(made.name, sizeof made.name, b->name);
    base_format(made.library, sizeof made.library, "commstream %u.%u.%u, kernels %s", COMM_VERSION >> 16, COMM_VERSION >> 8 & 255,
                COMM_VERSION & 255, data_isa_name(e->isa));
    state_unlock(b);
    give(info, info->size, &made, sizeof made);
    return COMM_OK;
}

enum comm_result engine_describe_peer(struct comm_communicator *c, int32_t peer, struct comm_peer_info *info)
{
    enum comm_result r;
    struct comm_peer_info made = {.size = sizeof made};
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    if (b->recording.plan) {
        state_unlock(b);
        return COMM_ERR_STATE;
    }
    if (peer < 0 || peer >= b->team.size) {
        r = COMM_ERR_ARGUMENT;
    } else {
        const struct wire_backend *row = b->world->backend;
        made.local = state_host(b, peer) == state_host(b, b->team.rank);
        made.node = state_node(b, peer);
        base_copy_text(made.host, sizeof made.host, b->world->hosts.name[state_host(b, peer)]);
        const char *apart = b->channel->carrier ? b->channel->carrier : row->far;
        base_copy_text(made.wire, sizeof made.wire, row->far && b->wire == row->wire ? (made.local ? row->near : apart) : b->wire->name);
        b->wire->describe(b->channel, peer, made.address, sizeof made.address);
    }
    state_unlock(b);
    if (r == COMM_OK)
        give(info, info->size, &made, sizeof made);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ requests */
static const struct record *find_record(const struct comm_state *b, uint64_t ticket)
{
    uint64_t oldest = b->records.count > b->records.room ? b->records.count - b->records.room : 0;

    for (uint64_t i = b->records.count; i-- > oldest;)
        if (b->records.at[i & (b->records.room - 1)].ticket == ticket)
            return &b->records.at[i & (b->records.room - 1)];
    return NULL;
}

static bool describe_pending(const struct comm_state *b, uint64_t ticket, struct comm_request_info *made)
{
    if (!(ticket & TIMELINE_MESSAGE) && ticket > b->line.done && ticket < b->line.next) {
        const struct entry *e = state_entry(b, ticket);
        made->sequence = e->seq;
        made->bytes = e->record.bytes;
        made->queued_ns = (uint64_t)e->record.queued_ns;
        made->started_ns = (uint64_t)e->record.started_ns;
        made->waited_for = ticket <= b->line.started ? (int32_t)state_waits_for(b, e) - 1 : -1;
        base_copy_text(made->algorithm, sizeof made->algorithm, e->record.algorithm);
        return true;
    }
    uint32_t i = timeline_slot_index(ticket);
    if (!(ticket & TIMELINE_MESSAGE) || i >= b->p2p.room || b->p2p.ops[i].ticket != ticket || b->p2p.ops[i].state == P2P_FREE)
        return false;
    const struct p2p_op *t = &b->p2p.ops[i];
    made->bytes = t->call.bytes;
    made->queued_ns = (uint64_t)t->queued_ns;
    made->started_ns = (uint64_t)t->started_ns;
    made->waited_for = t->started_ns ? t->call.peer : b->team.rank;
    base_copy_text(made->algorithm, sizeof made->algorithm, p2p_name(t));
    return true;
}

enum comm_result engine_describe_request(struct comm_request request, struct comm_request_info *info)
{
    enum comm_result r = timeline_peek(request), why;
    struct comm_request_info made = {.size = sizeof made, .result = r, .waited_for = -1};

    if (!request.comm) {
        give(info, info->size, &made, sizeof made);
        return COMM_OK;
    }
    struct comm_state *b = state_lock(request.comm, &why);
    if (!b)
        return why;
    const struct record *known = find_record(b, request.ticket);
    if (known) {
        made = (struct comm_request_info){sizeof made,
                                          (enum comm_result)known->result,
                                          known->flags,
                                          known->sequence,
                                          known->bytes,
                                          (uint64_t)known->queued_ns,
                                          (uint64_t)known->started_ns,
                                          (uint64_t)known->completed_ns,
                                          "",
                                          (int32_t)known->waited - 1,
                                          0};
        base_copy_text(made.algorithm, sizeof made.algorithm, known->algorithm);
    }
    bool found = known || describe_pending(b, request.ticket, &made);
    state_unlock(b);
    if (!found)
        return r == COMM_ERR_ARGUMENT ? COMM_ERR_ARGUMENT : COMM_ERR_CLOSED;
    timeline_tell(request, (enum comm_result)made.result);
    give(info, info->size, &made, sizeof made);
    return COMM_OK;
}

/* Small exchanges and programs each count bytes in their own place. */
static void add_bytes_of_work(const struct comm_state *b, struct comm_stats *stats)
{
    if (b->fastpath) { /* a recording communicator has none */
        stats->bytes_out += b->fastpath->bytes_out;
        stats->bytes_in += b->fastpath->bytes_in;
    }
    for (uint32_t i = 0; i < b->line.window && b->runs.places; i++) {
        stats->bytes_out += b->runs.places[i].run.bytes_out;
        stats->bytes_in += b->runs.places[i].run.bytes_in;
    }
}

enum comm_result engine_statistics(struct comm_communicator *c, struct comm_stats *stats)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    struct comm_stats made = b->stats;
    made.size = sizeof made;
    made.queue_high_water = b->line.high_water;
    add_bytes_of_work(b, &made);
    if (b->channel && b->channel->traffic) {
        made.network_out = atomic_load_explicit(&b->channel->traffic->out, memory_order_relaxed);
        made.network_in = atomic_load_explicit(&b->channel->traffic->in, memory_order_relaxed);
    }
    state_unlock(b);
    give(stats, stats->size, &made, sizeof made);
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ ranks and hosts */
int32_t engine_node(struct comm_communicator *c)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return 0;
    int32_t node = state_host(b, b->team.rank);
    state_unlock(b);
    return node;
}

int32_t engine_numa(const struct comm_communicator *c)
{
    struct env_identity identity;

    c->env->identity(c->env, &identity); /* asked at each call: a program may bind itself late */
    return identity.numa;
}

/* The rank in its world of a rank of c, and that world; -1: there is none. */
static int32_t rank_in_world(struct comm_communicator *c, int32_t rank, const struct world **world)
{
    enum comm_result r;
    struct comm_state *b = c ? state_lock(c, &r) : NULL;
    int32_t there = -1;

    if (!b)
        return -1;
    *world = b->world;
    if (rank >= 0 && rank < b->team.size)
        there = b->team.world[rank];
    state_unlock(b);
    return there;
}

/* Locks one after the other: no thread holds two. */
int32_t engine_translate(struct comm_communicator *c, int32_t rank, struct comm_communicator *other)
{
    enum comm_result r;
    const struct world *world;
    int32_t there = rank_in_world(c, rank, &world), found = -1;
    struct comm_state *b = there >= 0 && other ? state_lock(other, &r) : NULL;

    if (!b)
        return -1;
    if (b->world == world)
        found = team_find(&b->team, there);
    state_unlock(b);
    return found;
}
