/* Compares results and memory of a run with the oracle's: everything for a correct run; otherwise, what can be known. */
#include "sim/oracle_check.h"
#include "sim/oracle_machine.h"

#include "conform/oracle.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void oracle_say(struct oracle_verdict *v, const struct random_run *run, int32_t action, const char *format, ...)
{
    if (v->failed)
        return;
    v->failed = true;
    int length = snprintf(v->text, sizeof v->text, "seed %llu", (unsigned long long)run->p->seed);
    if (action >= 0) {
        const struct random_action *a = &run->p->action[action];
        length += snprintf(v->text + length, sizeof v->text - (size_t)length, ", rank %d, communicator %d, statement %d (%s), action %d",
                           a->rank, a->comm, a->id, random_verb_names[a->verb], action);
    }
    length += snprintf(v->text + length, sizeof v->text - (size_t)length, ": ");
    va_list list;
    va_start(list, format);
    vsnprintf(v->text + length, sizeof v->text - (size_t)length, format, list);
    va_end(list);
}

enum comm_result oracle_expected(const struct random_action *a)
{
    if (a->verb == RANDOM_REFUSED)
        return COMM_ERR_ARGUMENT;
    if (a->flags & RANDOM_DOOMED)
        return COMM_ERR_CANCELLED;
    return a->flags & RANDOM_SHORT ? COMM_ERR_TRUNCATED : COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ how far a mistake reaches */
static bool taint_rank(const struct random_run *run, int32_t rank, bool tainted[RANDOM_COMMS])
{
    const struct random_program *p = run->p;
    bool event[RANDOM_EVENTS] = {false}, more = false;
    for (int32_t i = 0; i < p->actions; i++) {
        const struct random_action *a = &p->action[i];
        if (a->rank != rank)
            continue;
        bool source = false;
        int32_t target;
        switch (a->verb) {
        case RANDOM_RECORD:
            event[a->event] = tainted[a->comm];
            continue;
        case RANDOM_RESET: /* an event that will not be set */
            for (int32_t k = i + 1; k < p->actions; k++)
                source = source || (p->action[k].misuse == RANDOM_DESTROYS && p->action[k].rank == rank && p->action[k].id == a->id);
            event[a->event] = source;
            continue;
        case RANDOM_RENEW:
            event[a->event] = false;
            continue;
        case RANDOM_WAIT_EVENT:
            source = event[a->event];
            break;
        case RANDOM_WAIT_REQUEST:
            target = random_find(p, a->target, rank, i);
            source = target >= 0 && tainted[p->action[target].comm];
            break;
        default:
            continue;
        }
        more = more || (source && !tainted[a->comm]);
        tainted[a->comm] = tainted[a->comm] || source;
    }
    return more;
}

void oracle_taint(const struct random_run *run, bool tainted[RANDOM_COMMS])
{
    const struct random_program *p = run->p;
    bool more = true;
    memset(tainted, run->misused >= 0 && p->action[run->misused].misuse == RANDOM_ABORTS, RANDOM_COMMS * sizeof *tainted);
    for (int32_t i = 0; i < p->actions; i++) {
        const struct random_action *a = &p->action[i];
        if ((a->misuse && a->misuse != RANDOM_DESTROYS) || a->verb == RANDOM_REVOKE)
            tainted[a->comm] = true;
    }
    while (more) {
        more = false;
        for (int32_t r = 0; r < p->ranks; r++)
            more = taint_rank(run, r, tainted) || more;
        for (int32_t c = 1; c < RANDOM_COMMS; c++) {
            int32_t parent = run->comms.comm[c].parent;
            more = more || (parent >= 0 && tainted[parent] && !tainted[c]);
            tainted[c] = tainted[c] || (parent >= 0 && tainted[parent]);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ results */
static void check_outcome(const struct random_run *run, int32_t i, bool clean, struct oracle_verdict *v)
{
    const struct random_action *a = &run->p->action[i];
    enum comm_result want = oracle_expected(a), got = (enum comm_result)run->outcome[i];
    if (!random_issues(a) || run->stage->dead(a->rank))
        return;
    if (a->flags & RANDOM_NO_REQUEST)
        got = (enum comm_result)(run->waited[i] == COMM_PENDING ? COMM_OK : run->waited[i]);
    if (got == COMM_ERR_CLOSED && run->closed[a->comm][a->rank] != COMM_PENDING)
        return; /* asked after this rank's own close */
    if (clean && !oracle_allows(a, got))
        oracle_say(v, run, i, "its request said %s, must be %s", comm_result_name(got), comm_result_name(want));
    else if (!clean && got == COMM_OK && want != COMM_OK)
        oracle_say(v, run, i, "its request said OK, must not");
}

/* Calls without a request. */
static void check_call(const struct random_run *run, int32_t i, struct oracle_verdict *v)
{
    const struct random_action *a = &run->p->action[i];
    enum comm_result got = (enum comm_result)run->waited[i];
    bool single = got == COMM_ERR_TRUNCATED || got == COMM_ERR_CANCELLED || got == COMM_ERR_ARGUMENT || got == COMM_ERR_CLOSED;
    if (random_issues(a) || got == COMM_OK || got == COMM_PENDING || (int32_t)got == RANDOM_SKIP || run->stage->dead(a->rank))
        return;
    if ((a->verb == RANDOM_SYNC || a->verb == RANDOM_HOST_LAST || a->verb == RANDOM_EVENT_SYNC) && single)
        return; /* of requests that ended alone */
    int32_t target = a->verb == RANDOM_CANCEL ? random_find(run->p, a->target, a->rank, i) : -1;
    if (target >= 0 && got == COMM_ERR_STATE && run->outcome[target] == COMM_ERR_CLOSED)
        return;
    oracle_say(v, run, i, "said %s", comm_result_name(got));
}

static void check_status(const struct random_run *run, const struct oracle_memory *m, int32_t i, struct oracle_verdict *v)
{
    const struct random_action *a = &run->p->action[i];
    if (a->verb != RANDOM_RECV || a->plan >= 0 || run->outcome[i] != COMM_OK || (m->outcome && m->outcome[i] != COMM_OK) ||
        (a->flags & RANDOM_NO_REQUEST))
        return;
    const struct random_action *send = &run->p->action[m->taken[i]];
    const struct comm_status *status = &run->status[i];
    uint64_t bytes = (uint64_t)send->n * (uint64_t)random_unit(send->type);
    int32_t peer = run->comms.comm[a->comm].rank_of[send->rank];
    if (status->peer != peer || status->tag != (uint32_t)send->tag || status->bytes != bytes)
        oracle_say(v, run, i, "I9: its status tells of peer %d tag %u and %llu bytes, must be %d, %d and %llu", status->peer, status->tag,
                   (unsigned long long)status->bytes, peer, send->tag, (unsigned long long)bytes);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static void check_arena(const struct random_run *run, const struct oracle_memory *m, int32_t rank, int32_t type, struct oracle_verdict *v)
{
    const unsigned char *got = run->final[rank][type] + RANDOM_SLACK, *want = m->arena[rank][type], *known = m->known[rank][type];
    int32_t unit = random_unit(type);
    size_t n = (size_t)(run->p->bytes / unit), at = 0;
    while (at < n && !v->failed) {
        size_t bad = at + oracle_differ(got + at * (size_t)unit, want + at * (size_t)unit, n - at, random_types[type]);
        if (bad == n)
            return;
        if (known[bad * (size_t)unit]) {
            char a[64], b[64];
            oracle_say(v, run, -1, "I3: in the end %s[%zu] of rank %d is %s, must be %s", oracle_type_name(random_types[type]), bad, rank,
                       oracle_text(got, bad, random_types[type], a), oracle_text(want, bad, random_types[type], b));
        }
        at = bad + 1;
    }
}

static void check_memory(const struct random_run *run, struct oracle_memory *m, struct oracle_verdict *v)
{
    for (int32_t i = 0; i < run->p->actions && !v->failed; i++) {
        bool other_role = run->p->action[i].misuse == RANDOM_OTHER_ROOT; /* as it made the call, it received nothing */
        if (run->looked[i] && !other_role && m->told[i] && run->seen[i] != m->want[i])
            oracle_say(v, run, i, "I2: success, but the result is not the oracle's");
        check_status(run, m, i, v);
    }
    for (int32_t r = 0; r < run->p->ranks; r++) {
        if (!atomic_load(&run->gone[r]) || run->opened[r] != COMM_OK)
            continue;
        for (int32_t t = 0; t < RANDOM_TRASH; t++)
            check_arena(run, m, r, t, v);
    }
}

/* Whether an earlier message of the same pair ended unexpectedly: then a later one may have matched in its place. */
static bool shifted(const struct random_run *run, int32_t recv)
{
    const struct random_action *a = &run->p->action[recv];
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *b = &run->p->action[i];
        bool ours = b->verb == RANDOM_RECV && b->rank == a->rank && i < recv, theirs = b->verb == RANDOM_SEND && b->peer == a->rank;
        if (b->comm == a->comm && (ours || theirs) && run->outcome[i] != COMM_PENDING &&
            !oracle_allows(b, (enum comm_result)run->outcome[i]))
            return true;
    }
    return false;
}

/* A rank that takes itself for the root writes the root's result: first its own block, before it hears from any other
 * rank. Nothing orders that with its other accesses to this memory. */
static void spoil(const struct random_run *run, struct oracle_memory *m)
{
    const struct random_action *a = run->misused >= 0 ? &run->p->action[run->misused] : NULL;
    if (!a || a->misuse != RANDOM_OTHER_ROOT)
        return;
    int32_t unit = random_unit(a->type), blocks = random_blocks_out(a->verb, run->comms.comm[a->comm].members);
    m->spoiled = (struct random_range){a->out * unit, (a->out + blocks * a->n) * unit};
    m->spoiled_rank = a->rank;
    m->spoiled_type = a->type;
    oracle_forget_spoiled(m, a->rank, a->type);
}

/* The action whose request reports this action's end: for a member of a group, the group. */
static int32_t issue_of(const struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    for (int32_t i = index; i < run->p->actions && a->plan >= RANDOM_GROUPS; i++) {
        if (run->p->action[i].rank == a->rank && run->p->action[i].verb == RANDOM_GROUP && run->p->action[i].plan == a->plan)
            return i;
    }
    return index;
}

/* The outcomes that are meaningful. */
static void known_outcomes(const struct random_run *run, int32_t *outcome)
{
    memcpy(outcome, run->outcome, sizeof run->outcome);
    int32_t verb = run->misused >= 0 ? run->p->action[run->misused].verb : RANDOM_BARRIER;
    if (random_rooted(verb) || verb == RANDOM_SCAN || verb == RANDOM_EXSCAN)
        outcome[issue_of(run, run->misused)] = RANDOM_SKIP; /* as it made the call, it may have needed no other rank */
    for (int32_t i = 0; i < run->p->actions; i++) {
        if (run->p->action[i].verb == RANDOM_RECV && run->outcome[i] == COMM_OK && shifted(run, i))
            outcome[i] = RANDOM_SKIP;
    }
}

void oracle_check(const struct random_run *run, struct oracle_verdict *v)
{
    struct oracle *o = malloc(sizeof *o);
    struct oracle_memory m;
    bool tainted[RANDOM_COMMS], sound[RANDOM_COMMS], faults = run->faults;
    if (!o || !oracle_memory_make(&m, run->p)) {
        oracle_say(v, run, -1, "the oracle has no memory");
        free(o);
        return;
    }
    oracle_taint(run, tainted);
    recover_sound(run, sound);
    for (int32_t i = 0; i < run->p->actions && !v->failed; i++) {
        int32_t comm = run->p->action[i].comm;
        bool clean = run->strict || (!faults && !run->stuck && !tainted[comm]) || sound[comm];
        check_outcome(run, i, clean, v);
        if (run->strict)
            check_call(run, i, v);
    }
    static int32_t outcome[RANDOM_ACTIONS];
    known_outcomes(run, outcome);
    m.outcome = run->strict ? NULL : outcome;
    spoil(run, &m);
    oracle_start(o, run->p);
    oracle_run(o, &m);
    if (!oracle_ended(o))
        oracle_say(v, run, -1, "the program is none: %s", o->wrong ? o->wrong : "it does not end");
    if (!v->failed && !run->racy)
        check_memory(run, &m, v);
    window_check(run, v);
    oracle_memory_free(&m);
    free(o);
}
