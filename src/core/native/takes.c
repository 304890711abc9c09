/* Which calls the library takes, and which are left to programs. The answer must be the same on all ranks. */
#include "native/takes.h"

#include "base/format.h"

static bool reduces(uint32_t collective)
{
    return collective == COLLECTIVE_REDUCE || collective == COLLECTIVE_ALLREDUCE || collective == COLLECTIVE_REDUCE_SCATTER ||
           collective == COLLECTIVE_REDUCE_SCATTER_V || collective == COLLECTIVE_SCAN || collective == COLLECTIVE_EXSCAN;
}

/* Integer sums wrap and bit operations have no rounding, so any order gives the same result. */
static bool order_matters(enum comm_type type)
{
    return type >= COMM_F8E4M3 && type != COMM_I32_INDEX && type != COMM_I64_INDEX;
}

data_reduce_fn *native_reducer(const struct comm_state *b, uint32_t collective, enum comm_type type, comm_op op)
{
    if (!(b->library_work.flags & NATIVE_FOLDS) || !reduces(collective))
        return NULL;
    if (op & OPERATOR_USER && !operator_is_premul(op))
        return data_reduce_user;
    return data_reducer(type, op & OPERATOR_USER ? COMM_SUM : op, b->unit.engine->isa);
}

bool native_is_exact(const struct comm_state *b, uint32_t collective, enum comm_type type, comm_op op)
{
    bool own = op & OPERATOR_USER && !operator_is_premul(op);

    return reduces(collective) && (own || (b->terms.fixed_order && order_matters(type)));
}

static struct native_call call_of(const struct comm_state *b, const struct engine_call *call)
{
    return (struct native_call){.collective = call->collective,
                                .type = call->type,
                                .op = call->op,
                                .root = call->root,
                                .in = call->in,
                                .out = call->out,
                                .n = call->n,
                                .element_bytes = data_type_bytes(call->type),
                                .counts = call->counts,
                                .displs = call->displs,
                                .in_counts = call->in_counts,
                                .in_displs = call->in_displs,
                                .on_device = (call->on_device & CALL_ON_DEVICE) == CALL_ON_DEVICE,
                                .reduce = native_reducer(b, call->collective, call->type, call->op),
                                .scale = operator_is_premul(call->op) ? data_scale : NULL,
                                .exact = native_is_exact(b, call->collective, call->type, call->op)};
}

bool native_is_device_memory(struct comm_state *b, const void *memory)
{
    struct CUstream_st *stream;
    struct device *d = b->library_work.flags & NATIVE_STREAM && b->native->native->class->stream
                           ? b->native->native->class->stream(b->native, NULL, &stream)
                           : NULL;

    return d && memory && d->class->kind(d, memory) != DEVICE_HOST;
}

void native_name_algorithm(const struct comm_state *b, const struct native_call *call, struct entry *e)
{
    const struct native_class *class = b->native->native->class;
    const char *how;

    if (BASE_UNLIKELY(class->algorithm != NULL))
        e->record.algorithm = class->algorithm(b->native, call, &how);
}

static bool is_forced(const struct comm_state *b, uint32_t collective)
{
    return state_forced(b) && algo_is_forced(state_forced(b), collective);
}

const char *native_algorithm(struct comm_state *b, const struct engine_call *call, const char **how)
{
    const struct native_class *class = b->native->native->class;
    struct native_call native = call_of(b, call);
    const char *name = class->algorithm ? class->algorithm(b->native, &native, how) : class->name;

    return name == class->name || b->world->order_block || is_forced(b, call->collective) ? NULL : name;
}

/* Returns UNSUPPORTED, so that a program does the call. Programs cannot read device memory, so calls on it are refused. */
static enum comm_result leave_to_program(struct comm_state *b, const struct engine_call *call, const char *why)
{
    if (!native_is_device_memory(b, call->in) && !native_is_device_memory(b, call->out))
        return COMM_ERR_UNSUPPORTED;
    base_format(b->failure.last_refused.text, sizeof b->failure.last_refused.text, "the buffers are a device's: %s", why);
    return COMM_ERR_ARGUMENT;
}

enum comm_result native_takes(struct comm_state *b, const struct engine_call *call)
{
    if (call->collective == COLLECTIVE_SPLIT || call->collective == COLLECTIVE_DUP || call->collective == COLLECTIVE_WINDOW ||
        call->collective == COLLECTIVE_MEMORY)
        return COMM_ERR_UNSUPPORTED;
    bool folds = (b->library_work.flags & (NATIVE_FOLDS | NATIVE_DEVICE)) && !b->world->order_block; /* with the host's bits */
    bool is_ordered = (b->terms.fixed_order || b->world->order_block) && reduces(call->collective) && order_matters(call->type);
    if (is_ordered && !folds) /* a fixed order is never silently relaxed */
        return leave_to_program(b, call, "fixed order was asked for, and only programs on host memory have that");
    if (call->collective == COLLECTIVE_GROUP || call->collective == COLLECTIVE_BROADCAST_BYTES)
        return COMM_ERR_UNSUPPORTED; /* done by programs: their buffers are host memory, or were checked before */
    if (BASE_UNLIKELY(call->op & OPERATOR_USER) && !folds && reduces(call->collective))
        return leave_to_program(b, call, "an operator of the program's own works on host memory");
    if (is_forced(b, call->collective))
        return leave_to_program(b, call, "option algorithm asks for a program, which works on host memory");
    if (BASE_UNLIKELY(b->world->check) && collective_is_ragged(call->collective))
        return leave_to_program(b, call, "with option check the two ends of each edge compare their counts, on host memory");
    struct native_call native = call_of(b, call);
    char why[256];
    enum comm_result r = b->native->native->class->accept(b->native, &native, why, sizeof why);
    if (BASE_UNLIKELY(r != COMM_OK && r != COMM_ERR_UNSUPPORTED))
        base_copy_text(b->failure.last_refused.text, sizeof b->failure.last_refused.text, why);
    return r;
}

bool native_would_overtake(const struct comm_state *b, const struct entry *e)
{
    return BASE_UNLIKELY(b->staged.fetching != 0) && (!e->on_device || b->library_work.flags & NATIVE_DEVICE);
}

bool native_checks_buffers(const struct comm_state *b)
{
    return !(b->library_work.flags & NATIVE_IN_ORDER); /* the CPU cannot read device memory */
}

bool native_may_do_without(const struct comm_state *b, enum comm_result r)
{
    return r == COMM_ERR_UNSUPPORTED && !(b->terms.stream && b->world->native->flags & NATIVE_DEVICE);
}
