/*
 * An orderly end is no death, on no wire: two threads of each rank send and receive, one of them closes while the other may still be in a
 * call, and the process ends at once, one rank sooner than the other. What a peer is told is that the rank closed; nobody says it died.
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <commstream/message.h>
#include <commstream/request.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, THREADS = 2, TURNS = 200, ROUNDS = 30 };
enum { NUMBER_DEATHS = 0, NUMBER_WRONG = 1 }; /* of a page */
enum way {
    ONE_COMMUNICATOR, /* both threads on the world, which one of them closes */
    EACH_ITS_OWN,     /* both are closed, by one thread */
    WORLD_ALONE,      /* the other one is left open, and exit() ends it */
    NOTHING_CLOSED,
    WAYS
};

static struct proc_page *told_to;
static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    if (!strstr(line, "died"))
        return;
    atomic_fetch_add(&told_to->number[NUMBER_DEATHS], 1);
    memcpy(told_to->text, line, strlen(line) < sizeof told_to->text ? strlen(line) + 1 : sizeof told_to->text - 1);
}

struct worker {
    struct comm_communicator *c;
    uint32_t tag;
    int32_t rank;
    bool endless; /* until an error ends it */
};

/* There and back; what ends it must be a close: its own rank's, or the other's. */
static void *talk(void *arg)
{
    const struct worker *w = arg;
    enum comm_result r = COMM_OK;

    for (int turn = 0; r == COMM_OK && (turn < TURNS || w->endless); turn++) {
        int64_t bytes = turn;
        struct comm_request q = COMM_REQUEST_NONE;
        bool sends = turn % 2 == w->rank;
        r = sends ? comm_send(w->c, &bytes, 1, COMM_I64, 1 - w->rank, w->tag, &q)
                  : comm_recv(w->c, &bytes, 1, COMM_I64, 1 - w->rank, w->tag, NULL, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    if (r != COMM_OK && r != COMM_ERR_CLOSED && r != COMM_ERR_CANCELLED)
        atomic_store(&told_to->number[NUMBER_WRONG], r);
    return NULL;
}

static void end(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    const int *place = proc->place;
    enum way way = (enum way)place[0];
    struct comm_communicator *world = NULL, *second = NULL;
    struct comm_request q;
    pthread_t thread;

    (void)none;
    told_to = &proc->page[rank];
    MUST(comm_open(COMM_CONFIG(.log = hear, .log_level = COMM_LOG_WARNING, .operation_timeout_ns = RIG_PATIENCE), &world));
    MUST(comm_dup(world, NULL, &second, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    struct worker mine = {world, 1, rank, false}, other = {way == ONE_COMMUNICATOR ? world : second, 2, rank, place[1] % 2};
    CHECK(pthread_create(&thread, NULL, talk, &other) == 0);
    CHECK(pthread_detach(thread) == 0); /* it is still in its calls when the process ends */
    talk(&mine);
    rig_nap((place[1] * 7 + rank * 13) % 10 * RIG_MS);
    if (way != NOTHING_CLOSED)
        (void)comm_close(world, 2 * RIG_S);
    if (way < WORLD_ALONE)
        (void)comm_close(second, 2 * RIG_S);
    exit(0);
}

RIG_TEST(orderly_end_with_threads_in_calls)
{
    for (int way = 0; way < WAYS; way++)
        for (int round = 0; round < ROUNDS; round++) {
            int place[2] = {way, round};
            struct proc proc = {.raw = true, .place = place};
            rig_note("way %d, round %d", way, round);
            proc_start(&proc, RANKS, end);
            proc_finish(&proc, -1, 2 * RIG_PATIENCE);
            for (int32_t r = 0; r < RANKS; r++)
                if (proc.page[r].number[NUMBER_DEATHS] || proc.page[r].number[NUMBER_WRONG])
                    rig_die(__FILE__, __LINE__, "rank %d: result %lld, %lld deaths: %s", r, (long long)proc.page[r].number[NUMBER_WRONG],
                            (long long)proc.page[r].number[NUMBER_DEATHS], proc.page[r].text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orderly_end_with_threads_in_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
