/*
 * comm_mem_alloc_symmetric with a process for each rank, over the mock NCCL: all is well, a process is killed inside the registration or
 * after it, and a process does not call.
 */
#define _GNU_SOURCE
#include "../proc/proc.h"
#include "clean.h"
#include "mock.h"
#include "process.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, VICTIM = 2 };
enum what { ALL_WELL, KILLED_INSIDE, KILLED_AFTER, ABSENT };
static enum what what; /* set before the ranks are forked */

static void open_rank(int32_t rank)
{
    char device[16];

    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = 2});
    mock_run(true);
    snprintf(device, sizeof device, "cuda:%d", rank);
    setenv("COMM_BACKEND", "nccl", 1);
    enum comm_result r =
        comm_open(COMM_CONFIG(.device = device, .open_timeout_ns = 20 * RIG_S, .operation_timeout_ns = what == ABSENT ? RIG_S : 30 * RIG_S,
                              .error_text = my.text, .error_text_bytes = sizeof my.text),
                  &my.world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", my.text);
    make_buffers(rank);
}

static void die(void *page)
{
    atomic_store(&((struct proc_page *)page)->time, rig_now());
    kill(getpid(), SIGKILL);
}

static enum comm_result allocate(uint32_t **memory)
{
    struct comm_request q;

    *memory = NULL;
    MUST(comm_mem_alloc_symmetric(my.world, WORDS * 4, (void **)memory, &q));
    return comm_wait(q, RIG_PATIENCE);
}

static enum comm_result sum(uint32_t *memory)
{
    struct comm_request q;
    enum comm_result r = comm_allreduce(my.world, COMM_IN_PLACE, memory, WORDS, COMM_U32, COMM_SUM, &q);

    return r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
}

static void all_well(uint32_t rank, uint32_t ranks)
{
    uint32_t *memory, *second, got;

    MUST(allocate(&memory));
    MUST(allocate(&second));
    EQUAL(mock_windows(), 2);
    bench_fill(&my.bench, my.stream, memory, rank + 1, WORDS);
    MUST(comm_queue_wait_stream(my.world, my.stream));
    MUST(sum(memory));
    bench_read(&my.bench, my.stream, &got, memory, 1);
    EQUAL(got, ranks * (ranks + 1) / 2);
    comm_mem_free(my.world, memory);
    EQUAL(mock_windows(), 1); /* the second is freed with the world */
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
}

/* The others get the error, and free what they have. */
static void one_fails(struct proc_page *page, int32_t rank)
{
    uint32_t *memory = NULL;
    enum comm_result r = COMM_OK;

    if (what == ABSENT && rank == VICTIM) {
        struct comm_error error = {.size = sizeof error};
        rig_fails_within(my.world, COMM_ERR_TIMEOUT, RIG_PATIENCE, &error);
    }
    if (what == KILLED_INSIDE && rank == VICTIM)
        mock_at("ncclCommWindowRegister", die, page);
    if (what != ABSENT || rank != VICTIM)
        r = allocate(&memory);
    if (what == KILLED_AFTER && rank == VICTIM)
        die(page);
    while (r == COMM_OK && what == KILLED_AFTER)
        r = sum(memory);
    if (what != ABSENT || rank != VICTIM)
        proc_tell_failure(page, my.world, r);
    comm_mem_free(my.world, memory);
    (void)comm_close(my.world, 4 * RIG_S);
}

static void work(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    open_rank(rank);
    if (what == ALL_WELL)
        all_well((uint32_t)rank, (uint32_t)proc->ranks);
    else
        one_fails(&proc->page[rank], rank);
    drop_buffers();
}

RIG_TEST(processes_that_register_memory_together)
{
    proc_needs_shm();
    what = ALL_WELL;
    for (int32_t ranks = 1; ranks <= RANKS; ranks++) {
        struct proc proc = {.raw = true};
        rig_note("%d ranks", ranks);
        proc_start(&proc, ranks, work);
        proc_finish(&proc, -1, RIG_PATIENCE);
        EQUAL(proc_names(&proc), 0);
    }
}

static void lose_one(enum what how, enum comm_result want)
{
    struct proc proc = {.raw = true};

    proc_needs_shm();
    what = how;
    proc_start(&proc, RANKS, work);
    proc_finish(&proc, how == ABSENT ? -1 : VICTIM, RIG_PATIENCE);
    for (int32_t r = 0; r < RANKS; r++) {
        const struct proc_page *page = &proc.page[r];
        if (r == VICTIM)
            continue;
        if (page->result != want)
            rig_die(__FILE__, __LINE__, "rank %d was told %s: %s", r, comm_result_text((enum comm_result)page->result), page->text);
        int64_t took = page->time - proc.page[VICTIM].time;
        if (how != ABSENT && took > RIG_S + proc.stood_ns)
            rig_die(__FILE__, __LINE__, "rank %d was told after %lld ms", r, (long long)(took / RIG_MS));
    }
    EQUAL(proc_names(&proc), 0);
}

RIG_TEST(contract_4_1_a_process_is_killed_while_it_registers)
{
    lose_one(KILLED_INSIDE, COMM_ERR_PEER);
}

RIG_TEST(contract_4_1_a_process_with_registered_memory_is_killed)
{
    lose_one(KILLED_AFTER, COMM_ERR_PEER);
}

RIG_TEST(a_process_that_does_not_call)
{
    lose_one(ABSENT, COMM_ERR_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_that_register_memory_together),
        cmocka_unit_test(contract_4_1_a_process_is_killed_while_it_registers),
        cmocka_unit_test(contract_4_1_a_process_with_registered_memory_is_killed),
        cmocka_unit_test(a_process_that_does_not_call),
    };
    return cmocka_run_group_tests_name("cuda_symmetric_process", tests, NULL, NULL);
}
