/* One rank's way through its list, and what it writes down. */
#include "sim/random_run.h"

#include "sim/oracle_check.h"
#include "sim/oracle_machine.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ what was seen */
/* Nothing that this rank issued since may have written where action i left its result. */
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

/* I7: work retires in order, so what stands before it is complete too. */
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

static void saw(struct random_run *run, int32_t index, int32_t now, enum comm_result result)
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

static void note(struct comm_request request, enum comm_result result, void *arg)
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
/* As a program does that sleeps on the descriptor: when that stays silent, nothing may have happened. */
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

static void wait_for(struct random_run *run, int32_t target, int32_t now)
{
    bool loops = run->stage->poll && now < run->p->actions && (run->p->action[now].flags & RANDOM_LOOP);
    if (loops)
        loop_for(run, now, run->request[target]);
    enum comm_result result = comm_wait(run->request[target], random_patience(run));
    if (result == COMM_PENDING)
        random_fail(run, target, "I4: not complete after %d s", (int)(random_patience(run) / RANDOM_S));
    saw(run, target, now, result);
}

static void host_any(struct random_run *run, int32_t index)
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
        if (run->outcome[i] == RANDOM_SKIP || run->late[a->rank] == i)
            continue; /* there is no such request */
        of[count] = i;
        request[count++] = run->request[i];
    }
    if (lacks && !(a->flags & RANDOM_ALL))
        return; /* that may have been the first, and the others may need what comes later */
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
        saw(run, of[indices[i]], index, results[i]);
    }
}

static enum comm_result probe(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_status *status = &run->status[index];
    int32_t peer = run->view[a->rank].comm[a->comm].rank_of[a->peer];
    enum comm_result result = comm_probe(run->comm[a->comm][a->rank], peer, (uint32_t)a->tag, random_patience(run), status);
    if (result == COMM_OK && (status->peer != peer || status->tag != (uint32_t)a->tag || status->bytes != (uint64_t)a->n))
        random_fail(run, index, "it told of peer %d tag %u and %llu bytes", status->peer, status->tag, (unsigned long long)status->bytes);
    return result;
}

void random_ask_error(const struct random_run *run, int32_t comm, int32_t rank, struct comm_error *error)
{
    error->size = sizeof *error;
    if (comm_error_detail(run->comm[comm][rank], error) != COMM_OK)
        error->size = 0;
}

/* Who was left out of a shrunk communicator, and so of all that comes of it. */
static void look_who(struct random_run *run, int32_t comm, int32_t rank)
{
    struct random_comms *view = &run->view[rank];
    const struct comm_communicator *c = run->comm[comm][rank], *parent;
    uint32_t has = 0, all = 0;
    if (view->comm[comm].maker != RANDOM_SHRINK || !c || run->met[comm][rank])
        return;
    parent = run->comm[view->comm[comm].parent][rank];
    if (!parent)
        return;
    for (int32_t i = 0; i < comm_size(c); i++) {
        int32_t was = comm_translate(c, i, parent);
        if (was < 0 || was >= view->comm[view->comm[comm].parent].members)
            random_fail(run, -1, "rank %d: rank %d of shrunk communicator %d was %d of its parent", rank, i, comm, was);
        has |= UINT32_C(1) << view->comm[view->comm[comm].parent].world[was];
    }
    for (int32_t i = 0; i < view->comm[comm].members; i++)
        all |= UINT32_C(1) << view->comm[comm].world[i];
    run->met[comm][rank] = true;
    view->lacks[comm] = all & ~has;
    if (view->lacks[comm])
        random_comms_of(run->p, view);
}

/* What it tells of itself while it is there. */
static void ask_all(struct random_run *run, int32_t comm, int32_t rank)
{
    struct comm_stats stats = {.size = sizeof stats};
    random_ask_error(run, comm, rank, &run->error[comm][rank]);
    if (comm_statistics(run->comm[comm][rank], &stats) == COMM_OK)
        run->deepest[comm][rank] = stats.queue_high_water;
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        struct comm_request_info info = {.size = sizeof info};
        if (a->rank == rank && a->comm == comm && random_is_collective(a->verb) && a->plan < 0 && run->outcome[i] == COMM_OK &&
            comm_describe_request(run->request[i], &info) == COMM_OK)
            run->sequence[i] = info.sequence;
    }
}

static enum comm_result close_comm(struct random_run *run, int32_t comm, int32_t rank, int64_t timeout)
{
    struct comm_communicator *given = run->comm[comm][rank];
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        if (c == comm || run->view[rank].comm[c].parent == comm)
            look_who(run, c, rank);
    }
    ask_all(run, comm, rank);
    run->comm[comm][rank] = NULL;
    return (enum comm_result)(run->closed[comm][rank] = comm_close(given, timeout));
}

/* ------------------------------------------------------------------------------------------------------------ one action */
static void issue(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    enum comm_result result = random_call(run, index);
    run->waited[index] = result;
    if (!random_issues(a))
        return;
    if (result != COMM_OK)
        run->outcome[index] = result;
    if (result == COMM_OK && (a->flags & RANDOM_NOTIFY)) {
        run->note[index] = (struct random_note){run, index, 0, COMM_PENDING};
        run->waited[index] = comm_notify(run->request[index], note, &run->note[index]);
    }
}

/* Wrong use that is not a call made otherwise. True: that was all. */
static bool misuse(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    switch (a->misuse) {
    case RANDOM_SKIPPED:
        run->outcome[index] = RANDOM_SKIP;
        return true;
    case RANDOM_LATER:
        run->late[a->rank] = index;
        return true;
    case RANDOM_CLOSES:
        run->outcome[index] = RANDOM_SKIP;
        close_comm(run, a->comm, a->rank, RANDOM_S / 2);
        return true;
    default:
        return false;
    }
}

static void host_action(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_communicator *c = run->comm[a->comm][a->rank];
    int32_t target = a->target >= 0 ? random_target(run, index) : -1;
    switch (a->verb) {
    case RANDOM_HOST_WAIT:
        if (target >= 0)
            wait_for(run, target, index);
        return;
    case RANDOM_TEST:
        if (target >= 0)
            saw(run, target, index, comm_test(run->request[target]));
        return;
    case RANDOM_CANCEL:
        run->waited[index] = target >= 0 ? comm_cancel(run->request[target]) : RANDOM_SKIP;
        return;
    case RANDOM_HOST_ANY:
        host_any(run, index);
        return;
    case RANDOM_HOST_LAST:
        run->waited[index] = comm_wait(comm_last(c), random_patience(run));
        return;
    case RANDOM_SYNC:
        run->waited[index] = (a->flags & RANDOM_ALL) && run->stage->poll ? comm_sync_all(c) : comm_sync(c);
        return;
    case RANDOM_PROBE:
        run->waited[index] = probe(run, index);
        return;
    case RANDOM_FILL:
        oracle_fill_range(random_arena(run, a->rank, a->type), run->p, a);
        return;
    case RANDOM_PROGRESS:
        run->waited[index] = comm_progress(c) < 0 ? COMM_ERR_STATE : COMM_OK;
        if (run->event[a->rank][a->event])
            (void)!comm_event_query(run->event[a->rank][a->event]);
        return;
    case RANDOM_SPEND:
        run->stage->spend((int64_t)a->n * 3000);
        return;
    case RANDOM_CLOSE: /* it says OK also where the communicator had failed, and nothing was waited for */
        run->waited[index] = run->strict ? COMM_OK : comm_sync(c);
        if (close_comm(run, a->comm, a->rank, random_patience(run)) != COMM_OK)
            run->waited[index] = run->closed[a->comm][a->rank];
        return;
    default:
        if (a->verb == RANDOM_WAIT_REQUEST && target < 0)
            return;
        issue(run, index);
    }
}

static bool late_is_due(const struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    int32_t late = run->late[a->rank];
    return late >= 0 && late != index && random_is_collective(a->verb) && run->p->action[late].comm == a->comm && a->plan < 0;
}

static void run_action(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    int64_t start = run->stage->now();
    run->stage->doing(random_verb_names[a->verb], (uint64_t)a->id);
    look_who(run, a->comm, a->rank);
    if ((!run->comm[a->comm][a->rank] && a->verb != RANDOM_FILL) || random_absent(a, &run->view[a->rank])) {
        run->outcome[index] = RANDOM_SKIP; /* its communicator never came, or was given up, or lacks whom it needs */
        if (run->strict)
            random_fail(run, index, "its communicator is not there");
        random_keep_order(run, index, false);
        return;
    }
    bool made = !misuse(run, index);
    if (made)
        host_action(run, index);
    random_keep_order(run, index, made);
    if (late_is_due(run, index)) {
        int32_t late = run->late[a->rank];
        run->late[a->rank] = -1;
        issue(run, late);
    }
    int64_t took = run->stage->now() - start;
    if (took > run->longest_ns[a->rank])
        run->longest_ns[a->rank] = took;
}

/* ------------------------------------------------------------------------------------------------------------ the end */
static struct comm_communicator *any_open(const struct random_run *run, int32_t rank)
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        if (run->comm[c][rank])
            return run->comm[c][rank];
    }
    return NULL;
}

enum { LINGER_TURNS = 125, LINGER_FAR = 200, LINGER_MS = 20 }; /* 2.5 s; over a network two looks more, and its latency */

/* Something went wrong on purpose: all lists are let come to their end, and the library is given the time in which it must have noticed. */
static void linger(struct random_run *run, int32_t rank)
{
    int64_t end = run->stage->now() + 4 * random_patience(run);
    for (int32_t turns = 0; turns < (run->p->wire >= 2 ? LINGER_FAR : LINGER_TURNS) &&
                            run->stage->now() < end;) { /* its own time: it may have stood still meanwhile */
        bool all = true;
        for (int32_t r = 0; r < run->p->ranks; r++)
            all = all && (atomic_load(&run->listed[r]) || run->stage->dead(r));
        turns += all;
        struct comm_communicator *any = any_open(run, rank);
        if (any && comm_progress(any) < 0)
            run->told_wrongly = run->told_wrongly || run->strict;
        run->stage->spend(RANDOM_MS * LINGER_MS);
    }
    run->early_ns[rank] = run->stage->now();
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        if (run->comm[c][rank])
            random_ask_error(run, c, rank, &run->early[c][rank]);
    }
    run->stage->spend(RANDOM_MS * 200);
}

static void see_all(struct random_run *run, int32_t rank, bool wait)
{
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        if (a->rank != rank || !random_issues(a) || (a->flags & RANDOM_NO_REQUEST) || run->outcome[i] == RANDOM_SKIP)
            continue;
        if (run->outcome[i] == COMM_PENDING && wait)
            wait_for(run, i, run->p->actions);
        else
            saw(run, i, run->p->actions, comm_test(run->request[i]));
        if (!wait && run->outcome[i] == COMM_PENDING)
            random_fail(run, i, "I4: its request is pending after its communicator was closed");
    }
}

static void sync_all(struct random_run *run, int32_t rank)
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        enum comm_result result = run->comm[c][rank] ? comm_sync(run->comm[c][rank]) : COMM_OK;
        bool own = result == COMM_ERR_TRUNCATED || result == COMM_ERR_CANCELLED || result == COMM_ERR_ARGUMENT ||
                   result == COMM_ERR_CLOSED; /* of single requests */
        if (run->strict && result != COMM_OK && !own) {
            random_ask_error(run, c, rank, &run->error[c][rank]);
            random_fail(run, -1, "rank %d: sync of communicator %d says %s: %s", rank, c, comm_result_name(result),
                        run->error[c][rank].text);
        }
    }
}

static void close_all(struct random_run *run, int32_t rank)
{
    for (int32_t e = 0; e < RANDOM_EVENTS; e++) {
        comm_event_destroy(run->event[rank][e]);
        run->event[rank][e] = NULL;
    }
    for (int32_t i = 0; i < RANDOM_PLANS; i++) {
        struct comm_plan *unused = NULL;
        if (run->recorder[i][rank] && comm_plan_end(run->recorder[i][rank], &unused) == COMM_OK)
            run->plan[i][rank] = unused;
        comm_plan_free(run->plan[i][rank]);
        run->plan[i][rank] = NULL;
    }
    for (int32_t k = 0; k < RANDOM_COMMS; k++) {
        int32_t c = (k + (int32_t)(run->p->seed % 7)) % RANDOM_COMMS;
        if (!run->comm[c][rank])
            continue;
        enum comm_result result = close_comm(run, c, rank, run->strict ? random_patience(run) : COMM_DEFAULT_TIMEOUT);
        if (run->strict && result != COMM_OK)
            random_fail(run, -1, "rank %d: close of communicator %d says %s", rank, c, comm_result_name(result));
    }
}

void random_rank(struct random_run *run, int32_t rank)
{
    run->opened[rank] = run->stage->open(run, rank, &run->comm[0][rank]);
    if (run->opened[rank] != COMM_OK) {
        if (run->strict)
            random_fail(run, -1, "rank %d: open says %s", rank, comm_result_name((enum comm_result)run->opened[rank]));
        atomic_store(&run->listed[rank], 1);
        atomic_store(&run->gone[rank], 1);
        return;
    }
    for (int32_t e = 0; e < RANDOM_EVENTS; e++) {
        enum comm_result made = comm_event_create(run->comm[0][rank], &run->event[rank][e]);
        if (made != COMM_OK && run->strict)
            random_fail(run, -1, "rank %d: event: %s", rank, comm_result_name(made));
    }
    for (int32_t i = 0; i < run->p->actions; i++) {
        if (run->p->action[i].rank == rank)
            run_action(run, i);
    }
    run->stage->doing("the end", 0);
    atomic_store(&run->listed[rank], 1);
    if (run->strict)
        sync_all(run, rank);
    else
        linger(run, rank);
    see_all(run, rank, true);
    close_all(run, rank);
    see_all(run, rank, false);
    for (int32_t t = 0; t < RANDOM_ARENAS; t++) {
        size_t bytes = (size_t)run->p->bytes;
        memcpy(run->final[rank][t], run->block[rank][t], bytes + 2 * RANDOM_SLACK);
        memset(random_arena(run, rank, t), RANDOM_POISON, bytes);
    }
    run->stage->doing("gone", 0);
    atomic_store(&run->gone[rank], 1);
}

/* ------------------------------------------------------------------------------------------------------------ a run */
bool random_run_make(struct random_run *run, const struct random_program *p, const struct random_stage *stage)
{
    size_t bytes = (size_t)p->bytes + 2 * RANDOM_SLACK;
    memset(run, 0, sizeof *run);
    run->p = p;
    run->stage = stage;
    run->misused = -1;
    random_comms_of(p, &run->comms);
    for (int32_t r = 0; r < p->ranks; r++) {
        run->view[r] = run->comms;
        run->late[r] = -1;
        for (int32_t t = 0; t < RANDOM_ARENAS; t++) {
            run->block[r][t] = malloc(bytes);
            run->final[r][t] = calloc(1, bytes);
            if (!run->block[r][t] || !run->final[r][t])
                return false;
            memset(run->block[r][t], RANDOM_CANARY, bytes);
            oracle_fill_arena(random_arena(run, r, t), p, r, t);
        }
        for (int32_t c = 0; c < RANDOM_COMMS; c++)
            run->closed[c][r] = COMM_PENDING;
    }
    for (int32_t i = 0; i < p->actions; i++) {
        run->outcome[i] = run->waited[i] = COMM_PENDING;
        if (p->action[i].misuse)
            run->misused = i;
    }
    run->strict = run->misused < 0 && p->faults == 0;
    return true;
}

void random_run_free(struct random_run *run)
{
    for (int32_t r = 0; r < RANDOM_RANKS; r++) {
        for (int32_t t = 0; t < RANDOM_ARENAS; t++) {
            free(run->block[r][t]);
            free(run->final[r][t]);
        }
    }
    free(run->left);
}
