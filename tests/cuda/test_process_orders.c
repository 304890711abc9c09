/*
 * The orders that the library puts on streams (orders.h), with a process for each rank. The first one's are left out in turn: it says which
 * play comes next, the other one plays it too, and the sums of both must be right.
 */
#define _GNU_SOURCE
#include "../proc/proc.h"
#include "mock.h"
#include "orders.h"

#include <commstream/comm.h>

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 64, PIPELINED = (256 << 10) / 4 /* the shortest that goes through a pipeline */, RANKS = 2, END = -1 };
/* What the first rank writes on its page, and the other one on its own. PLAY is the number of the play, and written last. */
enum { PLAY, WAY, SEED, RIGHT };

/* Without words a stream cannot wait for the host. Over NCCL it need not. */
static const struct {
    struct orders_config config;
    enum orders_way from, to;
} cases[] = {
    {{.backend = "nccl", .words = WORDS, .devices = 2, .algorithm = "nccl"}, BY_EVENTS, BY_HOST_ALONE},
    {{.backend = "nccl", .words = WORDS, .devices = 2, .algorithm = "nccl", .no_memops = true}, BY_EVENTS, BY_HOST_ALONE},
    {{.backend = "nccl", .words = WORDS, .devices = 2, .algorithm = "nccl+host", .by_xor = true, .no_kernels = true},
     BY_EVENTS,
     BY_HOST_ALONE},
    {{.backend = "shm", .words = WORDS, .devices = 1, .is_staged = true}, BY_EVENTS, BY_HOST},
    {{.backend = "shm", .words = WORDS, .devices = 1, .is_staged = true, .no_memops = true}, BY_HOST, BY_HOST},
#if HAS_KERNELS
    {{.backend = "nccl", .words = WORDS, .devices = 2, .algorithm = "nccl+kernel", .by_xor = true}, BY_EVENTS, BY_HOST_ALONE},
    {{.backend = "cuda", .words = WORDS, .devices = 2}, BY_EVENTS, BY_REQUEST},
    {{.backend = "cuda", .words = PIPELINED, .devices = 2}, BY_EVENTS, BY_REQUEST},
    {{.backend = "cuda", .words = PIPELINED, .devices = 2, .no_memops = true}, BY_HOST, BY_HOST},
#endif
};
enum { CASES = sizeof cases / sizeof *cases };

/* ------------------------------------------------------------------------------------------------------------ a rank's process */
static struct orders_config is; /* set before the ranks are forked, like the next three */
static enum orders_way way_from, way_to;
static uint64_t seeds; /* of each way; 0: the missing orders are searched */
static struct proc_page *page;
static struct comm_communicator *world;
static int64_t plays;

/* What the other rank still does may need this one. */
static void await(int32_t rank, int64_t play)
{
    int64_t end = rig_now() + RIG_PATIENCE;

    while (atomic_load(&page[rank].number[PLAY]) != play) {
        enum comm_result moved = comm_progress(world);
        CHECK(moved == COMM_OK || moved == COMM_PENDING);
        CHECK(rig_now() <= end);
        sched_yield();
    }
}

static void tell(int way, uint64_t seed)
{
    atomic_store(&page[0].number[WAY], way);
    atomic_store(&page[0].number[SEED], (int64_t)seed);
    atomic_store(&page[0].number[PLAY], ++plays);
}

static void start(enum orders_way way, uint64_t seed)
{
    tell((int)way, seed);
}

static bool was_right(void)
{
    await(1, plays);
    return atomic_load(&page[1].number[RIGHT]);
}

static void lead(void)
{
    for (int way = way_from; way <= (int)way_to; way++) {
        if (seeds)
            orders_hold((enum orders_way)way, seeds);
        else
            orders_find_each((enum orders_way)way);
    }
    tell(END, 0);
}

static void follow(void)
{
    for (;;) {
        await(0, ++plays);
        int way = (int)atomic_load(&page[0].number[WAY]);
        if (way == END)
            return;
        atomic_store(&page[1].number[RIGHT], orders_play((enum orders_way)way, (uint64_t)atomic_load(&page[0].number[SEED])));
        atomic_store(&page[1].number[PLAY], plays);
    }
}

static void one_rank(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct orders_process mine = {.rank = rank, .start = rank ? NULL : start, .was_right = was_right};
    bool has_device = !is.is_staged;
    char device[16], text[512] = "";

    (void)none;
    page = proc->page;
    mock_reset(&(struct mock_options){
        .seed = (uint64_t)rank + 1, .devices = is.devices, .queues = is.queues, .no_memops = is.no_memops, .no_kernels = is.no_kernels});
    mock_run(true);
    snprintf(device, sizeof device, "cuda:%d", rank);
    enum comm_result r = comm_open(COMM_CONFIG(.backend = is.backend, .device = has_device ? device : NULL,
                                               .progress = COMM_PROGRESS_CALLER, .open_timeout_ns = 20 * RIG_S,
                                               .operation_timeout_ns = 60 * RIG_S, .error_text = text, .error_text_bytes = sizeof text),
                                   &world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", text);
    mine.world = world;
    is.process = &mine;
    orders_open(&is);
    if (rank)
        follow();
    else
        lead();
    orders_close();
}

static void in_processes(int at, int queues)
{
    struct proc proc = {.raw = true};

    is = cases[at].config;
    is.queues = queues;
    way_from = cases[at].from;
    way_to = cases[at].to;
    rig_note("%s, %zu words%s%s, %d queues", is.backend, is.words, is.by_xor ? ", xor" : "", is.no_memops ? ", no words" : "", queues);
    proc_start(&proc, RANKS, one_rank);
    proc_finish(&proc, -1, 10 * RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ tests */
RIG_TEST(calls_stand_in_the_order_of_streams)
{
    proc_needs_shm();
    seeds = selected(500, 20, 4);
    for (int at = 0; at < CASES; at++) {
        bool any = strcmp(cases[at].config.backend, "nccl") == 0; /* others' streams wait for words, so they need queues of their own */
        for (int queues = any ? 1 : 32; queues <= 32; queues += any && queues < 8 ? (int)selected(1, 7, 7) : 32)
            in_processes(at, queues);
    }
}

RIG_TEST(every_missing_order_is_found)
{
#if defined(__SANITIZE_THREAD__)
    rig_skip("what is left out is a race, which ThreadSanitizer finds by itself");
#endif
    proc_needs_shm();
    seeds = 0;
    for (int at = 0; at < CASES; at++)
        in_processes(at, 32); /* one queue would order its streams anyway */
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_stand_in_the_order_of_streams),
        cmocka_unit_test(every_missing_order_is_found),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_process_orders", tests, NULL, NULL);
}
