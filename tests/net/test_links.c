/* Links that are made when needed: a world opens with few of them, and all guarantees about failures and closing still hold. Ranks are
 * processes. */
#define _GNU_SOURCE
#include "net/links.h"
#include "net/mesh/mesh.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { RANKS = 24, FAR = RANKS / 2 };
enum { STEPS = 4 /* 1, 2, 4, 16 */, BASE = 2 * STEPS * 3 /* sockets */, ALL = BASE + 2 * (RANKS - 1 - 2 * STEPS) };
#define TOLD_NS RIG_S

/* ------------------------------------------------------------------------------------------------------------ few links */
enum { PHASES = 5 };

static void all_of_them(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    int32_t in[RANKS], out[RANKS];
    struct comm_request request;
    EQUAL(links_connected(), BASE);
    CHECK(links_port());
    links_phase(proc, rank, 1);
    links_exchange(world, links_far_from(rank, RANKS));
    links_await(BASE + 2);
    links_phase(proc, rank, 2);
    links_sum(world);
    links_phase(proc, rank, 3);
    CHECK(links_connected() <= BASE + 2 + 2 * 5); /* at most log2 p new partners */
    links_phase(proc, rank, 4);
    for (int i = 0; i < RANKS; i++)
        in[i] = 100 * rank + i;
    MUST(comm_alltoall(world, in, out, 1, COMM_I32, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    for (int i = 0; i < RANKS; i++)
        EQUAL(out[i], 100 * i + rank);
    links_await(ALL);
    for (int32_t i = 1; i < RANKS; i++) /* no link is made twice */
        links_exchange(world, (RANKS + i - rank) % RANKS == rank ? links_far_from(rank, RANKS) : (RANKS + i - rank) % RANKS);
    EQUAL(links_connected(), ALL);
    links_phase(proc, rank, PHASES);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(links_are_made_when_needed)
{
    struct proc proc = {.enter = links_needed, .options = "algorithm=allreduce:doubling"};
    proc_start(&proc, RANKS, all_of_them);
    links_run_phases(&proc, 1, PHASES);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ a death */
enum { VICTIM = 5 };

/* Half of the ranks are outside the library when it happens. */
static void hear_and_go_on(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_communicator *next = NULL;
    struct comm_error error = {.size = sizeof error};
    struct comm_request request;
    int32_t one = 1, all;
    links_sum(world);
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
    MUST(NOW(comm_agree, world, &flags));
    EQUAL(flags & 0xffffff, UINT64_C(1) << VICTIM);
    MUST(NOW(comm_shrink, world, &next));
    EQUAL(comm_size(next), RANKS - 1);
    links_sum(next);
    links_exchange(next, (2 * (RANKS - 1) - 1 - comm_rank(next)) % (RANKS - 1) == comm_rank(next)
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
    struct proc proc = {.enter = links_needed};
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

/* ------------------------------------------------------------------------------------------------------------ neighbours leave */
/* All neighbours of the victim close, one by one; one of them after a message over a link that it made for that. Then other ranks must
 * report the victim's death. */
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
    links_sum(world);
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
    struct proc proc = {.enter = links_needed, .options = "link_timeout=1s"}; /* the monitor looks more often */
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

/* ------------------------------------------------------------------------------------------------------------ goodbye comes first */
/*
 * In a base graph of six ranks, two opposite ranks have no link until a common neighbour closes; then a link between them repairs the
 * graph. The other neighbours are stopped, so no rank forwards anything. The far end of the new link is closing when it is dialed: its
 * first word there is goodbye, and its end is not a death.
 */
enum { CIRCLE = 6, NEAR = 0, BETWEEN = 2, OPPOSITE = 3 };
static _Atomic bool lingers; /* this rank's sent data seems to be unacknowledged; its close waits a second for that, and no more */

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
    struct proc proc = {.enter = links_needed, .options = "link_timeout=1s"};
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
    for (int i = 0; i < 3; i++) /* on a slow machine the goodbye comes from them */
        tell(&proc, others[i], SIGCONT);
    atomic_store(proc.go, 3);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
}

/* The same graph, and now the near end closes while it dials. It was admitted on all three connections, but has not learned so. They end
 * without a word, and that is not a death either. */
enum { LANES = 3 };
static _Atomic bool unheard; /* the welcome on a connection does not arrive */
static _Atomic int let_in;

ssize_t __real_recv(int fd, void *bytes, size_t count, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags);

ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags)
{
    static int known[LANES], knows;
    ssize_t n = __real_recv(fd, bytes, count, flags);
    if (!atomic_load(&unheard) || n != sizeof(struct welcome) || count != sizeof(struct welcome))
        return n;
    int i = 0;
    while (i < knows && known[i] != fd)
        i++;
    if (i == knows && knows < LANES) {
        known[knows++] = fd;
        atomic_store(&let_in, knows);
    }
    errno = EAGAIN;
    return -1;
}

static void close_near(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request request;
    int32_t word;
    if (rank == OPPOSITE)
        MUST(comm_recv(world, &word, 1, COMM_I32, NEAR, 1, NULL, &request));
    atomic_store(&unheard, rank == NEAR);
    atomic_store(&proc->page[rank].stage, 1);
    while (rank == NEAR && atomic_load(&let_in) < LANES)
        rig_nap(RIG_MS);
    if (rank == NEAR)
        atomic_store(&proc->page[rank].stage, 2);
    if (rank == OPPOSITE)
        IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_CLOSED);
    while (atomic_load(proc->go) < (rank == BETWEEN ? 1 : rank == NEAR ? 2 : 3))
        rig_nap(RIG_MS);
    MUST(comm_close(world, RIG_PATIENCE));
    atomic_store(&proc->page[rank].stage, 4);
}

RIG_TEST(links_of_who_closes_while_it_dials)
{
    static const int32_t others[] = {1, 4, 5};
    struct proc proc = {.enter = links_needed, .options = "link_timeout=1s"};
    proc_start(&proc, CIRCLE, close_near);
    for (int32_t r = 0; r < CIRCLE; r++)
        proc_await(&proc, r, 1);
    for (int i = 0; i < 3; i++)
        tell(&proc, others[i], SIGSTOP);
    atomic_store(proc.go, 1);
    proc_await(&proc, BETWEEN, 4);
    proc_await(&proc, NEAR, 2);
    atomic_store(proc.go, 2);
    proc_await(&proc, NEAR, 4);
    rig_nap(RIG_S);
    for (int i = 0; i < 3; i++) /* they report that it closed */
        tell(&proc, others[i], SIGCONT);
    atomic_store(proc.go, 3);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ stopped */
/* The maker of a link is stopped for longer than a link may take, and its peer cannot connect either. Nobody may be declared dead. */
enum { MAKER = 0, LATE = 3, STILL_S = 11 };

static void link_late(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    links_phase(proc, rank, 1);
    if (rank == MAKER || rank == LATE)
        links_exchange(world, MAKER + LATE - rank);
    links_phase(proc, rank, 2);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(links_whose_maker_stands_still)
{
    struct proc proc = {.enter = links_needed};
    proc_start(&proc, CIRCLE, link_late);
    for (int32_t r = 0; r < CIRCLE; r++)
        proc_await(&proc, r, 1);
    tell(&proc, LATE, SIGSTOP);
    atomic_store(proc.go, 1);
    rig_nap(RIG_S / 2); /* the link is needed by now */
    tell(&proc, MAKER, SIGSTOP);
    rig_nap(STILL_S * RIG_S);
    tell(&proc, MAKER, SIGCONT);
    rig_nap(RIG_S / 2);
    tell(&proc, LATE, SIGCONT);
    links_run_phases(&proc, 2, 2);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_made_when_needed),         cmocka_unit_test(links_a_death_is_told_to_all),
        cmocka_unit_test(links_whose_neighbours_have_left),   cmocka_unit_test(links_whose_first_word_is_goodbye),
        cmocka_unit_test(links_of_who_closes_while_it_dials), cmocka_unit_test(links_whose_maker_stands_still),
    };
    return cmocka_run_group_tests_name("net_links", tests, NULL, NULL);
}
