/* Launchers: what each row reads, and every way in which its variables can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/format.h"
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
    assert_string_equal(why, "open-mpi started 8 ranks, of which 2 on this host: a world over several hosts needs backend=tcp, and "
                              "COMM_ADDRESS=HOST:PORT of rank 0's host on every rank");
    several.local_ranks = 8;
    assert_true(team_launch_one_host(&several, why, sizeof why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_launched),
        cmocka_unit_test(comm_run),
        cmocka_unit_test(open_mpi),
        cmocka_unit_test(hydra),
        cmocka_unit_test(long_jobs_stay_apart),
        cmocka_unit_test(wrong_variables),
        cmocka_unit_test(every_offender_is_named),
        cmocka_unit_test(several_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
