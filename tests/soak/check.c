/*
 * What is checked when a run is over: how its processes ended, that the survivors reported the right rank with one cause and in time, that
 * those that recovered agree on it, and that nothing was left behind.
 */
#define _GNU_SOURCE
#include "soak/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* The contract allows 1 s. The limit is lower, so that a check once per second cannot pass for a notice. */
#define TOLD_WITHIN (RIG_S * 4 / 5)

const struct soak_fault *soak_fault_of(const struct soak_run *run, int32_t rank)
{
    for (int32_t i = 0; i < run->program->fault_count && run->strikes; i++)
        if (run->program->fault[i].victim == rank)
            return &run->program->fault[i];
    return NULL;
}

static bool is_victim(const struct soak_run *run, int32_t rank)
{
    return soak_fault_of(run, rank) != NULL;
}

static bool was_told(const struct proc_page *page)
{
    return atomic_load(&page->stage) >> 40;
}

/* How long all survivors together had no CPU. */
static int64_t starved_ns(const struct soak_run *run)
{
    int64_t all = run->stood;
    for (int32_t r = 0; r < run->program->ranks; r++)
        all += run->proc.page[r].number[SAYS_DELAY];
    return all;
}

static void check_ends(struct soak_run *run)
{
    for (int32_t i = 0; i < run->processes; i++) {
        int status = run->status[i];
        const struct soak_fault *f = soak_fault_of(run, i);
        bool dies = f && f->kind <= FAULT_ABORT, turns = f && f->kind == FAULT_HOSTILE;
        if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || dies || turns)
            continue;
        if (WIFSIGNALED(status))
            soak_end_with(run, SOAK_CRASH, "rank %d ended by signal %d", i, WTERMSIG(status));
        soak_end_with(run, SOAK_WRONG_RESULT, "rank %d ended with %d", i, WEXITSTATUS(status));
    }
}

bool soak_has_died(const struct soak_run *run, int32_t rank)
{
    const struct soak_fault *f = soak_fault_of(run, rank);
    return f && f->kind <= FAULT_ABORT && !run->proc.page[rank].number[SAYS_OVER];
}

static int64_t first_death(const struct soak_run *run)
{
    int64_t first = SOAK_NEVER;
    for (int32_t r = 0; r < run->processes; r++)
        if (soak_has_died(run, r) && run->ended[r] < first)
            first = run->ended[r];
    return first;
}

/* While the world opens, others report a death, or a rank that does not come. */
static void check_opening(struct soak_run *run, int32_t r)
{
    const struct proc_page *page = &run->proc.page[r];
    char name[32];
    bool named = false;

    atomic_store(&run->outcome->in_opening, 1);
    for (int32_t v = 0; v < run->processes; v++) {
        snprintf(name, sizeof name, "%d", v);
        named |= (soak_has_died(run, v) || run->proc.page[v].number[SAYS_OPENING]) && strstr(page->text, name);
    }
    bool right = named && (page->result == COMM_ERR_PEER || page->result == COMM_ERR_TIMEOUT);
    if (page->result == COMM_ERR_TIMEOUT && starved_ns(run) > RIG_S / 2) {
        atomic_store(&run->outcome->starved, 1);
        return;
    }
    if (!right)
        soak_end_with(run, SOAK_WRONG_CAUSE, "rank %d could not open: %s: %s", r, comm_result_name((enum comm_result)page->result),
                      page->text);
    int64_t limit = (page->result == COMM_ERR_TIMEOUT ? 2 * RIG_S : 0) + RIG_S, took = page->time - first_death(run);
    if (took > limit + starved_ns(run))
        soak_end_with(run, SOAK_LATE, "rank %d was told after %lld ms while the world opened", r, (long long)(took / RIG_MS));
}

static bool is_right(const struct soak_run *run, const struct proc_page *page)
{
    const struct soak_fault *f = &run->program->fault[0];
    bool of_victim = page->rank >= 0 && page->rank < run->program->ranks &&
                     (f->kind == FAULT_COMM_ABORT || f->kind == FAULT_STOP ? page->rank == f->victim : soak_has_died(run, page->rank));
    if (f->kind == FAULT_PAUSE)
        return false;
    return of_victim && page->result == (f->kind == FAULT_COMM_ABORT ? COMM_ERR_ABORTED : COMM_ERR_PEER);
}

static void check_time(struct soak_run *run, int32_t r)
{
    const struct soak_fault *f = &run->program->fault[0];
    int64_t since = f->kind == FAULT_STOP ? run->stopped : first_death(run);
    int64_t limit = f->kind == FAULT_STOP ? 4 * RIG_S : TOLD_WITHIN;
    int64_t took = run->proc.page[r].time - since;

    if (since == SOAK_NEVER || f->kind == FAULT_COMM_ABORT || r == f->victim)
        return;
    if (f->kind != FAULT_STOP && took > atomic_load(&run->outcome->slowest_ns))
        atomic_store(&run->outcome->slowest_ns, took);
    if (took > limit + starved_ns(run))
        soak_end_with(run, SOAK_LATE, "rank %d was told after %lld ms, of which it had no CPU for %lld", r, (long long)(took / RIG_MS),
                      (long long)(starved_ns(run) / RIG_MS));
    if (took > limit)
        atomic_store(&run->outcome->starved, 1);
}

/* The rank was given up while it was stopped. It knows that for certain, but not always which call of the others failed: it may have been
 * in an agree, or the others may have closed before it could hear of their call. */
static bool was_given_up(const struct soak_run *run, int32_t r)
{
    return run->program->fault[0].kind == FAULT_STOP && is_victim(run, r);
}

static void check_causes(struct soak_run *run)
{
    const struct proc_page *other = NULL;
    const struct soak_fault *f = &run->program->fault[0];

    for (int32_t r = 0; r < run->program->ranks; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (soak_has_died(run, r) || (run->program->local && soak_has_died(run, 0)))
            continue;
        if (page->number[SAYS_OPENING]) {
            check_opening(run, r);
            continue;
        }
        if (!was_told(page)) {
            if (!page->number[SAYS_DONE])
                soak_end_with(run, SOAK_WRONG_RESULT, "rank %d was told nothing and did not come to its end", r);
            continue;
        }
        if (f->kind == FAULT_STOP && starved_ns(run) > RIG_S / 2) { /* other ranks may have been considered stopped */
            atomic_store(&run->outcome->starved, 1);
            return;
        }
        if (!is_right(run, page))
            soak_end_with(run, SOAK_WRONG_CAUSE, "rank %d", r);
        atomic_fetch_add(&run->outcome->told, 1);
        if (was_given_up(run, r))
            continue;
        if (other && (other->rank != page->rank || other->sequence != page->sequence || strcmp(other->cause, page->cause) != 0 ||
                      strcmp(other->operation, page->operation) != 0))
            soak_end_with(run, SOAK_WRONG_CAUSE, "rank %d was told another one", r);
        other = page;
        check_time(run, r);
    }
}

/* With a hostile rank: each other rank ends by itself, with a valid result, and with a text if it is an error. */
static void check_hostile(struct soak_run *run)
{
    for (int32_t r = 0; r < run->processes; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (is_victim(run, r))
            continue;
        atomic_fetch_add(&run->outcome->told, was_told(page) || page->number[SAYS_OPENING]);
        if (page->result != COMM_OK && (page->result > 0 || !page->text[0]))
            soak_end_with(run, SOAK_WRONG_CAUSE, "rank %d ended with %s and no text", r, comm_result_name((enum comm_result)page->result));
    }
}

/* All ranks that recovered have the same communicator, with all of them as members. */
static void check_recovered(struct soak_run *run)
{
    int64_t members = 0, who = 0, first = -1;

    for (int32_t r = 0; r < run->processes; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (page->number[SAYS_DONE] != 2 || soak_has_died(run, r) || run->program->hostile)
            continue;
        who |= INT64_C(1) << r;
        members = page->number[SAYS_MEMBERS];
        if (first >= 0 && members != run->proc.page[first].number[SAYS_MEMBERS])
            soak_end_with(run, SOAK_WRONG_RESULT, "rank %d went on with members %llx, rank %lld with %llx", r, (long long)members,
                          (long long)first, (long long)run->proc.page[first].number[SAYS_MEMBERS]);
        first = r;
        atomic_fetch_add(&run->outcome->recovered, 1);
    }
    for (int32_t r = 0; r < run->processes && first >= 0; r++)
        if ((who >> r & 1) != (members >> r & 1) && !soak_has_died(run, r))
            soak_end_with(run, SOAK_WRONG_RESULT, "rank %d %s a member of what the others went on with: %llx", r,
                          members >> r & 1 ? "is" : "is not", (long long)members);
}

static void check_leftovers(struct soak_run *run)
{
    int status;

    for (int32_t r = 0; r < run->processes; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (page->number[SAYS_OVER] && page->number[SAYS_LEFT] && !(is_victim(run, r) && run->program->hostile))
            soak_end_with(run, SOAK_LEFTOVER, "rank %d kept %lld descriptors, threads or mappings", r, (long long)page->number[SAYS_LEFT]);
    }
    if (run->orphans || waitpid(-1, &status, WNOHANG) >= 0 || errno != ECHILD)
        soak_end_with(run, SOAK_LEFTOVER, "a process that no rank is");
    if (proc_lines("/proc/net/unix", run->proc.job))
        soak_end_with(run, SOAK_LEFTOVER, "a socket of this job in /proc/net/unix");
    if (proc_entries("/dev/shm", run->proc.job) || proc_entries("/tmp", run->proc.job))
        soak_end_with(run, SOAK_LEFTOVER, "a file of this job in /dev/shm or /tmp");
}

void soak_check(struct soak_run *run)
{
    check_ends(run);
    if (run->program->hostile)
        check_hostile(run);
    else
        check_causes(run);
    check_recovered(run);
    check_leftovers(run);
}
