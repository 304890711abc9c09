/*
 * Exhaustive exploration: one small world is run again and again, each time with another order in which its frames
 * arrive, until no order is left. Deliveries to different ranks commute, so only one of the orders that differ in
 * nothing else is run: sleep sets (Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems",
 * 1996).
 */
#include "sim/orders.h"

#include "sim/collectives.h"
#include "sim/inside.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 512, RANKS_MOST = 3 };

/* A point of the exploration; sets have one bit for each ordered pair of ranks. */
struct node {
    uint32_t enabled, asleep, tried, chosen;
};
struct explorer {
    struct node node[DEPTH_MAX];
    uint32_t depth, known; /* depth of this run; number of choices that are given */
    uint32_t ranks;
    bool pruned;
};

static uint32_t independent_of(const struct explorer *x, uint32_t set, uint32_t chosen)
{
    uint32_t left = 0;

    for (uint32_t c = 0; c < x->ranks * x->ranks; c++)
        if (set >> c & 1 && c % x->ranks != chosen % x->ranks)
            left |= 1u << c;
    return left;
}

static uint32_t choose(void *arg, const uint32_t *connections, uint32_t count)
{
    struct explorer *x = arg;
    struct node *n = &x->node[x->depth];
    uint32_t enabled = 0;

    for (uint32_t i = 0; i < count; i++)
        enabled |= 1u << connections[i];
    if (x->depth >= x->known) {
        const struct node *before = x->depth ? n - 1 : NULL;
        *n = (struct node){.enabled = enabled};
        n->asleep = before ? independent_of(x, before->asleep | before->tried, before->chosen) & enabled : 0;
        uint32_t open = enabled & ~n->asleep;
        x->pruned = !open || x->depth + 1 == DEPTH_MAX;
        if (x->pruned)
            return UINT32_MAX;
        n->chosen = (uint32_t)__builtin_ctz(open);
    }
    SIM_CHECK(n->enabled == enabled, "the run is not the same again: its choice %u has other frames", x->depth);
    x->depth++;
    for (uint32_t i = 0; i < count; i++)
        if (connections[i] == n->chosen)
            return i;
    return UINT32_MAX;
}

/* Prepares the next order: advances the last choice that has alternatives left. False: all orders are done. */
static bool next_order(struct explorer *x)
{
    for (; x->depth; x->depth--) {
        struct node *n = &x->node[x->depth - 1];
        n->tried |= 1u << n->chosen;
        uint32_t open = n->enabled & ~n->asleep & ~n->tried;
        if (open) {
            n->chosen = (uint32_t)__builtin_ctz(open);
            x->known = x->depth;
            return true;
        }
    }
    return false;
}

static void explore(struct orders_tally *t, int32_t ranks, enum deed_kind kind, uint32_t calls, uint64_t most)
{
    static struct explorer x;
    static struct deeds deeds;
    static struct sim_result result;
    uint64_t runs = 0, whole = 0, failures = t->failures;
    struct sim_config config = {.seed = 1,
                                .ranks = ranks,
                                .wire = SIM_WIRE_FRAMES,
                                .calm = true,
                                .order = SIM_ORDER_SCRIPT,
                                .options = "COMM_SPIN=0 COMM_YIELD=0 COMM_PROGRESS=caller COMM_CPUS=1 COMM_WINDOW=4",
                                .choose = choose,
                                .choose_arg = &x};

    x = (struct explorer){.ranks = (uint32_t)ranks};
    do {
        memset(&deeds, 0, sizeof deeds);
        deeds = (struct deeds){.seed = 1, .ranks = ranks, .count = calls, .depth = calls, .plain = true};
        for (uint32_t i = 0; i < calls; i++)
            deeds.deed[i] = (struct deed){kind, COMM_I32, COMM_SUM, ranks - 1, 3, i + 1};
        x.depth = 0;
        bool ok = sim_run(&config, deeds_main, &deeds, &result);
        runs++;
        whole += !x.pruned;
        t->events += result.events;
        t->failures += !ok;
        if (!ok)
            printf("orders: deed %d x %u, %d ranks, order %llu: %s\n", kind, calls, ranks, (unsigned long long)runs, result.text);
    } while (t->failures - failures < 3 && runs < most && next_order(&x));
    t->runs += whole;
    printf("orders: deed %d x %u, %d ranks: %llu orders%s\n", kind, calls, ranks, (unsigned long long)whole,
           runs >= most ? ", not all" : "");
}

struct orders_tally orders_explore(uint64_t most)
{
    struct orders_tally t = {0, 0, 0};

    for (int32_t ranks = 2; ranks <= RANKS_MOST; ranks++)
        for (int kind = 0; kind < DEED_KINDS; kind++)
            for (uint32_t calls = 1; calls <= (ranks == 2 ? 2u : 1u); calls++)
                explore(&t, ranks, (enum deed_kind)kind, calls, most);
    return t;
}
