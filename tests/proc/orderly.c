/*
 * An orderly end is not a death, on any wire. Two threads of each rank send and receive, one of them closes while the other may still be in
 * a call, and the process exits at once, one rank earlier than the other. The peer must report that the rank closed, and never that it
 * died.
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
enum { NUMBER_DEATHS = 0, NUMBER_WRONG = 1 }; /* in a page */
enum way {
    ONE_COMMUNICATOR, /* both threads use the world, and one of them closes it */
    EACH_ITS_OWN,     /* one thread closes both */
    WORLD_ALONE,      /* the second communicator stays open until exit() */
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

/* Sends and receives in turn. Only a close, of the own or of the other rank, may end it with an error. */
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
    CHECK(pthread_detach(thread) == 0); /* it is still in its calls when the process exits */
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
        for (int round = 0; round < (int)selected(ROUNDS, ROUNDS / 2, ROUNDS / 5); round++) {
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
