/*
 * Ranks on several hosts, simulated with namespaces: how they meet, that their results have the same bits as in one process, that a secret
 * protects the world, and that slow and lossy links work.
 */
#define _GNU_SOURCE
#include "net/work.h"
#include "proc/bits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

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
    work_chosen = &work_kinds[0];
    proc.place = &h;
    proc.enter = enter_unnamed;
    proc_start(&proc, 2, work_go_on);
    rig_nap(RIG_S);
    CHECK(proc.page[1].stage == 0);
    EQUAL(write(file, line, sizeof line - 1), sizeof line - 1);
    proc_await(&proc, 1, 50);
    work_end_well(&proc);
    hosts_close(&h);
    close(file);
    CHECK(unlink(path) == 0);
}

/* Plugs host 1 in again, after another interface, so that its eth0 has another number than those of the others. */
static void renumber(const struct hosts *h)
{
    HOSTS_MUST(h, 1, "ip link del eth0");
    HOSTS_MUST(h, 1, "ip link add extra type bridge");
    HOSTS_MUST(h, -1, "ip link add port1 type veth peer name eth0 netns %ld", (long)h->holder[1]);
    HOSTS_MUST(h, -1, "ip link set port1 master switch up");
    HOSTS_MUST(h, 1, "ip link set eth0 up");
}

/* The hosts have no addresses but those of their link, which are valid together with an interface alone. */
RIG_TEST(hosts_with_addresses_of_their_link)
{
    struct hosts h;
    struct proc proc = {0};
    hosts_open(&h, 3, 1);
    renumber(&h);
    for (int32_t i = 0; i < h.count; i++)
        HOSTS_MUST(&h, i, "ip -6 addr add fe80::%d/64 dev eth0 nodad", i + 1);
    h.name = "[fe80::1%eth0]";
    work_start(&proc, &h, &work_kinds[0]);
    work_end_well(&proc);
    hosts_close(&h);
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
    work_chosen = &work_kinds[ranks % 2]; /* large sums on two hosts */
    proc_start(&proc, ranks, work_go_on);
    for (int32_t r = 0; r < ranks; r++)
        proc_await(&proc, r, 50);
    work_end_well(&proc);
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
    work_start(&proc, &h, &work_kinds[0]);
    work_end_well(&proc);
    proc = (struct proc){0};
    work_start(&proc, &h, &work_kinds[2]);
    work_end_well(&proc);
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
        cmocka_unit_test(hosts_with_addresses_of_their_link),
        cmocka_unit_test(hosts_with_a_secret),
        cmocka_unit_test(links_that_are_slow),
        cmocka_unit_test(links_that_delay_and_lose),
    };

    return cmocka_run_group_tests_name("net_namespaces", tests, NULL, NULL);
}
