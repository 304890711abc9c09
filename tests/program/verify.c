/*
 * The verifier: builds the programs of all ranks, runs them together under several schedules and kinds of wire, in
 * place and not, and compares every word of memory with the expected one. A proof for one team size holds for every
 * number of elements that is cut alike.
 */
#include "program/verify.h"

#include "base/format.h"

#include <string.h>

static const struct run_element check_element = {CHECK_RAW_BYTES, CHECK_PARTIAL_BYTES, 1, check_reduce, NULL};
enum { CHECK_GUARD_BYTES = 1024, CHECK_GUARD = 0xa5, CHECK_CUTS = 3 };

struct check_block {
    struct check_block *next;
    size_t bytes;
};

void *check_take(struct check *check, size_t bytes)
{
    size_t whole = sizeof(struct check_block) + 48 + bytes;
    struct check_block *block = check->env->take(check->env, whole, 64);
    if (!block) {
        check->no_memory = true;
        return NULL;
    }
    *block = (struct check_block){check->blocks, whole};
    check->blocks = block;
    return (char *)block + sizeof *block + 48;
}

static void give_all(struct check *check)
{
    for (int32_t r = 0; check->rank && r < check->size; r++)
        program_free(check->env, check->rank[r].program);
    while (check->blocks) {
        struct check_block *block = check->blocks;
        check->blocks = block->next;
        check->env->give(check->env, block, block->bytes);
    }
}

/* ------------------------------------------------------------------------------------------------------------ error reports */
static const char *code_name(uint32_t code)
{
    static const char *const names[] = {"none", "EXPOSE", "VIEW", "RELEASE", "COPY", "REDUCE", "LOOP", "END"};
    return code < sizeof names / sizeof *names ? names[code] : "none";
}

/* An error names the lane that runs; for a rank at rest, the first lane that has not ended. */
void check_fail(struct check *check, const struct check_rank *rank, const char *rule)
{
    if (check->broken)
        return;
    check->broken = true;
    size_t at = 0;
    base_append(check->text, check->text_bytes, &at, "%s, %d ranks, root %d, %zu elements: rank %d %s",
                rank->program ? rank->program->algorithm : collective_name(check->collective), check->size, check->root, check->elements,
                rank->rank, rule);
    for (uint32_t l = 0; rank->program && l < rank->program->lanes; l++) {
        const struct run_lane *lane = &rank->run.lane[l];
        if (rank->run.program && rank->run.open >> l & 1)
            base_append(check->text, check->text_bytes, &at, "; lane %u is at step %u (%s), i %u, k %u", l, (uint32_t)lane->pc,
                        code_name(rank->program->step[lane->pc].code), lane->i, lane->k);
    }
}

/* ------------------------------------------------------------------------------------------------------------ memory */
/* Elements of in and out, and where this rank's block lies in the buffer that has all blocks. */
struct layout {
    size_t in, out, own;
    bool one_buffer, in_place; /* one buffer always, or optionally */
    bool in_has_own;           /* in place, out is in's own block; otherwise in is out's */
};

/* Of an alltoall_v of two ranks: blocks of equal and of different lengths, and a short and a long one. Rank 0 has the longest block for
 * itself, of which rank 1 does not know. */
static size_t swapped_count(size_t n, int32_t from, int32_t to)
{
    const size_t count[][2] = {{n, n}, {n, n - n / 4}, {n - n / 4, n}, {n, n / 8}};
    return from != to ? count[n % 4][from] : from == 0 ? 3 * n : 0;
}

/* Elements that go from one rank to another: blocks of different lengths, some of them empty. */
static size_t pair_count(const struct check *check, int32_t from, int32_t to)
{
    size_t n = check->elements;
    switch (check->collective) {
    case COLLECTIVE_ALLGATHER_V:
    case COLLECTIVE_GATHER_V:
        return ((size_t)from * 7 + n) % (n + 1);
    case COLLECTIVE_REDUCE_SCATTER_V:
    case COLLECTIVE_SCATTER_V:
        return ((size_t)to * 7 + n) % (n + 1);
    case COLLECTIVE_ALLTOALL_V:
        if (check->size == 2)
            return swapped_count(n, from, to);
        return ((size_t)from * 7 + (size_t)to * 3 + n) % (n + 1);
    default:
        return n;
    }
}

static bool is_ragged(uint32_t collective)
{
    return collective == COLLECTIVE_ALLGATHER_V || collective == COLLECTIVE_GATHER_V || collective == COLLECTIVE_REDUCE_SCATTER_V ||
           collective == COLLECTIVE_SCATTER_V || collective == COLLECTIVE_ALLTOALL_V;
}

/* Where block r begins in this rank's buffer that has a block for each rank; for r one past the last, its end. In a v
 * form a hole follows each block, unless the form is dense. */
static size_t block_at(const struct check *check, int32_t rank, int32_t r, bool in)
{
    size_t at = 0, hole = is_ragged(check->collective) && check->collective != COLLECTIVE_REDUCE_SCATTER_V;
    for (int32_t other = 0; other < r; other++)
        at += (in ? pair_count(check, rank, other) : pair_count(check, other, rank)) + hole;
    return at;
}

static struct layout layout_of(const struct check *check, int32_t rank)
{
    size_t n = check->elements, all_in = block_at(check, rank, check->size, true), all_out = block_at(check, rank, check->size, false);
    bool root = rank == check->root;
    switch (check->collective) {
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_BROADCAST_BYTES:
        return (struct layout){.in = n, .one_buffer = true};
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_GROUP:
    case COLLECTIVE_SCAN:
    case COLLECTIVE_EXSCAN:
        return (struct layout){.in = n, .out = n, .in_place = true};
    case COLLECTIVE_REDUCE:
        return (struct layout){.in = n, .out = n, .in_place = root};
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_REDUCE_SCATTER_V:
        return (struct layout){.in = all_in,
                               .out = pair_count(check, 0, rank),
                               .own = block_at(check, rank, rank, true),
                               .in_place = true,
                               .in_has_own = true};
    case COLLECTIVE_BARRIER:
        return (struct layout){.in = 0};
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_SCATTER_V:
        return (struct layout){.in = root ? all_in : 0,
                               .out = pair_count(check, check->root, rank),
                               .own = block_at(check, rank, rank, true),
                               .in_place = root,
                               .in_has_own = true};
    case COLLECTIVE_ALLTOALL:
    case COLLECTIVE_ALLTOALL_V: /* in place, a program that writes early gets a copy of in */
        return (struct layout){.in = all_in, .out = all_out, .in_place = !program_writes_early(check->rank[0].program)};
    case COLLECTIVE_GATHER:
    case COLLECTIVE_GATHER_V:
        return (struct layout){.in = pair_count(check, rank, check->root),
                               .out = root ? all_out : 0,
                               .own = block_at(check, rank, rank, false),
                               .in_place = root};
    default: /* gathers to all ranks */
        return (struct layout){
            .in = pair_count(check, rank, rank), .out = all_out, .own = block_at(check, rank, rank, false), .in_place = true};
    }
}

static void fill(const struct check *check, uint64_t *to, size_t count, size_t element, int32_t lo, int32_t hi, enum check_kind kind)
{
    uint64_t word = check_pack((struct check_symbol){
        .element = (uint32_t)element, .size = (uint32_t)check->size, .lo = (uint32_t)lo, .hi = (uint32_t)hi, .kind = kind});
    for (size_t e = 0; e < count; e++)
        to[e] = word + e; /* the element is the lowest field */
}

/* Fills in the blocks of all ranks as they were sent. */
static void fill_blocks(const struct check *check, uint64_t *out, int32_t rank)
{
    bool each = check->collective == COLLECTIVE_ALLTOALL || check->collective == COLLECTIVE_ALLTOALL_V;
    for (int32_t r = 0; r < check->size; r++)
        fill(check, out + block_at(check, rank, r, false), pair_count(check, r, rank), each ? block_at(check, r, rank, true) : 0, r, r + 1,
             CHECK_RAW);
}

/* The expected output of this rank, written to the image of its memory. */
static void fill_expected(const struct check_rank *rank, uint64_t *in, uint64_t *out)
{
    const struct check *check = rank->check;
    size_t n = check->elements;
    int32_t root = check->root;
    switch (check->collective) {
    case COLLECTIVE_BARRIER:
        break;
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_BROADCAST_BYTES:
        fill(check, in, n, 0, root, root + 1, CHECK_RAW);
        break;
    case COLLECTIVE_REDUCE:
        if (rank->rank == root)
            fill(check, out, n, 0, 0, check->size, CHECK_FINAL);
        break;
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_GROUP:
        fill(check, out, n, 0, 0, check->size, CHECK_FINAL);
        break;
    case COLLECTIVE_SCAN:
        fill(check, out, n, 0, 0, rank->rank + 1, CHECK_FINAL);
        break;
    case COLLECTIVE_EXSCAN:
        if (rank->rank)
            fill(check, out, n, 0, 0, rank->rank, CHECK_FINAL);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_REDUCE_SCATTER_V:
        fill(check, out, pair_count(check, 0, rank->rank), block_at(check, 0, rank->rank, true), 0, check->size, CHECK_FINAL);
        break;
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_SCATTER_V:
        fill(check, out, pair_count(check, root, rank->rank), block_at(check, root, rank->rank, true), root, root + 1, CHECK_RAW);
        break;
    default:
        if (rank->rank == root || (check->collective != COLLECTIVE_GATHER && check->collective != COLLECTIVE_GATHER_V))
            fill_blocks(check, out, rank->rank);
    }
}

static bool is_broadcast(uint32_t collective)
{
    return collective == COLLECTIVE_BROADCAST || collective == COLLECTIVE_BROADCAST_BYTES;
}

/* A rank's own count, where it does not know the other ranks' counts. */
static size_t own_count(const struct check *check, int32_t rank)
{
    bool gives = check->collective == COLLECTIVE_GATHER_V, takes = check->collective == COLLECTIVE_SCATTER_V;
    return gives ? pair_count(check, rank, check->root) : takes ? pair_count(check, check->root, rank) : check->elements;
}

/* guard, in, guard, out, guard: these are compared at the end; then scratch and a guard after it. */
static bool open_memory(struct check_rank *rank, bool in_place)
{
    struct check *check = rank->check;
    struct layout layout = layout_of(check, rank->rank);
    struct run_call call = {.n = own_count(check, rank->rank),
                            .type = COMM_U64,
                            .op = COMM_SUM,
                            .counts = rank->counts,
                            .displs = rank->displs,
                            .in_counts = rank->in_counts,
                            .in_displs = rank->in_displs};
    size_t scratch = run_scratch_bytes_as(rank->program, &call, &rank->channel, check->size, &check_element);
    size_t in_at = CHECK_GUARD_BYTES, out_at = in_at + layout.in * CHECK_RAW_BYTES + CHECK_GUARD_BYTES;
    rank->keep_bytes = out_at + layout.out * CHECK_RAW_BYTES + CHECK_GUARD_BYTES;
    rank->memory_bytes = rank->keep_bytes + scratch + CHECK_GUARD_BYTES;
    rank->memory = check_take(check, rank->memory_bytes);
    rank->image = check_take(check, rank->keep_bytes);
    rank->run.view = check_take(check, (rank->program->views + 1u) * sizeof *rank->run.view);
    if (!rank->memory || !rank->image || !rank->run.view)
        return false;
    memset(rank->memory, CHECK_GUARD, rank->memory_bytes);
    bool same = layout.one_buffer || (in_place && layout.in_place);
    if (same && !layout.in_has_own && !layout.one_buffer)
        in_at = out_at + layout.own * CHECK_RAW_BYTES;
    else if (same)
        out_at = in_at + layout.own * CHECK_RAW_BYTES;
    if (!is_broadcast(check->collective) || rank->rank == check->root)
        fill(check, (uint64_t *)(void *)(rank->memory + in_at), layout.in, 0, rank->rank, rank->rank + 1, CHECK_RAW);
    memcpy(rank->image, rank->memory, rank->keep_bytes);
    fill_expected(rank, (uint64_t *)(void *)(rank->image + in_at), (uint64_t *)(void *)(rank->image + out_at));
    call.in = rank->memory + in_at;
    call.out = rank->memory + out_at;
    rank->run.call = call;
    rank->run.scratch = rank->memory + rank->keep_bytes;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ one run of all ranks */
static bool build_all(struct check *check)
{
    check->rank = check_take(check, (size_t)check->size * sizeof *check->rank);
    for (int32_t r = 0; check->rank && r < check->size; r++) {
        struct check_rank *rank = &check->rank[r];
        struct program_spec spec = {
            .collective = check->collective, .rank = r, .size = check->size, .root = check->root, .hosts = check->hosts};
        rank->check = check;
        rank->rank = r;
        rank->program = check->build(check->env, &spec);
        const struct comm_program *mine = rank->program, *first = check->rank[0].program;
        if (!mine) {
            check_fail(check, rank, "has no program: its form is wrong, or there is no memory");
            return false;
        }
        if (mine->edges != first->edges || memcmp(mine->edge, first->edge, sizeof mine->edge) || mine->slices != first->slices ||
            mine->chunk_unit != first->chunk_unit || mine->wide != first->wide || mine->own_in != first->own_in ||
            mine->own_out != first->own_out || mine->ragged != first->ragged || mine->each_block != first->each_block ||
            mine->brief != first->brief || mine->swaps != first->swaps) {
            check_fail(check, rank, "cuts or names edges unlike rank 0");
            return false;
        }
    }
    for (int32_t r = 0; !check->no_memory && r < check->size; r++) { /* so that there are blocks of all kinds */
        struct comm_program *program = check->rank[r].program;
        if (program->brief)
            program->brief = (uint32_t)(check->elements / 2 * CHECK_RAW_BYTES + 1);
        if (program->swaps)
            program->swaps = (uint32_t)(check->elements / 4 * CHECK_RAW_BYTES);
    }
    return !check->no_memory;
}

/* Whether one exposure may be a whole buffer. */
static bool shows_whole(uint32_t collective)
{
    return collective == COLLECTIVE_SCATTER || collective == COLLECTIVE_ALLTOALL || collective == COLLECTIVE_REDUCE_SCATTER ||
           collective == COLLECTIVE_REDUCE_SCATTER_V;
}

/* Cuts a unit into about CHECK_CUTS chunks that do not divide it. */
static void set_limits(struct check *check)
{
    const struct comm_program *program = check->rank[0].program;
    size_t unit = check->elements, line = 64 / CHECK_RAW_BYTES;
    if (program->chunk_unit == UNIT_SLICE && program->slices)
        unit = ((unit + program->slices - 1) / program->slices + line - 1) / line * line;
    check->chunk_bytes = (unit / CHECK_CUTS + 1) * CHECK_PARTIAL_BYTES / (program->wide ? 1 : 2);
    check->once_bytes = (check->elements + 1) * CHECK_PARTIAL_BYTES;
    if (shows_whole(check->collective) && check->once_bytes < check->elements * (size_t)check->size * CHECK_RAW_BYTES)
        check->once_bytes = check->elements * (size_t)check->size * CHECK_RAW_BYTES;
}

static void step_rank(struct check_rank *rank)
{
    struct check *check = rank->check;
    if (!rank->started) {
        run_start_as(&rank->run, rank->program, &check_element);
        rank->started = true;
        check->moves++;
    }
    check_wire_events(rank);
    if (rank->ended || !rank->run.again || check->broken)
        return;
    enum run_result result = run_step(&rank->run);
    if (result == RUN_MISMATCH)
        check_fail(check, rank, "views another length than was exposed");
    rank->ended = result == RUN_ENDED;
    check->moves += rank->ended;
    for (int32_t r = 0; rank->ended && check->collective == COLLECTIVE_BARRIER && r < check->size; r++) {
        if (!check->rank[r].started)
            check_fail(check, rank, "leaves a barrier that another has not entered");
    }
}

enum order { ORDER_ROUND, ORDER_REVERSE, ORDER_STARVE_FIRST, ORDER_STARVE_LAST };

/* One turn for every rank except the starved one, which moves only when no other can. */
static void sweep(struct check *check, enum order order)
{
    uint64_t before = check->moves;
    int32_t starved = order == ORDER_STARVE_FIRST ? 0 : order == ORDER_STARVE_LAST ? check->size - 1 : -1;
    for (int32_t j = 0; j < check->size; j++) {
        int32_t r = order == ORDER_REVERSE ? check->size - 1 - j : j;
        if (r != starved)
            step_rank(&check->rank[r]);
    }
    if (starved >= 0 && check->moves == before)
        step_rank(&check->rank[starved]);
    if (check->moves == before)
        check_wire_send(check);
}

static void run_all(struct check *check, enum order order)
{
    int32_t left = check->size;
    while (left && !check->broken) {
        uint64_t before = check->moves;
        sweep(check, order);
        left = 0;
        for (int32_t r = 0; r < check->size; r++)
            left += !check->rank[r].ended;
        for (int32_t r = 0; left && check->moves == before && r < check->size; r++) {
            if (!check->rank[r].ended)
                check_fail(check, &check->rank[r], "stands for ever");
        }
    }
}

static void compare_all(struct check *check)
{
    char guard[CHECK_GUARD_BYTES];
    memset(guard, CHECK_GUARD, sizeof guard);
    for (int32_t r = 0; r < check->size && !check->broken; r++) {
        const struct check_rank *rank = &check->rank[r];
        if (memcmp(rank->memory, rank->image, rank->keep_bytes))
            check_fail(check, rank, "has a result that is not T of all contributions, or wrote what is not its output");
        if (memcmp(rank->memory + rank->memory_bytes - CHECK_GUARD_BYTES, guard, sizeof guard))
            check_fail(check, rank, "wrote behind its scratch memory");
    }
}

static void open_vectors(struct check_rank *rank, bool in, size_t **counts, size_t **displs)
{
    struct check *check = rank->check;
    size_t bytes = (size_t)check->size * sizeof(size_t);
    *counts = check_take(check, bytes);
    *displs = check_take(check, bytes);
    for (int32_t r = 0; !check->no_memory && r < check->size; r++) {
        (*counts)[r] = in ? pair_count(check, rank->rank, r) : pair_count(check, r, rank->rank);
        (*displs)[r] = block_at(check, rank->rank, r, in);
    }
}

/* What each rank knows of the blocks: all of them, only the root's, or both sides. */
static void open_counts(struct check *check)
{
    uint32_t collective = check->collective;
    for (int32_t r = 0; is_ragged(collective) && r < check->size; r++) {
        struct check_rank *rank = &check->rank[r];
        bool rooted = collective == COLLECTIVE_GATHER_V || collective == COLLECTIVE_SCATTER_V;
        bool of_in = collective == COLLECTIVE_SCATTER_V || collective == COLLECTIVE_REDUCE_SCATTER_V;
        if (!rooted || r == check->root)
            open_vectors(rank, of_in, &rank->counts, &rank->displs);
        if (collective == COLLECTIVE_ALLTOALL_V)
            open_vectors(rank, true, &rank->in_counts, &rank->in_displs);
    }
}

static void check_once(struct check *check, enum order order, bool in_place)
{
    if (!build_all(check))
        return;
    open_counts(check);
    if (check->no_memory)
        return;
    set_limits(check);
    if (!check_wire_open(check))
        return;
    for (int32_t r = 0; r < check->size; r++) {
        struct run *run = &check->rank[r].run;
        if (!open_memory(&check->rank[r], in_place))
            return;
        run->channel = &check->rank[r].channel;
        run->seq = 1;
        run->fingerprint = 0x5eed;
        run->index = (uint32_t)r;
        run->rank = r;
        run->size = check->size;
    }
    run_all(check, order);
    if (!check->broken)
        check_wire_end(check);
    compare_all(check);
}

enum comm_result program_check(const struct comm_env *env, program_build_fn *build, uint32_t collective, int32_t size, int32_t root,
                               size_t elements, char *text, size_t text_bytes)
{
    return program_check_hosts(env, build, collective, size, root, elements, NULL, text, text_bytes);
}

enum comm_result program_check_hosts(const struct comm_env *env, program_build_fn *build, uint32_t collective, int32_t size, int32_t root,
                                     size_t elements, const struct program_hosts *hosts, char *text, size_t text_bytes)
{
    static const struct {
        enum order order;
        uint32_t mode;
    } trials[] = {
        {ORDER_ROUND, CHECK_ONE},        {ORDER_REVERSE, CHECK_KEEP | CHECK_ONE},       {ORDER_STARVE_FIRST, CHECK_KEEP | CHECK_DEEP},
        {ORDER_STARVE_LAST, CHECK_PADS}, {ORDER_STARVE_FIRST, CHECK_PADS | CHECK_DEEP},
    };
    if (size < 1 || size > CHECK_RANKS_MAX || root < 0 || root >= size)
        return COMM_ERR_ARGUMENT;
    /* Each trial without and, if the collective supports it, with its result in place. */
    uint32_t each = collective == COLLECTIVE_BARRIER || is_broadcast(collective) ? 1 : 2;
    for (uint32_t t = 0; t < each * sizeof trials / sizeof *trials; t++) {
        struct check check = {
            .env = env,
            .build = build,
            .collective = collective,
            .mode = trials[t / each].mode,
            .size = size,
            .root = root,
            .hosts = hosts,
            .elements = collective == COLLECTIVE_BARRIER ? 0 : elements,
            .text = text,
            .text_bytes = text_bytes,
        };
        check_once(&check, trials[t / each].order, t % each);
        give_all(&check);
        if (check.no_memory)
            return COMM_ERR_MEMORY;
        if (check.broken)
            return COMM_ERR_CORRUPT;
    }
    return COMM_OK;
}
