/*
 * Ranks on several hosts, simulated with namespaces: how they meet, that their results have the same bits as in one process, and what they
 * report when a cable is pulled, a host loses power, a process is stopped, or only one direction is lost. The report must distinguish
 * these, and come within the promised time.
 */
#define _GNU_SOURCE
#include "net/hosts.h"
#include "proc/bits.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 300000 };
#define TOLD (INT64_C(1) << 40) /* the stage of a rank that has reported a failure */
#define LINK_TOLD (5 * RIG_S)
#define KILLED_TOLD RIG_S

/* ------------------------------------------------------------------------------------------------------------ what the ranks do */
static float in[LENGTH], out[LENGTH];

static enum comm_result sum(struct comm_communicator *world, int64_t i, size_t n)
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
    return sum(world, i, 5);
}

static enum comm_result sum_large(struct comm_communicator *world, int64_t i)
{
    return sum(world, i, LENGTH);
}

/* Messages around the ring, which uses every cable. */
static enum comm_result pass_on(struct comm_communicator *world, int64_t i)
{
    struct comm_request request[2];
    int32_t ranks = comm_size(world), rank = comm_rank(world);
    in[0] = (float)(rank + i % 1000);
    enum comm_result result = comm_recv(world, out, LENGTH, COMM_F32, (rank + ranks - 1) % ranks, 3, NULL, &request[0]);
    if (result == COMM_OK)
        result = comm_send(world, in, LENGTH, COMM_F32, (rank + 1) % ranks, 3, &request[1]);
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

struct work {
    const char *name;
    enum comm_result (*turn)(struct comm_communicator *world, int64_t i);
};
static const struct work works[] = {
    {"small sums", sum_small}, {"large sums", sum_large}, {"messages", pass_on}, {"a wait for the last", wait_for_the_last}};
enum { WORKS = sizeof works / sizeof works[0] };
static const struct work *work; /* of this case; ranks are forked after it is chosen */

/* Ranks that were told of the failure continue with those that they can still reach. number[0]: how many those are. */
static bool recovers;

static void recover(struct proc_page *page, struct comm_communicator *world)
{
    struct comm_communicator *next = NULL;
    MUST(NOW(comm_shrink, world, &next));
    page->number[0] = comm_size(next);
    for (int64_t i = 0; i < 10; i++)
        MUST(sum(next, i, i % 2 ? LENGTH : 5));
    MUST(comm_close(next, RIG_PATIENCE));
}

/* Both sides of a cut give each other up independently, at about the same time. If the cut is in one direction only, a side that closed at
 * once would tell the other before that one has detected it. */
static void await_others(const struct proc *proc)
{
    for (int turn = 0; turn < 100; turn++) {
        bool all = true;
        for (int32_t r = 0; r < proc->ranks; r++)
            all &= atomic_load(&proc->page[r].stage) >= TOLD;
        if (all)
            return;
        rig_nap(10 * RIG_MS);
    }
}

/* Runs until *go has the number of turns, or until something fails. */
static void go_on(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    for (int64_t i = 0; atomic_load(proc->go) == 0 || i < atomic_load(proc->go); i++) {
        enum comm_result result = work->turn(world, i);
        if (result != COMM_OK) {
            proc_tell_failure(page, world, result);
            if (recovers)
                recover(page, world);
            await_others(proc);
            break;
        }
        atomic_store(&page->stage, i + 1);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

static void start(struct proc *proc, struct hosts *h, const struct work *what)
{
    work = what;
    hosts_place(h, proc);
    proc_start(proc, h->count * h->each, go_on);
    for (int32_t r = 0; r < proc->ranks; r++)
        proc_await(proc, r, 50);
}

/* All ranks end after the same number of turns, in the future. */
static void end_well(struct proc *proc)
{
    int64_t most = 0;
    for (int32_t r = 0; r < proc->ranks; r++)
        most = proc->page[r].stage > most ? proc->page[r].stage : most;
    CHECK(most < TOLD);
    atomic_store(proc->go, most + 200);
    proc_finish(proc, -1, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < proc->ranks; r++)
        EQUAL(atomic_load(&proc->page[r].stage), most + 200);
}

/* ------------------------------------------------------------------------------------------------------------ reports */
/* All ranks of [first, last) must report the same: that a rank of [gone, gone_last) is gone, and in which way. */
static void all_told(struct proc *proc, int32_t first, int32_t last, int32_t gone, int32_t gone_last, const char *how, int64_t within)
{
    const struct proc_page *one = &proc->page[first];
    for (int32_t r = first; r < last; r++) {
        const struct proc_page *page = &proc->page[r];
        proc_await(proc, r, TOLD);
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

static void end_all(struct proc *proc)
{
    for (int32_t r = 0; r < proc->ranks; r++)
        proc_finish(proc, r, RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ meeting */
/* Runs the ranks of one case. In the end the parent compares their results with those of one process. */
static void run_bits(struct proc *proc, int32_t count, int32_t each, int family)
{
    struct hosts h;
    rig_note("%d hosts of %d ranks, IPv%d", count, each, family == AF_INET6 ? 6 : 4);
    hosts_open(&h, count, each);
    h.family = family;
    hosts_place(&h, proc);
    proc_start(proc, count * each, bits_run);
    proc_finish(proc, -1, 3 * RIG_PATIENCE);
    hosts_close(&h);
}

RIG_TEST(hosts_have_the_bits_of_one_process)
{
    static struct proc proc[3];
    run_bits(&proc[0], 2, 2, AF_INET);
    run_bits(&proc[1], 2, 1, AF_INET6);
    run_bits(&proc[2], 4, 2, AF_INET);
    for (int i = 0; i < 3; i++)
        bits_compare(&proc[i]);
}

/* Each rank has its own file of host names, and the name appears in it only after a second. */
static void enter_unnamed(struct proc *proc, int32_t rank)
{
    struct hosts *h = proc->place;
    struct hosts placed = *h;
    CHECK(unshare(CLONE_NEWNS) == 0);
    CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount(h->name, "/etc/hosts", NULL, MS_BIND, NULL) == 0);
    placed.name = "node0.job";
    struct proc other = {.place = &placed};
    hosts_place(&placed, &other);
    other.enter(&other, rank);
}

RIG_TEST(hosts_names_resolve_late)
{
    struct hosts h;
    struct proc proc = {0};
    char path[] = "/tmp/comm-hosts-XXXXXX";
    static const char line[] = "10.77.0.1 node0.job\n";
    int file = mkstemp(path);
    CHECK(file >= 0 && fchmod(file, 0644) == 0);
    hosts_open(&h, 2, 1);
    h.name = path;
    work = &works[0];
    proc.place = &h;
    proc.enter = enter_unnamed;
    proc_start(&proc, 2, go_on);
    rig_nap(RIG_S);
    CHECK(proc.page[1].stage == 0);
    EQUAL(write(file, line, sizeof line - 1), sizeof line - 1);
    proc_await(&proc, 1, 50);
    end_well(&proc);
    hosts_close(&h);
    close(file);
    CHECK(unlink(path) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ a secret */
static const char *const ours = "4f1d2c3b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0aa";
static const char *const theirs = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
static char secret_file[] = "/tmp/comm-secret-XXXXXX";

struct guard {
    struct hosts h;
    bool by_file, sealed;
    const char *secret[HOSTS_MAX]; /* of each host; NULL: none */
};

static void enter_guarded(struct proc *proc, int32_t rank)
{
    struct guard *g = proc->place;
    struct proc placed = {.place = NULL};
    hosts_place(&g->h, &placed);
    placed.enter(&placed, rank);
    unsetenv("COMM_TCP_INSECURE");
    if (g->sealed)
        setenv("COMM_TCP_SEAL", "yes", 1);
    if (g->by_file)
        setenv("COMM_SECRET_FILE", secret_file, 1);
    else if (g->secret[rank / g->h.each])
        setenv("COMM_SECRET", g->secret[rank / g->h.each], 1);
}

/* The world must open and work. */
static void run_guarded(struct guard *g, int32_t ranks)
{
    struct proc proc = {.place = g, .enter = enter_guarded};
    work = &works[ranks % 2]; /* large sums on two hosts */
    proc_start(&proc, ranks, go_on);
    for (int32_t r = 0; r < ranks; r++)
        proc_await(&proc, r, 50);
    end_well(&proc);
}

/* Stores each rank's error on its page, and checks that it does not listen. */
static void be_refused(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char line[256];
    struct proc_page *page = &proc->page[rank];
    page->result =
        comm_open(COMM_CONFIG(.error_text = page->text, .error_text_bytes = sizeof page->text, .open_timeout_ns = RIG_S), &world);
    FILE *table = fopen("/proc/self/net/tcp", "re");
    CHECK(table != NULL);
    while (fgets(line, sizeof line, table))
        CHECK(!strstr(line, " 00000000:0000 0A "));
    fclose(table);
}

static void refused(struct guard *g, int32_t rank, enum comm_result result, const char *how)
{
    struct proc proc = {.place = g, .enter = enter_guarded, .raw = true};
    proc_start(&proc, 2, be_refused);
    proc_finish(&proc, -1, RIG_PATIENCE);
    const struct proc_page *page = &proc.page[rank];
    if (page->result != result || !strstr(page->text, how))
        rig_die(__FILE__, __LINE__, "rank %d was told %s: %s; expected %s", rank, comm_result_name((enum comm_result)page->result),
                page->text, how);
    for (int32_t r = 0; r < 2; r++)
        CHECK(proc.page[r].result != COMM_OK && !strstr(proc.page[r].text, ours) && !strstr(proc.page[r].text, theirs));
}

RIG_TEST(hosts_with_a_secret)
{
    static struct guard g;
    int file = mkstemp(secret_file); /* mode 600 */
    CHECK(file >= 0 && write(file, ours, strlen(ours)) == (ssize_t)strlen(ours));
    hosts_open(&g.h, 3, 1);
    g.h.guarded = true;
    for (int sealed = 0; sealed < 2; sealed++) {
        g.sealed = sealed;
        for (int i = 0; i < 3; i++)
            g.secret[i] = ours;
        g.by_file = true;
        rig_note("two hosts, a file, sealed %d", sealed);
        run_guarded(&g, 2);
        g.by_file = false;
        rig_note("three hosts, a variable, sealed %d", sealed);
        run_guarded(&g, 3);
    }
    g.sealed = false;
    g.secret[1] = theirs;
    refused(&g, 1, COMM_ERR_AUTH, "another secret");
    g.secret[1] = NULL;
    refused(&g, 1, COMM_ERR_CONFIG, "`comm-info --new-secret`");
    g.secret[0] = NULL;
    refused(&g, 0, COMM_ERR_CONFIG, "`comm-info --new-secret`");
    g.sealed = true;
    refused(&g, 0, COMM_ERR_CONFIG, "`comm-info --new-secret`");
    hosts_close(&g.h);
    close(file);
    CHECK(unlink(secret_file) == 0);
}

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
        all_told(proc, 0, first, first, last, "cannot be reached", c->until);
    if (last < ranks)
        all_told(proc, last, ranks, first, last, "cannot be reached", c->until);
    if (c->host > 0 && last < ranks)
        CHECK(strcmp(proc->page[0].text, proc->page[last].text) == 0);
    for (int32_t r = first; r < last; r++)
        proc_await(proc, r, TOLD);
    CHECK(strstr(proc->page[first].text, "cannot be reached"));
    CHECK(proc->page[first].time <= c->until);
    end_all(proc);
    for (int32_t r = 0; r < ranks; r++)
        EQUAL(proc->page[r].number[0], r >= first && r < last ? c->each : ranks - c->each);
    hosts_close(&c->h);
}

static void pull(struct cut *cuts, int count)
{
    recovers = true;
    for (int i = 0; i < count; i++) {
        hosts_open(&cuts[i].h, cuts[i].count, cuts[i].each);
        start(&cuts[i].proc, &cuts[i].h, cuts[i].what);
    }
    for (int i = 0; i < count; i++) {
        cuts[i].until = rig_now() + LINK_TOLD;
        hosts_cable(&cuts[i].h, cuts[i].host, false);
    }
    for (int i = 0; i < count; i++)
        judge_cut(&cuts[i]);
}

RIG_TEST(link_down_between_two_hosts)
{
    static struct cut cuts[WORKS];
    for (int i = 0; i < WORKS; i++)
        cuts[i] = (struct cut){.count = 2, .each = 2, .host = i % 2, .what = &works[i]};
    pull(cuts, WORKS);
}

RIG_TEST(link_down_of_one_of_four_hosts)
{
    static struct cut cuts[] = {{.count = 4, .each = 1, .host = 0, .what = &works[0]},
                                {.count = 4, .each = 2, .host = 3, .what = &works[1]},
                                {.count = 4, .each = 2, .host = 1, .what = &works[3]}};
    pull(cuts, rig_quick() ? 2 : 3);
}

/* The host's own interface is down, so it has no route any more. */
RIG_TEST(link_down_at_ones_own_end)
{
    struct hosts h;
    struct proc proc = {0};
    hosts_open(&h, 2, 1);
    start(&proc, &h, &works[0]);
    int64_t until = rig_now() + LINK_TOLD;
    HOSTS_MUST(&h, 1, "ip link set eth0 down");
    all_told(&proc, 0, 1, 1, 2, "cannot be reached", until);
    all_told(&proc, 1, 2, 0, 1, "cannot be reached", until);
    end_all(&proc);
    hosts_close(&h);
}

RIG_TEST(link_down_for_a_moment)
{
    for (int i = 0; i < 3; i++) {
        struct hosts h;
        struct proc proc = {0};
        rig_note("%s", works[i].name);
        hosts_open(&h, 2, 2);
        start(&proc, &h, &works[i]);
        hosts_cable(&h, 1, false);
        rig_nap(3 * RIG_S / 2);
        hosts_cable(&h, 1, true);
        int64_t stage = atomic_load(&proc.page[0].stage);
        proc_await(&proc, 0, stage + 50);
        end_well(&proc);
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
        start(&cuts[i].proc, &cuts[i].h, &works[i]);
    }
    for (int i = 0; i < 2; i++) {
        cuts[i].until = rig_now() + LINK_TOLD;
        hosts_lose(&cuts[i].h, i, !i);
    }
    for (int i = 0; i < 2; i++) {
        rig_note("%s", works[i].name);
        all_told(&cuts[i].proc, 0, 2, 2, 4, "", cuts[i].until);
        all_told(&cuts[i].proc, 2, 4, 0, 2, "", cuts[i].until);
        end_all(&cuts[i].proc);
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
    start(&proc, &h, &works[0]);
    int64_t until = rig_now() + (power ? KILLED_TOLD : LINK_TOLD);
    if (!power)
        hosts_cable(&h, 1, false);
    kill(proc.pid[2], SIGKILL);
    kill(proc.pid[3], SIGKILL);
    for (int32_t r = 2; r < 4; r++) { /* proc_await would treat their end as a failure */
        CHECK(waitpid(proc.pid[r], NULL, 0) == proc.pid[r]);
        proc.pid[r] = 0;
    }
    all_told(&proc, 0, 2, 2, 4, power ? "died" : "cannot be reached", until);
    all_told(&proc, 4, 6, 2, 4, power ? "died" : "cannot be reached", until);
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
    start(&proc, &h, &works[1]);
    kill(proc.pid[1], SIGSTOP);
    rig_nap(11 * RIG_S / 2);
    CHECK(proc.page[0].stage < TOLD);
    kill(proc.pid[1], SIGCONT);
    int64_t stage = atomic_load(&proc.page[1].stage);
    proc_await(&proc, 1, stage + 20);
    int64_t since = rig_now();
    kill(proc.pid[1], SIGSTOP);
    proc_await(&proc, 0, TOLD);
    all_told(&proc, 0, 1, 1, 2, "is stopped", since + 10 * RIG_S);
    CHECK(proc.page[0].time - since > 7 * RIG_S);
    kill(proc.pid[1], SIGKILL);
    proc_finish(&proc, 1, RIG_PATIENCE);
    hosts_close(&h);
}

/* ------------------------------------------------------------------------------------------------------------ bad links */
static void bad_link(const char *how)
{
    struct hosts h;
    struct proc proc = {0};
    rig_note("tc qdisc add dev eth0 root %s", how);
    hosts_open(&h, 2, 2);
    int status = hosts_run(&h, 0, "tc qdisc add dev eth0 root %s", how);
    if (status == 127)
        rig_skip("iproute2's program tc is not installed");
    if (status)
        rig_skip(hosts_said());
    HOSTS_MUST(&h, 1, "tc qdisc add dev eth0 root %s", how);
    start(&proc, &h, &works[0]);
    end_well(&proc);
    proc = (struct proc){0};
    start(&proc, &h, &works[2]);
    end_well(&proc);
    hosts_close(&h);
}

RIG_TEST(links_that_are_slow)
{
    bad_link("tbf rate 200mbit burst 64kb latency 20ms");
}

RIG_TEST(links_that_delay_and_lose)
{
    bad_link("netem delay 2ms 1ms loss 1%");
}

/* With an argument (a name or a pattern), runs only the tests that match. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_have_the_bits_of_one_process),
        cmocka_unit_test(hosts_names_resolve_late),
        cmocka_unit_test(hosts_with_a_secret),
        cmocka_unit_test(link_down_between_two_hosts),
        cmocka_unit_test(link_down_of_one_of_four_hosts),
        cmocka_unit_test(link_down_at_ones_own_end),
        cmocka_unit_test(link_down_for_a_moment),
        cmocka_unit_test(closed_while_the_link_is_down_for_a_moment),
        cmocka_unit_test(link_lost_in_one_direction),
        cmocka_unit_test(host_restarts),
        cmocka_unit_test(stopped_is_not_cut_off),
        cmocka_unit_test(links_that_are_slow),
        cmocka_unit_test(links_that_delay_and_lose),
    };
    return cmocka_run_group_tests_name("net_namespaces", tests, NULL, NULL);
}
