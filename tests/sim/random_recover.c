/* Statements outside the queue: agreements, subsets and shrunk communicators; and how a program continues when ranks
 * may have died. */
#include "sim/random_make.h"

/* A new communicator; -1: there are enough. */
static int32_t new_comm(struct maker *m, int32_t maker, bool waits)
{
    int32_t c = m->state.comms;
    if (c == RANDOM_COMMS)
        return -1;
    m->state.comms++;
    m->state.life[c] = waits ? MAKE_LIVE : MAKE_MAKING;
    m->state.maker[c] = maker;
    return c;
}

static int32_t request_flags(struct maker *m)
{
    return make_chance(m, 3) == 0 ? RANDOM_NO_REQUEST : make_chance(m, 8) == 0 ? RANDOM_NOTIFY : 0;
}

/* Some of the members, in an order of their own; other members do not take part. */
void make_subset(struct maker *m)
{
    int32_t comm = make_comm(m), id = make_id(m), flags = request_flags(m), tag = (int32_t)make_chance(m, 3);
    if (comm < 0)
        return;
    uint32_t some = 1 + make_chance(m, (1u << m->comms.comm[comm].members) - 1);
    int32_t child = new_comm(m, id, flags & RANDOM_NO_REQUEST), members = m->comms.comm[comm].members;
    if (child < 0) {
        m->bad = true;
        return;
    }
    for (int32_t i = 0; i < members; i++) {
        if (!(some >> i & 1))
            continue;
        struct random_action a = make_action(m, RANDOM_SUBSET, id, m->comms.comm[comm].world[i], comm);
        a.child = child;
        a.key = (int32_t)make_chance(m, 4);
        a.tag = tag;
        a.flags = flags;
        make_add(m, a);
    }
}

void make_end_of_shrink(struct maker *m, int32_t comm)
{
    int32_t target = m->state.shrinking[comm] - 1, id = make_id(m);
    m->state.shrinking[comm] = 0;
    for (int32_t i = 0; target >= 0 && i < m->comms.comm[comm].members; i++) {
        struct random_action wait = make_action(m, RANDOM_HOST_WAIT, id, m->comms.comm[comm].world[i], comm);
        wait.target = target;
        make_add(m, wait);
    }
}

static void shrink(struct maker *m, int32_t comm)
{
    int32_t id, flags = request_flags(m);
    make_end_of_shrink(m, comm);
    id = make_id(m);
    int32_t child = new_comm(m, id, flags & RANDOM_NO_REQUEST);
    if (child < 0) {
        m->bad = true;
        return;
    }
    m->state.shrinking[comm] = flags & RANDOM_NO_REQUEST ? 0 : id + 1;
    for (int32_t i = 0; i < m->comms.comm[comm].members; i++) {
        struct random_action a = make_action(m, RANDOM_SHRINK, id, m->comms.comm[comm].world[i], comm);
        a.child = child;
        a.flags = flags;
        make_add(m, a);
    }
}

void make_shrunk(struct maker *m)
{
    int32_t comm = make_comm(m);
    if (comm >= 0)
        shrink(m, comm);
}

static void agree(struct maker *m, int32_t comm)
{
    make_end_of_shrink(m, comm);
    int32_t id = make_id(m);
    for (int32_t i = 0; i < m->comms.comm[comm].members; i++)
        make_add(m, make_action(m, RANDOM_AGREE, id, m->comms.comm[comm].world[i], comm));
}

void make_agreement(struct maker *m)
{
    int32_t comm = make_comm(m);
    if (comm >= 0)
        agree(m, comm);
}

/* ------------------------------------------------------------------------------------------------------------ continuing */
/* Everything issued so far has ended, with success or not. */
static void settle_all(struct maker *m)
{
    for (int32_t c = m->state.floor; c < m->state.comms; c++) {
        int32_t id = make_id(m);
        if (m->state.life[c] != MAKE_LIVE)
            continue;
        make_end_of_shrink(m, c);
        for (int32_t i = 0; i < m->comms.comm[c].members; i++)
            make_add(m, make_action(m, RANDOM_SYNC, id, m->comms.comm[c].world[i], c));
    }
}

/* Forgets everything before: events hold no point, and the host owns all memory, whose contents are known. */
static void begin_anew(struct maker *m, int32_t comm)
{
    for (int32_t e = 0; e < RANDOM_EVENTS; e++) {
        int32_t id = make_id(m);
        for (int32_t r = 0; r < m->p->ranks; r++) {
            struct random_action renew = make_action(m, RANDOM_RENEW, id, r, comm);
            renew.event = e;
            if (m->comms.comm[comm].rank_of[r] >= 0)
                make_add(m, renew);
        }
    }
    for (int32_t t = 0; t < RANDOM_TRASH; t++) {
        int32_t id = make_id(m);
        for (int32_t r = 0; r < m->p->ranks; r++) {
            struct random_action fill = make_action(m, RANDOM_FILL, id, r, 0);
            fill.type = t;
            fill.n = m->p->bytes / random_unit(t);
            if (m->comms.comm[comm].rank_of[r] >= 0)
                make_add(m, fill);
        }
    }
}

bool make_recovery(struct maker *m)
{
    int32_t from = m->state.floor;
    if (m->state.life[from] != MAKE_LIVE || m->state.life[0] != MAKE_LIVE || m->state.comms == RANDOM_COMMS)
        return false;
    settle_all(m);
    if (make_chance(m, 2))
        agree(m, from);
    shrink(m, from);
    m->state.floor = m->state.comms - 1;
    int32_t next = make_comm(m); /* and all ranks wait for it */
    if (next >= 0)
        begin_anew(m, next);
    return true;
}
