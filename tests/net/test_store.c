/* Ranks that meet in their launcher's store: a mock hydra, which speaks PMI's wire protocol over a socket to each rank, correctly and with
 * each kind of mistake. tests/mpi has real launchers. */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3, WORLDS = 2, LINE = 1200 };
static const char by_hand[] = "4f1d2c3b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0aa";

/* The launcher's reply to this command instead of the right one. Empty: it hangs up. NULL: it sends nothing. */
struct case_of {
    const char *command, *answer;
    enum comm_result result;
    const char *text;
};

struct launcher {
    int here[RANKS], there[RANKS];
    pthread_t thread;
    _Atomic int stop;
    const struct case_of *wrong;
    int arrived;
    char key[WORLDS][64], value[WORLDS][LINE];
    int puts;
};
static struct launcher launcher;
static bool version_2; /* of PMI */

/* ------------------------------------------------------------------------------------------------------------ the launcher */
static void answer(struct launcher *l, int rank, const char *text)
{
    CHECK(send(l->here[rank], text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

static void take_put(struct launcher *l, int rank, const char *line)
{
    if (l->puts == WORLDS || sscanf(line, "cmd=put kvsname=kvs_7 key=%63s value=%1023s", l->key[l->puts], l->value[l->puts]) != 2) {
        answer(l, rank, "cmd=put_result rc=-1 msg=duplicate\n");
        return;
    }
    l->puts++;
    answer(l, rank, "cmd=put_result rc=0 msg=success\n");
}

static void give(struct launcher *l, int rank, const char *line)
{
    char key[64] = "", text[2 * LINE];

    CHECK(sscanf(line, "cmd=get kvsname=kvs_7 key=%63s", key) == 1);
    snprintf(text, sizeof text, "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n", key);
    for (int i = 0; i < l->puts; i++)
        if (!strcmp(key, l->key[i]))
            snprintf(text, sizeof text, "cmd=get_result rc=0 msg=success value=%s\n", l->value[i]);
    answer(l, rank, text);
}

static void arrive(struct launcher *l)
{
    if (++l->arrived < RANKS)
        return;
    l->arrived = 0;
    for (int i = 0; i < RANKS; i++)
        answer(l, i, "cmd=barrier_out\n");
}

/* Whether the line is the case's command, which then gets its wrong reply. */
static bool answer_wrongly(struct launcher *l, int rank, const char *line)
{
    const struct case_of *w = l->wrong;

    if (!w || strncmp(line + 4, w->command, strlen(w->command)) != 0)
        return false;
    if (w->answer && w->answer[0])
        answer(l, rank, w->answer);
    else if (w->answer) {
        close(l->here[rank]);
        l->here[rank] = -1;
    }
    return true;
}

static void serve(struct launcher *l, int rank, const char *line)
{
    if (answer_wrongly(l, rank, line))
        return;
    if (!strncmp(line, "cmd=init ", 9))
        answer(l, rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (!strcmp(line, "cmd=get_my_kvsname\n"))
        answer(l, rank, "cmd=my_kvsname kvsname=kvs_7\n");
    else if (!strncmp(line, "cmd=put ", 8))
        take_put(l, rank, line);
    else if (!strncmp(line, "cmd=get ", 8))
        give(l, rank, line);
    else if (!strcmp(line, "cmd=barrier_in\n"))
        arrive(l);
    else if (!strcmp(line, "cmd=finalize\n"))
        answer(l, rank, "cmd=finalize_ack\n");
}

/* ------------------------------------------------------------------------------------------------------------ version 2 */
static void answer_2(struct launcher *l, int rank, const char *text)
{
    char length[24];

    snprintf(length, sizeof length, "%6zu", strlen(text));
    answer(l, rank, length); /* hydra too writes a message in two pieces */
    rig_nap(2 * RIG_MS);
    answer(l, rank, text);
}

static void arrive_2(struct launcher *l)
{
    if (++l->arrived < RANKS)
        return;
    l->arrived = 0;
    for (int i = 0; i < RANKS; i++)
        answer_2(l, i, "cmd=kvs-fence-response;rc=0;");
}

static void give_2(struct launcher *l, int rank, const char *body)
{
    char key[64] = "", text[2 * LINE];

    CHECK(sscanf(body, "cmd=kvs-get;srcid=-1;key=%63[^;];", key) == 1);
    snprintf(text, sizeof text, "cmd=kvs-get-response;rc=0;flag=FALSE;");
    for (int i = 0; i < l->puts; i++)
        if (!strcmp(key, l->key[i]))
            snprintf(text, sizeof text, "cmd=kvs-get-response;rc=0;flag=TRUE;value=%s;", l->value[i]);
    answer_2(l, rank, text);
}

static void take_put_2(struct launcher *l, int rank, const char *body)
{
    CHECK(l->puts < WORLDS && sscanf(body, "cmd=kvs-put;key=%63[^;];value=%1023[^;];", l->key[l->puts], l->value[l->puts]) == 2);
    l->puts++;
    answer_2(l, rank, "cmd=kvs-put-response;rc=0;");
}

static void serve_2(struct launcher *l, int rank, const char *message)
{
    bool init = !strncmp(message, "cmd=init ", 9);
    const char *body = init ? message : message + 6;

    CHECK(init || strtol(message, NULL, 10) == (long)strlen(body));
    if (answer_wrongly(l, rank, body))
        return;
    if (init)
        answer(l, rank, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
    else if (!strncmp(body, "cmd=fullinit;", 13))
        answer_2(l, rank, "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;size=3;appnum=0;debugged=FALSE;");
    else if (!strncmp(body, "cmd=kvs-put;", 12))
        take_put_2(l, rank, body);
    else if (!strncmp(body, "cmd=kvs-get;", 12))
        give_2(l, rank, body);
    else if (!strcmp(body, "cmd=kvs-fence;"))
        arrive_2(l);
    else if (!strcmp(body, "cmd=finalize;"))
        answer_2(l, rank, "cmd=finalize-response;rc=0;");
    else
        rig_die(__FILE__, __LINE__, "the launcher was told %s", message);
}

static void *launcher_main(void *arg)
{
    struct launcher *l = arg;
    char line[LINE];

    while (!atomic_load(&l->stop)) {
        struct pollfd fd[RANKS];
        for (int i = 0; i < RANKS; i++)
            fd[i] = (struct pollfd){.fd = l->here[i], .events = POLLIN};
        poll(fd, RANKS, 10);
        for (int i = 0; i < RANKS; i++) {
            ssize_t n = fd[i].revents & POLLIN ? recv(fd[i].fd, line, sizeof line - 1, 0) : 0;
            if (n <= 0)
                continue;
            line[n] = 0;
            CHECK(version_2 || (line[n - 1] == '\n' && strchr(line, '\n') == line + n - 1)); /* one line, then they wait */
            (version_2 ? serve_2 : serve)(l, i, line);
        }
    }
    return NULL;
}

static void launcher_start(const struct case_of *wrong)
{
    memset(&launcher, 0, sizeof launcher);
    launcher.wrong = wrong;
    for (int i = 0; i < RANKS; i++) {
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        launcher.here[i] = pair[0];
        launcher.there[i] = pair[1];
    }
}

static void launcher_end(void)
{
    char unread[LINE];

    atomic_store(&launcher.stop, 1);
    pthread_join(launcher.thread, NULL);
    for (int i = 0; i < RANKS; i++) {
        /* a rank that ends before it has read the last answer resets the connection, and a launcher may never notice its end */
        ssize_t n = launcher.wrong ? 0 : recv(launcher.there[i], unread, sizeof unread - 1, MSG_DONTWAIT);
        unread[n > 0 ? n : 0] = 0;
        if (n > 0)
            rig_die(__FILE__, __LINE__, "rank %d has not read: %s", i, unread);
        if (launcher.here[i] >= 0)
            close(launcher.here[i]);
        close(launcher.there[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
static const char *given[RANKS]; /* a secret set by hand; NULL: none */
static bool sealed;

/* The environment in which hydra starts one rank on each host, without an address. */
static void enter(struct proc *proc, int32_t rank)
{
    static const char *const ours[] = {"COMM_RANK",    "COMM_RANKS",   "COMM_JOB",    "COMM_LOCAL_RANK",   "COMM_LOCAL_RANKS",
                                       "COMM_BACKEND", "COMM_ADDRESS", "COMM_SECRET", "COMM_TCP_INSECURE", "COMM_SECRET_FILE"};
    char number[16];

    (void)proc;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        unsetenv(ours[i]);
    for (int i = 0; i < RANKS; i++) {
        close(launcher.here[i]);
        if (i != rank)
            close(launcher.there[i]);
    }
    snprintf(number, sizeof number, "%d", rank);
    setenv("PMI_RANK", number, 1);
    snprintf(number, sizeof number, "%d", launcher.there[rank]);
    setenv("PMI_FD", number, 1);
    setenv("PMI_SIZE", "3", 1);
    setenv("MPI_LOCALRANKID", "0", 1);
    setenv("MPI_LOCALNRANKS", "1", 1);
    if (version_2)
        setenv("COMM_ADDRESS", "store:pmi2", 1);
    if (sealed)
        setenv("COMM_TCP_SEAL", "yes", 1);
    if (given[rank])
        setenv("COMM_SECRET", given[rank], 1);
}

static void run(proc_main *main_of_rank, const struct case_of *wrong)
{
    struct proc proc = {.raw = true, .enter = enter};

    launcher_start(wrong);
    proc_start(&proc, RANKS, main_of_rank);
    CHECK(pthread_create(&launcher.thread, NULL, launcher_main, &launcher) == 0);
    proc_finish(&proc, -1, RIG_PATIENCE);
    launcher_end();
}

#define OPEN(...) comm_open(COMM_CONFIG(.error_text = text, .error_text_bytes = sizeof text, __VA_ARGS__), &world)

/* Opens one world after another, as a program may. */
static void meets(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    for (int i = 0; i < WORLDS; i++) {
        struct comm_info info = {.size = sizeof info};
        int32_t mine = rank, sum = -1;
        struct comm_request q;
        char text[512] = "";
        enum comm_result r = OPEN(.open_timeout_ns = 10 * RIG_S);
        if (r != COMM_OK)
            rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
        MUST(comm_describe(world, &info));
        EQUAL(strcmp(info.launcher, "hydra"), 0);
        MUST(comm_allreduce(world, &mine, &sum, 1, COMM_I32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(sum, 3);
        MUST(comm_close(world, RIG_PATIENCE));
    }
}

RIG_TEST(by_the_launchers_store)
{
    run(meets, NULL);
}

/* The secret of this world that rank 0 put into the store: 64 digits, or "none". */
static const char *secret_of(int world)
{
    const char *at = strstr(launcher.value[world], ";key+");
    CHECK(launcher.puts == WORLDS && at != NULL);
    return at + 5;
}

/* Rank 0 makes one for each world. Without a secret set by hand, the ranks prove this one and seal with it. */
RIG_TEST(a_secret_travels_in_the_store)
{
    sealed = true;
    run(meets, NULL);
    for (int i = 0; i < WORLDS; i++)
        EQUAL(strspn(secret_of(i), "0123456789abcdef"), 64);
    CHECK(memcmp(secret_of(0), secret_of(1), 64) != 0);
}

/* A secret that was given is never put into the store. */
RIG_TEST(a_secret_that_was_given_stays_out_of_the_store)
{
    for (int i = 0; i < RANKS; i++)
        given[i] = by_hand;
    run(meets, NULL);
    for (int i = 0; i < WORLDS; i++)
        EQUAL(strncmp(secret_of(i), "none", 4), 0);
    CHECK(!strstr(launcher.value[0], by_hand));
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
    given[1] = by_hand;
    run(is_the_only_one_with_a_secret, NULL);
}

static void opens_another_size(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";

    (void)proc;
    setenv("PMI_SIZE", rank == 1 ? "4" : "3", 1);
    enum comm_result r = OPEN(.open_timeout_ns = rank == 1 ? RIG_PATIENCE / 2 : RIG_S);
    if (rank == 1 ? r != COMM_ERR_AUTH || !strstr(text, "it is of a world of 3 ranks, and this rank is of one of 4") : r == COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
}

/* What is in the store stays as it is, so the rank says at once what is wrong. */
RIG_TEST(a_world_of_another_size_in_the_store)
{
    run(opens_another_size, NULL);
}

/* The rank that gets the wrong reply reports it, whenever that comes. The others may learn of it, or wait until their time is up: rank 0,
 * from which the others get their reply, has time to come to the barrier before. All end before proc_finish() loses patience. */
static void hears(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    const struct case_of *w = launcher.wrong;
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

RIG_TEST(what_a_launcher_may_say)
{
    static char endless[LINE + 200];
    static const struct case_of cases[] = {
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run(hears, &cases[i]);
}

RIG_TEST(by_the_store_of_version_2)
{
    version_2 = true;
    sealed = true;
    run(meets, NULL);
    const char *first = strstr(launcher.value[0], "|key+"), *second = strstr(launcher.value[1], "|key+");
    CHECK(launcher.puts == WORLDS && first && second && memcmp(first, second, 5 + 64) != 0);
}

RIG_TEST(what_a_launcher_of_version_2_may_say)
{
    static const struct case_of cases[] = {
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

    version_2 = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run(hears, &cases[i]);
}

/* MPI closes PMI_FD when it finalizes, and the number may then belong to any other file of the process, here to one end of a pair. */
static void finds_another_file(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "", told[LINE] = "";
    int other[2];

    (void)proc;
    CHECK(OPEN(.open_timeout_ns = 10 * RIG_S) == COMM_OK);
    MUST(comm_close(world, RIG_PATIENCE));
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, other) && dup2(other[0], launcher.there[rank]) == launcher.there[rank]);
    enum comm_result r = OPEN(.open_timeout_ns = 2 * RIG_S);
    if (r != COMM_ERR_SYSTEM || !strstr(text, "the session of this process with the launcher is over"))
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    CHECK(recv(other[1], told, sizeof told, MSG_DONTWAIT) < 0); /* the other file was told nothing */
}

RIG_TEST(a_descriptor_that_belongs_to_another_file)
{
    run(finds_another_file, NULL);
    version_2 = true;
    run(finds_another_file, NULL);
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
                                       cmocka_unit_test(what_a_launcher_of_version_2_may_say)};

    return cmocka_run_group_tests_name("net_store", tests, NULL, NULL);
}
