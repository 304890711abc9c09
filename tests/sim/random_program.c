/* The meaning of actions without running them: the members of a communicator, and the memory that an action accesses. */
#include "sim/random_program.h"

#include "conform/oracle.h"

#include <string.h>

const enum comm_type random_types[RANDOM_ARENAS] = {COMM_F32, COMM_I32, COMM_BF16, COMM_U8, COMM_BYTE};

int32_t random_unit(int32_t type)
{
    return (int32_t)oracle_type_bytes(random_types[type]);
}
bool random_is_collective(int32_t verb)
{
    return verb <= RANDOM_DUP;
}
bool random_has_request(int32_t verb)
{
    return verb <= RANDOM_RECV;
}
bool random_creates(int32_t verb)
{
    return verb == RANDOM_SPLIT || verb == RANDOM_DUP || verb == RANDOM_SUBSET || verb == RANDOM_SHRINK;
}
bool random_issues(const struct random_action *a)
{
    return random_starts(a->verb) || (a->verb <= RANDOM_RECV && a->plan < 0);
}
bool random_reduces(int32_t verb)
{
    return verb == RANDOM_REDUCE || verb == RANDOM_ALLREDUCE || verb == RANDOM_SCATTERED || verb == RANDOM_SCAN || verb == RANDOM_EXSCAN;
}
bool random_rooted(int32_t verb)
{
    return verb == RANDOM_BROADCAST || verb == RANDOM_REDUCE || verb == RANDOM_GATHER || verb == RANDOM_SCATTER;
}

/* The number of blocks of n elements in `in` and in `out` of the rank that has most. */
int32_t random_blocks_in(int32_t verb, int32_t members)
{
    return verb == RANDOM_SCATTERED || verb == RANDOM_SCATTER || verb == RANDOM_ALLTOALL ? members : 1;
}
int32_t random_blocks_out(int32_t verb, int32_t members)
{
    return verb == RANDOM_ALLGATHER || verb == RANDOM_GATHER || verb == RANDOM_ALLTOALL ? members : 1;
}

/* The length of a v form's k-th block: neighbours differ, and some are empty. */
static int32_t part(const struct random_action *a, int32_t k)
{
    const int32_t parts[] = {a->n, a->n / 2, 0, a->n - a->n / 3};
    return parts[(a->key + k) & 3];
}

int32_t random_block(const struct random_action *a, int32_t from, int32_t to)
{
    if (!(a->flags & RANDOM_RAGGED))
        return a->n;
    switch (a->verb) {
    case RANDOM_ALLTOALL:
        return part(a, 2 * from + to);
    case RANDOM_ALLGATHER:
    case RANDOM_GATHER:
        return part(a, from);
    case RANDOM_SCATTER:
    case RANDOM_SCATTERED:
        return part(a, to);
    default:
        return a->n;
    }
}

int32_t random_in_at(const struct random_action *a, int32_t members, int32_t me, int32_t to)
{
    int32_t at = 0;
    if (random_blocks_in(a->verb, members) == 1 && members > 1)
        return to == members ? random_block(a, me, 0) : 0;
    for (int32_t i = 0; i < to; i++)
        at += random_block(a, me, i);
    return at;
}

int32_t random_out_at(const struct random_action *a, int32_t members, int32_t me, int32_t from)
{
    int32_t at = 0;
    if (random_blocks_out(a->verb, members) == 1 && members > 1)
        return from == members ? random_block(a, 0, me) : 0;
    for (int32_t i = 0; i < from; i++)
        at += random_block(a, i, me);
    return at;
}

static void make_child(const struct random_program *p, int32_t first, int32_t child, struct random_comms *comms)
{
    struct random_comm *made = &comms->comm[child];
    const struct random_comm *parent = &comms->comm[p->action[first].comm];
    int32_t keys[RANDOM_RANKS];
    made->parent = p->action[first].comm;
    made->maker = p->action[first].verb;
    made->members = 0;
    for (int32_t i = 0; i < p->actions; i++) {
        const struct random_action *a = &p->action[i];
        if (a->id != p->action[first].id || a->child != child || !random_creates(a->verb) || parent->rank_of[a->rank] < 0 ||
            (comms->lacks[child] >> a->rank & 1))
            continue;
        int32_t at = made->members++, order = a->verb == RANDOM_SPLIT || a->verb == RANDOM_SUBSET ? a->key : 0;
        for (; at > 0; at--) {
            bool before =
                keys[at - 1] < order || (keys[at - 1] == order && parent->rank_of[made->world[at - 1]] < parent->rank_of[a->rank]);
            if (before)
                break;
            keys[at] = keys[at - 1];
            made->world[at] = made->world[at - 1];
        }
        keys[at] = order;
        made->world[at] = a->rank;
    }
    for (int32_t i = 0; i < made->members; i++)
        made->rank_of[made->world[i]] = i;
}

void random_comms_of(const struct random_program *p, struct random_comms *comms)
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        comms->comm[c].members = 0;
        comms->comm[c].parent = comms->comm[c].maker = -1;
        for (int32_t r = 0; r < RANDOM_RANKS; r++)
            comms->comm[c].rank_of[r] = -1;
    }
    comms->comm[0].members = p->ranks;
    for (int32_t r = 0; r < p->ranks; r++)
        comms->comm[0].world[r] = comms->comm[0].rank_of[r] = r;
    for (int32_t i = 0; i < p->actions; i++) {
        const struct random_action *a = &p->action[i];
        if (random_creates(a->verb) && a->child > 0 && comms->comm[a->child].members == 0)
            make_child(p, i, a->child, comms);
    }
}

bool random_absent(const struct random_action *a, const struct random_comms *comms)
{
    const struct random_comm *comm = &comms->comm[a->comm];
    bool peers = a->verb == RANDOM_SEND || a->verb == RANDOM_RECV || a->verb == RANDOM_PROBE || a->verb == RANDOM_ATOMIC;
    if (comm->rank_of[a->rank] < 0)
        return true;
    if (random_rooted(a->verb) && a->root >= 0 && comm->rank_of[a->root] < 0)
        return true;
    return peers && a->peer >= 0 && comm->rank_of[a->peer] < 0;
}

bool random_emptied(const struct random_program *p, int32_t index, const struct random_comms *comms)
{
    const struct random_action *a = &p->action[index];
    bool any = false;
    for (int32_t i = 0; i < index && random_starts(a->verb); i++) {
        const struct random_action *b = &p->action[i];
        bool frame = random_starts(b->verb) || (b->verb >= RANDOM_PLAN_BEGIN && b->verb <= RANDOM_PLAN_FREE);
        bool part = b->rank == a->rank && b->plan == a->plan && !frame;
        if (part && !random_absent(b, comms))
            return false;
        any = any || part;
    }
    return any;
}

struct random_touch random_touched(const struct random_action *a, const struct random_comms *comms)
{
    const struct random_comm *comm = &comms->comm[a->comm < 0 ? 0 : a->comm];
    struct random_touch touch = {{0, 0}, {0, 0}};
    int32_t unit = random_unit(a->type), members = comm->members, verb = a->verb;
    bool root = a->root == a->rank;
    int32_t me = comm->rank_of[a->rank];
    int32_t in_n = random_in_at(a, members, me, members), out_n = random_out_at(a, members, me, members);
    struct random_range in = {a->in * unit, (a->in + in_n) * unit};
    struct random_range out = {a->out * unit, (a->out + out_n) * unit};
    switch (verb) {
    case RANDOM_SEND:
        touch.read = in;
        return touch;
    case RANDOM_BUCKETS:
        touch.read = touch.write = out;
        return touch;
    case RANDOM_RECV:
    case RANDOM_FILL:
        touch.write = out;
        return touch;
    case RANDOM_BROADCAST:
        *(root ? &touch.read : &touch.write) = out;
        return touch;
    case RANDOM_SCATTER:
        touch.read = root ? in : touch.read;
        touch.write = out;
        return touch;
    case RANDOM_REDUCE:
    case RANDOM_GATHER:
        touch.read = in;
        touch.write = root ? out : touch.write;
        break;
    case RANDOM_ALLREDUCE:
    case RANDOM_ALLGATHER:
    case RANDOM_SCATTERED:
    case RANDOM_SCAN:
    case RANDOM_EXSCAN:
    case RANDOM_ALLTOALL:
        touch.read = in;
        touch.write = out;
        break;
    default:
        return touch;
    }
    if (a->in < 0) { /* in place: all of the larger one */
        touch.write = (struct random_range){a->out * unit, (a->out + (in_n > out_n ? in_n : out_n)) * unit};
        touch.read = touch.write;
    }
    return touch;
}

bool random_conflict(const struct random_action *a, const struct random_action *b, const struct random_comms *comms)
{
    if (a->type != b->type)
        return false;
    struct random_touch x = random_touched(a, comms), y = random_touched(b, comms);
    return random_overlap(x.write, y.write) || random_overlap(x.write, y.read) || random_overlap(x.read, y.write);
}

int32_t random_find(const struct random_program *p, int32_t id, int32_t rank, int32_t before)
{
    for (int32_t i = before - 1; i >= 0; i--) {
        if (p->action[i].id == id && p->action[i].rank == rank && random_issues(&p->action[i]))
            return i;
    }
    return -1;
}
