/*
 * Shrinking: leaves out parts of a failing program, as long as the rest is a program and fails in the same way under
 * some schedule. First whole statements, in smaller and smaller groups; then ranks, faults, and everything that makes
 * an action more complex than necessary.
 */
#define _GNU_SOURCE
#include "sim/workload.h"

#include "sim/oracle_machine.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SCHEDULES = 6 };

struct shrinker {
    struct random_program *best, trial;
    struct sim_result *result, attempt;
    char sign[128];
    bool mistaken; /* one rank's mistake must stay noticeable: the calls from which it differs must not be left out */
    double end;
};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The kind of failure: its text behind the details, without numbers. */
static void sign_of(const char *text, char sign[128])
{
    const char *line = strchr(text, '\n'), *at = text;
    size_t length = line ? (size_t)(line - text) : strlen(text), n = 0;
    for (size_t i = 0; i + 1 < length; i++) { /* behind the last "action 12: " or "seed 12: " */
        if (isdigit((unsigned char)text[i]) && text[i + 1] == ':')
            at = text + i + 2;
    }
    for (; at < text + length && n < 100; at++) {
        if (!isdigit((unsigned char)*at))
            sign[n++] = *at;
    }
    sign[n] = 0;
}

/* Whether the trial fails as the original did; then it becomes the best. */
static bool accept(struct shrinker *s)
{
    const char *why;
    int32_t at;
    char sign[128];
    if (seconds_now() > s->end || !oracle_legal(&s->trial, &why, &at) || (s->mistaken && !random_is_mistake(&s->trial)))
        return false;
    uint64_t first = s->trial.schedule;
    for (uint64_t k = 0; k < SCHEDULES; k++) {
        s->trial.schedule = k ? first + k * 1000003 : first;
        if (workload_run(&s->trial, &s->attempt))
            continue;
        sign_of(s->attempt.text, sign);
        if (strcmp(sign, s->sign) != 0)
            continue;
        *s->best = s->trial;
        *s->result = s->attempt;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ leaving out */
typedef bool drop_fn(const struct random_action *a, int32_t low, int32_t high);

static bool in_statements(const struct random_action *a, int32_t low, int32_t high)
{
    return a->id >= low && a->id < high;
}
static bool of_rank(const struct random_action *a, int32_t rank, int32_t unused)
{
    (void)unused;
    return a->rank == rank;
}

static int32_t leave_out(struct random_program *p, drop_fn *drop, int32_t low, int32_t high)
{
    int32_t kept = 0, mistakes = 0;
    for (int32_t i = 0; i < p->actions; i++) {
        if (drop(&p->action[i], low, high)) {
            mistakes += p->action[i].misuse != 0;
            continue;
        }
        p->action[kept++] = p->action[i];
    }
    int32_t dropped = p->actions - kept;
    p->actions = kept;
    return mistakes ? 0 : dropped;
}

static int32_t last_id(const struct random_program *p)
{
    int32_t last = 0;
    for (int32_t i = 0; i < p->actions; i++)
        last = p->action[i].id > last ? p->action[i].id : last;
    return last;
}

static bool drop_statements(struct shrinker *s)
{
    bool better = false;
    int32_t ids = last_id(s->best) + 1;
    for (int32_t size = (ids + 1) / 2; size > 0; size /= 2) {
        for (int32_t low = (ids - 1) / size * size; low >= 0; low -= size) {
            s->trial = *s->best;
            if (leave_out(&s->trial, in_statements, low, low + size) > 0)
                better = accept(s) || better;
        }
    }
    return better;
}

static void renumber(int32_t *rank, int32_t gone)
{
    *rank -= *rank > gone;
}

static bool drop_rank(struct shrinker *s, int32_t rank)
{
    struct random_program *p = &s->trial;
    *p = *s->best;
    if (p->ranks < 2)
        return false;
    leave_out(p, of_rank, rank, 0);
    for (int32_t i = 0; i < p->actions; i++) {
        struct random_action *a = &p->action[i];
        if (a->root == rank || a->peer == rank) { /* with its whole statement */
            int32_t id = a->id;
            leave_out(p, in_statements, id, id + 1);
            i = -1;
        }
    }
    for (int32_t i = 0; i < p->actions; i++) {
        renumber(&p->action[i].rank, rank);
        renumber(&p->action[i].root, rank);
        renumber(&p->action[i].peer, rank);
    }
    int32_t faults = 0;
    for (int32_t i = 0; i < p->faults; i++) {
        if (p->fault[i].victim == rank)
            continue;
        renumber(&p->fault[i].victim, rank);
        renumber(&p->fault[i].peer, rank);
        p->fault[faults++] = p->fault[i];
    }
    p->faults = faults;
    p->ranks--;
    return accept(s);
}

static bool drop_faults(struct shrinker *s)
{
    bool better = false;
    for (int32_t i = s->best->faults - 1; i >= 0; i--) {
        s->trial = *s->best;
        s->trial.faults--;
        memmove(&s->trial.fault[i], &s->trial.fault[i + 1], (size_t)(s->trial.faults - i) * sizeof s->trial.fault[0]);
        better = accept(s) || better;
    }
    return better;
}

/* ------------------------------------------------------------------------------------------------------------ simplifying */
static bool set_option(struct shrinker *s, size_t at, int32_t value)
{
    s->trial = *s->best;
    int32_t *field = (int32_t *)((char *)&s->trial + at);
    if (*field == value)
        return false;
    *field = value;
    return accept(s);
}

static bool plain_options(struct shrinker *s)
{
    bool better = set_option(s, offsetof(struct random_program, swarm), 0);
    better = set_option(s, offsetof(struct random_program, progress), COMM_PROGRESS_CALLER) || better;
    better = set_option(s, offsetof(struct random_program, notify), 0) || better;
    better = set_option(s, offsetof(struct random_program, minimal), 0) || better;
    better = set_option(s, offsetof(struct random_program, window), 64) || better;
    return set_option(s, offsetof(struct random_program, queue), 65536) || better;
}

/* Sets one field of all actions of a statement. */
static bool plain_field(struct shrinker *s, int32_t id, size_t at, int32_t value)
{
    bool changed = false;
    s->trial = *s->best;
    for (int32_t i = 0; i < s->trial.actions; i++) {
        struct random_action *a = &s->trial.action[i];
        int32_t *field = (int32_t *)((char *)a + at);
        if (a->verb >= RANDOM_REFUSED && a->verb != RANDOM_SEND && a->verb != RANDOM_RECV)
            continue;
        if (a->verb >= RANDOM_REFUSED && at == offsetof(struct random_action, verb))
            continue;
        if (a->id != id || *field == value || (a->flags & (RANDOM_DOOMED | RANDOM_SHORT)))
            continue;
        *field = value;
        changed = true;
    }
    return changed && accept(s);
}

static bool plain_actions(struct shrinker *s)
{
    bool better = false;
    for (int32_t id = last_id(s->best); id >= 0; id--) {
        better = plain_field(s, id, offsetof(struct random_action, flags), 0) || better;
        better = plain_field(s, id, offsetof(struct random_action, n), 1) || better;
        better = plain_field(s, id, offsetof(struct random_action, verb), RANDOM_BARRIER) || better;
    }
    return better;
}

/* Turns faults that the schedule sampled into a list. */
static void list_faults(struct shrinker *s)
{
    struct random_program *p = &s->trial;
    *p = *s->best;
    if (!p->swarm || s->result->fault_count > RANDOM_FAULTS)
        return;
    p->swarm = 0;
    p->faults = 0;
    for (size_t i = 0; i < s->result->fault_count; i++) {
        const struct sim_fault *f = &s->result->fault[i];
        p->fault[p->faults++] = (struct random_fault){
            .event = f->event, .ns = f->ns, .kind = (int32_t)f->kind, .victim = f->victim, .peer = f->peer, .amount = (int32_t)f->amount};
    }
    accept(s);
}

void workload_shrink(struct random_program *p, struct sim_result *result, double seconds)
{
    struct shrinker *s = malloc(sizeof *s);
    if (!s)
        return;
    s->best = p;
    s->result = result;
    s->end = seconds_now() + seconds;
    s->mistaken = random_is_mistake(p);
    sign_of(result->text, s->sign);
    list_faults(s);
    for (bool better = true; better && seconds_now() < s->end;) {
        better = drop_statements(s);
        for (int32_t r = p->ranks - 1; r >= 0; r--)
            better = drop_rank(s, r) || better;
        better = drop_faults(s) || better;
        better = plain_options(s) || better;
        if (!better)
            better = plain_actions(s);
    }
    free(s);
}
