/* Which calls are small exchanges, and what such a call is for this rank: from its program's exchange as data, its counts, and the team. */
#include "engine/body.h"

#include <string.h>

static bool same_counts(const struct body *b, const struct express_form *f, const struct engine_call *call)
{
    size_t bytes = (size_t)b->team.size * sizeof *f->counts;

    return !memcmp(f->counts, call->counts, bytes) && !memcmp(f->displs, call->displs, bytes);
}

static bool is_form(const struct body *b, const struct express_form *f, const struct engine_call *call)
{
    return call_is(&f->call, call) && f->has_counts == (call->counts != NULL) && (!call->counts || same_counts(b, f, call));
}

/* The exchange that serves such a call, and by which name; NULL: no short way. */
static const struct algo_exchange *exchange_for(struct body *b, const struct engine_call *call, const char **name)
{
    enum comm_result why;

    if (b->world->check || b->world->order_block || b->team.size > EXPRESS_RANKS || call->in_counts || call->op & OPERATOR_USER)
        return NULL;
    if (b->native && ((b->native_flags & NATIVE_STREAM) || native_takes(b, call) != COMM_ERR_UNSUPPORTED))
        return NULL;
    size_t bytes = collective_is_ragged(call->collective) ? 0 : call->n * data_partial_bytes(call->type);
    const struct algo_row *row = body_choose(b, call->collective, bytes, &why);
    if (!row)
        return NULL;
    *name = row->name;
    return algo_exchange_of(row);
}

static inline size_t start_of(const struct engine_call *call, int32_t rank)
{
    return call->displs ? call->displs[rank] : (size_t)rank * call->n;
}

static inline size_t length_of(const struct engine_call *call, int32_t rank)
{
    return call->counts ? call->counts[rank] : call->n;
}

static size_t end_of(const struct engine_call *call, int32_t size)
{
    size_t end = 0;

    for (int32_t r = 0; r < size; r++) {
        size_t to = length_of(call, r) ? start_of(call, r) + length_of(call, r) : 0;
        end = to > end ? to : end;
    }
    return end;
}

/* Who shows whom how much. */
static void fill_ends(const struct body *b, const struct engine_call *call, const struct algo_exchange *exchange, struct express_form *f)
{
    int32_t size = b->team.size, rank = b->team.rank;
    size_t width = data_type_bytes(call->type), all = end_of(call, size) * width;

    f->shown = exchange->whole ? all : length_of(call, rank) * width;
    for (int32_t i = 0; i < size - 1; i++) {
        int32_t r = b->others[i];
        if (algo_exchange_shown(exchange, rank, r, call->root))
            f->peer[f->npeers++] = (uint16_t)r;
        if (algo_exchange_shown(exchange, r, rank, call->root))
            f->looked |= 1u << r;
        f->came[r] = exchange->whole ? all : length_of(call, r) * width;
        f->bytes_in += f->looked >> r & 1 ? f->came[r] : 0;
    }
    f->peers = f->peer;
    f->at = exchange->whole ? start_of(call, rank) * width : 0;
}

/* What this rank makes of it. */
static void fill_result(const struct body *b, const struct engine_call *call, const struct algo_exchange *exchange, struct express_form *f)
{
    int32_t size = b->team.size, rank = b->team.rank;
    size_t width = data_type_bytes(call->type), mine = length_of(call, rank);
    uint32_t parts = f->looked | (algo_exchange_own(exchange, rank, call->root) ? 1u << rank : 0);

    if (exchange->reduces) {
        f->ways = parts ? 32u - (uint32_t)__builtin_clz(parts) : 0;
        f->elements = f->ways ? mine : 0;
    } else {
        f->copied = parts;
    }
    for (int32_t r = 0; r < size; r++) {
        f->to[r] = exchange->spread ? start_of(call, r) * width : 0;
        f->length[r] = (exchange->whole ? mine : length_of(call, r)) * width;
    }
    f->bytes_out = f->npeers ? f->shown : 0;
    f->mutual = f->npeers == (uint32_t)size - 1 && f->looked == (((1u << size) - 1) & ~(1u << rank));
    f->in_place = exchange->reduces && !exchange->whole;
    f->reads = f->npeers || parts >> rank & 1 ? f->shown : 0;
    f->writes = !parts ? 0 : exchange->spread ? end_of(call, size) * width : mine * width;
}

static void learn(struct body *b, const struct engine_call *call, struct express_form *f)
{
    memset(f, 0, sizeof *f);
    f->call = call_form_of(call, body_fingerprint(b, call));
    f->bytes = call->n * data_type_bytes(call->type);
    const struct algo_exchange *exchange = exchange_for(b, call, &f->algorithm);
    if (b->team.size <= EXPRESS_RANKS && call->counts) {
        f->has_counts = true;
        memcpy(f->counts, call->counts, (size_t)b->team.size * sizeof *f->counts);
        memcpy(f->displs, call->displs, (size_t)b->team.size * sizeof *f->displs);
    }
    if (!exchange)
        return;
    if (exchange->reduces)
        f->reduce = data_reducer(call->type, call->op, b->engine->isa);
    fill_ends(b, call, exchange, f);
    fill_result(b, call, exchange, f);
    f->call.fits = f->reduce || !exchange->reduces;
}

struct express_form *express_form_of(struct body *b, const struct engine_call *call)
{
    struct express *x = &b->express;

    for (uint32_t i = 0; i < EXPRESS_FORMS; i++)
        if (is_form(b, &x->forms[i], call))
            return &x->forms[i];
    for (uint32_t i = 0; i < EXPRESS_FORMS; i++) {
        struct express_form *f = &x->forms[x->next++ % EXPRESS_FORMS];
        if (f->last > b->line.done)
            continue;
        learn(b, call, f);
        return f;
    }
    return NULL;
}
