/*
 * Links that are made when they are needed: a world opens with few of them, and nothing that is promised of failure, closing and
 * strangers is less for that. Ranks are processes.
 */
#define _GNU_SOURCE
#include "net/crypto.h"
#include "net/handshake.h"
#include "net/secret.h"
#include "proc/proc.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 24, FAR = RANKS / 2, FILES = 1024 };
enum { STEPS = 4 /* 1, 2, 4, 16 */, BASE = 2 * STEPS * 3 /* sockets */, ALL = BASE + 2 * (RANKS - 1 - 2 * STEPS) };
#define TOLD_NS RIG_S

static void needed(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    setenv("COMM_BACKEND", "tcp", 1);
    setenv("COMM_TCP_LINKS", "needed", 1);
}

/* ------------------------------------------------------------------------------------------------------------ what is open */
static int connected(void)
{
    int count = 0;
    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_storage other;
        socklen_t length = sizeof other;
        count += getpeername(fd, (struct sockaddr *)&other, &length) == 0 && other.ss_family == AF_INET;
    }
    return count;
}

/* The port on which this rank listens; 0: it does not. */
static int port_here(void)
{
    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_in at;
        int listens = 0;
        socklen_t bytes = sizeof listens, length = sizeof at;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0 || !listens)
            continue;
        CHECK(getsockname(fd, (struct sockaddr *)&at, &length) == 0);
        CHECK(at.sin_addr.s_addr == htonl(INADDR_LOOPBACK)); /* one address, never all */
        return ntohs(at.sin_port);
    }
    return 0;
}

/* A link's second connection may come a little after the message that the first one carried. */
static void await_connected(int want)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; connected() != want && rig_now() < end; rig_nap(RIG_MS))
        ;
    EQUAL(connected(), want);
}

/* Each epoll that watches a connection costs every segment that comes on it: the poller's and the one that hears of ends do, no other,
 * however the connection was made. */
static void check_watchers(void)
{
    int watchers[FILES] = {0}, watched = 0;
    for (int fd = 0; fd < FILES; fd++) {
        char path[64], line[128];
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        FILE *info = fopen(path, "re");
        while (info && fgets(line, sizeof line, info))
            if (sscanf(line, "tfd: %d", &watched) == 1 && watched >= 0 && watched < FILES)
                watchers[watched]++;
        if (info)
            fclose(info);
    }
    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_storage other;
        socklen_t length = sizeof other;
        if (getpeername(fd, (struct sockaddr *)&other, &length) == 0 && other.ss_family == AF_INET)
            CHECK(watchers[fd] <= 2);
    }
}

/* ------------------------------------------------------------------------------------------------------------ calls */
static void sum(struct comm_communicator *c)
{
    struct comm_request request;
    int32_t one = 1, all = -1;
    MUST(comm_allreduce(c, &one, &all, 1, COMM_I32, COMM_SUM, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    EQUAL(all, comm_size(c));
}

/* Both send first, at the same time. */
static void exchange(struct comm_communicator *c, int32_t peer)
{
    struct comm_request request[2];
    int32_t out = 1000 + comm_rank(c), in = -1;
    MUST(comm_send(c, &out, 1, COMM_I32, peer, 7, &request[0]));
    MUST(comm_recv(c, &in, 1, COMM_I32, peer, 7, NULL, &request[1]));
    rig_wait_all(request, 2);
    EQUAL(in, 1000 + peer);
}

static int32_t far_from(int32_t rank, int32_t ranks)
{
    return (rank + ranks / 2) % ranks;
}

/* ------------------------------------------------------------------------------------------------------------ few links */
enum { PHASES = 5 };

/* All ranks are here before one goes on. */
static void phase(struct proc *proc, int32_t rank, int64_t number)
{
    atomic_store(&proc->page[rank].stage, number);
    while (atomic_load(proc->go) < number)
        rig_nap(RIG_MS);
}

static void all_of_them(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    int32_t in[RANKS], out[RANKS];
    struct comm_request request;
    EQUAL(connected(), BASE);
    CHECK(port_here());
    phase(proc, rank, 1);
    exchange(world, far_from(rank, RANKS));
    await_connected(BASE + 2);
    phase(proc, rank, 2);
    sum(world);
    phase(proc, rank, 3);
    CHECK(connected() <= BASE + 2 + 2 * 5); /* log2 p partners at most are new */
    phase(proc, rank, 4);
    for (int i = 0; i < RANKS; i++)
        in[i] = 100 * rank + i;
    MUST(comm_alltoall(world, in, out, 1, COMM_I32, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    for (int i = 0; i < RANKS; i++)
        EQUAL(out[i], 100 * i + rank);
    await_connected(ALL);
    for (int32_t i = 1; i < RANKS; i++) /* nothing is made twice */
        exchange(world, (RANKS + i - rank) % RANKS == rank ? far_from(rank, RANKS) : (RANKS + i - rank) % RANKS);
    EQUAL(connected(), ALL);
    phase(proc, rank, PHASES);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(links_are_made_when_needed)
{
    struct proc proc = {.enter = needed, .options = "algorithm=allreduce:doubling"};
    proc_start(&proc, RANKS, all_of_them);
    for (int64_t number = 1; number <= PHASES; number++) {
        for (int32_t r = 0; r < RANKS; r++)
            proc_await(&proc, r, number);
        atomic_store(proc.go, number);
    }
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ a death */
enum { VICTIM = 5 };

/* Every other rank is not inside the library when it happens. */
static void hear_and_go_on(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_communicator *next = NULL;
    struct comm_error error = {.size = sizeof error};
    struct comm_request request;
    int32_t one = 1, all;
    sum(world);
    atomic_store(&proc->page[rank].stage, 1);
    while (!atomic_load(proc->go))
        rig_nap(RIG_MS);
    if (rank == VICTIM)
        rig_nap(2 * RIG_PATIENCE);
    if (rank % 2) {
        rig_fails_within(world, COMM_ERR_PEER, RIG_PATIENCE, &error);
    } else {
        enum comm_result result = comm_allreduce(world, &one, &all, 1, COMM_I32, COMM_SUM, &request);
        IS(result == COMM_OK ? comm_wait(request, RIG_PATIENCE) : result, COMM_ERR_PEER);
        MUST(comm_error_detail(world, &error));
    }
    atomic_store(&proc->page[rank].time, rig_now());
    EQUAL(error.rank, VICTIM);
    uint64_t flags = ~(UINT64_C(1) << rank);
    MUST(comm_agree(world, &flags));
    EQUAL(flags & 0xffffff, UINT64_C(1) << VICTIM);
    MUST(comm_shrink(world, &next, NULL));
    EQUAL(comm_size(next), RANKS - 1);
    sum(next);
    exchange(next, (2 * (RANKS - 1) - 1 - comm_rank(next)) % (RANKS - 1) == comm_rank(next)
                       ? comm_rank(next)
                       : (2 * (RANKS - 1) - 1 - comm_rank(next)) % (RANKS - 1));
    MUST(comm_close(world, RIG_PATIENCE));
    MUST(comm_close(next, RIG_PATIENCE));
}

static void kill_one(const struct proc *proc, int32_t rank, int64_t *when)
{
    *when = rig_now();
    kill(proc->pid[rank], SIGKILL);
}

RIG_TEST(links_a_death_is_told_to_all)
{
    struct proc proc = {.enter = needed};
    int64_t when;
    proc_start(&proc, RANKS, hear_and_go_on);
    for (int32_t r = 0; r < RANKS; r++)
        proc_await(&proc, r, 1);
    atomic_store(proc.go, 1);
    rig_nap(50 * RIG_MS);
    kill_one(&proc, VICTIM, &when);
    proc_finish(&proc, VICTIM, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < RANKS; r++)
        CHECK(r == VICTIM || proc.page[r].time - when < TOLD_NS);
}

/* ------------------------------------------------------------------------------------------------------------ who leaves */
/* All neighbours of the victim close, one by one, and one of them after a message by a link that it made for that. What happens to the
 * victim is then told by others. */
enum { LONELY = 12, LEAVE = 1, LEFT };

static bool is_next_to(int32_t a, int32_t b)
{
    int32_t d = (a - b + RANKS) % RANKS;
    return d == 1 || d == 2 || d == 4 || d == 16 || d == RANKS - 1 || d == RANKS - 2 || d == RANKS - 4 || d == RANKS - 16;
}

static void leave_or_stay(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request request;
    int32_t word = rank;
    sum(world);
    atomic_store(&proc->page[rank].stage, LEAVE);
    if (is_next_to(rank, LONELY)) {
        while (atomic_load(proc->go) <= rank)
            rig_nap(RIG_MS);
        if (rank == LONELY + 1) {
            MUST(comm_send(world, &word, 1, COMM_I32, 3, 1, &request));
            MUST(comm_wait(request, RIG_PATIENCE));
        }
        MUST(comm_close(world, RIG_PATIENCE));
        return;
    }
    while (atomic_load(proc->go) <= RANKS)
        rig_nap(RIG_MS);
    if (rank == 3) {
        MUST(comm_recv(world, &word, 1, COMM_I32, LONELY + 1, 1, NULL, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        EQUAL(word, LONELY + 1);
    }
    atomic_store(&proc->page[rank].stage, LEFT);
    rig_fails_within(world, COMM_ERR_PEER, RIG_PATIENCE, &error);
    atomic_store(&proc->page[rank].time, rig_now());
    EQUAL(error.rank, LONELY);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(links_whose_neighbours_have_left)
{
    struct proc proc = {.enter = needed, .options = "link_timeout=1s"}; /* looks around oftener */
    int64_t when;
    proc_start(&proc, RANKS, leave_or_stay);
    for (int32_t r = 0; r < RANKS; r++)
        proc_await(&proc, r, LEAVE);
    atomic_store(proc.go, RANKS);
    rig_nap(RIG_S);
    atomic_store(proc.go, RANKS + 1);
    for (int32_t r = 0; r < RANKS; r++)
        if (!is_next_to(r, LONELY))
            proc_await(&proc, r, LEFT);
    kill_one(&proc, LONELY, &when);
    proc_finish(&proc, LONELY, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < RANKS; r++)
        CHECK(r == LONELY || is_next_to(r, LONELY) || proc.page[r].time - when < TOLD_NS);
}

/* ------------------------------------------------------------------------------------------------------------ a goodbye comes first */
/* Of six ranks in a circle two that are opposite have no link, until one of their common neighbours closes: then the circle is mended by
 * one. The other neighbours stand still, so nobody passes anything on, and the far end of the new link is closing when it is dialed: what
 * it says there first is goodbye, and its end no death. */
enum { CIRCLE = 6, NEAR = 0, BETWEEN = 2, OPPOSITE = 3 };
static _Atomic bool lingers; /* what this rank has sent seems to be under way still: its close waits for that, a second and no more */

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    int *bytes = va_arg(rest, int *);
    va_end(rest);
    int result = __real_ioctl(fd, request, bytes);
    if (request == SIOCOUTQ && atomic_load(&lingers))
        *bytes = 1;
    return result;
}

static void close_opposite(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request request;
    int32_t word;
    if (rank == NEAR)
        MUST(comm_recv(world, &word, 1, COMM_I32, OPPOSITE, 1, NULL, &request));
    atomic_store(&proc->page[rank].stage, 1);
    if (rank == NEAR) {
        IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_CLOSED);
        atomic_store(&proc->page[rank].stage, 2);
    }
    while (atomic_load(proc->go) < (rank == BETWEEN ? 1 : rank == OPPOSITE ? 2 : 3))
        rig_nap(RIG_MS);
    atomic_store(&lingers, rank == OPPOSITE);
    atomic_store(&proc->page[rank].stage, 3);
    MUST(comm_close(world, RIG_PATIENCE));
    atomic_store(&proc->page[rank].stage, 4);
}

static void tell(const struct proc *proc, int32_t rank, int signal)
{
    CHECK(kill(proc->pid[rank], signal) == 0);
}

RIG_TEST(links_whose_first_word_is_goodbye)
{
    static const int32_t others[] = {1, 4, 5};
    struct proc proc = {.enter = needed, .options = "link_timeout=1s"};
    proc_start(&proc, CIRCLE, close_opposite);
    for (int32_t r = 0; r < CIRCLE; r++)
        proc_await(&proc, r, 1);
    tell(&proc, NEAR, SIGSTOP);
    for (int i = 0; i < 3; i++)
        tell(&proc, others[i], SIGSTOP);
    atomic_store(proc.go, 1);
    proc_await(&proc, BETWEEN, 4);
    atomic_store(proc.go, 2);
    proc_await(&proc, OPPOSITE, 3);
    rig_nap(50 * RIG_MS);
    tell(&proc, NEAR, SIGCONT);
    for (int64_t end = rig_now() + 5 * RIG_S; atomic_load(&proc.page[NEAR].stage) < 2 && rig_now() < end;)
        rig_nap(RIG_MS);
    for (int i = 0; i < 3; i++) /* where the machine was too slow for all that, it comes from them */
        tell(&proc, others[i], SIGCONT);
    atomic_store(proc.go, 3);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ strangers */
enum { GUESTS = 8, CALLERS = 300 };

static void live_with_strangers(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    atomic_store(&proc->page[rank].number[0], port_here());
    phase(proc, rank, 1);
    exchange(world, rank ^ 5); /* while they still stand at the door */
    phase(proc, rank, 2);
    await_connected(5 * 3 + 2); /* neighbours 1, 2 and 4 away, and this one */
    phase(proc, rank, 3);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(links_with_strangers_at_the_door)
{
    static int fds[CALLERS];
    struct proc proc = {.enter = needed};
    unsigned char rubbish[256];
    memset(rubbish, 0x5a, sizeof rubbish);
    proc_start(&proc, GUESTS, live_with_strangers);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 1);
    for (int i = 0; i < CALLERS; i++) { /* silent, slow, or with rubbish */
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        at.sin_port = htons((uint16_t)atomic_load(&proc.page[i % GUESTS].number[0]));
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CHECK(fds[i] >= 0 && (connect(fds[i], (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS));
        if (i % 3)
            (void)!send(fds[i], rubbish, i % 3 == 1 ? 1 : sizeof rubbish, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    atomic_store(proc.go, 1);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 2);
    for (int i = 0; i < CALLERS; i++)
        close(fds[i]);
    atomic_store(proc.go, 2);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 3);
    atomic_store(proc.go, 3);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ a secret */
static const char secret[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void needed_with_secret(struct proc *proc, int32_t rank)
{
    needed(proc, rank);
    setenv("COMM_SECRET", secret, 1);
}

static void link_with_secret(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    exchange(world, rank ^ 5);
    await_connected(5 * 3 + 2);
    check_watchers();
    phase(proc, rank, 1);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void needs_crypto(void)
{
    if (crypto_missing())
        rig_skip(crypto_missing());
}

/* Whoever must say more than his first word is watched as a stranger before he is let in. */
RIG_TEST(links_with_a_secret)
{
    struct proc proc = {.enter = needed_with_secret};
    needs_crypto();
    proc_start(&proc, GUESTS, link_with_secret);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 1);
    atomic_store(proc.go, 1);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* Who knows the protocol and not the secret: a hello made with another one, a recording of a right one that comes again and again, its
 * first byte; and after the answer to a recording the wrong words. */
enum forgery { ANOTHER_SECRET, RECORDING, ONE_BYTE, RECORDING_AND_MORE, FORGERIES };

/* The hello with which `from` would dial `to`. */
static void hello_of(const char *proves, uint32_t from, uint32_t to, unsigned char hello[HANDSHAKE_HELLO])
{
    const struct handshake_names names = {HANDSHAKE_CONNECTION, from, to, 0};
    unsigned char key[CRYPTO_KEY];
    struct handshake h;
    CHECK(secret_key(proves, strlen(proves), key) && handshake_hello(&h, wire_default_env(), key, &names, hello));
}

static int forge(uint16_t port, enum forgery how, const unsigned char *right, const unsigned char *wrong)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned char more[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(more, 0x5a, sizeof more);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    (void)!send(fd, how == ANOTHER_SECRET ? wrong : right, how == ONE_BYTE ? 1 : HANDSHAKE_HELLO, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (how == RECORDING_AND_MORE)
        (void)!send(fd, more, sizeof more, MSG_DONTWAIT | MSG_NOSIGNAL);
    return fd;
}

/* At the doors of an open world: new links are made all the same, and nobody of them is let in or leaves anything behind. */
RIG_TEST(links_with_forgers_at_the_door)
{
    static int fds[CALLERS];
    static unsigned char right[GUESTS][HANDSHAKE_HELLO], wrong[GUESTS][HANDSHAKE_HELLO];
    struct proc proc = {.enter = needed_with_secret};
    needs_crypto();
    for (uint32_t r = 0; r < GUESTS; r++) {
        uint32_t dialer = r ? r - 1 : 5; /* the lower one dials, or asks to be dialed */
        hello_of(secret, dialer, r, right[r]);
        hello_of("another secret of thirty-two bytes or more", dialer, r, wrong[r]);
    }
    proc_start(&proc, GUESTS, live_with_strangers);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 1);
    for (int i = 0; i < CALLERS; i++) {
        int r = i % GUESTS;
        fds[i] = forge((uint16_t)atomic_load(&proc.page[r].number[0]), (enum forgery)(i / GUESTS % FORGERIES), right[r], wrong[r]);
    }
    atomic_store(proc.go, 1);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 2);
    for (int i = 0; i < CALLERS; i++)
        close(fds[i]);
    atomic_store(proc.go, 2);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 3);
    atomic_store(proc.go, 3);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ descriptors */
/* 64 descriptors a rank, by the soft limit: about what it needs for its links, and fewer than rank 0 does while they meet (a mesh would
 * take 300). Who needs more raises that limit as far as it may. */
enum { MANY = 100, DESCRIPTORS = 64, MOST = 256, TOO_FEW = 32 };

static void limit_files(rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
    setenv("COMM_BACKEND", "tcp", 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static rlim_t allowed(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    return limit.rlim_cur;
}

static void few_descriptors(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    limit_files(DESCRIPTORS, MOST);
}

static void live(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    CHECK(rank || allowed() > DESCRIPTORS);
    sum(world);
    exchange(world, far_from(rank, MANY));
    sum(world); /* nobody closes while others still make links */
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(links_of_many_ranks_by_themselves)
{
    struct proc proc = {.enter = few_descriptors, .options = "algorithm=allreduce:doubling"};
    proc_start(&proc, MANY, live);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
}

static void too_few_descriptors(struct proc *proc, int32_t rank)
{
    (void)proc;
    limit_files(rank ? DESCRIPTORS : TOO_FEW, rank ? DESCRIPTORS : TOO_FEW);
}

/* Who has been let in hears of it; who was at the door that rank 0 is gone; who comes later finds nobody. */
static void hear_of_the_limit(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";
    enum comm_result r = comm_open(COMM_CONFIG(.error_text = text, .error_text_bytes = sizeof text, .open_timeout_ns = 3 * RIG_S), &world);
    bool named = r == COMM_ERR_SYSTEM && strstr(text, "rank 0 of 48 ranks") && strstr(text, "nofile") && strstr(text, "allows 32");
    if (!named && (!rank || (r != COMM_ERR_PEER && r != COMM_ERR_TIMEOUT)))
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    atomic_store(&proc->page[rank].number[0], named);
}

RIG_TEST(links_where_even_meeting_takes_too_many)
{
    struct proc proc = {.raw = true, .enter = too_few_descriptors};
    int32_t named = 0;
    proc_start(&proc, TOO_FEW * 3 / 2, hear_of_the_limit);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < proc.ranks; r++)
        named += (int32_t)atomic_load(&proc.page[r].number[0]);
    CHECK(named > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_made_when_needed),
        cmocka_unit_test(links_a_death_is_told_to_all),
        cmocka_unit_test(links_whose_neighbours_have_left),
        cmocka_unit_test(links_whose_first_word_is_goodbye),
        cmocka_unit_test(links_with_strangers_at_the_door),
        cmocka_unit_test(links_with_a_secret),
        cmocka_unit_test(links_with_forgers_at_the_door),
        cmocka_unit_test(links_of_many_ranks_by_themselves),
        cmocka_unit_test(links_where_even_meeting_takes_too_many),
    };
    return cmocka_run_group_tests_name("net_links", tests, NULL, NULL);
}
