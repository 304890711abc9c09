/* What must hold in every run; see oracle_check.h for the numbers. */
#include "sim/oracle_check.h"

#include <string.h>

bool oracle_is_cause(const struct comm_error *e)
{
    if (e->size == 0)
        return false;
    switch (e->result) {
    case COMM_OK:
    case COMM_ERR_ARGUMENT:
    case COMM_ERR_UNSUPPORTED:
    case COMM_ERR_MEMORY:
    case COMM_ERR_STATE:
    case COMM_ERR_FULL:
        return false;
    default:
        return true;
    }
}

/* Whether this is the error of an agree or shrink, which is stored where the communicator's cause would be. */
static bool is_of_recovery(const struct comm_error *e)
{
    return e->result != COMM_OK && strncmp(e->text, "COMM_ERR_", 9) != 0; /* a cause's text begins with its name */
}

static bool same_cause(const struct comm_error *a, const struct comm_error *b)
{
    return a->result == b->result && a->rank == b->rank && a->sequence == b->sequence && strcmp(a->operation, b->operation) == 0 &&
           strcmp(a->cause, b->cause) == 0;
}

/* I5, in time: when every list was finished and 2.5 s had passed, either all members that had the communicator open
 * knew the cause, or none. */
static void one_cause(const struct random_run *run, int32_t comm, struct oracle_verdict *v)
{
    const struct comm_error *first = NULL;
    int32_t first_rank = -1, silent = -1;
    for (int32_t k = 0; k < 2 * run->p->ranks; k++) {
        int32_t r = k % run->p->ranks;
        const struct comm_error *e = k < run->p->ranks ? &run->early[comm][r] : &run->error[comm][r];
        if (run->stage->dead(r) || e->size == 0 || is_of_recovery(e))
            continue;
        if (!oracle_is_cause(e)) {
            if (k < run->p->ranks && run->early_ns[r] - run->fault_ns > 3 * RANDOM_S)
                silent = r;
            continue;
        }
        if (first && !same_cause(first, e))
            oracle_say(v, run, -1, "I5: communicator %d failed on rank %d with \"%s\", on rank %d with \"%s\"", comm, first_rank,
                       first->text, r, e->text);
        if (!first && k >= run->p->ranks)
            silent = -1; /* it came later, with the closing */
        first = first ? first : e;
        first_rank = first_rank < 0 ? r : first_rank;
    }
    bool just_now =
        first && (first->result == COMM_ERR_TIMEOUT || first->result == COMM_ERR_DEPENDENCY);          /* a deadline can pass at any time */
    bool later = first && silent >= 0 && run->early_ns[first_rank] > run->early_ns[silent] + RANDOM_S; /* a rank that stood still looked
                                                                                                        * only when others had closed */
    if (first && silent >= 0 && !just_now && !later)
        oracle_say(v, run, -1, "I5: communicator %d failed on rank %d with \"%s\", and rank %d does not know it", comm, first_rank,
                   first->text, silent);
}

/* I6: a rank that is reported as dead or stopped is, or was. */
static void no_accusation(const struct random_run *run, int32_t comm, struct oracle_verdict *v)
{
    for (int32_t r = 0; r < run->p->ranks; r++) {
        const struct comm_error *e = &run->error[comm][r];
        if (e->size == 0 || e->result != COMM_ERR_PEER || is_of_recovery(e))
            continue;
        const struct random_comm *c = &run->comms.comm[comm];
        int32_t accused = e->rank >= 0 && e->rank < c->members ? c->world[e->rank] : -1;
        if (accused < 0 || !run->stage->suspect(accused))
            oracle_say(v, run, -1, "I6: rank %d says of communicator %d: %s, but that rank lives", r, comm, e->text);
    }
}

/* I7 and I1, for callbacks. */
static void notes(const struct random_run *run, struct oracle_verdict *v)
{
    if (run->told_wrongly)
        oracle_say(v, run, -1, "I7: callbacks of one communicator's work out of order");
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        if (!run->note[i].run || !atomic_load(&run->gone[a->rank]) || run->waited[i] != COMM_OK)
            continue;
        if (run->note[i].count != 1)
            oracle_say(v, run, i, "its callback ran %d times", run->note[i].count);
        else if (run->note[i].result != run->outcome[i] && run->outcome[i] != COMM_ERR_CLOSED)
            oracle_say(v, run, i, "I1: its callback was given %s, its request said %s",
                       comm_result_name((enum comm_result)run->note[i].result), comm_result_name((enum comm_result)run->outcome[i]));
    }
}

/* I8. */
static void numbers(const struct random_run *run, struct oracle_verdict *v)
{
    const struct random_program *p = run->p;
    uint64_t last[RANDOM_COMMS][RANDOM_RANKS];
    memset(last, 0, sizeof last);
    for (int32_t i = 0; i < p->actions; i++) {
        const struct random_action *a = &p->action[i];
        if (!run->sequence[i] || run->misused >= 0)
            continue;
        if (run->sequence[i] <= last[a->comm][a->rank])
            oracle_say(v, run, i, "I8: its number %llu is not above %llu", (unsigned long long)run->sequence[i],
                       (unsigned long long)last[a->comm][a->rank]);
        last[a->comm][a->rank] = run->sequence[i];
        for (int32_t k = i + 1; k < p->actions; k++) {
            if (p->action[k].id == a->id && p->action[k].comm == a->comm && run->sequence[k] && run->sequence[k] != run->sequence[i])
                oracle_say(v, run, i, "I8: its number is %llu, on rank %d %llu", (unsigned long long)run->sequence[i], p->action[k].rank,
                           (unsigned long long)run->sequence[k]);
            if (p->action[k].id > a->id + 1)
                break;
        }
    }
}

/* I3: canaries, and writes by the library or a peer after everything had ended. */
static void untouched(const struct random_run *run, struct oracle_verdict *v)
{
    for (int32_t r = 0; r < run->p->ranks; r++) {
        if (!atomic_load(&run->gone[r]) || run->opened[r] != COMM_OK)
            continue;
        for (int32_t t = 0; t < RANDOM_ARENAS; t++) {
            const unsigned char *at = run->block[r][t], *end = at + RANDOM_SLACK + run->p->bytes;
            for (int32_t i = 0; i < RANDOM_SLACK; i++) {
                if (at[i] != RANDOM_CANARY || end[i] != RANDOM_CANARY)
                    oracle_say(v, run, -1, "I3: rank %d: written past arena %d", r, t);
            }
            for (const unsigned char *b = at + RANDOM_SLACK; b < end; b++) {
                if (*b != RANDOM_POISON) {
                    oracle_say(v, run, -1, "I3: rank %d: byte %td of arena %d was written after all its requests had ended", r,
                               b - at - RANDOM_SLACK, t);
                    break;
                }
            }
        }
    }
}

/* A rank that has made calls for two more windows has overwritten the record of what it refused: then only the
 * difference of the calls is known. */
static bool written_over(const struct random_run *run)
{
    const struct random_action *a = &run->p->action[run->misused];
    int32_t later = 0, window = run->p->minimal ? 4 : run->p->window;
    for (int32_t i = run->misused + 1; i < run->p->actions; i++) {
        const struct random_action *b = &run->p->action[i];
        later += b->rank == a->rank && b->comm == a->comm && (random_is_collective(b->verb) || random_starts(b->verb));
    }
    return later * 4 >= window; /* a start of a plan counts as up to four */
}

/* Whether this is the right result for a mistake. */
static bool right_name(const struct random_run *run, int32_t misuse, enum comm_result result)
{
    switch (misuse) {
    case RANDOM_REFUSES:
        return result == COMM_ERR_REFUSED || result == COMM_ERR_DEPENDENCY /* its own queue waited for the call */ ||
               (result == COMM_ERR_MISMATCH && written_over(run));
    case RANDOM_CLOSES:
        return result == COMM_ERR_CLOSED || result == COMM_ERR_DEPENDENCY /* for a queue that waited for something closed */ ||
               (result == COMM_ERR_TIMEOUT && run->stuck); /* or for a rank that stood still over something that it had closed */
    case RANDOM_DESTROYS:
        return result == COMM_ERR_ABANDONED || result == COMM_ERR_DEPENDENCY;
    case RANDOM_SKIPPED: /* and that rank may wait for one that waits for the call */
    case RANDOM_LATER:
        return result == COMM_ERR_MISMATCH || result == COMM_ERR_REFUSED || result == COMM_ERR_TIMEOUT;
    case RANDOM_EXTRA: /* a refusal that was meant for another number counts too */
        return result == COMM_ERR_MISMATCH || result == COMM_ERR_REFUSED ||
               (result == COMM_ERR_TIMEOUT && run->no_room); /* it took the place of the call behind which that rank opens a gate */
    case RANDOM_REVOKES:
        return result == COMM_ERR_REVOKED || result == COMM_ERR_DEPENDENCY;
    case RANDOM_ABORTS:
        return result == COMM_ERR_ABORTED || result == COMM_ERR_DEPENDENCY;
    default:
        return result == COMM_ERR_MISMATCH;
    }
}

/* Then some rank may share no communicator any more with a rank that knows. */
static bool world_was_closed(const struct random_run *run)
{
    for (int32_t i = 0; i < run->p->actions; i++) {
        if (run->p->action[i].verb == RANDOM_CLOSE && run->p->action[i].comm == 0)
            return true;
    }
    return false;
}

/* Every member that still has the communicator must report the mistake. */
static void members_know(const struct random_run *run, int32_t comm, struct oracle_verdict *v)
{
    int32_t misuse = run->p->action[run->misused].misuse;
    for (int32_t i = 0; i < run->comms.comm[comm].members; i++) {
        int32_t r = run->comms.comm[comm].world[i];
        const struct comm_error *e = &run->early[comm][r];
        if (e->size == 0 || run->stage->dead(r) || is_of_recovery(e))
            continue;
        if (!oracle_is_cause(e) && misuse == RANDOM_CLOSES)
            continue; /* it may not have been needed any more */
        if (!oracle_is_cause(e))
            oracle_say(v, run, run->misused, "%s: rank %d has not noticed on communicator %d", random_misuse_names[misuse], r, comm);
        else if (!right_name(run, misuse, e->result))
            oracle_say(v, run, run->misused, "%s: rank %d calls it \"%s\"", random_misuse_names[misuse], r, e->text);
    }
}

/* A mistake is detected within 2.5 s of the last call, and every member that still has the communicator reports it
 * correctly. */
static void found_out(const struct random_run *run, struct oracle_verdict *v)
{
    if (run->misused < 0 || run->faults)
        return;
    const struct random_action *a = &run->p->action[run->misused];
    if (run->stuck && (a->misuse == RANDOM_SKIPPED || a->misuse == RANDOM_LATER))
        return; /* ranks waited for each other because of the missing call */
    bool made = run->waited[run->misused] == COMM_OK || run->outcome[run->misused] != COMM_PENDING;
    made = made && (a->misuse != RANDOM_EXTRA || run->extra_made) && run->comms.comm[a->comm].members > 1;
    for (int32_t i = 0; i < run->p->actions; i++) { /* the other ranks made it: their communicator may never have been created */
        const struct random_action *b = &run->p->action[i];
        made = made && (b->id != a->id || b->comm != a->comm || i == run->misused || run->outcome[i] != RANDOM_SKIP);
    }
    if (a->misuse == RANDOM_DESTROYS || !made)
        return;
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        if (c == a->comm || (a->misuse == RANDOM_ABORTS && !world_was_closed(run)))
            members_know(run, c, v);
    }
}

void invariant_check(const struct random_run *run, struct oracle_verdict *v)
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        one_cause(run, c, v);
        no_accusation(run, c, v);
        for (int32_t r = 0; r < run->p->ranks; r++) {
            if (run->deepest[c][r] > (uint64_t)run->p->queue)
                oracle_say(v, run, -1, "I11: the queue of communicator %d on rank %d was %llu deep, its bound is %d", c, r,
                           (unsigned long long)run->deepest[c][r], run->p->queue);
        }
    }
    recover_check(run, v);
    notes(run, v);
    numbers(run, v);
    untouched(run, v);
    found_out(run, v);
}
