/* Ranks that meet in their launcher's store: a mock launcher (mock_pmi.h), which answers correctly and with each kind of mistake. tests/mpi
 * and tests/slurm have real launchers. */
#define _GNU_SOURCE
#include "net/mock_pmi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char by_hand[] = "4f1d2c3b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0aa";

#define OPEN(...) comm_open(COMM_CONFIG(.error_text = text, .error_text_bytes = sizeof text, __VA_ARGS__), &world)

/* Opens one world after another, as a program may. */
static void meets(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    for (int i = 0; i < MOCK_WORLDS; i++) {
        struct comm_info info = {.size = sizeof info};
        int32_t mine = rank, sum = -1;
        struct comm_request q;
        char text[512] = "";
        enum comm_result r = OPEN(.open_timeout_ns = 10 * RIG_S);
        if (r != COMM_OK)
            rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
        MUST(comm_describe(world, &info));
        EQUAL(strcmp(info.launcher, mock.dialect->launcher), 0);
        MUST(comm_allreduce(world, &mine, &sum, 1, COMM_I32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(sum, 6);
        MUST(comm_close(world, RIG_PATIENCE));
    }
}

RIG_TEST(by_the_launchers_store)
{
    mock_run(meets);
}

/* The secret of this world that rank 0 put into the store: 64 digits, or "none". */
static const char *secret_of(int world)
{
    const char *at = strstr(mock.value[world], ";key+");
    CHECK(mock.puts == MOCK_WORLDS && at != NULL);
    return at + 5;
}

/* Rank 0 makes one for each world. Without a secret set by hand, the ranks prove this one and seal with it. */
RIG_TEST(a_secret_travels_in_the_store)
{
    mock.sealed = true;
    mock_run(meets);
    for (int i = 0; i < MOCK_WORLDS; i++)
        EQUAL(strspn(secret_of(i), "0123456789abcdef"), 64);
    CHECK(memcmp(secret_of(0), secret_of(1), 64) != 0);
}

/* A secret that was given is never put into the store. */
RIG_TEST(a_secret_that_was_given_stays_out_of_the_store)
{
    for (int i = 0; i < MOCK_RANKS; i++)
        mock.given[i] = by_hand;
    mock_run(meets);
    for (int i = 0; i < MOCK_WORLDS; i++)
        EQUAL(strncmp(secret_of(i), "none", 4), 0);
    CHECK(!strstr(mock.value[0], by_hand));
}

static void is_the_only_one_with_a_secret(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";
    enum comm_result r = OPEN(.open_timeout_ns = 2 * RIG_S);

    (void)proc;
    if (rank == 1 ? r != COMM_ERR_AUTH || !strstr(text, "rank 0 came without the secret that rank 1 was given") : r == COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
}

RIG_TEST(a_secret_that_one_rank_was_given)
{
    mock.given[1] = by_hand;
    mock_run(is_the_only_one_with_a_secret);
}

static void opens_another_size(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";

    (void)proc;
    setenv("PMI_SIZE", rank == 1 ? "5" : "4", 1);
    enum comm_result r = OPEN(.open_timeout_ns = rank == 1 ? RIG_PATIENCE / 2 : RIG_S);
    if (rank == 1 ? r != COMM_ERR_AUTH || !strstr(text, "it is of a world of 4 ranks, and this rank is of one of 5") : r == COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
}

/* What is in the store stays as it is, so the rank says at once what is wrong. */
RIG_TEST(a_world_of_another_size_in_the_store)
{
    mock_run(opens_another_size);
}

/* The rank that gets the wrong reply reports it, whenever that comes. The others may learn of it, or wait until their time is up: rank 0,
 * from which the others get their reply, has time to come to the barrier before. All end before proc_finish() loses patience. */
static void hears(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    const struct mock_case *w = mock.wrong;
    char text[512] = "";
    bool put = strcmp(w->command, "put") == 0 || strcmp(w->command, "kvs-put") == 0;
    bool get = strcmp(w->command, "get ") == 0 || strcmp(w->command, "kvs-get") == 0;
    bool mine = put ? rank == 0 : get ? rank != 0 : true, waits = !mine || w->result == COMM_ERR_TIMEOUT;
    enum comm_result r = OPEN(.open_timeout_ns = !waits ? RIG_PATIENCE / 2 : get ? 2 * RIG_S : RIG_S / 3);

    (void)proc;
    CHECK(r != COMM_OK);
    if (mine && (r != w->result || !strstr(text, w->text)))
        rig_die(__FILE__, __LINE__, "rank %d, %s answered with %s: %s: %s; expected %s: %s", rank, w->command,
                w->answer ? w->answer : "nothing", comm_result_name(r), text, comm_result_name(w->result), w->text);
}

static void hear_each(const struct mock_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mock.wrong = &cases[i];
        mock_run(hears);
    }
}

RIG_TEST(what_a_launcher_may_say)
{
    static char endless[MOCK_LINE + 200];
    static const struct mock_case cases[] = {
        {"init", "", COMM_ERR_SYSTEM, "the launcher hung up"},
        {"init", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n", COMM_ERR_SYSTEM, "rc=-1"},
        {"init", "nonsense\n", COMM_ERR_SYSTEM, "another answer of the launcher was expected than nonsense"},
        {"init", "cmd=response_to_initial rc=0\n", COMM_ERR_SYSTEM, "another answer"},
        {"init", endless, COMM_ERR_SYSTEM, "too long"},
        {"init", NULL, COMM_ERR_TIMEOUT, "in time"},
        {"get_my_kvsname", "cmd=my_kvsname rc=0\n", COMM_ERR_SYSTEM, "has no name"},
        {"get_my_kvsname", "cmd=my_kvsname kvsname= rc=0\n", COMM_ERR_SYSTEM, "has no name"},
        {"put", "cmd=put_result rc=-1 msg=no_room\n", COMM_ERR_SYSTEM, "no_room"},
        {"barrier_in", NULL, COMM_ERR_TIMEOUT, "in time"},
        {"barrier_in", "", COMM_ERR_SYSTEM, "the launcher hung up"},
        {"get ", "cmd=get_result rc=-1 msg=key_not_found value=unknown\n", COMM_ERR_SYSTEM, "key_not_found"},
        {"get ", "cmd=get_result rc=0 msg=success\n", COMM_ERR_AUTH, "of another version"},
        {"get ", "cmd=get_result rc=0 msg=success value=commstream+meeting+9;job+1;\n", COMM_ERR_AUTH, "of another version"},
    };

    memset(endless, 'x', sizeof endless - 1);
    hear_each(cases, sizeof cases / sizeof *cases);
}

RIG_TEST(by_the_store_of_version_2)
{
    mock.version_2 = true;
    mock.sealed = true;
    mock_run(meets);
    const char *first = strstr(mock.value[0], "|key+"), *second = strstr(mock.value[1], "|key+");
    CHECK(mock.puts == MOCK_WORLDS && first && second && memcmp(first, second, 5 + 64) != 0);
}

RIG_TEST(what_a_launcher_of_version_2_may_say)
{
    static const struct mock_case cases[] = {
        {"init", "", COMM_ERR_SYSTEM, "the launcher hung up"},
        {"init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", COMM_ERR_SYSTEM, "does not speak version 2 of PMI"},
        {"init", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n", COMM_ERR_SYSTEM, "does not speak version 2 of PMI"},
        {"init", NULL, COMM_ERR_TIMEOUT, "in time"},
        {"fullinit", "    28cmd=fullinit-response;rc=14;", COMM_ERR_SYSTEM, "rc=14"},
        {"fullinit", "    60cmd=fullinit-response;rc=0;", COMM_ERR_TIMEOUT, "in time"},
        {"kvs-put", "    26cmd=kvs-get-response;rc=0;", COMM_ERR_SYSTEM, "another answer of the launcher was expected than cmd=kvs-get"},
        {"kvs-put", "nonsense", COMM_ERR_SYSTEM, "has no length"},
        {"kvs-put", "  9999cmd=kvs-put-response;rc=0;", COMM_ERR_SYSTEM, "has no length"},
        {"kvs-put", "  -  1", COMM_ERR_SYSTEM, "has no length"},
        {"kvs-fence", NULL, COMM_ERR_TIMEOUT, "in time"},
        {"kvs-fence", "", COMM_ERR_SYSTEM, "the launcher hung up"},
        {"kvs-get", "    37cmd=kvs-get-response;rc=0;flag=FALSE;", COMM_ERR_AUTH, "of another version"},
        {"kvs-get", "    43cmd=kvs-get-response;rc=0;value=some+thing;", COMM_ERR_AUTH, "of another version"},
    };

    mock.version_2 = true;
    hear_each(cases, sizeof cases / sizeof *cases);
}

/* ------------------------------------------------------------------------------------------------------------ flux */
RIG_TEST(by_the_store_of_flux)
{
    mock.dialect = &mock_flux;
    mock.sealed = true;
    mock_run(meets);
    CHECK(memcmp(secret_of(0), secret_of(1), 64) != 0);
}

RIG_TEST(what_flux_may_say)
{
    static const struct mock_case cases[] = {
        {"init", "cmd=response_to_init rc=-1\n", COMM_ERR_SYSTEM, "response_to_init rc=-1"},
        {"get_my_kvsname", "cmd=my_kvsname rc=-1\n", COMM_ERR_SYSTEM, "my_kvsname rc=-1"},
        {"put", "cmd=put_result rc=7\n", COMM_ERR_SYSTEM, "put_result rc=7"},
        {"barrier_in", "cmd=barrier_out rc=-1\n", COMM_ERR_SYSTEM, "barrier_out rc=-1"}, /* its shells could not exchange what was put */
        {"barrier_in", NULL, COMM_ERR_TIMEOUT, "in time"},
        {"get ", "cmd=get_result rc=4\n", COMM_ERR_SYSTEM, "get_result rc=4"},
    };

    mock.dialect = &mock_flux;
    hear_each(cases, sizeof cases / sizeof *cases);
}

static void asks_for_version_2(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";
    enum comm_result r = OPEN(.open_timeout_ns = 2 * RIG_S);

    (void)proc;
    if (r != COMM_ERR_SYSTEM || !strstr(text, "the launcher does not speak version 2 of PMI"))
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
}

/* flux run -o pmi=pmi2 is version 1 too. */
RIG_TEST(flux_speaks_version_1_alone)
{
    mock.dialect = &mock_flux;
    mock.address = "store:pmi2";
    mock_run(asks_for_version_2);
}

static void misses_a_rank(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";

    (void)proc;
    if (rank == 2)
        return;
    enum comm_result r = OPEN(.open_timeout_ns = RIG_S / 3);
    if (r != COMM_ERR_TIMEOUT || !strstr(text, "not all ranks came in time to the launcher's barrier"))
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
}

/* flux tells the others nothing: the barrier has no end. */
RIG_TEST(a_rank_that_ends_before_the_barrier)
{
    mock.dialect = &mock_flux;
    mock_run(misses_a_rank);
}

enum { LAST = MOCK_RANKS - 1, OPENED = 1 };

static void opens_in_vain(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";

    for (int i = 0; rank == LAST && i < LAST; i++)
        proc_await(proc, i, OPENED);
    IS(OPEN(.open_timeout_ns = RIG_S / 3), COMM_ERR_TIMEOUT);
    atomic_store(&proc->page[rank].stage, OPENED);
    proc_await(proc, LAST, OPENED);
}

/* The last rank comes to the barrier when the others have given up. They exit with two replies to read. */
RIG_TEST(a_reply_that_comes_after_its_time)
{
    mock.dialect = &mock_flux;
    mock_run(opens_in_vain);
    mock.dialect = &mock_hydra;
    mock_run(opens_in_vain);
    mock.version_2 = true;
    mock_run(opens_in_vain);
}

/* MPI closes PMI_FD when it finalizes, and the number may then belong to any other file of the process, here to one end of a pair. */
static void finds_another_file(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "", told[MOCK_LINE] = "";
    int other[2];

    (void)proc;
    CHECK(OPEN(.open_timeout_ns = 10 * RIG_S) == COMM_OK);
    MUST(comm_close(world, RIG_PATIENCE));
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, other) && dup2(other[0], mock.there[rank]) == mock.there[rank]);
    enum comm_result r = OPEN(.open_timeout_ns = 2 * RIG_S);
    if (r != COMM_ERR_SYSTEM || !strstr(text, "the session of this process with the launcher is over"))
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    CHECK(recv(other[1], told, sizeof told, MSG_DONTWAIT) < 0); /* the other file was told nothing */
}

RIG_TEST(a_descriptor_that_belongs_to_another_file)
{
    mock_run(finds_another_file);
    mock.version_2 = true;
    mock_run(finds_another_file);
}

/* No launcher with a store started this rank. */
static void asks_in_vain(const char *address, const char *what)
{
    struct comm_communicator *world;
    char text[512] = "";

    EQUAL(OPEN(.rank = 1, .ranks = 2, .address = address, .backend = "tcp", .open_timeout_ns = RIG_S), COMM_ERR_CONFIG);
    if (!strstr(text, what))
        rig_die(__FILE__, __LINE__, "%s: %s; expected %s", address, text, what);
}

RIG_TEST(no_launcher_no_store)
{
    unsetenv("PMI_FD");
    unsetenv("PMIX_RANK");
    asks_in_vain("store:pmi", "PMI_FD is not set");
    asks_in_vain("store:pmi2", "PMI_FD is not set");
    setenv("PMI_FD", "seven", 1);
    asks_in_vain("store:pmi", "PMI_FD is no descriptor");
    unsetenv("PMI_FD");
    asks_in_vain("store:pmix", "give COMM_ADDRESS=HOST:PORT");
    asks_in_vain("store:pmi3", "expected HOST:PORT");
    asks_in_vain("store:", "expected HOST:PORT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_launcher_no_store),
                                       cmocka_unit_test(by_the_launchers_store),
                                       cmocka_unit_test(a_secret_travels_in_the_store),
                                       cmocka_unit_test(a_secret_that_was_given_stays_out_of_the_store),
                                       cmocka_unit_test(a_secret_that_one_rank_was_given),
                                       cmocka_unit_test(a_world_of_another_size_in_the_store),
                                       cmocka_unit_test(what_a_launcher_may_say),
                                       cmocka_unit_test(a_descriptor_that_belongs_to_another_file),
                                       cmocka_unit_test(by_the_store_of_version_2),
                                       cmocka_unit_test(what_a_launcher_of_version_2_may_say),
                                       cmocka_unit_test(by_the_store_of_flux),
                                       cmocka_unit_test(what_flux_may_say),
                                       cmocka_unit_test(flux_speaks_version_1_alone),
                                       cmocka_unit_test(a_rank_that_ends_before_the_barrier),
                                       cmocka_unit_test(a_reply_that_comes_after_its_time)};

    return cmocka_run_group_tests_name("net_store", tests, NULL, NULL);
}
