/*
 * The small exchange of a scan along the tree (algo/scan_blocks.c): what this rank shows to the ranks of the next block, and its prefix. It
 * combines two values at a time, in the order of that program. The total of the left block is always the left operand, from the lowest bit
 * of the rank upwards.
 */
#include "fastpath/fastpath.h"

#include "comm/state.h"

/* A value, and whether it is in the accumulator type. */
struct operand {
    const void *at;
    bool partial;
};

static struct operand left_of(const struct comm_state *b, uint32_t level)
{
    return (struct operand){b->fastpath->from[algo_exchange_left(b->team.rank, level)], level > 0};
}

/* Combines the two into `to`, as a final or a partial value. */
static struct operand join(const struct comm_state *b, const struct call_template *f, struct operand left, struct operand right, void *to,
                           bool final)
{
    const void *const two[] = {left.at, right.at};
    struct data_reduce sum = f->sum;

    sum.from = two;
    sum.ways = 2;
    sum.partial = (uint64_t)left.partial | (uint64_t)right.partial << 1;
    sum.to = to;
    sum.final = final;
    sum.is_plain = b->fastpath->is_plain;
    f->reduce(&sum);
    return (struct operand){to, !final};
}

static void round_off(const struct comm_state *b, const struct call_template *f, struct operand of, void *out)
{
    struct data_reduce sum = f->sum;

    sum.from = &of.at;
    sum.ways = 1;
    sum.partial = of.partial;
    sum.to = out;
    sum.is_plain = b->fastpath->is_plain;
    f->reduce(&sum);
}

void fastpath_make_total(struct comm_state *b, const struct call_template *f, const void *in)
{
    struct operand has = {in, false};

    for (uint32_t level = 0; f->elements && b->team.rank >> level & 1; level++)
        has = join(b, f, left_of(b, level), has, b->fastpath->total, false);
}

void fastpath_make_prefix(struct comm_state *b, const struct call_template *f, const void *in, void *out)
{
    uint32_t levels = (uint32_t)b->team.rank, ended = (uint32_t)__builtin_ctz(~levels);
    bool inclusive = f->as.collective == COLLECTIVE_SCAN;
    struct operand has = {in, false};

    if (!f->elements)
        return;
    if (inclusive && f->later) {
        has = (struct operand){b->fastpath->total, true};
        levels = levels >> ended << ended;
    }
    if (!inclusive) {
        has = left_of(b, (uint32_t)__builtin_ctz(levels));
        levels &= levels - 1;
    }
    if (!levels)
        round_off(b, f, has, out);
    for (; levels; levels &= levels - 1) {
        bool last = !(levels & (levels - 1));
        has = join(b, f, left_of(b, (uint32_t)__builtin_ctz(levels)), has, last ? out : b->fastpath->total, last);
    }
}
