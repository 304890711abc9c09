/* Pending peers: port scanners, garbage, thousands that connect and send nothing, and some that send one byte at a time. While ranks meet,
 * they are refused at no cost. When all ranks are connected, nobody listens any more. */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GROWN_KIB = 65536 }; /* sanitizers use memory of their own */
#else
enum { GROWN_KIB = 1024 };
#endif
enum { RANKS = 3, KEPT = 700, PORTS_MAX = 16, ATTEMPTS = 10000 };

/* ------------------------------------------------------------------------------------------------------------ listeners */
static bool is_socket_of(pid_t pid, unsigned long inode)
{
    char path[64], link[320], name[64], want[48];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        snprintf(link, sizeof link, "%s/%s", path, entry->d_name);
        ssize_t n = readlink(link, name, sizeof name - 1);
        name[n < 0 ? 0 : n] = 0;
        found = strcmp(name, want) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

/* The ports on which ranks of proc listen. */
static int ports_of(const struct proc *proc, uint16_t ports[PORTS_MAX])
{
    char line[256];
    int count = 0;
    FILE *table = fopen("/proc/net/tcp", "re");
    CHECK(table != NULL);
    while (fgets(line, sizeof line, table) && count < PORTS_MAX) {
        unsigned port, state;
        unsigned long inode;
        if (sscanf(line, " %*u: %*x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &port, &state, &inode) != 3 || state != 0x0a)
            continue;
        for (int32_t r = 0; r < proc->ranks; r++)
            if (proc->pid[r] > 0 && is_socket_of(proc->pid[r], inode)) {
                ports[count++] = (uint16_t)port;
                break;
            }
    }
    fclose(table);
    return count;
}

/* ------------------------------------------------------------------------------------------------------------ the pending peers */
struct crowd {
    const struct proc *proc;
    pthread_t thread;
    _Atomic int stop;
    _Atomic int64_t connected;
    int kept[KEPT], eldest;
    uint64_t seed;
};

static uint64_t next(struct crowd *c)
{
    c->seed ^= c->seed << 13;
    c->seed ^= c->seed >> 7;
    c->seed ^= c->seed << 17;
    return c->seed;
}

static void keep(struct crowd *c, int fd)
{
    if (c->kept[c->eldest] >= 0)
        close(c->kept[c->eldest]);
    c->kept[c->eldest] = fd;
    c->eldest = (c->eldest + 1) % KEPT;
}

/* Sends another byte on some of the connections. */
static void trickle(struct crowd *c)
{
    char byte = (char)next(c);
    for (int i = 0; i < KEPT; i += 16)
        if (c->kept[i] >= 0)
            (void)!send(c->kept[i], &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void disturb(struct crowd *c, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned char rubbish[400];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    bool there = connect(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS;
    atomic_fetch_add(&c->connected, there);
    for (size_t i = 0; i < sizeof rubbish; i++)
        rubbish[i] = (unsigned char)next(c);
    if (there && next(c) % 4 == 0)
        (void)!send(fd, rubbish, 1 + next(c) % sizeof rubbish, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (there && next(c) % 3)
        keep(c, fd); /* silent, or sends no more */
    else
        close(fd);
}

static void *crowd_main(void *arg)
{
    struct crowd *c = arg;
    uint16_t ports[PORTS_MAX];
    while (!atomic_load(&c->stop)) {
        int count = ports_of(c->proc, ports);
        for (int i = 0; i < 64 * count; i++)
            disturb(c, ports[i % count]);
        trickle(c);
        rig_nap(RIG_MS);
    }
    return NULL;
}

static void crowd_start(struct crowd *c, const struct proc *proc)
{
    c->proc = proc;
    c->seed = 88172645463325252u;
    for (int i = 0; i < KEPT; i++)
        c->kept[i] = -1;
    EQUAL(pthread_create(&c->thread, NULL, crowd_main, c), 0);
}

static void crowd_end(struct crowd *c)
{
    atomic_store(&c->stop, 1);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < KEPT; i++)
        if (c->kept[i] >= 0)
            close(c->kept[i]);
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
static char address[64];

static void enter(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    setenv("COMM_BACKEND", "tcp", 1);
    setenv("COMM_ADDRESS", address, 1);
    setenv("COMM_SECRET", "0123456789abcdef0123456789abcdef", 1); /* without a secret nobody listens at the port */
    setenv("COMM_OPEN_TIMEOUT", "90s", 1);                        /* the crowd takes time on a loaded machine */
}

/* A port that is free at this moment. */
static void choose_address(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && getsockname(fd, (struct sockaddr *)&at, &length) == 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    close(fd);
}

static int64_t resident_kib(void)
{
    char line[128];
    long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %lld", &kib) == 1)
            break;
    fclose(status);
    return kib;
}

/* How many descriptors are open; none of them may listen. */
static int descriptors(void)
{
    int count = 0, listens = 0;
    for (int fd = 0; fd < 4096; fd++) {
        socklen_t length = sizeof listens;
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        count++;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) < 0 || !listens);
    }
    return count;
}

static void sums(struct comm_communicator *world, int count)
{
    struct comm_request request;
    int32_t ranks = comm_size(world);
    for (int i = 0; i < count; i++) {
        int32_t one = i, sum = -1;
        MUST(comm_allreduce(world, &one, &sum, 1, COMM_I32, COMM_SUM, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        EQUAL(sum, i * ranks);
    }
}

/* The last rank comes after the crowd had its time. Then the ranks compute sums while the crowd continues. */
static void live_on(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    int64_t before;
    while (rank == proc->ranks - 1 && atomic_load(&page->number[2]) == 0)
        rig_nap(RIG_MS);
    world = proc_open(proc, rank);
    sums(world, 500);
    page->number[0] = descriptors();
    before = resident_kib();
    for (;;) {
        sums(world, 10);
        atomic_fetch_add(&page->stage, 1);
        int32_t mine = atomic_load(proc->go) != 0, all = 0; /* all ranks stop after the same round */
        struct comm_request request;
        MUST(comm_allreduce(world, &mine, &all, 1, COMM_I32, COMM_MAX, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        if (all)
            break;
    }
    page->number[1] = resident_kib() - before;
    EQUAL(descriptors(), page->number[0]);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void raise_limit(void)
{
    struct rlimit most;
    CHECK(getrlimit(RLIMIT_NOFILE, &most) == 0);
    most.rlim_cur = most.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &most) == 0);
    if (most.rlim_cur < KEPT + 64)
        rig_skip("too few open files are allowed: ulimit -n");
}

RIG_TEST(pending_peers_while_ranks_meet_and_after)
{
    static struct crowd crowd;
    struct proc proc = {.raw = true, .enter = enter};
    raise_limit();
    choose_address();
    proc_start(&proc, RANKS, live_on);
    crowd_start(&crowd, &proc);
    int64_t enough = rig_quick() ? ATTEMPTS / 4 : ATTEMPTS, end = rig_now() + 3 * RIG_PATIENCE;
    for (; atomic_load(&crowd.connected) < enough; rig_nap(RIG_MS))
        CHECK(rig_now() < end);
    atomic_store(&proc.page[RANKS - 1].number[2], 1);
    for (int32_t r = 0; r < RANKS; r++)
        proc_await(&proc, r, 20);
    rig_nap(RIG_S);
    crowd_end(&crowd);
    atomic_store(proc.go, 1);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < RANKS; r++)
        CHECK(proc.page[r].number[1] <= GROWN_KIB);
}

/* Without libcrypto, ranks of loopback have no port while they meet. */
static bool secrets_are_here(void)
{
    struct comm_backend_info info = {.size = sizeof info};

    for (size_t i = 0; comm_describe_backend(i, &info) == COMM_OK; i++)
        if (!strcmp(info.name, "tcp"))
            return !strstr(info.version, "secrets: none");
    return false;
}

int main(void)
{
    if (!secrets_are_here()) {
        printf("skipped: this library was built without OpenSSL 3, so ranks of loopback meet where no stranger comes\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(pending_peers_while_ranks_meet_and_after)};
    return cmocka_run_group_tests_name("net_pending", tests, NULL, NULL);
}
