/*
 * Finds the launcher of this process. The table has one row per launcher: the variables for rank, count and job, and the host of rank 0.
 * The first row that applies and has a variable set is used. All of its variables are checked, and one error names every wrong one. Nothing
 * is guessed from an incomplete row.
 */
#include "base/check.h"
#include "base/format.h"
#include "base/hash.h"
#include "team/slurm.h"
#include "team/team.h"

#include <string.h>

enum {
    LAUNCH_JOBS = 3,
    LAUNCH_SALTS = 2,
    PORT_FIRST = 20000, /* of ports derived from a job's name: below those that kernels assign */
    PORTS = 12000,
};

struct finder;
struct launcher {
    const char *name;
    const char *rank, *ranks, *local_rank, *local_ranks;
    const char *ranks_else;         /* used if `ranks` is not set */
    const char *job[LAUNCH_JOBS];   /* the first that is set */
    bool by_parent;                 /* if none is set: ranks of one job on one host have the same parent */
    bool spread;                    /* without local_ranks, each rank may be alone on its host */
    const char *salt[LAUNCH_SALTS]; /* appended to the job if set, because job names may repeat */
    const char *host;               /* host of rank 0; its port is derived from the job's name */
    const char *store, *store_by;   /* how ranks of several hosts meet, if the variable `store_by` shows that the launcher offers it */
    const char *unless;             /* if this variable is set and only the count is set here, a later row applies */
    const char *place;              /* this variable alone also selects the row, and the missing ones are then reported */
    bool (*meant)(const struct comm_env *env);
    void (*more)(struct finder *finder, struct team_launch *launch);
};

static bool torchrun_is_meant(const struct comm_env *env);
static bool flux_is_meant(const struct comm_env *env);
static bool hydra_is_meant(const struct comm_env *env);
static bool slurm_is_meant(const struct comm_env *env);
static void more_of_torchrun(struct finder *finder, struct team_launch *launch);
static void more_of_flux(struct finder *finder, struct team_launch *launch);
static void more_of_slurm(struct finder *finder, struct team_launch *launch);
static void more_of_cobre(struct finder *finder, struct team_launch *launch);
static void more_of_cobre_shm(struct finder *finder, struct team_launch *launch);

static const struct launcher launchers[] = {
    {.name = "comm-run",
     .rank = "COMM_RANK",
     .ranks = "COMM_RANKS",
     .local_rank = "COMM_LOCAL_RANK",
     .local_ranks = "COMM_LOCAL_RANKS",
     .job = {"COMM_JOB"},
     .unless = "JOB_COMPLETION_INDEX"},
    {.name = "cobre",
     .rank = "COBRE_TCP_RANK",
     .ranks = "COBRE_TCP_SIZE",
     .job = {"COMM_JOB", "COBRE_TCP_PORT", "COBRE_TCP_SIZE"},
     .spread = true,
     .more = more_of_cobre},
    {.name = "cobre-shm", /* all ranks are on one host */
     .rank = "COBRE_SHM_RANK",
     .ranks = "COBRE_SHM_SIZE",
     .job = {"COBRE_SHM_NAME"},
     .place = "COBRE_SHM_NAME",
     .more = more_of_cobre_shm},
    {.name = "torchrun", /* also PyTorchJob, which sets the first two */
     .rank = "RANK",
     .ranks = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_ranks = "LOCAL_WORLD_SIZE",
     .job = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR"},
     .salt = {"MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
     .spread = true,
     .host = "MASTER_ADDR",
     .meant = torchrun_is_meant,
     .more = more_of_torchrun},
    {.name = "open-mpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .ranks = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_ranks = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"},
     .by_parent = true,
     .salt = {"OMPI_MCA_orte_precondition_transports"},
     .store = "store:pmix",
     .store_by = "PMIX_RANK"},
    {.name = "flux",
     .rank = "FLUX_TASK_RANK",
     .ranks = "FLUX_JOB_SIZE",
     .job = {"FLUX_JOB_ID"},
     .spread = true,
     .store = "store:pmi",
     .store_by = "PMI_FD",
     .meant = flux_is_meant,
     .more = more_of_flux},
    {.name = "hydra",
     .rank = "PMI_RANK",
     .ranks = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_ranks = "MPI_LOCALNRANKS",
     .job = {"PMI_JOBID"},
     .by_parent = true,
     .store = "store:pmi",
     .store_by = "PMI_FD",
     .meant = hydra_is_meant},
    {.name = "slurm",
     .rank = "SLURM_PROCID",
     .ranks = "SLURM_STEP_NUM_TASKS",
     .ranks_else = "SLURM_NTASKS",
     .job = {"SLURM_JOB_ID", "SLURM_JOBID"},
     .salt = {"SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     .meant = slurm_is_meant,
     .more = more_of_slurm},
    {.name = "leader-worker",
     .rank = "LWS_WORKER_INDEX",
     .ranks = "LWS_GROUP_SIZE",
     .job = {"COMM_JOB", "LWS_LEADER_ADDRESS"},
     .spread = true,
     .host = "LWS_LEADER_ADDRESS"},
    {.name = "kubernetes", /* an indexed Job: its pods' environment has neither the count nor the name of the first pod */
     .rank = "JOB_COMPLETION_INDEX",
     .ranks = "COMM_RANKS",
     .job = {"COMM_JOB", "COMM_ADDRESS"},
     .spread = true},
};

struct finder {
    const struct comm_env *env;
    const struct launcher *row;
    char *text;
    size_t room, at;
    bool failed;
};

/* Unset and empty mean the same, because job scripts clear variables that way. */
static const char *value_of(const struct comm_env *env, const char *name)
{
    const char *value = name ? env->lookup(env, name) : NULL;
    return value && *value ? value : NULL;
}

static void complain(struct finder *finder, const char *name, const char *value, const char *expected)
{
    base_append(finder->text, finder->room, &finder->at, "%s%s", finder->failed ? "; " : "", name);
    if (value)
        base_append(finder->text, finder->room, &finder->at, "=%s", value);
    else
        base_append(finder->text, finder->room, &finder->at, " is not set");
    base_append(finder->text, finder->room, &finder->at, ": %s", expected);
    finder->failed = true;
}

/* Reads a number from low to high. If the variable is not set, returns `absent` (if absent >= 0: the row can do without it). */
static int32_t read_number(struct finder *finder, const char *name, int32_t low, int32_t high, int32_t absent)
{
    const char *value = value_of(finder->env, name);
    char expected[96];
    uint64_t number;

    if (!value && absent >= 0)
        return absent;
    if (value && base_parse_u64(value, &number) && number >= (uint64_t)low && number <= (uint64_t)high)
        return (int32_t)number;
    base_format(expected, sizeof expected, "expected a number from %d to %d, as %s sets it", low, high, finder->row->name);
    complain(finder, name, value, expected);
    return low;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0;

    for (; *text; text++)
        hash = base_hash(hash, (unsigned char)*text);
    return hash;
}

/* A name that is too long keeps its beginning and gets a hash of the whole, so that cutting never makes two jobs equal. */
static void set_job(struct team_launch *launch, const char *prefix, const char *job, const char *salt, const char *more)
{
    size_t length =
        base_format(launch->job, sizeof launch->job, "%s:%s%s%s%s%s", prefix, job, *salt ? ":" : "", salt, *more ? ":" : "", more);

    if (length >= sizeof launch->job)
        base_format(launch->job, sizeof launch->job, "%s:%.*s:%016llx", prefix, 64, job,
                    (unsigned long long)base_hash(base_hash(hash_text(job), hash_text(salt)), hash_text(more)));
}

static void find_job(struct finder *finder, struct team_launch *launch)
{
    const struct launcher *row = finder->row;
    struct env_identity identity;
    char parent[32];

    for (int i = 0; i < LAUNCH_JOBS; i++) {
        const char *job = row->job[i] ? value_of(finder->env, row->job[i]) : NULL;
        if (job) {
            const char *salt = value_of(finder->env, row->salt[0]), *more = value_of(finder->env, row->salt[1]);
            set_job(launch, row->name, job, salt ? salt : "", more ? more : "");
            return;
        }
    }
    finder->env->identity(finder->env, &identity);
    if (row->by_parent) {
        base_format(parent, sizeof parent, "parent-%u", identity.parent);
        set_job(launch, row->name, parent, "", "");
    } else if (launch->ranks == 1) {
        base_format(parent, sizeof parent, "process-%u", identity.pid);
        set_job(launch, row->name, parent, "", "");
    } else {
        complain(finder, row->job[0], NULL, "expected a text that all ranks of this job share and no other job has");
    }
}

/* Writes HOST:PORT, with brackets around an IPv6 address. */
static void set_address(struct team_launch *launch, const char *host, uint32_t port)
{
    bool six = host[0] != '[' && memchr(host, ':', strlen(host));

    if (base_format(launch->address, sizeof launch->address, six ? "[%s]:%u" : "%s:%u", host, port) >= sizeof launch->address)
        launch->address[0] = 0;
}

/* Derives the port from the job's name, so that no rank must be told it. It never equals `taken`, a port of the launcher itself. */
static uint32_t port_of(const struct team_launch *launch, uint64_t taken)
{
    uint32_t port = PORT_FIRST + (uint32_t)(hash_text(launch->job) % PORTS);

    return port == taken ? port + 1 : port;
}

static void read_row(struct finder *finder, struct team_launch *launch)
{
    const struct launcher *row = finder->row;
    bool counts_local = value_of(finder->env, row->local_ranks) != NULL, spread = row->spread && !counts_local;
    const char *ranks = row->ranks_else && !value_of(finder->env, row->ranks) ? row->ranks_else : row->ranks;

    launch->launcher = row->name;
    launch->why = value_of(finder->env, row->rank) ? row->rank : ranks;
    launch->ranks = read_number(finder, ranks, 1, TEAM_RANKS_MAX, -1);
    /* If the count is wrong, bounds that follow from it would only add more errors. */
    bool counted = !finder->failed;
    if (!counted)
        launch->ranks = 0;
    int32_t last = counted ? launch->ranks - 1 : TEAM_RANKS_MAX - 1;
    launch->rank = read_number(finder, row->rank, 0, last, -1);
    launch->local_ranks = read_number(finder, row->local_ranks, 1, last + 1, spread ? 1 : launch->ranks);
    int32_t local_last = finder->failed ? last : launch->local_ranks - 1;
    launch->local_rank = read_number(finder, row->local_rank, 0, local_last, counts_local ? -1 : spread ? 0 : launch->rank);
    find_job(finder, launch);
    if (row->host && value_of(finder->env, row->host))
        set_address(launch, value_of(finder->env, row->host), port_of(launch, 0));
    if (row->store && value_of(finder->env, row->store_by))
        base_copy_text(launch->address, sizeof launch->address, row->store);
    if (row->more && !finder->failed)
        row->more(finder, launch);
}

/* ------------------------------------------------------------------------------------------------------------ rules beyond the table */
/* RANK and WORLD_SIZE are names that many scripts use, so a place to meet must be set too. */
static bool torchrun_is_meant(const struct comm_env *env)
{
    return value_of(env, "MASTER_ADDR") || value_of(env, "TORCHELASTIC_RUN_ID");
}

/* SLURM treats a batch script and a login shell as steps of their own, with numbers near 2^32. */
static bool slurm_is_meant(const struct comm_env *env)
{
    const char *step = value_of(env, "SLURM_STEP_ID");
    uint64_t number;

    step = step ? step : value_of(env, "SLURM_STEPID");
    return step && !(base_parse_u64(step, &number) && number >= UINT64_C(0xfffffff0));
}

/* Ranks that hydra starts inside a job of flux inherit flux's variables. */
static bool flux_is_meant(const struct comm_env *env)
{
    return !value_of(env, "MPI_LOCALNRANKS");
}

/* srun also sets PMI's variables, but not the number of ranks per host; SLURM's own variables have that. */
static bool hydra_is_meant(const struct comm_env *env)
{
    return value_of(env, "MPI_LOCALNRANKS") || !slurm_is_meant(env) || !value_of(env, "SLURM_PROCID");
}

static bool is_this_host(const char *host)
{
    return base_equal(host, "localhost") || base_equal(host, "::1") || strncmp(host, "127.", 4) == 0;
}

/* MASTER_PORT belongs to torchrun's own store. */
static void more_of_torchrun(struct finder *finder, struct team_launch *launch)
{
    const char *host = value_of(finder->env, "MASTER_ADDR"), *port = value_of(finder->env, "MASTER_PORT");
    const char *groups = value_of(finder->env, "GROUP_WORLD_SIZE");
    uint64_t taken = 0, hosts = 1;

    if (port && (!base_parse_u64(port, &taken) || taken > 65535))
        complain(finder, "MASTER_PORT", port, "expected a port");
    if (groups && !base_parse_u64(groups, &hosts))
        complain(finder, "GROUP_WORLD_SIZE", groups, "expected a number");
    if (hosts > 1 && value_of(finder->env, "LOCAL_WORLD_SIZE") && launch->local_ranks == launch->ranks)
        complain(finder, "GROUP_WORLD_SIZE", groups, "contradicts LOCAL_WORLD_SIZE, by which all of WORLD_SIZE are on this host");
    if (host)
        set_address(launch, host, port_of(launch, taken));
    if (host && is_this_host(host) && !value_of(finder->env, "LOCAL_WORLD_SIZE")) {
        launch->local_ranks = launch->ranks;
        launch->local_rank = launch->rank;
    }
}

/* Whether srun --mpi=pmix serves the ranks of this very step. PMIx's variables may also be inherited from another step, or from mpirun. */
static bool step_has_pmix(const struct comm_env *env, int32_t rank)
{
    const char *space = value_of(env, "PMIX_NAMESPACE"), *number = value_of(env, "PMIX_RANK"), *step = value_of(env, "SLURM_STEP_ID");
    uint64_t own;
    char ours[64];

    step = step ? step : value_of(env, "SLURM_STEPID");
    base_format(ours, sizeof ours, "slurm.pmix.%s.%s", team_slurm_job(env), step);
    return space && base_equal(space, ours) && number && base_parse_u64(number, &own) && own == (uint64_t)rank;
}

static void more_of_slurm(struct finder *finder, struct team_launch *launch)
{
    const char *names = value_of(finder->env, "SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
    const char *shares = value_of(finder->env, "SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
    const char *list = value_of(finder->env, names), *share = value_of(finder->env, shares);
    int32_t node = read_number(finder, "SLURM_NODEID", 0, SLURM_HOSTS_MOST - 1, 0);
    uint64_t tasks = 0, all = 0;
    char host[256];

    if (share && (!slurm_tasks(share, (uint64_t)node, &tasks, &all) || !tasks || tasks > TEAM_RANKS_MAX)) {
        complain(finder, shares, share, "expected numbers of tasks like 4(x2),3, with one for SLURM_NODEID");
    } else if (share && all != (uint64_t)launch->ranks) {
        complain(finder, shares, share, "contradicts the number of tasks of this step");
    } else {
        launch->local_ranks = share ? (int32_t)tasks : launch->ranks;
        launch->local_rank = read_number(finder, "SLURM_LOCALID", 0, launch->local_ranks - 1, share ? (tasks == 1 ? 0 : -1) : launch->rank);
    }
    if (list && !slurm_host(list, 0, host, sizeof host))
        complain(finder, names, list, "expected a list of hosts like n[01-03,7],login");
    else if (list)
        set_address(launch, host, port_of(launch, 0));
    launch->store = step_has_pmix(finder->env, launch->rank) ? "store:pmix" : NULL;
}

/* Workers know the address of the coordinator. Rank 0 knows only the local address to listen on, by default all of them. */
static void more_of_cobre(struct finder *finder, struct team_launch *launch)
{
    const char *port = value_of(finder->env, "COBRE_TCP_PORT");
    const char *name = launch->rank ? "COBRE_TCP_COORDINATOR" : "COBRE_TCP_BIND_ADDR", *host = value_of(finder->env, name);
    uint64_t number = 29500;

    if (port && (!base_parse_u64(port, &number) || number < 1 || number > 65535))
        complain(finder, "COBRE_TCP_PORT", port, "expected a port from 1 to 65535");
    if (launch->rank && !host)
        complain(finder, name, NULL, "expected rank 0's host");
    host = host ? host : "0.0.0.0";
    const char *colon = memchr(host, ':', strlen(host));
    if (!colon || memchr(colon + 1, ':', strlen(colon + 1)))
        set_address(launch, host, (uint32_t)number);
    else if (colon > host && base_parse_u64(colon + 1, &number) && number >= 1 && number <= 65535 && strlen(host) < sizeof launch->address)
        base_copy_text(launch->address, sizeof launch->address, host); /* it already has a port */
    else
        complain(finder, name, host, "expected HOST, or HOST:PORT with a port from 1 to 65535");
}

/* flux sets the number of its nodes, but not how many ranks each has: at least those before this one. */
static void more_of_flux(struct finder *finder, struct team_launch *launch)
{
    bool one_node = read_number(finder, "FLUX_JOB_NNODES", 1, TEAM_RANKS_MAX, 1) == 1 && value_of(finder->env, "FLUX_JOB_NNODES");

    launch->local_rank = one_node ? launch->rank : read_number(finder, "FLUX_TASK_LOCAL_ID", 0, launch->ranks - 1, 0);
    launch->local_ranks = one_node ? launch->ranks : launch->local_rank + 1;
}

/* The name must be valid for shm_open. Ranks use it only to find each other; no such object is created. */
static void more_of_cobre_shm(struct finder *finder, struct team_launch *launch)
{
    const char *name = value_of(finder->env, "COBRE_SHM_NAME");

    (void)launch;
    if (name && (name[0] != '/' || !name[1] || memchr(name + 1, '/', strlen(name + 1))))
        complain(finder, "COBRE_SHM_NAME", name, "expected / and a name without another /");
}

/* ------------------------------------------------------------------------------------------------------------ finding */
/* Without a launcher: a world of one rank, with a job name that no other process has. */
static enum comm_result launch_alone(const struct comm_env *env, struct team_launch *launch, char *text, size_t room)
{
    uint64_t number;

    int error = env->random(env, &number, sizeof number);
    if (error) {
        base_format(text, room, "no random bytes: errno %d", error);
        return COMM_ERR_SYSTEM;
    }
    *launch = (struct team_launch){.launcher = "none", .why = "no launcher's variables are set", .ranks = 1, .local_ranks = 1};
    base_format(launch->job, sizeof launch->job, "none:%016llx", (unsigned long long)number);
    return COMM_OK;
}

enum comm_result team_launch_find(const struct comm_env *env, struct team_launch *launch, char *text, size_t text_bytes)
{
    struct finder finder = {.env = env, .text = text, .room = text_bytes};
    struct team_launch found = {0};

    if (text_bytes)
        text[0] = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !finder.row; i++) {
        const struct launcher *row = &launchers[i];
        bool counts = value_of(env, row->ranks) && !value_of(env, row->unless);
        if ((!row->meant || row->meant(env)) && (value_of(env, row->rank) || counts || value_of(env, row->place)))
            finder.row = row;
    }
    if (!finder.row)
        return launch_alone(env, launch, text, text_bytes);
    read_row(&finder, &found);
    if (finder.failed)
        return COMM_ERR_CONFIG;
    *launch = found;
    return COMM_OK;
}

const char *team_slurm_job(const struct comm_env *env)
{
    const char *job = value_of(env, "SLURM_JOB_ID");

    job = job ? job : value_of(env, "SLURM_JOBID");
    return job ? job : "";
}

bool team_launch_one_host(const struct team_launch *launch, char *text, size_t text_bytes)
{
    if (launch->ranks == launch->local_ranks)
        return true;
    base_format(text, text_bytes,
                "%s started %d ranks, of which %d on this host: a world over several hosts needs COMM_ADDRESS=HOST:PORT of rank 0's host "
                "on every rank, and a backend that reaches other hosts, such as auto",
                launch->launcher, launch->ranks, launch->local_ranks);
    return false;
}
