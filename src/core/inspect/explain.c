/* Explains which algorithm would be chosen, why, and its predicted time, from the machine parameters that a world has
 * agreed on. Runs nothing. */
#include "inspect/inspect.h"

#include "base/format.h"
#include "comm/state.h"

#include <string.h>

enum { EXACT_RANKS = 64 /* up to this size explain and predict simulate all ranks */, EXACT_BYTES = 32 << 20 /* of a block */ };

/* ------------------------------------------------------------------------------------------------------------ machine parameters */
void machine_read(const struct comm_env *env, const char *path, struct machine_given *given)
{
    char text[160];
    char *file = env->take(env, COST_MACHINE_BYTES_MAX, 64);
    int64_t bytes = !env->file.read ? -1 : file ? env->file.read(env, path, file, COST_MACHINE_BYTES_MAX) : 0;

    if (!file)
        base_format(given->error, sizeof given->error, "machine=%s: no memory to read it", path);
    else if (bytes < 0)
        base_format(given->error, sizeof given->error, "machine=%s cannot be read by rank 0, errno=%d", path, (int)-bytes);
    else if (bytes == COST_MACHINE_BYTES_MAX)
        base_format(given->error, sizeof given->error, "machine=%s is no machine file: longer than %d bytes", path, COST_MACHINE_BYTES_MAX);
    else if (!cost_machine_parse(file, (size_t)bytes, &given->figures, text, sizeof text))
        base_format(given->error, sizeof given->error, "machine=%s, %s", path, text);
    else
        given->measured = 1;
    given->failed = !given->measured;
    env_give_back(env, file, COST_MACHINE_BYTES_MAX);
}

enum comm_result engine_describe_machine(struct comm_communicator *c, char *text, size_t bytes)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    cost_machine_print(&b->world->machine, text, bytes);
    state_unlock(b);
    return COMM_OK;
}

enum comm_result engine_describe_algorithm(size_t index, struct comm_algorithm_info *info)
{
    if (index >= algo_count)
        return COMM_ERR_ARGUMENT;
    const struct algo_row *row = &algo_table[index];
    size_t size = info->size;
    struct comm_algorithm_info made = {.size = size,
                                       .ranks_min = row->ranks_min,
                                       .ranks_max = row->ranks_max,
                                       .bounded = row->once_bytes != 0,
                                       .over_hosts = (row->flags & ALGO_OVER_HOSTS) != 0};

    base_copy_text(made.collective, sizeof made.collective, collective_name(row->collective));
    base_copy_text(made.name, sizeof made.name, row->name);
    base_copy_text(made.help, sizeof made.help, row->help);
    memset(info, 0, size);
    memcpy(info, &made, size < sizeof made ? size : sizeof made);
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ prices */

/* COMM_OK, or why nothing can be said of this call. text: what is wrong in it. */
static enum comm_result check(const struct comm_state *b, const struct comm_call *call, bool has_operator, char *text, size_t bytes)
{
    if (b->recording.plan)
        return COMM_ERR_STATE;
    if (!collective_parse(call->collective))
        base_format(text, bytes, "call.collective=%s; expected allreduce, broadcast, ...", call->collective);
    else if (call->type && !data_type_bytes(call->type))
        base_format(text, bytes, "call.type=%d; expected an enum comm_type, or 0", (int)call->type);
    else if (!has_operator)
        base_format(text, bytes, "call.op=%u; expected an operator of this world that was not freed, or 0", call->op);
    else
        return COMM_OK;
    return COMM_ERR_ARGUMENT;
}

static struct algo_query query_of(const struct comm_state *b, const struct comm_call *call, const struct algo_prices *prices)
{
    enum comm_type type = call->type ? call->type : COMM_BYTE;
    uint32_t collective = collective_parse(call->collective);
    bool elsewhere = call->ranks && call->ranks != b->team.size;

    return (struct algo_query){.collective = collective,
                               .size = call->ranks ? call->ranks : b->team.size,
                               .block_bytes = collective == COLLECTIVE_BARRIER ? 0 : call->n * data_partial_bytes(type),
                               .once_max = b->channel->caps.once_max,
                               .chunk_least = b->channel->caps.chunk_least,
                               .forced = state_forced(b),
                               .order_block = b->world->order_block,
                               .oversubscribed = elsewhere ? (uint32_t)call->ranks > b->unit.engine->cpus : b->world->oversubscribed,
                               .hosts = elsewhere ? NULL : b->hosts.several,
                               .host_ranks = elsewhere ? 0 : state_host_ranks(b),
                               .prices = prices};
}

/* The exact form. It takes seconds for blocks of a gigabyte; the time of long ones grows evenly. */
static enum comm_result price_exactly(struct cost_case what, const struct algo_query *query, uint64_t *ps)
{
    size_t n = what.n, most = EXACT_BYTES / (what.raw ? what.raw : 1), half = most / 2;
    struct cost_result longest, shorter = {0};

    what.n = n < most ? n : most;
    enum comm_result r = cost_run(query->prices->env, &what, &longest);
    what.n = half;
    if (r == COMM_OK && n > most)
        r = cost_run(query->prices->env, &what, &shorter);
    if (r != COMM_OK)
        return r;
    *ps = longest.each;
    if (n > most) /* in fs an element, so that neither product is too long for 64 bits */
        *ps += (longest.each - shorter.each) * 1000 / half * (n - most) / 1000;
    return COMM_OK;
}

static enum comm_result price(const struct algo_row *row, const struct algo_query *query, uint64_t *ps)
{
    struct cost_case what = algo_case(row, query);
    enum comm_result r = query->size <= EXACT_RANKS ? price_exactly(what, query, ps) : COMM_ERR_UNSUPPORTED;

    return r == COMM_ERR_UNSUPPORTED ? cost_estimate_all(query->prices->env, &what, ps) : r;
}

static void append_price(const struct algo_row *row, const struct algo_query *query, const char *before, char *text, size_t bytes,
                         size_t *at)
{
    uint64_t ps;

    if (price(row, query, &ps) == COMM_OK)
        base_append(text, bytes, at, "%s%s %llu.%02u us", before, row->name, (unsigned long long)(ps / 1000000),
                    (unsigned)(ps / 10000 % 100));
}

static void append_prices(const struct comm_state *b, const struct algo_row *row, const struct algo_query *query, char *text, size_t bytes,
                          size_t *at)
{
    const char *before = "; the others: ";

    append_price(row, query, "\n    predicted: ", text, bytes, at);
    for (uint32_t i = 0; i < algo_count; i++) {
        if (algo_table[i].collective != query->collective || &algo_table[i] == row || !algo_considers(&algo_table[i], query))
            continue;
        append_price(&algo_table[i], query, before, text, bytes, at);
        before = ", ";
    }
    base_append(text, bytes, at, " (%s)", b->world->measured ? "figures of option machine" : "built-in figures, not measured here");
}

/* Whether the native does the call itself, whatever the programs would cost. */
static bool explain_native(struct comm_state *b, const struct comm_call *call, char *text, size_t bytes)
{
    enum comm_type type = call->type ? call->type : COMM_BYTE;
    struct engine_call asked = {
        .collective = collective_parse(call->collective), .type = type, .op = call->op, .root = call->root, .n = call->n};

    if ((call->ranks && call->ranks != b->team.size) || !b->library || b->library->takes(b, &asked) != COMM_OK)
        return false;
    base_format(text, bytes, "%s n=%zu type=%s ranks=%d: %s itself", call->collective, call->n, data_type_name(type), b->team.size,
                b->native->native->class->name);
    return true;
}

/* How the native does the call where its buffers are on devices, if it does only those, or if it does those in another way. */
static void append_devices(struct comm_state *b, const struct comm_call *call, char *text, size_t bytes, size_t *at)
{
    struct engine_call asked = {.collective = collective_parse(call->collective),
                                .type = call->type ? call->type : COMM_BYTE,
                                .op = call->op,
                                .n = call->n,
                                .on_device = CALL_ON_DEVICE};

    if (b->library_work.flags & NATIVE_DEVICE && b->library->takes(b, &asked) == COMM_OK)
        base_append(text, bytes, at, "\n    device buffers: %s itself, %s", b->native->native->class->name,
                    b->native->native->class->how(b->native));
    const char *how = NULL, *algorithm = b->library ? b->library->algorithm(b, &asked, &how) : NULL;
    if (algorithm)
        base_append(text, bytes, at, "\n    device buffers: %s, %s", algorithm, how);
}

/* What ranks that share memory do with lines that they have read; the figures have decided. */
static void append_lines(const struct comm_state *b, char *text, size_t bytes, size_t *at)
{
    const struct cost_machine *m = &b->world->machine;

    if (b->channel->board)
        base_append(text, bytes, at,
                    "\n    shared memory: readers %s what they have read; rewriting a line takes %llu.%llu ns then, otherwise %llu.%llu",
                    b->world->limits.only_reads ? "do not write to" : "write to", (unsigned long long)m->shm_dirtied / 1000,
                    (unsigned long long)m->shm_dirtied / 100 % 10, (unsigned long long)m->shm_read / 1000,
                    (unsigned long long)m->shm_read / 100 % 10);
}

enum comm_result engine_explain(struct comm_communicator *c, const struct comm_call *call, bool has_operator, char *text, size_t bytes)
{
    enum comm_result r;
    char why[256] = "";
    size_t at = 0;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    r = check(b, call, has_operator, why, sizeof why);
    if (r != COMM_OK) {
        state_unlock(b);
        return r == COMM_ERR_ARGUMENT ? engine_decline(c, r, NULL, "explain: %s", why) : r;
    }
    if (explain_native(b, call, text, bytes)) {
        state_unlock(b);
        return COMM_OK;
    }
    struct algo_prices prices = state_prices(b);
    struct algo_query query = query_of(b, call, &prices);
    const struct algo_row *row = algo_select(&query, why, sizeof why);
    text[0] = 0;
    base_append(text, bytes, &at, "%s n=%zu type=%s ranks=%d over %s: %s (%s)%s%s", call->collective, call->n,
                data_type_name(call->type ? call->type : COMM_BYTE), query.size, b->wire->name, row ? row->name : "none",
                row ? row->help : "no algorithm serves this", why[0] ? "; " : "", why);
    if (row)
        append_prices(b, row, &query, text, bytes, &at);
    append_lines(b, text, bytes, &at);
    append_devices(b, call, text, bytes, &at);
    state_unlock(b);
    return row ? COMM_OK : COMM_ERR_UNSUPPORTED;
}

/* ------------------------------------------------------------------------------------------------------------ predict */
static const struct algo_row *row_named(const struct algo_query *query, const char *name)
{
    for (uint32_t i = 0; i < algo_count; i++)
        if (algo_table[i].collective == query->collective && base_equal(algo_table[i].name, name))
            return &algo_table[i];
    return NULL;
}

static enum comm_result predict(struct comm_state *b, const struct comm_call *call, const char *algorithm, const char *machine, int64_t *ns,
                                char *text, size_t text_bytes)
{
    struct cost_machine figures = b->world->machine;
    struct algo_prices prices = state_prices(b);
    uint64_t ps;

    if (machine && !cost_machine_parse(machine, strlen(machine), &figures, text, text_bytes))
        return COMM_ERR_CONFIG;
    prices.machine = &figures;
    prices.measured |= machine != NULL;
    struct algo_query query = query_of(b, call, &prices);
    const struct algo_row *row = algorithm ? row_named(&query, algorithm) : algo_select(&query, text, text_bytes);
    if (algorithm && (!row || !algo_serves(row, &query))) {
        base_format(text, text_bytes, "%s %s %s of %zu bytes over %d ranks", algorithm, row ? "cannot serve" : "does not exist for",
                    call->collective, query.block_bytes, query.size);
        return COMM_ERR_UNSUPPORTED;
    }
    enum comm_result r = row ? price(row, &query, &ps) : COMM_ERR_UNSUPPORTED;
    if (r == COMM_OK)
        *ns = (int64_t)((ps + 500) / 1000);
    return r;
}

enum comm_result engine_predict(struct comm_communicator *c, const struct comm_call *call, bool has_operator, const char *algorithm,
                                const char *machine, int64_t *ns)
{
    enum comm_result r;
    char text[256] = "";
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    r = check(b, call, has_operator, text, sizeof text);
    if (r == COMM_OK)
        r = predict(b, call, algorithm, machine, ns, text, sizeof text);
    state_unlock(b);
    return r == COMM_OK ? r : engine_decline(c, r, NULL, "predict: %s", text[0] ? text : base_result_text(r));
}
