/* Engine, threads and wake-up: the poll ownership, the descriptor, and precedence between environment and program. Callbacks and fork have
 * files of their own. */
#define _GNU_SOURCE
#include "contract/cases.h"

#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A signal that this thread takes, or work that a ring completes in it, is not an event. */
static int wait_for_event(int epoll, struct epoll_event *event, int most, int ms)
{
    int n;
    do
        n = epoll_wait(epoll, event, most, ms);
    while (n < 0 && errno == EINTR);
    return n;
}

/* ------------------------------------------------------------------------------------------------------------ 6.3 */
struct sleeper {
    pthread_t thread;
    struct comm_request request;
    _Atomic int64_t returned;
};

static void *sleep_on(void *arg)
{
    struct sleeper *sleeper = arg;
    MUST(comm_wait(sleeper->request, RIG_PATIENCE));
    atomic_store(&sleeper->returned, rig_now());
    return NULL;
}

/* Two sleepers of one engine. When the first one's wait ends, some thread must remain that ends the second's. */
static void poll_owner(bool first_first)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request peer;
    struct sleeper sleeper[2] = {{0}, {0}};
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    struct comm_communicator *sides[2][2] = {{rig.world[0], rig.world[1]}, {second[0], second[1]}};
    for (int i = 0; i < 2; i++) {
        MUST(comm_barrier(sides[i][0], &sleeper[i].request));
        EQUAL(pthread_create(&sleeper[i].thread, NULL, sleep_on, &sleeper[i]), 0);
        rig_nap(50 * RIG_MS);
    }
    rig_nap(100 * RIG_MS);
    for (int k = 0; k < 2; k++) {
        int i = first_first ? k : 1 - k;
        int64_t start = rig_now();
        MUST(comm_barrier(sides[i][1], &peer)); /* this thread then leaves the library: only the sleepers can move it */
        pthread_join(sleeper[i].thread, NULL);
        CHECK(sleeper[i].returned - start < RIG_S);
        rig_nap(50 * RIG_MS);
    }
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_close(second[r], RIG_PATIENCE));
    rig_close(&rig);
}

RIG_TEST(contract_6_3_poll_owner)
{
    for (int i = 0; i < 4; i++)
        poll_owner(i % 2);
}

/* Many threads, each with its own communicator and its own timing. */
struct crowd {
    struct rig rig;
    struct comm_communicator *own[4][2];
};

static void crowd_run(void *arg, int32_t thread)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < 300; i++) {
        struct comm_request request[2];
        int32_t in[2] = {i, thread}, out[2] = {-1, -1};
        for (int32_t r = 0; r < 2; r++)
            MUST(comm_allreduce(crowd->own[thread][r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &request[r]));
        for (int32_t r = 0; r < 2; r++)
            MUST(comm_wait(request[r], RIG_PATIENCE));
        EQUAL(out[0], i + thread);
        EQUAL(out[1], i + thread);
    }
}

RIG_TEST(contract_6_3_a_crowd_of_waiters)
{
    static struct crowd crowd;
    rig_open(&crowd.rig, 2, NULL);
    for (int t = 0; t < 4; t++)
        rig_dup(crowd.rig.world, 2, crowd.own[t]);
    rig_threads(4, crowd_run, &crowd);
    for (int t = 0; t < 4; t++) {
        MUST(comm_close(crowd.own[t][0], RIG_PATIENCE));
        MUST(comm_close(crowd.own[t][1], RIG_PATIENCE));
    }
    rig_close(&crowd.rig);
}

/* ------------------------------------------------------------------------------------------------------------ 6.5 */
/* How often the loop went to sleep. */
static _Atomic int sleeps;

/* Until the loop went to sleep, however long that takes: a thread that the system stops inside a pass keeps the loop busy. */
static void await_sleep(void)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&sleeps) && rig_now() < end;)
        rig_nap(RIG_MS);
    rig_nap(20 * RIG_MS);
}

static void *issue_late(void *arg)
{
    await_sleep();
    MUST(comm_barrier(arg, NULL));
    return NULL;
}

static bool progress_until_idle(struct comm_communicator *c)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; rig_now() < end;) {
        enum comm_result result = comm_progress(c);
        if (result == COMM_OK)
            return true;
        IS(result, COMM_PENDING);
    }
    return false;
}

/* The loop exactly as in the contract; it sleeps only in epoll. */
static void loop_until(struct comm_communicator *c, struct comm_request request, int epoll)
{
    for (;;) {
        CHECK(progress_until_idle(c));
        enum comm_result armed = comm_arm(c);
        if (comm_test(request) == COMM_OK)
            return;
        if (armed == COMM_PENDING)
            continue;
        IS(armed, COMM_OK);
        struct epoll_event event;
        CHECK(atomic_fetch_add(&sleeps, 1) < 1000);
        if (wait_for_event(epoll, &event, 1, 5000) != 1)
            rig_die(__FILE__, __LINE__, "asleep for 5 s while a request was pending");
    }
}

/* Whether, with nothing to do, the descriptor becomes armed and not readable once everything under way has arrived. */
static bool falls_silent(struct comm_communicator *c, int epoll)
{
    struct epoll_event event;
    for (int turn = 0; turn < 20; turn++) {
        CHECK(progress_until_idle(c));
        if (comm_arm(c) == COMM_OK && wait_for_event(epoll, &event, 1, 100) == 0)
            return true;
    }
    return false;
}

RIG_TEST(contract_6_5_a_loop_that_sleeps_on_the_descriptor)
{
    struct rig rig;
    struct comm_request request;
    pthread_t thread;
    int fd = -1, same = -2, epoll = epoll_create1(EPOLL_CLOEXEC);
    rig_open(&rig, 2, NULL);
    MUST(comm_fd(rig.world[0], &fd));
    MUST(comm_fd(rig.world[1], &same));
    CHECK(fd >= 0 && fd == same);
    struct epoll_event event = {.events = EPOLLIN};
    EQUAL(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    for (int i = 0; i < 5; i++) {
        MUST(comm_barrier(rig.world[0], &request));
        atomic_store(&sleeps, 0);
        EQUAL(pthread_create(&thread, NULL, issue_late, rig.world[1]), 0);
        loop_until(rig.world[0], request, epoll);
        pthread_join(thread, NULL);
        CHECK(atomic_load(&sleeps) >= 1);
    }
    CHECK(falls_silent(rig.world[0], epoll));
    /* Level-triggered until progress clears it. */
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_barrier(rig.world[1], NULL));
    MUST(comm_wait(request, RIG_PATIENCE));
    CHECK(falls_silent(rig.world[0], epoll));
    rig_close(&rig);
    close(epoll);
}

/* A manual event is work for the loop too. */
static void *set_late(void *arg)
{
    await_sleep();
    MUST(comm_event_set(arg));
    return NULL;
}

RIG_TEST(contract_6_5_a_set_event_wakes_the_loop)
{
    struct rig rig;
    struct comm_request request;
    struct comm_event *gate;
    pthread_t thread;
    int fd = -1, epoll = epoll_create1(EPOLL_CLOEXEC);
    rig_open(&rig, 1, NULL);
    MUST(comm_fd(rig.world[0], &fd));
    struct epoll_event event = {.events = EPOLLIN};
    EQUAL(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_barrier(rig.world[0], &request));
    atomic_store(&sleeps, 0);
    EQUAL(pthread_create(&thread, NULL, set_late, gate), 0);
    loop_until(rig.world[0], request, epoll);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&sleeps) >= 1);
    comm_event_free(gate);
    rig_close(&rig);
    close(epoll);
}

/* The library's own timers make it readable: an operation's deadline ends a sleep. */
RIG_TEST(contract_6_5_a_deadline_wakes_the_loop)
{
    struct rig rig;
    struct comm_request request;
    int fd = -1, epoll = epoll_create1(EPOLL_CLOEXEC);
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 200 * RIG_MS));
    MUST(comm_fd(rig.world[0], &fd));
    struct epoll_event event = {.events = EPOLLIN};
    EQUAL(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    MUST(comm_barrier(rig.world[0], &request));
    int64_t start = rig_now();
    while (comm_test(request) == COMM_PENDING) {
        CHECK(progress_until_idle(rig.world[0]));
        if (comm_arm(rig.world[0]) == COMM_OK && comm_test(request) == COMM_PENDING)
            EQUAL(wait_for_event(epoll, &event, 1, 3000), 1);
        CHECK(rig_now() - start < 3 * RIG_S);
    }
    IS(comm_test(request), COMM_ERR_TIMEOUT);
    rig_close(&rig);
    close(epoll);
}

/* ------------------------------------------------------------------------------------------------------------ 6.10 */
RIG_TEST(contract_6_10_identity_of_the_program_wins)
{
    struct comm_communicator *world = NULL;
    setenv("COMM_RANK", "3", 1);
    setenv("COMM_RANKS", "4", 1);
    setenv("COMM_JOB", "nobody-else", 1);
    MUST(comm_open(COMM_CONFIG(.rank = 0, .ranks = 1, .open_timeout_ns = 5 * RIG_S), &world));
    EQUAL(comm_rank(world), 0);
    EQUAL(comm_size(world), 1);
    rig_proves_alive(&world, 1);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_6_10_tuning_in_the_environment_wins)
{
    struct rig rig;
    struct comm_info info = {.size = sizeof info};
    rig_open_options(&rig, 1, "window=8");
    MUST(comm_describe(rig.world[0], &info));
    EQUAL(info.window, 8);
    rig_close(&rig);
    setenv("COMM_WINDOW", "16", 1);
    rig_open_options(&rig, 1, "window=8");
    MUST(comm_describe(rig.world[0], &info));
    EQUAL(info.window, 16);
    rig_close(&rig);
}

/* Errors name the wrong option, from the program or the environment. */
RIG_TEST(contract_6_10_wrong_configuration_is_named)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    unsetenv("COMM_BACKEND"); /* it would override the wrong one below */
    IS(comm_open(COMM_CONFIG(.ranks = 1, .options = "windwo=8", .error_text = text, .error_text_bytes = sizeof text), &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "windwo") != NULL);
    IS(comm_open(COMM_CONFIG(.ranks = 1, .options = "window=5", .error_text = text, .error_text_bytes = sizeof text), &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "window") != NULL || strstr(text, "WINDOW") != NULL);
    setenv("COMM_WINDOW", "many", 1);
    IS(comm_open(COMM_CONFIG(.ranks = 1, .error_text = text, .error_text_bytes = sizeof text), &world), COMM_ERR_CONFIG);
    CHECK(strstr(text, "COMM_WINDOW") != NULL);
    unsetenv("COMM_WINDOW");
    IS(comm_open(COMM_CONFIG(.ranks = 1, .progress = (enum comm_progress_mode)3, .error_text = text, .error_text_bytes = sizeof text),
                 &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "config.progress=3; expected 0 to 2"));
    IS(comm_open(COMM_CONFIG(.ranks = 1, .log_level = (enum comm_log_level)6, .error_text = text, .error_text_bytes = sizeof text), &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "config.log_level=6; expected -1 to 5"));
    IS(comm_open(COMM_CONFIG(.ranks = 1, .backend = "carrier-pigeon", .error_text = text, .error_text_bytes = sizeof text), &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "carrier-pigeon") != NULL);
    text[0] = 0;
    IS(comm_open_local(COMM_CONFIG(.backend = "smh", .error_text = text, .error_text_bytes = sizeof text), 1, NULL, &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "backend=smh; expected auto, local, shm") != NULL);
    CHECK(world == NULL);
}

/* Another order would change the results, so the environment cannot choose one. */
RIG_TEST(contract_6_10_a_fixed_order_is_the_programs_alone)
{
    static const char *const others[] = {"free", "default"};
    struct comm_communicator *world = NULL;
    char text[256] = "", wanted[64];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        setenv("COMM_ORDER", others[i], 1);
        snprintf(wanted, sizeof wanted, "COMM_ORDER=%s", others[i]);
        IS(comm_open(COMM_CONFIG(.ranks = 1, .order = COMM_ORDER_FIXED, .error_text = text, .error_text_bytes = sizeof text), &world),
           COMM_ERR_CONFIG);
        CHECK(strstr(text, wanted) != NULL);
        IS(comm_open(COMM_CONFIG(.ranks = 1, .options = "order=fixed", .error_text = text, .error_text_bytes = sizeof text), &world),
           COMM_ERR_CONFIG);
        CHECK(strstr(text, wanted) != NULL);
    }
    setenv("COMM_ORDER", "fixed", 1);
    MUST(comm_open(COMM_CONFIG(.ranks = 1, .order = COMM_ORDER_FIXED), &world));
    MUST(comm_close(world, RIG_PATIENCE));
    unsetenv("COMM_ORDER");
}

/* A wire names peers in 16 bits. */
RIG_TEST(contract_6_10_more_ranks_than_a_world_can_have)
{
    struct comm_communicator *world = NULL;
    char text[256] = "";
    unsetenv("COMM_BACKEND");
    IS(comm_open(COMM_CONFIG(.rank = 1, .ranks = 65536, .address = "nobody", .open_timeout_ns = 1, .error_text = text,
                             .error_text_bytes = sizeof text),
                 &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "config.ranks=65536; expected at most 65535") != NULL);
}

static void hear_option(void *heard, int level, const char *line)
{
    *(bool *)heard |= level == COMM_LOG_ERROR && strstr(line, "COMM_WINDOW=5");
}

/* Without room for the text of an error only the log can name it. */
RIG_TEST(contract_6_10_wrong_configuration_is_logged)
{
    struct comm_communicator *world = NULL;
    bool heard = false;
    unsetenv("COMM_LOG");
    setenv("COMM_WINDOW", "5", 1);
    IS(comm_open(COMM_CONFIG(.ranks = 1, .log = hear_option, .log_arg = &heard, .log_level = COMM_LOG_OFF), &world), COMM_ERR_CONFIG);
    CHECK(!heard);
    setenv("COMM_LOG", "loud", 1);
    IS(comm_open(COMM_CONFIG(.ranks = 1, .log = hear_option, .log_arg = &heard), &world), COMM_ERR_CONFIG);
    CHECK(heard);
    heard = false;
    setenv("COMM_LOG", "off", 1);
    IS(comm_open(COMM_CONFIG(.ranks = 1, .log = hear_option, .log_arg = &heard, .log_level = COMM_LOG_INFO), &world), COMM_ERR_CONFIG);
    CHECK(!heard);
    unsetenv("COMM_LOG");
    IS(comm_open(COMM_CONFIG(.ranks = 1, .log = hear_option, .log_arg = &heard), &world), COMM_ERR_CONFIG);
    CHECK(heard);
    unsetenv("COMM_WINDOW");
}

/* A struct with a size field from a newer program: a set field that this library does not know is refused, not ignored. */
RIG_TEST(contract_6_10_a_longer_struct)
{
    struct {
        struct comm_config known;
        uint64_t news;
    } config = {{.size = sizeof config, .ranks = 1}, 0};
    struct comm_communicator *world = NULL;
    MUST(comm_open(&config.known, &world));
    MUST(comm_close(world, RIG_PATIENCE));
    world = NULL;
    config.news = 1;
    IS(comm_open(&config.known, &world), COMM_ERR_UNSUPPORTED);
    CHECK(world == NULL);
}

/* The same struct makes an identity. What lies behind its size belongs to the program. */
RIG_TEST(contract_6_10_the_size_of_an_ids_config)
{
    struct {
        struct comm_config known;
        uint64_t news;
    } config = {{.size = sizeof config}, 0};
    char text[512] = "", untouched[8] = "as it is";
    struct comm_config known = {.size = 0, .error_text = text, .error_text_bytes = sizeof text};
    struct comm_id id;
    unsetenv("COMM_ADDRESS");
    unsetenv("COMM_BACKEND");
    IS(comm_id_create(&known, &id), COMM_ERR_ARGUMENT);
    CHECK(!text[0]);
    known.size = offsetof(struct comm_config, address); /* an old program's, which ends there */
    known.address = untouched;
    known.error_text = untouched;
    known.error_text_bytes = sizeof untouched;
    MUST(comm_id_create(&known, &id));
    CHECK(id.bytes[64] == 0); /* the address comes after job and secret */
    IS(comm_id_create(&known, NULL), COMM_ERR_ARGUMENT);
    struct comm_communicator *worlds[1];
    IS(comm_open_local(&known, 0, NULL, worlds), COMM_ERR_ARGUMENT);
    CHECK(memcmp(untouched, "as it is", sizeof untouched) == 0);
    MUST(comm_id_create(&config.known, &id));
    config.news = 1;
    config.known.error_text = text;
    config.known.error_text_bytes = sizeof text;
    IS(comm_id_create(&config.known, &id), COMM_ERR_UNSUPPORTED);
    CHECK(strstr(text, "does not know"));
}

/* Otherwise the job would have no secret, or one that everybody knows, and the program would not learn of it. */
RIG_TEST(contract_6_10_a_secret_that_is_none)
{
    static const unsigned char zeros[32], one[32] = {[31] = 1};
    struct comm_communicator *world = NULL;
    char text[512] = "";
    IS(comm_open(COMM_CONFIG(.ranks = 1, .secret_bytes = 32, .error_text = text, .error_text_bytes = sizeof text), &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "config.secret=NULL config.secret_bytes=32"));
    IS(comm_open(COMM_CONFIG(.ranks = 1, .secret = zeros, .secret_bytes = 32, .error_text = text, .error_text_bytes = sizeof text), &world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "config.secret: its 32 bytes are 0"));
    CHECK(world == NULL);
    MUST(comm_open(COMM_CONFIG(.ranks = 1, .secret = one, .secret_bytes = 32), &world));
    MUST(comm_close(world, RIG_PATIENCE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_6_3_poll_owner),
        cmocka_unit_test(contract_6_3_a_crowd_of_waiters),
        cmocka_unit_test(contract_6_5_a_loop_that_sleeps_on_the_descriptor),
        cmocka_unit_test(contract_6_5_a_set_event_wakes_the_loop),
        cmocka_unit_test(contract_6_5_a_deadline_wakes_the_loop),
        cmocka_unit_test(contract_6_6_when_callbacks_run),
        cmocka_unit_test(contract_6_6_what_a_callback_may_not_do),
        cmocka_unit_test(contract_6_6_a_callback_may_issue),
        cmocka_unit_test(contract_6_6_notify_progress),
        cmocka_unit_test(contract_6_6_callbacks_of_a_failed_communicator),
        cmocka_unit_test(contract_6_8_fork),
        cmocka_unit_test(contract_6_8_a_child_that_frees_moves_nothing),
        cmocka_unit_test(contract_6_8_a_fork_in_a_callback),
        cmocka_unit_test(contract_6_8_the_last_free_in_a_child),
        cmocka_unit_test(contract_6_8_a_window_in_a_child),
        cmocka_unit_test(contract_6_10_identity_of_the_program_wins),
        cmocka_unit_test(contract_6_10_tuning_in_the_environment_wins),
        cmocka_unit_test(contract_6_10_wrong_configuration_is_named),
        cmocka_unit_test(contract_6_10_a_fixed_order_is_the_programs_alone),
        cmocka_unit_test(contract_6_10_more_ranks_than_a_world_can_have),
        cmocka_unit_test(contract_6_10_wrong_configuration_is_logged),
        cmocka_unit_test(contract_6_10_a_longer_struct),
        cmocka_unit_test(contract_6_10_the_size_of_an_ids_config),
        cmocka_unit_test(contract_6_10_a_secret_that_is_none),
    };
    return cmocka_run_group_tests_name("contract_6", tests, NULL, NULL);
}
