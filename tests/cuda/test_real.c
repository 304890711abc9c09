/*
 * Behaviour of the real CUDA and NCCL that a simpler mock would not have: connecting inside calls, faults that stop streams, aborts that
 * hang, settings from the environment, kernels that must fit on the device together. test_real_memory.c has streams, memory and arithmetic.
 */
#define _GNU_SOURCE
#include "real.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Has so much time passed at most? Under a sanitizer, beside other tests, ten times as much. */
static bool within(int64_t start, int64_t ns)
{
    return rig_now() - start < (rig_quick() ? 10 : 1) * ns;
}

/* ------------------------------------------------------------------------------------------------------------ connecting */
/* One thread drives all ranks. So a call that waited for its peers would never return. */
RIG_TEST(no_call_waits_for_its_peers_to_connect)
{
    struct real set;
    for (int ranks = 1; ranks <= 8; ranks++) {
        real_open(&set, ranks, &(struct mock_options){.seed = (uint64_t)ranks, .queues = ranks});
        real_sums(set.rig.world, &set);
        real_close(&set);
    }
}

/* Variables that the program has set stay as they are. */
RIG_TEST(settings_of_the_program_are_left_alone)
{
    struct comm_communicator *c;
    setenv("NCCL_RUNTIME_CONNECT", "1", 1);
    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl"), 1, NULL, &c));
    CHECK(strcmp(getenv("NCCL_RUNTIME_CONNECT"), "1") == 0);
    CHECK(strcmp(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1") == 0);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
    mock_run(false);
}

/* NCCL uses the interface chosen for this library, unless NCCL's own variable is set. A network is not passed on, since NCCL takes only
 * names. */
RIG_TEST(interfaces_are_passed_on)
{
    static const struct {
        const char *ours, *nccl, *want;
    } rows[] = {{"=lo", NULL, "=lo"}, {"^docker,veth", NULL, "^docker,veth"}, {"lo", "eth7", "eth7"}, {"127.0.0.0/8", NULL, NULL}};
    /* The variables are read when NCCL is loaded, so each row needs its own process. */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pid_t child = fork();
        int status = 1;
        if (child == 0) {
            struct comm_communicator *c;
            setenv("COMM_SOCKET_IFNAME", rows[i].ours, 1);
            unsetenv("NCCL_SOCKET_IFNAME");
            if (rows[i].nccl)
                setenv("NCCL_SOCKET_IFNAME", rows[i].nccl, 1);
            mock_reset(&(struct mock_options){.seed = 1});
            mock_run(true);
            MUST(comm_open_local(COMM_CONFIG(.backend = "nccl"), 1, NULL, &c));
            const char *got = getenv("NCCL_SOCKET_IFNAME");
            CHECK(rows[i].want ? got && strcmp(got, rows[i].want) == 0 : !got);
            MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        EQUAL(status, 0);
    }
}

/* Both NCCL communicators of a world are created with the world's options. */
RIG_TEST(options_reach_nccl)
{
    struct real set;
    struct comm_communicator *c;
    char text[512] = "";
    real_open(&set, RANKS, &(struct mock_options){.seed = 1});
    struct mock_config config = mock_newest_config();
    CHECK(config.min_ctas == NCCL_UNSET && config.max_ctas == NCCL_UNSET);
    CHECK(config.cga_cluster_size == NCCL_UNSET && config.split_share == NCCL_UNSET);
    real_close(&set);
    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    MUST(comm_open_local(
        COMM_CONFIG(.backend = "nccl", .options = "nccl_min_ctas=2,nccl_max_ctas=9,nccl_cga_cluster_size=4,nccl_split_share=yes"), 1, NULL,
        &c));
    config = mock_newest_config();
    EQUAL(config.min_ctas, 2);
    EQUAL(config.max_ctas, 9);
    EQUAL(config.cga_cluster_size, 4);
    EQUAL(config.split_share, 1);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
    IS(comm_open_local(COMM_CONFIG(.backend = "nccl", .options = "nccl_min_ctas=9,nccl_max_ctas=2", .error_text = text,
                                   .error_text_bytes = sizeof text),
                       1, NULL, &c),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "nccl_min_ctas=9; expected no more than nccl_max_ctas=2"));
    IS(comm_open_local(COMM_CONFIG(.backend = "nccl", .options = "nccl_max_ctas=65"), 1, NULL, &c), COMM_ERR_CONFIG);
    mock_run(false);
    EQUAL(mock_live(), 0);
}

/* A warming call blocks until all ranks make it. One rank's call never ends, so the open must time out. */
RIG_TEST(a_peer_that_never_warms_up)
{
    struct comm_communicator *worlds[2];
    static const char *const versions[] = {"NCCL 2.28", "NCCL 2.27, which cannot revoke"};
    for (int old = 0; old < 2; old++) {
        rig_note("%s", versions[old]);
        mock_reset(&(struct mock_options){.seed = 1, .lost_rank = 2, .nccl = old ? 22703 : 0});
        mock_run(true);
        int64_t start = rig_now();
        IS(comm_open_local(COMM_CONFIG(.backend = "nccl", .open_timeout_ns = 700 * RIG_MS), 2, NULL, worlds), COMM_ERR_TIMEOUT);
        CHECK(within(start, 1700 * RIG_MS));
        if (!old && mock_misused())
            rig_die(__FILE__, __LINE__, "%s", mock_misused());
        mock_run(false);
        EQUAL(mock_live(), 0);
    }
}

/* ------------------------------------------------------------------------------------------------------------ blocking or not */
RIG_TEST(communicators_that_do_not_block)
{
    struct real set;
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    for (int slow = 0; slow < 4; slow += 3) {
        real_open(&set, RANKS, &(struct mock_options){.seed = 1, .slow_join = slow});
        real_sums(set.rig.world, &set);
        real_close(&set);
    }
}

RIG_TEST(communicators_that_block_while_they_join)
{
    struct real set;
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    real_open(&set, RANKS, &(struct mock_options){.seed = 1});
    real_sums(set.rig.world, &set);
    real_close(&set);
}

/* ------------------------------------------------------------------------------------------------------------ faults and aborts */
/* NCCL does not notice a failed kernel, so the library asks CUDA. */
RIG_TEST(a_device_fault_is_noticed)
{
    struct real set;
    struct comm_request q[RANKS];
    for (int memops = 0; memops < 2; memops++) {
        real_open(&set, RANKS, &(struct mock_options){.seed = 1, .no_memops = !memops});
        mock_fault(1, true);
        int64_t start = rig_now();
        for (int r = 0; r < RANKS; r++)
            if (r != 1)
                MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]));
        enum comm_result issued = comm_allreduce(set.rig.world[1], set.side[1].in, set.side[1].out, WORDS, COMM_U32, COMM_SUM, &q[1]);
        IS(issued, COMM_ERR_BACKEND);
        IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_REFUSED); /* refused by the rank whose device failed */
        CHECK(within(start, RIG_S));
        for (int r = 0; r < RANKS; r++)
            (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
        CHECK(within(start, 8 * RIG_S));
        mock_fault(1, false);
        mock_run(false);
        mock_drain();
    }
}

/* The operation is on the stream when the device fails. */
RIG_TEST(a_fault_behind_an_operation)
{
    struct real set;
    struct comm_request q;
    struct comm_error error = {.size = sizeof error};
    real_open(&set, 2, &(struct mock_options){.seed = 1});
    MUST(comm_allreduce(set.rig.world[0], set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, &q));
    IS(comm_wait(q, 20 * RIG_MS), COMM_PENDING);
    mock_fault(0, true);
    int64_t start = rig_now();
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_BACKEND);
    CHECK(within(start, RIG_S));
    MUST(comm_error_detail(set.rig.world[0], &error));
    EQUAL(error.backend_code, -719);
    CHECK(strstr(error.text, "a kernel on the device has failed"));
    for (int r = 0; r < 2; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    mock_fault(0, false);
    mock_run(false);
    mock_drain();
}

/* An abort that hangs holds no lock that other communicators of its device need. */
RIG_TEST(a_sibling_of_an_abort_that_hangs)
{
    struct real set;
    struct comm_communicator *dup[2];
    struct comm_request q[2];
    real_open(&set, 2, &(struct mock_options){.seed = 1, .abort_hangs = 1});
    rig_dup(set.rig.world, 2, dup);
    MUST(comm_revoke(dup[0]));
    rig_nap(50 * RIG_MS);
    int64_t start = rig_now();
    for (int r = 0; r < 2; r++)
        MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]));
    rig_wait_all(q, 2);
    CHECK(within(start, 100 * RIG_MS));
    mock_free_abort();
    for (int r = 0; r < 2; r++)
        (void)!comm_close(dup[r], COMM_DEFAULT_TIMEOUT);
    for (int r = 0; r < 2; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    real_free(&set);
}

/* ------------------------------------------------------------------------------------------------------------ on the device */
/* The kernels of two communicators do not fit on the device together. All ranks issue them in the same order, so they end, whichever stream
 * the device would choose first. */
RIG_TEST(kernels_that_do_not_fit_together)
{
    struct real set;
    struct comm_communicator *dup[2];
    struct comm_request q[4];
    real_open(&set, 2, &(struct mock_options){.seed = 1, .blocks = 1, .queues = 32});
    rig_dup(set.rig.world, 2, dup);
    for (uint64_t seed = 0; seed < (rig_quick() ? 20 : 200); seed++) {
        mock_run(false);
        mock_seed(seed);
        for (int r = 0; r < 2; r++) {
            MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]));
            MUST(comm_allreduce(dup[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, NULL));
        }
        mock_run(true);
        rig_wait_all(q, 2);
        for (int r = 0; r < 2; r++)
            MUST(comm_sync(dup[r], RIG_PATIENCE));
    }
    for (int r = 0; r < 2; r++)
        MUST(comm_close(dup[r], COMM_DEFAULT_TIMEOUT));
    real_close(&set);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void *close_world(void *world)
{
    int64_t start = rig_now();

    (void)!comm_close(world, COMM_DEFAULT_TIMEOUT);
    CHECK(within(start, 5 * RIG_S));
    return NULL;
}

/* Freeing memory waits for the program's work on that device. No other communicator may wait for that. */
RIG_TEST(a_device_that_is_freed_holds_back_nobody)
{
    struct comm_communicator *first, *second;
    struct bench b;
    const char *one = "cuda:0", *two = "cuda:1";
    pthread_t closer;
    mock_reset(&(struct mock_options){.seed = 1, .queues = 32});
    mock_run(true);
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl"), 1, &one, &first));
    bench_open(&b, 0);
    struct CUstream_st *stream = bench_stream(&b);
    mock_hold(stream, true);
    mock_kernel(stream, nothing, NULL);
    pthread_create(&closer, NULL, close_world, first);
    rig_nap(300 * RIG_MS); /* the closing thread is in cuMemFree */
    int64_t start = rig_now();
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl"), 1, &two, &second));
    CHECK(within(start, 500 * RIG_MS));
    pthread_join(closer, NULL); /* the close is bounded, although the kernel still runs */
    mock_hold(stream, false);
    MUST(comm_close(second, COMM_DEFAULT_TIMEOUT));
    while (mock_live() > 4) /* the device left behind is freed now; the bench keeps a stream, an event, memory and its context */
        rig_nap(RIG_MS);
    bench_drop_stream(&b, stream);
    bench_close(&b);
    mock_run(false);
    EQUAL(mock_live(), 0);
    fflush(stdout);
    _exit(0); /* what the late thread had to remember was left behind: that is no leak */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_waits_for_its_peers_to_connect),
        cmocka_unit_test(settings_of_the_program_are_left_alone),
        cmocka_unit_test(interfaces_are_passed_on),
        cmocka_unit_test(options_reach_nccl),
        cmocka_unit_test(a_peer_that_never_warms_up),
        cmocka_unit_test(communicators_that_do_not_block),
        cmocka_unit_test(communicators_that_block_while_they_join),
        cmocka_unit_test(a_device_fault_is_noticed),
        cmocka_unit_test(a_fault_behind_an_operation),
        cmocka_unit_test(a_sibling_of_an_abort_that_hangs),
        cmocka_unit_test(default_streams),
        cmocka_unit_test(streams_that_a_communicator_may_have),
        cmocka_unit_test(memory_of_another_device_is_refused),
        cmocka_unit_test(pointers_are_asked_about_inside_a_context),
        cmocka_unit_test(sums_of_small_types),
        cmocka_unit_test(types_that_an_old_library_lacks),
        cmocka_unit_test(kernels_that_do_not_fit_together),
        cmocka_unit_test(a_device_that_is_freed_holds_back_nobody),
    };
    return cmocka_run_group_tests_name("cuda_real", tests, NULL, NULL);
}
