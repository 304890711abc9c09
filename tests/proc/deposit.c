/*
 * Results that a peer stores in this rank's memory (contract 4.3). The peer is killed, or stopped and continued too late, before, during
 * and after its stores. The requests of the other rank end in time and with the correct cause. From then on its memory belongs to it,
 * whatever the peer still stores, and nothing is leaked. Calls of the wire, which the linker intercepts for this test, and a
 * write-protected page tell how far the stores are.
 *
 * The faults that this must find are planted by tests/sim/mutants.py (`processes`).
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "channel/shmchan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, RANKS = 2, WORDS = 1 << 19, FEW = 1 << 15 /* WORDS are stored past the cache; for FEW, either way */, PATTERN = 0x5a };
enum stage { STAGE_STANDS = 1 /* the victim is at the chosen point */, STAGE_OVER, STAGE_LATE, STAGE_CHECKED };

/* ------------------------------------------------------------------------------------------------------------ the point where the victim
 * stops */
enum moment { MOMENT_GIVEN, MOMENT_AMID, MOMENT_STORED, MOMENT_SHOWN, MOMENTS, MOMENT_ANY = MOMENTS };
enum way { WAY_KILLED, WAY_REVOKE, WAY_ABORT, WAY_DEADLINE, WAYS };
static struct {
    enum moment moment;
    enum way way;
    int32_t victim;
    int64_t nth; /* from this store on */
    int32_t words;
} now; /* set before the ranks are forked */

static struct proc_page *own_page; /* of the victim, as soon as it must stop */
static int64_t stores;             /* stores for which a place was given */
static void *closed_page;

enum wire_result __real_shmchan_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad);
enum wire_result __wrap_shmchan_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad);
enum wire_result __real_shmchan_expose(struct wire_channel *channel, const struct wire_expose *e);
enum wire_result __wrap_shmchan_expose(struct wire_channel *channel, const struct wire_expose *e);

static void stand(void)
{
    struct proc_page *page = own_page;

    own_page = NULL;
    atomic_store(&page->time, rig_now());
    atomic_store(&page->stage, STAGE_STANDS);
    raise(now.way == WAY_KILLED ? SIGKILL : SIGSTOP);
}

static void on_closed_page(int sent, siginfo_t *info, void *context)
{
    (void)sent;
    (void)context;
    if (!closed_page || (uintptr_t)info->si_addr - (uintptr_t)closed_page >= PAGE)
        _exit(99);
    mprotect(closed_page, PAGE, PROT_READ | PROT_WRITE);
    closed_page = NULL;
    stand();
}

static bool reached(enum moment moment)
{
    return own_page && now.moment == moment && stores > now.nth;
}

enum wire_result __wrap_shmchan_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    enum wire_result r = __real_shmchan_reserve(channel, e, bytes, pad);

    if (r != WIRE_LANDING)
        return r;
    stores++;
    if (reached(MOMENT_GIVEN))
        stand();
    if (reached(MOMENT_AMID) && !closed_page) {
        closed_page = (char *)*pad + (size_t)(now.nth * 5 + 3) % (bytes / PAGE) * PAGE;
        CHECK(mprotect(closed_page, PAGE, PROT_READ) == 0);
    }
    return r;
}

enum wire_result __wrap_shmchan_expose(struct wire_channel *channel, const struct wire_expose *e)
{
    bool stored = (e->flags & WIRE_DEPOSIT) != 0;

    if (stored && reached(MOMENT_STORED))
        stand();
    enum wire_result r = __real_shmchan_expose(channel, e);
    if (stored && reached(MOMENT_SHOWN))
        stand();
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ leaks */
static int64_t holdings(void)
{
    return proc_entries("/proc/self/fd", NULL) + proc_entries("/proc/self/task", NULL);
}

static void nothing(void *arg, int32_t rank)
{
    (void)arg;
    (void)rank;
}

/* Called first: some run-times start a thread of their own with the first thread. */
static int64_t first_holdings(void)
{
    rig_threads(1, nothing, NULL);
    rig_nap(RIG_MS);
    return holdings();
}

static bool is_mapped(void *page)
{
    unsigned char resident;

    return mincore(page, PAGE, &resident) == 0 || errno != ENOMEM;
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
struct side {
    struct comm_communicator *world, *other;
    int32_t rank;
    int32_t *in, *out;
};

static void side_open(struct side *s, struct proc *proc, int32_t rank)
{
    void *at[2];
    struct comm_request req;

    *s = (struct side){.world = proc_open(proc, rank), .rank = rank};
    for (int i = 0; i < 2; i++)
        MUST(comm_mem_alloc(s->world, WORDS * sizeof(int32_t), &at[i]));
    s->in = at[0];
    s->out = at[1];
    MUST(comm_dup(s->world, NULL, &s->other, &req));
    MUST(comm_wait(req, RIG_PATIENCE));
}

/* Waits for the request. If the victim has stopped at its point, revokes or aborts, as the case requires. */
static enum comm_result await(struct side *s, const struct proc_page *victim, struct comm_request req)
{
    enum comm_result r;

    while ((r = comm_wait(req, 20 * RIG_MS)) == COMM_PENDING) {
        if (s->rank == now.victim || atomic_load(&victim->stage) != STAGE_STANDS)
            continue;
        if (now.way == WAY_REVOKE)
            MUST(comm_revoke(s->world));
        else if (now.way == WAY_ABORT)
            MUST(comm_abort(s->world, 7));
    }
    return r;
}

static enum comm_result sum_once(struct side *s, struct comm_communicator *c, const struct proc_page *victim, int32_t round)
{
    struct comm_request req;

    for (int32_t i = 0; i < now.words; i++)
        s->in[i] = i + round + s->rank;
    memset(s->out, PATTERN, (size_t)now.words * sizeof(int32_t));
    enum comm_result r = comm_allreduce(c, s->in, s->out, (size_t)now.words, COMM_I32, COMM_SUM, &req);
    r = r == COMM_OK ? await(s, victim, req) : r;
    for (int32_t i = 0; r == COMM_OK && i < now.words; i++)
        EQUAL(s->out[i], 2 * (i + round) + 1);
    return r;
}

static void check_pattern(const struct side *s)
{
    for (int32_t i = 0; i < now.words; i++)
        if (s->in[i] != PATTERN * 0x01010101 || s->out[i] != PATTERN * 0x01010101)
            rig_die(__FILE__, __LINE__, "word %d was written after the request had ended: in %x, out %x", i, s->in[i], s->out[i]);
}

/* The request has ended, so this rank owns the memory. Only now the victim continues. */
static void use_again(struct side *s, struct proc *proc)
{
    struct proc_page *page = &proc->page[s->rank], *victim = &proc->page[now.victim];

    memset(s->in, PATTERN, (size_t)now.words * sizeof(int32_t));
    memset(s->out, PATTERN, (size_t)now.words * sizeof(int32_t));
    atomic_store(&page->stage, STAGE_OVER);
    while (now.way != WAY_KILLED && atomic_load(&victim->stage) != STAGE_LATE)
        rig_nap(RIG_MS / 10);
    check_pattern(s);
    rig_nap(5 * RIG_MS);
    check_pattern(s);
    atomic_store(&page->stage, STAGE_CHECKED);
}

static enum comm_result expected(void)
{
    static const enum comm_result of[WAYS] = {COMM_ERR_PEER, COMM_ERR_REVOKED, COMM_ERR_ABORTED, COMM_ERR_TIMEOUT};
    return of[now.way];
}

static void leave_nothing(struct side *s, int64_t before)
{
    void *in = s->in, *out = s->out;

    comm_mem_free(s->world, out);
    (void)!comm_close(s->other, RIG_PATIENCE);
    (void)!comm_close(s->world, RIG_PATIENCE);
    for (int i = 0; i < 100 && holdings() != before; i++)
        rig_nap(10 * RIG_MS); /* a joined thread leaves the list a moment later */
    EQUAL(holdings(), before);
    CHECK(!is_mapped(in) && !is_mapped(out));
}

static void failing_main(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct proc_page *page = &proc->page[rank], *victim = &proc->page[now.victim];
    struct side s;
    int64_t before = first_holdings();
    enum comm_result r = COMM_OK;

    (void)none;
    side_open(&s, proc, rank);
    for (int32_t round = 0; r == COMM_OK; round++) {
        if (round == 1 && rank == now.victim)
            own_page = page;
        atomic_store(&page->number[0], round);
        r = sum_once(&s, s.world, victim, round);
    }
    EQUAL(r, expected());
    if (rank == now.victim) {
        atomic_store(&page->stage, STAGE_LATE); /* a stopped victim has noticed the failure, so it stores no more */
        while (atomic_load(&proc->page[1 - rank].stage) != STAGE_CHECKED)
            rig_nap(RIG_MS / 10);
    } else {
        CHECK(now.way != WAY_KILLED || rig_now() - atomic_load(&victim->time) < RIG_S);
        use_again(&s, proc);
    }
    /* The same buffers again; their pages may be private to this rank by now. */
    for (int32_t round = 0; (now.way == WAY_REVOKE || now.way == WAY_DEADLINE) && round < 3; round++)
        MUST(sum_once(&s, s.other, page, round));
    leave_nothing(&s, before);
}

/* ------------------------------------------------------------------------------------------------------------ the parent */
static void entered(struct proc *proc, int32_t rank)
{
    struct sigaction action = {.sa_sigaction = on_closed_page, .sa_flags = SA_SIGINFO};

    (void)proc;
    if (rank == now.victim)
        CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

/* Stops or kills the victim at an arbitrary moment. */
static void stand_anywhere(struct proc *proc, int64_t pause)
{
    struct proc_page *page = &proc->page[now.victim];

    while (atomic_load(&proc->page[1 - now.victim].number[0]) == 0)
        rig_nap(RIG_MS / 10);
    rig_nap(pause);
    atomic_store(&page->time, rig_now());
    kill(proc->pid[now.victim], now.way == WAY_KILLED ? SIGKILL : SIGSTOP);
    atomic_store(&page->stage, STAGE_STANDS);
}

static void fail_once(int64_t pause)
{
    struct proc proc = {.options = "log=off", .raw = true, .enter = entered};

    proc_start(&proc, RANKS, failing_main);
    if (now.moment == MOMENT_ANY)
        stand_anywhere(&proc, pause);
    if (now.way != WAY_KILLED) {
        proc_await(&proc, 1 - now.victim, STAGE_OVER);
        kill(proc.pid[now.victim], SIGCONT);
    }
    proc_finish(&proc, now.way == WAY_KILLED ? now.victim : -1, RIG_PATIENCE);
}

static void fail_everywhere(enum way way)
{
    static const int64_t points[] = {0, 1, 5, 16, 31};
    enum { POINTS = sizeof points / sizeof *points };

    proc_needs_shm();
    for (int i = 0; i < POINTS * MOMENTS; i += (int)selected(1, 2, 3)) {
        now.moment = (enum moment)(i % MOMENTS);
        now.way = way;
        now.nth = points[i / MOMENTS];
        now.victim = i / 2 % RANKS;
        now.words = i / MOMENTS % 2 ? WORDS : FEW;
        rig_note("rank %d, moment %d of store %lld, %d words", now.victim, now.moment, (long long)now.nth, now.words);
        fail_once(0);
    }
}

RIG_TEST(contract_4_3_killed_amid_its_stores)
{
    fail_everywhere(WAY_KILLED);
}

RIG_TEST(contract_4_3_late_stores_after_a_revoke)
{
    fail_everywhere(WAY_REVOKE);
}

RIG_TEST(contract_4_3_late_stores_after_an_abort)
{
    fail_everywhere(WAY_ABORT);
}

/* This deadline also applies to the sums on the other communicator, which must succeed, and they need time on a busy machine. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define DEADLINE "1500ms"
#else
#    define DEADLINE "600ms"
#endif

RIG_TEST(contract_4_3_late_stores_after_a_deadline)
{
    setenv("COMM_OPERATION_TIMEOUT", DEADLINE, 1);
    fail_everywhere(WAY_DEADLINE);
}

RIG_TEST(contract_4_3_stores_that_end_anywhere)
{
    proc_needs_shm();
    for (int i = 0; i < ((int)selected(40, 20, 8)); i++) {
        now.moment = MOMENT_ANY;
        now.way = i % 2 ? WAY_KILLED : WAY_REVOKE;
        now.victim = i / 2 % RANKS;
        now.words = i / 4 % 2 ? WORDS : FEW;
        rig_note("rank %d, %d of 37 us", now.victim, i);
        fail_once(i * 37000);
    }
}

/* With a name (or a pattern) as argument: runs only that test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_3_killed_amid_its_stores),     cmocka_unit_test(contract_4_3_late_stores_after_a_revoke),
        cmocka_unit_test(contract_4_3_late_stores_after_an_abort), cmocka_unit_test(contract_4_3_late_stores_after_a_deadline),
        cmocka_unit_test(contract_4_3_stores_that_end_anywhere),
    };
    return cmocka_run_group_tests_name("proc_deposit", tests, NULL, NULL);
}
