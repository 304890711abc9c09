/*
 * Behaviour of the real CUDA and NCCL that a simpler mock would not have: connecting inside calls, faults that stop streams, aborts that
 * hang, settings from the environment, default streams, memory with an owner, arithmetic in the type itself, kernels that must fit on the
 * device together.
 */
#define _GNU_SOURCE
#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"
#include "now.h"

#include <commstream/cuda.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORDS = 64, RANKS = 3 };
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out;
};
struct set {
    struct rig rig;
    int ranks;
    struct side side[RIG_RANKS_MAX];
};

static void open_set(struct set *set, int ranks, const struct mock_options *options)
{
    mock_reset(options);
    mock_run(true);
    set->ranks = ranks;
    rig_open(
        &set->rig, ranks,
        COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .open_timeout_ns = 5 * RIG_S, .operation_timeout_ns = 10 * RIG_S));
    for (int r = 0; r < ranks; r++) {
        struct side *s = &set->side[r];
        bench_open(&s->bench, r);
        s->stream = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, WORDS);
        s->out = bench_memory(&s->bench, WORDS);
    }
}

static void free_sides(struct set *set)
{
    for (int r = 0; r < set->ranks; r++) {
        struct side *s = &set->side[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
    }
    if (mock_misused())
        rig_die(__FILE__, __LINE__, "%s", mock_misused());
    mock_run(false);
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

static void close_set(struct set *set)
{
    rig_close(&set->rig);
    free_sides(set);
}

static const char *detail(struct comm_communicator *c)
{
    static struct comm_error error;

    error = (struct comm_error){.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    return error.text;
}

/* Sums over all ranks, with a size for each algorithm. */
static void sums(struct comm_communicator *const *c, struct set *set)
{
    static const size_t words[] = {1, 8, WORDS};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct comm_request q[RIG_RANKS_MAX];
        for (int r = 0; r < set->ranks; r++) {
            struct side *s = &set->side[r];
            bench_fill(&s->bench, s->stream, s->in, (uint32_t)r + 1, WORDS);
            MUST(comm_queue_wait_stream(c[r], s->stream));
            MUST(comm_allreduce(c[r], s->in, s->out, words[i], COMM_U32, COMM_SUM, &q[r]));
        }
        rig_wait_all(q, (size_t)set->ranks);
        for (int r = 0; r < set->ranks; r++) {
            uint32_t got[WORDS];
            bench_read(&set->side[r].bench, set->side[r].stream, got, set->side[r].out, words[i]);
            for (size_t k = 0; k < words[i]; k++)
                EQUAL(got[k], set->ranks * (set->ranks + 1) / 2);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ connecting */
/* One thread drives all ranks. So a call that waited for its peers would never return. */
RIG_TEST(no_call_waits_for_its_peers_to_connect)
{
    struct set set;
    for (int ranks = 1; ranks <= 8; ranks++) {
        open_set(&set, ranks, &(struct mock_options){.seed = (uint64_t)ranks, .queues = ranks});
        sums(set.rig.world, &set);
        close_set(&set);
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
    struct set set;
    struct comm_communicator *c;
    char text[512] = "";
    open_set(&set, RANKS, &(struct mock_options){.seed = 1});
    struct mock_config config = mock_newest_config();
    CHECK(config.min_ctas == NCCL_UNSET && config.max_ctas == NCCL_UNSET);
    CHECK(config.cga_cluster_size == NCCL_UNSET && config.split_share == NCCL_UNSET);
    close_set(&set);
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
        CHECK(rig_now() - start < 1700 * RIG_MS);
        if (!old && mock_misused())
            rig_die(__FILE__, __LINE__, "%s", mock_misused());
        mock_run(false);
        EQUAL(mock_live(), 0);
    }
}

/* ------------------------------------------------------------------------------------------------------------ blocking or not */
RIG_TEST(communicators_that_do_not_block)
{
    struct set set;
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    for (int slow = 0; slow < 4; slow += 3) {
        open_set(&set, RANKS, &(struct mock_options){.seed = 1, .slow_join = slow});
        sums(set.rig.world, &set);
        close_set(&set);
    }
}

RIG_TEST(communicators_that_block_while_they_join)
{
    struct set set;
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    open_set(&set, RANKS, &(struct mock_options){.seed = 1});
    sums(set.rig.world, &set);
    close_set(&set);
}

/* ------------------------------------------------------------------------------------------------------------ faults and aborts */
/* NCCL does not notice a failed kernel, so the library asks CUDA. */
RIG_TEST(a_device_fault_is_noticed)
{
    struct set set;
    struct comm_request q[RANKS];
    for (int memops = 0; memops < 2; memops++) {
        open_set(&set, RANKS, &(struct mock_options){.seed = 1, .no_memops = !memops});
        mock_fault(1, true);
        int64_t start = rig_now();
        for (int r = 0; r < RANKS; r++)
            if (r != 1)
                MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]));
        enum comm_result issued = comm_allreduce(set.rig.world[1], set.side[1].in, set.side[1].out, WORDS, COMM_U32, COMM_SUM, &q[1]);
        IS(issued, COMM_ERR_BACKEND);
        IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_REFUSED); /* refused by the rank whose device failed */
        CHECK(rig_now() - start < RIG_S);
        for (int r = 0; r < RANKS; r++)
            (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
        CHECK(rig_now() - start < 8 * RIG_S);
        mock_fault(1, false);
        mock_run(false);
        mock_drain();
    }
}

/* The operation is on the stream when the device fails. */
RIG_TEST(a_fault_behind_an_operation)
{
    struct set set;
    struct comm_request q;
    struct comm_error error = {.size = sizeof error};
    open_set(&set, 2, &(struct mock_options){.seed = 1});
    MUST(comm_allreduce(set.rig.world[0], set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, &q));
    IS(comm_wait(q, 20 * RIG_MS), COMM_PENDING);
    mock_fault(0, true);
    int64_t start = rig_now();
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_BACKEND);
    CHECK(rig_now() - start < RIG_S);
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
    struct set set;
    struct comm_communicator *dup[2];
    struct comm_request q[2];
    open_set(&set, 2, &(struct mock_options){.seed = 1, .abort_hangs = 1});
    rig_dup(set.rig.world, 2, dup);
    MUST(comm_revoke(dup[0]));
    rig_nap(50 * RIG_MS);
    int64_t start = rig_now();
    for (int r = 0; r < 2; r++)
        MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]));
    rig_wait_all(q, 2);
    CHECK(rig_now() - start < 100 * RIG_MS);
    mock_free_abort();
    for (int r = 0; r < 2; r++)
        (void)!comm_close(dup[r], COMM_DEFAULT_TIMEOUT);
    for (int r = 0; r < 2; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    free_sides(&set);
}

/* ------------------------------------------------------------------------------------------------------------ streams and memory */
static void set_flag(void *arg)
{
    atomic_store((_Atomic int *)arg, 1);
}

static struct CUstream_st *numbered(uintptr_t number)
{
    return (struct CUstream_st *)number;
}

/* The rank's device need not be current. Default streams belong to the device that is current. */
RIG_TEST(default_streams)
{
    struct set set;
    struct comm_event *event;
    open_set(&set, 1, &(struct mock_options){.seed = 1});
    struct side *s = &set.side[0];
    MUST(comm_event_create(set.rig.world[0], &event));
    for (uintptr_t number = 0; number < 3; number++) {
        _Atomic int ran = 0;
        struct comm_request q;
        struct CUctx_st *mine;
        EQUAL(s->bench.calls->cuCtxPushCurrent(s->bench.context), 0);
        bench_fill(&s->bench, numbered(number), s->in, (uint32_t)number + 5, WORDS);
        MUST(comm_queue_wait_stream(set.rig.world[0], numbered(number)));
        MUST(comm_allreduce(set.rig.world[0], s->in, s->out, WORDS, COMM_U32, COMM_SUM, &q));
        MUST(comm_stream_wait_request(numbered(number), q));
        mock_kernel(numbered(number), set_flag, &ran);
        MUST(comm_event_record_stream(event, numbered(number)));
        MUST(comm_event_sync(event, RIG_PATIENCE));
        EQUAL(atomic_load(&ran), 1);
        uint32_t got[WORDS];
        bench_read(&s->bench, numbered(number), got, s->out, WORDS);
        EQUAL(got[WORDS - 1], number + 5);
        EQUAL(s->bench.calls->cuCtxPopCurrent(&mine), 0);
    }
    comm_event_free(event);
    close_set(&set);
}

static enum comm_result dup_on(struct comm_communicator *c, struct CUstream_st *stream, struct comm_communicator **out)
{
    return NOW(comm_dup, c, &(struct comm_options){.size = sizeof(struct comm_options), .stream = stream}, out);
}

RIG_TEST(streams_that_a_communicator_may_have)
{
    struct set set;
    struct comm_communicator *c;
    struct bench other;
    open_set(&set, 1, &(struct mock_options){.seed = 1});
    bench_open(&other, 3);
    struct CUstream_st *elsewhere = bench_stream(&other);
    IS(dup_on(set.rig.world[0], elsewhere, &c), COMM_ERR_ARGUMENT);
    IS(dup_on(set.rig.world[0], numbered(2), &c), COMM_ERR_ARGUMENT); /* a different stream on each thread */
    MUST(dup_on(set.rig.world[0], numbered(1), &c));
    sums(&c, &set);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
    bench_drop_stream(&other, elsewhere);
    bench_close(&other);
    (void)!comm_sync(set.rig.world[0], COMM_FOREVER);
    close_set(&set);
}

RIG_TEST(memory_of_another_device_is_refused)
{
    struct set set;
    uint32_t host[WORDS] = {0};
    open_set(&set, 2, &(struct mock_options){.seed = 1});
    struct comm_communicator *c = set.rig.world[0];
    IS(comm_allreduce(c, set.side[1].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "in is memory of cuda:1; expected memory of cuda:0"));
    IS(comm_allreduce(c, set.side[0].in, set.side[1].out, WORDS, COMM_U32, COMM_SUM, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "out is memory of cuda:1"));
    IS(comm_allreduce(c, host, set.side[0].out, WORDS, COMM_U32, COMM_BXOR, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "in is host memory"));
    IS(comm_allreduce(c, set.side[0].in, set.side[1].out, WORDS, COMM_U32, COMM_BXOR, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "out is memory of cuda:1"));
    for (int r = 0; r < 2; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    free_sides(&set);
}

/* The test thread has no current context, which a pointer query needs. Device memory must still be detected, and not reach the CPU. */
RIG_TEST(pointers_are_asked_about_inside_a_context)
{
    struct set set;
    open_set(&set, 1, &(struct mock_options){.seed = 1});
    struct comm_communicator *c = set.rig.world[0];
    struct comm_request q;
    bench_fill(&set.side[0].bench, set.side[0].stream, set.side[0].in, 7, WORDS);
    MUST(comm_queue_wait_stream(c, set.side[0].stream));
    MUST(comm_scan(c, set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_BXOR, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    uint32_t got[WORDS];
    bench_read(&set.side[0].bench, set.side[0].stream, got, set.side[0].out, WORDS);
    EQUAL(got[0], 7);
    IS(comm_send(c, set.side[0].in, WORDS, COMM_U32, 0, 1, NULL), COMM_ERR_UNSUPPORTED);
    (void)!comm_sync(c, COMM_FOREVER);
    close_set(&set);
}

/* ------------------------------------------------------------------------------------------------------------ arithmetic */
/* The values are small integers, which each type holds exactly: the sum of 1, 2 and 3 is 6, the average 2, the product 6. */
RIG_TEST(sums_of_small_types)
{
    static const struct {
        enum comm_type type;
        size_t bytes;
        uint16_t one, two, three, six;
    } types[] = {{COMM_I8, 1, 1, 2, 3, 6},
                 {COMM_F16, 2, 0x3c00, 0x4000, 0x4200, 0x4600},
                 {COMM_BF16, 2, 0x3f80, 0x4000, 0x4040, 0x40c0},
                 {COMM_F8E4M3, 1, 0x38, 0x40, 0x44, 0x4c},
                 {COMM_F8E5M2, 1, 0x3c, 0x40, 0x42, 0x46}};
    struct set set;
    struct comm_request q[RANKS];
    open_set(&set, RANKS, &(struct mock_options){.seed = 1});
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        rig_note("type %d", (int)types[i].type);
        const uint16_t in[RANKS] = {types[i].one, types[i].two, types[i].three};
        static const comm_op ops[] = {COMM_SUM, COMM_PROD};
        for (size_t k = 0; k < 2; k++) {
            for (int r = 0; r < RANKS; r++) {
                uint32_t word = types[i].bytes == 1 ? in[r] * 0x01010101u : in[r] * 0x00010001u;
                bench_fill(&set.side[r].bench, set.side[r].stream, set.side[r].in, word, WORDS);
                MUST(comm_queue_wait_stream(set.rig.world[r], set.side[r].stream));
                MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS * 4 / types[i].bytes, types[i].type, ops[k],
                                    &q[r]));
            }
            rig_wait_all(q, RANKS);
            uint32_t got[WORDS], want = types[i].bytes == 1 ? types[i].six * 0x01010101u : types[i].six * 0x00010001u;
            bench_read(&set.side[1].bench, set.side[1].stream, got, set.side[1].out, WORDS);
            EQUAL(got[0], want);
            EQUAL(got[WORDS - 1], want);
        }
    }
    close_set(&set);
}

RIG_TEST(types_that_an_old_library_lacks)
{
    struct set set;
    open_set(&set, 1, &(struct mock_options){.seed = 1, .nccl = 22300});
    struct comm_communicator *c = set.rig.world[0];
    MUST(comm_allreduce(c, set.side[0].in, set.side[0].out, WORDS, COMM_F8E4M3, COMM_SUM, NULL)); /* the host reduces */
    MUST(comm_allreduce(c, set.side[0].in, set.side[0].out, WORDS, COMM_BF16, COMM_SUM, NULL));
    MUST(comm_sync(c, COMM_FOREVER));
    close_set(&set);
}

/* ------------------------------------------------------------------------------------------------------------ on the device */
/* The kernels of two communicators do not fit on the device together. All ranks issue them in the same order, so they end, whichever stream
 * the device would choose first. */
RIG_TEST(kernels_that_do_not_fit_together)
{
    struct set set;
    struct comm_communicator *dup[2];
    struct comm_request q[4];
    open_set(&set, 2, &(struct mock_options){.seed = 1, .blocks = 1, .queues = 32});
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
    close_set(&set);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void *close_world(void *world)
{
    int64_t start = rig_now();

    (void)!comm_close(world, COMM_DEFAULT_TIMEOUT);
    CHECK(rig_now() - start < 5 * RIG_S);
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
    CHECK(rig_now() - start < 500 * RIG_MS);
    pthread_join(closer, NULL); /* the close is bounded, although the kernel still runs */
    mock_hold(stream, false);
    MUST(comm_close(second, COMM_DEFAULT_TIMEOUT));
    while (mock_live() > 4) /* the device left behind is freed now; the bench keeps a stream, an event, memory and its context */
        rig_nap(RIG_MS);
    bench_drop_stream(&b, stream);
    bench_close(&b);
    mock_run(false);
    EQUAL(mock_live(), 0);
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
