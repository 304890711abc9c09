/* How an action becomes entries of the lines: their kind, how many places of the queue they take, and their number in
 * the communicator. */
#include "sim/oracle_machine.h"

#include <string.h>

void oracle_wrong(struct oracle *o, int32_t at, const char *why)
{
    if (!o->wrong) {
        o->wrong = why;
        o->wrong_at = at;
    }
}

static int16_t slot_for(struct oracle *o, int32_t comm, int32_t number)
{
    if (number >= ORACLE_SLOTS / 2) {
        oracle_wrong(o, 0, "too many collectives");
        return 0;
    }
    int16_t *at = &o->slot_of[comm][number];
    if (*at < 0) {
        if (o->slots == ORACLE_SLOTS) {
            oracle_wrong(o, 0, "too many collectives");
            return 0;
        }
        *at = o->slots++;
        memset(&o->slot[*at], 0, sizeof o->slot[0]);
        memset(o->slot[*at].entry, -1, sizeof o->slot[0].entry);
    }
    return *at;
}

static int32_t kind_of(const struct random_action *a)
{
    switch (a->verb) {
    case RANDOM_SEND:
        return ORACLE_SEND;
    case RANDOM_RECV:
        return ORACLE_RECV;
    case RANDOM_ATOMIC:
        return ORACLE_ATOMIC;
    case RANDOM_SUBSET:
    case RANDOM_SHRINK:
    case RANDOM_AGREE:
        return ORACLE_BESIDE;
    case RANDOM_BARRIER:
        return ORACLE_MEET;
    case RANDOM_REFUSED:
        return ORACLE_REFUSED;
    case RANDOM_WAIT_EVENT:
    case RANDOM_WAIT_REQUEST:
        return ORACLE_FENCE;
    default:
        return ORACLE_WORK;
    }
}

/* Entries of the queue: a creating call has one for each of its stages. */
int32_t oracle_places(const struct random_action *a)
{
    switch (a->verb) {
    case RANDOM_SUBSET:
    case RANDOM_SHRINK:
    case RANDOM_SEND:
    case RANDOM_RECV:
    case RANDOM_ATOMIC:
    case RANDOM_AGREE:
    case RANDOM_BUCKETS_WAIT:
        return 0;
    case RANDOM_BUCKETS:
        return random_bucket_calls(a);
    case RANDOM_SPLIT:
        return 3;
    case RANDOM_DUP:
    case RANDOM_WINDOW_FREE: /* it begins with a fence */
        return 2;
    case RANDOM_BROADCAST:
        return a->flags & RANDOM_RAGGED ? 2 : 1;
    default:
        return 1;
    }
}

void oracle_put(struct oracle *o, int32_t action, int32_t issue, struct oracle_point point)
{
    const struct random_action *a = &o->program->action[action];
    struct oracle_line *line = &o->line[a->comm][a->rank];
    if (o->entries == ORACLE_ENTRIES) {
        oracle_wrong(o, action, "too many entries");
        return;
    }
    int16_t index = (int16_t)o->entries++;
    struct oracle_entry *e = &o->entry[index];
    *e = (struct oracle_entry){.action = (int16_t)action, .issue = (int16_t)issue, .comm = (int8_t)a->comm, .rank = (int8_t)a->rank};
    e->kind = (int8_t)kind_of(a);
    e->next = e->slot = ORACLE_NONE;
    e->serial = ++line->serial;
    e->point = point;
    if (random_is_collective(a->verb) || a->verb == RANDOM_WINDOW_FREE) {
        e->slot = slot_for(o, a->comm, line->numbers++);
        o->slot[e->slot].entry[o->comms.comm[a->comm].rank_of[a->rank]] = index;
    }
    if (line->head < 0)
        line->head = index;
    else
        o->entry[line->tail].next = index;
    line->tail = index;
    line->work += oracle_is_message(e) ? 0 : oracle_places(a);
    line->messages += oracle_is_message(e);
    o->left[issue]++;
}

/* How many places an action takes among work, and among messages. */
static void count_places(const struct oracle *o, const struct random_action *a, int32_t *work, int32_t *messages)
{
    bool message = random_beside(a->verb) || a->verb == RANDOM_AGREE;
    *messages = message;
    *work = random_starts(a->verb) || message ? 0 : oracle_places(a);
    for (int32_t i = 0; random_starts(a->verb) && i < o->owns[a->rank]; i++) {
        const struct random_action *b = &o->program->action[o->own[a->rank][i]];
        if (b->plan != a->plan || b->comm != a->comm || random_starts(b->verb))
            continue;
        *work += random_is_collective(b->verb) ? oracle_places(b) : 0;
        *messages += b->verb == RANDOM_SEND || b->verb == RANDOM_RECV;
    }
}

bool oracle_issue(struct oracle *o, int32_t index)
{
    const struct random_action *a = &o->program->action[index];
    struct oracle_line *line = &o->line[a->comm][a->rank];
    const struct oracle_point none = {ORACLE_REACHED, 0, 0};
    int32_t work, messages;
    count_places(o, a, &work, &messages);
    if (line->work + work > o->program->queue || line->messages + messages > o->program->queue)
        return false;
    o->left[index] = 0;
    if (!random_starts(a->verb)) {
        oracle_put(o, index, index, none);
        return true;
    }
    for (int32_t i = 0; i < o->owns[a->rank]; i++) {
        int32_t member = o->own[a->rank][i];
        const struct random_action *b = &o->program->action[member];
        if (b->plan == a->plan && b->verb <= RANDOM_RECV && !random_starts(b->verb) && b->comm == a->comm && member < index)
            oracle_put(o, member, index, none);
    }
    return true;
}
