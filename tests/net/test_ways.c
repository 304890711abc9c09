/* The ways in which ranks of a world over a network find each other, with processes as users start them: an id, the program's own exchange,
 * a file, and the variables that launchers set on several hosts. */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3, STORE_BYTES = 16384 };

struct store {
    _Atomic int round[RANKS];
    _Atomic int id_is_there;
    struct comm_id id;
    unsigned char said[2][RANKS][STORE_BYTES];
    char folder[64], address[80];
    unsigned port;
    int way;
};
static struct store *store;

static void forget_launcher(void)
{
    static const char *const names[] = {"COMM_RANK",    "COMM_RANKS",   "COMM_JOB",    "COMM_LOCAL_RANK",   "COMM_LOCAL_RANKS",
                                        "COMM_BACKEND", "COMM_ADDRESS", "COMM_SECRET", "COMM_TCP_INSECURE", "COMM_SECRET_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void use(enum comm_result r, const char *text, struct comm_communicator *const *opened, int32_t rank, const char *launcher)
{
    struct comm_communicator *world = *opened;
    struct comm_info info = {.size = sizeof info};

    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    EQUAL(comm_rank(world), rank);
    EQUAL(comm_size(world), RANKS);
    MUST(comm_describe(world, &info));
    bool shared = launcher && strcmp(launcher, "cobre-shm") == 0; /* on one host, by its name */
    CHECK(strstr(info.backend, shared ? "shm" : "tcp") != NULL);  /* or shm+tcp */
    CHECK(!launcher || strcmp(info.launcher, launcher) == 0);
    const char *job = getenv("SLURM_JOB_ID");
    CHECK(strcmp(info.slurm_job, job ? job : "") == 0);
    for (int i = 0; i < 20; i++) {
        struct comm_request q;
        int32_t in = rank + i, out = -1;
        MUST(comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(out, 3 * i + 3);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

#define OPEN(...)                                                                                                                          \
    comm_open(COMM_CONFIG(.open_timeout_ns = 10 * RIG_S, .error_text = text, .error_text_bytes = sizeof text, __VA_ARGS__), &world)

static void run(proc_main *main_of_rank)
{
    struct proc proc = {.raw = true};

    proc_start(&proc, RANKS, main_of_rank);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

static void make_store(void)
{
    store = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(store != MAP_FAILED);
}

/* ------------------------------------------------------------------------------------------------------------ by an id */
static void share_id(int32_t rank, const char *backend)
{
    if (rank == 0) {
        MUST(comm_id_create(COMM_CONFIG(.backend = backend), &store->id));
        atomic_store(&store->id_is_there, 1);
    }
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&store->id_is_there); rig_nap(RIG_MS / 10))
        CHECK(rig_now() < end);
}

static void by_id(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";

    (void)proc, (void)none;
    forget_launcher();
    share_id(rank, "tcp");
    use(OPEN(.rank = rank, .ranks = RANKS, .id = &store->id, .backend = "tcp"), text, &world, rank, "program");
}

/* The id contains an address of this host that others can reach, and a secret that makes this safe. */
RIG_TEST(an_id_says_all)
{
    make_store();
    run(by_id);
}

/* An id has an address if comm_open would take a backend over TCP: the environment overrides the program there too. */
RIG_TEST(an_id_is_for_the_backend_that_opens)
{
    static const struct {
        const char *variable, *value, *backend, *options;
        bool address;
    } cases[] = {
        {"COMM_BACKEND", "tcp", "shm", NULL, true},
        {"COMM_BACKEND", "shm", "tcp", NULL, false},
        {"COMM_BACKEND", "shm+tcp", NULL, NULL, true},
        {"COMM_BACKEND", "auto", "tcp", NULL, false},
        {"COMM_BACKEND", "", "tcp", NULL, true},
        {"COBRE_COMM_BACKEND", "tcp", "shm", NULL, true},
        {"COMM_BACKEND", "tcp", NULL, "backend=shm", true},
        {"COMM_JOB", "j", NULL, "backend=tcp", true},
        {"COMM_JOB", "j", "shm", "backend=tcp", false},
        {"COMM_JOB", "j", NULL, NULL, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct comm_id id;
        forget_launcher();
        unsetenv("COBRE_COMM_BACKEND");
        CHECK(setenv(cases[i].variable, cases[i].value, 1) == 0);
        MUST(comm_id_create(COMM_CONFIG(.backend = cases[i].backend, .options = cases[i].options), &id));
        if ((id.bytes[64] != 0) != cases[i].address) /* job and secret come before it */
            rig_die(__FILE__, __LINE__, "case %zu: the id has %s address", i, cases[i].address ? "no" : "an");
    }
}

RIG_TEST(an_id_has_no_room_for_a_long_address)
{
    char text[200] = "", address[100];
    struct comm_id id;

    memset(address, 'a', sizeof address);
    memcpy(address + 90, ":4000", 6);
    enum comm_result r = comm_id_create(COMM_CONFIG(.address = address, .error_text = text, .error_text_bytes = sizeof text), &id);
    EQUAL(r, COMM_ERR_CONFIG);
    CHECK(strstr(text, "longer than 63") != NULL);
}

/* ------------------------------------------------------------------------------------------------------------ what was told and set */
static char told[512]; /* the log's line about the meeting */

static void keep_meeting(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    if (strstr(line, " met at "))
        snprintf(told, sizeof told, "%s", line);
}

/* In a value %r is the rank, %p a free port. */
static void export_variable(const char *text, int32_t rank)
{
    const char *equals = strchr(text, '=');
    char name[64], value[128];
    size_t n = 0;

    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    for (const char *at = equals + 1; *at; at++) {
        if (*at != '%')
            value[n++] = *at;
        else
            n += (size_t)snprintf(value + n, sizeof value - n, "%u", *++at == 'r' ? (unsigned)rank : store->port);
    }
    value[n] = 0;
    CHECK(setenv(name, value, 1) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ by the program's exchange */
struct speaker {
    int32_t rank;
    int round;
};

static int exchange(void *arg, const void *in, size_t bytes, void *out)
{
    struct speaker *s = arg;
    int k = s->round++;
    CHECK(bytes <= STORE_BYTES);
    memcpy(store->said[k % 2][s->rank], in, bytes);
    atomic_store(&store->round[s->rank], k + 1);
    for (int32_t r = 0; r < RANKS; r++) {
        for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&store->round[r]) <= k; rig_nap(RIG_MS / 10))
            CHECK(rig_now() < end);
        memcpy((char *)out + (size_t)r * bytes, store->said[k % 2][r], bytes);
    }
    return 0;
}

static void by_exchange(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    struct speaker me = {.rank = rank};
    char text[512] = "";

    (void)proc, (void)none;
    forget_launcher();
    use(OPEN(.rank = rank, .ranks = RANKS, .exchange = exchange, .exchange_arg = &me, .backend = "tcp"), text, &world, rank, "program");
}

RIG_TEST(the_programs_exchange)
{
    make_store();
    run(by_exchange);
}

/* Each rank has another address, or the launcher has one, and no rank listens there. */
static void by_exchange_despite_the_environment(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    static const char *const launched[] = {"RANK=%r",         "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.9",
                                           "MASTER_PORT=4711"};
    struct comm_communicator *world = NULL;
    struct speaker me = {.rank = rank};
    char text[512] = "", address[32];

    (void)proc, (void)none;
    forget_launcher();
    snprintf(address, sizeof address, "127.0.0.%d:4711", 10 + rank);
    if (store->way != 1)
        CHECK(setenv("COMM_ADDRESS", address, 1) == 0);
    for (size_t i = 0; i < sizeof launched / sizeof *launched && store->way; i++)
        export_variable(launched[i], rank);
    use(OPEN(.rank = rank, .ranks = store->way ? 0 : RANKS, .exchange = exchange, .exchange_arg = &me, .backend = "tcp",
             .log = keep_meeting, .log_level = COMM_LOG_INFO),
        text, &world, rank, store->way ? "torchrun" : "program");
    CHECK(!told[0]); /* met at no address */
}

RIG_TEST(the_programs_exchange_overrides_the_environment)
{
    unsetenv("COMM_LOG");
    for (int way = 0; way < 3; way++) { /* COMM_ADDRESS, an address of the launcher, both */
        rig_note("way %d", way);
        make_store();
        store->way = way;
        run(by_exchange_despite_the_environment);
    }
}

/* ------------------------------------------------------------------------------------------------------------ by a file */
static void by_file(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";

    (void)proc, (void)none;
    forget_launcher();
    if (rank == 0)
        rig_nap(RIG_S / 5);
    use(OPEN(.rank = rank, .ranks = RANKS, .address = store->address, .backend = "tcp"), text, &world, rank, "program");
}

RIG_TEST(a_file_of_the_folder_that_all_see)
{
    make_store();
    snprintf(store->folder, sizeof store->folder, "/tmp/commstream-meet-XXXXXX");
    CHECK(mkdtemp(store->folder) != NULL);
    snprintf(store->address, sizeof store->address, "file:%s/run7", store->folder);
    run(by_file);
    CHECK(rmdir(store->folder) == 0); /* nothing is left in it */
}

/* ------------------------------------------------------------------------------------------------------------ by launchers */
enum { VARIABLES = 12 };
static const char *const launchers[][VARIABLES] = {
    {"torchrun", "RANK=%r", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=%p",
     "TORCHELASTIC_RUN_ID=%p"},
    {"slurm", "SLURM_PROCID=%r", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_ID=0", "SLURM_JOB_ID=%p", "SLURM_NODEID=%r",
     "SLURM_STEP_TASKS_PER_NODE=1(x3)", "SLURM_STEP_NODELIST=localhost,b[1-2]"},
    /* With a secret, or where none is wanted, the launcher's store is left alone; here it is none that answers. */
    {"slurm", "SLURM_PROCID=%r", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_ID=0", "SLURM_JOB_ID=%p", "SLURM_NODEID=%r",
     "SLURM_STEP_TASKS_PER_NODE=1(x3)", "SLURM_STEP_NODELIST=localhost,b[1-2]", "PMIX_NAMESPACE=slurm.pmix.%p.0", "PMIX_RANK=%r",
     "COMM_SECRET=0123456789abcdef0123456789abcdef"},
    {"slurm", "SLURM_PROCID=%r", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_ID=0", "SLURM_JOB_ID=%p", "SLURM_NODEID=%r",
     "SLURM_STEP_TASKS_PER_NODE=1(x3)", "SLURM_STEP_NODELIST=localhost,b[1-2]", "PMIX_NAMESPACE=slurm.pmix.%p.0", "PMIX_RANK=%r",
     "COMM_TCP_INSECURE=1"},
    {"leader-worker", "LWS_WORKER_INDEX=%r", "LWS_GROUP_SIZE=3", "LWS_LEADER_ADDRESS=localhost", "COMM_JOB=%p"},
    {"kubernetes", "JOB_COMPLETION_INDEX=%r", "COMM_RANKS=3", "COMM_ADDRESS=localhost:%p"},
    {"cobre", "COBRE_TCP_RANK=%r", "COBRE_TCP_SIZE=3", "COBRE_TCP_PORT=%p", "COBRE_TCP_COORDINATOR=127.0.0.1",
     "COBRE_TCP_BIND_ADDR=127.0.0.1", "COBRE_COMM_BACKEND=tcp", "COBRE_TCP_CONNECT_TIMEOUT_MS=20000"},
    {"cobre-shm", "COBRE_SHM_NAME=/ways-%p", "COBRE_SHM_RANK=%r", "COBRE_SHM_SIZE=3"},
    {"open-mpi", "OMPI_COMM_WORLD_RANK=%r", "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1",
     "PMIX_NAMESPACE=%p", "COMM_ADDRESS=127.0.0.1:%p"},
};

static void by_launcher(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";

    (void)proc, (void)none;
    forget_launcher();
    for (size_t i = 1; i < VARIABLES && launchers[store->way][i]; i++)
        export_variable(launchers[store->way][i], rank);
    use(OPEN(.rank = 0), text, &world, rank, launchers[store->way][0]);
}

static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(bind(fd, (struct sockaddr *)&at, length) == 0 && getsockname(fd, (struct sockaddr *)&at, &length) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

RIG_TEST(variables_of_launchers)
{
    make_store();
    for (store->way = 0; store->way < (int)(sizeof launchers / sizeof *launchers); store->way++) {
        store->port = free_port();
        run(by_launcher);
    }
}

/* ------------------------------------------------------------------------------------------------------------ by an id at an address */
/* Where the ranks with an id meet: the program's address beside an id without one, beside an id with one, and COMM_ADDRESS. */
enum { PROGRAMS, PROGRAMS_BESIDE_THE_IDS, OF_THE_ENVIRONMENT, ADDRESSES };

static enum comm_result open_at_address(int32_t rank, const struct comm_id *id, int64_t patience, char *text, size_t bytes,
                                        struct comm_communicator **world)
{
    bool given = store->way != OF_THE_ENVIRONMENT;

    if (!given)
        CHECK(setenv("COMM_ADDRESS", store->address, 1) == 0);
    return comm_open(COMM_CONFIG(.rank = rank, .ranks = RANKS, .id = id, .address = given ? store->address : NULL, .backend = "tcp",
                                 .open_timeout_ns = patience, .log = keep_meeting, .log_level = COMM_LOG_INFO, .error_text = text,
                                 .error_text_bytes = bytes),
                     world);
}

static void at_address(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";

    (void)proc, (void)none;
    forget_launcher();
    unsetenv("COMM_LOG");
    share_id(rank, store->way == PROGRAMS_BESIDE_THE_IDS ? "tcp" : "shm");
    use(open_at_address(rank, &store->id, 10 * RIG_S, text, sizeof text, &world), text, &world, rank, "program");
    if (!strstr(told, store->address)) /* the world is closed, so all lines have been told */
        rig_die(__FILE__, __LINE__, "met elsewhere than at %s: %s", store->address, told);
}

/* Rank 2 has an id of the same job, with another secret. */
static void at_address_with_another_secret(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";

    (void)proc, (void)none;
    forget_launcher();
    share_id(rank, store->way == PROGRAMS_BESIDE_THE_IDS ? "tcp" : "shm");
    struct comm_id id = store->id;
    if (rank == 2)
        id.bytes[40] ^= 1;
    enum comm_result r = open_at_address(rank, &id, 2 * RIG_S, text, sizeof text, &world);
    if (rank == 2 ? r != COMM_ERR_AUTH : r >= 0)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
}

RIG_TEST(an_ids_secret_counts_at_every_address)
{
    for (int way = 0; way < ADDRESSES; way++) {
        rig_note("way %d", way);
        for (int wrong = 0; wrong < 2; wrong++) {
            make_store();
            store->way = way;
            snprintf(store->address, sizeof store->address, "127.0.0.1:%u", free_port());
            run(wrong ? at_address_with_another_secret : at_address);
        }
    }
}

/* A rank that did not get the id. */
RIG_TEST(an_id_of_zeros_is_none)
{
    struct comm_id zeros = {{0}};
    struct comm_communicator *world = NULL;

    forget_launcher();
    for (int i = 0; i < 4; i++) {
        char text[512] = "";
        enum comm_result r = comm_open(COMM_CONFIG(.rank = 0, .ranks = i & 1 ? RANKS : 1, .id = &zeros, .backend = "tcp",
                                                   .address = i & 2 ? "127.0.0.1:4711" : NULL, .open_timeout_ns = RIG_S,
                                                   .log_level = COMM_LOG_OFF, .error_text = text, .error_text_bytes = sizeof text),
                                       &world);
        EQUAL(r, COMM_ERR_CONFIG);
        CHECK(!world && strstr(text, "config.id") && strstr(text, "comm_id_create"));
    }
}

/* ------------------------------------------------------------------------------------------------------------ sealed */
static void sealed(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    CHECK(setenv("COMM_TCP_SEAL", "yes", 1) == 0);
    by_file(proc, rank, none);
}

static void one_seals(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";

    (void)proc, (void)none;
    forget_launcher();
    CHECK(setenv("COMM_TCP_SEAL", rank == 1 ? "yes" : "no", 1) == 0);
    EQUAL(OPEN(.rank = rank, .ranks = RANKS, .address = store->address, .backend = "tcp"), COMM_ERR_CONFIG);
    CHECK(strstr(text, "rank 1 has COMM_TCP_SEAL=yes and rank 0 has no") != NULL);
}

RIG_TEST(all_seal_or_none)
{
    make_store();
    snprintf(store->folder, sizeof store->folder, "/tmp/commstream-meet-XXXXXX");
    CHECK(mkdtemp(store->folder) != NULL);
    snprintf(store->address, sizeof store->address, "file:%s/run8", store->folder);
    run(sealed);
    run(one_seals);
    CHECK(rmdir(store->folder) == 0);
}

/* Without libcrypto, ranks meet only on loopback. */
static bool secrets_are_here(void)
{
    struct comm_backend_info info = {.size = sizeof info};

    for (size_t i = 0; comm_describe_backend(i, &info) == COMM_OK; i++)
        if (!strcmp(info.name, "tcp"))
            return !strstr(info.version, "secrets: none");
    return false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_says_all),
        cmocka_unit_test(an_id_is_for_the_backend_that_opens),
        cmocka_unit_test(an_id_has_no_room_for_a_long_address),
        cmocka_unit_test(the_programs_exchange),
        cmocka_unit_test(the_programs_exchange_overrides_the_environment),
        cmocka_unit_test(a_file_of_the_folder_that_all_see),
        cmocka_unit_test(variables_of_launchers),
        cmocka_unit_test(all_seal_or_none),
        cmocka_unit_test(an_ids_secret_counts_at_every_address),
        cmocka_unit_test(an_id_of_zeros_is_none),
    };
    if (!secrets_are_here()) {
        printf("skipped: this library was built without OpenSSL 3, so ranks meet on loopback alone\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
