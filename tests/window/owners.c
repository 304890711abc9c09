/*
 * Owners that take no part: data put into a part that only its owner can reach arrive soon, whatever the owner's program does meanwhile: it
 * polls its own memory by calls that complete at once or by plain loads, it computes, or it sleeps. Ranks are processes, without help. The
 * test judges the fastest request of each kind, with room for a machine on which every rank waits for a CPU, and no request may take
 * seconds. An owner that does not serve takes half a second over tcp, and for ever over shared memory. The printed times are the
 * measurement.
 */
#include "proc/proc.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, OWNER = 0, ASKS = 20, LONG = 300000, BY_A_CALL_MS = 50, BY_THE_WATCHER_MS = 100, AT_MOST_S = 5 };
enum pastime { SWAPS, GETS, PUTS, TESTS, WAITS, SUMS, LOADS, COMPUTES, SLEEPS, PASTIMES };
static const char *const names[] = {"swaps", "gets", "puts", "tests", "waits", "sums", "loads", "computes", "sleeps"};
static const char *const modes[] = {"progress=caller", "progress=thread", "progress=auto"};
enum { MODES = sizeof modes / sizeof *modes };

struct own {
    struct comm_communicator *world, *self; /* self: this rank alone */
    struct comm_window *asked, *other;      /* the parts of the first one are on heaps */
    struct comm_request complete;
    int64_t *part;
};

static void done(struct comm_request req)
{
    MUST(comm_wait(req, RIG_PATIENCE));
}

static void set_up(struct own *own, struct comm_communicator *world, int32_t rank)
{
    struct comm_window_options options = {.size = sizeof options};

    own->world = world;
    own->part = calloc(LONG, sizeof *own->part);
    CHECK(own->part != NULL);
    options.base = own->part;
    MUST(NOW(comm_window_create, world, LONG * sizeof *own->part, &options, &own->asked));
    MUST(NOW(comm_window_create, world, 64, NULL, &own->other));
    MUST(NOW(comm_split, world, rank, 0, &own->self));
    MUST(comm_barrier(own->self, &own->complete));
    done(own->complete);
}

static void pass_time(struct own *own, enum pastime pastime)
{
    static volatile double sum;
    struct comm_request req = own->complete;
    int64_t zero = 0, old;

    if (pastime == SWAPS)
        MUST(comm_compare_swap(own->other, &zero, &zero, &old, COMM_I64, OWNER, 0, &req));
    else if (pastime == GETS)
        MUST(comm_get(own->other, &old, 1, COMM_I64, OWNER, 0, &req));
    else if (pastime == PUTS)
        MUST(comm_put(own->other, &zero, 1, COMM_I64, OWNER, 0, &req));
    else if (pastime == SUMS)
        MUST(comm_allreduce(own->self, &zero, &old, 1, COMM_I64, COMM_SUM, &req));
    if (pastime <= SUMS)
        MUST(pastime == TESTS ? comm_test(req) : comm_wait(req, RIG_PATIENCE));
    for (int i = 0; i < 1000 && pastime == COMPUTES; i++)
        sum += (double)i * sum;
    if (pastime == SLEEPS)
        rig_nap(RIG_MS);
}

/* Requests one word, or a piece that needs several messages. */
static void ask(struct own *own, struct proc_page *page, int32_t rank)
{
    int64_t *piece = malloc(LONG / RANKS * sizeof *piece), best = INT64_MAX, worst = 0;
    struct comm_request req;

    CHECK(piece != NULL);
    for (int i = 1; i <= ASKS; i++) {
        size_t n = i % 4 ? 1 : LONG / RANKS, at = (size_t)rank * (LONG / RANKS) * sizeof *piece;
        for (size_t k = 0; k < n; k++)
            piece[k] = i;
        rig_nap(i % 2 ? 0 : 20 * RIG_MS);
        int64_t from = rig_now();
        MUST(comm_put(own->asked, piece, n, COMM_I64, OWNER, at, &req));
        MUST(comm_window_flush(own->asked, OWNER, &req));
        done(req);
        int64_t took = rig_now() - from;
        best = took < best ? took : best;
        worst = took > worst ? took : worst;
        CHECK(took < AT_MOST_S * RIG_S);
        int64_t seen = 0;
        MUST(comm_fetch_op(own->asked, NULL, &seen, 1, COMM_I64, COMM_NOOP, OWNER, at + (n - 1) * sizeof *piece, &req));
        done(req);
        EQUAL(seen, i);
    }
    free(piece);
    page->number[0] = best;
    page->number[1] = worst;
}

static void owners_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct own own = {0};
    struct proc_page *page = &proc->page[rank];
    struct comm_request req;

    set_up(&own, world, rank);
    for (int pastime = 0; pastime < PASTIMES; pastime++) {
        rig_note("rank %d: %s, the owner %s\n", rank, proc->options, names[pastime]);
        MUST(comm_barrier(world, &req));
        done(req);
        if (rank == OWNER) {
            for (int32_t r = 1; r < RANKS; r++)
                while (atomic_load(&proc->page[r].stage) <= pastime)
                    pass_time(&own, (enum pastime)pastime);
            continue;
        }
        ask(&own, page, rank);
        printf("%s, the owner %s: rank %d's asks took %lld us to %lld us\n", proc->options, names[pastime], rank,
               (long long)page->number[0] / 1000, (long long)page->number[1] / 1000);
        CHECK(page->number[0] < (pastime <= SUMS ? BY_A_CALL_MS : BY_THE_WATCHER_MS) * RIG_MS);
        atomic_store(&page->stage, pastime + 1);
    }
    fflush(stdout);
    MUST(comm_window_free(own.other));
    MUST(comm_window_free(own.asked));
    MUST(comm_close(own.self, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    free(own.part);
}

RIG_TEST(owners_that_make_no_progress)
{
    proc_needs_shm();
    for (int m = 0; m < MODES; m++) {
        struct proc proc = {.options = modes[m]};
        proc_start(&proc, RANKS, owners_main);
        proc_finish(&proc, -1, 3 * RIG_PATIENCE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(owners_that_make_no_progress)};

    return cmocka_run_group_tests_name("windows_owners", tests, NULL, NULL);
}
