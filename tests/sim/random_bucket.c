/*
 * Gradient buckets in random programs. A step is two actions of each rank: it begins by making gradients ready, in an
 * order and with gaps of the rank's own, and ends with the wait, some statements later. Between them the communicator
 * has no other collective, and nothing else uses the gradients' memory. The result is one in-place reduction of all of
 * them, to which a gradient that was not ready contributes zeros.
 */
#include "sim/random_make.h"
#include "sim/random_run.h"

#include "sim/oracle_machine.h"

#include <commstream/bucket.h>

#include <string.h>

enum { KEY_LIMITS = 3, KEY_ADOPTED = 5, KEY_HELD = 6, KEY_BITS = 7 };

/* ------------------------------------------------------------------------------------------------------------ meaning */
int32_t random_gradients(const struct random_action *a)
{
    return 1 + (a->key & (RANDOM_GRADIENTS - 1));
}

int32_t random_gradient_at(const struct random_action *a, int32_t i)
{
    return a->out + (int32_t)((int64_t)a->n * i / random_gradients(a));
}

/* One of four kinds for each gradient, by rank; tag 0: all are alike. */
static uint32_t draw(const struct random_action *a, int32_t i)
{
    uint64_t x = ((uint64_t)a->tag << 32 | (uint64_t)a->rank << 8 | (uint64_t)i) * UINT64_C(0x9e3779b97f4a7c15);
    return a->tag ? (uint32_t)(x >> 40) & 3 : 1;
}

bool random_is_ready(const struct random_action *a, int32_t i)
{
    return draw(a, i) != 0;
}

/* Whether it is in a held step before; then it need not be in the reduced one. */
static bool is_held(const struct random_action *a, int32_t i)
{
    return (a->key >> KEY_HELD & 1) && draw(a, i) > 1;
}

int32_t random_bucket_calls(const struct random_action *a)
{
    return random_gradients(a);
}

/* ------------------------------------------------------------------------------------------------------------ made */
void make_buckets(struct maker *m)
{
    int32_t comm = make_comm(m), id = make_id(m), step;
    if (comm < 0)
        return;
    struct random_action first = make_action(m, RANDOM_BUCKETS, id, 0, comm);
    first.type = (int32_t)make_chance(m, RANDOM_TRASH);
    first.op = make_op(m, first.type);
    first.n = make_count(m, first.type, 1);
    first.key = (int32_t)make_chance(m, 1 << KEY_BITS);
    first.tag = make_chance(m, 2) ? 1 + (int32_t)make_chance(m, 1000) : 0;
    first.flags = RANDOM_NO_REQUEST;
    step = m->step + (int32_t)make_chance(m, 5);
    for (int32_t i = 0; i < m->comms.comm[comm].members; i++) {
        struct random_action a = first, wait = make_action(m, RANDOM_BUCKETS_WAIT, id, 0, comm);
        a.rank = wait.rank = m->comms.comm[comm].world[i];
        make_range(m, &a, 1);
        make_add(m, a);
        make_later(m, wait, step);
    }
    m->state.steps[comm] = m->comms.comm[comm].members;
}

/* ------------------------------------------------------------------------------------------------------------ run */
static size_t limit_of(const struct random_action *a)
{
    size_t bytes = (size_t)a->n * (size_t)random_unit(a->type);
    return 1 + (bytes >> (a->key >> KEY_LIMITS & 3));
}

static enum comm_result make_ready(struct random_run *run, int32_t index, bool held)
{
    const struct random_action *a = &run->p->action[index];
    int32_t count = random_gradients(a), turn = (int32_t)draw(a, count) + a->rank;
    enum comm_result result = COMM_OK;
    for (int32_t k = 0; k < count && result == COMM_OK; k++) {
        int32_t i = (turn & 1 ? count - 1 - k : k + turn) % count;
        if (random_is_ready(a, i) && is_held(a, i) == held)
            result = comm_buckets_ready(run->buckets[index], (size_t)i);
    }
    return result;
}

/* Adopted gradients live elsewhere: the program writes them there, and finds the results there. */
static enum comm_result find_gradients(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    unsigned char *arena = random_arena(run, a->rank, a->type);
    int32_t unit = random_unit(a->type);
    for (int32_t i = 0; i < random_gradients(a); i++) {
        int32_t from = random_gradient_at(a, i), to = random_gradient_at(a, i + 1);
        void *at = NULL;
        enum comm_result result = comm_buckets_data(run->buckets[index], (size_t)i, &at);
        if (result != COMM_OK || (!at && to > from))
            return result != COMM_OK ? result : COMM_ERR_STATE;
        run->gradient[index][i] = at;
        if (a->key >> KEY_ADOPTED & 1 && to > from)
            memcpy(at, arena + (size_t)from * (size_t)unit, (size_t)(to - from) * (size_t)unit);
    }
    return COMM_OK;
}

enum comm_result random_bucket_begin(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_gradient gradient[RANDOM_GRADIENTS];
    unsigned char *arena = random_arena(run, a->rank, a->type);
    const struct comm_bucket_options options = {.size = sizeof options,
                                                .bytes = limit_of(a),
                                                .first_bytes = 1 + limit_of(a) / 2,
                                                .op = (comm_op)a->op,
                                                .adopt = a->key >> KEY_ADOPTED & 1};
    for (int32_t i = 0; i < random_gradients(a); i++) {
        int32_t from = random_gradient_at(a, i), to = random_gradient_at(a, i + 1);
        gradient[i] =
            (struct comm_gradient){arena + (size_t)from * (size_t)random_unit(a->type), (size_t)(to - from), random_types[a->type], 0};
    }
    enum comm_result result =
        comm_buckets_create(run->comm[a->comm][a->rank], gradient, (size_t)random_gradients(a), &options, &run->buckets[index]);
    result = result == COMM_OK ? find_gradients(run, index) : result;
    if (result == COMM_OK && a->key >> KEY_HELD & 1) {
        result = comm_buckets_hold(run->buckets[index], 1);
        result = result == COMM_OK ? make_ready(run, index, true) : result;
        result = result == COMM_OK ? comm_buckets_wait(run->buckets[index], random_patience(run)) : result;
        result = result == COMM_OK ? comm_buckets_hold(run->buckets[index], 0) : result;
    }
    return result == COMM_OK ? make_ready(run, index, false) : result;
}

static void take_back(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    unsigned char *arena = random_arena(run, a->rank, a->type);
    size_t unit = (size_t)random_unit(a->type);
    for (int32_t i = 0; i < random_gradients(a) && (a->key >> KEY_ADOPTED & 1); i++) {
        int32_t from = random_gradient_at(a, i), to = random_gradient_at(a, i + 1);
        if (to > from)
            memcpy(arena + (size_t)from * unit, run->gradient[index][i], (size_t)(to - from) * unit);
    }
}

static void drop(struct random_run *run, int32_t index)
{
    comm_buckets_free(run->buckets[index]);
    run->buckets[index] = NULL;
}

void random_bucket_wait(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    int32_t begun = random_find(run->p, a->id, a->rank, index);
    enum comm_result result = COMM_ERR_FULL;
    if (begun < 0 || !run->buckets[begun]) {
        run->outcome[index] = run->waited[index] = RANDOM_SKIP;
        return;
    }
    for (int64_t end = run->stage->now() + random_patience(run); result == COMM_ERR_FULL && run->stage->now() < end;) {
        result = comm_buckets_wait(run->buckets[begun], random_patience(run));
        if (result == COMM_ERR_FULL && comm_progress(run->comm[a->comm][a->rank]) == COMM_OK)
            run->stage->spend(20000);
    }
    if (result == COMM_PENDING || result == COMM_ERR_FULL)
        random_fail(run, index, "I4: not complete after %d s", (int)(random_patience(run) / RANDOM_S));
    run->outcome[index] = run->waited[index] = result;
    if (result == COMM_OK) {
        const struct random_action *b = &run->p->action[begun];
        take_back(run, begun);
        run->looked[index] = true;
        run->seen[index] = oracle_hash_range(random_arena(run, b->rank, b->type), random_touched(b, &run->view[b->rank]).write, b->type);
    }
    drop(run, begun);
}

void random_bucket_drop(struct random_run *run, int32_t comm, int32_t rank)
{
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        if (a->comm == comm && a->rank == rank && run->buckets[i]) /* in this order: other ranks' buckets belong to their threads */
            drop(run, i);
    }
}
