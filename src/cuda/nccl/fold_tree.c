/*
 * The canonical tree over any number of inputs, by a kernel of the host, which takes at most DATA_WAYS_MAX. Groups of so many are aligned,
 * so they are subtrees. Their results are partial, in the accumulator, and are combined in pairs along the bits of their number: a binary
 * counter. It goes part by part of the vector, so that the partial results stay in the CPU's cache. Knows neither ranks nor devices.
 */
#include "cuda/nccl/fold_tree.h"

enum { PART_BYTES = 32768 /* of partial results */ };
_Static_assert((int)PART_BYTES >= (int)DATA_USER_BYTES_MAX, "a part has at least one element of the program's");
_Static_assert((DATA_WAYS_MAX & (DATA_WAYS_MAX - 1)) == 0, "a group is a subtree");

/* The elements that are reduced together. */
struct part {
    const struct fold_tree *t;
    size_t at, elements;
};

static uint32_t groups_of(uint32_t ways)
{
    return (ways + DATA_WAYS_MAX - 1) / DATA_WAYS_MAX;
}

/* A place for each bit of a group's number, and one for the group that is added. */
size_t fold_tree_room(uint32_t ways)
{
    size_t places = 1;

    for (uint32_t last = groups_of(ways) - 1; last; last >>= 1)
        places++;
    return ways > DATA_WAYS_MAX ? places * PART_BYTES : 0;
}

static char *place(const struct part *p, uint32_t depth)
{
    return p->t->room + (size_t)depth * PART_BYTES;
}

static void reduce(const struct part *p, const void *const *from, uint64_t partial, uint32_t ways, void *to, bool final)
{
    const struct fold_tree *t = p->t;

    t->kernel(&(struct data_reduce){.from = from,
                                    .partial = partial,
                                    .ways = ways,
                                    .divisor = t->divisor,
                                    .context = t->context,
                                    .to = to,
                                    .elements = p->elements,
                                    .final = final});
}

/* A group's inputs. Returns their number. */
static uint32_t inputs_of(const struct part *p, uint32_t group, const void **from)
{
    const struct fold_tree *t = p->t;
    uint32_t first = group * DATA_WAYS_MAX, count = t->ways - first < DATA_WAYS_MAX ? t->ways - first : DATA_WAYS_MAX;

    for (uint32_t i = 0; i < count; i++)
        from[i] = t->in + (first + i) * t->stride + p->at * t->element_bytes;
    return count;
}

/* The upper two places become one. */
static void combine(const struct part *p, uint32_t depth)
{
    reduce(p, (const void *[]){place(p, depth - 2), place(p, depth - 1)}, 3, 2, place(p, depth - 2), false);
}

static void fold_groups(const struct part *p)
{
    const struct fold_tree *t = p->t;
    const void *from[DATA_WAYS_MAX];
    uint32_t depth = 0;

    for (uint32_t group = 0; group < groups_of(t->ways); group++) {
        uint32_t count = inputs_of(p, group, from);
        reduce(p, from, 0, count, place(p, depth++), false);
        for (uint32_t bits = group; bits & 1; bits >>= 1)
            combine(p, depth--);
    }
    for (; depth > 1; depth--)
        combine(p, depth);
    reduce(p, (const void *[]){place(p, 0)}, 1, 1, t->out + p->at * t->element_bytes, true);
}

void fold_tree(const struct fold_tree *t)
{
    size_t most = PART_BYTES / t->partial_bytes / t->grain * t->grain;
    struct part p = {.t = t, .elements = t->elements};
    const void *from[DATA_WAYS_MAX];

    if (t->ways <= DATA_WAYS_MAX) {
        uint32_t count = inputs_of(&p, 0, from);
        reduce(&p, from, 0, count, t->out, true);
        return;
    }
    for (; p.at < t->elements; p.at += p.elements) {
        p.elements = t->elements - p.at < most ? t->elements - p.at : most;
        fold_groups(&p);
    }
}
