#define _GNU_SOURCE
#include "net/work.h"

#include "now.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static float in[WORK_LENGTH], out[WORK_LENGTH];

enum comm_result work_sum(struct comm_communicator *world, int64_t i, size_t n)
{
    struct comm_request request;
    int32_t ranks = comm_size(world);
    for (size_t k = 0; k < n; k += 997)
        in[k] = (float)(comm_rank(world) + 1) + (float)(i % 50);
    enum comm_result result = comm_allreduce(world, in, out, n, COMM_F32, COMM_SUM, &request);
    if (result == COMM_OK)
        result = comm_wait(request, 2 * RIG_PATIENCE);
    float want = (float)(ranks * (ranks + 1) / 2) + (float)(ranks * (i % 50));
    CHECK(result != COMM_OK || (out[0] == want && (n < 998 || out[997] == want)));
    return result;
}

static enum comm_result sum_small(struct comm_communicator *world, int64_t i)
{
    return work_sum(world, i, 5);
}

static enum comm_result sum_large(struct comm_communicator *world, int64_t i)
{
    return work_sum(world, i, WORK_LENGTH);
}

/* Messages around the ring, which uses every cable. */
static enum comm_result pass_on(struct comm_communicator *world, int64_t i)
{
    struct comm_request request[2];
    int32_t ranks = comm_size(world), rank = comm_rank(world);
    in[0] = (float)(rank + i % 1000);
    enum comm_result result = comm_recv(world, out, WORK_LENGTH, COMM_F32, (rank + ranks - 1) % ranks, 3, NULL, &request[0]);
    if (result == COMM_OK)
        result = comm_send(world, in, WORK_LENGTH, COMM_F32, (rank + 1) % ranks, 3, &request[1]);
    for (int k = 0; k < 2 && result == COMM_OK; k++)
        result = comm_wait(request[k], 2 * RIG_PATIENCE);
    CHECK(result != COMM_OK || out[0] == (float)((rank + ranks - 1) % ranks + i % 1000));
    return result;
}

/* The last rank never comes, so nothing is in transit between the others. The last rank only checks for failures now and then. */
static enum comm_result wait_for_the_last(struct comm_communicator *world, int64_t i)
{
    struct comm_request request;
    struct comm_error error = {.size = sizeof error};
    if (comm_rank(world) == comm_size(world) - 1) {
        rig_nap(10 * RIG_MS);
        MUST(comm_error_detail(world, &error));
        return error.result;
    }
    if (i < 50)
        return COMM_OK; /* the others have come this far when the cable is pulled */
    enum comm_result result = comm_barrier(world, &request);
    return result == COMM_OK ? comm_wait(request, 2 * RIG_PATIENCE) : result;
}

const struct work work_kinds[WORK_KINDS] = {
    {"small sums", sum_small}, {"large sums", sum_large}, {"messages", pass_on}, {"a wait for the last", wait_for_the_last}};
const struct work *work_chosen;

bool work_recovers;

static void recover(struct proc_page *page, struct comm_communicator *world)
{
    struct comm_communicator *next = NULL;
    MUST(NOW(comm_shrink, world, &next));
    page->number[0] = comm_size(next);
    for (int64_t i = 0; i < 10; i++)
        MUST(work_sum(next, i, i % 2 ? WORK_LENGTH : 5));
    MUST(comm_close(next, RIG_PATIENCE));
}

/* Both sides of a cut give each other up independently, at about the same time. If the cut is in one direction only, a side that closed at
 * once would tell the other before that one has detected it. */
static void await_others(const struct proc *proc)
{
    for (int turn = 0; turn < 100; turn++) {
        bool all = true;
        for (int32_t r = 0; r < proc->ranks; r++)
            all &= atomic_load(&proc->page[r].stage) >= WORK_TOLD;
        if (all)
            return;
        rig_nap(10 * RIG_MS);
    }
}

void work_go_on(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    for (int64_t i = 0; atomic_load(proc->go) == 0 || i < atomic_load(proc->go); i++) {
        enum comm_result result = work_chosen->turn(world, i);
        if (result != COMM_OK) {
            proc_tell_failure(page, world, result);
            if (work_recovers)
                recover(page, world);
            await_others(proc);
            break;
        }
        atomic_store(&page->stage, i + 1);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

void work_start(struct proc *proc, struct hosts *h, const struct work *what)
{
    work_chosen = what;
    hosts_place(h, proc);
    proc_start(proc, h->count * h->each, work_go_on);
    for (int32_t r = 0; r < proc->ranks; r++)
        proc_await(proc, r, 50);
}

void work_end_well(struct proc *proc)
{
    int64_t most = 0;
    for (int32_t r = 0; r < proc->ranks; r++)
        most = proc->page[r].stage > most ? proc->page[r].stage : most;
    CHECK(most < WORK_TOLD);
    atomic_store(proc->go, most + 200);
    proc_finish(proc, -1, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < proc->ranks; r++)
        EQUAL(atomic_load(&proc->page[r].stage), most + 200);
}

/* ------------------------------------------------------------------------------------------------------------ reports */
void work_all_told(struct proc *proc, int32_t first, int32_t last, int32_t gone, int32_t gone_last, const char *how, int64_t within)
{
    const struct proc_page *one = &proc->page[first];
    for (int32_t r = first; r < last; r++) {
        const struct proc_page *page = &proc->page[r];
        proc_await(proc, r, WORK_TOLD);
        if (page->result != COMM_ERR_PEER || page->rank < gone || page->rank >= gone_last || !strstr(page->text, how))
            rig_die(__FILE__, __LINE__, "rank %d was told %s of rank %d: %s", r, comm_result_name((enum comm_result)page->result),
                    page->rank, page->text);
        if (page->rank != one->rank || strcmp(page->cause, one->cause) != 0 || strcmp(page->text, one->text) != 0)
            rig_die(__FILE__, __LINE__, "rank %d was told: %s; and rank %d: %s", first, one->text, r, page->text);
        if (page->time - within > 0)
            rig_die(__FILE__, __LINE__, "rank %d was told %lld ms too late: %s", r, (long long)((page->time - within) / RIG_MS),
                    page->text);
    }
}

void work_end_all(struct proc *proc)
{
    for (int32_t r = 0; r < proc->ranks; r++)
        proc_finish(proc, r, RIG_PATIENCE);
}
