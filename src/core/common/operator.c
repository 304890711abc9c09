/*
 * User-defined operators and pre-multiplied sums: each world has a table of them. An operator's number names a row and how
 * often the row has been used, so that a freed operator is distinguished from its successor. An operation holds its
 * operator until it is retired.
 *
 * Numbers are local to this rank. Ranks compare an operator's name, element size and order; of a pre-multiplied sum not the
 * factor.
 */
#include "common/operator.h"

#include "base/hash.h"

#include <commstream/collective.h>
#include <string.h>

enum { ROWS_FIRST = 16, ROW_BITS = 20, USE_BITS = 10 };
_Static_assert(ROW_BITS + USE_BITS == 30, "what is left of a comm_op beside its two top bits");

struct user_op {
    struct data_user user; /* first: the kernel gets it as its context */
    const struct comm_env *env;
    _Atomic uint32_t references;
    uint32_t identity;
};

struct user_op_row {
    struct user_op *own; /* NULL: free */
    uint32_t uses;
    comm_op number;
};

static uint32_t identity_of(const struct comm_op_options *options)
{
    uint64_t hash = base_hash(options->element_bytes, options->ordered != 0);

    for (const char *at = options->name; at && *at; at++)
        hash = base_hash(hash, (unsigned char)*at);
    return (uint32_t)(hash ^ hash >> 32);
}

static void drop(struct user_op *own)
{
    if (atomic_fetch_sub_explicit(&own->references, 1, memory_order_acq_rel) == 1)
        own->env->give(own->env, own, sizeof *own);
}

/* Under the world's operator lock. NULL: no operator has this number. */
static struct user_op_row *find(const struct world *w, comm_op op)
{
    uint32_t row = op & ((1u << ROW_BITS) - 1);

    return row < w->operator_room && w->operators[row].own && w->operators[row].number == op ? &w->operators[row] : NULL;
}

struct user_op *operator_hold(struct world *w, comm_op op)
{
    base_lock(&w->operator_lock, w->engine->env);
    struct user_op_row *row = find(w, op);
    struct user_op *own = row ? row->own : NULL;
    if (own)
        atomic_fetch_add_explicit(&own->references, 1, memory_order_relaxed);
    base_unlock(&w->operator_lock, w->engine->env);
    return own;
}

void operator_drop(struct user_op *own)
{
    drop(own);
}

static struct run_element element_of(const struct user_op *own)
{
    return (struct run_element){
        .raw = 1, .partial = 1, .grain = own->user.element_bytes, .reduce = data_reduce_user, .context = &own->user};
}

size_t operator_scratch(const struct user_op *own, const struct comm_program *program, const struct run_call *call,
                        const struct wire_channel *channel, int32_t size)
{
    struct run_element element = element_of(own);

    return own->user.fn ? run_scratch_bytes_as(program, call, channel, size, &element) : run_scratch_bytes(program, call, channel, size);
}

size_t operator_beside(const struct user_op *own, uint32_t collective, size_t input)
{
    bool fills_out = collective == COLLECTIVE_ALLREDUCE || collective == COLLECTIVE_SCAN;

    return own->user.fn || fills_out ? 0 : input;
}

void operator_start(const struct user_op *own, struct run *run, const struct comm_program *program, size_t input, void *beside)
{
    struct run_element element = element_of(own);
    void *product = beside ? beside : run->call.out;

    if (own->user.fn) {
        run_start_as(run, program, &element);
        return;
    }
    data_scale(product, run->call.in, input / data_type_bytes(run->call.type), &own->user.scale);
    run->call.in = product;
    run->call.op = COMM_SUM;
    run_start(run, program);
}

uint32_t operator_identity(struct world *w, comm_op op)
{
    struct user_op *own = operator_hold(w, op);
    uint32_t identity = own ? own->identity | OPERATOR_USER : op;

    if (own)
        drop(own);
    return identity;
}

/* Returns a free row, or NULL: no memory, or the numbers are used up. */
static struct user_op_row *free_row(struct world *w, const struct comm_env *env)
{
    for (uint32_t i = 0; i < w->operator_room; i++)
        if (!w->operators[i].own)
            return &w->operators[i];
    uint32_t room = w->operator_room ? w->operator_room * 2 : ROWS_FIRST;
    struct user_op_row *more = room <= 1u << ROW_BITS ? env->take(env, room * sizeof *more, 64) : NULL;
    if (!more)
        return NULL;
    if (w->operators) {
        memcpy(more, w->operators, w->operator_room * sizeof *more);
        env->give(env, w->operators, w->operator_room * sizeof *more);
    }
    struct user_op_row *first = &more[w->operator_room];
    w->operators = more;
    w->operator_room = room;
    return first;
}

enum comm_result operator_create(struct world *w, const struct data_user *user, const struct comm_op_options *options, comm_op *op)
{
    const struct comm_env *env = w->engine->env;
    struct user_op *own = env->take(env, sizeof *own, 64);

    if (!own)
        return COMM_ERR_MEMORY;
    *own = (struct user_op){.user = *user, .env = env, .identity = identity_of(options)};
    own->user.scale.isa = w->engine->isa;
    atomic_store_explicit(&own->references, 1, memory_order_relaxed);
    base_lock(&w->operator_lock, env);
    struct user_op_row *row = free_row(w, env);
    if (row) {
        row->own = own;
        row->uses++;
        row->number = OPERATOR_USER | (user->fn ? 0 : OPERATOR_PREMUL) | (row->uses & ((1u << USE_BITS) - 1)) << ROW_BITS |
                      (uint32_t)(row - w->operators);
        *op = row->number;
    }
    base_unlock(&w->operator_lock, env);
    if (!row)
        drop(own);
    return row ? COMM_OK : COMM_ERR_MEMORY;
}

void operator_free(struct world *w, comm_op op)
{
    base_lock(&w->operator_lock, w->engine->env);
    struct user_op_row *row = find(w, op);
    struct user_op *gone = row ? row->own : NULL;
    if (row)
        row->own = NULL;
    base_unlock(&w->operator_lock, w->engine->env);
    if (gone)
        drop(gone);
}

size_t operator_bytes(struct world *w, comm_op op, enum comm_type *type)
{
    struct user_op *own = operator_hold(w, op);
    size_t bytes = own ? own->user.element_bytes : 0;

    *type = own && !own->user.fn ? own->user.scale.type : COMM_BYTE;
    if (own)
        drop(own);
    return bytes;
}

void operators_close(struct world *w)
{
    const struct comm_env *env = w->engine->env;

    for (uint32_t i = 0; i < w->operator_room; i++)
        if (w->operators[i].own)
            drop(w->operators[i].own);
    env_give_back(env, w->operators, w->operator_room * sizeof *w->operators);
}
