/*
 * Who launched this process. Launchers are rows: which variables say rank, count and job. The first row of which anything is set speaks,
 * and all of its variables are checked before one error names every offender. Nothing is guessed from half a row.
 */
#include "base/check.h"
#include "base/format.h"
#include "base/hash.h"
#include "team/team.h"

#include <string.h>

enum { LAUNCH_JOBS = 3, LAUNCH_RANKS_MAX = 65535 /* a wire names peers in 16 bits */ };

struct launcher {
    const char *name;
    const char *rank, *ranks, *local_rank, *local_ranks;
    const char *job[LAUNCH_JOBS]; /* the first that is set */
    bool by_parent;               /* none is: ranks of one job on one host have one parent */
    const char *salt;             /* joined to the job where it is set: job numbers that are made of a few bits may come twice */
};

static const struct launcher launchers[] = {
    {"comm-run", "COMM_RANK", "COMM_RANKS", "COMM_LOCAL_RANK", "COMM_LOCAL_RANKS", {"COMM_JOB"}, false, NULL},
    {"open-mpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"},
     true,
     "OMPI_MCA_orte_precondition_transports"},
    {"hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID"}, true, NULL},
};

struct finder {
    const struct comm_env *env;
    const struct launcher *row;
    char *text;
    size_t room, at;
    bool failed;
};

/* Unset and empty are the same: job scripts clear variables that way. */
static const char *value_of(const struct comm_env *env, const char *name)
{
    const char *value = env->lookup(env, name);
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

/* A number from low to high, or `absent` where the row can do without it (absent >= 0). */
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

/* A name longer than its place keeps its beginning and a hash of the whole, so that two jobs never become one by being cut. */
static void set_job(struct team_launch *launch, const char *prefix, const char *job, const char *salt)
{
    size_t length = base_format(launch->job, sizeof launch->job, "%s:%s%s%s", prefix, job, *salt ? ":" : "", salt);

    if (length >= sizeof launch->job)
        base_format(launch->job, sizeof launch->job, "%s:%.*s:%016llx", prefix, 64, job,
                    (unsigned long long)base_hash(hash_text(job), hash_text(salt)));
}

static void find_job(struct finder *finder, struct team_launch *launch)
{
    const struct launcher *row = finder->row;
    struct env_identity identity;
    char parent[32];

    for (int i = 0; i < LAUNCH_JOBS; i++) {
        const char *job = row->job[i] ? value_of(finder->env, row->job[i]) : NULL;
        if (job) {
            const char *salt = row->salt ? value_of(finder->env, row->salt) : NULL;
            set_job(launch, row->name, job, salt ? salt : "");
            return;
        }
    }
    finder->env->identity(finder->env, &identity);
    if (row->by_parent) {
        base_format(parent, sizeof parent, "parent-%u", identity.parent);
        set_job(launch, row->name, parent, "");
    } else if (launch->ranks == 1) {
        base_format(parent, sizeof parent, "process-%u", identity.pid);
        set_job(launch, row->name, parent, "");
    } else {
        complain(finder, row->job[0], NULL, "expected a text that all ranks of this job share and no other job has");
    }
}

static void read_row(struct finder *finder, struct team_launch *launch)
{
    const struct launcher *row = finder->row;
    bool counts_local = value_of(finder->env, row->local_ranks) != NULL;

    launch->launcher = row->name;
    launch->ranks = read_number(finder, row->ranks, 1, LAUNCH_RANKS_MAX, -1);
    /* With a broken count the bounds that follow from it would only add noise. */
    bool counted = !finder->failed;
    if (!counted)
        launch->ranks = 0;
    int32_t last = counted ? launch->ranks - 1 : LAUNCH_RANKS_MAX - 1;
    launch->rank = read_number(finder, row->rank, 0, last, -1);
    launch->local_ranks = read_number(finder, row->local_ranks, 1, last + 1, launch->ranks);
    int32_t local_last = finder->failed ? last : launch->local_ranks - 1;
    launch->local_rank = read_number(finder, row->local_rank, 0, local_last, counts_local ? -1 : launch->rank);
    find_job(finder, launch);
}

/* No launcher: a world of one, whose job is nobody else's. */
static enum comm_result launch_alone(const struct comm_env *env, struct team_launch *launch, char *text, size_t room)
{
    uint64_t number;

    int error = env->random(env, &number, sizeof number);
    if (error) {
        base_format(text, room, "no random bytes: errno %d", error);
        return COMM_ERR_SYSTEM;
    }
    *launch = (struct team_launch){.launcher = "none", .ranks = 1, .local_ranks = 1};
    base_format(launch->job, sizeof launch->job, "none:%016llx", (unsigned long long)number);
    return COMM_OK;
}

enum comm_result team_launch_find(const struct comm_env *env, struct team_launch *launch, char *text, size_t text_bytes)
{
    struct finder finder = {.env = env, .text = text, .room = text_bytes};
    struct team_launch found = {0};

    if (text_bytes)
        text[0] = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !finder.row; i++)
        if (value_of(env, launchers[i].rank) || value_of(env, launchers[i].ranks))
            finder.row = &launchers[i];
    if (!finder.row)
        return launch_alone(env, launch, text, text_bytes);
    read_row(&finder, &found);
    if (finder.failed)
        return COMM_ERR_CONFIG;
    *launch = found;
    return COMM_OK;
}

bool team_launch_one_host(const struct team_launch *launch, char *text, size_t text_bytes)
{
    if (launch->ranks == launch->local_ranks)
        return true;
    base_format(text, text_bytes,
                "%s started %d ranks, of which %d on this host: a world over several hosts needs backend=tcp, and COMM_ADDRESS=HOST:PORT "
                "of rank 0's host on every rank",
                launch->launcher, launch->ranks, launch->local_ranks);
    return false;
}
