/* How a rank waits for requests and callbacks, and what it records when it first sees one's end. */
#include "sim/random_run.h"

#include "sim/oracle_check.h"
#include "sim/oracle_machine.h"

/* ------------------------------------------------------------------------------------------------------------ records */
/* Whether nothing that this rank has issued since may have written where action i left its result. */
static bool undisturbed(const struct random_run *run, int32_t index, int32_t now, struct random_range result)
{
    const struct random_program *p = run->p;
    const struct random_action *a = &p->action[index];
    for (int32_t i = index + 1; i < now; i++) {
        const struct random_action *b = &p->action[i];
        if (b->rank != a->rank || random_starts(b->verb)) {
            if (b->rank == a->rank)
                return false;
            continue;
        }
        if ((random_issues(b) || b->verb == RANDOM_FILL) && b->type == a->type &&
            random_overlap(random_touched(b, &run->view[b->rank]).write, result))
            return false;
    }
    return true;
}

/* I7: work retires in order, so everything before it is complete too. */
static void in_order(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    if (random_beside(a->verb) || a->verb == RANDOM_REFUSED || random_starts(a->verb) || run->outcome[index] != COMM_OK)
        return;
    for (int32_t i = index - 1; i >= 0; i--) {
        const struct random_action *b = &run->p->action[i];
        if (b->rank != a->rank || b->comm != a->comm || !random_issues(b) || random_beside(b->verb) || random_starts(b->verb) ||
            (b->flags & RANDOM_NO_REQUEST) || run->outcome[i] != COMM_PENDING || b->misuse == RANDOM_LATER)
            continue;
        if (comm_test(run->request[i]) == COMM_PENDING)
            random_fail(run, index, "I7: complete before statement %d, which stands before it", b->id);
        return;
    }
}

void random_saw(struct random_run *run, int32_t index, int32_t now, enum comm_result result)
{
    const struct random_action *a = &run->p->action[index];
    if (result == COMM_PENDING)
        return;
    if (run->outcome[index] != COMM_PENDING) {
        if (run->outcome[index] != (int32_t)result && result != COMM_ERR_CLOSED)
            random_fail(run, index, "I1: its request said %s and then %s", comm_result_name((enum comm_result)run->outcome[index]),
                        comm_result_name(result));
        return;
    }
    run->outcome[index] = result;
    bool closed = result == COMM_ERR_CLOSED && run->closed[a->comm][a->rank] != COMM_PENDING; /* asked too late */
    if (run->strict && !closed && !oracle_allows(a, result)) {
        struct comm_error error = {.size = sizeof error};
        if (!run->comm[a->comm][a->rank] || comm_error_detail(run->comm[a->comm][a->rank], &error) != COMM_OK)
            error.text[0] = 0;
        random_fail(run, index, "its request said %s, must be %s; %s", comm_result_name(result), comm_result_name(oracle_expected(a)),
                    error.text);
    }
    struct random_range range = oracle_result(a, &run->view[a->rank]);
    in_order(run, index);
    if (result == COMM_OK && !random_starts(a->verb) && undisturbed(run, index, now, range)) {
        run->looked[index] = true;
        run->seen[index] = oracle_hash_range(random_arena(run, a->rank, a->type), range, a->type);
    }
}

void random_note_end(struct comm_request request, enum comm_result result, void *arg)
{
    struct random_note *n = arg;
    const struct random_action *a = &n->run->p->action[n->action];
    uint64_t *last = &n->run->told_ticket[a->comm][a->rank];
    n->count++;
    n->result = result;
    if (request.ticket >> 63)
        return;
    if (request.ticket < *last)
        n->run->told_wrongly = true;
    *last = request.ticket;
}

/* ------------------------------------------------------------------------------------------------------------ waiting */
/* Waits as a program that sleeps on the descriptor: as long as it is not readable, nothing may have happened. */
static void loop_for(struct random_run *run, int32_t index, struct comm_request request)
{
    struct comm_communicator *any = run->comm[run->p->action[index].comm][run->p->action[index].rank];
    int fd = -1;
    if (comm_fd(any, &fd) != COMM_OK)
        return;
    while (comm_test(request) == COMM_PENDING) {
        enum comm_result moved = comm_progress(any);
        if (moved == COMM_OK)
            moved = comm_arm(any);
        if (moved == COMM_PENDING) {
            run->stage->spend(2000);
            continue;
        }
        if (moved != COMM_OK)
            return;
        if (comm_test(request) != COMM_PENDING)
            continue;
        if (!run->stage->poll(fd, random_patience(run)) && comm_test(request) != COMM_PENDING)
            random_fail(run, index, "armed, and its request is complete, but the descriptor is not readable");
    }
}

void random_wait_for(struct random_run *run, int32_t target, int32_t now)
{
    bool loops = run->stage->poll && now < run->p->actions && (run->p->action[now].flags & RANDOM_LOOP);
    if (loops)
        loop_for(run, now, run->request[target]);
    enum comm_result result = comm_wait(run->request[target], random_patience(run));
    if (result == COMM_PENDING)
        random_fail(run, target, "I4: not complete after %d s", (int)(random_patience(run) / RANDOM_S));
    random_saw(run, target, now, result);
}

void random_wait_any(struct random_run *run, int32_t index)
{
    const struct random_program *p = run->p;
    const struct random_action *a = &p->action[index];
    struct comm_request request[16] = {{NULL, 0}};
    int32_t of[16];
    size_t count = 0, done = 0, indices[16];
    enum comm_result results[16];
    bool lacks = false;
    for (int32_t i = index - 1, those = 0; i >= 0 && those < a->n && count < 16; i--) {
        const struct random_action *b = &p->action[i];
        if (b->rank != a->rank || !random_issues(b) || (b->flags & RANDOM_NO_REQUEST))
            continue;
        those++;
        lacks = lacks || run->outcome[i] == RANDOM_SKIP || random_emptied(p, i, &run->view[a->rank]);
        lacks = lacks || (b->verb == RANDOM_ATOMIC && !run->request[i].comm); /* it was complete in its call */
        if (run->outcome[i] == RANDOM_SKIP || run->late[a->rank] == i)
            continue; /* there is no such request */
        of[count] = i;
        request[count++] = run->request[i];
    }
    if (lacks && !(a->flags & RANDOM_ALL))
        return; /* that request might have been the first, and the others may need something later */
    enum comm_result result;
    if (a->flags & RANDOM_ALL) {
        result = comm_wait_all(request, count, random_patience(run));
        for (; result != COMM_PENDING && done < count; done++) {
            indices[done] = done;
            results[done] = comm_test(request[done]);
        }
    } else if (a->flags & RANDOM_SOME) {
        result = comm_wait_some(request, count, random_patience(run), indices, results, &done);
    } else {
        result = comm_wait_any(request, count, random_patience(run), &indices[0]);
        done = indices[0] != COMM_NO_INDEX && result != COMM_PENDING;
        results[0] = result;
    }
    if (result == COMM_PENDING)
        random_fail(run, index, "I4: none of %zu complete after %d s", count, (int)(random_patience(run) / RANDOM_S));
    for (size_t i = 0; i < done; i++) {
        if (indices[i] >= count)
            random_fail(run, index, "it gave index %zu of %zu", indices[i], count);
        random_saw(run, of[indices[i]], index, results[i]);
    }
}
