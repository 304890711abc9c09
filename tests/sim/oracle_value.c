/*
 * The contents of memory after each action: reductions along the tree of the specified order (conform/oracle.c),
 * everything else copied block by block. It also tracks what can be known: where a request ended with an error, its
 * range is unknown, and so is everything computed from it.
 */
#include "sim/oracle_machine.h"

#include "conform/oracle.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ memory */
bool oracle_memory_make(struct oracle_memory *m, const struct random_program *p)
{
    memset(m, 0, sizeof *m);
    m->program = p;
    m->scratch = malloc((size_t)p->bytes * (RANDOM_RANKS + 1));
    for (int32_t r = 0; r < p->ranks; r++) {
        for (int32_t t = 0; t < RANDOM_ARENAS; t++) {
            m->arena[r][t] = malloc((size_t)p->bytes);
            m->known[r][t] = malloc((size_t)p->bytes);
            if (!m->arena[r][t] || !m->known[r][t])
                return false;
            oracle_fill_arena(m->arena[r][t], p, r, t);
            memset(m->known[r][t], t != RANDOM_TRASH, (size_t)p->bytes);
        }
    }
    return m->scratch != NULL;
}

void oracle_forget_spoiled(struct oracle_memory *m, int32_t rank, int32_t type)
{
    if (m->spoiled.to > m->spoiled.from && m->spoiled_rank == rank && m->spoiled_type == type)
        memset(m->known[rank][type] + m->spoiled.from, 0, (size_t)(m->spoiled.to - m->spoiled.from));
}

void oracle_memory_free(struct oracle_memory *m)
{
    for (int32_t r = 0; r < RANDOM_RANKS; r++) {
        for (int32_t t = 0; t < RANDOM_ARENAS; t++) {
            free(m->arena[r][t]);
            free(m->known[r][t]);
        }
    }
    free(m->scratch);
    memset(m, 0, sizeof *m);
}

void oracle_fill_arena(unsigned char *at, const struct random_program *p, int32_t rank, int32_t type)
{
    size_t n = (size_t)(p->bytes / random_unit(type));
    oracle_fill(at, n, random_types[type], COMM_SUM, p->seed * 8 + (uint64_t)type, rank);
}

void oracle_fill_range(unsigned char *arena, const struct random_program *p, const struct random_action *a)
{
    size_t unit = (size_t)random_unit(a->type);
    oracle_fill(arena + (size_t)a->out * unit, (size_t)a->n, random_types[a->type], COMM_SUM, p->seed * 8 + 100 + (uint64_t)a->id, a->rank);
}

/* ------------------------------------------------------------------------------------------------------------ results */
static int32_t place_in(const struct random_action *a, const struct random_comm *comm)
{
    return comm->rank_of[a->rank];
}

struct random_range oracle_result(const struct random_action *a, const struct random_comms *comms)
{
    const struct random_comm *comm = &comms->comm[a->comm];
    int32_t unit = random_unit(a->type), me = place_in(a, comm), from = a->out, n = random_out_at(a, comm->members, me, comm->members);
    bool root = a->root == a->rank;
    switch (a->verb) {
    case RANDOM_BROADCAST:
        n = root ? 0 : n;
        break;
    case RANDOM_REDUCE:
    case RANDOM_GATHER:
        n = root ? n : 0;
        break;
    case RANDOM_SCATTERED:
        from += a->in < 0 ? random_in_at(a, comm->members, me, me) : 0;
        break;
    case RANDOM_EXSCAN:
        n = me > 0 ? n : 0;
        break;
    case RANDOM_ALLREDUCE:
    case RANDOM_BUCKETS:
    case RANDOM_ALLGATHER:
    case RANDOM_SCAN:
    case RANDOM_SCATTER:
    case RANDOM_ALLTOALL:
        break;
    case RANDOM_RECV:
        n = a->flags & (RANDOM_DOOMED | RANDOM_SHORT) ? 0 : a->n;
        break;
    default:
        n = 0;
        break;
    }
    return (struct random_range){from * unit, (from + n) * unit};
}

uint64_t oracle_hash_range(const unsigned char *arena, struct random_range range, int32_t type)
{
    return oracle_hash(arena + range.from, (size_t)((range.to - range.from) / random_unit(type)), random_types[type], 1);
}

static bool range_known(const unsigned char *known, struct random_range range)
{
    return range.to <= range.from || !memchr(known + range.from, 0, (size_t)(range.to - range.from));
}

/* The request of entry e left its result, or ended with an error. */
static void settle_known(const struct oracle *o, struct oracle_memory *m, const struct oracle_entry *e, bool known)
{
    const struct random_action *a = &o->program->action[e->action];
    struct random_range result = oracle_result(a, &o->comms), touched = random_touched(a, &o->comms).write;
    unsigned char *shadow = m->known[a->rank][a->type];
    bool good = !m->outcome || m->outcome[e->issue] == COMM_OK;
    if (!good && touched.to > touched.from)
        memset(shadow + touched.from, 0, (size_t)(touched.to - touched.from));
    if (good && result.to > result.from)
        memset(shadow + result.from, known && a->type != RANDOM_TRASH, (size_t)(result.to - result.from));
    bool spoiled = m->spoiled_rank == a->rank && m->spoiled_type == a->type && random_overlap(result, m->spoiled);
    oracle_forget_spoiled(m, a->rank, a->type);
    if (e->action != e->issue && a->verb != RANDOM_BUCKETS)
        return; /* in a plan: a later member may write there again */
    m->told[e->issue] = good && known && !spoiled;
    m->want[e->issue] = oracle_hash_range(m->arena[a->rank][a->type], result, a->type);
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
struct meeting {
    const struct random_action *at[RANDOM_RANKS];
    unsigned char *arena[RANDOM_RANKS];
    int32_t members;
    size_t block, unit; /* bytes of n elements */
};

static const unsigned char *input(const struct meeting *x, int32_t i)
{
    const struct random_action *a = x->at[i];
    return x->arena[i] + (size_t)(a->in < 0 ? a->out : a->in) * x->unit;
}
static unsigned char *output(const struct meeting *x, int32_t i)
{
    return x->arena[i] + (size_t)x->at[i]->out * x->unit;
}

static void reduce(const struct meeting *x, unsigned char *scratch)
{
    const struct random_action *a = x->at[0];
    const void *in[RANDOM_RANKS];
    int32_t prefix = a->verb == RANDOM_SCAN || a->verb == RANDOM_EXSCAN;
    size_t n = (size_t)random_in_at(a, x->members, 0, x->members), bytes = n * x->unit;
    unsigned char *result = scratch + bytes * (size_t)x->members;
    for (int32_t i = 0; i < x->members; i++) {
        memcpy(scratch + bytes * (size_t)i, input(x, i), bytes);
        in[i] = scratch + bytes * (size_t)i;
    }
    for (int32_t i = 0; i < x->members; i++) {
        int32_t of = !prefix ? x->members : a->verb == RANDOM_SCAN ? i + 1 : i;
        if (of > 0 && (prefix || i == 0))
            oracle_reduce(in, of, n, random_types[a->type], (comm_op)a->op, result);
        size_t at = (size_t)random_in_at(a, x->members, 0, i) * x->unit;
        if (a->verb == RANDOM_SCATTERED)
            memcpy(output(x, i) + (x->at[i]->in < 0 ? at : 0), result + at, (size_t)random_block(a, 0, i) * x->unit);
        else if (of > 0 && (a->verb != RANDOM_REDUCE || a->root == x->at[i]->rank))
            memcpy(output(x, i), result, x->block);
    }
}

/* A gradient that a rank did not make ready contributes zeros. */
static void reduce_gradients(const struct meeting *x, unsigned char *scratch)
{
    for (int32_t i = 0; i < x->members; i++) {
        const struct random_action *a = x->at[i];
        for (int32_t k = 0; k < random_gradients(a); k++) {
            int32_t from = random_gradient_at(a, k), to = random_gradient_at(a, k + 1);
            if (!random_is_ready(a, k) && to > from)
                memset(x->arena[i] + (size_t)from * x->unit, 0, (size_t)(to - from) * x->unit);
        }
    }
    reduce(x, scratch);
}

/* Moves the block of each rank to its destination. */
static void move(const struct meeting *x, unsigned char *scratch)
{
    const struct random_action *a = x->at[0];
    int32_t members = x->members, in_blocks = random_blocks_in(a->verb, members), out_blocks = random_blocks_out(a->verb, members);
    size_t stride = x->block * (size_t)in_blocks; /* of a rank's part in scratch: at least as much as it has */
    for (int32_t i = 0; i < members; i++) {
        bool in_place = x->at[i]->in < 0, placed = in_place && in_blocks < out_blocks; /* its block is already at its destination */
        if (a->verb == RANDOM_SCATTER && (a->root != x->at[i]->rank || in_place))
            continue;
        size_t at = placed ? (size_t)random_out_at(a, members, i, i) * x->unit : 0;
        memcpy(scratch + stride * (size_t)i, input(x, i) + at, (size_t)random_in_at(a, members, i, members) * x->unit);
    }
    for (int32_t to = 0; to < members; to++) {
        if (a->verb == RANDOM_GATHER && a->root != x->at[to]->rank)
            continue;
        for (int32_t from = 0; from < members; from++) {
            if (a->verb == RANDOM_SCATTER && a->root != x->at[from]->rank)
                continue;
            const unsigned char *block = scratch + stride * (size_t)from + (size_t)random_in_at(a, members, from, to) * x->unit;
            size_t at = a->verb == RANDOM_SCATTER ? 0 : (size_t)random_out_at(a, members, to, from) * x->unit;
            memcpy(output(x, to) + at, block, (size_t)random_block(a, from, to) * x->unit);
        }
    }
}

static void broadcast(const struct meeting *x, unsigned char *scratch)
{
    for (int32_t i = 0; i < x->members; i++) {
        if (x->at[i]->rank == x->at[i]->root)
            memcpy(scratch, output(x, i), x->block);
    }
    for (int32_t i = 0; i < x->members; i++)
        memcpy(output(x, i), scratch, x->block);
}

void oracle_collective(struct oracle *o, struct oracle_memory *m, const struct oracle_slot *slot)
{
    struct meeting x = {.members = slot->started};
    bool known = true;
    for (int32_t i = 0; i < x.members; i++) {
        const struct random_action *a = x.at[i] = &o->program->action[o->entry[slot->entry[i]].action];
        x.arena[i] = m->arena[a->rank][a->type];
        known = known && range_known(m->known[a->rank][a->type], random_touched(a, &o->comms).read);
    }
    const struct random_action *a = x.at[0];
    x.unit = (size_t)random_unit(a->type);
    x.block = (size_t)a->n * x.unit;
    if (random_reduces(a->verb))
        reduce(&x, m->scratch);
    else if (a->verb == RANDOM_BUCKETS)
        reduce_gradients(&x, m->scratch);
    else if (a->verb == RANDOM_BROADCAST)
        broadcast(&x, m->scratch);
    else if (a->verb == RANDOM_ALLGATHER || (a->verb >= RANDOM_GATHER && a->verb <= RANDOM_ALLTOALL))
        move(&x, m->scratch);
    for (int32_t i = 0; i < x.members; i++)
        settle_known(o, m, &o->entry[slot->entry[i]], known);
}

void oracle_message(struct oracle *o, struct oracle_memory *m, const struct oracle_entry *send, const struct oracle_entry *recv)
{
    const struct random_action *a = &o->program->action[send->action], *b = &o->program->action[recv->action];
    struct random_range from = random_touched(a, &o->comms).read, to = random_touched(b, &o->comms).write;
    bool known = range_known(m->known[a->rank][a->type], from);
    size_t n = (size_t)((from.to - from.from) / random_unit(a->type));
    /* Of a NaN it is only known that it is one: as another type its bits are unknown. */
    bool as_sent = a->type == b->type || !oracle_has_nan(m->arena[a->rank][a->type] + from.from, n, random_types[a->type]);
    if (!(b->flags & RANDOM_SHORT))
        memmove(m->arena[b->rank][b->type] + to.from, m->arena[a->rank][a->type] + from.from, (size_t)(from.to - from.from));
    m->taken[recv->action] = send->action;
    settle_known(o, m, send, known);
    settle_known(o, m, recv, known && as_sent);
}
