/* One rank's way through its list, and what it records. */
#include "sim/random_run.h"

#include "sim/oracle_check.h"
#include "sim/oracle_machine.h"

#include <stdlib.h>
#include <string.h>

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

/* Finds which ranks were left out of a shrunk communicator, and so of everything derived from it. */
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

/* Records the communicator's error and statistics while it exists. */
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
    random_bucket_drop(run, comm, rank);
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
        run->waited[index] = comm_notify(run->request[index], random_note_end, &run->note[index]);
    }
}

/* Misuse other than a different call. True: nothing more to do. */
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
            random_wait_for(run, target, index);
        return;
    case RANDOM_TEST:
        if (target >= 0)
            random_saw(run, target, index, comm_test(run->request[target]));
        return;
    case RANDOM_CANCEL:
        run->waited[index] = target >= 0 ? comm_cancel(run->request[target]) : RANDOM_SKIP;
        return;
    case RANDOM_HOST_ANY:
        random_wait_any(run, index);
        return;
    case RANDOM_HOST_LAST:
        run->waited[index] = comm_wait(comm_last(c), random_patience(run));
        return;
    case RANDOM_SYNC:
        run->waited[index] = (a->flags & RANDOM_ALL) && run->stage->poll ? comm_sync_all(c, COMM_FOREVER) : comm_sync(c, COMM_FOREVER);
        return;
    case RANDOM_PROBE:
        run->waited[index] = probe(run, index);
        return;
    case RANDOM_BUCKETS_WAIT:
        random_bucket_wait(run, index);
        return;
    case RANDOM_WINDOW_FREE:
        random_window_free(run, index);
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
    case RANDOM_CLOSE: /* a close returns OK even if the communicator had failed and nothing was waited for */
        run->waited[index] = run->strict ? COMM_OK : comm_sync(c, COMM_FOREVER);
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
    if ((!run->comm[a->comm][a->rank] && a->verb != RANDOM_FILL) || random_absent(a, &run->view[a->rank]) ||
        random_window_missing(run, index)) {
        run->outcome[index] = RANDOM_SKIP; /* its communicator never came, or was given up, or lacks a rank that the call needs */
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
/* Also NULL while comm_shrink runs: the thread in which it ends writes the place, and until then the library owns it. */
static struct comm_communicator *open_one(const struct random_run *run, int32_t c, int32_t rank)
{
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        if (a->rank == rank && a->verb == RANDOM_SHRINK && a->child == c && run->outcome[i] == COMM_PENDING &&
            comm_test(run->request[i]) == COMM_PENDING)
            return NULL;
    }
    return run->comm[c][rank];
}

static struct comm_communicator *any_open(const struct random_run *run, int32_t rank)
{
    struct comm_communicator *any = NULL;

    for (int32_t c = 0; c < RANDOM_COMMS && !any; c++)
        any = open_one(run, c, rank);
    return any;
}

enum { LINGER_TURNS = 125, LINGER_FAR = 200, LINGER_MS = 20 }; /* 2.5 s; over a network two more ticks, and its latency */

/* After an intended mistake: waits until all lists have ended, and then as long as the library may take to notice. */
static void linger(struct random_run *run, int32_t rank)
{
    int64_t end = run->stage->now() + 4 * random_patience(run);
    for (int32_t turns = 0; turns < (run->p->wire >= 2 ? LINGER_FAR : LINGER_TURNS) &&
                            run->stage->now() < end;) { /* counts own time: the rank may have stood still meanwhile */
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
        if (open_one(run, c, rank))
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
            random_wait_for(run, i, run->p->actions);
        else
            random_saw(run, i, run->p->actions, comm_test(run->request[i]));
        if (!wait && run->outcome[i] == COMM_PENDING)
            random_fail(run, i, "I4: its request is pending after its communicator was closed");
    }
}

static void sync_all(struct random_run *run, int32_t rank)
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        struct comm_communicator *open = open_one(run, c, rank);
        enum comm_result result = open ? comm_sync(open, COMM_FOREVER) : COMM_OK;
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
        comm_event_free(run->event[rank][e]);
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
    random_window_drop(run, rank);
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

/* ------------------------------------------------------------------------------------------------------------ one run */
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
