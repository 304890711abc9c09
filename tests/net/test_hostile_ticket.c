/*
 * An authenticated member whose library says something else in the exchanges of collective calls that make things (communicators, symmetric
 * memory) than any library says. Nobody may wait for it for ever, or believe it.
 */
#include "comm/state.h"
#include "proc/proc.h"

#include <commstream/comm.h>
#include <commstream/memory.h>
#include <commstream/request.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { VICTIM, HOSTILE, RANKS };

static bool lies;

/* The ticket of a new communicator: it has not finished. */
enum comm_result __real_team_subset(const struct comm_env *env, const struct team *parent, uint64_t number, uint64_t color,
                                    const int32_t *members, int32_t count, struct team *team);
enum comm_result __wrap_team_subset(const struct comm_env *env, const struct team *parent, uint64_t number, uint64_t color,
                                    const int32_t *members, int32_t count, struct team *team);
enum comm_result __wrap_team_subset(const struct comm_env *env, const struct team *parent, uint64_t number, uint64_t color,
                                    const int32_t *members, int32_t count, struct team *team)
{
    return lies ? COMM_PENDING : __real_team_subset(env, parent, number, color, members, count, team);
}

/* The second exchange of symmetric memory: it could not register what no rank registers on this backend. */
enum comm_result __real_state_issue(struct comm_state *b, const struct engine_call *call, entry_ended_fn *ended, void *arg,
                                    struct comm_request *req);
enum comm_result __wrap_state_issue(struct comm_state *b, const struct engine_call *call, entry_ended_fn *ended, void *arg,
                                    struct comm_request *req);
enum comm_result __wrap_state_issue(struct comm_state *b, const struct engine_call *call, entry_ended_fn *ended, void *arg,
                                    struct comm_request *req)
{
    static const int32_t failed = COMM_ERR_BACKEND;
    struct engine_call other = *call;

    if (lies && call->collective == COLLECTIVE_MEMORY && call->n == sizeof failed)
        other.in = &failed;
    return __real_state_issue(b, &other, ended, arg, req);
}

static void open_world(int32_t rank, struct comm_communicator **world)
{
    MUST(comm_open(COMM_CONFIG(.backend = "tcp", .operation_timeout_ns = 10 * RIG_S), world));
    lies = rank == HOSTILE;
}

static void dups(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL, *made = NULL;
    struct comm_request q;

    (void)none;
    open_world(rank, &world);
    MUST(comm_dup(world, NULL, &made, &q));
    proc->page[rank].result = comm_wait(q, RIG_PATIENCE);
    (void)comm_close(world, RIG_S);
}

static void allocates(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    struct comm_request q;
    void *at = NULL;

    (void)none;
    open_world(rank, &world);
    MUST(comm_mem_alloc_symmetric(world, 64, &at, &q));
    proc->page[rank].result = comm_wait(q, RIG_PATIENCE);
    CHECK(at == NULL);
    (void)comm_close(world, RIG_S);
}

static void both_get(proc_main *ranks_do, enum comm_result result)
{
    struct proc proc = {.raw = true};

    proc_start(&proc, RANKS, ranks_do);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
    EQUAL(proc.page[VICTIM].result, result);
    EQUAL(proc.page[HOSTILE].result, result);
}

RIG_TEST(a_ticket_with_no_such_result)
{
    both_get(dups, COMM_ERR_CORRUPT);
}

RIG_TEST(memory_that_no_library_registers)
{
    both_get(allocates, COMM_ERR_BACKEND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ticket_with_no_such_result),
        cmocka_unit_test(memory_that_no_library_registers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
