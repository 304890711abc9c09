/* Sets of actions that are complete, tracked along each rank's list: by waits of the host, and along queues by queue
 * waits. */
#include "sim/oracle_conflict.h"

#include <stdlib.h>
#include <string.h>

/* The entries that a plan, a group or a single action adds to the lines of this rank. */
static void count_members(const struct oracle_walk *w, int32_t i, int32_t *work, int32_t *messages)
{
    const struct random_action *a = oracle_own(w, i);
    *work = *messages = 0;
    for (int32_t k = random_starts(a->verb) ? 0 : i; k <= i; k++) {
        const struct random_action *b = oracle_own(w, k);
        bool member = k == i ? !random_starts(b->verb) : b->plan == a->plan && b->verb <= RANDOM_RECV && !random_starts(b->verb);
        bool message = b->verb == RANDOM_SEND || b->verb == RANDOM_RECV || b->verb == RANDOM_ATOMIC;
        *work += member && !random_beside(b->verb);
        *messages += member && message;
    }
}

/* Adds what is complete once the request of action i is: work retires in order; a message completes only what it had to
 * wait for; an empty one nothing. */
static void join_request(const struct oracle_walk *w, struct oracle_set *s, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    int32_t work, messages;
    oracle_set_add(s, i);
    count_members(w, i, &work, &messages);
    if ((a->flags & RANDOM_DOOMED) || (!work && !messages))
        return; /* a doomed one may be cancelled before it started */
    oracle_set_join(s, &w->before[i]);
    if (!work)
        return;
    for (int32_t k = 0; k < i; k++) {
        if (oracle_set_has(&w->work[a->comm], k)) {
            oracle_set_add(s, k);
            oracle_set_join(s, &w->before[k]);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ one action */
static const char *inside(const struct oracle_walk *w, const struct random_action *a)
{
    struct random_action wide = oracle_widest(w, a);
    struct random_touch touch = random_touched(&wide, w->comms);
    if (a->n < 0 || a->out < 0 || touch.write.to > w->p->bytes || touch.read.to > w->p->bytes)
        return "outside of the arena";
    int32_t most = a->out + a->n * random_blocks_out(a->verb, w->comms->comm[a->comm].members);
    if (a->misuse == RANDOM_OTHER_ROOT && most * random_unit(a->type) > w->p->bytes)
        return "outside of the arena, as the root that it is not";
    if (a->in < 0 && a->verb == RANDOM_SCATTER)
        return "not in place";
    if (a->in < 0 && (a->verb == RANDOM_REDUCE || a->verb == RANDOM_GATHER) && a->rank != a->root)
        return "in place is for the root";
    if (a->in >= 0 && random_overlap(touch.read, touch.write))
        return "in and out overlap";
    return NULL;
}

/* Whether there is a step of buckets that this rank has not waited for. */
static bool in_step(const struct oracle_walk *w, int32_t comm, int32_t before)
{
    for (int32_t k = 0; k < before; k++) {
        if (oracle_own(w, k)->comm == comm && oracle_own(w, k)->verb == RANDOM_BUCKETS && !oracle_set_has(&w->host, k))
            return true;
    }
    return false;
}

/* Checks the window of action i: this rank must have made it, know that it exists, and not have freed it. */
static const char *on_window(const struct oracle_walk *w, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    int32_t made = -1;
    for (int32_t k = 0; k < i; k++) {
        if (oracle_own(w, k)->verb == RANDOM_WINDOW && oracle_own(w, k)->id == a->target && oracle_own(w, k)->comm == a->comm)
            made = k;
        if (oracle_own(w, k)->verb == RANDOM_WINDOW_FREE && oracle_own(w, k)->target == a->target)
            return "the window was freed";
    }
    if (a->verb == RANDOM_ATOMIC && (a->tag < 0 || a->tag >= RANDOM_WORDS || a->key < 0 || a->key >= random_word_bits(a->tag)))
        return "no such word";
    return made >= 0 && oracle_set_has(&w->host, made) ? NULL : "the window may not be there";
}

static bool has_window(const struct oracle_walk *w, int32_t comm, int32_t before)
{
    int32_t made = 0;
    for (int32_t k = 0; k < before; k++) {
        if (oracle_own(w, k)->comm == comm)
            made += (oracle_own(w, k)->verb == RANDOM_WINDOW) - (oracle_own(w, k)->verb == RANDOM_WINDOW_FREE);
    }
    return made > 0;
}

static const char *issue(struct oracle_walk *w, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    struct oracle_set done = w->host;
    const char *why = a->verb == RANDOM_ATOMIC || a->verb == RANDOM_WINDOW_FENCE ? on_window(w, i) : NULL;
    if (why)
        return why;
    if (a->verb != RANDOM_SEND && a->verb != RANDOM_RECV && a->verb != RANDOM_ATOMIC && in_step(w, a->comm, i))
        return "a step of buckets is under way";
    if (!random_starts(a->verb) && inside(w, a))
        return inside(w, a);
    if (random_rooted(a->verb) && (a->root < 0 || w->comms->comm[a->comm].rank_of[a->root] < 0))
        return "no such root";
    oracle_set_join(&done, &w->queue[a->comm]);
    w->before[i] = done;
    if (oracle_races(w, a, &done) >= 0)
        return "nothing orders it with another communicator's work on the same memory";
    if ((a->verb == RANDOM_SUBSET || a->verb == RANDOM_SHRINK) && (a->flags & RANDOM_NO_REQUEST))
        oracle_set_add(&w->host, i); /* the call has waited */
    if (a->verb == RANDOM_BUCKETS)
        return NULL;
    if (a->verb != RANDOM_SHRINK) /* no marker waits for it */
        oracle_set_add(&w->issued[a->comm], i);
    if (!random_beside(a->verb) && !random_starts(a->verb))
        oracle_set_add(&w->work[a->comm], i);
    return NULL;
}

static int32_t target_of(const struct oracle_walk *w, int32_t i)
{
    for (int32_t k = i - 1; k >= 0; k--) {
        if (oracle_own(w, k)->id == oracle_own(w, i)->target && random_issues(oracle_own(w, k)))
            return k;
    }
    return -1;
}

static const char *on_request(struct oracle_walk *w, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    int32_t target = target_of(w, i);
    if (target < 0)
        return "no such request";
    if (oracle_own(w, target)->flags & RANDOM_NO_REQUEST)
        return "its request was not kept";
    if (w->closed[oracle_own(w, target)->comm])
        return "its communicator is closed";
    if (a->verb == RANDOM_TEST)
        return NULL;
    if (a->verb == RANDOM_CANCEL)
        return oracle_own(w, target)->flags & RANDOM_DOOMED ? NULL : "only what nothing matches is cancelled";
    if (a->verb == RANDOM_WAIT_REQUEST &&
        ((oracle_own(w, target)->flags & (RANDOM_DOOMED | RANDOM_SHORT)) || oracle_own(w, target)->verb == RANDOM_REFUSED))
        return "it waits for what ends with an error";
    if (oracle_own(w, target)->verb == RANDOM_REFUSED)
        return NULL; /* the refusal is its request: it tells nothing about what comes before it */
    join_request(w, a->verb == RANDOM_HOST_WAIT ? &w->host : &w->queue[a->comm], target);
    return NULL;
}

static const char *on_event(struct oracle_walk *w, const struct random_action *a)
{
    struct oracle_set *event = &w->event[a->event];
    bool shut = w->shut[a->event];
    switch (a->verb) {
    case RANDOM_RECORD:
        if (shut)
            return "the gate is shut";
        *event = w->issued[a->comm];
        w->event_comm[a->event] = a->comm;
        oracle_set_join(event, &w->queue[a->comm]);
        oracle_set_join(event, &w->host);
        for (int32_t k = 0; k < w->count; k++) {
            if (oracle_set_has(&w->issued[a->comm], k))
                oracle_set_join(event, &w->before[k]);
        }
        return NULL;
    case RANDOM_RESET:
    case RANDOM_RENEW:
        memset(event, 0, sizeof *event);
        w->event_comm[a->event] = -1;
        w->shut[a->event] = a->verb == RANDOM_RESET;
        return shut ? "the gate is shut" : NULL;
    case RANDOM_SET:
        w->shut[a->event] = false;
        return shut ? NULL : "no gate is shut";
    default:
        if (w->event_comm[a->event] >= 0 && w->closed[w->event_comm[a->event]])
            return "the communicator of its point is closed";
        oracle_set_join(a->verb == RANDOM_WAIT_EVENT ? &w->queue[a->comm] : &w->host, event);
        return NULL;
    }
}

static void drained(struct oracle_walk *w, int32_t comm)
{
    oracle_set_join(&w->host, &w->issued[comm]);
    oracle_set_join(&w->host, &w->queue[comm]);
    for (int32_t k = 0; k < w->count; k++) {
        if (oracle_set_has(&w->issued[comm], k))
            oracle_set_join(&w->host, &w->before[k]);
    }
}

/* The contents of a group have no order. */
static const char *on_group(const struct oracle_walk *w, const struct random_action *a)
{
    if (a->verb != RANDOM_GROUP)
        return inside(w, a);
    for (int32_t i = 0; i < w->count; i++) {
        for (int32_t k = 0; k < i && oracle_own(w, i)->plan == a->plan; k++) {
            if (oracle_own(w, k)->plan == a->plan && oracle_may_conflict(w, oracle_own(w, i), oracle_own(w, k)))
                return "two members of a group conflict";
        }
    }
    return NULL;
}

static const char *on_plan(struct oracle_walk *w, const struct random_action *a)
{
    if (a->plan >= RANDOM_GROUPS)
        return on_group(w, a);
    if (a->plan < 0 || a->plan >= RANDOM_PLANS)
        return "no such plan";
    switch (a->verb) {
    case RANDOM_PLAN_BEGIN:
        if (w->plan_made[a->plan] || w->plan_open[a->plan])
            return "the plan is there already";
        w->plan_open[a->plan] = true;
        w->plan_comm[a->plan] = a->comm;
        return NULL;
    case RANDOM_PLAN_END:
        if (!w->plan_open[a->plan])
            return "no plan is recorded";
        w->plan_open[a->plan] = false;
        w->plan_made[a->plan] = true;
        return NULL;
    case RANDOM_PLAN_FREE: /* the number is not used again */
        return w->plan_made[a->plan] ? NULL : "no such plan";
    case RANDOM_PLAN_START:
        return w->plan_made[a->plan] && w->plan_comm[a->plan] == a->comm ? NULL : "no such plan";
    default:
        return w->plan_open[a->plan] && w->plan_comm[a->plan] == a->comm ? inside(w, a) : "no plan is recorded";
    }
}

static const char *host_fill(const struct oracle_walk *w, int32_t i)
{
    return oracle_races(w, oracle_own(w, i), &w->host) >= 0 ? "the memory is not the host's" : inside(w, oracle_own(w, i));
}

/* Whether it is a receive, or starts one. */
static bool receives(const struct oracle_walk *w, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    bool found = a->verb == RANDOM_RECV && random_issues(a);
    for (int32_t k = 0; k < i && random_starts(a->verb) && !found; k++)
        found = oracle_own(w, k)->plan == a->plan && oracle_own(w, k)->verb == RANDOM_RECV;
    return found;
}

/* Whether there is a call outside the queue whose end this rank has not seen. */
static bool under_way(const struct oracle_walk *w, int32_t comm, int32_t verb, int32_t before)
{
    for (int32_t k = 0; k < before; k++) {
        if (oracle_own(w, k)->comm == comm && oracle_own(w, k)->verb == verb && !oracle_set_has(&w->host, k))
            return true;
    }
    return false;
}

static const char *end_step(struct oracle_walk *w, int32_t i)
{
    for (int32_t k = 0; k < i; k++) {
        if (oracle_own(w, k)->verb != RANDOM_BUCKETS || oracle_own(w, k)->id != oracle_own(w, i)->id)
            continue;
        if (oracle_set_has(&w->host, k))
            break;
        if (oracle_own(w, k)->n)
            join_request(w, &w->host, k);
        else
            oracle_set_add(&w->host, k); /* nothing was reduced, so it tells nothing about what comes before it */
        return NULL;
    }
    return "no step is under way";
}

static const char *on_close(struct oracle_walk *w, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    for (int32_t k = 0; k < i; k++) {
        if (oracle_own(w, k)->comm == a->comm && receives(w, k) && !oracle_set_has(&w->host, k))
            return "a receive may be cancelled by the close";
    }
    drained(w, a->comm);
    if (in_step(w, a->comm, i) || has_window(w, a->comm, i))
        return "a step of buckets or a window of it has not ended";
    if (under_way(w, a->comm, RANDOM_SHRINK, i) || under_way(w, a->comm, RANDOM_SUBSET, i))
        return "a communicator in the making may be cut off by the close";
    w->closed[a->comm] = true;
    return NULL;
}

static const char *step(struct oracle_walk *w, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    const char *why = NULL;
    if (a->comm < 0 || w->comms->comm[a->comm].rank_of[a->rank] < 0)
        return "no member";
    if (w->closed[a->comm])
        return "the communicator is closed";
    if (a->event < 0 || a->event >= RANDOM_EVENTS)
        return "no such event";
    if (a->plan >= 0)
        why = on_plan(w, a);
    if (!why && (a->verb == RANDOM_SEND || a->verb == RANDOM_RECV || a->verb == RANDOM_ATOMIC) && !(a->flags & RANDOM_ANY_PEER) &&
        (a->peer < 0 || w->comms->comm[a->comm].rank_of[a->peer] < 0))
        why = "no such peer";
    if (why || (a->plan >= 0 && !random_starts(a->verb)))
        return why;
    for (int32_t c = 0; c < RANDOM_COMMS; c++) { /* what it has issued may need ranks that reach their wait only later */
        bool marks = a->verb == RANDOM_RECORD || a->verb == RANDOM_SYNC || a->verb == RANDOM_HOST_LAST;
        if (marks && (c == a->comm || (a->verb == RANDOM_SYNC && (a->flags & RANDOM_ALL))) && in_step(w, c, i))
            return "a marker behind a step of buckets";
    }
    if ((a->verb == RANDOM_WINDOW_FREE || a->verb == RANDOM_AGREE) && in_step(w, a->comm, i))
        return "a step of buckets is under way";
    if (random_recovers(a->verb) && under_way(w, a->comm, RANDOM_SHRINK, i))
        return "a shrink is under way";
    if (random_issues(a))
        return issue(w, i);
    switch (a->verb) {
    case RANDOM_WAIT_REQUEST:
    case RANDOM_HOST_WAIT:
    case RANDOM_TEST:
    case RANDOM_CANCEL:
        return on_request(w, i);
    case RANDOM_RECORD:
    case RANDOM_RESET:
    case RANDOM_SET:
    case RANDOM_RENEW:
    case RANDOM_WAIT_EVENT:
    case RANDOM_EVENT_SYNC:
        return on_event(w, a);
    case RANDOM_SYNC:
    case RANDOM_HOST_LAST:
        drained(w, a->comm);
        return NULL;
    case RANDOM_CLOSE:
        return on_close(w, i);
    case RANDOM_FILL:
        return host_fill(w, i);
    case RANDOM_BUCKETS_WAIT:
        return end_step(w, i);
    case RANDOM_WINDOW_FREE:
        return on_window(w, i);
    default:
        return NULL;
    }
}

/* A child may be used once its maker's request is known to be complete. */
static const char *born(const struct oracle_walk *w, int32_t i)
{
    const struct random_action *a = oracle_own(w, i);
    if (a->comm == 0)
        return NULL;
    for (int32_t k = 0; k < i; k++) {
        if (random_creates(oracle_own(w, k)->verb) && oracle_own(w, k)->child == a->comm)
            return oracle_set_has(&w->host, k) ? NULL : "the communicator may not be there yet";
    }
    return "no such communicator";
}

void oracle_walk_start(struct oracle_walk *w, const struct random_program *p, const struct random_comms *comms)
{
    memset(w, 0, sizeof *w);
    w->p = p;
    w->comms = comms;
    memset(w->event_comm, -1, sizeof w->event_comm);
}

void oracle_walk_copy(struct oracle_walk *to, const struct oracle_walk *from)
{
    memcpy(to, from, offsetof(struct oracle_walk, before) + (size_t)from->count * sizeof from->before[0]);
}

const char *oracle_walk_step(struct oracle_walk *w, int32_t index)
{
    if (w->count == RANDOM_OWN)
        return "too many actions of one rank";
    w->own[w->count] = index;
    memset(&w->before[w->count], 0, sizeof w->before[0]);
    const char *why = born(w, w->count);
    why = why ? why : step(w, w->count);
    w->count++;
    return why;
}

int32_t oracle_walk_racing(const struct oracle_walk *w, const struct random_action *a)
{
    struct oracle_set done = w->host;
    oracle_set_join(&done, &w->queue[a->comm]);
    int32_t found = oracle_races(w, a, &done);
    return found < 0 ? -1 : w->own[found];
}

bool oracle_walk_knows(const struct oracle_walk *w, int32_t index)
{
    for (int32_t i = 0; i < w->count; i++) {
        if (w->own[i] == index)
            return oracle_set_has(&w->host, i);
    }
    return false;
}

const char *oracle_race(const struct random_program *p, const struct random_comms *comms, int32_t *action)
{
    struct oracle_walk *w = malloc(sizeof *w);
    const char *why = w ? NULL : "no memory";
    for (int32_t r = 0; r < p->ranks && !why; r++) {
        oracle_walk_start(w, p, comms);
        for (int32_t i = 0; i < p->actions && !why; i++) {
            if (p->action[i].rank == r) {
                why = oracle_walk_step(w, i);
                *action = i;
            }
        }
        for (int32_t e = 0; e < RANDOM_EVENTS && !why; e++)
            why = w->shut[e] ? "a gate stays shut" : NULL;
    }
    free(w);
    return why;
}
