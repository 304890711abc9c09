/* What becomes of the order of a program when calls fail, or when ranks were left out so that calls naming them are not
 * made: how each rank continues, and how the oracle judges it afterwards. */
#include "sim/random_run.h"

#include "sim/oracle_check.h"
#include "sim/oracle_machine.h"

#include <stdlib.h>

/* The action whose request is meant; -1: none, because its call was not made or was refused. */
int32_t random_target(const struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    int32_t target = random_find(run->p, a->target, a->rank, index);
    return target < 0 || run->outcome[target] == RANDOM_SKIP || run->late[a->rank] == target ? -1 : target;
}

/* A wait that should have ordered this rank's memory accesses failed: the host waits for everything before it
 * continues. */
static void settle_rank(struct random_run *run, int32_t rank)
{
    int64_t start = run->stage->now();
    if (run->strict)
        return;
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        if (run->comm[c][rank] && comm_sync(run->comm[c][rank], COMM_FOREVER) == COMM_PENDING)
            run->told_wrongly = true;
    }
    if (run->stage->now() - start > RANDOM_S)
        run->stuck = true;
}

/* The wait was for a call that nobody made: the same, but only for a short time, because something may wait for this
 * rank's next call. After that nothing is known of its memory. The oracle does the same (leave_out). */
static void settle_a_little(struct random_run *run, int32_t rank)
{
    for (int32_t c = 0; c < RANDOM_COMMS && !run->racy; c++) {
        if (run->comm[c][rank] && comm_wait(comm_last(run->comm[c][rank]), RANDOM_S) == COMM_PENDING)
            run->racy = true;
    }
}

/* Whether it is a wait for nothing: it has no communicator here, or what it waits for was not made. */
static bool of_nobody(const struct random_run *run, int32_t index, bool made)
{
    const struct random_action *a = &run->p->action[index];
    int32_t target = a->target >= 0 ? random_find(run->p, a->target, a->rank, index) : -1;
    bool on_event = a->verb == RANDOM_WAIT_EVENT || a->verb == RANDOM_EVENT_SYNC;
    if (run->strict || run->misused >= 0 || !random_orders(a->verb))
        return false;
    if (target >= 0 && (run->outcome[target] == RANDOM_SKIP || random_emptied(run->p, target, &run->view[a->rank])))
        return true;
    return !made || (on_event && run->lost[a->rank][a->event] == LOST_OF_NOBODY);
}

/* For a result CLOSED: whether it concerns only an unmatched receive, whose peers closed before it was cancelled, and
 * not the whole communicator. */
static bool closed_alone(const struct random_run *run, int32_t comm, int32_t rank)
{
    struct comm_error error = run->error[comm][rank];
    if (run->comm[comm][rank])
        random_ask_error(run, comm, rank, &error);
    return !oracle_is_cause(&error);
}

/* Checks whether this wait orders, and whether it waits for the right thing. */
void random_keep_order(struct random_run *run, int32_t index, bool made)
{
    const struct random_action *a = &run->p->action[index];
    int32_t said = run->waited[index];
    bool alone = said == COMM_ERR_TRUNCATED || said == COMM_ERR_CANCELLED || said == COMM_ERR_ARGUMENT; /* of requests that ended alone */
    alone = alone || (said == COMM_ERR_CLOSED && closed_alone(run, a->comm, a->rank));
    bool good = made && (said == COMM_OK || said == COMM_PENDING || (alone && a->verb >= RANDOM_HOST_WAIT));
    int32_t target;
    if (of_nobody(run, index, made)) {
        settle_a_little(run, a->rank);
        return;
    }
    switch (a->verb) {
    case RANDOM_RECORD:
        run->lost[a->rank][a->event] = good ? LOST_NOT : made ? LOST : LOST_OF_NOBODY;
        return;
    case RANDOM_RESET:
    case RANDOM_RENEW:
        run->lost[a->rank][a->event] = LOST_NOT;
        return;
    case RANDOM_WAIT_EVENT:
    case RANDOM_EVENT_SYNC:
        good = good && run->lost[a->rank][a->event] == LOST_NOT;
        break;
    case RANDOM_HOST_WAIT:
        target = random_target(run, index);
        good = good && target >= 0 && oracle_allows(&run->p->action[target], (enum comm_result)run->outcome[target]);
        break;
    case RANDOM_WAIT_REQUEST:
        good = good && random_target(run, index) >= 0;
        break;
    case RANDOM_CLOSE:
    case RANDOM_SYNC:
    case RANDOM_HOST_LAST:
    case RANDOM_BUCKETS_WAIT:
        break;
    default:
        return;
    }
    if (!good)
        settle_rank(run, a->rank);
}

/* ------------------------------------------------------------------------------------------------------------ remaining ranks */
/* Whether it is a wait for nothing, as of_nobody found it. lost: events that do not hold the point that they should. */
static bool waits_for_nobody(const struct random_run *run, int32_t index, bool lost[RANDOM_EVENTS])
{
    const struct random_action *a = &run->p->action[index];
    bool absent = random_absent(a, &run->comms);
    int32_t target = a->target >= 0 ? random_find(run->p, a->target, a->rank, index) : -1;
    if (a->verb == RANDOM_RECORD)
        lost[a->event] = absent;
    else if (a->verb == RANDOM_RESET || a->verb == RANDOM_RENEW)
        lost[a->event] = false;
    if (!random_orders(a->verb))
        return false;
    if (target >= 0 && (random_absent(&run->p->action[target], &run->comms) || random_emptied(run->p, target, &run->comms)))
        return true;
    return absent || ((a->verb == RANDOM_WAIT_EVENT || a->verb == RANDOM_EVENT_SYNC) && lost[a->event]);
}

/* A call that nobody made is removed; a rank that was left out of a communicator has no child of that statement. */
static void leave_out(const struct random_run *run, int32_t index, bool nobody)
{
    struct random_action *a = &run->left->action[index];
    bool absent = random_absent(a, &run->comms), request = random_issues(a) && !(a->flags & RANDOM_NO_REQUEST);
    if (random_emptied(run->p, index, &run->comms))
        a->flags |= RANDOM_NOBODYS;
    if (absent || nobody)
        *a = (struct random_action){.verb = nobody ? RANDOM_SYNC : RANDOM_SPEND,
                                    .flags = nobody    ? RANDOM_ALL | RANDOM_NOBODYS
                                             : request ? RANDOM_NOBODYS
                                                       : 0,
                                    .id = a->id,
                                    .rank = a->rank,
                                    .root = -1,
                                    .in = -1,
                                    .peer = -1,
                                    .target = -1,
                                    .child = -1,
                                    .plan = -1};
    else if (a->verb == RANDOM_SHRINK && (run->comms.lacks[a->child] >> a->rank & 1))
        a->child = -1;
}

void random_run_end(struct random_run *run)
{
    bool lacks = false, lost[RANDOM_RANKS][RANDOM_EVENTS] = {{false}};
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        for (int32_t r = run->p->ranks - 1; r >= 0; r--)
            run->comms.lacks[c] = run->met[c][r] ? run->view[r].lacks[c] : run->comms.lacks[c];
        lacks = lacks || run->comms.lacks[c];
    }
    if (!lacks)
        return;
    random_comms_of(run->p, &run->comms);
    run->left = malloc(sizeof *run->left);
    if (!run->left)
        abort();
    *run->left = *run->p;
    for (int32_t i = 0; i < run->left->actions; i++)
        leave_out(run, i, waits_for_nobody(run, i, lost[run->p->action[i].rank]));
    run->p = run->left;
}
