/* Symbols instead of numbers. Two symbols can be combined only if they are children of one node of T, over all ranks or
 * over the first ones. An interval identifies its node, so whatever was combined without error is T, with every
 * contribution once. An invalid combination gives 0, which cannot be combined with anything. */
#include "program/verify.h"

enum { SYMBOL_MAGIC = 0x155, SYMBOL_BITS = 9, SYMBOL_MASK = (1 << SYMBOL_BITS) - 1, SYMBOL_ELEMENT_MASK = (1 << 26) - 1 };
_Static_assert((int)CHECK_RANKS_MAX <= (int)SYMBOL_MASK, "ranks fit their fields");

/* magic 9, size 9, lo 9, hi 9, kind 2, element 26 */
uint64_t check_pack(struct check_symbol symbol)
{
    uint64_t word = SYMBOL_MAGIC;
    word = word << SYMBOL_BITS | symbol.size;
    word = word << SYMBOL_BITS | symbol.lo;
    word = word << SYMBOL_BITS | symbol.hi;
    word = word << 2 | (uint64_t)symbol.kind;
    return word << 26 | (symbol.element & SYMBOL_ELEMENT_MASK);
}

static struct check_symbol unpack(uint64_t word)
{
    struct check_symbol symbol = {
        .element = (uint32_t)(word & SYMBOL_ELEMENT_MASK),
        .kind = (enum check_kind)(word >> 26 & 3),
        .hi = (uint32_t)(word >> 28) & SYMBOL_MASK,
        .lo = (uint32_t)(word >> 37) & SYMBOL_MASK,
        .size = (uint32_t)(word >> 46) & SYMBOL_MASK,
    };
    return word >> 55 == SYMBOL_MAGIC ? symbol : (struct check_symbol){.size = 0};
}

static struct check_symbol combine(struct check_symbol a, struct check_symbol b)
{
    uint32_t half = b.lo - a.lo, end = a.lo + 2 * half < a.size ? a.lo + 2 * half : a.size;
    bool alike = a.size && a.size == b.size && a.element == b.element;
    bool node = a.hi == b.lo && half && !(half & (half - 1)) && a.lo % (2 * half) == 0 && b.hi <= end;
    if (!alike || !node)
        return (struct check_symbol){.size = 0};
    a.hi = b.hi;
    return a;
}

static struct check_symbol load(const struct data_reduce *reduce, uint32_t way, size_t element)
{
    const uint64_t *words = reduce->from[way];
    if (reduce->partial >> way & 1) {
        struct check_symbol symbol = unpack(words[2 * element]);
        return symbol.kind == CHECK_PARTIAL && words[2 * element + 1] == ~words[2 * element] ? symbol : (struct check_symbol){.size = 0};
    }
    struct check_symbol symbol = unpack(words[element]);
    return symbol.kind == CHECK_RAW ? symbol : (struct check_symbol){.size = 0};
}

/* A binary counter: block j is combined with its left neighbour as often as j + 1 is even; the rest is combined from
 * the right. */
static struct check_symbol tree(const struct data_reduce *reduce, size_t element)
{
    struct check_symbol stack[32];
    uint32_t height = 0;
    for (uint32_t j = 0; j < reduce->ways; j++) {
        stack[height++] = load(reduce, j, element);
        for (uint32_t rest = j + 1; !(rest & 1); rest >>= 1, height--)
            stack[height - 2] = combine(stack[height - 2], stack[height - 1]);
    }
    for (; height > 1; height--)
        stack[height - 2] = combine(stack[height - 2], stack[height - 1]);
    return stack[0];
}

static void store(void *to, size_t element, struct check_symbol symbol, bool final)
{
    uint64_t *words = to;
    bool whole = symbol.lo == 0; /* the collective decides how far it must reach: a scan's results are T over the first ranks */
    symbol.kind = final ? CHECK_FINAL : CHECK_PARTIAL;
    uint64_t word = symbol.size && (whole || !final) ? check_pack(symbol) : 0;
    if (final) {
        words[element] = word;
    } else {
        words[2 * element] = word;
        words[2 * element + 1] = ~word;
    }
}

void check_reduce(const struct data_reduce *reduce)
{
    for (size_t e = 0; e < reduce->elements; e++) {
        struct check_symbol symbol = tree(reduce, e);
        if (reduce->divisor != symbol.size)
            symbol.size = 0;
        store(reduce->to, e, symbol, reduce->final);
        if (reduce->also)
            store(reduce->also, e, symbol, reduce->final);
    }
}
