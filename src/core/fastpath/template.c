/* Decides which calls can take the fast path, and computes the template of such a call from its exchange (select/exchange.c), its counts,
 * and the team. */
#include "fastpath/fastpath.h"

#include "comm/state.h"

#include <string.h>

enum { CUT_BYTES = 128, CUT_LEAST = 256, LINE_BYTES = 64, BESIDE_BYTES = 512 };

/* ------------------------------------------------------------------------------------------------------------ lookup */
static const size_t *vector_of(const struct engine_call *call, uint32_t i)
{
    const size_t *const vectors[FASTPATH_VECTORS] = {call->counts, call->displs, call->in_counts, call->in_displs};

    return vectors[i];
}

static bool same_vectors(const struct comm_state *b, const struct call_template *f, const struct engine_call *call)
{
    bool same = f->vectors.has_counts[0] == (call->counts != NULL) && f->vectors.has_counts[1] == (call->in_counts != NULL);

    for (uint32_t i = 0; same && call->counts && i < FASTPATH_VECTORS; i++)
        same = !vector_of(call, i) || !memcmp(f->vectors.vector[i], vector_of(call, i), (size_t)b->team.size * sizeof(size_t));
    return same;
}

static bool is_dense(const size_t *counts, const size_t *displs, int32_t size)
{
    size_t at = 0;

    for (int32_t r = 0; r < size; at += counts[r++])
        if (displs[r] != at)
            return false;
    return true;
}

static bool same_vector(const size_t *kept, const size_t *given, int32_t size)
{
    bool same = given != NULL;

    for (int32_t r = 0; same && r < size; r++)
        same = kept[r] == given[r];
    return same;
}

bool fastpath_same_layout(const struct comm_state *b, const struct call_template *f, const struct engine_vectors *v)
{
    int32_t size = b->team.size;

    if (!same_vector(f->vectors.vector[0], v->counts, size) ||
        (v->displs ? !same_vector(f->vectors.vector[1], v->displs, size) : !f->vectors.dense[0]))
        return false;
    if (!f->vectors.has_counts[1])
        return !v->in_counts;
    return same_vector(f->vectors.vector[2], v->in_counts, size) &&
           (v->in_displs ? same_vector(f->vectors.vector[3], v->in_displs, size) : f->vectors.dense[1]);
}

static void keep_vectors(const struct comm_state *b, struct call_template *f, const struct engine_call *call)
{
    f->vectors.has_counts[0] = call->counts != NULL;
    f->vectors.has_counts[1] = call->in_counts != NULL;
    for (uint32_t i = 0; call->counts && i < FASTPATH_VECTORS; i++)
        if (vector_of(call, i))
            memcpy(f->vectors.vector[i], vector_of(call, i), (size_t)b->team.size * sizeof(size_t));
    f->vectors.dense[0] = f->vectors.has_counts[0] && is_dense(f->vectors.vector[0], f->vectors.vector[1], b->team.size);
    f->vectors.dense[1] = f->vectors.has_counts[1] && is_dense(f->vectors.vector[2], f->vectors.vector[3], b->team.size);
}

/* ------------------------------------------------------------------------------------------------------------ computation */
/* The exchange for such a call, and the name of its algorithm. NULL: there is none. */
static const struct algo_exchange *exchange_for(struct comm_state *b, const struct engine_call *call, const char **name)
{
    enum comm_result why;

    if (b->world->check || b->world->order_block || call->op & OPERATOR_USER)
        return NULL;
    if (b->library && ((b->library_work.flags & NATIVE_STREAM) || b->library->takes(b, call) != COMM_ERR_UNSUPPORTED))
        return NULL;
    size_t bytes = collective_is_ragged(call->collective) ? 0 : call->n * data_partial_bytes(call->type);
    const struct algo_row *row = state_choose(b, call->collective, bytes, &why);
    if (!row)
        return NULL;
    *name = row->name;
    const struct algo_exchange *exchange = algo_exchange_of(row);
    /* Measured for long blocks: with more than two ranks that share CPUs, the program was twice as fast. */
    bool streams = exchange && exchange->flags & ALGO_STREAMS && !collective_is_ragged(call->collective);
    return streams && b->team.size > 2 ? NULL : exchange;
}

static inline size_t start_of(const struct engine_call *call, int32_t rank)
{
    return call->displs ? call->displs[rank] : (size_t)rank * call->n;
}

static inline size_t length_of(const struct engine_call *call, int32_t rank)
{
    return call->counts ? call->counts[rank] : call->n;
}

/* The end of the last block. */
static size_t end_of(const size_t *counts, const size_t *displs, size_t n, int32_t size)
{
    size_t end = counts ? 0 : n * (size_t)size;

    for (int32_t r = 0; counts && r < size; r++)
        end = counts[r] && displs[r] + counts[r] > end ? displs[r] + counts[r] : end;
    return end;
}

static void fill_parties(const struct comm_state *b, const struct engine_call *call, const struct algo_exchange *exchange,
                         struct call_template *f)
{
    int32_t rank = b->team.rank;

    for (int32_t i = 0; i < b->team.size - 1; i++) {
        int32_t r = b->others[i];
        if (algo_exchange_shown(exchange, rank, r, call->root))
            f->peer[f->npeers++] = (uint16_t)r;
        if (algo_exchange_shown(exchange, r, rank, call->root))
            f->looked |= 1u << r;
    }
    f->peers = f->peer;
    f->mutual = f->npeers == (uint32_t)b->team.size - 1 && f->npeers == (uint32_t)__builtin_popcount(f->looked);
}

/* Even ranks show their input; odd ranks show a total in the accumulator type. */
static void fill_totals(const struct comm_state *b, const struct engine_call *call, struct call_template *f)
{
    size_t raw = call->n * data_type_bytes(call->type), partial = call->n * data_partial_bytes(call->type);
    int32_t rank = b->team.rank;

    f->totals = true;
    f->later = f->npeers && rank & 1;
    f->shown = f->later ? partial : raw;
    f->bytes_out = f->npeers ? f->shown : 0;
    f->bytes_in = 0;
    for (int32_t r = 0; r < b->team.size; r++) {
        f->came[r] = r & 1 ? partial : raw;
        f->bytes_in += f->looked >> r & 1 ? f->came[r] : 0;
    }
    for (uint32_t level = 0; rank >> level & 1; level++)
        f->first |= 1u << algo_exchange_left(rank, level);
}

/* Fills a template in which one span goes to all peers. */
static void fill_common(const struct comm_state *b, const struct engine_call *call, const struct algo_exchange *exchange,
                        struct call_template *f)
{
    int32_t size = b->team.size, rank = b->team.rank;
    size_t width = data_type_bytes(call->type), all = end_of(call->counts, call->displs, call->n, size) * width;
    size_t mine = length_of(call, rank);
    bool uncut = exchange->flags & ALGO_UNCUT, reduces = exchange->flags & ALGO_REDUCES, spreads = exchange->flags & ALGO_SPREADS;
    uint32_t parts = f->looked | (algo_exchange_own(exchange, rank, call->root) ? 1u << rank : 0);

    f->shows = f->npeers != 0;
    f->shown = uncut ? all : mine * width;
    f->at = uncut ? start_of(call, rank) * width : 0;
    f->copied = reduces ? 0 : parts;
    f->ways = reduces && parts ? 32u - (uint32_t)__builtin_clz(parts) : 0;
    f->elements = f->ways ? mine : 0;
    for (int32_t r = 0; r < size; r++) {
        f->came[r] = uncut ? all : length_of(call, r) * width;
        f->to[r] = spreads ? start_of(call, r) * width : 0;
        f->length[r] = (uncut ? mine : length_of(call, r)) * width;
        f->bytes_in += f->looked >> r & 1 ? f->came[r] : 0;
    }
    f->bytes_out = f->npeers ? f->shown : 0;
    f->in_place = reduces && !uncut;
    f->reads = f->npeers || parts >> rank & 1 ? f->shown : 0;
    f->writes = !parts ? 0 : spreads ? all : mine * width;
    if (reduces)
        f->reduce = data_reducer(call->type, call->op, b->unit.engine->isa);
    f->call.fits = f->reduce || !reduces;
    f->sum =
        (struct data_reduce){.from = b->fastpath->from, .ways = f->ways, .divisor = (uint32_t)size, .elements = f->elements, .final = true};
    if (exchange->flags & ALGO_TOTALS)
        fill_totals(b, call, f);
    f->few = b->wire->show && f->shown <= b->channel->caps.once_max;
    for (int32_t r = 0; r < size; r++) {
        f->few &= !(f->looked >> r & 1) || f->came[r] <= b->channel->caps.once_max;
        f->beside |= (uint32_t)(f->came[r] > LINE_BYTES && f->came[r] <= BESIDE_BYTES) << r;
    }
    if (b->channel->caps.dirties && f->looked && !f->totals && f->came[!rank] > b->channel->caps.inline_max)
        f->dirties = f->came[!rank];
    f->call.fits &= !f->totals || (f->few && mine * data_partial_bytes(call->type) <= FASTPATH_TOTAL_BYTES);
    f->straight = !f->later && f->npeers && f->looked && f->reads && f->writes && !b->unit.engine->oversubscribed;
}

/* The block to or from rank r: one of `counts`, one of equal blocks, or this rank's only block. */
static struct fastpath_span span_of(const struct engine_call *call, const size_t *counts, const size_t *displs, int32_t r, bool one_each)
{
    size_t width = data_type_bytes(call->type), n = counts ? counts[r] : call->n;
    size_t at = counts ? displs[r] : one_each ? (size_t)r * n : 0;

    return (struct fastpath_span){.at = at * width, .bytes = n * width, .mark = program_mark(n)};
}

/* Fills a template with one span per peer. Each must be brief, or one chunk of its stream, whatever way the program cuts them. */
static void fill_pairs(const struct comm_state *b, const struct engine_call *call, const struct algo_exchange *exchange,
                       struct call_template *f)
{
    int32_t size = b->team.size, rank = b->team.rank;
    size_t width = data_type_bytes(call->type), cap = (size_t)b->channel->caps.chunk_private, most = cap < CUT_LEAST ? 0 : cap - CUT_BYTES;
    uint32_t brief = algo_exchange_brief(exchange, size);
    bool gives_all = exchange->looks != ALGO_ROOT, takes_all = exchange->flags & ALGO_SPREADS;
    const size_t *in_counts = gives_all ? call->in_counts ? call->in_counts : call->counts : NULL;
    const size_t *in_displs = gives_all ? call->in_counts ? call->in_displs : call->displs : NULL;
    const size_t *counts = takes_all ? call->counts : NULL;
    bool own = algo_exchange_own(exchange, rank, call->root), fits = true, few = b->wire->show != NULL;

    f->pairs = true;
    f->shows = (uint8_t)f->npeers;
    for (int32_t r = 0; r < size; r++) {
        bool gives = algo_exchange_shown(exchange, rank, r, call->root), takes = f->looked >> r & 1;
        f->gives[r] = span_of(call, in_counts, in_displs, r, gives_all);
        f->takes[r] = span_of(call, counts, call->displs, r, takes_all);
        f->came[r] = f->takes[r].bytes;
        if (r != rank) {
            f->gives[r].edge = (uint16_t)algo_exchange_edge(exchange, rank, r, size, &f->gives[r].kind);
            f->takes[r].edge = (uint16_t)algo_exchange_edge(exchange, r, rank, size, &f->takes[r].kind);
        }
        if ((f->gives[r].kind | f->takes[r].kind) & WIRE_ONCE)
            most = brief ? brief : (size_t)b->channel->caps.once_max;
        f->gives[r].few = few && f->gives[r].kind & WIRE_TO_ALL && f->gives[r].bytes <= b->channel->caps.once_max;
        f->takes[r].few = few && f->takes[r].kind & WIRE_TO_ALL && f->takes[r].bytes <= b->channel->caps.once_max;
        fits &= (!gives || f->gives[r].bytes <= most) && (!takes || f->takes[r].bytes <= most);
        f->bytes_out += gives ? f->gives[r].bytes : 0;
        f->bytes_in += takes ? f->takes[r].bytes : 0;
    }
    f->copied = own ? 1u << rank : 0;
    f->at = f->gives[rank].at;
    f->to[rank] = f->takes[rank].at;
    f->length[rank] = f->gives[rank].bytes;
    f->reads = !f->npeers && !own ? 0 : (gives_all ? end_of(in_counts, in_displs, call->n, size) : call->n) * width;
    f->writes = !own && !f->looked ? 0 : (takes_all ? end_of(counts, call->displs, call->n, size) : call->n) * width;
    f->only = f->npeers == 1 && f->gives[f->peer[0]].few ? &f->gives[f->peer[0]] : NULL;
    f->call.fits = fits;
}

static void learn(struct comm_state *b, const struct engine_call *call, struct call_template *f)
{
    memset(f, 0, sizeof *f);
    f->call = call_shape_of(call, state_fingerprint(b, call));
    f->bytes = call->n * data_type_bytes(call->type);
    f->as = (struct engine_call){
        .collective = call->collective, .type = call->type, .op = call->op, .root = call->root, .flags = call->flags, .n = call->n};
    keep_vectors(b, f, call);
    const struct algo_exchange *exchange = exchange_for(b, call, &f->algorithm);
    if (!exchange)
        return;
    fill_parties(b, call, exchange, f);
    if (exchange->flags & ALGO_PAIRS)
        fill_pairs(b, call, exchange, f);
    else
        fill_common(b, call, exchange, f);
    for (uint32_t ranks = b->wire->fetch ? f->looked : 0; ranks; ranks &= ranks - 1)
        if (!f->pairs || f->takes[__builtin_ctz(ranks)].few)
            f->fetched |= ranks & -ranks;
}

struct call_template *call_template_of(struct comm_state *b, const struct engine_call *call)
{
    struct fastpath *x = b->fastpath;

    for (uint32_t i = 0; i < FASTPATH_TEMPLATES; i++)
        if (call_is(&x->templates[i].call, call) && same_vectors(b, &x->templates[i], call))
            return &x->templates[i];
    for (uint32_t i = 0; i < FASTPATH_TEMPLATES; i++) {
        struct call_template *f = &x->templates[x->next++ % FASTPATH_TEMPLATES];
        if (f->last > b->line.done)
            continue;
        learn(b, call, f);
        return f;
    }
    return NULL;
}
