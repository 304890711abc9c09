/* Launchers: what each row reads, and every way in which its variables can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/format.h"
#include "fuzz/fuzz.h"
#include "team/team.h"

#include <errno.h>
#include <string.h>

static const char *const *variables; /* pairs, ended by NULL */
static int random_error;

static const char *lookup(const struct comm_env *env, const char *name)
{
    (void)env;
    for (const char *const *v = variables; v && *v; v += 2)
        if (base_equal(*v, name))
            return v[1];
    return NULL;
}

static int fill(const struct comm_env *env, void *memory, size_t bytes)
{
    static unsigned char next = 1;
    (void)env;
    memset(memory, next++, bytes);
    return random_error;
}

static void identity(const struct comm_env *env, struct env_identity *to)
{
    (void)env;
    *to = (struct env_identity){.pid = 501, .parent = 500};
}

static const struct comm_env env = {.lookup = lookup, .random = fill, .identity = identity};
static struct team_launch launch;
static char text[1024];

#define FIND(...) (variables = (const char *const[]){__VA_ARGS__, NULL}, team_launch_find(&env, &launch, text, sizeof text))

static void is_launch(const char *launcher, int32_t rank, int32_t ranks, int32_t local_rank, const char *job)
{
    assert_string_equal(text, "");
    assert_string_equal(launch.launcher, launcher);
    assert_int_equal(launch.rank, rank);
    assert_int_equal(launch.ranks, ranks);
    assert_int_equal(launch.local_rank, local_rank);
    assert_int_equal(launch.local_ranks, ranks);
    if (job)
        assert_string_equal(launch.job, job);
}

static void nobody_launched(void **state)
{
    char first[128];

    (void)state;
    assert_int_equal(FIND(NULL), COMM_OK);
    is_launch("none", 0, 1, 0, NULL);
    memcpy(first, launch.job, sizeof first);
    assert_int_equal(FIND("COMM_RANK", "", "PMI_SIZE", ""), COMM_OK);
    is_launch("none", 0, 1, 0, NULL);
    assert_string_not_equal(first, launch.job);
    random_error = EIO;
    assert_int_equal(FIND(NULL), COMM_ERR_SYSTEM);
    assert_string_equal(text, "no random bytes: errno 5");
    random_error = 0;
}

#define OURS(rank, ranks) "COMM_RANK", rank, "COMM_RANKS", ranks, "COMM_LOCAL_RANK", rank, "COMM_LOCAL_RANKS", ranks

static void comm_run(void **state)
{
    (void)state;
    assert_int_equal(FIND(OURS("3", "4"), "COMM_JOB", "abc"), COMM_OK);
    is_launch("comm-run", 3, 4, 3, "comm-run:abc");
    assert_int_equal(FIND("COMM_RANK", "1", "COMM_RANKS", "2", "COMM_JOB", "by hand"), COMM_OK);
    is_launch("comm-run", 1, 2, 1, "comm-run:by hand");
    assert_int_equal(FIND(OURS("0", "1")), COMM_OK);
    is_launch("comm-run", 0, 1, 0, "comm-run:process-501");
    assert_int_equal(FIND(OURS("0", "2"), "COMM_JOB", "j", "PMI_RANK", "7", "PMI_SIZE", "8"), COMM_OK);
    is_launch("comm-run", 0, 2, 0, "comm-run:j");
}

#define OMPI(rank, size, local, locals)                                                                                                    \
    "OMPI_COMM_WORLD_RANK", rank, "OMPI_COMM_WORLD_SIZE", size, "OMPI_COMM_WORLD_LOCAL_RANK", local, "OMPI_COMM_WORLD_LOCAL_SIZE", locals

static void open_mpi(void **state)
{
    (void)state;
    assert_int_equal(FIND(OMPI("2", "3", "2", "3"), "PMIX_NAMESPACE", "prterun-a-5@1", "OMPI_MCA_ess_base_jobid", "9"), COMM_OK);
    is_launch("open-mpi", 2, 3, 2, "open-mpi:prterun-a-5@1");
    assert_int_equal(FIND(OMPI("2", "3", "2", "3"), "PMIX_NAMESPACE", "7", "OMPI_MCA_orte_precondition_transports", "a6-6f"), COMM_OK);
    is_launch("open-mpi", 2, 3, 2, "open-mpi:7:a6-6f");
    assert_int_equal(FIND(OMPI("2", "3", "1", "3"), "OMPI_MCA_ess_base_jobid", "99"), COMM_OK);
    is_launch("open-mpi", 2, 3, 1, "open-mpi:99");
    assert_int_equal(FIND(OMPI("0", "3", "0", "3"), "OMPI_MCA_orte_hnp_uri", "77.0;tcp://h:1"), COMM_OK);
    is_launch("open-mpi", 0, 3, 0, "open-mpi:77.0;tcp://h:1");
    assert_int_equal(FIND(OMPI("0", "3", "0", "3")), COMM_OK);
    is_launch("open-mpi", 0, 3, 0, "open-mpi:parent-500");
}

static void hydra(void **state)
{
    (void)state;
    assert_int_equal(FIND("PMI_RANK", "1", "PMI_SIZE", "4", "MPI_LOCALRANKID", "1", "MPI_LOCALNRANKS", "4"), COMM_OK);
    is_launch("hydra", 1, 4, 1, "hydra:parent-500");
    assert_int_equal(FIND("PMI_RANK", "1", "PMI_SIZE", "4", "PMI_JOBID", "12.0"), COMM_OK);
    is_launch("hydra", 1, 4, 1, "hydra:12.0");
    assert_string_equal(launch.address, "");
    assert_int_equal(FIND("PMI_RANK", "1", "PMI_SIZE", "4", "PMI_FD", "6", "MPI_LOCALRANKID", "1", "MPI_LOCALNRANKS", "2"), COMM_OK);
    assert_string_equal(launch.address, "store:pmi");
}

static void flux(void **state)
{
    (void)state;
    assert_int_equal(FIND("FLUX_TASK_RANK", "1", "FLUX_JOB_SIZE", "4", "FLUX_JOB_ID", "f7x", "FLUX_JOB_NNODES", "1", "PMI_RANK", "1",
                          "PMI_SIZE", "4", "PMI_FD", "6"),
                     COMM_OK);
    is_launch("flux", 1, 4, 1, "flux:f7x");
    assert_string_equal(launch.address, "store:pmi");
    assert_int_equal(FIND("FLUX_TASK_RANK", "5", "FLUX_JOB_SIZE", "8", "FLUX_JOB_ID", "f7x", "FLUX_JOB_NNODES", "2", "FLUX_TASK_LOCAL_ID",
                          "1", "PMI_RANK", "5", "PMI_SIZE", "8", "PMI_FD", "6"),
                     COMM_OK);
    assert_string_equal(launch.launcher, "flux");
    assert_int_equal(launch.local_rank * 10 + launch.local_ranks, 12); /* at least two, and not all: there are several hosts */
    assert_int_equal(FIND("FLUX_TASK_RANK", "0", "FLUX_JOB_SIZE", "1", "FLUX_JOB_ID", "f7x", "PMI_RANK", "1", "PMI_SIZE", "4",
                          "MPI_LOCALRANKID", "1", "MPI_LOCALNRANKS", "4"),
                     COMM_OK); /* mpiexec inside a job of flux */
    is_launch("hydra", 1, 4, 1, "hydra:parent-500");
}

static void long_jobs_stay_apart(void **state)
{
    char a[300], first[128];

    (void)state;
    memset(a, 'x', sizeof a);
    a[sizeof a - 1] = 0;
    assert_int_equal(FIND(OURS("0", "2"), "COMM_JOB", a), COMM_OK);
    memcpy(first, launch.job, sizeof first);
    a[sizeof a - 2] = 'y';
    assert_int_equal(FIND(OURS("0", "2"), "COMM_JOB", a), COMM_OK);
    assert_string_not_equal(first, launch.job);
    assert_true(strlen(launch.job) < sizeof launch.job);
}

static void where(int32_t local_ranks, const char *address)
{
    assert_int_equal(launch.local_ranks, local_ranks);
    assert_string_equal(launch.address, address);
}

#define TORCH(rank, size, local, locals) "RANK", rank, "WORLD_SIZE", size, "LOCAL_RANK", local, "LOCAL_WORLD_SIZE", locals
#define ELASTIC "MASTER_ADDR", "n0", "MASTER_PORT", "29500", "TORCHELASTIC_RUN_ID", "run"

static void torchrun(void **state)
{
    char address[288];

    (void)state;
    assert_int_equal(FIND(TORCH("5", "8", "1", "4"), ELASTIC, "TORCHELASTIC_RESTART_COUNT", "0"), COMM_OK);
    assert_string_equal(launch.launcher, "torchrun");
    assert_string_equal(launch.job, "torchrun:run:29500:0");
    assert_int_equal(launch.rank * 100 + launch.ranks * 10 + launch.local_rank, 581);
    assert_memory_equal(launch.address, "n0:2", 4); /* a port of its own, the same for all ranks of this start, another after a restart */
    where(4, launch.address);
    memcpy(address, launch.address, sizeof address);
    assert_int_equal(FIND(TORCH("0", "8", "0", "4"), ELASTIC, "TORCHELASTIC_RESTART_COUNT", "0"), COMM_OK);
    assert_string_equal(launch.address, address);
    assert_int_equal(FIND(TORCH("0", "8", "0", "4"), ELASTIC, "TORCHELASTIC_RESTART_COUNT", "1"), COMM_OK);
    assert_string_not_equal(launch.address, address);
    char *port = strchr(address, ':') + 1; /* taken by the launcher itself: another one */
    assert_int_equal(FIND(TORCH("0", "8", "0", "4"), "MASTER_ADDR", "::1", "MASTER_PORT", port, "TORCHELASTIC_RUN_ID", "x"), COMM_OK);
    assert_true(!strncmp(launch.address, "[::1]:", 6) && strcmp(launch.address + 6, port));
    assert_int_equal(FIND("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "localhost", "MASTER_PORT", "1234"), COMM_OK);
    is_launch("torchrun", 1, 2, 1, "torchrun:localhost:1234");
    assert_int_equal(FIND("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "job-master-0", "MASTER_PORT", "1234"), COMM_OK);
    assert_int_equal(launch.local_ranks, 1);                         /* as PyTorchJob starts them: each in a pod of its own */
    assert_int_equal(FIND("RANK", "1", "WORLD_SIZE", "2"), COMM_OK); /* anybody's names */
    is_launch("none", 0, 1, 0, NULL);
}

#define STEP "SLURM_JOB_ID", "77", "SLURM_STEP_ID", "3", "SLURM_STEP_NODELIST", "n[02-03],gpu7", "SLURM_STEP_TASKS_PER_NODE", "2(x2),1"

static void slurm(void **state)
{
    (void)state;
    assert_int_equal(FIND(STEP, "SLURM_PROCID", "4", "SLURM_STEP_NUM_TASKS", "5", "SLURM_LOCALID", "0", "SLURM_NODEID", "2"), COMM_OK);
    assert_string_equal(launch.launcher, "slurm");
    assert_string_equal(launch.job, "slurm:77:3");
    assert_int_equal(launch.rank * 100 + launch.ranks * 10 + launch.local_rank, 450);
    assert_memory_equal(launch.address, "n02:2", 5);
    where(1, launch.address);
    assert_int_equal(
        FIND(STEP, "SLURM_PROCID", "1", "SLURM_NTASKS", "5", "SLURM_LOCALID", "1", "SLURM_NODEID", "0", "PMI_RANK", "1", "PMI_SIZE", "5"),
        COMM_OK); /* srun sets PMI's too, and not who is on this host */
    assert_string_equal(launch.launcher, "slurm");
    where(2, launch.address);
    assert_int_equal(FIND(STEP, "SLURM_PROCID", "0", "SLURM_NTASKS", "5", "PMI_RANK", "3", "PMI_SIZE", "4", "MPI_LOCALRANKID", "3",
                          "MPI_LOCALNRANKS", "4"),
                     COMM_OK); /* a step of hydra's own */
    is_launch("hydra", 3, 4, 3, "hydra:parent-500");
    assert_int_equal(FIND("SLURM_JOB_ID", "77", "SLURM_PROCID", "0", "SLURM_NTASKS", "5"), COMM_OK); /* a batch script is no step */
    is_launch("none", 0, 1, 0, NULL);
    assert_int_equal(FIND("SLURM_JOB_ID", "77", "SLURM_STEP_ID", "4294967291", "SLURM_PROCID", "0", "SLURM_NTASKS", "5"), COMM_OK);
    is_launch("none", 0, 1, 0, NULL);
}

/* The store is this very step's, or none is offered. The address is there in any case. */
static void stores_of_slurm(void **state)
{
    static const struct {
        const char *space, *rank, *want;
    } rows[] = {
        {"slurm.pmix.77.3", "1", "store:pmix"},
        {"slurm.pmix.77.2", "1", NULL}, /* of a step in which this one was started */
        {"slurm.pmix.76.3", "1", NULL},
        {"slurm.pmix.77.3", "2", NULL},
        {"slurm.pmix.77.3", "", NULL},
        {"slurm.pmix.77.3", "one", NULL},
        {"", "1", NULL},
        {"prterun-a-5@1", "1", NULL}, /* of mpirun, from inside of which srun was called */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(FIND(STEP, "SLURM_PROCID", "1", "SLURM_NTASKS", "5", "SLURM_LOCALID", "1", "SLURM_NODEID", "0", "PMIX_NAMESPACE",
                              rows[i].space, "PMIX_RANK", rows[i].rank),
                         COMM_OK);
        assert_int_equal(launch.store != NULL, rows[i].want != NULL);
        if (rows[i].want)
            assert_string_equal(launch.store, rows[i].want);
        assert_memory_equal(launch.address, "n02:2", 5);
    }
    assert_int_equal(FIND("SLURM_JOBID", "77", "SLURM_STEPID", "0", "SLURM_PROCID", "1", "SLURM_NTASKS", "2", "PMIX_NAMESPACE",
                          "slurm.pmix.77.0", "PMIX_RANK", "1"),
                     COMM_OK);
    assert_string_equal(launch.store, "store:pmix");
    assert_int_equal(
        FIND(STEP, "SLURM_PROCID", "0", "SLURM_NTASKS", "5", "SLURM_LOCALID", "0", "PMI_RANK", "0", "PMI_SIZE", "5", "PMI_FD", "6"),
        COMM_OK); /* --mpi=pmi2: MPI may need version 2, which starts once */
    assert_null(launch.store);
    assert_int_equal(FIND(OURS("1", "2"), "COMM_JOB", "j", "PMIX_NAMESPACE", "slurm.pmix.77.0", "PMIX_RANK", "1"), COMM_OK);
    assert_null(launch.store);
}

static void kubernetes(void **state)
{
    (void)state;
    assert_int_equal(FIND("JOB_COMPLETION_INDEX", "2", "COMM_RANKS", "3", "COMM_ADDRESS", "train-0.svc:4000"), COMM_OK);
    assert_string_equal(launch.launcher, "kubernetes");
    assert_int_equal(launch.rank * 10 + launch.ranks, 23);
    where(1, "");
    assert_int_equal(FIND("JOB_COMPLETION_INDEX", "2", "COMM_RANKS", "3", "COMM_RANK", "1", "COMM_JOB", "j"), COMM_OK);
    assert_string_equal(launch.launcher, "comm-run");
    assert_int_equal(FIND("LWS_WORKER_INDEX", "1", "LWS_GROUP_SIZE", "4", "LWS_LEADER_ADDRESS", "l-0.l.default"), COMM_OK);
    assert_string_equal(launch.launcher, "leader-worker");
    assert_memory_equal(launch.address, "l-0.l.default:2", 15);
}

static void cobre(void **state)
{
    (void)state;
    assert_int_equal(FIND("COBRE_TCP_RANK", "1", "COBRE_TCP_SIZE", "3", "COBRE_TCP_COORDINATOR", "head"), COMM_OK);
    assert_string_equal(launch.job, "cobre:3");
    where(1, "head:29500");
    assert_int_equal(FIND("COBRE_TCP_RANK", "1", "COBRE_TCP_SIZE", "3", "COBRE_TCP_COORDINATOR", "head:17"), COMM_OK);
    where(1, "head:17");
    assert_int_equal(FIND("COBRE_TCP_RANK", "0", "COBRE_TCP_SIZE", "3", "COBRE_TCP_PORT", "4000"), COMM_OK);
    where(1, "0.0.0.0:4000");
    assert_int_equal(FIND("COBRE_TCP_RANK", "0", "COBRE_TCP_SIZE", "3", "COBRE_TCP_BIND_ADDR", "fe80::1"), COMM_OK);
    where(1, "[fe80::1]:29500");
    assert_int_equal(FIND("COBRE_SHM_NAME", "/run7", "COBRE_SHM_RANK", "2", "COBRE_SHM_SIZE", "3"), COMM_OK);
    assert_string_equal(launch.launcher, "cobre-shm");
    assert_string_equal(launch.job, "cobre-shm:/run7");
    assert_int_equal(launch.rank * 10 + launch.ranks, 23);
    assert_int_equal(launch.local_rank * 10 + launch.local_ranks, 23);
    where(3, "");
}

#define REFUSED(wanted, ...)                                                                                                               \
    do {                                                                                                                                   \
        launch = (struct team_launch){.rank = 42};                                                                                         \
        assert_int_equal(FIND(__VA_ARGS__), COMM_ERR_CONFIG);                                                                              \
        assert_string_equal(text, wanted);                                                                                                 \
        assert_int_equal(launch.rank, 42);                                                                                                 \
    } while (0)

static void wrong_variables(void **state)
{
    (void)state;
    REFUSED("COMM_RANK=4: expected a number from 0 to 3, as comm-run sets it", "COMM_RANK", "4", "COMM_RANKS", "4", "COMM_JOB", "j");
    REFUSED("COMM_RANK=-1: expected a number from 0 to 3, as comm-run sets it", "COMM_RANK", "-1", "COMM_RANKS", "4", "COMM_JOB", "j");
    REFUSED("COMM_RANKS is not set: expected a number from 1 to 65535, as comm-run sets it", "COMM_RANK", "1", "COMM_JOB", "j");
    REFUSED("COMM_RANK is not set: expected a number from 0 to 1, as comm-run sets it", "COMM_RANKS", "2", "COMM_JOB", "j");
    REFUSED("COMM_RANKS=0: expected a number from 1 to 65535, as comm-run sets it", "COMM_RANK", "0", "COMM_RANKS", "0", "COMM_JOB", "j");
    REFUSED("COMM_RANKS=2x: expected a number from 1 to 65535, as comm-run sets it", "COMM_RANK", "0", "COMM_RANKS", "2x", "COMM_JOB", "j");
    REFUSED("COMM_JOB is not set: expected a text that all ranks of this job share and no other job has", OURS("0", "2"));
    REFUSED("COMM_LOCAL_RANKS=5: expected a number from 1 to 4, as comm-run sets it", "COMM_RANK", "0", "COMM_RANKS", "4",
            "COMM_LOCAL_RANK", "0", "COMM_LOCAL_RANKS", "5", "COMM_JOB", "j");
    REFUSED("COMM_LOCAL_RANK=4: expected a number from 0 to 3, as comm-run sets it", "COMM_RANK", "0", "COMM_RANKS", "4", "COMM_LOCAL_RANK",
            "4", "COMM_LOCAL_RANKS", "4", "COMM_JOB", "j");
    REFUSED("COMM_LOCAL_RANK is not set: expected a number from 0 to 3, as comm-run sets it", "COMM_RANK", "0", "COMM_RANKS", "4",
            "COMM_LOCAL_RANKS", "4", "COMM_JOB", "j");
}

/* Each right in itself, and not together: both are named. */
static void contradictions(void **state)
{
    (void)state;
    REFUSED("GROUP_WORLD_SIZE=2: contradicts LOCAL_WORLD_SIZE, by which all of WORLD_SIZE are on this host", TORCH("0", "4", "0", "4"),
            ELASTIC, "GROUP_WORLD_SIZE", "2");
    REFUSED("MASTER_PORT=http: expected a port", TORCH("0", "4", "0", "2"), "MASTER_ADDR", "n0", "MASTER_PORT", "http");
    REFUSED("SLURM_STEP_TASKS_PER_NODE=2(x2),1: contradicts the number of tasks of this step", STEP, "SLURM_PROCID", "0", "SLURM_NTASKS",
            "6");
    REFUSED("SLURM_LOCALID=2: expected a number from 0 to 1, as slurm sets it", STEP, "SLURM_PROCID", "2", "SLURM_NTASKS", "5",
            "SLURM_LOCALID", "2", "SLURM_NODEID", "1");
    REFUSED("SLURM_STEP_TASKS_PER_NODE=2(x2),1: expected numbers of tasks like 4(x2),3, with one for SLURM_NODEID", STEP, "SLURM_PROCID",
            "4", "SLURM_NTASKS", "5", "SLURM_LOCALID", "0", "SLURM_NODEID", "3");
    REFUSED("SLURM_NODELIST=n[1-: expected a list of hosts like n[01-03,7],login", "SLURM_STEP_ID", "0", "SLURM_JOB_ID", "7",
            "SLURM_NODELIST", "n[1-", "SLURM_PROCID", "0", "SLURM_NTASKS", "2");
    REFUSED("COBRE_TCP_PORT=0: expected a port from 1 to 65535; COBRE_TCP_COORDINATOR is not set: expected rank 0's host", "COBRE_TCP_RANK",
            "1", "COBRE_TCP_SIZE", "3", "COBRE_TCP_PORT", "0");
    REFUSED("COBRE_TCP_COORDINATOR=:1: expected HOST, or HOST:PORT with a port from 1 to 65535", "COBRE_TCP_RANK", "1", "COBRE_TCP_SIZE",
            "3", "COBRE_TCP_COORDINATOR", ":1");
    REFUSED("COBRE_SHM_NAME=run7: expected / and a name without another /", "COBRE_SHM_NAME", "run7", "COBRE_SHM_RANK", "1",
            "COBRE_SHM_SIZE", "3");
    REFUSED("COBRE_SHM_SIZE is not set: expected a number from 1 to 65535, as cobre-shm sets it; COBRE_SHM_RANK is not set: expected a "
            "number from 0 to 65534, as cobre-shm sets it",
            "COBRE_SHM_NAME", "/run7");
    REFUSED("COBRE_SHM_NAME is not set: expected a text that all ranks of this job share and no other job has", "COBRE_SHM_RANK", "1",
            "COBRE_SHM_SIZE", "3");
}

static void every_offender_is_named(void **state)
{
    (void)state;
    REFUSED(
        "COMM_RANKS=many: expected a number from 1 to 65535, as comm-run sets it; COMM_RANK=first: expected a number from 0 to 65534, as "
        "comm-run sets it; COMM_JOB is not set: expected a text that all ranks of this job share and no other job has",
        "COMM_RANK", "first", "COMM_RANKS", "many", "COMM_JOB", "");
}

static void several_hosts(void **state)
{
    struct team_launch several = {.launcher = "open-mpi", .ranks = 8, .local_ranks = 2};
    char why[256] = "";

    (void)state;
    assert_false(team_launch_one_host(&several, why, sizeof why));
    assert_string_equal(why, "open-mpi started 8 ranks, of which 2 on this host: a world over several hosts needs "
                             "COMM_ADDRESS=HOST:PORT of rank 0's host on every rank, and a backend that reaches other hosts, such as "
                             "auto");
    several.local_ranks = 8;
    assert_true(team_launch_one_host(&several, why, sizeof why));
}

/* The fuzzer's inputs without the fuzzer: what launchers really set, changed in a few places, from a seed. */
static void mutations(void **state)
{
    static const char *const real[] = {
        "COMM_RANK=1\nCOMM_RANKS=4\nCOMM_JOB=j\nCOMM_LOCAL_RANK=1\nCOMM_LOCAL_RANKS=4\n",
        "RANK=5\nWORLD_SIZE=8\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=4\nMASTER_ADDR=n0\nMASTER_PORT=29500\nTORCHELASTIC_RUN_ID=run\n",
        ("SLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_PROCID=4\nSLURM_STEP_NUM_TASKS=5\nSLURM_NODEID=2\nSLURM_LOCALID=0\n"
         "SLURM_STEP_NODELIST=n[02-03,9],gpu[1-2]x[0-1]\nSLURM_STEP_TASKS_PER_NODE=2(x2),1\nPMIX_NAMESPACE=slurm.pmix.7.0\nPMIX_RANK=4\n"),
        "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=1\nOMPI_COMM_WORLD_LOCAL_SIZE=2\nPMIX_NAMESPACE=x\n",
        "PMI_RANK=1\nPMI_SIZE=4\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2\nPMI_FD=7\nPMIX_RANK=1\n",
        "COBRE_TCP_RANK=1\nCOBRE_TCP_SIZE=3\nCOBRE_TCP_COORDINATOR=head\nCOBRE_TCP_PORT=12\n",
        "LWS_WORKER_INDEX=1\nLWS_GROUP_SIZE=4\nLWS_LEADER_ADDRESS=a.b.c\n",
        "COBRE_SHM_NAME=/run7\nCOBRE_SHM_RANK=1\nCOBRE_SHM_SIZE=3\n",
    };
    uint64_t seed = 1;
    int found = 0;

    (void)state;
    for (int i = 0; i < 60000; i++) {
        char bytes[512];
        size_t count = strlen(real[i % 8]);
        memcpy(bytes, real[i % 8], count);
        for (int k = 0; k < i / 6 % 4; k++) {
            static const char likely[] = "0123456789-+[](),x=:\n\0 \xff";
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes[(seed >> 33) % count] = likely[(seed >> 20) % (sizeof likely - 1)];
        }
        found += fuzz_launcher((const unsigned char *)bytes, count);
    }
    assert_in_range(found, 15000, 60000); /* at least those that were left as they were */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_launched),
        cmocka_unit_test(comm_run),
        cmocka_unit_test(open_mpi),
        cmocka_unit_test(hydra),
        cmocka_unit_test(flux),
        cmocka_unit_test(torchrun),
        cmocka_unit_test(slurm),
        cmocka_unit_test(stores_of_slurm),
        cmocka_unit_test(kubernetes),
        cmocka_unit_test(cobre),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(mutations),
        cmocka_unit_test(long_jobs_stay_apart),
        cmocka_unit_test(wrong_variables),
        cmocka_unit_test(every_offender_is_named),
        cmocka_unit_test(several_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
