/* Which program serves a call. It is chosen by rules or by prices, built once, and cached. */
#include "comm/state.h"

struct algo_prices state_prices(const struct comm_state *b)
{
    return (struct algo_prices){
        .env = b->unit.engine->env, .machine = &b->world->machine, .caps = &b->channel->caps, .measured = b->world->measured};
}

void state_release_program(struct comm_state *b, struct comm_program *program)
{
    if (--program->references == 0)
        program_free(b->unit.engine->env, program);
}

bool state_element(const struct comm_state *b, enum comm_type type, comm_op op, struct run_element *element)
{
    *element = (struct run_element){data_type_bytes(type), data_partial_bytes(type), 1, data_reducer(type, op, b->unit.engine->isa), NULL};
    return element->reduce != NULL;
}

/* Builds a program. Selection depends only on constants of the communicator and on the length of the call, so the row and the root identify
 * the program. */
static enum comm_result build_program(struct comm_state *b, const struct algo_row *row, uint32_t collective, int32_t root,
                                      struct comm_program **program)
{
    struct program_spec spec = {collective, b->team.rank, b->team.size, root, b->world->order_block, b->hosts.several};

    *program = row->build(b->unit.engine->env, &spec);
    return *program ? COMM_OK : COMM_ERR_MEMORY;
}

/* The longest length in the bucket of this one. The lengths in a bucket are at most a quarter of an octave apart. */
static size_t bucket_top(size_t bytes, uint32_t *bucket)
{
    if (bytes <= BUCKETS_EACH) {
        *bucket = (uint32_t)bytes;
        return bytes;
    }
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(bytes - 1), shift = octave - 2;
    size_t part = (bytes - 1) >> shift; /* 4 .. 7 */
    *bucket = octave * BUCKETS_EACH + (uint32_t)(part - BUCKETS_EACH);
    return (part + 1) << shift;
}

static const struct algo_row *priced_row(struct comm_state *b, struct algo_query *query, enum comm_result *why)
{
    struct algo_prices prices = state_prices(b);
    bool no_memory = false;
    uint32_t at;

    query->block_bytes = bucket_top(query->block_bytes, &at);
    uint8_t *cell = &b->choice.bucket[query->collective * BUCKETS + at];
    if (*cell)
        return &algo_table[*cell - 1];
    prices.no_memory = &no_memory;
    query->prices = &prices;
    const struct algo_row *row = algo_select(query, NULL, 0);
    query->prices = NULL;
    if (row && row - algo_table < UINT8_MAX)
        *cell = (uint8_t)(row - algo_table + 1); /* a row beyond 254 does not fit and is priced each time */
    *why = row ? COMM_OK : no_memory ? COMM_ERR_MEMORY : COMM_ERR_UNSUPPORTED;
    return row;
}

const struct algo_row *state_choose(struct comm_state *b, uint32_t collective, size_t bytes, enum comm_result *why)
{
    struct algo_query query = {.collective = collective,
                               .size = b->team.size,
                               .block_bytes = bytes,
                               .once_max = b->channel->caps.once_max,
                               .chunk_least = b->channel->caps.chunk_least,
                               .forced = state_forced(b),
                               .order_block = b->world->order_block,
                               .oversubscribed = b->world->oversubscribed,
                               .hosts = b->hosts.several,
                               .host_ranks = state_host_ranks(b)};
    struct chosen *last = &b->choice.chosen[collective];

    *why = COMM_OK;
    if (BASE_LIKELY(last->row && last->bytes == bytes))
        return last->row;
    if (b->choice.bucket && !query.forced) {
        last->row = priced_row(b, &query, why);
    } else {
        last->row = algo_select(&query, NULL, 0);
        *why = last->row ? COMM_OK : COMM_ERR_UNSUPPORTED;
    }
    last->bytes = bytes;
    if (*why == COMM_ERR_UNSUPPORTED)
        (void)algo_select(&query, b->failure.last_refused.text, sizeof b->failure.last_refused.text); /* again, to get the text */
    return last->row;
}

enum comm_result state_program(struct comm_state *b, const struct run_call *call, uint32_t collective, int32_t root, size_t longest,
                               struct comm_program **program, const char **algorithm)
{
    enum comm_result r;
    size_t bytes = collective_is_ragged(collective) ? 0 : longest * data_partial_bytes(call->type);
    const struct algo_row *row = state_choose(b, collective, bytes, &r);

    if (!row)
        return r;
    uint64_t key = (uint64_t)(row - algo_table + 1) << 40 | (uint64_t)collective << 32 | (uint32_t)root;
    struct cached_program *place = program_cache_place(&b->choice.cache, key);
    *algorithm = row->name;
    if (BASE_UNLIKELY(place->key != key)) {
        r = build_program(b, row, collective, root, program);
        if (r != COMM_OK)
            return r;
        if (place->program)
            state_release_program(b, place->program);
        *place = (struct cached_program){key, *program};
    }
    *program = place->program;
    place->program->references++;
    return COMM_OK;
}
