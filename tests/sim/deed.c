/* One collective on one rank: its buffers, the call, and the expected result. */
#include "conform/oracle.h"
#include "sim/collectives.h"
#include "sim/inside.h"

#include <string.h>

const char *const deed_names[DEED_KINDS] = {
    "barrier", "broadcast", "reduce",  "allreduce", "allgather", "allgather_v", "reduce_scatter",   "scan",           "exscan",
    "gather",  "gather_v",  "scatter", "scatter_v", "alltoall",  "alltoall_v",  "reduce_scatter_v", "broadcast_bytes"};

/* ------------------------------------------------------------------------------------------------------------ layout */
/* Elements that one rank sends to another, in collectives that move blocks; in the others a rank's contribution has n
 * elements. */
static size_t block_of(const struct deed *d, int32_t from, int32_t to)
{
    switch (d->kind) {
    case DEED_ALLGATHER_V:
    case DEED_GATHER_V:
        return d->n * (size_t)(from % 3) / 2;
    case DEED_SCATTER_V:
    case DEED_REDUCE_SCATTER_V:
        return d->n * (size_t)(to % 3) / 2;
    case DEED_ALLTOALL_V:
        return d->n * (size_t)((from + 2 * to) % 3) / 2;
    default:
        return d->n;
    }
}

static bool gives_blocks(const struct deed *d, int32_t rank)
{
    switch (d->kind) {
    case DEED_SCATTER:
    case DEED_SCATTER_V:
        return rank == d->root;
    case DEED_ALLTOALL:
    case DEED_ALLTOALL_V:
    case DEED_REDUCE_SCATTER:
    case DEED_REDUCE_SCATTER_V:
        return true;
    default:
        return false;
    }
}

static bool takes_blocks(const struct deed *d, int32_t rank)
{
    switch (d->kind) {
    case DEED_GATHER:
    case DEED_GATHER_V:
        return rank == d->root;
    case DEED_ALLGATHER:
    case DEED_ALLGATHER_V:
    case DEED_ALLTOALL:
    case DEED_ALLTOALL_V:
        return true;
    default:
        return false;
    }
}

/* Where block `to` begins in the input of `from`; with to = ranks: the input's length. */
static size_t in_at(const struct deed *d, int32_t ranks, int32_t from, int32_t to)
{
    size_t at = 0;

    if (!gives_blocks(d, from))
        return to < ranks ? 0 : block_of(d, from, 0);
    for (int32_t r = 0; r < to; r++)
        at += block_of(d, from, r);
    return at;
}

static size_t out_n(const struct deed *d, int32_t ranks, int32_t rank)
{
    size_t n = 0;

    if (takes_blocks(d, rank)) {
        for (int32_t r = 0; r < ranks; r++)
            n += block_of(d, r, rank);
        return n;
    }
    if (d->kind == DEED_GATHER || d->kind == DEED_GATHER_V || (d->kind == DEED_EXSCAN && rank == 0))
        return 0;
    return block_of(d, d->root, rank);
}

/* ------------------------------------------------------------------------------------------------------------ the call */
void deed_prepare(struct deed_part *p, const struct deed *d, int32_t rank, int32_t ranks)
{
    size_t width = oracle_type_bytes(d->type), at = 0;

    p->deed = d;
    p->ranks = ranks;
    p->give = sim_take(4 * (size_t)ranks * sizeof *p->give);
    p->give_at = p->give + ranks;
    p->take = p->give_at + ranks;
    p->take_at = p->take + ranks;
    for (int32_t r = 0; r < ranks; r++) {
        p->give[r] = block_of(d, rank, r);
        p->give_at[r] = in_at(d, ranks, rank, r);
        p->take[r] = block_of(d, r, rank);
        p->take_at[r] = at;
        at += p->take[r];
    }
    p->in_n = in_at(d, ranks, rank, ranks);
    p->out_n = out_n(d, ranks, rank);
    p->in = sim_take(p->in_n * width + 1);
    p->out = sim_take(p->out_n * width + 1);
    bool fills = d->kind != DEED_BARRIER;
    if (fills)
        oracle_fill(p->in, p->in_n, d->type, d->op, d->seed, rank);
    if ((d->kind == DEED_BROADCAST || d->kind == DEED_BROADCAST_BYTES) && rank == d->root)
        memcpy(p->out, p->in, p->in_n * width);
    p->bytes = p->out_n * width;
}

static enum comm_result issue_blocks(struct deed_part *p, struct comm_communicator *c, int32_t rank)
{
    const struct deed *d = p->deed;

    switch (d->kind) {
    case DEED_GATHER:
        return comm_gather(c, p->in, p->out, d->n, d->type, d->root, &p->request);
    case DEED_GATHER_V:
        return comm_gather_v(c, p->in, p->in_n, p->out, p->take, p->take_at, d->type, d->root, &p->request);
    case DEED_SCATTER:
        return comm_scatter(c, p->in, p->out, d->n, d->type, d->root, &p->request);
    case DEED_SCATTER_V:
        return comm_scatter_v(c, p->in, p->give, rank % 2 ? p->give_at : NULL, p->out, p->out_n, d->type, d->root, &p->request);
    case DEED_ALLTOALL:
        return comm_alltoall(c, p->in, p->out, d->n, d->type, &p->request);
    case DEED_ALLTOALL_V:
        return comm_alltoall_v(c, p->in, p->give, p->give_at, p->out, p->take, p->take_at, d->type, &p->request);
    case DEED_REDUCE_SCATTER_V:
        return comm_reduce_scatter_v(c, p->in, p->out, p->give, d->type, d->op, &p->request);
    default:
        return comm_broadcast_bytes(c, p->out, &p->bytes, d->root, &p->request);
    }
}

enum comm_result deed_issue(struct deed_part *p, struct comm_communicator *c, int32_t rank)
{
    const struct deed *d = p->deed;

    switch (d->kind) {
    case DEED_BARRIER:
        return comm_barrier(c, &p->request);
    case DEED_BROADCAST:
        return comm_broadcast(c, p->out, d->n, d->type, d->root, &p->request);
    case DEED_REDUCE:
        return comm_reduce(c, p->in, p->out, d->n, d->type, d->op, d->root, &p->request);
    case DEED_ALLREDUCE:
        return comm_allreduce(c, p->in, p->out, d->n, d->type, d->op, &p->request);
    case DEED_ALLGATHER:
        return comm_allgather(c, p->in, p->out, d->n, d->type, &p->request);
    case DEED_ALLGATHER_V:
        return comm_allgather_v(c, p->in, p->out, p->take, NULL, d->type, &p->request);
    case DEED_REDUCE_SCATTER:
        return comm_reduce_scatter(c, p->in, p->out, d->n, d->type, d->op, &p->request);
    case DEED_SCAN:
        return comm_scan(c, p->in, p->out, d->n, d->type, d->op, &p->request);
    case DEED_EXSCAN:
        return comm_exscan(c, p->in, p->out, d->n, d->type, d->op, &p->request);
    default:
        return issue_blocks(p, c, rank);
    }
}

/* ------------------------------------------------------------------------------------------------------------ expected results */
/* The input of that rank: computed once for all ranks. */
static const char *input_of(struct deeds *all, const struct deed *d, int32_t rank)
{
    void ***inputs = &all->input[d - all->deed];
    size_t n = in_at(d, all->ranks, rank, all->ranks);

    if (!*inputs)
        *inputs = sim_take((size_t)all->ranks * sizeof **inputs);
    if (!(*inputs)[rank]) {
        (*inputs)[rank] = sim_take(n * oracle_type_bytes(d->type) + 1);
        oracle_fill((*inputs)[rank], n, d->type, d->op, d->seed, rank);
    }
    return (*inputs)[rank];
}

/* Reduces the contributions of the first `ranks` ranks into the caller's memory. */
static void reduce_first(struct deeds *all, const struct deed *d, int32_t ranks, void *out)
{
    const void *in[SIM_RANKS_MAX];

    for (int32_t r = 0; r < ranks; r++)
        in[r] = input_of(all, d, r);
    oracle_reduce(in, ranks, in_at(d, all->ranks, 0, all->ranks), d->type, d->op, out);
}

/* The reduction of all contributions: computed once for all ranks. */
static const char *reduce_all(struct deeds *all, const struct deed *d)
{
    void **reduced = &all->reduced[d - all->deed];

    if (!*reduced) {
        *reduced = sim_take(in_at(d, all->ranks, 0, all->ranks) * oracle_type_bytes(d->type) + 1);
        reduce_first(all, d, all->ranks, *reduced);
    }
    return *reduced;
}

static void expect_blocks(struct deeds *all, const struct deed_part *p, int32_t rank, char *want)
{
    const struct deed *d = p->deed;
    size_t width = oracle_type_bytes(d->type), at = 0;

    for (int32_t r = 0; r < all->ranks && takes_blocks(d, rank); r++) {
        memcpy(want + at, input_of(all, d, r) + in_at(d, all->ranks, r, rank) * width, block_of(d, r, rank) * width);
        at += block_of(d, r, rank) * width;
    }
}

static void expect(struct deeds *all, const struct deed_part *p, int32_t rank, char *want)
{
    const struct deed *d = p->deed;
    size_t width = oracle_type_bytes(d->type), bytes = p->out_n * width;

    switch (d->kind) {
    case DEED_BARRIER:
        break;
    case DEED_BROADCAST:
    case DEED_BROADCAST_BYTES:
        memcpy(want, input_of(all, d, d->root), bytes);
        break;
    case DEED_REDUCE:
        if (rank == d->root)
            memcpy(want, reduce_all(all, d), bytes);
        break;
    case DEED_ALLREDUCE:
        memcpy(want, reduce_all(all, d), bytes);
        break;
    case DEED_REDUCE_SCATTER:
    case DEED_REDUCE_SCATTER_V:
        memcpy(want, reduce_all(all, d) + in_at(d, all->ranks, rank, rank) * width, bytes);
        break;
    case DEED_SCAN:
        reduce_first(all, d, rank + 1, want);
        break;
    case DEED_EXSCAN:
        if (rank > 0)
            reduce_first(all, d, rank, want);
        break;
    case DEED_SCATTER:
    case DEED_SCATTER_V:
        memcpy(want, input_of(all, d, d->root) + in_at(d, all->ranks, d->root, rank) * width, bytes);
        break;
    default:
        expect_blocks(all, p, rank, want);
    }
}

void deed_verify(struct deeds *all, const struct deed_part *p, int32_t rank)
{
    const struct deed *d = p->deed;
    size_t bytes = p->out_n * oracle_type_bytes(d->type) + 1;
    void *want = sim_take(bytes);

    expect(all, p, rank, want);
    size_t n = d->kind == DEED_BARRIER ? 0 : p->out_n, at = oracle_differ(p->out, want, n, d->type);
    sim_doing(deed_names[d->kind], p->number);
    SIM_CHECK(at == n, "element %zu of %zu is wrong (n=%zu type=%s root=%d)", at, n, d->n, oracle_type_name(d->type), d->root);
    SIM_CHECK(d->kind != DEED_BROADCAST_BYTES || p->bytes + 1 == bytes, "it came with %zu bytes, not %zu", p->bytes, bytes - 1);
    sim_note_bytes(p->out, n * oracle_type_bytes(d->type));
    sim_memory_give(want, bytes, false);
}
