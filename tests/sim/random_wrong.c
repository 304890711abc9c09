/* Misuse: in a correct program one rank does one action differently, or a communicator is given up. */
#include "sim/random_make.h"

#include "conform/oracle.h"

/* Whether ranks see two calls as equal. They compare no more than this: for a length that only the root knows neither
 * type nor n, and no operator or root if the call has none. */
static bool same_call(const struct random_action *a, const struct random_action *b)
{
    bool ragged = (a->flags & RANDOM_RAGGED) != 0; /* lengths are compared only at each edge, and may all be equal */
    if (a->verb != b->verb || ragged != ((b->flags & RANDOM_RAGGED) != 0))
        return false;
    if ((random_rooted(a->verb) && a->root != b->root) || (random_reduces(a->verb) && a->op != b->op))
        return false;
    if (a->verb == RANDOM_BARRIER || (ragged && a->verb == RANDOM_BROADCAST))
        return true;
    return a->type == b->type && (ragged || a->n == b->n);
}

/* The rank's next collective on that communicator, -1: none. */
static int32_t next_call(const struct random_program *p, int32_t index)
{
    const struct random_action *a = &p->action[index];
    for (int32_t i = index + 1; i < p->actions; i++) {
        const struct random_action *b = &p->action[i];
        bool nothing = b->verb == RANDOM_BUCKETS && b->n == 0; /* empty buckets make no call */
        if (b->rank == a->rank && b->comm == a->comm && random_is_collective(b->verb) && b->plan < 0 && !nothing)
            return i;
    }
    return -1;
}

/* Whether this change is a mistake that some rank can notice: calls that look alike can replace each other. */
static bool fits(const struct random_program *p, const struct random_comms *comms, int32_t index, int32_t misuse)
{
    const struct random_action *a = &p->action[index];
    int32_t next = next_call(p, index), most;
    bool plain = a->verb < RANDOM_REFUSED && a->plan < 0, member = a->verb < RANDOM_REFUSED && (plain || a->plan >= RANDOM_GROUPS);
    bool data = member && a->verb != RANDOM_BARRIER;
    bool ragged = (a->flags & RANDOM_RAGGED) != 0, bytes = ragged && a->verb == RANDOM_BROADCAST;
    if (misuse == RANDOM_DESTROYS)
        return a->verb == RANDOM_SET;
    if (comms->comm[a->comm].members < 2)
        return false;
    switch (misuse) {
    case RANDOM_OTHER_OP:
        return member && random_reduces(a->verb) && a->op <= COMM_AVG;
    case RANDOM_OTHER_COUNT:
        return data && a->n > 0 && !ragged;
    case RANDOM_OTHER_TYPE: /* a type that fits the operator; otherwise the call is refused */
        return data && !bytes && (!random_reduces(a->verb) || a->op == COMM_SUM || a->op == COMM_MIN || a->op == COMM_MAX);
    case RANDOM_OTHER_ROOT:
        most = a->out + a->n * random_blocks_out(a->verb, comms->comm[a->comm].members); /* what it receives as the root that it is not */
        return plain && random_rooted(a->verb) && (a->in >= 0 || a->verb == RANDOM_BROADCAST) && most * random_unit(a->type) <= p->bytes &&
               (a->in + a->n * random_blocks_in(a->verb, comms->comm[a->comm].members)) * random_unit(a->type) <= p->bytes;
    case RANDOM_OTHER_VERB:
    case RANDOM_EXTRA:
    case RANDOM_REFUSES:
        return plain;
    case RANDOM_SKIPPED:
        return plain && next >= 0 && !same_call(a, &p->action[next]);
    case RANDOM_LATER: /* with nothing in between that depends on it */
        for (int32_t i = index + 1; i < next; i++) {
            if (p->action[i].rank == a->rank)
                return false;
        }
        return plain && next >= 0 && !same_call(a, &p->action[next]) && p->action[next].verb < RANDOM_REFUSED;
    case RANDOM_CLOSES:
        return plain;
    case RANDOM_REVOKES:
    case RANDOM_ABORTS:
        return random_issues(a);
    default:
        return false;
    }
}

bool random_is_mistake(const struct random_program *p)
{
    struct random_comms comms = {.lacks = {0}};
    random_comms_of(p, &comms);
    for (int32_t i = 0; i < p->actions; i++) {
        if (p->action[i].misuse)
            return fits(p, &comms, i, p->action[i].misuse);
    }
    return false;
}

void make_wrong(struct random_program *p, uint64_t *chance)
{
    struct random_comms comms = {.lacks = {0}};
    random_comms_of(p, &comms);
    for (int32_t tries = 0; tries < 200 && p->actions; tries++) {
        int32_t index = (int32_t)(oracle_random(chance) >> 20) % p->actions;
        int32_t misuse = 1 + (int32_t)((oracle_random(chance) >> 20) % (RANDOM_MISUSES - 1));
        if (index < 0 || !fits(p, &comms, index, misuse))
            continue;
        p->action[index].misuse = misuse;
        return;
    }
}
