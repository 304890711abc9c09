/* The launcher's side: a thread of the parent serves all ranks. A line that no launcher would be sent ends the test. */
#define _GNU_SOURCE
#include "net/mock_pmi.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct mock mock;

/* ------------------------------------------------------------------------------------------------------------ dialects */
static void set_number(const char *name, int32_t number)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* One rank on each host. */
static void set_variables_of_hydra(int32_t rank)
{
    (void)rank;
    set_number("MPI_LOCALRANKID", 0);
    set_number("MPI_LOCALNRANKS", 1);
}

/* Two on each node. flux does not say how many: there may be more on the other one. */
static void set_variables_of_flux(int32_t rank)
{
    setenv("FLUX_JOB_ID", "\306\2223jZ7uJ", 1);
    setenv("COMM_HOST", "a,a,b,b", 1);
    set_number("FLUX_TASK_RANK", rank);
    set_number("FLUX_TASK_LOCAL_ID", rank % 2);
    set_number("FLUX_JOB_SIZE", MOCK_RANKS);
    set_number("FLUX_JOB_NNODES", 2);
}

const struct mock_dialect mock_hydra = {
    .launcher = "hydra",
    .set_variables = set_variables_of_hydra,
    .init = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    .space = "kvs_7",
    .named = "cmd=my_kvsname kvsname=%s\n",
    .put = "cmd=put_result rc=0 msg=success\n",
    .missing = "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n",
    .got = "cmd=get_result rc=0 msg=success value=%s\n",
    .barrier = "cmd=barrier_out\n",
    .finalized = "cmd=finalize_ack\n",
};

/* flux 0.88. Its store is named by the job's number in base 58, whose first letter is not ASCII. */
const struct mock_dialect mock_flux = {
    .launcher = "flux",
    .set_variables = set_variables_of_flux,
    .init = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    .init_of_version_2 = "cmd=response_to_init rc=-1\n",
    .space = "\306\2223jZ7uJ",
    .named = "cmd=my_kvsname rc=0 kvsname=%s\n",
    .put = "cmd=put_result rc=0\n",
    .missing = "cmd=get_result rc=4\n",
    .got = "cmd=get_result rc=0 value=%s\n",
    .barrier = "cmd=barrier_out rc=0\n",
    .finalized = "cmd=finalize_ack rc=0\n",
};

/* ------------------------------------------------------------------------------------------------------------ the launcher */
static void answer(int rank, const char *text)
{
    CHECK(send(mock.here[rank], text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

/* A reply with a value in it. */
static void answer_with(int rank, const char *format, const char *value)
{
    const char *at = strstr(format, "%s");
    char text[2 * MOCK_LINE];

    snprintf(text, sizeof text, "%.*s%s%s", at ? (int)(at - format) : (int)strlen(format), format, at ? value : "", at ? at + 2 : "");
    answer(rank, text);
}

/* What is longer than these launchers take is not scanned whole, and the lines then differ. */
static void take_put(int rank, const char *line)
{
    char space[64], *key = mock.key[mock.puts], *value = mock.value[mock.puts], again[2 * MOCK_LINE];

    CHECK(mock.puts < MOCK_WORLDS && sscanf(line, "cmd=put kvsname=%63s key=%63s value=%1023s", space, key, value) == 3);
    snprintf(again, sizeof again, "cmd=put kvsname=%s key=%s value=%s\n", mock.dialect->space, key, value);
    EQUAL(strcmp(line, again), 0);
    mock.puts++;
    answer(rank, mock.dialect->put);
}

static void give(int rank, const char *line)
{
    char space[64], key[64] = "";

    CHECK(sscanf(line, "cmd=get kvsname=%63s key=%63s", space, key) == 2 && !strcmp(space, mock.dialect->space));
    for (int i = 0; i < mock.puts; i++)
        if (!strcmp(key, mock.key[i])) {
            answer_with(rank, mock.dialect->got, mock.value[i]);
            return;
        }
    answer_with(rank, mock.dialect->missing, key);
}

static void arrive(void)
{
    if (++mock.arrived < MOCK_RANKS)
        return;
    mock.arrived = 0;
    for (int i = 0; i < MOCK_RANKS; i++)
        answer(i, mock.dialect->barrier);
}

/* Whether the line is the case's command, which then gets its wrong reply. */
static bool answer_wrongly(int rank, const char *line)
{
    const struct mock_case *w = mock.wrong;

    if (!w || strncmp(line + 4, w->command, strlen(w->command)) != 0)
        return false;
    if (w->answer && w->answer[0])
        answer(rank, w->answer);
    else if (w->answer) {
        close(mock.here[rank]);
        mock.here[rank] = -1;
    }
    return true;
}

static void serve(int rank, const char *line)
{
    const struct mock_dialect *d = mock.dialect;

    if (answer_wrongly(rank, line))
        return;
    if (!strncmp(line, "cmd=init pmi_version=2 ", 23) && d->init_of_version_2)
        answer(rank, d->init_of_version_2);
    else if (!strncmp(line, "cmd=init ", 9))
        answer(rank, d->init);
    else if (!strcmp(line, "cmd=get_my_kvsname\n"))
        answer_with(rank, d->named, d->space);
    else if (!strncmp(line, "cmd=put ", 8))
        take_put(rank, line);
    else if (!strncmp(line, "cmd=get ", 8))
        give(rank, line);
    else if (!strcmp(line, "cmd=barrier_in\n"))
        arrive();
    else if (!strcmp(line, "cmd=finalize\n"))
        answer(rank, d->finalized);
    else /* flux ends the job */
        rig_die(__FILE__, __LINE__, "the launcher was told %s", line);
}

/* ------------------------------------------------------------------------------------------------------------ version 2 */
static void answer_2(int rank, const char *text)
{
    char length[24];

    snprintf(length, sizeof length, "%6zu", strlen(text));
    answer(rank, length); /* hydra too writes a message in two pieces */
    rig_nap(2 * RIG_MS);
    answer(rank, text);
}

static void arrive_2(void)
{
    if (++mock.arrived < MOCK_RANKS)
        return;
    mock.arrived = 0;
    for (int i = 0; i < MOCK_RANKS; i++)
        answer_2(i, "cmd=kvs-fence-response;rc=0;");
}

static void give_2(int rank, const char *body)
{
    char key[64] = "", text[2 * MOCK_LINE];

    CHECK(sscanf(body, "cmd=kvs-get;srcid=-1;key=%63[^;];", key) == 1);
    snprintf(text, sizeof text, "cmd=kvs-get-response;rc=0;flag=FALSE;");
    for (int i = 0; i < mock.puts; i++)
        if (!strcmp(key, mock.key[i]))
            snprintf(text, sizeof text, "cmd=kvs-get-response;rc=0;flag=TRUE;value=%s;", mock.value[i]);
    answer_2(rank, text);
}

static void take_put_2(int rank, const char *body)
{
    CHECK(mock.puts < MOCK_WORLDS &&
          sscanf(body, "cmd=kvs-put;key=%63[^;];value=%1023[^;];", mock.key[mock.puts], mock.value[mock.puts]) == 2);
    mock.puts++;
    answer_2(rank, "cmd=kvs-put-response;rc=0;");
}

static void serve_2(int rank, const char *message)
{
    bool init = !strncmp(message, "cmd=init ", 9);
    const char *body = init ? message : message + 6;

    CHECK(init || strtol(message, NULL, 10) == (long)strlen(body));
    if (answer_wrongly(rank, body))
        return;
    if (init)
        answer(rank, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
    else if (!strncmp(body, "cmd=fullinit;", 13))
        answer_2(rank, "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;size=4;appnum=0;debugged=FALSE;");
    else if (!strncmp(body, "cmd=kvs-put;", 12))
        take_put_2(rank, body);
    else if (!strncmp(body, "cmd=kvs-get;", 12))
        give_2(rank, body);
    else if (!strcmp(body, "cmd=kvs-fence;"))
        arrive_2();
    else if (!strcmp(body, "cmd=finalize;"))
        answer_2(rank, "cmd=finalize-response;rc=0;");
    else
        rig_die(__FILE__, __LINE__, "the launcher was told %s", message);
}

/* ------------------------------------------------------------------------------------------------------------ a run */
static void *serve_all(void *arg)
{
    char line[MOCK_LINE];

    (void)arg;
    while (!atomic_load(&mock.stop)) {
        struct pollfd fd[MOCK_RANKS];
        for (int i = 0; i < MOCK_RANKS; i++)
            fd[i] = (struct pollfd){.fd = mock.here[i], .events = POLLIN};
        poll(fd, MOCK_RANKS, 10);
        for (int i = 0; i < MOCK_RANKS; i++) {
            ssize_t n = fd[i].revents & POLLIN ? recv(fd[i].fd, line, sizeof line - 1, 0) : 0;
            if (n <= 0)
                continue;
            line[n] = 0;
            CHECK(mock.version_2 || (line[n - 1] == '\n' && strchr(line, '\n') == line + n - 1)); /* one line, then they wait */
            (mock.version_2 ? serve_2 : serve)(i, line);
        }
    }
    return NULL;
}

static void begin(void)
{
    mock.arrived = mock.puts = 0;
    atomic_store(&mock.stop, 0);
    if (!mock.dialect)
        mock.dialect = &mock_hydra;
    for (int i = 0; i < MOCK_RANKS; i++) {
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        mock.here[i] = pair[0];
        mock.there[i] = pair[1];
    }
}

static void end(void)
{
    char unread[MOCK_LINE];

    atomic_store(&mock.stop, 1);
    pthread_join(mock.thread, NULL);
    for (int i = 0; i < MOCK_RANKS; i++) {
        /* a rank that ends before it has read the last answer resets the connection, and a launcher may never notice its end */
        ssize_t n = mock.wrong ? 0 : recv(mock.there[i], unread, sizeof unread - 1, MSG_DONTWAIT);
        unread[n > 0 ? n : 0] = 0;
        if (n > 0)
            rig_die(__FILE__, __LINE__, "rank %d has not read: %s", i, unread);
        if (mock.here[i] >= 0)
            close(mock.here[i]);
        close(mock.there[i]);
    }
}

/* The environment of a rank, without an address. */
static void enter(struct proc *proc, int32_t rank)
{
    static const char *const ours[] = {"COMM_RANK",    "COMM_RANKS",   "COMM_JOB",    "COMM_LOCAL_RANK",   "COMM_LOCAL_RANKS",
                                       "COMM_BACKEND", "COMM_ADDRESS", "COMM_SECRET", "COMM_TCP_INSECURE", "COMM_SECRET_FILE"};

    (void)proc;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        unsetenv(ours[i]);
    for (int i = 0; i < MOCK_RANKS; i++) {
        close(mock.here[i]);
        if (i != rank)
            close(mock.there[i]);
    }
    set_number("PMI_RANK", rank);
    set_number("PMI_FD", mock.there[rank]);
    set_number("PMI_SIZE", MOCK_RANKS);
    mock.dialect->set_variables(rank);
    if (mock.version_2 || mock.address)
        setenv("COMM_ADDRESS", mock.address ? mock.address : "store:pmi2", 1);
    if (mock.sealed)
        setenv("COMM_TCP_SEAL", "yes", 1);
    if (mock.given[rank])
        setenv("COMM_SECRET", mock.given[rank], 1);
}

void mock_run(proc_main *main_of_rank)
{
    struct proc proc = {.raw = true, .enter = enter};

    begin();
    proc_start(&proc, MOCK_RANKS, main_of_rank);
    CHECK(pthread_create(&mock.thread, NULL, serve_all, NULL) == 0);
    proc_finish(&proc, -1, RIG_PATIENCE);
    end();
}
