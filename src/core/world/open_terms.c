/* What all ranks must agree on when a world opens: options that rank 0 decides, libraries, CPUs, and which ranks share a host. */
#include "world/open.h"

#include "base/format.h"
#include "base/hash.h"
#include "inspect/inspect.h"

#include <string.h>

enum { AGREEMENT_MAGIC = 0x6d6d6f63, VERSION_BYTES = 60 /* of a version in a text */, FEW_RANKS = 128 };

/* The host of a rank, as the kernel or COMM_HOST names it. Its ranks need no network among themselves. */
struct host_place {
    uint64_t host;
    char name[64];
};

/* What the ranks exchange when a world opens. Rank 0 decides. */
struct agreement {
    uint64_t id;
    uint64_t chunk;
    int64_t timeout_ns, peer_timeout_ns, link_timeout_ns;
    uint32_t window, minimal, free_order, fixed_order, magic, native; /* native: the result of its probe */
    char version[NATIVE_VERSION_BYTES];
    uint64_t cpu[ENV_CPU_WORDS];
    uint64_t kernel;
    struct host_place place;
    uint32_t nccl_fallback, order_block, told_cpus; /* told_cpus: the value of option cpus */
    uint32_t cpus, check;                           /* cpus: CPUs this rank may use, with its quota; check: CHECK_* */
    char forced[256];
    struct machine_given machine;
};

enum comm_result open_gather(struct opening *o, const void *in, size_t bytes, void *out)
{
    if (o->boot)
        return o->boot->class->allgather(o->boot, in, bytes, out);
    memcpy(out, in, bytes); /* one rank, or all ranks are here, so one entry serves all */
    return COMM_OK;
}

/* Rank 0's option. */
static bool falls_back(const struct opening *o, const struct agreement *first)
{
    return first->nccl_fallback && base_equal(o->backend->name, "nccl");
}

/* With option nccl_fallback a rank without NCCL, or with another version than rank 0, is no error: all do without it. */
static bool do_without(struct opening *o, const struct agreement *all, size_t ranks)
{
    size_t lacking = 0;
    char why[160];

    while (lacking < ranks && all[lacking].native == COMM_OK && base_equal(all[lacking].version, all[0].version))
        lacking++;
    o->without = lacking < ranks && falls_back(o, all);
    if (!o->without)
        return false;
    if (all[lacking].native == COMM_OK)
        base_format(why, sizeof why, "has %.*s, rank 0 %.*s", VERSION_BYTES, all[lacking].version, VERSION_BYTES, all[0].version);
    else
        base_format(why, sizeof why, "has no NCCL (%s)", base_result_name((enum comm_result)(int32_t)all[lacking].native));
    open_say_staged(o, (int32_t)lacking, why);
    return true;
}

/* All ranks report the lowest rank without the library, or with another version than rank 0. That rank's own error has the details. */
static enum comm_result compare_natives(struct opening *o, const struct agreement *all, size_t ranks)
{
    if (do_without(o, all, ranks))
        return COMM_OK;
    if (o->probed != COMM_OK)
        return o->probed;
    for (size_t r = 0; r < ranks; r++) {
        if (all[r].native != COMM_OK) {
            base_format(o->text, sizeof o->text, "backend=%s: rank %zu cannot have it (%s); its own error says what is missing there",
                        o->backend->name, r, base_result_name((enum comm_result)(int32_t)all[r].native));
            return COMM_ERR_CONFIG;
        }
        if (!base_equal(all[r].version, all[0].version)) {
            base_format(o->text, sizeof o->text, "backend=%s: rank 0 has %.*s, rank %zu has %.*s; expected the same library on all ranks",
                        o->backend->name, VERSION_BYTES, all[0].version, r, VERSION_BYTES, all[r].version);
            return COMM_ERR_CONFIG;
        }
    }
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ hosts */
bool open_several_hosts(const struct opening *o)
{
    const char *host = o->env->lookup(o->env, "COMM_HOST");

    return o->launch.ranks != o->launch.local_ranks || (host && *host);
}

/* Finds the host of a rank. COMM_HOST replaces the kernel's name for the host: one name, or a list with commas, from which rank r takes
 * entry r modulo its length. So one machine can simulate several hosts. */
static struct host_place place_of(const struct opening *o, const struct env_identity *identity, int32_t rank)
{
    const char *list = o->env->lookup(o->env, "COMM_HOST");
    size_t names = 1, at = 0, length = 0;
    struct host_place place = {.host = 0};

    if (!list || !*list) {
        place.host = identity->place_id;
        base_copy_text(place.name, sizeof place.name, identity->host);
        return place;
    }
    for (const char *c = list; *c; c++)
        names += *c == ',';
    for (size_t skip = (size_t)rank % names; skip; skip -= list[at++] == ',')
        continue;
    while (list[at + length] && list[at + length] != ',')
        length++;
    base_format(place.name, sizeof place.name, "%.*s", (int)length, list + at);
    for (const char *c = place.name; *c; c++)
        place.host = base_hash(place.host, (unsigned char)*c);
    return place;
}

enum comm_result open_count_local(struct opening *o)
{
    struct team_launch *launch = &o->launch;
    struct env_identity identity;

    bool chosen = o->options.backend[0] && !base_equal(o->options.backend, "auto");

    if (!o->config.exchange || launch->ranks < 2 || chosen)
        return COMM_OK;
    o->env->identity(o->env, &identity);
    uint64_t mine = place_of(o, &identity, launch->rank).host;
    /* The other ranks would wait in the exchange for one without memory. */
    uint64_t few[FEW_RANKS] = {0}, *taken = NULL, *all = few;
    if (launch->ranks > FEW_RANKS)
        all = taken = o->env->take(o->env, (size_t)launch->ranks * sizeof *all, 64);
    if (!all) {
        base_format(o->text, sizeof o->text, "no memory to meet %d ranks", launch->ranks);
        return COMM_ERR_MEMORY;
    }
    enum comm_result r = COMM_OK;
    if (o->config.exchange(o->config.exchange_arg, &mine, sizeof mine, all)) {
        base_format(o->text, sizeof o->text, "the program's exchange failed");
        r = COMM_ERR_BACKEND;
    }
    launch->local_rank = launch->local_ranks = 0;
    for (int32_t rank = 0; rank < launch->ranks; rank++) {
        launch->local_rank += all[rank] == mine && rank < launch->rank;
        launch->local_ranks += all[rank] == mine || rank == launch->rank;
    }
    env_give_back(o->env, taken, (size_t)launch->ranks * sizeof *taken);
    return r;
}

/* The numbers of the hosts that were seen, found by the host's id. */
struct seen_host {
    uint64_t id;
    int32_t number; /* from 1; 0: free */
};
struct seen_hosts {
    struct seen_host *at;
    size_t room; /* a power of two, at least twice the number of ranks */
};

/* The place of this host, or the free place where it belongs. An id is a hash already. */
static struct seen_host *seen_find(const struct seen_hosts *seen, uint64_t id)
{
    size_t i = id & (seen->room - 1);

    while (seen->at[i].number && seen->at[i].id != id)
        i = (i + 1) & (seen->room - 1);
    return &seen->at[i];
}

/* Numbers the hosts in the order of their lowest ranks. Ranks of one process have no agreement each. */
static enum comm_result find_hosts(struct opening *o, struct world *w, const struct agreement *all)
{
    struct world_hosts *hosts = &w->hosts;
    size_t ranks = (size_t)w->ranks;
    struct seen_hosts seen = {.room = 2};

    while (seen.room < 2 * ranks)
        seen.room *= 2;
    seen.at = o->env->take(o->env, seen.room * sizeof *seen.at, 64);
    hosts->ranks = w->ranks;
    hosts->of = o->env->take(o->env, ranks * sizeof *hosts->of, 64);
    hosts->name = o->env->take(o->env, ranks * sizeof *hosts->name, 64);
    for (int32_t r = 0; seen.at && hosts->of && hosts->name && r < w->ranks; r++) {
        struct host_place place = o->boot ? all[r].place : place_of(o, &o->engine->identity, r);
        struct seen_host *host = seen_find(&seen, place.host);
        if (!host->number) {
            base_copy_text(hosts->name[hosts->count], sizeof *hosts->name, place.name);
            *host = (struct seen_host){place.host, ++hosts->count};
        }
        hosts->of[r] = host->number - 1;
        o->neighbours += !o->boot || all[r].kernel == all[w->rank].kernel;
    }
    env_give_back(o->env, seen.at, seen.room * sizeof *seen.at);
    return seen.at && hosts->of && hosts->name ? COMM_OK : COMM_ERR_MEMORY;
}

/* ------------------------------------------------------------------------------------------------------------ terms */
/* Counts the CPUs that all ranks on this kernel may use together. If each rank is bound to one CPU, that is one CPU per rank. A quota below
 * a rank's CPU mask limits all ranks together. */
static uint32_t usable_cpus(const struct agreement *all, size_t ranks, uint64_t kernel)
{
    uint64_t together[ENV_CPU_WORDS] = {0};
    uint32_t usable = 0, quota = UINT32_MAX;

    for (size_t r = 0; r < ranks; r++) {
        uint32_t mine = 0;
        if (all[r].kernel != kernel)
            continue;
        for (int w = 0; w < ENV_CPU_WORDS; w++) {
            together[w] |= all[r].cpu[w];
            mine += (uint32_t)__builtin_popcountll(all[r].cpu[w]);
        }
        if (all[r].cpus < mine && all[r].cpus < quota)
            quota = all[r].cpus;
    }
    for (int w = 0; w < ENV_CPU_WORDS; w++)
        usable += (uint32_t)__builtin_popcountll(together[w]);
    usable = usable < quota ? usable : quota;
    return usable ? usable : 1;
}

/* From option cpus of rank 0, otherwise from the CPUs that all ranks may use. */
static bool is_oversubscribed(const struct opening *o, const struct agreement *all, size_t ranks)
{
    uint32_t cpus = all->told_cpus ? all->told_cpus : usable_cpus(all, ranks, all->kernel);

    return o->neighbours == o->launch.ranks && (uint32_t)o->launch.ranks > cpus;
}

/* Fills in what this rank contributes. */
static bool fill_agreement(const struct opening *o, struct agreement *mine)
{
    *mine = (struct agreement){.magic = AGREEMENT_MAGIC,
                               .window = o->options.window,
                               .chunk = o->options.chunk,
                               .minimal = (uint32_t)o->options.minimal,
                               .check = o->check,
                               .order_block = o->options.order_block,
                               .nccl_fallback = o->options.nccl_fallback != 0,
                               .told_cpus = (uint32_t)o->options.cpus,
                               .free_order = o->options.order == OPTION_ORDER_FREE,
                               .fixed_order = o->options.order == OPTION_ORDER_FIXED,
                               .timeout_ns = o->options.operation_timeout_ns,
                               .peer_timeout_ns = o->options.peer_timeout_ns,
                               .link_timeout_ns = o->options.link_timeout_ns,
                               .native = (uint32_t)o->probed,
                               .kernel = o->engine->identity.host_id,
                               .place = place_of(o, &o->engine->identity, o->launch.rank),
                               .cpus = o->env->cpus(o->env)};
    base_copy_text(mine->forced, sizeof mine->forced, o->options.algorithm);
    base_copy_text(mine->version, sizeof mine->version, o->version);
    memcpy(mine->cpu, o->engine->identity.cpu, sizeof mine->cpu);
    mine->machine.figures = cost_machine_default;
    if (o->engine->identity.only_reads)
        mine->machine.figures.shm_dirtied = mine->machine.figures.shm_read;
    if (o->launch.rank <= 0 && o->options.machine[0])
        machine_read(o->env, o->options.machine, &mine->machine);
    return !o->env->random(o->env, &mine->id, sizeof mine->id);
}

/* Can these ranks open a world together? */
static enum comm_result check_agreement(struct opening *o, const struct agreement *all, size_t ranks)
{
    if (all->magic != AGREEMENT_MAGIC) {
        base_format(o->text, sizeof o->text, "rank 0 has another version of this library; expected the same version on all ranks");
        return COMM_ERR_CONFIG;
    }
    if (all->machine.failed) { /* rank 0 could not read its machine file, so no rank opens */
        base_copy_text(o->text, sizeof o->text, all->machine.error);
        return COMM_ERR_CONFIG;
    }
    return compare_natives(o, all, ranks);
}

/* Rank 0 decides. */
static void apply_agreement(const struct opening *o, struct world *w, const struct agreement *first)
{
    w->id = first->id;
    w->limits = (struct wire_limits){.window = first->window,
                                     .minimal = first->minimal,
                                     .chunk = first->chunk,
                                     .rendezvous = first->check & CHECK_RENDEZVOUS,
                                     .only_reads = first->machine.figures.shm_dirtied >= first->machine.figures.shm_read,
                                     .ahead = w->oversubscribed};
    w->check = first->check;
    /* blocks of 2^m are subtrees of T */
    w->order_block = first->order_block & (first->order_block - 1) ? (int32_t)first->order_block : 0;
    w->free_order = first->free_order != 0;
    w->fixed_order = first->fixed_order != 0;
    w->falls_back = falls_back(o, first);
    w->timeout_ns = o->options.operation_timeout_ns; /* each rank's own value */
    w->peer_timeout_ns = first->peer_timeout_ns;
    w->link_timeout_ns = first->link_timeout_ns;
    memcpy(w->forced, first->forced, sizeof w->forced);
    w->measured = first->machine.measured != 0;
    w->machine = first->machine.figures;
    if (!w->measured)
        w->machine.cpus = o->engine->cpus;
}

enum comm_result open_terms(struct opening *o, struct world *w)
{
    struct agreement mine;
    size_t ranks = o->boot ? (size_t)o->launch.ranks : 1;

    if (!fill_agreement(o, &mine))
        return COMM_ERR_SYSTEM;
    struct agreement *all = o->env->take(o->env, ranks * sizeof *all, 64);
    if (!all)
        return COMM_ERR_MEMORY;
    enum comm_result r = open_gather(o, &mine, sizeof mine, all);
    if (r == COMM_OK)
        r = check_agreement(o, all, ranks);
    if (r == COMM_OK)
        r = find_hosts(o, w, all);
    if (r == COMM_OK && !o->options.cpus)
        o->engine->cpus = usable_cpus(all, ranks, mine.kernel);
    w->oversubscribed = r == COMM_OK && is_oversubscribed(o, all, ranks);
    apply_agreement(o, w, all);
    o->env->give(o->env, all, ranks * sizeof *all);
    return r;
}
