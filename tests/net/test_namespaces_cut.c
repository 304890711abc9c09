/*
 * What ranks on several hosts, simulated with namespaces, report when a cable is pulled, a host loses power, a process is stopped, or only
 * one direction is lost. The report must distinguish these, and come within the promised time.
 */
#define _GNU_SOURCE
#include "net/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* ------------------------------------------------------------------------------------------------------------ cut off */
/* One case. Several run at once, because they mostly wait. */
struct cut {
    struct hosts h;
    struct proc proc;
    int32_t count, each, host;
    const struct work *what;
    int64_t until;
};

static void judge_cut(struct cut *c)
{
    struct proc *proc = &c->proc;
    int32_t first = c->host * c->each, last = first + c->each, ranks = c->count * c->each;
    rig_note("%d hosts of %d ranks; host %d is cut off from %s", c->count, c->each, c->host, c->what->name);
    if (c->host > 0)
        work_all_told(proc, 0, first, first, last, "cannot be reached", c->until);
    if (last < ranks)
        work_all_told(proc, last, ranks, first, last, "cannot be reached", c->until);
    if (c->host > 0 && last < ranks)
        CHECK(strcmp(proc->page[0].text, proc->page[last].text) == 0);
    for (int32_t r = first; r < last; r++)
        proc_await(proc, r, WORK_TOLD);
    CHECK(strstr(proc->page[first].text, "cannot be reached"));
    CHECK(proc->page[first].time <= c->until);
    work_end_all(proc);
    for (int32_t r = 0; r < ranks; r++)
        EQUAL(proc->page[r].number[0], r >= first && r < last ? c->each : ranks - c->each);
    hosts_close(&c->h);
}

static void pull(struct cut *cuts, int count)
{
    work_recovers = true;
    for (int i = 0; i < count; i++) {
        hosts_open(&cuts[i].h, cuts[i].count, cuts[i].each);
        work_start(&cuts[i].proc, &cuts[i].h, cuts[i].what);
    }
    for (int i = 0; i < count; i++) {
        cuts[i].until = rig_now() + WORK_LINK_TOLD_NS;
        hosts_cable(&cuts[i].h, cuts[i].host, false);
    }
    for (int i = 0; i < count; i++)
        judge_cut(&cuts[i]);
}

RIG_TEST(link_down_between_two_hosts)
{
    static struct cut cuts[WORK_KINDS];
    for (int i = 0; i < WORK_KINDS; i++)
        cuts[i] = (struct cut){.count = 2, .each = 2, .host = i % 2, .what = &work_kinds[i]};
    pull(cuts, WORK_KINDS);
}

RIG_TEST(link_down_of_one_of_four_hosts)
{
    static struct cut cuts[] = {{.count = 4, .each = 1, .host = 0, .what = &work_kinds[0]},
                                {.count = 4, .each = 2, .host = 3, .what = &work_kinds[1]},
                                {.count = 4, .each = 2, .host = 1, .what = &work_kinds[3]}};
    pull(cuts, rig_quick() ? 2 : 3);
}

/* The host's own interface is down, so it has no route any more. */
RIG_TEST(link_down_at_ones_own_end)
{
    struct hosts h;
    struct proc proc = {0};
    hosts_open(&h, 2, 1);
    work_start(&proc, &h, &work_kinds[0]);
    int64_t until = rig_now() + WORK_LINK_TOLD_NS;
    HOSTS_MUST(&h, 1, "ip link set eth0 down");
    work_all_told(&proc, 0, 1, 1, 2, "cannot be reached", until);
    work_all_told(&proc, 1, 2, 0, 1, "cannot be reached", until);
    work_end_all(&proc);
    hosts_close(&h);
}

RIG_TEST(link_down_for_a_moment)
{
    for (int i = 0; i < 3; i++) {
        struct hosts h;
        struct proc proc = {0};
        rig_note("%s", work_kinds[i].name);
        hosts_open(&h, 2, 2);
        work_start(&proc, &h, &work_kinds[i]);
        hosts_cable(&h, 1, false);
        rig_nap(3 * RIG_S / 2);
        hosts_cable(&h, 1, true);
        int64_t stage = atomic_load(&proc.page[0].stage);
        proc_await(&proc, 0, stage + 50);
        work_end_well(&proc);
        hosts_close(&h);
    }
}

/*
 * Rank 1 closes while its link is down, so all that it sends last must be retransmitted. Rank 0 waits for it in the library, or computes.
 */
static void leave_or_stay(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request q;
    char byte = 0;

    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    atomic_store(&proc->page[rank].stage, 1);
    while (!atomic_load(proc->go))
        rig_nap(RIG_MS);
    if (rank == 1) {
        MUST(comm_close(world, 10 * RIG_S));
        return;
    }
    if (atomic_load(proc->go) % 2)
        rig_nap(4 * RIG_S);
    MUST(comm_recv(world, &byte, 1, COMM_U8, 1, 7, NULL, &q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_CLOSED);
    MUST(comm_barrier(world, &q));
    proc_tell_failure(&proc->page[rank], world, comm_wait(q, RIG_PATIENCE));
    (void)comm_close(world, RIG_S);
}

RIG_TEST(closed_while_the_link_is_down_for_a_moment)
{
    static const int64_t down[] = {300 * RIG_MS, 700 * RIG_MS, 1500 * RIG_MS, 2200 * RIG_MS};

    for (int i = 0; i < 4; i++) {
        struct hosts h;
        struct proc proc = {0};
        rig_note("down for %lld ms", (long long)(down[i] / RIG_MS));
        hosts_open(&h, 2, 1);
        hosts_place(&h, &proc);
        proc_start(&proc, 2, leave_or_stay);
        for (int32_t r = 0; r < 2; r++)
            proc_await(&proc, r, 1);
        hosts_cable(&h, 1, false);
        atomic_store(proc.go, 1 + i);
        rig_nap(down[i]);
        hosts_cable(&h, 1, true);
        proc_finish(&proc, -1, 2 * RIG_PATIENCE);
        EQUAL(proc.page[0].result, COMM_ERR_CLOSED);
        EQUAL(proc.page[0].rank, 1);
        hosts_close(&h);
    }
}

RIG_TEST(link_lost_in_one_direction)
{
    static struct cut cuts[2];
    for (int i = 0; i < 2; i++) {
        hosts_open(&cuts[i].h, 2, 2);
        work_start(&cuts[i].proc, &cuts[i].h, &work_kinds[i]);
    }
    for (int i = 0; i < 2; i++) {
        cuts[i].until = rig_now() + WORK_LINK_TOLD_NS;
        hosts_lose(&cuts[i].h, i, !i);
    }
    for (int i = 0; i < 2; i++) {
        rig_note("%s", work_kinds[i].name);
        work_all_told(&cuts[i].proc, 0, 2, 2, 4, "", cuts[i].until);
        work_all_told(&cuts[i].proc, 2, 4, 0, 2, "", cuts[i].until);
        work_end_all(&cuts[i].proc);
        hosts_close(&cuts[i].h);
    }
}

/* ------------------------------------------------------------------------------------------------------------ dead, or stopped */
/* A host that restarts in order ends its connections; one without power sends nothing. */
static void restart(bool power)
{
    struct hosts h;
    struct proc proc = {0};
    rig_note("all processes of a host are killed; %s", power ? "their kernel lives" : "it had lost its power");
    hosts_open(&h, 3, 2);
    work_start(&proc, &h, &work_kinds[0]);
    int64_t until = rig_now() + (power ? WORK_KILLED_TOLD_NS : WORK_LINK_TOLD_NS);
    if (!power)
        hosts_cable(&h, 1, false);
    kill(proc.pid[2], SIGKILL);
    kill(proc.pid[3], SIGKILL);
    for (int32_t r = 2; r < 4; r++) { /* proc_await would treat their end as a failure */
        CHECK(waitpid(proc.pid[r], NULL, 0) == proc.pid[r]);
        proc.pid[r] = 0;
    }
    work_all_told(&proc, 0, 2, 2, 4, power ? "died" : "cannot be reached", until);
    work_all_told(&proc, 4, 6, 2, 4, power ? "died" : "cannot be reached", until);
    CHECK(strcmp(proc.page[0].text, proc.page[4].text) == 0);
    proc_finish(&proc, -1, RIG_PATIENCE);
    hosts_close(&h);
}

RIG_TEST(host_restarts)
{
    restart(true);
    restart(false);
}

/* A stopped process's kernel still acknowledges, so the longer time-out applies. First it resumes in time. */
RIG_TEST(stopped_is_not_cut_off)
{
    struct hosts h;
    struct proc proc = {.options = "peer_timeout=8s"};
    hosts_open(&h, 2, 1);
    work_start(&proc, &h, &work_kinds[1]);
    kill(proc.pid[1], SIGSTOP);
    rig_nap(11 * RIG_S / 2);
    CHECK(proc.page[0].stage < WORK_TOLD);
    kill(proc.pid[1], SIGCONT);
    int64_t stage = atomic_load(&proc.page[1].stage);
    proc_await(&proc, 1, stage + 20);
    int64_t since = rig_now();
    kill(proc.pid[1], SIGSTOP);
    proc_await(&proc, 0, WORK_TOLD);
    work_all_told(&proc, 0, 1, 1, 2, "is stopped", since + 10 * RIG_S);
    CHECK(proc.page[0].time - since > 7 * RIG_S);
    kill(proc.pid[1], SIGKILL);
    proc_finish(&proc, 1, RIG_PATIENCE);
    hosts_close(&h);
}

/* With an argument (a name or a pattern), runs only the tests that match. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_down_between_two_hosts),
        cmocka_unit_test(link_down_of_one_of_four_hosts),
        cmocka_unit_test(link_down_at_ones_own_end),
        cmocka_unit_test(link_down_for_a_moment),
        cmocka_unit_test(closed_while_the_link_is_down_for_a_moment),
        cmocka_unit_test(link_lost_in_one_direction),
        cmocka_unit_test(host_restarts),
        cmocka_unit_test(stopped_is_not_cut_off),
    };

    return cmocka_run_group_tests_name("net_namespaces_cut", tests, NULL, NULL);
}
